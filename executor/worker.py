"""One rank: ``python -m shardwright.executor.worker PLAN.json`` under torchrun, or a pool's.

Under torchrun's environment every rank trains the plan, rank 0 prints the steps and writes the
result. A pool gives its workers jobs over a pipe instead; see :mod:`pool`. Either way a rank that
fails says so in one line and ends at once, for its peers may wait for it in a collective.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import queue
import re
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..spec.codec import dump_pretty, from_document, read_text, to_document, write_atomically
from ..spec.errors import InputError, RunError, ShardwrightError
from ..spec.plan.plan import load_plan
from ..spec.plan.relative_position_bias import table_blocks
from ..spec.workload.learning_rate import learning_rate
from .groups.rank_layout import plan_devices, plan_world_size
from .launch.activity import Activity, waits_for_ranks
from .launch.channel import Message, QueuedSender, Receiver
from .launch.fault_injection import VARIABLE, FaultList, attempt_of, faults_of
from .launch.progress import PROGRESS
from .launch.rank_context import RankContext
from .launch.run_text import step_line, stopped_text
from .launch.step_requests import REQUESTS, stopped_by_signals
from .launch.timeouts import CPU_TIMEOUTS, plan_timeouts

if TYPE_CHECKING:
    import torch

BEGUN_S = time.monotonic()
"""When this rank began, before it loads its libraries."""
SLOWER_PEERS = 2.0
"""How much longer than this rank another one may take to load its libraries."""
HEARTBEAT_S = 1.0
PR_SET_PDEATHSIG = 1
SOURCE_PLACE = re.compile(r"\[[^\]]*\.(cc|cpp|h):\d+\] ?")
"""Where in a library's source an error was made; of no use in one line."""
TORCHRUN_SETS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
STARTED_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"
BROKEN_PEER = ("timed out", "timeout", "connection", "broken pipe", "socket", "peer")
"""Words in errors that a rank gets when another one is gone or late."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one rank to its end; return its exit code."""
    options = _parser().parse_args(arguments)
    if options.pool is None:
        if STARTED_BY_TORCHRUN in os.environ:  # which starts every rank in a session of its own
            end_with_parent(os.getppid())
        _exit(_run_under_torchrun(options))
    _serve_pool(options)


def _exit(code: int) -> NoReturn:
    """Exit without waiting for communication threads that may never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line and exit code 2."""
        sys.stderr.write(f"worker: {message}\n")
        raise SystemExit(InputError.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m shardwright.executor.worker", description=__doc__)
    parser.add_argument("plan", nargs="?", help="PLAN.json")
    parser.add_argument("--steps", type=int, default=10, help="optimizer step to reach (10)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data order")
    parser.add_argument("--data", help="text file or folder (default: Python's own sources)")
    parser.add_argument("--tokenizer", help="tokenizer.json (default: trained on the data)")
    parser.add_argument("--lr", help="learning rate (default 1e-3)")
    parser.add_argument("--verify", action="store_true", help="compare with a single process")
    parser.add_argument("--init-from", metavar="HF_DIR", help="start from these weights")
    parser.add_argument("--save-hf", metavar="DIR", help="write the trained weights here")
    parser.add_argument(
        "--out-dir", metavar="DIR", help="keep losses.csv here (default: with the checkpoints)"
    )
    parser.add_argument("--routing-trace", metavar="FILE", help="write each expert's rows here")
    parser.add_argument(
        "--trace", dest="trace_file", metavar="FILE", help="write a traced step here"
    )
    _add_checkpoint_flags(parser)
    parser.add_argument("--json", help="write the result here")
    parser.add_argument(
        "--timeout",
        type=float,
        help="seconds for a collective (60 on cores, 300 else, 600 where layers are compiled)",
    )
    parser.add_argument(
        "--join",
        type=float,
        metavar="SECONDS",
        help="how long to wait for the next rank to come at the start (8 on cores, 30 else; "
        "twice what this rank took to load its libraries, where that is longer)",
    )
    parser.add_argument("--kernels", default="auto", help="auto, portable or fused (default auto)")
    pool = parser.add_argument_group("a pool's own")
    for name in ("--pool", "--device", "--allow"):
        pool.add_argument(name, help=argparse.SUPPRESS)
    pool.add_argument("--channel", type=int, nargs=2, help=argparse.SUPPRESS)
    pool.add_argument("--die-with-parent", type=int, help=argparse.SUPPRESS)
    return parser


def _add_checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="DIR", help="save checkpoints here")
    parser.add_argument("--every", type=int, metavar="N", help="steps between them (default 100)")
    parser.add_argument("--keep", type=int, metavar="N", help="how many to keep (default 3)")
    parser.add_argument(
        "--resume", metavar="DIR", help="go on from the newest good checkpoint, or from this one"
    )
    parser.add_argument(
        "--new-stage",
        action="store_true",
        help="with --resume: weights and moments alone, steps counted from 0",
    )


def _checkpoint_payload(options: argparse.Namespace) -> dict[str, Any]:
    settings = {"folder": options.checkpoint, "every": options.every, "resume": options.resume}
    if options.keep is not None:
        settings["keep"] = options.keep
    settings["new_stage"] = options.new_stage
    return {**settings, "restarted": attempt_of(os.environ) > 0}


def join_ranks(
    device_name: str,
    timeout_s: float,
    store_path: str | None = None,
    join_s: float = CPU_TIMEOUTS.join_s,
) -> torch.device:
    """Join the world of ranks in the environment; return the torch device.

    Args:
        device_name: catalog name of the device; ``cpu`` for a core of this machine.
        timeout_s: of a collective.
        store_path: a file to meet at; None for MASTER_ADDR and MASTER_PORT.
        join_s: how long to wait there for the next rank; longer if this rank loaded its libraries
            slowly.

    Raises:
        RunError: torch is not installed, this machine lacks the device, or a rank does not come.
    """
    try:
        from .launch.join import join
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        install = "pip install 'shardwright[run]'"
        raise RunError(f"running a plan needs torch, which is not installed: {install}") from None
    loading_s = time.monotonic() - BEGUN_S
    return join(device_name, timeout_s, store_path, max(join_s, SLOWER_PEERS * loading_s))


def _run_under_torchrun(options: argparse.Namespace) -> int:
    try:
        missing = [name for name in TORCHRUN_SETS if name not in os.environ]
        if options.plan is None:
            raise InputError("PLAN.json", "nothing", "a plan file")
        if missing:
            started = "torchrun (or use `plan execute`, which starts the ranks itself)"
            raise InputError("environment", f"no {missing[0]}", f"ranks started by {started}")
        return _train(options)
    except ShardwrightError as error:
        rank = os.environ.get("RANK", "0")
        if rank == "0" or PROGRESS.count:  # before they start, all ranks say the same
            sys.stderr.write(f"rank {rank}: {error}\n" if PROGRESS.count else f"{error}\n")
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        sys.stderr.write(f"rank {os.environ.get('RANK')} failed: {_one_line(error)}\n")
        return RunError.exit_code


def _train(options: argparse.Namespace) -> int:
    plan = load_plan(read_text(Path(options.plan), "a plan"), options.plan)
    ranks, started = plan_world_size(plan), int(os.environ["WORLD_SIZE"])
    if ranks != started:
        raise RunError(f"the plan runs on {ranks} ranks, but {started} were started")
    rank, timeouts = int(os.environ["RANK"]), plan_timeouts(plan)
    _inject_before_joining(rank)
    timeout_s, join_s = options.timeout or timeouts.collective_s, options.join or timeouts.join_s
    device = join_ranks(plan_devices(plan)[rank], timeout_s, join_s=join_s)
    from .train.job import train

    context = RankContext(rank, started, device, timeout_s, _print_event)
    settings = ("steps", "seed", "data", "tokenizer", "verify", "trace_file", "kernels")
    folders = ("init_from", "save_hf", "out_dir", "routing_trace")
    payload = {name: getattr(options, name) for name in (*settings, *folders)}
    payload["attention"] = "unfused" if table_blocks(plan.model) else "flash"  # learned biases
    payload["adamw"] = {"learning_rate": to_document(learning_rate(options.lr))}
    payload |= {"checkpoint": _checkpoint_payload(options), "faults": faults_of(os.environ)}
    with stopped_by_signals():
        result = train(context, {**payload, "plan": plan.to_document()})
    if rank == 0 and result is not None:
        if "stopped" in result:
            sys.stderr.write(f"{_stopped_note(result['stopped'])}\n")
        if options.json:
            write_atomically(Path(options.json), dump_pretty(result))
    return 0


def _stopped_note(stopped: dict[str, Any]) -> str:
    folder = stopped["saved"]
    again = "" if folder is None else f"; to go on: the same command with --resume {folder}"
    return stopped_text(stopped) + again


def _inject_before_joining(rank: int) -> None:
    faults = from_document(FaultList, {"faults": faults_of(os.environ)}, VARIABLE)
    faults.inject(rank, 1, "join", attempt_of(os.environ))


def _print_event(event: dict[str, Any]) -> None:
    if event.get("event") == "note":
        sys.stderr.write(f"{event['text']}\n")
    if event.get("event") == "step":
        sys.stdout.write(f"{step_line(event)}\n")
        sys.stdout.flush()


def _one_line(error: BaseException) -> str:
    text = SOURCE_PLACE.sub("", " ".join(str(error).split()))[:300]
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if "site-packages" not in frame.filename]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


class _JobRunning:
    """The running job, as the heartbeat thread sees it."""

    def __init__(self) -> None:
        self.now = True


def _serve_pool(options: argparse.Namespace) -> NoReturn:
    """Take jobs until told to exit, or until the launcher is gone."""
    if options.die_with_parent is not None:
        end_with_parent(options.die_with_parent)
    sender = QueuedSender(options.channel[1])
    jobs: queue.SimpleQueue[Message] = queue.SimpleQueue()
    busy = _JobRunning()
    threading.Thread(target=_receive_jobs, args=(options.channel[0], jobs), daemon=True).start()
    threading.Thread(target=_send_heartbeats, args=(sender, busy), daemon=True).start()
    try:
        _inject_before_joining(int(os.environ["RANK"]))
        device = join_ranks(options.device, options.timeout, options.pool)
        busy.now = False
        sender.send({"type": "ready", "device": str(device)})
        while (message := jobs.get())["type"] == "run":
            busy.now = True
            result = _run_job(message, options, device, sender)
            busy.now = False
            sender.send({"type": "result", "id": message["id"], "result": result})
    except BaseException as error:
        _report(sender, error)
        sender.flush()
        _exit(RunError.exit_code)
    sender.flush()
    _exit(0)


def _run_job(
    message: Message, options: argparse.Namespace, device: torch.device, sender: QueuedSender
) -> Any:
    PROGRESS.mark(message["job"])
    REQUESTS.begin()
    module_name, _, function_name = message["job"].partition(":")
    if module_name.partition(".")[0] not in options.allow.split(","):
        raise InputError("job", message["job"], f"a function of {options.allow}")
    function = getattr(importlib.import_module(module_name), function_name)

    def emit(event: dict[str, Any]) -> None:
        sender.send({"type": "event", "id": message["id"], "event": event})

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return function(RankContext(rank, ranks, device, options.timeout, emit), message["payload"])


def _report(sender: QueuedSender, error: BaseException) -> None:
    """Report an error to the launcher; the traceback goes to standard error."""
    plain = isinstance(error, ShardwrightError)
    text = str(error) if plain else _one_line(error)
    if not plain:
        traceback.print_exception(error)
    broken_peer = isinstance(error, RuntimeError) and any(w in text.lower() for w in BROKEN_PEER)
    sender.send(
        {
            "type": "error",
            "message": text,
            "exit_code": error.exit_code if isinstance(error, ShardwrightError) else 4,
            "communication": broken_peer and not plain,
            "plain": plain,
            "where": PROGRESS.where,
        }
    )


def _receive_jobs(descriptor: int, jobs: queue.SimpleQueue[Message]) -> None:
    receiver = Receiver(descriptor)
    while (messages := receiver.receive()) is not None:
        for message in messages:
            if message["type"] in ("run", "exit"):
                jobs.put(message)
            else:
                REQUESTS.receive(message)
    os._exit(RunError.exit_code)


def _send_heartbeats(sender: QueuedSender, busy: _JobRunning) -> None:
    activity = Activity()
    while True:
        if busy.now:
            beat = {"count": PROGRESS.count, "where": PROGRESS.where, "cpu_s": activity.busy_s()}
            sender.offer({"type": "beat", **beat, "waits": waits_for_ranks()})
        time.sleep(HEARTBEAT_S)


def end_with_parent(parent: int) -> None:
    """Kill this process with its parent ``parent``, even while stopped."""
    if not sys.platform.startswith("linux"):
        return  # the closed pipe ends it there, unless it is stopped
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(RunError.exit_code)


if __name__ == "__main__":
    main()
