"""Which size is chosen, how it is worded, and how sure it is."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.confirmation import (
    MAX_ONCE_MORE,
    next_confirmation,
    next_left_open,
)
from batchadvisor.advisor.search.cost import Budget
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.records import Goal, Turns
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sizes.rows import _fastest, size_rows

from ..on_paper import (
    CPU,
    GIB,
    discovery_of,
    exactly,
    failure_of,
    loader_of,
    numbered,
    record_of,
    trial_of,
)
from .decisions import KNEES
from .small_search import CONFIRMED, confirm, search_of

ON_CPU = msgspec.structs.replace(CPU, total_bytes=80 * GIB, capacity_bytes=80 * GIB)
OPEN = msgspec.structs.replace(KNEES["highest of the search"], device=ON_CPU)
ONE_VALUE = {"half_width": 0.0, "num_samples": 1}


def advice_of(*trials, kind="knee", **changes):
    return advise(record_of(numbered(*trials), goal=Goal(kind=kind), **changes))


class TestChoice:
    def test_confirmed(self):
        advice = advice_of(*search_of(), *CONFIRMED)
        assert advice.headline == "Use batch size 32: 200 samples/s ±1.0%, peak 1.03 GiB"
        assert advice.sureness == "confirmed"
        assert advice.recommended.trial == 6
        assert (advice.fastest.batch_size, advice.largest.batch_size) == (64, 64)
        assert advice.reason == (
            "The smallest size that reaches 95% of the best: 95.2% of the throughput of 64 "
            "(measured in turn, 94.3% to 96.2%). x2.50 the samples per second of the script's own "
            "8 (x2.45 to x2.55)."
        )
        assert advice.recommended.epoch_s.median == pytest.approx(15625 / 200)

    def test_measured_once_and_partial(self):
        assert advice_of(*search_of()).sureness == "measured once"
        assert advice_of(*search_of(), state="interrupted").sureness == "partial"

    def test_another_goal_of_the_same_record(self):
        record = record_of(numbered(*search_of()))
        tight = Goal(kind="memory", margin=1 - (GIB + 40 * 10**6) / (80 * GIB))
        for goal, size in (
            (None, 32),
            (Goal(kind="throughput"), 64),
            (Goal(kind="memory"), 64),
            (Goal(tolerance=0.0), 64),
            (Goal(tolerance=0.7), 8),
            (tight, 32),
        ):
            assert advise(record, goal).recommended.batch_size == size
        assert advise(record, tight).goal == tight
        fits = advice_of(*(trial_of(size, peak=GIB * size) for size in (8, 64)), kind="memory")
        assert fits.headline == "Use batch size 64: peak 64.00 GiB"
        assert fits.recommended.samples_per_s is None, "memory needs no times"

    def test_a_slow_loader_is_said_only_of_what_ran(self):
        """A larger batch is not ruled out where the sizes below gained by growing."""
        trials = (trial_of(8, 1.0, wait_s=0.4), trial_of(32, 1.02, wait_s=0.4))
        advice = advice_of(*trials, discovery=discovery_of(native=32))
        assert "no batch size that ran is surely much faster" in advice.reason
        assert (advice.verdict.limit, advice.verdict.larger_batch) == ("input", "helps")


class TestEpoch:
    def test_not_all_samples_arrive(self):
        trials = [
            *search_of({4: 0.1, 8: 0.1}),
            trial_of(32, 0.16, samples_per_s=exactly(24 / 0.16), mean_arrived=24.0),
            trial_of(32, kind="turns", turns=Turns(sizes=(8, 32), step_s=((0.1, 0.16),) * 9)),
        ]
        choice = advice_of(*trials).sizes[-1]
        assert choice.samples_per_s.median == pytest.approx(24 / 0.16, rel=0.01)
        assert choice.step_s.median == pytest.approx(0.16, rel=0.01)
        assert choice.epoch_s.median == pytest.approx(15625 / 32 * 0.16, rel=0.01)

    def test_it_is_that_of_one_rank(self):
        sharded = loader_of(
            1000, sampler="BatchSamplerShard", dataset_samples=1000, even_batches=True
        )
        advice = advice_of(trial_of(8, 0.1), discovery=discovery_of(loader=sharded, num_ranks=4))
        assert advice.recommended.epoch_s.median == pytest.approx(250 / 80)


class TestSteps:
    """What depends on the number of steps is not known where nobody could count them."""

    def test_that_nobody_could_count(self):
        unknown = {"optimizer_steps": "not as many for each"}
        discovery = discovery_of(micro_batches=3, unavailable=unknown)
        advice = advice_of(*search_of(), discovery=discovery)
        assert (advice.recommended.batch_size, advice.training) == (32, None)
        assert advice.unavailable["training"] == "not as many for each"
        assert advice.change.endswith("batch_size=8 → 32")

    @pytest.mark.parametrize(
        ("field", "seen", "kind", "why"),
        [
            # A script that cuts each batch into parts of eight makes more steps on a larger one.
            ("steps_per_batch", (4, 4), "timed", None),
            ("steps_per_batch", (None, None), "timed", None),
            (
                "steps_per_batch",
                (4, 16),
                "timed",
                "optimizer steps on each batch: 16 at 32, 4 at 8",
            ),
            (
                "steps_per_batch",
                (4, 0),
                "timed",
                "batches of 32 had optimizer steps, and not as many for each",
            ),
            # A script that steps on every 32 samples needs one batch of 32 for it.
            ("micro_batches", (4, 4), "timed", None),
            ("micro_batches", (4, None), "timed", None),
            ("micro_batches", (4, 1), "turns", None),
            ("micro_batches", (4, 1), "fit", None),
            ("micro_batches", (4, 1), "timed", "batches of an optimizer step: 1 at 32, 4 at 8"),
        ],
    )
    def test_that_change_with_the_size(self, field, seen, kind, why):
        trials = [
            trial_of(8, 0.108, **{field: seen[0]}),
            trial_of(32, 0.132, kind=kind, **{field: seen[1]}),
        ]
        advice = advice_of(*trials, discovery=discovery_of(**{field: 4}))
        assert advice.unavailable.get("training") == why
        assert (advice.training is None) is bool(why)
        assert advice.tail.steps_known is not bool(why)
        if field == "steps_per_batch":
            batches = -(-15625 // advice.recommended.batch_size)
            assert advice.tail.steps_per_epoch == batches * (1 if why else 4)


class TestFreshProcess:
    @pytest.mark.parametrize(
        ("series", "kind", "size", "considered", "said"),
        [
            ([(32, 0.18), (64, 0.3048)] * 2, "knee", 64, None, "fastest of the search"),
            ([(32, 0.32), (64, 0.3048)], "knee", 8, 32, "until a measurement tells"),
            (
                [(64, 0.64), (32, 0.16)] * 2,
                "throughput",
                32,
                None,
                "Faster in the fresh process than the fastest of the search: 156.2% of",
            ),
            ([(64, 0.64), (32, 0.16)], "throughput", 8, 64, "until a measurement tells"),
        ],
        ids=["slower", "slower once", "faster", "faster once"],
    )
    def test_it_overrules_the_search_if_it_says_so_twice(
        self, series, kind, size, considered, said
    ):
        """One comparison against the search leaves it open which of the two is right."""
        advice = advice_of(*search_of(), *(confirm(*pair) for pair in series), kind=kind)
        assert (advice.recommended.batch_size, advice.considered) == (size, considered)
        assert (advice.standing == "too noisy") is (considered is not None)
        assert said in advice.reason

    def test_finalists_take_turns_where_they_are_disturbed(self):
        """The third disturbed trial of a size counts; until then the other size goes between."""
        busy = {"doubts": ("other processes used the cores",)}
        trials = search_of()
        for expected in (32, 64) * 3:
            measurements = Measurements.of(record_of(numbered(*trials)))
            request = next_confirmation(measurements, Budget(measurements))
            assert (request.batch_size, request.kind) == (expected, "timed")
            trials = [*trials, confirm(expected, {32: 0.16, 64: 0.3}[expected], **busy)]

    def test_what_is_left_open_takes_turns_while_there_is_time(self):
        """256 may be much faster, for all that the noise tells, and most of the budget is left."""

        def asked(record):
            measurements = Measurements.of(record)
            return next_left_open(measurements, Budget(measurements))

        def after(*turns):
            more = [
                trial_of(256, kind="turns", turns=each, samples_per_s=None, purpose="confirm",
                         worker=1)
                for each in turns
            ]  # fmt: skip
            return msgspec.structs.replace(OPEN, trials=(*OPEN.trials, *numbered(*more)))

        request = asked(OPEN)
        assert (request.turns.sizes, request.purpose) == ((64, 256), "confirm")
        assert not request.fresh_process
        rounds = request.turns.num_rounds
        told = Turns(sizes=(64, 256), step_s=((0.025, 0.105),) * rounds)
        assert asked(after(told)) is None
        wild = ((0.02, 0.2), (0.03, 0.06), (0.02, 0.06), (0.03, 0.2))
        open_still = Turns(sizes=(64, 256), step_s=wild)
        assert asked(after(open_still)).turns.sizes == (64, 256)
        assert asked(after(*[open_still] * MAX_ONCE_MORE)) is None
        failed = failure_of(256, "exception", kind="turns", purpose="confirm")
        trials = (*OPEN.trials, *numbered(failed))
        assert asked(msgspec.structs.replace(OPEN, trials=trials)) is None
        late = msgspec.structs.replace(OPEN, search_s=OPEN.goal.budget_s - 1.0)
        assert asked(late) is None
        assert asked(KNEES["within the tolerance"]) is None

    def test_it_comes_last_in_a_search(self):
        """A machine on which 256 takes two or eight times as long as 64, as it likes."""
        step_s = {8: (0.02,), 64: (0.025,), 256: (0.2, 0.06, 0.06, 0.2)}

        def ran(request):
            size, last = request.batch_size, {"purpose": request.purpose, "worker": 1}
            if request.turns is None:
                return trial_of(size, 0.105, half_width=0.3, kind=request.kind, **last)
            rows = (
                tuple(step_s[each][number % len(step_s[each])] for each in request.turns.sizes)
                for number in range(request.turns.num_rounds)
            )
            turns = Turns(sizes=request.turns.sizes, step_s=tuple(rows))
            return trial_of(size, kind="turns", turns=turns, samples_per_s=None, **last)

        record = msgspec.structs.replace(OPEN, goal=Goal(sizes=tuple(step_s)))
        asked = []
        while not isinstance(request := next_trial(record), Done):
            asked.append(request)
            record = msgspec.structs.replace(record, trials=numbered(*record.trials, ran(request)))
        again = [request for request in asked if "which is faster is open" in request.reason]
        assert 1 <= len(again) <= MAX_ONCE_MORE
        assert asked[-len(again) :] == again

    def test_what_drift_may_do_is_said_to_be_noise(self):
        """On a CPU 93.5 % in both rounds is as near to 95 % as its drift is wide."""
        series = [confirm(32, 0.163), confirm(64, 0.3048)] * 2
        advice = advice_of(*search_of(), *series, device=ON_CPU)
        assert advice.recommended.batch_size == 32
        assert advice.reason.startswith("By the search the smallest size that reaches 95%")
        assert "the noise does not tell whether that is less" in advice.reason

    @pytest.mark.parametrize(("num_rounds", "chosen"), [(1, 64), (12, 32)])
    def test_one_round_in_turn_turns_nothing_down(self, num_rounds, chosen):
        """The fresh process ended after the first round of several."""
        turns = Turns(sizes=(32, 64), step_s=((0.16, 0.34),) * num_rounds)
        compared = confirm(64, 0.34, kind="turns", turns=turns)
        series = (confirm(64, 0.3048), confirm(32, 0.16), compared)
        advice = advice_of(*search_of(), *series, kind="throughput", device=ON_CPU)
        assert advice.recommended.batch_size == chosen

    def test_a_size_over_the_margin_is_not_taken(self):
        """It ran, yet in the fresh process it left less than the margin free."""
        series = (confirm(32, 0.16, peak=0.96 * 80 * GIB), confirm(64, 0.3, peak=0.97 * 80 * GIB))
        assert advice_of(*search_of(), *series).recommended.batch_size == 8


class TestOwnSize:
    def test_it_is_the_best(self):
        advice = advice_of(*search_of({2: 0.1, 8: 0.1, 16: 0.25}))
        assert advice.recommended.batch_size == advice.native.batch_size == 8
        assert advice.reason.endswith("This is the size the script has already.")
        assert advice.change == "nothing to change"

    @pytest.mark.parametrize(
        ("steps", "half_width", "kind", "considered", "headline"),
        [
            (
                {4: 0.2, 8: 0.1, 12: 0.135},
                0.1,
                "throughput",
                12,
                "80 samples/s ±10%, too noisy to tell whether 12 is better (x0.76 to x1.63)",
            ),
            (
                {1: 0.1, 8: 0.1},
                0.9,
                "knee",
                None,
                "42\N{EN DASH}800 samples/s, too noisy to tell whether another is better",
            ),
        ],
        ids=["one is not told apart", "all is noise"],
    )
    def test_noise_keeps_it(self, steps, half_width, kind, considered, headline):
        advice = advice_of(*search_of(steps, half_width=half_width), kind=kind)
        assert advice.recommended.batch_size == 8
        assert (advice.standing, advice.considered) == ("too noisy", considered)
        assert advice.headline.startswith(f"Keep batch size 8: {headline}")
        assert advice.reason.startswith("The script keeps its own 8 until a measurement tells")
        assert "x0.76" not in advice.reason, "one set of figures"
        assert advice.change == "nothing to change"

    @pytest.mark.parametrize(("larger_s", "said"), [(0.4, True), (0.2, False)])
    def test_what_no_size_exceeds_is_certain(self, larger_s, said):
        """Where nothing is told apart, and where another size is surely faster."""
        steps = {3: 0.0365, 8: 0.1, 32: larger_s}
        trials = search_of(steps, half_width=0.06)
        advice = advice_of(*trials)
        assert (advice.standing == "too noisy") is said
        speeds = Measurements.of(record_of(numbered(*trials), goal=Goal())).speeds
        most = max(speeds.compare(size, 8, 0.99).high for size in (3, 32))  # two at 98 % together
        assert (
            f"No size that was timed is more than x{most:.2f} as fast." in advice.reason
        ) is said

    def test_one_value_alone_has_no_interval(self):
        advice = advice_of(*search_of({8: 0.1, 32: 0.17}, **ONE_VALUE))
        assert advice.headline.startswith("Use batch size 32: 190 samples/s")
        assert "±" not in advice.headline
        assert advice.reason.endswith(
            "x2.35 the samples per second of the script's own 8 (x1.25 to x4.42)."
        )
        assert advice.verdict.limit == "cannot tell"
        near = advice_of(*search_of({8: 0.1, 32: 0.37}, **ONE_VALUE))
        assert (near.standing, near.recommended.batch_size) == ("too noisy", 8)

    def test_where_all_others_are_surely_slower_that_is_known(self):
        own = trial_of(8, 0.1, half_width=0.9)
        fast = msgspec.structs.replace(own.samples_per_s, low=75.0, median=80.0, high=9000.0)
        own = msgspec.structs.replace(own, samples_per_s=fast)
        advice = advice_of(trial_of(1, 0.2), own)
        assert (advice.recommended.batch_size, advice.standing) == (8, "own")


def in_turn(ratios, kind="knee"):
    """The search reads 200 and 210 samples/s at 32 and 64; then they take turns in these ratios."""
    turns = Turns(sizes=(32, 64), step_s=tuple((0.16 / ratio, 0.32) for ratio in ratios))
    trial = confirm(64, None, kind="turns", turns=turns)
    trials = numbered(*search_of(), *CONFIRMED[:2], trial)
    record = record_of(trials, goal=Goal(kind=kind), device=ON_CPU)
    return record, advise(record)


class TestFastest:
    """The fresh process may put the recommended size before the fastest of the search: no page says
    both that one is the fastest and that the other reaches more than its throughput."""

    NOISY = (1.4, 1.0, 1.35, 1.0, 1.5, 1.1, 1.0, 1.4) * 2

    @pytest.mark.parametrize(
        ("ratios", "kind", "size", "marked", "said"),
        [
            (NOISY, "knee", 32, [], "of the best: in turn it and 64 cannot be told apart (9"),
            (
                [1.05] * 16,
                "knee",
                32,
                [],
                "104.4% of the throughput of 64 (measured in turn, 102.9%",
            ),
            ([0.97] * 16, "knee", 32, [64], "96.7% of the throughput of 64 (measured in turn"),
            ([1.0, 0.95, 0.98, 1.02] * 4, "knee", 32, [64], "of the throughput of 64 (measured"),
            ([0.9] * 16, "throughput", 64, [64], "The fastest"),
            ([1.01] * 16, "throughput", 64, [], "The fastest"),
        ],
        ids=[
            "noise",
            "surely faster",
            "slower",
            "hardly slower",
            "the fastest itself",
            "its rival",
        ],
    )
    def test_the_mark_is_given_where_nothing_speaks_against_it(
        self, ratios, kind, size, marked, said
    ):
        record, advice = in_turn(ratios, kind)
        assert advice.recommended.batch_size == size
        assert advice.fastest.batch_size == 64  # of the search
        assert advice.fastest_is_open is not bool(marked)
        rows = size_rows(record, advice)
        assert [row.batch_size for row in rows if "fastest" in row.marks] == marked
        assert said in advice.reason

    def test_the_mark_stays_where_the_reason_calls_the_recommended_size_the_fastest(self):
        """Another size that took no turns may read a hundredth higher."""
        _, advice = in_turn([0.9] * 16, "throughput")
        fastest = advice.fastest
        rate = fastest.samples_per_s
        higher = msgspec.structs.replace(rate, median=1.005 * rate.median)
        other = msgspec.structs.replace(fastest, batch_size=48, samples_per_s=higher)
        for recommended, marked in ((fastest, 64), (advice.native, 48)):
            changed = msgspec.structs.replace(
                advice, sizes=(*advice.sizes, other), recommended=recommended
            )
            assert _fastest(changed).batch_size == marked

    def test_the_reason_says_why_no_larger_size_was_tried(self):
        """The script's own leaves few steps an epoch already; nothing above it was asked for."""
        few = discovery_of(32, 300)
        own, smaller = trial_of(32, 0.1), trial_of(16, 0.09)
        words = "No larger one was tried: an epoch would have fewer than 10 optimizer steps"
        assert words in advice_of(own, smaller, discovery=few).reason
        assert words not in advice_of(own, smaller, trial_of(64, 0.3), discovery=few).reason
        assert words not in advice_of(own, smaller).reason

    @pytest.mark.parametrize(("mean", "size"), [(0.96, 32), (0.935, 64)])
    def test_the_middle_of_a_ratio_in_turn_decides(self, mean, size):
        """The noise leaves it open on which side of 95 % a size lies; it is surely near."""
        record, advice = in_turn([mean - 0.03, mean + 0.03, mean - 0.02, mean + 0.02] * 4)
        assert advice.recommended.batch_size == size
        ratio = Measurements.of(record).speeds.compare(32, 64)
        assert ratio.low < 0.95 < ratio.high

    def test_the_chart_names_the_search(self):
        (section,) = build_report(*in_turn(self.NOISY)).devices
        throughput = next(chart for chart in section.charts if chart.key == "throughput")
        labels = [band.label for band in throughput.bands]
        assert labels == ["within 5% of the fastest of the search"]
