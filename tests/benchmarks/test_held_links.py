"""Links of network namespaces, held to a rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import held_links

RATE = 5e6
SENT_BYTES = 1 << 20
TALK = """
import json, os, socket, sys, time
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server((host, port)) as server:
        peer, _ = server.accept()
        start_s, got = time.perf_counter(), 0
        while chunk := peer.recv(1 << 16):
            got += len(chunk)
        print(json.dumps([got, time.perf_counter() - start_s]))
else:
    while True:
        try:
            peer = socket.create_connection((host, port))
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(bytes(int(sys.argv[1])))
"""
FAIL = "import os, time; os.environ['RANK'] == '0' and exit(3); time.sleep(30)"


@pytest.mark.root
def test_a_link_is_held_to_its_rate(tmp_path: Path) -> None:
    if reason := held_links.lacking():
        pytest.skip(reason)
    with held_links.HeldLinks(2, RATE) as links:
        links.run(["-c", TALK, str(SENT_BYTES)], tmp_path, timeout_s=30.0)
        got, seconds = json.loads((tmp_path / "rank0.txt").read_text())
        with pytest.raises(RuntimeError, match=r"\[3, "):
            links.run(["-c", FAIL], tmp_path, timeout_s=30.0)
    assert got == SENT_BYTES
    assert seconds > 0.8 * SENT_BYTES / RATE
