"""Requests with safe retries, and resumable event streams.

A request is retried where the connection failed or the service was busy (429, 503), which is safe
for all: reads and cancellations are idempotent, simulations change nothing, and jobs carry an
``Idempotency-Key``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...spec.errors import InputError, RunError
from .errors import error_of

if TYPE_CHECKING:
    import httpx

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
STREAM_TIMEOUT_S = 45.0
"""A stream says something every 15 s; after three of those it is taken for dead."""
RETRY_STATUSES = (429, 502, 503, 504)


class Event(NamedTuple):
    """Event of a job: ``progress``, ``best``, ``row`` or ``done``."""

    name: str
    data: dict[str, Any]
    id: str


class Transport:
    """Connection to a service.

    Args:
        url: of the service, such as ``http://127.0.0.1:8642``.
        token: of the service, if it needs one.
        timeout_s: limit of one request.
        patience_s: for how long an unresponsive service is retried.

    Raises:
        InputError: no usable address, or httpx is not installed.
    """

    def __init__(self, url: Any, token: Any, timeout_s: float, patience_s: float) -> None:
        try:
            import httpx
        except ImportError:
            allowed = "an environment with httpx (the extra client brings it)"
            raise InputError("Client", "no httpx", allowed, "pip install httpx") from None
        self._lost: type[Exception] = httpx.TransportError
        if not (isinstance(url, str) and url.startswith(("http://", "https://"))):
            near = "http://127.0.0.1:8642"
            raise InputError("url", url, "http://HOST:PORT or https://HOST", near)
        if token is not None and not (isinstance(token, str) and token.isascii() and token.strip()):
            raise InputError("token", "what is no header's value", "a token of the service")
        headers = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
        self.url, self._patience_s, self._was_reached = url.rstrip("/"), patience_s, False
        try:
            self._http: httpx.Client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(timeout_s),
                trust_env=False,
            )
        except httpx.InvalidURL as error:
            raise InputError("url", url, f"an address ({error})") from None
        self._stream_timeout = httpx.Timeout(timeout_s, read=STREAM_TIMEOUT_S)

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Get the document at a path."""
        return self._request("GET", path, None, {}, query).json()

    def post(self, path: str, body: Mapping[str, Any], key: str | None = None) -> Any:
        """Post a body; ``key`` makes a repeated post idempotent, and asks for a job."""
        headers = {} if key is None else {"Idempotency-Key": key, "Prefer": "respond-async"}
        return self._request("POST", path, body, headers).json()

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> None:
        """Cancel the job at a path; no effect once it has ended, unless the query says so."""
        self._request("DELETE", path, None, {}, query)

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: dict[str, str],
        query: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        pauses = _Backoff(self._patience_s)
        while True:
            try:
                answer = self._http.request(method, path, json=body, headers=headers, params=query)
            except self._lost as error:
                pauses.wait(self._connection_error(error))
                continue
            self._was_reached = True
            if answer.status_code < 400:
                return answer
            problem = error_of(_problem_document(answer), body)
            if answer.status_code not in RETRY_STATUSES:
                raise problem
            pauses.wait(problem, answer.headers.get("retry-after"))

    def _connection_error(self, error: Exception) -> Exception:
        why = f"{type(error).__name__} {error}".strip()
        if self._was_reached:
            return RunError(f"the service at {self.url} answers no more: {why}")
        allowed = "the address of a running service (plan serve prints it)"
        return InputError("url", f"{self.url} ({why})", allowed)

    def events(self, path: str, after: str | None = None) -> Iterator[Event]:
        """Yield events until ``done``, resuming broken streams.

        Args:
            path: of the events.
            after: the id of the last event already seen.
        """
        pauses = _Backoff(self._patience_s)
        while True:
            headers = {} if after is None else {"Last-Event-ID": after}
            try:
                with self._http.stream(
                    "GET", path, headers=headers, timeout=self._stream_timeout
                ) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code >= 400:
                        answer.read()
                        problem = error_of(_problem_document(answer))
                        if answer.status_code not in RETRY_STATUSES:
                            raise problem
                        pauses.wait(problem, answer.headers.get("retry-after"))
                        continue
                    self._was_reached = True
                    for event in _parse_events(pauses.reset_by(answer.iter_lines())):
                        after = event.id
                        yield event
                        if event.name == "done":
                            return
                pauses.wait(RunError(f"the service at {self.url} ended the stream"))
            except self._lost as error:
                pauses.wait(self._connection_error(error))


class _Backoff:
    """Growing waits between attempts, until patience ends."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._reset()

    def _reset(self) -> None:
        self._ends_s = time.monotonic() + self._patience_s
        self._next_s = FIRST_PAUSE_S

    def reset_by(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines of a stream; any line resets the retries."""
        for line in lines:
            self._reset()
            yield line

    def wait(self, error: Exception, retry_after: str | None = None) -> None:
        """Wait before the next attempt.

        Raises:
            Exception: ``error``, once patience is at an end.
        """
        pause_s = float(retry_after) if retry_after and retry_after.isdecimal() else self._next_s
        self._next_s = min(MAX_PAUSE_S, 2 * self._next_s)
        if time.monotonic() + pause_s > self._ends_s:
            raise error
        time.sleep(pause_s)


def _problem_document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and "status" in document:
        return document
    return {"status": answer.status_code, "detail": "no problem document: is this plan serve?"}


def _parse_events(lines: Iterator[str]) -> Iterator[Event]:
    """Parse server-sent events (WHATWG HTML, 9.2.6) from lines."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "event" in fields:
            data = json.loads(fields.get("data", "{}"))
            yield Event(fields["event"], data, fields.get("id", ""))
        fields = {}
