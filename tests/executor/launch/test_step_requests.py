"""Stops and pauses: agreed in any order, taken from signals, sent past a full pipe."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest
import torch.distributed as dist

from shardwright.executor.launch.channel import QueuedSender, Receiver
from shardwright.executor.launch.run_signals import RunSignals
from shardwright.executor.launch.run_text import stopped_text
from shardwright.executor.launch.step_requests import (
    AgreedRequest,
    StepAgreement,
    StepRequests,
    stopped_by_signals,
)

STOP = {"type": "stop", "signal": "SIGTERM"}


class Rank:
    """A rank that walks: announces in a step, meets the others, looks after it."""

    def __init__(self, store: dist.Store) -> None:
        self.requests = StepRequests()
        self.agreement = StepAgreement(store, self.requests)
        self.step, self.joined = 1, 0
        self.acted: list[tuple[int, AgreedRequest]] = []

    def advance(self, complete: int) -> bool:
        """One move, if the norms up to step ``complete`` are; False where it has to wait."""
        if self.joined < self.step:
            self.agreement.announce(self.step)
            self.joined = self.step
            return True
        if self.step > complete:
            return False
        if (request := self.agreement.look(self.step)) is not None:
            self.acted.append((self.step, request))
        self.step += 1
        return True


@pytest.mark.parametrize("seed", range(40))
def test_all_ranks_act_after_the_same_step_in_any_order(seed: int) -> None:
    """Messages reach the ranks at random moments, and ranks move in random order."""
    draw, store = random.Random(seed), dist.HashStore()
    ranks = [Rank(store) for _ in range(3)]
    messages = [{"type": "pause", "id": 1}, {"type": "continue", "id": 1}, STOP]
    sent = {n: sorted(draw.sample(range(10, 60), 3)) for n in range(3)}
    for moment in range(400):
        for number, rank in enumerate(ranks):
            for when, message in zip(sent[number], messages, strict=True):
                if when == moment:
                    rank.requests.receive(message)
        complete = min(rank.joined for rank in ranks)
        draw.choice(ranks).advance(complete)
    first = ranks[0].acted
    stops = [(step, request) for step, request in first if request.kind == "stop"]
    assert stops
    assert stops[0][1].value == "SIGTERM"
    shortest = min(len(rank.acted) for rank in ranks)
    assert shortest >= len(first) - 1  # at most a step apart at the end
    assert all(rank.acted[:shortest] == first[:shortest] for rank in ranks)


def test_a_pause_lasts_until_it_is_continued() -> None:
    rank = Rank(dist.HashStore())
    rank.requests.receive({"type": "pause", "id": 1})
    assert rank.requests.pending == "pause 1"
    threading.Timer(0.2, rank.requests.receive, [{"type": "continue", "id": 1}]).start()
    start_s = time.monotonic()
    rank.agreement.pause(1)
    assert 0.1 < time.monotonic() - start_s < 5
    assert rank.requests.pending == ""
    rank.agreement.pause(1)  # of a rank whose launcher went on already
    rank.requests.receive(STOP)
    rank.agreement.pause(2)


def test_a_stop_is_forgotten_by_the_next_job() -> None:
    requests = StepRequests()
    requests.receive(STOP)
    assert requests.pending == "stop SIGTERM"
    requests.begin()
    assert requests.pending == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_under_torchrun_takes_the_signal_itself(number: signal.Signals) -> None:
    requests, before = StepRequests(), signal.getsignal(number)
    with stopped_by_signals(requests):
        signal.raise_signal(number)
        assert requests.stop == number.name
        assert signal.getsignal(number) == signal.SIG_DFL, "a second one ends it at once"
    assert signal.getsignal(number) == before


def test_the_launcher_s_first_ctrl_c_stops_and_the_second_ends() -> None:
    with RunSignals() as signals:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)  # no step is done yet
        signals.has_stepped = True
        signal.raise_signal(signal.SIGTERM)
        assert signals.stop == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTSTP)
        assert [signals.take_suspension(), signals.take_suspension()] == [True, False]
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    assert signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL


def test_what_the_caller_handles_or_ignores_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with RunSignals() as signals:
            signals.has_stepped = True
            signal.raise_signal(signal.SIGINT)
            assert signals.stop is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_stopped_reader_delays_nobody_and_loses_nothing() -> None:
    reads, writes = os.pipe()
    sender, receiver, count = QueuedSender(writes), Receiver(reads), 4000
    start_s = time.monotonic()
    for number in range(count):  # a pipe takes 64 KiB
        sender.send({"type": "event", "n": number, "text": "x" * 50})
    sender.offer({"type": "beat"})
    assert time.monotonic() - start_s < 5
    found: list[int] = []
    while len(found) < count:
        found += [message["n"] for message in receiver.receive() or ()]
    assert found == list(range(count)), "and no heartbeat that is out of date"
    sender.flush()
    receiver.close()
    sender.send({"type": "event"})  # nobody reads any more
    sender.flush()


def test_what_is_said_of_a_stopped_run() -> None:
    stopped = {"step": 7, "steps": 20, "signal": "SIGINT", "saved": None}
    assert stopped_text(stopped) == (
        "stopped by SIGINT after step 7 of 20; nothing was saved (--checkpoint DIR keeps runs)"
    )
    assert stopped_text({**stopped, "saved": "run"}).endswith("of 20; saved in run")
