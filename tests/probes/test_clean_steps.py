"""Which steps were disturbed, by what the kernel counted; laws, edge cases and real recordings."""

import random

import pytest
from batchadvisor.probes.windows.clean_steps import (
    LEAST,
    LOST_S,
    LOST_SHARE,
    QUARTILE,
    Judged,
    TimedStep,
    in_groups,
    judged,
    quality_of,
    quantile,
    rarely_slow,
    step_time,
    stood_for,
    wait_time,
)
from batchadvisor.probes.windows.step_evidence import StepEvidence
from batchadvisor.spread import quantile_spread
from hypothesis import given
from hypothesis import strategies as st

timed_steps = st.lists(
    st.builds(
        TimedStep,
        st.floats(1e-5, 100),
        st.none()
        | st.builds(
            StepEvidence,
            delay_s=st.none() | st.floats(0, 100),
            stolen_s=st.none() | st.floats(0, 100),
            throttled_s=st.none() | st.floats(0, 100),
            switches=st.none() | st.integers(0, 50),
            thread_s=st.none() | st.floats(0, 100),
            stops=st.none() | st.integers(0, 3),
            collected_s=st.floats(0, 100),
            collections=st.integers(0, 3),
        ),
    ),
    max_size=40,
)
STEPS = Judged((0.1, 0.2, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7), (0, 0.1, 0, 0, 0, 0.2, 0, 0), known=True)


def step(seconds=0.02, delay=0.0, **evidence):
    return TimedStep(seconds, StepEvidence(delay_s=delay, switches=0, **evidence))


def steps_with_stalls(num=60, every=10, *, stall_s=1.5):
    return [
        step(0.02 + stall_s, 0.3 * stall_s) if n % every == 0 else step(0.02 + 1e-5 * (n % 7))
        for n in range(num)
    ]


def now_and_then(slow_s, usual_s=0.02, *, every=10, num=50):
    """Steps of which the last of so many is slow."""
    return [step(slow_s if n % every == every - 1 else usual_s) for n in range(num)]


class TestLaws:
    @given(timed_steps, st.booleans())
    def test_no_step_loses_more_than_it_lasted(self, steps, asynchronous):
        judgement = judged(steps, asynchronous=asynchronous)
        for seconds, lost in zip(judgement.seconds, judgement.lost_s, strict=True):
            assert 0 <= lost <= seconds

    def test_slow_steps_that_are_in_the_step_time_are_not_counted_twice(self):
        """Each tenth takes 5 ms for 1 ms: in groups of 20 the median holds two of them."""
        judgement = judged(now_and_then(0.005, 0.001, num=600))
        spread, method = step_time(judgement, group=20, min_samples=6)
        assert spread.median == pytest.approx(0.0014)
        assert quality_of(judgement, method).slow_s == pytest.approx(60 * 0.004)
        assert quality_of(judgement, method, None, spread).slow_s == pytest.approx(0, abs=1e-9)
        alone, method = step_time(judgement, min_samples=6)
        assert quality_of(judgement, method, None, alone).slow_s == pytest.approx(60 * 0.004)

    @given(timed_steps, st.integers(1, 4), st.integers(1, 8), st.booleans())
    def test_a_time_lies_in_its_interval_above_zero(self, steps, group, least, behind):
        judgement = judged(steps, asynchronous=behind)
        spread, method = step_time(judgement, group=group, min_samples=least, asynchronous=behind)
        assert (spread is None) == (not steps)
        if spread is not None:
            assert 0 < spread.low <= spread.median <= spread.high
        quality = quality_of(judgement, method)
        if quality is not None:
            judged_steps = quality.num_clean + quality.num_disturbed
            assert judged_steps == quality.num_steps or not judgement.known
            assert min(quality.stalled_s, quality.slow_s, quality.longest_stall_s) >= 0

    @given(timed_steps, st.floats(1, 5))
    def test_more_waiting_never_makes_a_step_clean(self, steps, more):
        worse = [
            item._replace(evidence=item.evidence._replace(delay_s=item.evidence.delay_s + more))
            if item.evidence is not None and item.evidence.delay_s is not None
            else item
            for item in steps
        ]
        for before, after in zip(judged(steps).lost_s, judged(worse).lost_s, strict=True):
            assert after >= before or before > 0

    @given(st.lists(st.floats(1e-4, 10), min_size=1, max_size=60), st.integers(1, 9))
    def test_groups_keep_the_order_and_leave_out_the_rest(self, values, group):
        groups = in_groups(values, group)
        assert len(groups) == len(values) // group
        for mean, start in zip(groups, range(0, len(values), group), strict=False):
            part = values[start : start + group]
            assert min(part) * (1 - 1e-9) <= mean <= max(part) * (1 + 1e-9)

    @given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 0.99))
    def test_a_quantile_is_a_value_with_that_share_below(self, values, share):
        limit = quantile(values, share)
        assert limit in values
        assert sum(value <= limit for value in values) >= share * len(values) * (1 - 1e-9)


class TestJudgement:
    def test_stalls_are_left_out(self):
        judgement = judged(steps_with_stalls())
        spread, method = step_time(judgement, min_samples=6)
        assert method == "clean steps"
        assert spread.median == pytest.approx(0.02, rel=0.01)
        quality = quality_of(judgement, method)
        assert (quality.num_steps, quality.num_clean, quality.num_disturbed) == (60, 54, 6)
        assert quality.stalled_s == pytest.approx(6 * 1.5, rel=0.01)
        assert quality.longest_stall_s == pytest.approx(1.5, rel=0.01)
        assert quality.num_slow == 0

    @pytest.mark.parametrize(
        ("delay_s", "is_clean"),
        [(0.0, True), (0.9 * LOST_S, True), (0.019 * 0.02, True), (0.021 * 0.02, False)],
    )
    def test_what_every_step_waits_disturbs_none(self, delay_s, is_clean):
        assert (judged([step(), step(), step(0.02, delay_s)]).lost_s[2] == 0) == is_clean
        assert LOST_SHARE == 0.02

    def test_slow_steps_of_the_script_are_no_disturbance(self):
        """Periodic logging: they stay clean, and their cost is said apart."""
        judgement = judged(now_and_then(0.2))
        spread, method = step_time(judgement, min_samples=6)
        quality = quality_of(judgement, method)
        assert (method, quality.num_clean, quality.num_disturbed) == ("clean steps", 50, 0)
        assert spread.median == 0.02
        assert step_time(judgement, min_samples=6, asynchronous=True)[0].median == 0.02
        assert quality.num_slow == 5
        assert quality.slow_s == pytest.approx(5 * 0.18)
        assert [n for n, slow in enumerate(rarely_slow(judgement)) if slow] == [9, 19, 29, 39, 49]

    def test_steps_of_a_burst_are_judged_together(self):
        """Four workers that sleep 120 ms a batch: one step in four waits, the others take 5 ms, and
        what housekeeping takes of these is much for them and little for the four.
        """
        steps = [step(0.12) if n % 4 == 3 else step(0.005, 0.0003) for n in range(46)]
        alone, together = judged(steps), judged(steps, bursts=[4] * 11 + [2])
        assert sum(map(bool, alone.lost_s)) > 30
        assert not any(together.lost_s[:44])
        spread, method = step_time(together, group=4, min_samples=6)
        assert method == "clean steps"
        assert spread.median == pytest.approx(0.135 / 4)
        stalled = [*steps[:20], step(0.5, 0.2), *steps[21:]]
        lost = judged(stalled, bursts=[4] * 11 + [2]).lost_s
        assert [n for n, each in enumerate(lost) if each][:4] == [20, 21, 22, 23]

    def test_garbage_collections_are_shared_by_all_steps(self):
        """Every tenth step of 20 ms collects for 100 ms more, in the wait for its batch or not."""
        for wait_s in (0.0, 0.11):
            steps = [
                step(0.12, collected_s=0.1, collections=1)._replace(wait_s=wait_s)
                if n % 10 == 9
                else step(0.02)
                for n in range(50)
            ]
            judgement = judged(steps)
            assert not any(rarely_slow(judgement))
            spread, method = step_time(judgement, min_samples=6)
            assert method == "clean steps"
            assert spread.median == pytest.approx(0.03)
            assert (spread.low, spread.high) == pytest.approx((0.028, 0.032)), "one more or less"
            quality = quality_of(judgement, method)
            assert (quality.num_slow, quality.num_collections) == (0, 5)
            assert quality.collected_s == pytest.approx(0.01)
            # A GPU has work queued meanwhile.
            assert step_time(judged(steps, asynchronous=True))[0].median == pytest.approx(0.02)

    def test_slow_steps_that_are_usual_are_not_rare(self):
        judgement = judged(now_and_then(0.2, every=3))
        assert not any(rarely_slow(judgement))
        assert rarely_slow(judged([])) == []
        assert rarely_slow(judged([step(0.02, 0.01)])) == [False]

    def test_a_step_that_holds_more_is_not_slow_for_that(self):
        judgement = judged(now_and_then(0.1, 0.01))
        longer = [5.0 if n % 10 == 9 else 1.0 for n in range(50)]
        assert not any(rarely_slow(judgement, longer))
        assert sum(rarely_slow(judgement, [1.0] * 50)) == 5

    def test_throttled_time_counts_like_waiting(self):
        steps = [step(), step(), step(0.1, throttled_s=0.08)]
        assert judged(steps).lost_s == (0, 0, 0.08)

    def test_a_stolen_tick_needs_a_longer_step(self):
        """Ticks of 10 ms may be older than the step they are read after."""
        usual = [step() for _ in range(8)]
        assert judged([*usual, step(0.02, stolen_s=0.01)]).lost_s[-1] == 0
        assert judged([*usual, step(0.05, stolen_s=0.7)]).lost_s[-1] == pytest.approx(0.03)

    def test_without_schedstat_a_switch_and_time_off_the_core_tell(self):
        def uncounted(seconds, switches):
            return TimedStep(seconds, StepEvidence(switches=switches, thread_s=0.02))

        judgement = judged([*[uncounted(0.02, 0)] * 8, uncounted(0.5, 2), uncounted(0.5, 0)])
        assert judgement.known
        assert judgement.lost_s[-2] == pytest.approx(0.48)
        assert judgement.lost_s[-1] == 0  # it slept of its own will

    def test_a_laptop_that_slept_or_a_clock_that_jumped(self):
        """Nothing counts it; neither the median of many nor the quantile of all moves."""
        judgement = judged([*(step() for _ in range(30)), step(7200.0)])
        spread, method = step_time(judgement, min_samples=6)
        assert (method, spread.median, spread.high) == ("clean steps", 0.02, 0.02)
        every, how = step_time(judged([TimedStep(0.02)] * 30 + [TimedStep(7200.0)]))
        assert (how, every.median) == ("all steps", 0.02)


class TestBehindItsHost:
    """An asynchronous device goes on while its host waits."""

    def test_lost_time_counts_where_the_step_is_longer_for_it(self):
        steps = [step(), step(), step(), step(0.02, 0.015), step(0.04, 0.02)]
        assert judged(steps, asynchronous=True).lost_s == (0, 0, 0, 0, 0.02)
        assert judged(steps).lost_s == (0, 0, 0, 0.015, 0.02)

    def test_where_every_third_step_waits_the_time_is_the_mean(self):
        """A wait for the device lengthens that step and all others are none the shorter."""
        judgement = judged(now_and_then(0.014, 0.010, every=3, num=40))
        mean, _ = step_time(judgement, min_samples=6, asynchronous=True)
        assert mean.median == pytest.approx((27 * 0.010 + 13 * 0.014) / 40)
        assert mean.num_samples == 10
        middle, _ = step_time(judgement, min_samples=6)
        assert middle.median == 0.010  # where the host is the device each step stands for itself

    @pytest.mark.parametrize(
        ("num", "period", "longer"), [(46, 4, 1.3), (41, 4, 1.5), (100, 10, 1.2)]
    )
    def test_the_mean_lies_in_its_interval(self, num, period, longer):
        """Also where the stretches' median is next to the mean, and none of them reaches it."""
        steps = [step(0.01 * (1 if n % period else longer)) for n in range(num)]
        spread, _ = step_time(judged(steps, asynchronous=True), asynchronous=True)
        assert spread.low <= spread.median <= spread.high

    def test_a_slow_step_in_the_only_burst(self):
        """Without it no whole burst is left, and the mean of the others stands."""
        steps = [step(seconds) for seconds in (0.05, 0.05, 0.6, 0.05)]
        spread, _ = step_time(judged(steps, asynchronous=True), group=4, asynchronous=True)
        assert spread.median == pytest.approx(0.05)


class TestWaits:
    def test_of_clean_steps_alone(self):
        times = judged([*(step() for _ in range(9)), step(0.5, 0.4)])
        waits = [*(0.001 * n for n in range(9)), 0.3]
        assert wait_time(times, waits, "clean steps").median == pytest.approx(0.004)

    def test_batches_that_come_in_bursts_wait_as_their_steps_do(self):
        """Two workers: every other step waits for both batches. Two steps make one sample."""
        times = judged([step(0.001 if n % 2 else 0.003) for n in range(40)])
        waits = [0.0 if n % 2 else 0.002 for n in range(40)]
        wait = wait_time(times, waits, "clean steps", group=2)
        assert (wait.median, wait.num_samples) == (pytest.approx(0.001), 20)


class TestQuantile:
    def test_its_interval_reaches_down_to_what_steps_took_without_waiting(self):
        """One core beside another program: every step waits, and none is clean."""
        judgement = judged([step(0.04 + 1e-4 * (n % 5), 0.02) for n in range(40)])
        spread, method = step_time(judgement, min_samples=6)
        assert method == "low quantile"
        assert spread.low == pytest.approx(0.02, rel=0.02)
        assert spread.median == pytest.approx(0.0401)
        assert quality_of(judgement, method).num_clean == 0

    @pytest.mark.parametrize("delay_s", [0.0399, 0.04, 0.4])
    def test_it_does_not_reach_zero(self, delay_s):
        spread, _ = step_time(judged([step(0.04, delay_s) for _ in range(20)]), min_samples=6)
        assert spread.low >= LEAST * 0.04

    def test_a_wait_that_was_counted_over_more_than_a_step_leaves_its_usual_time(self):
        """Other threads are read now and then: what they waited in many steps falls on one."""
        steps = [step(0.02, 0.015) if n % 4 else step(0.03, 0.4) for n in range(40)]
        judgement = judged(steps)
        assert judgement.lost_s[0] == pytest.approx(0.01)
        assert all(judgement.lost_s)

    def test_too_few_clean_ones(self):
        judgement = judged([*(step(0.04, 0.02) for _ in range(20)), step(), step()])
        assert step_time(judgement, min_samples=6)[1] == "low quantile"
        assert step_time(judgement, min_samples=2)[1] == "clean steps"

    @pytest.mark.parametrize("group", [1, 4])
    def test_waits_are_those_of_the_steps_behind_it(self, group):
        """The only clean step is a long one that waited for its loader: it is no step's wait."""
        steps = [*(step(0.002 + 1e-5 * n, 0.001) for n in range(40)), step(0.006)]
        waits = [*(1e-3 + 1e-5 * n for n in range(40)), 5e-3]
        times = judged(steps)
        spread, method = step_time(times, group=group, min_samples=6)
        assert method == "low quantile"
        wait = wait_time(times, waits, method, group=group)
        assert wait.high <= spread.median - 1e-3 + 1e-9
        assert wait.num_samples == (11 if group == 1 else 3)

    def test_without_evidence_wide_times_are_judged_by_it(self):
        times = [0.02 if n % 2 else 0.2 for n in range(60)]
        spread, method = step_time(judged([TimedStep(value) for value in times]))
        assert method == "low quantile"
        assert spread.median == quantile(times, QUARTILE)
        narrow = [TimedStep(0.02 + 1e-5 * (n % 20)) for n in range(60)]
        assert step_time(judged(narrow))[1] == "all steps"

    def test_steps_too_few_for_a_group(self):
        spread, _ = step_time(judged([step(0.01, 0.005), step(0.02, 0.005)]), group=5)
        assert spread.median == 0.01

    @pytest.mark.parametrize("num", [6, 20, 60])
    def test_its_interval_covers_as_often_as_it_says(self, num):
        rng, inside, said = random.Random(num), 0, 0.0
        for _ in range(1500):
            spread = quantile_spread([rng.expovariate(1) for _ in range(num)], QUARTILE)
            inside += spread.low <= 0.287682 <= spread.high  # -log(3/4)
            said = spread.confidence
        assert inside / 1500 == pytest.approx(said, abs=0.03)


class TestStops:
    def test_a_stopped_step_is_disturbed_whatever_its_length(self):
        """Also where most of them were stopped, so that the usual step is one of those."""
        stopped = [step(0.9 + 0.1 * n, stops=1) for n in range(6)]
        steps = [step(0.0101, stops=0), *stopped, step(0.0102, stops=0), step(0.0103, stops=0)]
        judgement = judged(steps)
        assert judgement.clean == [0.0101, 0.0102, 0.0103]
        spread, method = step_time(judgement, min_samples=3)
        assert (spread.median, method) == (0.0102, "clean steps")
        quality = quality_of(judgement, method)
        lost_s = sum(each.seconds for each in stopped)
        assert (quality.num_disturbed, quality.stalled_s) == (6, pytest.approx(lost_s, rel=0.02))

    def test_where_all_were_stopped_nothing_is_clean(self):
        spread, method = step_time(judged([step(1.0 + n, stops=1) for n in range(5)]))
        assert method == "low quantile"
        assert spread.low < 0.1

    def test_a_gpu_goes_on_but_its_step_is_not_trusted(self):
        judgement = judged([step(stops=1), step(stops=0)], asynchronous=True)
        assert judgement.clean == [0.02]


@pytest.mark.parametrize(
    ("method", "group", "places"),
    [
        ("clean steps", 1, [0, 2, 3, 4, 6, 7]),
        ("all steps", 2, [0, 2, 3, 4, 6, 7]),
        ("low quantile", 1, [0, 2]),  # the fastest quarter
        ("low quantile", 2, [0, 1]),  # the fastest groups
        ("low quantile", 50, [0, 2]),  # too few for a group
    ],
)
def test_the_steps_of_a_method(method, group, places):
    assert stood_for(STEPS, method, group=group) == places


def test_no_steps():
    assert stood_for(Judged((), (), known=False), "low quantile") == []
