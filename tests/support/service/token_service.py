"""A service in the test's own process that asks for tokens: two people, and no workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx

from shardwright.api.server.app import make_app
from shardwright.api.server.compute.pool import START_S, PoolLimits
from shardwright.api.server.gate import GateRules, hash_token
from shardwright.api.server.jobs.database import prepare
from shardwright.api.server.jobs.service import JobRules

ANNA, BEN = "a" * 20, "b" * 20
"""The tokens that are known."""


class Asked:
    """A service in this process, asked in the name of a token."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=40
        )

    async def __call__(
        self, token: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        """The answer; underscores of header names stand for hyphens.

        What is sent waits until a child is there to read it, as who asks /readyz would.
        """
        if method == "POST":
            await self._until_ready()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Authorization"] = f"Bearer {token}"
        return await self._client.request(method, path, json=body, headers=named)

    async def _until_ready(self) -> None:
        async with asyncio.timeout(START_S):
            while not self.app.state.pool.ready:
                await asyncio.sleep(0.05)


def with_service(
    folder: Path, test: Callable[[Asked], Coroutine[Any, Any, None]], **rules: Any
) -> None:
    """Run a test against a service whose jobs stay as they were asked for.

    Args:
        folder: for its database.
        test: what is asked of it.
        rules: of its jobs, fields of :class:`JobRules`.
    """
    url = f"sqlite:///{folder}/jobs.sqlite"
    prepare(url)
    tokens = tuple(hash_token(token) for token in (ANNA, BEN))
    jobs = JobRules(url=url, workers=0, **rules)
    app = make_app(GateRules(token_hashes=tokens), PoolLimits(children=1), jobs)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            await test(Asked(app))

    asyncio.run(run())
