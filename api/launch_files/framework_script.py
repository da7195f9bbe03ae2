"""A framework's launch line as a script of one node, and what starts it on every node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.errors import InputError, nearest_name
from .launch_files import LAUNCHERS, PORT, SCRIPT, NodeStart, need_node, start_files

HERE = '"$HERE"'
NODE_WORDS = {
    f"HOST:{PORT}": f'"$HOST:{PORT}"',
    "HOST": '"$HOST"',
    "RANK": '"$NODE_RANK"',
}
"""Words of a launch line that a node knows."""


def framework_launch_files(
    line: str, files: Mapping[str, str], group: DeviceGroup, launcher: str
) -> dict[str, str]:
    """Texts by file name: a script of the framework's line, and what starts it on every node.

    Args:
        line: the launch line, with RANK and HOST where a node says its own.
        files: of the framework, which the line names.
        group: nodes of the plan.
        launcher: one of :data:`LAUNCHERS`.

    Raises:
        InputError: an unknown launcher, or more files than a config map holds.
    """
    if launcher not in LAUNCHERS:
        near = nearest_name(launcher, LAUNCHERS, count=1)
        raise InputError("--launcher", launcher, ", ".join(LAUNCHERS), near)
    script = framework_script(line, files, group.nodes)
    together = {**files, SCRIPT: script}
    start = NodeStart(group=group, files=tuple(together))
    return {SCRIPT: script, **start_files(together, start, launcher, "--launcher")}


def framework_script(line: str, names: Iterable[str], nodes: int) -> str:
    """The script of one node; its folder holds the framework's files, wherever it is started."""
    words = [NODE_WORDS.get(word, word) for word in line.split(" ")]
    line = " ".join(words)
    for name in names:
        line = line.replace(name, f"{HERE}/{name}")
    return (
        "#!/bin/sh\n"
        "# Starts the ranks of one node from the folder of the framework's scripts. Words in\n"
        "# capitals, such as DATA, stand for files of yours.\n"
        f"set -eu\n{need_node(nodes)}"
        'HERE=$(cd "$(dirname "$0")" && pwd)\n'
        f'exec {line} "$@"\n'
    )
