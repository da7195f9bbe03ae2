"""Every route of the committed description, with tokens: none but health answers without one."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx

from shardwright.api.server.app import make_app
from shardwright.api.server.compute.pool import PoolLimits
from shardwright.api.server.gate import OPEN_PATHS, GateRules, hash_token
from shardwright.api.server.jobs.database import prepare
from shardwright.api.server.jobs.service import JobRules

DOCUMENT = json.loads(
    (Path(__file__).parents[3] / "docs" / "openapi.json").read_text(encoding="utf-8")
)
TOKEN = "0123456789abcdef-right"
WRONG = (
    None, "", "Bearer", "Bearer ", "Bearer x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
    f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN.upper()}", f"Bearer {hash_token(TOKEN).hex()}",
)  # fmt: skip


def test_every_route_but_health_answers_401_without_a_token(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.sqlite"
    prepare(url)
    app = make_app(
        GateRules(hosts=None, token_hashes=(hash_token(TOKEN),)),
        PoolLimits(children=0),
        JobRules(url=url, workers=0, may_execute=True),
    )

    async def run() -> int:
        asked = 0
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://elsewhere.example"
            ) as client,
        ):
            for path, operations in DOCUMENT["paths"].items():
                filled = re.sub(r"\{\w+\}", "0" * 32, path)
                for method, operation in operations.items():
                    asked += await _check(client, method.upper(), filled, operation)
            for path in ("/nothing", "/v1", "/openapi.json"):
                assert (await client.get(path)).status_code == 401
        return asked

    assert asyncio.run(run()) >= 26 * len(WRONG)


async def _check(
    client: httpx.AsyncClient, method: str, path: str, operation: dict[str, Any]
) -> int:
    for wrong in WRONG:
        headers = {} if wrong is None else {"Authorization": wrong}
        answer = await client.request(method, path, headers=headers)
        if path in OPEN_PATHS:
            assert answer.status_code != 401, path
            continue
        assert answer.status_code == 401, (method, path, wrong)
        scheme = "Basic" if path in ("/", "/docs") else "Bearer"  # a browser asks its user
        assert answer.headers["www-authenticate"].partition(" ")[0] == scheme
        assert answer.headers["content-type"] == "application/problem+json"
        assert "access-control-allow-origin" not in answer.headers
        assert "401" in operation["responses"]
    if method == "GET" and path not in OPEN_PATHS:
        right = await client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert right.status_code in (200, 404), path
    return len(WRONG)
