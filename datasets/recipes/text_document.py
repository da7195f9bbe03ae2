"""Text documents, and what a stage makes of one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDocument:
    """One text of a source.

    ``name``: path or number in its source, the same in whatever shard it lies. ``digest``: of the
    text. ``tokens``: by the recipe's tokenizer. ``copy``: above 0 for repetitions of a mixture.
    """

    source: str
    domain: str
    name: str
    text: str
    digest: str
    tokens: int
    copy: int = 0

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Place in the order of a corpus, which no shard or process changes."""
        return (self.digest, self.source, self.name, self.copy)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A document after a stage.

    ``text``: what is left, None if dropped. ``reason``: why it was dropped or cut. ``copies``: how
    often it stands in the result.
    """

    text: str | None
    reason: str = ""
    copies: int = 1


def text_digest(text: str) -> str:
    """Content address of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def kept(document: TextDocument) -> Outcome:
    """The document as it is."""
    return Outcome(document.text)


def dropped(reason: str) -> Outcome:
    """No document."""
    return Outcome(None, reason)
