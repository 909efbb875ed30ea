"""The verdicts on a GPU that a trace shows: each cause, each threshold, what hides what."""

import msgspec
import pytest
from batchadvisor.advisor.explain.limits import HOST_PACES_LOSS, HOST_PACES_WAIT, losses_of
from batchadvisor.advisor.explain.remedies import Workers, remedy_of
from batchadvisor.advisor.explain.verdict import verdict_at, verdict_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.scaling import Scaling
from batchadvisor.advisor.measured.thresholds import COMPUTE_SHARE, FILLED_PCT, LOSS_SHARE
from batchadvisor.records import Distribution, IdleShares, Parallelism, Profile
from hypothesis import given
from hypothesis import strategies as st

from ..on_paper import failure_of, numbered, record_of, trial_of

FIXED = Scaling(fixed_low=0.1, fixed_share=0.2, fixed_high=0.25)
IDLE = ("input", "synchronize", "launch", "call", "host", "launch_latency", "dependency",
        "unknown", "tail")  # fmt: skip


def idle_of(drained=0.0, **shares):
    values = {f"{name}_pct": shares.get(name, 0.0) for name in IDLE}
    return IdleShares(total_pct=sum(values.values()), drained_pct=drained, **values)


def profile_of(*, comm=0.0, copies=0.0, wait=10.0, filled=100.0, drained=0.0, **idle):
    """A window of which the rest is computation."""
    compute = 100.0 - sum(idle.values()) - comm - copies
    return Profile(
        busy_pct=100.0 - sum(idle.values()),
        compute_pct=compute,
        communication_pct=comm,
        exposed_communication_pct=comm,
        exposed_copy_pct=copies,
        sm_efficiency_computing_pct=filled,
        device_wait_pct=wait,
        input_wait_pct=idle.get("input", 0.0),
        idle=idle_of(drained, **idle),
    )


def verdict_with(*trials, size=16, **changes):
    return verdict_at(Measurements.of(record_of(numbered(*trials), **changes)), size, None)


class TestCauses:
    @pytest.mark.parametrize(
        ("shares", "limit", "remedy"),
        [
            ({"input": 30.0}, "input", "workers"),
            ({"host": 30.0}, "host", "CUDA graphs"),
            ({"launch": 10.0, "call": 10.0, "launch_latency": 10.0}, "host", "CUDA graphs"),
            ({"comm": 30.0}, "communication", "bucket"),
            ({"copies": 30.0}, "copies", "pin_memory"),
            ({"host": 30.0, "drained": 30.0, "wait": 40.0}, "synchronisation", ".item()"),
            ({"filled": 40.0}, "small kernels", "larger batch"),
            ({}, "saturated", "lower precision"),
            ({"unknown": 40.0}, "cannot tell", ""),
            ({"tail": 100.0}, "cannot tell", ""),
        ],
    )
    def test_each_alone(self, shares, limit, remedy):
        verdict = verdict_of(profile_of(**shares))
        assert verdict.limit == limit
        assert verdict.remedy
        assert remedy in verdict.remedy
        assert verdict.evidence or limit == "cannot tell"

    @pytest.mark.parametrize("cause", ["input", "host", "comm", "copies"])
    def test_threshold(self, cause):
        names = {"comm": "communication"}
        above = verdict_of(profile_of(**{cause: 100 * LOSS_SHARE}))
        assert above.limit == names.get(cause, cause)
        below = verdict_of(profile_of(**{cause: 100 * LOSS_SHARE - 1}))
        assert below.limit == "saturated"

    @pytest.mark.parametrize(("waits", "limit"), [(20.0, "host"), (25.0, "input")])
    def test_the_largest_counts(self, waits, limit):
        assert verdict_of(profile_of(input=waits, host=45.0 - waits)).limit == limit

    def test_the_loader_is_told_what_helps_once(self):
        """It costs much, kernels that do not fill the GPU cost as much."""
        verdict = verdict_of(profile_of(input=35.0, filled=40.0))
        assert verdict.limit == "cannot tell"
        assert "two things" in verdict.message
        assert verdict.remedy == remedy_of("input", None, Workers(wait=0.35))
        beside = verdict_of(profile_of(input=16.0, host=36.0))
        assert beside.limit == "host"
        assert beside.remedy.count("pin_memory") == 1

    def test_many_small_losses_are_nobodys_fault(self):
        verdict = verdict_of(profile_of(input=12.0, host=12.0, comm=12.0, copies=12.0))
        assert verdict.limit == "cannot tell"
        assert len(verdict.contributions) == 4

    def test_kernels_fill_the_gpu(self):
        assert verdict_of(profile_of(filled=FILLED_PCT)).limit == "saturated"
        assert verdict_of(profile_of(filled=FILLED_PCT - 1)).limit == "small kernels"
        assert verdict_of(profile_of(filled=None)).limit == "saturated"

    def test_computing_is_a_must_for_saturation(self):
        dependency = 100 * (1 - COMPUTE_SHARE)
        assert verdict_of(profile_of(dependency=dependency - 17, host=14.9)).limit == "saturated"
        assert verdict_of(profile_of(dependency=dependency + 1)).limit == "cannot tell"


class TestSynchronisation:
    @pytest.mark.parametrize(
        ("shares", "lost"),
        [
            # Host 60, device 40, one after the other: without the wait the step takes 60.
            ({"host": 60.0, "drained": 60.0, "wait": 40.0}, 0.4),
            ({"wait": 80.0}, 0.0),
            # What stands still for 60 of 100 while host and device work for 20 each.
            ({"host": 30.0, "drained": 30.0, "dependency": 50.0, "wait": 80.0}, 0.2),
        ],
    )
    def test_a_wait_is_worth_no_more_than_host_or_device(self, shares, lost):
        losses = losses_of(profile_of(**shares))
        assert losses.synchronisation == pytest.approx(lost)
        assert losses.host == pytest.approx(shares.get("host", 0.0) / 100 - lost)

    def test_a_loader_after_a_synchronisation_is_input(self):
        """Two GPUs run one job; only on the first the host waits for the device before it loads."""
        waits = profile_of(input=51.0, host=15.0, drained=15.0, wait=34.0)
        ahead = profile_of(input=51.0, host=15.0, wait=1.0)
        losses = losses_of(waits)
        assert (losses.input, losses.synchronisation) == pytest.approx((0.51, 0.15))
        for profile in (waits, ahead):
            verdict = verdict_of(profile)
            assert (verdict.limit, verdict.larger_batch) == ("input", "does not help")
            assert verdict.gain_at_most == pytest.approx(1 / 0.85, abs=1e-3)
            assert "workers" in verdict.remedy

    def test_a_loader_beside_another_cause_is_named(self):
        verdict = verdict_of(profile_of(input=20.0, host=30.0, drained=30.0, wait=40.0))
        assert verdict.limit == "synchronisation"
        assert "20% that it waits for the DataLoader: more workers" in verdict.remedy


@pytest.mark.parametrize(
    ("wait", "host", "limit"),
    [
        (100 * HOST_PACES_WAIT - 1, 100 * HOST_PACES_LOSS, "host"),
        (100 * HOST_PACES_WAIT, 100 * HOST_PACES_LOSS, "communication"),
        (100 * HOST_PACES_WAIT - 1, 100 * HOST_PACES_LOSS - 1, "communication"),
    ],
)
def test_a_host_that_is_never_ahead_hides_communication(wait, host, limit):
    assert verdict_of(profile_of(comm=40.0, host=host, wait=wait)).limit == limit


@pytest.mark.parametrize(
    ("profiled", "limit"), [(0.0, "input"), (40.0, "saturated")], ids=["not profiled", "hidden"]
)
def test_waits_of_timed_steps_count_unless_the_device_hid_them(profiled, limit):
    profile = msgspec.structs.replace(profile_of(), input_wait_pct=profiled)
    assert verdict_of(profile, wait=0.4).limit == limit


class TestLargerBatch:
    @pytest.mark.parametrize(
        ("shares", "helps", "most"),
        [
            ({"host": 50.0}, "helps", 2.0),
            ({"input": 50.0}, "does not help", 1.0),
            ({"copies": 50.0}, "does not help", 1.0),
            ({"comm": 50.0}, "unknown", 2.0),
            ({"filled": 50.0}, "helps", 2.0),
            ({}, "does not help", 1.0),
            ({"input": 25.0, "host": 20.0}, "does not help", 1.25),
        ],
    )
    def test_bound(self, shares, helps, most):
        verdict = verdict_of(profile_of(**shares))
        assert verdict.larger_batch == helps
        assert verdict.gain_at_most == pytest.approx(most, abs=1e-3)

    def test_the_timed_sizes_come_before_the_bound_of_a_loader_in_proportion(self):
        scaling = Scaling(
            gain=0.9, gain_low=0.8, gain_high=1.0, fixed_low=0.7, fixed_share=0.75, fixed_high=0.8
        )
        verdict = verdict_of(profile_of(input=50.0), scaling=scaling)
        assert (verdict.limit, verdict.larger_batch) == ("input", "helps")
        assert verdict.gain_at_most == pytest.approx(5)

    @pytest.mark.parametrize("filled", [100.0, None], ids=["grids", "no grids"])
    def test_two_bounds_the_tighter_one_holds(self, filled):
        verdict = verdict_of(profile_of(host=50.0, filled=filled), scaling=FIXED)
        assert verdict.gain_at_most == pytest.approx(1 / 0.75, abs=1e-3)

    def test_grids_that_are_not_known_leave_the_host_to_blame(self):
        verdict = verdict_of(profile_of(host=50.0, filled=None))
        assert verdict.limit == "host"
        assert (verdict.larger_batch, verdict.gain_at_most) == ("helps", None)

    def test_a_gain_that_was_measured(self):
        scaling = Scaling(gain=0.5, gain_low=0.4, gain_high=0.6)
        assert verdict_of(profile_of(comm=40.0), scaling=scaling).larger_batch == "helps"

    @pytest.mark.parametrize(
        ("gain", "refused", "limit"),
        [(0.5, True, "memory"), (0.2, True, "host"), (0.5, False, "host")],
    )
    def test_memory(self, gain, refused, limit):
        steps = {16: 0.1, 32: 0.1 * 2 ** (1 - gain)}
        trials = [trial_of(*step, profile=profile_of(host=30.0)) for step in steps.items()]
        verdict = verdict_with(*trials, *[failure_of(64)] * refused, size=32)
        assert verdict.limit == limit
        if limit == "memory":
            assert "checkpointing" in verdict.remedy
            assert "waits for the host" in verdict.message


class TestRemedies:
    def test_they_go_by_what_was_seen(self):
        graphs = msgspec.structs.replace(profile_of(), kernels_per_launch=40.0)
        short = msgspec.structs.replace(profile_of(), short_kernel_pct=50.0)
        assert "more of the step inside CUDA graphs" in remedy_of("host", graphs)
        assert "most kernels are short" in remedy_of("host", short)
        assert "num_workers=4" in remedy_of("input", None, Workers(0))
        assert "more workers" in remedy_of("input", None, Workers(2))

    @pytest.mark.parametrize(
        ("gpu", "num_cores", "num_workers", "words"),
        [
            (False, 1, 0, "share 1 core, so that more workers add little"),
            (False, 2, 0, "num_workers=1 (2 cores)"),
            (False, 2, 1, "share 2 cores, so that more workers add little"),
            (False, 16, 0, "num_workers=4 (16 cores)"),
            (False, 16, 1, "num_workers=4 (16 cores)"),
            # Each of two loads for 2 steps, of which 0.4 are free.
            (False, 16, 2, "num_workers=5 (16 cores)"),
            (False, 16, 7, "num_workers=15 (16 cores), persistent_workers=True, and cheaper"),
            (True, 2, 0, "num_workers=2 (2 cores), pin_memory"),
            (True, 2, 2, "the host has 2 cores, so that more workers add little"),
            (True, 16, 1, "num_workers=4 (16 cores), pin_memory"),
            (
                True,
                16,
                4,
                "num_workers=10 (16 cores), pin_memory=True, persistent_workers=True, or",
            ),
            (True, 16, 8, "such workers alone do not keep up"),
            (True, 16, 16, "the host has 16 cores"),
        ],
    )
    def test_workers_are_those_that_the_machine_has_cores_for(
        self, gpu, num_cores, num_workers, words
    ):
        seen = [profile_of(input=50.0), Profile(unrecorded="no GPU in it")] if gpu else []
        workers = {"num_workers": num_workers, "num_cores": num_cores}
        for profile in (None, *seen):
            verdict = verdict_of(profile, wait=0.6, gpu=gpu, **workers)
            assert words in verdict.remedy
            assert "4 or more" not in verdict.remedy
            assert gpu or "pin_memory" not in verdict.remedy


def test_a_confirmation_is_judged_by_the_profile_of_the_search():
    searched = trial_of(16, 0.1, profile=profile_of(comm=40.0))
    assert verdict_with(searched, trial_of(16, 0.1, purpose="confirm")).limit == "communication"


@pytest.mark.parametrize("profile", [None, Profile(operators_pct=90.0), Profile(busy_pct=50.0)])
def test_without_a_gpu_there_are_no_losses(profile):
    assert losses_of(profile) is None


SHARE = st.floats(0, 100)


@given(
    idle=st.lists(st.floats(0, 30), min_size=9, max_size=9),
    busy=st.tuples(st.floats(0, 30), st.floats(0, 30), st.floats(5, 100)),
    waits=st.tuples(SHARE, SHARE),
    timed=st.floats(0, 1),
)
def test_laws(idle, busy, waits, timed):
    comm, copies, filled = busy
    wait, drained = waits
    scale = 100 / max(sum(idle) + comm + copies, 100)
    shares = {name: share * scale for name, share in zip(IDLE, idle, strict=True)}
    host = sum(shares[name] for name in IDLE[:5])
    profile = profile_of(
        comm=comm * scale, copies=copies * scale, wait=wait, filled=filled,
        drained=min(drained, host), **shares,
    )  # fmt: skip
    for verdict in (verdict_of(profile), verdict_of(profile, wait=timed)):
        assert verdict.message
        assert verdict.remedy
        assert verdict.gain_at_most is None or 1 <= verdict.gain_at_most <= 100
        if verdict.limit in ("input", "copies", "saturated"):
            assert verdict.larger_batch == "does not help"
    losses = losses_of(profile)
    every = (losses.input, losses.synchronisation, losses.host, losses.communication, losses.copies)
    assert min(every) >= 0
    assert sum(every) + losses.compute + losses.unexplained <= 1 + 1e-6


def test_two_things_that_cost_much_are_both_named():
    verdict = verdict_of(profile_of(host=35.0, filled=30.0))
    assert verdict.limit == "cannot tell"
    assert "35% of the step the GPU waits for the host" in verdict.message
    assert "do not fill the GPU" in verdict.message


def test_data_parallel_has_no_buckets():
    trial = trial_of(16, 0.1, profile=profile_of(comm=30.0))
    seen = Parallelism(shapes=("DataParallel",), replicas=("cuda:0", "cuda:1"))
    scattered = Distribution(world_size=1, launcher="none", parallelism=seen)
    remedies = [verdict_with(trial, distribution=each).remedy for each in (None, scattered)]
    assert ["bucket" in remedy for remedy in remedies] == [True, False]
    assert remedies[1].startswith("DistributedDataParallel, one process a GPU")
