"""What limits the step: each rule at its threshold and on either side of it."""

import msgspec
import pytest
from batchadvisor.advisor.explain.verdict import verdict_at, verdict_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.scaling import Scaling, marginal_gain, scaling_at
from batchadvisor.advisor.measured.thresholds import (
    HOST_SHARE,
    IDLE_BUSY_PCT,
    INPUT_SHARE,
    PAYING_GAIN,
    SATURATED_GAIN,
)
from batchadvisor.advisor.measured.trials import at_rate
from batchadvisor.records import OperatorTime, Profile, StepQuality, TimeLaw

from ..on_paper import (
    GIB,
    discovery_of,
    exactly,
    failure_of,
    loader_of,
    numbered,
    record_of,
    trial_of,
)


def law(fixed_s, slope_s):
    return TimeLaw(fixed_s=fixed_s, slope_s=slope_s, residual=0.0, sizes=(8, 16, 32))


def pair(gain, half_width=0.0, **changes):
    """Sizes 16 and 32 between which the throughput rises with this exponent."""
    larger = trial_of(32, 0.1 * 2 ** (1 - gain), half_width=half_width)
    return trial_of(16, 0.1, half_width=half_width, **changes), larger


def verdict(*trials, size=16, of=None, **changes):
    return verdict_at(Measurements.of(record_of(numbered(*trials), **changes)), size, of)


class TestInput:
    @pytest.mark.parametrize(
        ("share", "limit"),
        [
            (INPUT_SHARE - 0.01, "cannot tell"),
            (INPUT_SHARE, "input"),
            (0.9, "input"),
            (3.0, "input"),  # of steps that were timed apart: no more than all of the time
        ],
    )
    def test_threshold(self, share, limit):
        answer = verdict(trial_of(16, 1.0, wait_s=share))
        assert answer.limit == limit
        if limit == "input":
            (evidence,) = answer.evidence
            assert (evidence.value, evidence.threshold) == (min(share, 1.0), INPUT_SHARE)
            assert "num_workers=0" in answer.message
            assert answer.remedy

    def test_workers_are_named(self):
        discovery = discovery_of(loader=loader_of(num_workers=3))
        answer = verdict(trial_of(16, 1.0, wait_s=0.5), discovery=discovery)
        assert "3 workers do not keep up" in answer.message
        alone = discovery_of(loader=loader_of(num_workers=1))
        answer = verdict(trial_of(16, 1.0, wait_s=0.5), discovery=alone)
        assert answer.message.endswith("its worker does not keep up")

    @pytest.mark.parametrize("iterable", [True, False])
    def test_workers_may_repeat_a_stream(self, iterable):
        """Each gives all samples, unless the data set shares them out: an epoch has them twice."""
        discovery = discovery_of(loader=loader_of(iterable=iterable))
        answer = verdict(trial_of(16, 1.0, wait_s=0.5), discovery=discovery)
        assert "num_workers=4" in answer.remedy
        first = answer.remedy.partition("; ")[0]  # all that the answer on one screen has
        assert ("get_worker_info" in first) == iterable

    def test_one_worker_repeats_nothing(self):
        answer = verdict_of(None, wait=0.5, num_workers=0, num_cores=2, stream=True)
        assert answer.remedy.startswith("num_workers=1 (2 cores)")
        assert "get_worker_info" not in answer.remedy

    def test_it_comes_before_the_others(self):
        assert verdict(*pair(0.0, wait_s=0.05), of=law(1.0, 0.001)).limit == "input"

    def test_the_threshold_that_decided_is_the_one_shown(self):
        """Beside a throughput that no longer rises less is enough."""
        answer = verdict(*pair(0.0, wait_s=0.02))
        assert answer.limit == "input"
        (evidence,) = answer.evidence
        assert evidence.value >= evidence.threshold

    @pytest.mark.parametrize(
        ("gain", "half_width", "helps", "words"),
        [
            (0.0, 0.01, "does not help", "in proportion"),
            (0.05, 0.01, "does not help", "in proportion"),
            (0.2, 0.01, "unknown", "do not show whether"),
            (0.98, 0.01, "helps", "helps as well"),
            (0.4, 0.1, "unknown", "do not show whether"),
            (0.0, 0.5, "does not help", "in proportion"),
        ],
    )
    def test_the_timed_sizes_say_whether_a_larger_batch_helps(self, gain, half_width, helps, words):
        answer = verdict(*pair(gain, half_width, wait_s=0.05))
        assert (answer.limit, answer.larger_batch) == ("input", helps)
        assert words in answer.remedy

    def test_the_bound_does_not_contradict_the_sizes(self):
        """Over sizes wide apart the fixed part of the step is known as well."""
        gains = verdict(trial_of(8, 1.0, wait_s=0.4), trial_of(32, 1.02, wait_s=0.4), size=32)
        assert (gains.larger_batch, gains.gain_at_most) == ("helps", 100)
        wide = {"half_width": 0.5}
        small, large = trial_of(8, 1.0, wait_s=0.4, **wide), trial_of(32, 3.9, wait_s=2, **wide)
        none = verdict(small, large, size=32)
        assert (none.larger_batch, none.gain_at_most) == ("does not help", None)


class TestContradiction:
    """A larger batch that is much quicker than a smaller one says that the machine was busy."""

    def test_such_times_tell_nothing(self):
        answer = verdict(trial_of(6, 0.52), trial_of(48, 0.026), size=48)
        assert answer.limit == "cannot tell"
        assert (answer.larger_batch, answer.gain_at_most) == ("unknown", None)
        assert "disturbed" in answer.message
        assert answer.remedy

    @pytest.mark.parametrize(
        ("step_s", "half_width"), [(0.085, 0.0), (0.05, 0.5)], ids=["kernels", "noise"]
    )
    def test_a_little_quicker_is_none(self, step_s, half_width):
        """Another kernel may save some of the time; wide intervals decide nothing."""
        trials = [trial_of(*each, half_width=half_width) for each in ((6, 0.1), (48, step_s))]
        assert not scaling_at(Measurements.of(record_of(trials)), 48, None).contradicted


class TestBesideOthers:
    @pytest.mark.parametrize("others", [(), (trial_of(256, 0.2),)])
    def test_a_gpu_s_size_that_only_ran_so(self, others):
        """Its time says nothing of its cause, and is compared with none."""
        contended = StepQuality(num_steps=9, num_clean=0, num_disturbed=9, method="low quantile")
        answer = verdict(trial_of(64, 0.1, quality=contended), *others, size=64)
        assert answer.limit == "cannot tell"


class TestOneSizeAlone:
    @pytest.mark.parametrize(
        ("others", "is_told"),
        [
            ((failure_of(32, "exception"), failure_of(8, "wrong_size")), True),
            ((failure_of(32, "out_of_memory"),), False),
            ((failure_of(32, "exception"), trial_of(8)), False),  # it ran, and was not timed
        ],
    )
    def test_a_larger_budget_does_not_make_a_script_take_other_sizes(self, others, is_told):
        answer = verdict_at(Measurements.of(record_of([trial_of(16, 0.1), *others])), 16, None)
        assert answer.limit == "cannot tell"
        assert ("took no other size" in answer.message) == is_told
        assert ("--budget" in answer.remedy) != is_told


def test_waiting_keeps_the_share_that_was_measured():
    """A window of 1 s beside others, 0.2 s of it waiting; in turn a step takes 0.2 s."""
    window = trial_of(16, 1.0, wait_s=0.2)
    waits = [at_rate(window, exactly(rate)).input_wait_s.median for rate in (16, 80)]
    assert waits == pytest.approx([0.2, 0.04])


class TestHost:
    @pytest.mark.parametrize(
        ("share", "limit"),
        [(HOST_SHARE - 0.01, "cannot tell"), (HOST_SHARE, "host"), (0.8, "host")],
    )
    def test_fixed_share(self, share, limit):
        answer = verdict(trial_of(16, 1.0), of=law(share * 16, 1 - share))
        assert answer.limit == limit
        assert answer.evidence[-1].value == pytest.approx(share, abs=1e-3)

    @pytest.mark.parametrize(
        ("last", "blamed"),
        [
            (None, False),
            (0.056, True),  # the line goes on
            (0.084, False),  # the GPU had taken over
        ],
    )
    def test_a_gpu_hides_what_its_host_costs(self, last, blamed):
        """28 ms of the host, 42 ms of the GPU at 512: a CPU adds its parts up, a GPU does not."""
        trials = [trial_of(32, 0.028), trial_of(512, 0.042)]
        if last is not None:
            trials.append(trial_of(1024, last))
        assert (verdict(*trials, size=512).limit == "host") == blamed
        cpu = msgspec.structs.replace(record_of().device, kind="cpu")
        assert verdict(*trials[:2], size=512, device=cpu).limit == "host"

    @pytest.mark.parametrize(
        ("busy", "limit"),
        [(IDLE_BUSY_PCT - 1, "host"), (IDLE_BUSY_PCT, "cannot tell"), (None, "cannot tell")],
    )
    def test_idle_device(self, busy, limit):
        answer = verdict(trial_of(16, 1.0, profile=Profile(busy_pct=busy)))
        assert answer.limit == limit
        assert ("busy" in answer.message) == (limit == "host")


class TestGain:
    @pytest.mark.parametrize(
        ("gain", "limit"),
        [
            (0.0, "saturated"),
            (-0.5, "saturated"),
            (SATURATED_GAIN - 0.01, "saturated"),
            (SATURATED_GAIN + 0.01, "cannot tell"),
            (PAYING_GAIN - 0.01, "cannot tell"),
            (PAYING_GAIN + 0.01, "host"),
            (1.0, "host"),
        ],
    )
    def test_thresholds(self, gain, limit):
        assert verdict(*pair(gain)).limit == limit

    @pytest.mark.parametrize(
        ("gain", "half_width", "limit", "helps"),
        [
            (0.0, 0.0, "saturated", "does not help"),
            (0.0, 0.06, "cannot tell", "unknown"),
            (0.4, 0.02, "host", "helps"),
            (0.4, 0.04, "cannot tell", "unknown"),
        ],
    )
    def test_what_the_ends_of_the_interval_say_counts(self, gain, half_width, limit, helps):
        answer = verdict(*pair(gain, half_width))
        assert (answer.limit, answer.larger_batch) == (limit, helps)

    @pytest.mark.parametrize("gain", [0.0, 0.5, 1.0])
    def test_one_value_alone_has_no_interval(self, gain):
        steps = {16: 0.1, 128: 0.1 * 8 ** (1 - gain)}
        answer = verdict(*(trial_of(*step, num_samples=1) for step in steps.items()))
        assert answer.limit == "cannot tell"
        assert (answer.larger_batch, answer.gain_at_most) == ("unknown", None)

    @pytest.mark.parametrize(("bad", "limit"), [(64, "memory"), (65, "host")])
    def test_at_the_limit_of_the_memory(self, bad, limit):
        answer = verdict(*pair(0.9), failure_of(bad))
        assert answer.limit == limit
        assert "still rises" in answer.message

    @pytest.mark.parametrize(("peak", "limit"), [(74, "memory"), (40, "host"), (None, "host")])
    def test_where_the_margin_leaves_no_larger_size(self, peak, limit):
        """Nothing ran out of memory: the search stops before that."""
        small = trial_of(8, 0.1, peak=16 * GIB)
        large = trial_of(16, 0.11, peak=None if peak is None else peak * GIB)
        assert verdict(small, large, size=16).limit == limit

    @pytest.mark.parametrize(
        ("steps", "size", "gain"),
        [
            ({8: 0.1, 16: 0.1, 32: 0.2}, 8, 1.0),
            ({8: 0.1, 16: 0.1, 32: 0.2}, 16, 0.0),
            ({8: 0.1, 16: 0.1, 32: 0.2}, 32, 0.0),  # from the next smaller one
            ({16: 0.1, 20: 0.5, 64: 0.1}, 16, 1.0),  # a neighbour too close is passed over
        ],
    )
    def test_it_is_that_to_the_next_size(self, steps, size, gain):
        sizes = {each: trial_of(each, step_s) for each, step_s in steps.items()}
        assert marginal_gain(sizes, size)[1] == pytest.approx(gain)


@pytest.mark.parametrize("trial", [trial_of(16), trial_of(8, 0.1), trial_of(16, 0.1)])
def test_one_size_alone_or_none_tells_nothing(trial):
    answer = verdict(trial)
    assert answer.limit == "cannot tell"
    assert bool(answer.remedy) == (trial.step_s is not None and trial.batch_size == 16)


def test_a_fixed_part_that_the_device_hides_is_no_limit():
    """A step takes the longer of host and device. Up to the knee the law of the times has a part
    that no batch changes; above it the next size gains nothing, and it no longer shows."""
    scaling = Scaling(fixed_low=0.5, fixed_share=0.63, fixed_high=0.7)
    assert verdict_of(None, scaling=scaling, gpu=True).limit == "host"
    flat = msgspec.structs.replace(scaling, gain_low=-0.02, gain=0.0, gain_high=0.02)
    answer = verdict_of(None, scaling=flat, gpu=True)
    assert (answer.limit, answer.larger_batch) == ("saturated", "does not help")
    unsure = msgspec.structs.replace(flat, gain_low=-1.0, gain_high=1.0)
    assert verdict_of(None, scaling=unsure, gpu=True).limit == "cannot tell"


class TestOperatorsOfACpu:
    """Long operators say that the CPU computes, not what a larger batch gains."""

    PROFILE = Profile(
        operators_pct=95.0,
        input_wait_pct=1.0,
        operators=(OperatorTime(name="aten::mm", num_calls=100, self_s=0.5),),
    )

    def test_alone_they_leave_a_larger_batch_open(self):
        answer = verdict_of(self.PROFILE)
        assert (answer.limit, answer.larger_batch) == ("saturated", "unknown")
        assert "time a larger batch" in answer.remedy
        timed = Scaling(gain_low=-1.0, gain=0.2, gain_high=1.4)
        noisy = verdict_of(self.PROFILE, scaling=timed)
        assert (noisy.limit, noisy.larger_batch) == ("saturated", "unknown")
        assert "time a larger batch" not in noisy.remedy
        held_up = verdict_of(self.PROFILE, scaling=Scaling(held_up=True))
        assert "other programs held up the sizes beside it" in held_up.remedy

    def test_sizes_that_others_held_up(self):
        """They were timed: the advice is not to time them."""
        quality = StepQuality(num_steps=9, num_clean=0, num_disturbed=9, method="low quantile")
        own, larger = trial_of(8, 0.1), trial_of(32, 0.1, quality=quality)
        for trials, held_up in (((own, larger), True), ((own,), False)):
            scaling = scaling_at(Measurements.of(record_of(numbered(*trials))), 8, None)
            assert (scaling.gain, scaling.held_up) == (None, held_up)

    def test_with_times_of_other_sizes(self):
        scaling = Scaling(fixed_low=0.05, fixed_share=0.1, fixed_high=0.2)
        answer = verdict_of(self.PROFILE, scaling=scaling)
        assert (answer.limit, answer.larger_batch) == ("saturated", "does not help")
        assert "not a larger batch" in answer.remedy
