"""Setup of every test: no network, no user folders, one thread."""

from __future__ import annotations

import gc
import ipaddress
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from runner.order import put_in_order, together
from runner.quick import is_slow
from runner.sampled import sample

# Before anything imports numpy or torch: the test processes share the cores already.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Before anything imports triton: without a device its interpreter runs the fused kernels, where a
# test asks for them (tests/support/kernel_doubles/interpreter.py).
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# The same examples on every machine and every day; a slow machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def _is_this_machine(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or name in ("", "localhost", socket.gethostname()):
        return True
    try:
        return ipaddress.ip_address(str(name)).is_loopback
    except ValueError:
        return False


def _refuse_the_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook that forbids connections and look-ups beyond this machine."""
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a path is a local socket
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not _is_this_machine(host):
        raise RuntimeError(f"a test reached for the network: {event} {host!r}")


sys.addaudithook(_refuse_the_network)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick`` is what ``make unit`` runs."""
    parser.addoption("--quick", action="store_true", help="leave out files that take long")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick`` slow files are not even imported."""
    return True if config.getoption("--quick") and is_slow(collection_path) else None


@pytest.fixture
def young_heap() -> None:
    """Let collections of this test ignore earlier objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _private_user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests in one process, so that they share setup.

    Marks could say it, too, but with pytest 9.2 no mark reaches xdist 3.8's scheduler.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    config.option.loadscopereorder = False  # they are in order already
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """Spare the garbage collector modules and tests, which stay anyway."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_unconfigure() -> None:
    """Free what was spared: libraries complain of leftovers at the end."""
    gc.unfreeze()


def _cuda_is_here() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _may_make_networks() -> bool:
    return os.geteuid() == 0 and all(shutil.which(name) for name in ("ip", "tc"))


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thin long tables, order tests, and skip those this machine cannot run."""
    sample(items)
    put_in_order(items)
    here: dict[str, tuple[Callable[[], bool], str]] = {
        "gpu": (_cuda_is_here, "no CUDA device on this machine"),
        "browser": (lambda: shutil.which("chromium") is not None, "no chromium on this machine"),
        "root": (_may_make_networks, "network namespaces need root and iproute2"),
    }
    for marker, (is_here, reason) in here.items():
        needing = [item for item in items if item.get_closest_marker(marker)]
        if needing and not is_here():
            for item in needing:
                item.add_marker(pytest.mark.skip(reason=reason))
