"""Each rule once where it fires and once, close by, where it does not."""

import re
from functools import partial

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.findings import WIDE_INTERVAL, findings_of
from batchadvisor.advisor.measured.epoch_end import tail_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.training import training_of
from batchadvisor.advisor.tails.conditions import SMALL_BATCH_NORM
from batchadvisor.probes.devices.torch_devices import _with_segments
from batchadvisor.records import (
    CoreMasks,
    Counters,
    Goal,
    Memory,
    NormLayers,
    Profile,
    StepFlops,
    TailCheck,
    Turns,
)
from batchadvisor.records.quality import PageFaults, StepQuality

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
from .finding_cases import findings

NORMS = NormLayers(batch_norm=2)
FAILED = TailCheck(num_samples=1, outcome="exception", detail="ValueError: one value")
DOUBT = "other processes used {} of 2 cores meanwhile; step times may be too long"
LEFT_OUT = "3.4 s of 1 GPU event that ends after later ones of the same stream"


def at(*trials, **changes):
    """A case: the record and the size that the findings are asked for."""
    return partial(findings, *trials, **changes)


def left(samples, **changes):
    """The epoch ends in a batch of so many samples; the others have 64."""
    loader = {name: changes.pop(name) for name in ("drop_last",) if name in changes}
    return at(loader=loader_of(6400 + samples, **loader), **changes)


def timed(**changes):
    return at(trial_of(64, 0.1, **changes))


def checked(outcome="ok", num_non_finite=0):
    check = TailCheck(num_samples=40, outcome=outcome, num_non_finite=num_non_finite)
    return left(40, check=check)


def retried(number):
    return timed(memory=Memory(peak_bytes=GIB, peak_source="", num_alloc_retries=number))


def multiplying(size):
    """A step whose largest tensor has about 102 million elements for each sample."""
    flops = StepFlops(forward=1, backward=2, largest_tensor=(size, 2047, 50_000))
    return at(trial_of(size, 0.2, flops=flops), size=size)


def read_at(rate):
    """512 read at so many samples per second; 16 and 32 took turns, and 32 is the faster."""
    turns = Turns(sizes=(16, 32), step_s=((0.04, 0.0725),) * 12)
    compared = trial_of(32, kind="turns", turns=turns)
    trials = (trial_of(16, 0.04), trial_of(32, 32 / 440), compared, trial_of(512, 512 / rate))
    return at(*trials, device=CPU)


def steered(how):
    return at(loader=loader_of(6400, steered=how, sampler="ByLength"))


def searched(*sizes, **goal):
    """Of these sizes; ten steps an epoch of 6400 samples: 640 is the largest that is tried."""
    return at(*(trial_of(size, 0.001 * size) for size in sizes), goal=Goal(**goal))


def far(factor):
    size = 64 * factor
    return at(trial_of(size, 0.2), size=size, loader=loader_of(640_000))


def held(reserved, allocated, *, source="the allocator", retries=0):
    """What the allocator holds, in GiB."""
    return Memory(
        peak_bytes=reserved * GIB,
        peak_source=source,
        reserved_bytes=reserved * GIB,
        allocated_bytes=allocated * GIB,
        num_alloc_retries=retries,
    )


def flushing(retries, rate=4000):
    """384 reads at this rate and flushes the cache so often; 256 reads at 7,000 samples/s."""
    above = trial_of(384, 384 / rate, memory=held(78, 76, retries=retries))
    return at(trial_of(256, 256 / 7000, memory=held(60, 58)), above, size=256)


def slowly_flushing():
    """The same at less than a sample a second."""
    above = trial_of(8, 8 / 0.4, memory=held(78, 76, retries=40))
    return at(trial_of(4, 4 / 0.9, memory=held(60, 58)), above, size=4)


def limited(*reasons):
    return timed(counters=Counters(throttle_reasons=reasons))


def on_cores(at_start, workers, in_workers):
    masks = CoreMasks(at_start=at_start, in_loop=1, num_workers=workers, in_workers=in_workers)
    return at(cores=masks)


def faulting(share, cpu_s=None):
    """Steps of 0.1 s whose page faults take one thread that share of them."""
    faults = PageFaults(num=share * 0.1 / 2e-6, each_s=2e-6, allocator="glibc")
    return timed(
        quality=StepQuality(
            num_steps=9, num_clean=9, num_disturbed=0, page_faults=faults, cpu_s=cpu_s
        )
    )


def gathered(size, micro_batches, **changes):
    """A script whose own 64 goes in 32 micro-batches to a step, at a size with so many."""
    discovery = discovery_of(native=64, micro_batches=32, loader=loader_of(6400, batch_size=64))
    record = record_of((trial_of(size, 0.1, micro_batches=micro_batches, **changes),),
                       discovery=discovery)  # fmt: skip
    found = findings_of(Measurements.of(record), size, None, None)
    return lambda: {finding.rule: finding for finding in found}


def in_a_budget(start_s):
    """Batches of 16 samples that fill 4,096 tokens, 400 samples in a second."""
    loader = loader_of(50_000, axis="tokens", batch_size=4096, num_workers=1, start_s=start_s)
    return at(trial_of(4096, 0.04, samples_per_s=exactly(400), mean_arrived=16), size=4096,
              loader=loader)  # fmt: skip


def starting(start_s, workers=2, *, persistent=False):
    """Workers that take so long to start, and an epoch whose steps take 1 s."""
    return at(
        loader=loader_of(640, num_workers=workers, persistent_workers=persistent, start_s=start_s)
    )


SIDES = {
    "tail.crash": ([checked("exception"), checked("out_of_memory")], [checked()]),
    "tail.nan": ([checked(num_non_finite=2)], [checked()]),
    "tails.loader.no-steps": (
        [at(loader=loader_of(63, drop_last=True))],
        [at(loader=loader_of(64, drop_last=True))],
    ),
    "tails.loader.short": ([left(31), left(1)], [left(0), left(32), left(50)]),
    "tails.norm.one-value": (
        [left(1, norms=NORMS)],
        # What failed as it was executed is not predicted as well.
        [left(0, norms=NORMS), left(2, norms=NORMS), left(1), left(1, norms=NORMS, check=FAILED)],
    ),
    "tails.norm.few-samples": (
        [left(2, norms=NORMS), left(SMALL_BATCH_NORM - 1, norms=NORMS)],
        [left(1, norms=NORMS), left(SMALL_BATCH_NORM, norms=NORMS)],
    ),
    "batch_norm.small": (
        [at(size=7, loader=loader_of(700), norms=NORMS)],
        [
            at(size=8, loader=loader_of(800), norms=NORMS),
            at(size=4, norms=NormLayers(group_norm=3)),
            at(size=6, loader=loader_of(700, axis="seconds", batch_size=6), norms=NORMS),
        ],
    ),
    "noise": (
        [timed(half_width=WIDE_INTERVAL + 0.01)],
        [
            timed(half_width=WIDE_INTERVAL - 0.01),
            at(trial_of(64, 0.1), trial_of(32, 0.1, half_width=0.5)),  # at another size
        ],
    ),
    "memory.retries": ([retried(3)], [retried(None), retried(0)]),
    "time.falls": (
        [at(trial_of(32, 0.25), trial_of(64, 0.2))],
        [
            at(trial_of(32, 0.229), trial_of(64, 0.2)),
            at(trial_of(32, 0.25, micro_batches=2), trial_of(64, 0.2)),  # a step of two batches
        ],
    ),
    # Below the fastest there is nothing to say, and one much faster is the fastest.
    "turns.left_out": ([read_at(450)], [read_at(430), read_at(600)]),
    "bound.steps": (
        [searched(64, 640)],
        [
            searched(64, 320),
            searched(64, 640, 1280),
            searched(64, 640, kind="memory"),
            searched(64, 640, max_batch=640),
            searched(64, 640, sizes=(64, 640)),
            searched(64, 640, keep_effective_batch=True),
        ],
    ),
    "steering.approximate": ([steered("approximate")], [steered("exact")]),
    "steering.indices": (
        [timed(size_proof="indices")],
        [timed(size_proof="shape"), timed(size_proof="indices", mean_arrived=63.14)],
    ),
    "steps.mixed": ([timed(steps_elsewhere=2.1)], [timed(), timed(steps_elsewhere=0.01)]),
    "trace.damaged": ([timed(profile=Profile(losses="3 events"))], [timed(profile=Profile())]),
    "trace.left_out": ([timed(profile=Profile(left_out=("1",)))], [timed(profile=Profile())]),
    "size.above_data": (
        [at(trial_of(64, 0.1), trial_of(6401, 0.2))],
        [at(trial_of(64, 0.1), trial_of(6400, 0.2))],
    ),
    "size.beyond_index": ([multiplying(43)], [multiplying(20)]),
    "gpu.settings": (
        [limited("sw_power_cap", "applications_clocks_setting")],
        [limited(), limited("hw_thermal_slowdown"), limited("unknown_0x100000")],
    ),
    "memory.page_faults": (
        [faulting(0.06), faulting(0.06, cpu_s=0.1), faulting(0.06, cpu_s=0.01)],
        [faulting(0.04), faulting(0.06, cpu_s=0.2), timed()],  # two threads fault at once
    ),
    "memory.retries_above": ([flushing(40), flushing(2)], [flushing(0), flushing(40, rate=7500)]),
    "memory.scattered": (
        [timed(memory=held(60, 40))],
        [
            timed(memory=held(60, 55)),
            # The best of several windows counts.
            at(*(trial_of(64, 0.1, memory=held(reserved, 40)) for reserved in (60, 45))),
        ],
    ),
    "workers.share_cores": (
        [on_cores(16, 8, 1), on_cores(16, 8, 4)],
        [on_cores(16, 8, 16), on_cores(16, 8, 8), on_cores(4, 8, 4), on_cores(16, 0, 0)],
    ),
    "workers.start": (
        [starting(2.0)],
        [
            starting(2.0, persistent=True),
            starting(2.0, workers=0),
            starting(0.1),
            starting(None),
            in_a_budget(0.3),  # of an epoch of 125 s
        ],
    ),
    "training.far": (
        [far(44), gathered(4096, 32)],
        [far(32), gathered(4096, 1), gathered(4096, None, steps_per_batch=0)],
    ),
}


@pytest.mark.parametrize("rule", SIDES)
def test_it_fires_and_close_by_it_does_not(rule):
    fires, quiet = SIDES[rule]
    assert all(rule in case() for case in fires)
    assert not any(rule in case() for case in quiet)


SAID = [
    (left(1, norms=NORMS), "tails.norm.one-value", "not executed here"),
    (left(1, check=FAILED), "tail.crash", "ValueError: one value"),
    (at(loader=loader_of(64)), "training.few_steps", "an epoch has 1 optimizer step at"),
    (at(loader=loader_of(128)), "training.few_steps", "an epoch has 2 optimizer steps at"),
    (read_at(450), "turns.left_out", "batch 512 took no turns with 32, and may"),
    (timed(steps_elsewhere=2.1), "steps.mixed", "holds 2.1 more on average"),
    (timed(profile=Profile(left_out=(LEFT_OUT,))), "trace.left_out", LEFT_OUT),
    (multiplying(43), "size.beyond_index", "43 x 2047 x 50000 has 4,401,050,000 elements"),
    (flushing(40), "memory.retries_above", "flushed its cache 40 times"),
    (flushing(40), "memory.retries_above", "that is why"),
    (flushing(2), "memory.retries_above", "it may be why"),
    (
        flushing(40),
        "memory.retries_above",
        "batch 384 is slower than batch 256 (4,000 against 7,000 samples per second)",
    ),
    (far(44), "training.far", "x44 the samples of the script's own: the throughput was measured"),
    (
        at(
            trial_of(64 * 44),
            size=64 * 44,
            loader=loader_of(axis="tokens"),
            goal=Goal(kind="memory"),
        ),
        "training.far",
        "x44 the tokens of the script's own: the memory was measured",
    ),
    (timed(half_width=0.6), "noise", "lie between 40 ms and 160 ms"),
    (timed(memory=held(60, 40)), "memory.scattered", "20.00 GiB lies between"),
    (starting(2.0), "workers.start", "2 s (measured once), and the steps of an epoch at batch 64"),
    (  # once, at its worst
        at(trial_of(16, 0.05, mean_arrived=15.9), trial_of(64, 0.1, mean_arrived=63.14)),
        "samples.left_out",
        "leaves samples out: 63.1 of 64 arrived on average",
    ),
    (
        at(trial_of(64, 0.1), failure_of(256), failure_of(128)),
        "memory.refused",
        "out of memory at 128, 256",
    ),
    (retried(1), "memory.retries", "flushed its cache once at this size"),
    (retried(3), "memory.retries", "flushed its cache 3 times at this size"),
    (slowly_flushing(), "memory.retries_above", "(0.4 against 0.9 samples per second)"),
    (at(size=1, loader=loader_of(100), norms=NORMS), "batch_norm.small", "with 1 sample a step"),
    (
        at(*(trial_of(64, 0.1, doubts=(DOUBT.format(cores),)) for cores in (0.4, 1.4, 0.9))),
        "doubt",
        DOUBT.format(1.4) + " (the worst of 3 trials)",
    ),
]


@pytest.mark.parametrize(("case", "rule", "text"), SAID)
def test_it_says_what_was_seen(case, rule, text):
    assert text in case()[rule].message


def test_memory_refused_on_a_device_that_nobody_knows():
    found = at(trial_of(64, 0.1), failure_of(128), device=None)()["memory.refused"]
    assert found.message == "out of memory at 128"


@pytest.mark.parametrize(
    "case",
    [
        at(),
        left(31, drop_last=True),  # the section of the last batch has it
        at(loader=loader_of(None), norms=NormLayers(layer_norm=2)),
        at(trial_of(64, 0.1), failure_of(128, "interrupted")),
    ],
    ids=["nothing wrong", "samples are dropped", "unknown length", "interrupted"],
)
def test_nothing_to_say(case):
    assert case() == {}


class TestTail:
    @pytest.mark.parametrize("outcome", ["interrupted", "script_ended"])
    def test_a_step_that_was_cut_short_was_not_executed(self, outcome):
        check = TailCheck(num_samples=1, outcome=outcome, detail="the script finished")
        norms = NormLayers(batch_norm=1, batch_norm_values=1)
        cut = trial_of(1, purpose="tail", outcome=outcome, tail=check)
        discovery = discovery_of(loader=loader_of(801), norm_layers=norms)
        advice = advise(record_of(numbered(trial_of(8, 0.1), cut), discovery=discovery))
        assert advice.tail_check is None
        by_rule = {finding.rule: finding for finding in advice.findings}
        assert "tail.crash" not in by_rule
        assert by_rule["tails.norm.one-value"].severity == "error"
        assert "not executed here" in by_rule["tails.norm.one-value"].message

    def test_sizes_near_by_that_ran_are_not_called_unmeasured(self):
        first, *others = tail_of(discovery_of(native=64, loader=loader_of(6401)), 64).nearest_clean
        listed = ", ".join(map(str, others))
        for ran, said in (
            ([64, first], f": {first}, {listed} ({listed} not measured);"),
            ([64, first, *others], f"{first}, {listed}; "),
        ):
            by_rule = findings(*(trial_of(size, 0.1) for size in ran), loader=loader_of(6401))
            assert said in by_rule["tails.loader.short"].remedy
            assert "drop_last=True" in by_rule["tails.loader.short"].remedy

    def test_no_clean_size_near_by(self):
        """37 samples: batches of 3, 4 and 5 all leave one or two over."""
        tail = tail_of(discovery_of(native=8, loader=loader_of(37)), 4)
        assert not tail.nearest_clean
        assert tail.why_none_clean == "no size from 3 to 5 is without a harmful tail"
        capped = tail_of(discovery_of(native=64, loader=loader_of(6401)), 64, largest=40)
        assert capped.why_none_clean == "no other size near by is without a harmful tail"
        remedy = findings(size=4, loader=loader_of(37))["tails.loader.short"].remedy
        assert tail.why_none_clean in remedy

    def remedy(self, loader, check=FAILED, *trials):
        return findings(*trials, size=8, loader=loader, check=check)["tail.crash"].remedy

    def test_an_executed_step_that_failed_is_avoided(self):
        """What is offered makes steps, and none of the length that failed."""
        remedy = self.remedy(loader_of(41))
        assert "drop_last=True" in remedy
        (size,) = re.findall(r"batch_size = (\d+) ", remedy)
        last = 41 % int(size)
        assert last not in (0, 1)
        assert f"its last step, of {last}, was not executed" in remedy
        refused = self.remedy(loader_of(41), FAILED, failure_of(int(size)))
        assert f"batch_size = {size} " not in refused

    def test_no_batch_is_dropped_where_it_is_the_only_one(self):
        """5 samples in a batch of 8: drop_last would leave no step."""
        check = TailCheck(num_samples=5, outcome="exception", detail="RuntimeError: shape")
        remedy = self.remedy(loader_of(5), check)
        assert "drop_last" not in remedy
        assert "batch_size = 5" not in remedy
        assert "batch_size = " in remedy

    def test_a_step_that_failed_and_a_loader_that_drops_already(self):
        unknown = loader_of(None, iterable=True, drop_last=True)
        assert "drops a short batch already" in self.remedy(unknown)


class TestFailures:
    @pytest.mark.parametrize("outcome", ["exception", "hung", "no_step", "wrong_size", "crashed"])
    def test_broken(self, outcome):
        by_rule = findings(trial_of(64, 0.1), failure_of(128, outcome))
        assert by_rule[f"trial.{outcome}"].message == f"batch 128 did not run: {outcome} on paper"
        assert "memory.refused" not in by_rule

    @pytest.mark.parametrize(
        ("trials", "left_out"),
        [
            ([trial_of(64, 0.1), failure_of(128, "exception")], True),
            ([trial_of(64, 0.1), failure_of(32, "exception")], False),
            # Memory was refused below it, as a neighbour on the device may cause.
            ([failure_of(64), failure_of(128, "exception"), trial_of(256, 0.4)], False),
        ],
    )
    def test_larger_sizes_are_left_out_unless_one_ran(self, trials, left_out):
        remedy = findings(*trials)["trial.exception"].remedy
        assert ("larger sizes were left out" in remedy) is left_out

    @pytest.mark.parametrize("trial", [failure_of(1), trial_of(1, 0.1, peak=79.9 * GIB)])
    def test_nothing_fits_at_batch_1(self, trial):
        finding = findings(trial, failure_of(4))["memory.nothing_fits"]
        assert finding.severity == "error"
        assert "gradient checkpointing" in finding.remedy
        assert "memory.nothing_fits" not in findings(trial_of(1, 0.1, peak=GIB), failure_of(4))

    @pytest.mark.parametrize(
        ("goal", "says"),
        [
            (Goal(), "--start 1."),
            (Goal(multiple_of=8), "--start 8."),
            (Goal(multiple_of=64), "A smaller --multiple-of"),
            (Goal(sizes=(64,)), "--sizes"),
        ],
    )
    def test_no_option_is_named_that_contradicts_the_ones_that_were_given(self, goal, says):
        remedy = findings(failure_of(64), goal=goal)["memory.nothing_fits"].remedy
        assert says in remedy
        assert ("--start" in remedy) is ("--start" in says)

    def test_no_size_was_chosen(self):
        measurements = Measurements.of(record_of(numbered(failure_of(8), failure_of(1))))
        rules = [finding.rule for finding in findings_of(measurements, None, None, None)]
        assert rules == ["memory.nothing_fits", "memory.refused"]


def test_doubts_of_two_kinds_are_both_said():
    trial = trial_of(64, 0.1, doubts=("the clock was lowered",))
    record = record_of((trial,), doubts=("another process uses the GPU",))
    found = findings_of(Measurements.of(record), 64, None, None)
    texts = [finding.message for finding in found if finding.rule == "doubt"]
    assert texts == ["another process uses the GPU", "the clock was lowered"]


@pytest.mark.parametrize(("factor", "is_far"), [(32, False), (44, True)])
def test_a_learning_rate_for_many_times_the_samples_is_not_suggested(factor, is_far):
    """A learning rate of 0.1 would become 4.4."""
    (rate,) = training_of(discovery_of(native=64), 64 * factor, keep=False).learning_rates
    assert (rate.suggested is None) is is_far
    assert ("x44, further than rules of thumb" in rate.rule) is is_far


def test_settings_of_the_gpu_are_information():
    reasons = ("sw_power_cap", "applications_clocks_setting")
    finding = limited(*reasons)()["gpu.settings"]
    assert finding.severity == "info"
    assert "application clocks that somebody set" in finding.message
    assert "its power limit" in finding.message
    assert [evidence.value for evidence in finding.evidence] == [1, 1]


def test_what_is_on_already_is_not_proposed(monkeypatch):
    scattered = timed(memory=held(60, 40))()["memory.scattered"]
    assert "expandable_segments:True" in scattered.remedy
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64, expandable_segments: True")
    source = f"the allocator{_with_segments()}"
    by_rule = timed(memory=held(60, 40, source=source, retries=2))()
    assert by_rule["memory.scattered"].remedy == ""
    assert "expandable" not in by_rule["memory.retries"].remedy
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    assert _with_segments() == ""
