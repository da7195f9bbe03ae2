"""The page's other questions: a training's size and a run's diagnosis, in chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from service.browsing import NARROW, Person, chromium
from service.services import Service

from shardwright.api.server.openapi.files import IMPORT_EXAMPLE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


def asked(person: Person, link: str) -> Any:
    """The form of a question."""
    person.page.get_by_role("link", name=link, exact=True).click()
    return person.form


@pytest.mark.parametrize("kind", [{}, {"viewport": NARROW}], ids=["wide", "320 px"])
def test_a_run_is_explained(browser: Any, service: Service, kind: dict[str, Any]) -> None:
    person = Person(browser, service.url, **kind)
    page, form = person.page, asked(person, "Diagnose")
    form.get_by_label("Log, configuration or plan").fill(IMPORT_EXAMPLE["file"]["text"])
    form.get_by_label("It is").select_option("train.args")
    form.get_by_label("Model").fill("gpt2")
    form.get_by_label("Measured step").fill("0.2")
    form.get_by_role("button", name="Explain the run").click()
    rows = page.locator(".waterfall li")
    rows.last.wait_for()
    assert rows.last.inner_text().split("\n")[:2] == ["measured step", "200 ms, 100 %"]
    assert page.locator("main table tbody tr").count() > 0
    assert person.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    person.leave()


def test_a_mistake_in_a_log_stands_at_its_field(browser: Any, service: Service) -> None:
    person = Person(browser, service.url)
    form = asked(person, "Diagnose")
    form.get_by_label("Log, configuration or plan").fill("nothing of a log")
    form.get_by_role("button", name="Explain the run").click()
    wrong = form.locator(".wrong:visible")
    wrong.wait_for()
    assert "step times" in wrong.inner_text()
    person.complaints.clear()  # the browser tells of the status, 422
    person.leave()


def test_fine_tunings_stand_side_by_side(browser: Any, service: Service) -> None:
    person = Person(browser, service.url)
    page, form = person.page, asked(person, "Size")
    form.get_by_label("Model", exact=True).select_option("gpt2")
    form.get_by_label("Question").select_option("ways")
    form.get_by_label("Cluster").fill("2xA100-80GB")
    form.get_by_label("Price of a device-hour").fill("2")
    form.get_by_role("button", name="Size the training").click()
    page.locator("main table").wait_for()
    ways = page.locator("main tbody th").all_inner_texts()
    assert ways == ["full", "LoRA", "QLoRA"]
    assert person.violations() == []
    page.reload()  # the address names it
    page.locator("main table").wait_for()
    person.leave()
