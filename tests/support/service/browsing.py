"""A person with the service's page in chromium, by mouse or by keyboard alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 320, "height": 700}
FOCUSED = """() => {
    const at = document.activeElement;
    const label = at.labels && at.labels.length ? at.labels[0].textContent : at.textContent;
    return (at.getAttribute("aria-label") || label || "").trim();
}"""
ENDED = "main .answered, main .wrong[role=alert]"


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's chromium, started without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as library:
        browser = library.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


class Person:
    """One page and its complaints.

    Args:
        browser: a chromium.
        url: of the service.
        kind: of the browser's context: its size, its colours, its credentials.
    """

    def __init__(self, browser: Any, url: str, **kind: Any) -> None:
        self.context = browser.new_context(**{"viewport": WIDE, **kind})
        self.page = self.context.new_page()
        self.page.set_default_timeout(45_000)
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url + "/")
        self.page.wait_for_selector("form, .wrong")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    @property
    def form(self) -> Any:
        """The form of the question that is shown."""
        return self.page.locator("form:visible")

    def leave(self) -> None:
        """Close the page; it must not have complained."""
        self.context.close()
        assert self.complaints == []

    def tab_to(self, name: str, most: int = 60) -> None:
        """Press Tab until the focus is on the control of that name, and see that it shows."""
        seen = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            seen.append(self.page.evaluate(FOCUSED))
            if seen[-1] == name:
                style = "getComputedStyle(document.activeElement).outlineStyle"
                assert self.page.evaluate(style) != "none", f"{name} does not show its focus"
                return
        raise AssertionError(f"{name} is not reached by Tab, only {seen}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def wait_for_plan(self) -> None:
        """Until the job has ended; it must have found a plan."""
        self.page.wait_for_selector(ENDED)
        assert self.page.locator("main .wrong[role=alert]").all_inner_texts() == []

    def show(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab).click()

    def open_folded(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    def violations(self) -> list[str]:
        """What axe finds wrong with the page as it is."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found]
