"""Personal data: addresses of mail and machines, telephone and card numbers are replaced."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, kept

PersonalKind = Literal["email", "ip", "phone", "card", "iban"]
ALL_KINDS: tuple[PersonalKind, ...] = ("email", "ip", "phone", "card", "iban")
CUT = "personal data"
LEAST_PHONE_DIGITS, MOST_PHONE_DIGITS = 9, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalData:
    """Settings: the ``kinds`` that are replaced by ``<kind>``; ``but``: domains left alone."""

    kinds: tuple[PersonalKind, ...] = ALL_KINDS
    but: tuple[str, ...] = ()


def _is_card(text: str) -> bool:
    """True for 13 to 19 digits with a right check digit (ISO/IEC 7812)."""
    digits = [int(c) for c in text if c.isdigit()]
    if not 13 <= len(digits) <= 19:
        return False
    doubled = [d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(digits[::-1])]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _is_iban(text: str) -> bool:
    """True for an account number with a right check (ISO 13616)."""
    plain = text.replace(" ", "")
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _is_ip(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def _is_phone(text: str) -> bool:
    count = sum(c.isdigit() for c in text)
    return LEAST_PHONE_DIGITS <= count <= MOST_PHONE_DIGITS


FINDERS: dict[PersonalKind, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    "email": (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), bool),
    "iban": (re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){3,8}\b"), _is_iban),
    "card": (re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])"), _is_card),
    "ip": (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)"), _is_ip),
    "phone": (
        re.compile(r"(?<![\w.])(?:\+\d{1,3}[ -]?)?\(?\d{2,4}\)?(?:[ -]\d{2,4}){2,4}\b"),
        _is_phone,
    ),
}


def replaced(text: str, kinds: tuple[PersonalKind, ...]) -> str:
    """The text with what was found replaced."""
    for kind, (pattern, is_one) in FINDERS.items():
        if kind in kinds:
            text = pattern.sub(partial(_marked, kind, is_one), text)
    return text


def _marked(kind: str, is_one: Callable[[str], bool], match: re.Match[str]) -> str:
    return f"<{kind}>" if is_one(match[0]) else match[0]


def _run(
    value: PersonalData, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    outcomes = []
    for document in bucket.documents:
        text = document.text
        if document.domain not in value.but:
            text = replaced(text, value.kinds)
        outcomes.append(kept(document) if text == document.text else Outcome(text, CUT))
    return outcomes


STAGE = DataStage(
    name="personal_data",
    value=PersonalData,
    scope="document",
    help="Addresses of mail and machines, telephone, card and account numbers are replaced.",
    run=_run,
)
