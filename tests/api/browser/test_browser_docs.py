"""The API's page in a browser: reached, readable by everyone, no wider than its window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from service.browsing import NARROW, Person, chromium
from service.services import Service

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.mark.parametrize(
    "kind", [{}, {"color_scheme": "dark"}, {"viewport": NARROW}], ids=["light", "dark", "320 px"]
)
def test_the_page_of_the_api(browser: Any, service: Service, kind: dict[str, Any]) -> None:
    person = Person(browser, service.url, **kind)
    page = person.page
    page.goto(service.url + "/docs")
    assert person.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.locator("nav a", has_text="/v1/simulations").click()
    assert page.evaluate("document.querySelector(':target').id") == "createSimulation"
    page.locator(":target a", has_text="SimulationBody").click()
    target = page.locator(":target")
    assert "StrategyBody" in target.inner_text()
    page.locator("#createPlan summary").first.click()
    assert '"model": "llama-3-8b"' in page.locator("#createPlan pre").first.inner_text()
    person.leave()


def test_the_page_for_people_leads_there(browser: Any, service: Service) -> None:
    person = Person(browser, service.url)
    person.page.get_by_role("link", name="its API").click()
    person.page.wait_for_url("**/docs")
    assert person.page.locator("h1").inner_text() == "Shardwright API"
    person.leave()
