"""The mistakes of cases.toml that can also be made in Python and over HTTP, and what they are told.

In Python the line is the command's, with the argument's name for the flag's. Over HTTP a problem
points at the field and says what is allowed; it never repeats the value.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from service import mistake_forms

import shardwright as sw
from shardwright.spec.errors import ShardwrightError

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))["case"]
FORMS = {case["name"]: form for case in CASES if (form := mistake_forms.form_of(case))}
SAYS = {case["name"]: case["says"] for case in CASES}
OTHER_WORDS = 25
"""Mistakes at most that are told in other words in Python: mostly those of another type there."""


def _named(word: str) -> str:
    """A word of a command's line as it reads elsewhere."""
    return word.removeprefix("--").replace("-", "_")


def _missing(name: str, message: str) -> list[str]:
    words = {word: _named(word).replace("pin", "pins") for word in SAYS[name]}
    return [w for w, n in words.items() if not any(x in message for x in (w, n, _named(w)))]


def test_sixty_mistakes_have_other_forms() -> None:
    assert len(FORMS) >= 90


@pytest.mark.parametrize("name", FORMS)
def test_mistake_in_python(name: str) -> None:
    form = FORMS[name]
    with pytest.raises(ShardwrightError) as caught:
        (sw.simulate if form.simulates else sw.plan)(**form.arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) <= 1100
    assert "--" not in message.partition(": got")[0] or "not built" in message
    field = _named(SAYS[name][0]).partition(":")[0].partition(" ")[0]
    known = {"deadline": "deadline_s", "pin": "pins"}
    assert known.get(field, field) in message or (field in message and "not built" in message)
    assert "allowed: " in message or "not built" in message


def test_most_are_told_in_the_same_words() -> None:
    other = []
    for name, form in FORMS.items():
        with pytest.raises(ShardwrightError) as caught:
            (sw.simulate if form.simulates else sw.plan)(**form.arguments)
        if _missing(name, str(caught.value)):
            other.append(name)
    assert len(other) <= OTHER_WORDS, other
    assert len(FORMS) - len(other) >= 60


@pytest.mark.parametrize("name", FORMS)
def test_mistake_over_http(service: Any, name: str) -> None:
    form = FORMS[name]
    path = "/v1/simulations" if form.simulates else "/v1/plans"
    answer = httpx.post(service.url + path, json=form.body, timeout=40)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    if problem["type"].endswith("not-built"):
        assert "not built" in problem["detail"]
        return
    [fault, *_] = problem["errors"]
    field = _named(SAYS[name][0]).partition(":")[0].partition(" ")[0]
    known = {"deadline": "deadline_s", "pin": "pins", "oversub": "cluster"}
    field = "pins" if "=" in field else known.get(field, field)
    assert field in fault["pointer"].split("/")
    assert fault["msg"].startswith(("allowed: ", "Input should be ", "List should "))
    for word in SAYS[name]:
        if word.startswith("nearest: ") and fault["msg"].startswith("allowed: "):
            assert "; nearest: " in fault["msg"]
