"""The page's files, and what is shown of found plans: views, comparisons, exports, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.request_bodies import MODEL

from shardwright.api.html.page_file import web_text
from shardwright.api.server.page import FILES, POLICY
from shardwright.spec.codec import dump_pretty
from shardwright.spec.units import format_seconds

Plan = Callable[..., Any]
PROBLEM = "application/problem+json"
WORK = {"global_batch": 16, "seq_len": 256}
BODIES = (
    {"model": "gpt2", "cluster": "2xH100", "workload": WORK},
    {"model": "gpt2", "cluster": "4xH100", "workload": WORK, "constraints": {"oom_risk": 0.01}},
)
MOST_BYTES = 150_000


def _data(page: str) -> str:
    """The data block of a page in one file."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def client(service: Any) -> Any:
    with httpx.Client(base_url=service.url, timeout=45) as made:
        yield made


@pytest.fixture(scope="module")
def places(client: httpx.Client) -> list[str]:
    """Where two plans are."""
    wait = {"Prefer": "wait=30"}
    made = [client.post("/v1/plans", json=body, headers=wait) for body in BODIES]
    assert [answer.status_code for answer in made] == [200, 200]
    return [answer.headers["location"] for answer in made]


def test_the_page_is_small_and_closed(client: httpx.Client) -> None:
    index = client.get("/")
    assert index.status_code == 200
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert index.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    named = re.findall(r'(?:src|href)="([^"#]+)"', index.text)
    assert sorted(set(named)) == sorted(["/docs", *(f"/page/{name}" for name in FILES)])
    assert not re.search(r"<script(?! defer src=)|<style| style=| on[a-z]+=", index.text)
    files = [client.get(f"/page/{name}") for name in FILES]
    assert {answer.status_code for answer in files} == {200}
    assert len(index.content) + sum(len(answer.content) for answer in files) <= MOST_BYTES


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_page(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/page/{name}")
    assert answer.text == web_text(name)
    for header in ("content-security-policy", "x-content-type-options", "etag"):
        assert answer.headers[header]
    known = {"If-None-Match": answer.headers["etag"]}
    assert client.get(f"/page/{name}", headers=known).status_code == 304
    outside = r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|insertAdjacent|document\.write|eval\("
    assert not re.search(outside, answer.text)
    assert "@import" not in answer.text
    assert "url(" not in answer.text


@pytest.mark.parametrize(
    "path", ["/page/", "/page/nothing.js", "/page/file.js", "/page/%2e%2e/page_file.py", "/page"]
)
def test_other_files_are_not_there(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


def test_a_view_says_what_the_answer_says(client: httpx.Client, places: list[str]) -> None:
    answer = client.get(places[1]).json()["answer"]
    seen = client.get(places[1] + "/view")
    view = seen.json()
    assert view["plan_hash"] == answer["plan_hash"]
    assert view["step_time_s"] == answer["prediction"]["step_time_s"]
    assert [note["path"] for note in view["assumptions"]] == [
        note["path"] for note in answer["assumptions"]
    ]
    assert len(view["rivals"]) == len(answer["alternatives"])
    heads, rows = view["layers"]["heads"], view["layers"]["rows"]
    assert rows[0][heads.index("kind")] == "embedding: vocab 50257"
    last = rows[-1][heads.index("layers")].rpartition("-")[2]
    assert int(last) == 13  # the embedding, 12 blocks, the head
    paths = [key["path"] for key in view["keys"]]
    assert "intra_node.bandwidth" in paths
    assert "inter_node.bandwidth" not in paths  # there is one node
    known = {"If-None-Match": seen.headers["etag"]}
    assert client.get(places[1] + "/view", headers=known).status_code == 304


def test_a_view_tells_what_chunks_hide(client: httpx.Client, places: list[str]) -> None:
    assert client.get(places[0] + "/view").json()["overlaps"] == []
    pins = ["tp=2", "sp=megatron", "tp_overlap=chunked:2", "micro_batch=1", "recompute=none"]
    made = client.post(
        "/v1/plans",
        json={**BODIES[0], "constraints": {"pins": pins}},
        headers={"Prefer": "wait=30"},
    )
    assert made.status_code == 200
    place = made.headers["location"]
    body = {"plan": client.get(place).json()["answer"]["plan"], "include": ["explain"]}
    explained = client.post("/v1/simulations", json=body).json()["explain"]["overlaps"]
    rows = client.get(place + "/view").json()["overlaps"]
    assert rows == json.loads(_data(client.get(place + "/export/html").text))["view"]["overlaps"]
    blocks = next(row for row in rows if row["layers"] == 12)
    block = next(row for row in explained if row["layers"] == 12)
    assert [row["layer"] for row in rows] == [row["first_layer"] for row in explained]
    for way in ("forward", "backward"):
        shown, plain = (format_seconds(block[kind + way + "_s"]) for kind in ("", "plain_"))
        assert blocks[way] == f"{shown} of {plain}"
    assert block["added_s"] > 0
    assert blocks["kernels"] == f"{format_seconds(block['added_s'])} longer"


def test_every_key_of_a_view_may_be_asked(client: httpx.Client, places: list[str]) -> None:
    keys = client.get(places[0] + "/view").json()["keys"]
    sizes = [key["path"] for key in keys if key["path"] in ("device.hbm", "intra_node.bandwidth")]
    question = {"plan_id": places[0].rpartition("/")[2], "set": dict.fromkeys(sizes, "2x")}
    answer = client.post("/v1/what-ifs", json=question, headers={"Prefer": "wait=30"})
    assert answer.status_code == 200
    assert sorted(change["path"] for change in answer.json()["changes"]) == sorted(sizes)


def test_a_comparison_adds_up(client: httpx.Client, places: list[str]) -> None:
    first, second = (client.get(place).json()["answer"] for place in places)
    made = client.get(f"{places[0]}/compare/{places[1].rpartition('/')[2]}").json()
    for name, answer in (("first", first), ("second", second)):
        assert made[name]["plan_hash"] == answer["plan_hash"]
    assert made["unit"] == "step"
    for key, whole in zip(("first_s", "second_s"), made["whole_s"], strict=True):
        assert sum(term[key] for term in made["terms"]) == pytest.approx(whole, rel=1e-9)
    view = made["view"]
    assert {axis for axis, _, _ in view["questions"]} == {"cluster"}
    shares = [sum(term["share"] for term in side["terms"]) for side in view["sides"]]
    assert max(shares) == pytest.approx(1.0, rel=1e-6)
    assert min(shares) / max(shares) == pytest.approx(
        min(made["whole_s"]) / max(made["whole_s"]), rel=1e-6
    )


def test_exports_are_files(
    client: httpx.Client, places: list[str], plan: Plan, tmp_path: Path
) -> None:
    kept = client.get(places[0]).json()["answer"]
    answer = client.get(places[0] + "/export/plan")
    assert answer.text == dump_pretty(kept["plan"])
    assert re.fullmatch(
        r'attachment; filename="plan-[0-9a-f]{12}\.json"', answer.headers["content-disposition"]
    )
    page = client.get(places[0] + "/export/html")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-disposition"].startswith("attachment; ")
    data = json.loads(_data(page.text))
    (tmp_path / "plan.json").write_text(answer.text)
    done = plan("export", str(tmp_path / "plan.json"), "--to", "html")
    assert done.code == 0
    written = (tmp_path / "plan.html").read_text(encoding="utf-8")
    again = json.loads(_data(written))
    for part in ("plan", "trace"):
        assert data[part] == again[part]
    assert data["view"]["terms"] == again["view"]["terms"]
    assert data["view"]["rivals"]  # a search has some, a simulation none


def test_a_picture_is_a_file(client: httpx.Client, places: list[str]) -> None:
    answer = client.get(places[1] + "/export/svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["content-disposition"].endswith('.svg"')
    kept = client.get(places[1]).json()["answer"]
    assert answer.text.startswith("<svg ")
    assert f"micro-batch {kept['plan']['programs'][0]['schedule']['micro_batch']} x" in answer.text


def test_words_of_a_question_are_those_that_it_takes(client: httpx.Client) -> None:
    words = client.get("/v1/choices").json()
    body = {**BODIES[0], "constraints": {"top": 0}, "deadline_s": 1}
    asked = [
        {**body, "workload": {**WORK, "optimizer": words["optimizer"][-1]}},
        {**body, "workload": {**WORK, "dtype": words["dtype"][-1]}, "cluster": "2xB200"},
        {**body, "workload": {**WORK, "trainable": words["trainable"][1]}},
        *({**body, "prefer": word} for word in words["prefer"]),
        *({**body, "stack": word} for word in words["stack"][:2]),
    ]
    for question in asked:
        made = client.post("/v1/plans", json=question)
        assert made.status_code == 202, made.text
        assert client.delete(made.headers["location"]).status_code in (202, 204)


@pytest.mark.parametrize("target", ["htm", "megatron", "PLAN", "x" * 200, "%2e%2e"])
def test_other_exports_name_those_there_are(
    client: httpx.Client, places: list[str], target: str
) -> None:
    answer = client.get(f"{places[0]}/export/{target}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
    if target != "%2e%2e":
        assert "html, plan" in answer.json()["detail"]
    assert "xxxx" not in answer.text


def test_what_has_no_plan_shows_none(client: httpx.Client, places: list[str]) -> None:
    body = {"model": "llama-3-70b", "cluster": "1xH100", "workload": WORK}
    failed = client.post("/v1/plans", json=body, headers={"Prefer": "wait=30"})
    assert failed.status_code == 422
    place, nothing = failed.headers["location"], "/v1/plans/" + "0" * 32
    known = places[0].rpartition("/")[2]
    for what in ("/trace", "/view", "/export/html", "/export/plan", f"/compare/{known}"):
        assert client.get(place + what).status_code == 409
        missing = client.get(nothing + what)
        assert (missing.status_code, missing.json()["detail"]) == (404, "there is no such job")
    assert client.get(f"{places[0]}/compare/{'0' * 32}").status_code == 404
    assert client.get(f"{places[0]}/compare/nothing").status_code == 404


def test_a_list_tells_what_was_asked(client: httpx.Client, places: list[str]) -> None:
    model = {**MODEL, "name": "mine"}
    body = {"model": model, "cluster": "2xH100", "workload": WORK}
    client.post("/v1/plans", json=body, headers={"Prefer": "wait=30"})
    items = {
        item["id"]: item["asked"] for item in client.get("/v1/plans?limit=100").json()["items"]
    }
    priced = {"stack": None, "calibration": None, "oom_risk": None}
    wished = ("global_batch_tokens", "dtype", "optimizer", "trainable", "objective", "prefer",
              "memory_gib", "host_gib", "nvme_gib", "pins", "framework")  # fmt: skip
    known = {"cluster": "2xH100", **WORK, **priced, **dict.fromkeys(wished)}
    first = {"model": "gpt2", "model_name": None, **known}
    assert items[places[0].rpartition("/")[2]] == first
    assert next(iter(items.values())) == {"model": None, "model_name": "mine", **known}
    assert items[places[1].rpartition("/")[2]] == {**first, "cluster": "4xH100", "oom_risk": 0.01}
