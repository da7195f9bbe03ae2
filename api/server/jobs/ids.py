"""Job ids, list cursors, body digests."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time

ID_LENGTH = 32
ID = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
KEY = re.compile(r"[\x21-\x7e]{1,200}")


class _Newest:
    """The time in the newest id that this process has made or seen."""

    ms = 0


def new_id() -> str:
    """Unguessable id; later ones sort later, also where the clock jumps back."""
    _Newest.ms = max(time.time_ns() // 1_000_000, _Newest.ms + 1)
    return f"{_Newest.ms:012x}{secrets.token_hex(10)}"


def follow_id(other: str | None) -> None:
    """Let new ids sort after another one."""
    _Newest.ms = max(_Newest.ms, id_ms(other))


def id_ms(job_id: str | None) -> int:
    """When an id was made, in milliseconds since 1970, or a little later; 0 for none."""
    return 0 if job_id is None else int(job_id[:12], 16)


def is_id(text: str) -> bool:
    """Return True if a text has the form of a job id."""
    return ID.fullmatch(text) is not None


def cursor_of(last: str) -> str:
    """Return the cursor after the job ``last``."""
    return base64.urlsafe_b64encode(bytes.fromhex(last)).rstrip(b"=").decode()


def cursor_id(cursor: str) -> str | None:
    """Return the job of a cursor; None for anything else."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", cursor):
        return None
    job_id = base64.urlsafe_b64decode(cursor + "==").hex()
    return job_id if cursor_of(job_id) == cursor else None


def digest(*parts: bytes | str) -> str:
    """Hash of texts, each prefixed by its length."""
    made = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "big") + data)
    return made.hexdigest()
