"""The guards that tests/conftest.py puts around every test are really there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import settings

# An address reserved for documentation (RFC 5737): no machine answers there.
ELSEWHERE = "192.0.2.1"


def test_a_connection_to_another_machine_is_refused() -> None:
    with socket.socket() as client, pytest.raises(RuntimeError, match="reached for the network"):
        client.connect((ELSEWHERE, 9))


def test_a_name_of_another_machine_is_not_looked_up() -> None:
    with pytest.raises(RuntimeError, match="reached for the network"):
        socket.getaddrinfo("example.invalid", 443)


def test_this_machine_is_reachable() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5) as client,
    ):
        assert client.getpeername()[0] == "127.0.0.1"


def test_user_folders_are_private(tmp_path_factory: pytest.TempPathFactory) -> None:
    private = tmp_path_factory.getbasetemp()
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        assert Path(os.environ[f"XDG_{kind}_HOME"]).is_relative_to(private)


def test_property_tests_repeat() -> None:
    assert settings.default is not None
    assert settings.default.derandomize
