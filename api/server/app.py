"""Routes; this process never parses a body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import __version__
from ...datasets.models.load import presets
from ...spec.errors import nearest_name
from ..catalogue.choices import choices_document
from ..catalogue.clusters import clusters_document
from ..catalogue.models import models_document
from .admission import Admission, AdmissionRules
from .answer_stream import AnswerStream
from .compute.ask_child import ChildCaller, json_response
from .compute.pool import ChildPool, PoolLimits
from .gate import Gate, GateRules
from .jobs.database import StoreError
from .jobs.routes.jobs import JobRoutes
from .jobs.routes.profiles import ProfileRoutes
from .jobs.routes.views import ViewRoutes
from .jobs.service import JobRules, JobService
from .metrics import Metrics, MetricsMiddleware
from .openapi.files import DIAGNOSIS_DOCS, IMPORT_DOCS
from .openapi.install import (
    CATALOGUE_DOCS,
    HEALTH_DOCS,
    METRICS_DOCS,
    READY_DOCS,
    SIMULATION_DOCS,
    install_openapi,
)
from .page import add_page
from .problems import encode, problem_response

SIMULATION_S = 10.0
DIAGNOSIS_S = 30.0
"""Of a diagnosis, which simulates many changes of a plan."""
NO_URL = "sqlite:////dev/null"
"""Of a service that only describes itself."""


def make_app(
    rules: GateRules | None = None,
    limits: PoolLimits | None = None,
    jobs: JobRules | None = None,
    admission: AdmissionRules | None = None,
) -> FastAPI:
    """Build the service.

    Args:
        rules: admission rules; by default any request that names this machine itself.
        limits: of the children that answer at once.
        jobs: where jobs live, with the database ready; without them the service only describes
            itself.
        admission: how much may be under way at once.
    """
    pool = ChildPool(limits)
    service = JobService(jobs or JobRules(url=NO_URL))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pool.start()
        service.start()
        await asyncio.to_thread(_build_documents, app)  # rather than for the first who asks
        yield
        await close_all(app)

    app = FastAPI(
        title="Shardwright",
        version=__version__,
        summary="Plans hybrid-parallel training and predicts its time and memory.",
        lifespan=lifespan,
        docs_url=None,  # the framework's pages would load scripts from elsewhere; page.py has ours
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.pool, app.state.jobs = pool, service
    metrics = Metrics()
    under_way = Admission(admission or AdmissionRules())
    app.add_middleware(AnswerStream, admission=under_way)
    app.add_middleware(Gate, rules=rules or GateRules(), admission=under_way)
    app.add_middleware(MetricsMiddleware, metrics=metrics)  # the last one added is the outermost
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(Exception, _unknown_problem)
    _add_catalogue(app)
    asker = ChildCaller(pool, service.profiles)
    _add_computations(app, pool, service, asker)

    @app.get("/metrics", **METRICS_DOCS)
    async def read_metrics() -> Response:
        return await metrics.read(service, pool)

    kinds = ("plan", "what-if", "size", "run")
    for kind in kinds if service.rules.may_execute else kinds[:-1]:
        JobRoutes(service, asker.call, kind).add_to(app)
    ProfileRoutes(service, asker.call).add_to(app)
    ViewRoutes(service, asker.call).add_to(app)
    add_page(app)
    install_openapi(app)
    return app


async def close_all(app: FastAPI) -> None:
    """Answer all waiting requests and end every process. Idempotent."""
    await app.state.jobs.close()
    await app.state.pool.close()


async def _http_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return await _unknown_problem(request, error)
    details = {404: f"GET /docs shows what there is{_nearest_path(request)}",
               405: "see the header Allow"}  # fmt: skip
    detail = details.get(error.status_code, "see /docs")
    return problem_response(error.status_code, detail, headers=error.headers)


def _nearest_path(request: Request) -> str:
    """``; nearest: PATH``, of the paths that the service describes, or ''."""
    known = [path for path in request.app.openapi()["paths"] if "{" not in path]
    near = nearest_name(request.url.path[:100], known, count=1)
    return f"; nearest: {near}" if near else ""


async def _unknown_problem(request: Request, error: Exception) -> Response:
    return problem_response(500, f"{type(error).__name__}; please report it")


def _build_documents(app: FastAPI) -> None:
    app.openapi()
    for build in (_models, _choices, _clusters):
        build()


@cache
def _models() -> bytes:
    return encode(models_document())


@cache
def _choices() -> bytes:
    return encode(choices_document())


@cache
def _clusters() -> bytes:
    return encode(clusters_document())


def _add_catalogue(app: FastAPI) -> None:

    @app.get("/healthz", **HEALTH_DOCS)
    async def healthz() -> Response:
        return json_response(200, b'{"status": "ok"}')

    @app.get("/v1/models", **CATALOGUE_DOCS["models"])
    async def models() -> Response:
        return json_response(200, _models())

    @app.get("/v1/models/{name}", **CATALOGUE_DOCS["model"])
    async def model(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name.casefold() not in map(str.casefold, presets()):  # never a file
            near = nearest_name(name[:100], presets(), count=1)
            detail = "there is no such model; GET /v1/models lists them"
            return problem_response(404, detail + (f"; nearest: {near}" if near else ""))
        return json_response(200, encode(models_document(name)))

    @app.get("/v1/choices", **CATALOGUE_DOCS["choices"])
    async def choices() -> Response:
        return json_response(200, _choices())

    @app.get("/v1/clusters", **CATALOGUE_DOCS["clusters"])
    async def clusters() -> Response:
        return json_response(200, _clusters())


def _add_computations(app: FastAPI, pool: ChildPool, jobs: JobService, asker: ChildCaller) -> None:
    @app.get("/readyz", **READY_DOCS)
    async def readyz() -> Response:
        try:
            workers = await jobs.readiness.workers()
        except StoreError as error:
            detail = f"the jobs' database cannot be read and written ({error.reason})"
            return problem_response(503, detail, headers={"Retry-After": "5"})
        if not (pool.ready and workers):
            lacking = (
                "no worker has said of late that it lives" if pool.ready else "no child is alive"
            )
            return problem_response(503, lacking, headers={"Retry-After": "1"})
        return json_response(200, encode({"status": "ready", "db": "ok", "workers": workers}))

    @app.post("/v1/simulations", **SIMULATION_DOCS)
    async def simulations(request: Request) -> Response:
        return await asker.call(request, "simulation", await request.body(), SIMULATION_S)

    @app.post("/v1/imports", **IMPORT_DOCS)
    async def imports(request: Request) -> Response:
        return await asker.call(request, "import", await request.body(), SIMULATION_S)

    @app.post("/v1/diagnoses", **DIAGNOSIS_DOCS)
    async def diagnoses(request: Request) -> Response:
        return await asker.call(request, "diagnosis", await request.body(), DIAGNOSIS_S)
