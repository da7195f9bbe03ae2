"""What the page makes of markup in names, of 10,000 layers, of a restart, and of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.browsing import Person, chromium
from service.request_bodies import MODEL
from service.services import Service, served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(150)]
MARKUP = "<img src=x onerror=alert(1)></script><b>"
SMALL = {**MODEL, "name": MARKUP}
MANY = {
    "model": {**MODEL, "layers": 10_000},
    "cluster": "1xH100",
    "workload": {"global_batch": 2, "seq_len": 64},
    "constraints": {
        "pins": ["recompute=none", "micro_batch=2", "shard=zero0", "compile=none"],
    },
}
SLOW = {
    "model": "llama-3-70b",
    "cluster": "8x8xH100",
    "workload": {"global_batch": 512, "seq_len": 8192},
    "deadline_s": 15,
}
LONG_MS = 2000
WORK = {"global_batch": 4, "seq_len": 64}
TOKEN = "a" * 24


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


def opened(browser: Any, service: Service, body: dict[str, Any]) -> Person:
    """A person who looks at the plan of a body."""
    made = httpx.post(service.url + "/v1/plans", json=body, timeout=30)
    assert made.status_code == 202, made.text
    person = Person(browser, service.url)
    person.page.locator(".history a").first.click()
    person.wait_for_plan()
    return person


def test_markup_in_a_name_is_text(browser: Any, service: Service) -> None:
    person = opened(browser, service, {"model": SMALL, "cluster": "2xH100", "workload": WORK})
    person.leave()
    person = opened(browser, service, {"model": SMALL, "cluster": "1xH100", "workload": WORK})
    page = person.page
    page.on("dialog", lambda dialog: person.complaints.append(dialog.message))
    assert page.locator(".report h2").inner_text().startswith(MARKUP)
    person.show("Compare")
    page.get_by_label("Compare with").select_option(index=1)
    page.wait_for_selector("#panel3 table")
    assert MARKUP in page.locator("#panel3").inner_text()
    assert page.locator("img").count() == 1  # our own sign
    person.leave()


LONGEST = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) {
            window.longest = Math.max(window.longest, each.duration);
        }
    }).observe({ type: "longtask" });
}"""
EACH_OF_ITS_OWN = """(view) => {
    const [stage] = view.stages, row = view.layers.rows[1];
    const many = (make) => Array.from({ length: 10000 }, (_, n) => make(String(n)));
    view.layers.rows = many((n) => [n, ...row.slice(1)]);
    view.stages = many((n) => ({ ...stage, stage: n }));
    document.getElementById("main").replaceChildren(shardwright.report(view));
}"""


def test_ten_thousand_layers_do_not_freeze_the_page(browser: Any, service: Service) -> None:
    """As they come, and were each on a stage of its own and treated otherwise than the last."""
    person = opened(browser, service, MANY)
    page = person.page
    page.evaluate(LONGEST)
    assert "0-10001" in page.locator(".report").inner_text()
    person.show("Timeline")
    page.wait_for_selector("canvas")
    page.locator("canvas").focus()
    person.press("PageDown", "+", "+", "+", ".", ".", "ArrowRight", "0")
    assert "of the step) at" in page.locator(".timeline .span").inner_text()
    place = "/v1/plans/" + page.url.partition("#")[2]
    page.evaluate(EACH_OF_ITS_OWN, httpx.get(service.url + place + "/view", timeout=30).json())
    page.get_by_text("Strategy of each layer").click()
    folded = page.locator("details", has_text="Strategy of each layer")
    assert folded.locator("tbody tr").count() == 40
    folded.get_by_role("button", name="Show 400 of 9960 more rows").click()
    assert folded.locator("tbody tr").count() == 440
    assert page.evaluate("window.longest") < LONG_MS
    person.leave()


@pytest.mark.evidence
def test_a_watched_search_outlives_a_restart(browser: Any, tmp_path: Path) -> None:
    where = ("--db", f"sqlite:///{tmp_path}/jobs.sqlite")
    asked: list[str] = []
    with served(tmp_path, *where) as first:
        person = Person(browser, first.url)
        page = person.page
        job_id = httpx.post(first.url + "/v1/plans", json=SLOW, timeout=30).json()["id"]
        page.evaluate("id => { location.hash = id; }", job_id)
        page.locator(".watch .shape", has_text="tp ").wait_for()
        page.on(
            "request",
            lambda request: (
                asked.append(request.headers.get("last-event-id", ""))
                if request.url.endswith("/events")
                else None
            ),
        )
    page.locator(".watch .state.over", has_text="does not answer").wait_for()
    with served(tmp_path, *where, "--port", str(first.address[1])) as second:
        page.locator(".watch .state:not(.over), main .answered").first.wait_for()
        person.wait_for_plan()
        assert any(asked)  # it went on after the last event that it had
        job = httpx.get(f"{second.url}/v1/plans/{job_id}", timeout=30).json()
        assert job["state"] == "done"
        assert job["attempt"] >= 2
        page.reload()  # the address names the job
        person.wait_for_plan()
        assert [text for text in person.complaints if "net::ERR" not in text] == []
        person.complaints.clear()  # the browser's own lines on a service that was away
        person.leave()


def test_the_browser_asks_for_the_token(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN + "\n")
    with served(tmp_path, "--token-file", str(tmp_path / "tokens")) as running:
        kind = {"http_credentials": {"username": "me", "password": TOKEN}}
        body = {"model": SMALL, "cluster": "2xH100", "workload": WORK}
        bearer = {"Authorization": f"Bearer {TOKEN}", "Prefer": "wait=30"}
        done = httpx.post(running.url + "/v1/plans", json=body, headers=bearer, timeout=40)
        assert done.status_code == 200
        person = Person(browser, running.url, **kind)
        page = person.page
        page.locator(".history a").first.click()
        person.wait_for_plan()
        with page.expect_download() as coming:
            page.get_by_role("link", name="Plan (.json)").click()
        assert coming.value.failure() is None
        person.show("What if")
        page.get_by_role("slider", name="Memory of a device").press("ArrowLeft")
        page.wait_for_selector("#panel2 table")
        challenged = [text for text in person.complaints if "401" not in text]
        assert challenged == []
        person.complaints.clear()  # the browser's own line before it knows the token
        person.leave()
