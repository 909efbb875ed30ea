"""Processes that share the memory of a device, on processes of paper."""

import time
from types import SimpleNamespace

import pytest
from batchadvisor.features.remedies import trying as module
from batchadvisor.features.remedies.catalogue import Known, candidates
from batchadvisor.features.remedies.processes import Refused
from batchadvisor.features.remedies.trying import Trying
from batchadvisor.probes.process.worker_listener import TimeOver
from batchadvisor.reports.terminal.progress import NullDisplay

from .known import A_SCRIPT

GIB = 1 << 30


class Paper:
    """A process that cannot be timed for the reason given."""

    lives = True

    def __init__(self, why=None):
        self.number, self.ended, self._why = 0, False, why

    def start(self, _until_s):
        if self._why is not None:
            raise self._why

    def ask(self, *_):
        pass

    def end(self):
        self.ended = True


@pytest.fixture
def trying(monkeypatch):
    """The script as it is takes 32 of 80 GiB of a GPU."""
    made = object.__new__(Trying)
    device = SimpleNamespace(kind="cuda", capacity_bytes=80 * GIB)
    record = SimpleNamespace(device=device, goal=SimpleNamespace(margin=0.05))
    usual = Paper()
    made.__dict__ |= {
        "_usual": usual, "_pools": [usual], "_display": NullDisplay(), "_size": 8, "_whole": False,
        "_record": record, "_known": Known(used=A_SCRIPT, peak_share=0.4), "_larger_peaks": {},
        "_end_s": float("inf"), "_wander": None,
    }  # fmt: skip
    monkeypatch.setattr(module, "is_enough", lambda *_: True)
    monkeypatch.setattr(Trying, "_comparison_s", 0.0)
    return made


def made_by(trying, monkeypatch, *processes):
    """These are made one after the other."""
    waiting = list(processes)

    def make(_settings):
        trying._pools.append(waiting[0])
        return waiting.pop(0)

    monkeypatch.setattr(trying, "_process", make)


@pytest.mark.parametrize("why", [Refused("out of memory"), TimeOver()])
def test_the_script_as_it_is_leaves_no_process_where_it_does_not_start(trying, monkeypatch, why):
    """One that lives on would take the memory of all that is tried next."""
    remedy, usual = Paper(), Paper(why)
    made_by(trying, monkeypatch, usual)
    with pytest.raises(type(why)):
        trying._one_after_the_other(remedy, until_s=0.0, size=8)
    assert usual.ended

    again = Paper(why)
    made_by(trying, monkeypatch, again)
    with pytest.raises(type(why)):
        trying._living_usual()
    assert again.ended
    assert trying._usual is None


def test_larger_sizes_have_the_memory_to_themselves(trying, monkeypatch):
    """Up to 76 GiB may be taken, and beside the script as it is 48 are left."""
    usual, process = trying._usual, Paper()
    made_by(trying, monkeypatch, process)
    monkeypatch.setattr(trying, "_fastest_larger", lambda *_: [])
    (candidate, *_) = candidates(trying._known, ("amp",))
    with pytest.raises(Refused):
        trying._at_larger(candidate, 12 * GIB, until_s=float("inf"))
    assert usual.ended
    assert process.ended


@pytest.mark.parametrize(("peaks", "in_turn"), [({}, True), ({32: 40}, True), ({32: 70}, False)])
def test_a_larger_size_takes_turns_where_both_fit(trying, monkeypatch, peaks, in_turn):
    trying._larger_peaks = {size: peak * GIB for size, peak in peaks.items()}
    one_by_one = []
    monkeypatch.setattr(trying, "_one_after_the_other", lambda *each: one_by_one.append(each))
    monkeypatch.setattr(trying, "_warm", lambda *_: None)
    monkeypatch.setattr(trying, "_with_rounds", lambda until_s: until_s)
    trying._usual_kept = None
    trying._compared(Paper(), float("inf"), anew=False, size=32)
    assert bool(one_by_one) is not in_turn


def test_a_remedy_that_is_not_tried_for_want_of_time_says_how_much_it_takes(trying, monkeypatch):
    monkeypatch.setattr(Trying, "_comparison_s", 30.0)
    trying._end_s = time.monotonic() + 22.2
    (remedy, *_) = candidates(trying._known, ("fused",))
    tried = trying._one([remedy], num_left=1)
    assert (tried.outcome, tried.reason) == (
        "not tried",
        "too little time was left: 22 s, and a comparison takes about 30 s",
    )
