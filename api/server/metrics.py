"""Request ids, Prometheus metrics and log lines."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .compute.pool import ChildPool
from .jobs.database import StoreError
from .jobs.ids import is_id
from .jobs.service import JobService
from .logs import log_event

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
STATES = ("queued", "running", "done", "failed", "cancelled")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


class Metrics:
    """Figures of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "shardwright_requests", "Requests answered.", ("method", "route", "status"), **named
        )
        self.seconds = Histogram(
            "shardwright_request_seconds",
            "Seconds until an answer began.",
            ("method", "route"),
            buckets=SECONDS,
            **named,
        )
        self._jobs = Gauge("shardwright_jobs", "Jobs that are kept.", ("state",), **named)
        self._workers = Gauge("shardwright_workers", "Workers that live.", **named)
        self._restarts = Gauge(
            "shardwright_worker_restarts", "Workers of this process started anew.", **named
        )
        self._streams = Gauge("shardwright_listeners", "Clients that wait for jobs.", **named)
        self._children = Gauge("shardwright_children_ready", "1 while a child is alive.", **named)
        self._database = Gauge(
            "shardwright_database_up", "1 while it can be read and written.", **named
        )

    async def read(self, jobs: JobService, pool: ChildPool) -> Response:
        """Read all figures; database ones keep their values on failure."""
        try:
            counts = await asyncio.to_thread(jobs.store.counts)
            for state in STATES:
                self._jobs.labels(state).set(counts.get(state, 0))
            self._workers.set(await jobs.readiness.workers())
            self._database.set(1)
        except StoreError:
            self._database.set(0)
        self._restarts.set(jobs.supervisor.restarts)
        self._streams.set(jobs.watcher.streams())
        self._children.set(int(pool.ready))
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class MetricsMiddleware:
    """ASGI middleware: gives every answer an id, counts and logs it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start_s = time.perf_counter()
        header = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = header if REQUEST_ID.fullmatch(header) else secrets.token_hex(8)
        scope["request_id"] = request_id
        seen: dict[str, int] = {}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                headers = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
                self._count(scope, message["status"], time.perf_counter() - start_s)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            method, route = _method_and_route(scope)
            log_event(
                "request",
                request_id=request_id,
                method=method,
                route=route,
                status=seen.get("status"),  # none: the client went away
                seconds=round(time.perf_counter() - start_s, 4),
                job=scope.get("job_id") or _requested_job(scope),
            )

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = _method_and_route(scope)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)


def _method_and_route(scope: Scope) -> tuple[str, str]:
    """Return method and route pattern, never the path itself."""
    route = getattr(scope.get("route"), "path", "none")
    return (scope["method"] if scope["method"] in METHODS else "other"), route


def _requested_job(scope: Scope) -> str | None:
    job_id = str(scope.get("path_params", {}).get("job_id", ""))
    return job_id if is_id(job_id) else None
