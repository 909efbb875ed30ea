"""The cost of communication is measured after the search, in the time that the budget still has."""

from types import SimpleNamespace

import pytest
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.messages import PairsResult
from batchadvisor.records import Distribution, Goal, Parallelism, RankInfo, RankPairs
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.communication import NO_TIME_FOR_PAIRS, measure_communication
from batchadvisor.session.recording.record_writer import RecordWriter

from ..on_paper import discovery_of, numbered, record_of, trial_of

RANKS = tuple(
    RankInfo(
        rank=rank, local_rank=rank, host="a", device="cpu", device_name="", capacity_bytes=1 << 30
    )
    for rank in (0, 1)
)
DDP = Parallelism(shapes=("DistributedDataParallel",), world_size=2, backend="gloo")


class Group:
    """Two ranks on paper, with the limits that they were given."""

    order = pid = versions = files = in_use = distribution = None

    def __init__(self, *, dies=False):
        self.limits_s = {}
        self._dies = dies

    def ask(self, order):
        self.limits_s[order.batch_size] = order.time_limit_s
        if self._dies:
            raise WorkerGone("crashed", "rank 1: killed")
        times = (0.1,) * 8
        return PairsResult(
            ranks=tuple(
                RankPairs(rank=each.rank, compute_s=times, step_s=times, exposed_s=times)
                for each in RANKS
            )
        )

    def discover(self, until_s=None):
        raise NotImplementedError

    takes = was_stopped = end = discover


def measured(group, *, budget_s=60.0, search_s=0.0, parallelism=DDP, alive=True):
    """The distribution in the record afterwards."""
    record = record_of(
        numbered(trial_of(16, 0.1), trial_of(128, 0.4)),
        discovery=discovery_of(native=16, setup_s=5.0),
        goal=Goal(budget_s=budget_s, sizes=(16, 128)),
        search_s=search_s,
        distribution=Distribution(
            world_size=2,
            launcher="torchrun",
            ranks=RANKS,
            parallelism=parallelism,
        ),
    )
    workers = SimpleNamespace(
        current=group if alive else None, start=lambda: group, end=lambda: None
    )
    writer = RecordWriter(record, None, keep=False)
    measure_communication(workers, writer, NullDisplay())
    return writer.record.distribution


def test_two_sizes_share_a_tenth_of_the_budget_each():
    group = Group()
    distribution = measured(group)
    assert [pairs.batch_size for pairs in distribution.communication] == [16, 128]
    assert group.limits_s == {16: 6.0, 128: 6.0}
    assert "communication" not in distribution.unavailable


@pytest.mark.parametrize(
    ("search_s", "alive", "limits_s"),
    [(49.5, True, [5.0, 6.0]), (47.5, False, [3.5, 6.0]), (56.0, True, []), (52.0, False, [])],
)
def test_no_more_than_the_budget_has(search_s, alive, limits_s):
    """60 s, less half a second for the end; a new process takes five seconds more."""
    group = Group()
    distribution = measured(group, search_s=search_s, alive=alive)
    assert list(group.limits_s.values()) == pytest.approx(limits_s, abs=0.3)
    assert distribution.unavailable.get("communication") == (
        None if limits_s else NO_TIME_FOR_PAIRS
    )


def test_a_failure_is_the_reason_and_nothing_else():
    distribution = measured(Group(dies=True))
    (pairs,) = distribution.communication
    assert "rank 1: killed" in pairs.unavailable["ranks"]


def test_a_model_that_is_not_wrapped():
    distribution = measured(Group(), parallelism=Parallelism())
    assert distribution.communication == ()
    assert "DistributedDataParallel" in distribution.unavailable["communication"]
