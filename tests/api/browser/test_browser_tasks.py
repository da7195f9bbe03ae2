"""Plan, what-if, compare, cancel, download: in chromium, by mouse and by keyboard alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.browsing import NARROW, Person, chromium
from service.services import Service, served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
SMALL = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 300}
SLOW = {
    "model": "llama-3.1-405b",
    "cluster": "128x8xH100",
    "workload": {"global_batch": 2048, "seq_len": 8192},
    "deadline_s": 300,
}
EARLIER = {
    "model": "gpt2",
    "cluster": "2x4xA100",
    "workload": {"global_batch": 32, "seq_len": 512},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one plan in it, for the browser alone."""
    folder = tmp_path_factory.mktemp("browsed")
    with served(folder, "--db", f"sqlite:///{folder}/jobs.sqlite") as running:
        wait = {"Prefer": "wait=30"}
        done = httpx.post(running.url + "/v1/plans", json=EARLIER, headers=wait, timeout=40)
        assert done.status_code == 200
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture
def person(browser: Any, service: Service) -> Iterator[Person]:
    made = Person(browser, service.url)
    yield made
    made.leave()


def plan_of(person: Person, service: Service) -> Any:
    """What the service says of the job that the page's address names."""
    job_id = person.page.url.partition("#")[2]
    return httpx.get(f"{service.url}/v1/plans/{job_id}", timeout=30).json()


def saved(download: Any, folder: Path) -> str:
    target = folder / download.suggested_filename
    download.save_as(target)
    return target.read_text(encoding="utf-8")


def open_earlier(person: Person) -> None:
    """Open the oldest plan of the list."""
    person.page.locator(".history a").last.click()
    person.wait_for_plan()


def test_a_plan_by_mouse(person: Person, service: Service) -> None:
    page, form = person.page, person.form
    form.get_by_label("Model", exact=True).select_option("a document of mine…")
    form.get_by_label("Model document").fill(json.dumps(SMALL))
    form.get_by_label("Nodes").fill("1")
    form.get_by_label("Devices a node").fill("2")
    form.get_by_label("Device", exact=True).select_option("A100-SXM-40GB")
    form.get_by_label("Global batch").fill("4")
    form.get_by_label("Sequence", exact=True).fill("64")
    assert form.get_by_label("Cluster, as it is asked for").input_value() == "1x8xA100-SXM-40GB"
    form.get_by_label("Devices a node").fill("2")
    page.get_by_role("button", name="Find the plan").click()
    person.wait_for_plan()
    report = plan_of(person, service)["answer"]
    assert report["plan"]["workloads"]["main"]["global_batch"] == 4
    text = page.locator(".report").inner_text()
    assert "on 2 A100-SXM-40GB" in text
    for note in report["assumptions"]:  # beside the answer, every one
        assert note["path"] in text
    page.get_by_text("Strategy of each layer").click()
    assert "embedding: vocab 300" in page.locator(".report").inner_text()


def test_a_plan_by_keyboard(person: Person, service: Service) -> None:
    person.tab_to("Skip to the plan")
    person.tab_to("Model")
    person.page.keyboard.type("gpt2")
    for label, text in (("Nodes", "1"), ("Global batch", "16"), ("Sequence", "256")):
        person.tab_to(label)
        person.press("Control+a")
        person.page.keyboard.type(text)
    person.press("Enter")
    person.wait_for_plan()
    job = plan_of(person, service)
    assert job["state"] == "done"
    plan = job["answer"]["plan"]
    assert (plan["models"]["main"]["name"], plan["workloads"]["main"]["seq_len"]) == ("gpt2", 256)
    assert "a step" in person.page.locator("#said").inner_text()
    person.tab_to("Plan")
    person.press("ArrowRight")
    person.page.wait_for_selector("canvas")
    person.page.locator("canvas").focus()
    person.press("PageDown", ".", "+", "+", "ArrowRight")
    assert "of the step) at" in person.page.locator(".timeline .span").inner_text()


def test_a_plan_with_wishes(person: Person, service: Service) -> None:
    page, form = person.page, person.form
    form.get_by_label("Model", exact=True).select_option("gpt2")
    form.get_by_label("Cluster, as it is asked for").fill("2xA100")
    for label, text in (("Global batch", "8"), ("Sequence", "128"), ("What is trained", "lora")):
        form.get_by_label(label, exact=True).fill(text)
    form.get_by_label("Optimizer").select_option("lion")
    page.get_by_text("More", exact=True).click()
    form.get_by_label("Answer with").select_option("the simplest that is as good")
    form.get_by_label("Training software").fill("megatron")
    form.get_by_label("Memory a device may use", exact=True).fill("30")
    form.get_by_label("Host memory a device may use").fill("16")
    form.get_by_label("Recomputation").select_option("full")
    form.get_by_label("Pins").fill("tp=1")
    form.get_by_label("Seconds to search").fill("3")
    page.get_by_role("button", name="Find the plan").click()
    person.wait_for_plan()
    job = plan_of(person, service)
    asked, plan = job["asked"], job["answer"]["plan"]
    wished = {"optimizer": "lion", "trainable": "lora", "prefer": "simple", "stack": "megatron",
              "memory_gib": 30, "host_gib": 16, "pins": ["tp=1", "recompute=full"]}  # fmt: skip
    assert {name: asked[name] for name in wished} == wished
    workload = plan["workloads"]["main"]
    assert workload["optimizer"] == "lion"
    assert isinstance(workload["trainable"], dict)  # an adapter of the usual rank
    assert job["answer"]["provenance"]["stack"].startswith("megatron")
    said = page.locator(".history a[aria-current]").inner_text()
    assert "lion, lora, megatron, prefer simple, within 30 GiB, host 16 GiB" in said
    open_earlier(person)
    assert form.get_by_label("Optimizer").input_value() == ""
    page.locator(".history a", has_text="prefer simple").click()
    page.locator(".report h2", has_text="lion").wait_for()
    labels = ("Optimizer", "What is trained", "Recomputation", "Pins")
    found = [form.get_by_label(name, exact=True).input_value() for name in labels]
    assert found == ["lion", "lora", "full", "tp=1"]


def test_only_a_proof_says_every_legal_way(person: Person, service: Service) -> None:
    pins = ["micro_batch=2", "shard=zero0", "compile=none"]
    bodies = [
        {"model": SMALL, "cluster": "1xH100", "workload": {"global_batch": 2, "seq_len": 64}},
        {"model": "llama-3-8b", "cluster": "8xH100", "deadline_s": 1.0,
         "workload": {"global_batch": 64, "seq_len": 8192}},
    ]  # fmt: skip
    bodies[0]["constraints"] = {"pins": pins}
    page = person.page
    assert "legal way" not in page.locator("main").inner_text()
    for body in bodies:
        made = httpx.post(service.url + "/v1/plans", json=body, headers={"Prefer": "wait=30"},
                          timeout=40)  # fmt: skip
        search = made.json()["search"]
        proven = (search["stopped_by"], search["gap"]) == ("proof", 0)
        assert proven == (body is bodies[0])
        page.evaluate("hash => { location.hash = hash; }", made.headers["location"][-32:])
        page.locator(".report h2", has_text=f"{body['workload']['seq_len']} tokens").wait_for()
        assert ("every legal way" in page.locator(".report").inner_text()) == proven


def test_an_earlier_plan_fills_the_form(person: Person) -> None:
    open_earlier(person)
    labels = ("Model", "Cluster, as it is asked for", "Global batch", "Sequence")
    found = [person.form.get_by_label(name, exact=True).input_value() for name in labels]
    assert found == ["gpt2", "2x4xA100", "32", "512"]


def test_mistakes_stand_at_their_fields(person: Person) -> None:
    page = person.page
    page.get_by_label("Cluster, as it is asked for").fill("2x8xH1000")
    page.get_by_role("button", name="Find the plan").click()
    page.wait_for_selector("[aria-invalid]")
    field = page.get_by_label("Cluster, as it is asked for")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    told = page.locator("#" + field.get_attribute("aria-describedby").split()[-1]).inner_text()
    assert "allowed" in told
    assert [text for text in person.complaints if "422" not in text] == []
    person.complaints.clear()  # the browser's own line on the answer 422


def test_a_question_by_mouse(person: Person) -> None:
    open_earlier(person)
    person.show("What if")
    slider = person.page.get_by_label("FLOP/s of a device")
    box = slider.bounding_box()
    person.page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    person.page.wait_for_selector("#panel2 table")
    text = person.page.locator("#panel2 .result").inner_text()
    assert "312 TFLOP/s → 1,248 TFLOP/s" in text
    assert "most moved: " in text


def test_answers_do_not_clip(browser: Any, service: Service) -> None:
    person = Person(browser, service.url, viewport={"width": 1440, "height": 900})
    open_earlier(person)
    person.show("What if")
    person.page.get_by_role("slider", name="FLOP/s of a device").press("ArrowLeft")
    person.page.wait_for_selector("#panel2 table")
    wide = (
        "[...document.querySelectorAll('#panel2 .scroll')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert person.page.evaluate(wide) == [0, 0]
    person.leave()


def test_a_question_by_keyboard(person: Person, service: Service) -> None:
    open_earlier(person)
    person.tab_to("Plan")
    person.press("ArrowRight", "ArrowRight")
    person.tab_to("Links between nodes")
    person.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    person.page.wait_for_selector("#panel2 table")
    listed = httpx.get(service.url + "/v1/what-ifs?limit=1", timeout=30).json()["items"]
    found = httpx.get(f"{service.url}/v1/what-ifs/{listed[0]['id']}", timeout=30).json()["answer"]
    assert [change["path"] for change in found["changes"]] == ["inter_node.bandwidth"]
    was, now = (found["changes"][0][name] for name in ("was", "now"))
    assert now == was / 4
    assert "0.25 ×" in person.page.locator(".slider.moved").inner_text()


def test_a_comparison_by_mouse(person: Person, service: Service) -> None:
    open_earlier(person)
    person.show("Compare")
    choice = person.page.get_by_label("Compare with")
    choice.select_option(index=1)
    person.page.wait_for_selector("#panel3 table")
    other, this = choice.input_value(), person.page.url.partition("#")[2]
    told = httpx.get(f"{service.url}/v1/plans/{this}/compare/{other}", timeout=30).json()
    assert told["view"]["verdict"] in person.page.locator("#panel3").inner_text()


def test_a_comparison_by_keyboard(person: Person, service: Service) -> None:
    open_earlier(person)
    person.tab_to("Plan")
    person.press("End")
    person.tab_to("Compare with")
    person.press("ArrowDown")
    person.page.wait_for_selector("#panel3 table")
    other = person.page.get_by_label("Compare with").input_value()
    this = person.page.url.partition("#")[2]
    told = httpx.get(f"{service.url}/v1/plans/{this}/compare/{other}", timeout=30).json()
    assert told["view"]["verdict"] in person.page.locator("#panel3").inner_text()


def test_plans_to_compare_with_have_names_apart(person: Person, service: Service) -> None:
    for _ in range(2):
        httpx.post(
            service.url + "/v1/plans", json=EARLIER, headers={"Prefer": "wait=30"}, timeout=40
        )
    person.page.reload()
    open_earlier(person)
    person.show("Compare")
    names = person.page.locator("#panel3 option").all_inner_texts()
    assert len(names) >= 3
    assert len(set(names)) == len(names)


def _begin_slow(person: Person, service: Service) -> str:
    job_id = httpx.post(service.url + "/v1/plans", json=SLOW, timeout=30).json()["id"]
    person.page.evaluate("id => { location.hash = id; }", job_id)
    person.page.locator(".watch .shape", has_text="tp ").wait_for()
    return str(job_id)


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_search_is_cancelled(person: Person, service: Service, by: str) -> None:
    _begin_slow(person, service)
    watched = person.page.locator(".watch").inner_text()
    assert "no plan is below" in watched
    if by == "mouse":
        person.page.get_by_role("button", name="Cancel the search").click()
    else:
        person.tab_to("Cancel the search")
        person.press("Enter")
    person.page.wait_for_selector(".answered, .card .shape:not(.watch *)")
    job = plan_of(person, service)
    assert job["state"] == "cancelled"
    text = person.page.locator("main").inner_text()
    best = job["answer"] and job["answer"]["prediction"]["step_time_s"]
    assert "cancelled" in text
    assert best is None or "its best plan" in text


def test_files_by_mouse(person: Person, service: Service, tmp_path: Path) -> None:
    open_earlier(person)
    with person.page.expect_download() as coming:
        person.page.get_by_role("link", name="Plan (.json)").click()
    assert json.loads(saved(coming.value, tmp_path)) == plan_of(person, service)["answer"]["plan"]
    with person.page.expect_download() as coming:
        person.page.get_by_role("link", name="Picture (.svg)").click()
    assert saved(coming.value, tmp_path).startswith("<svg ")
    person.show("Timeline")
    with person.page.expect_download() as coming:
        person.page.get_by_role("button", name="Download for Perfetto").click()
    assert json.loads(saved(coming.value, tmp_path))["traceEvents"]


def test_files_by_keyboard(person: Person, tmp_path: Path) -> None:
    open_earlier(person)
    person.tab_to("Page (.html)")
    with person.page.expect_download() as coming:
        person.press("Enter")
    text = saved(coming.value, tmp_path)
    title = person.page.locator(".report h2").inner_text()
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    person.page.goto(f"file://{tmp_path}/page.html")
    assert person.page.locator("h2").inner_text() == title
    assert person.page.locator("canvas").count() == 1
    assert person.violations() == []


@pytest.mark.parametrize(
    "kind",
    [{}, {"color_scheme": "dark"}, {"viewport": NARROW}],
    ids=["light", "dark", "320 px"],
)
def test_nobody_is_kept_out(browser: Any, service: Service, kind: dict[str, Any]) -> None:
    person = Person(browser, service.url, **kind)
    page = person.page
    assert person.violations() == []
    page.locator(".history a").last.click()
    person.wait_for_plan()
    person.open_folded()
    assert person.violations() == []
    person.show("Timeline")
    page.wait_for_selector("canvas")
    person.show("What if")
    page.get_by_role("slider", name="Memory of a device").press("ArrowLeft")
    page.wait_for_selector("#panel2 table")
    assert person.violations() == []
    person.show("Compare")
    page.get_by_label("Compare with").select_option(index=1)
    page.wait_for_selector("#panel3 table")
    assert person.violations() == []
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]
    person.leave()
