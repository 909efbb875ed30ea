"""What the callback concludes and how it says it: pure functions of a record."""

from __future__ import annotations

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.callback_advice import SLOW_WINDOW, headroom
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import (
    Cause,
    Goal,
    Memory,
    NoiseScale,
    Observed,
    OperatorTime,
    Pipeline,
    Profile,
    ScriptInfo,
    SizeSeen,
    TailCheck,
)
from batchadvisor.reports.builder.observed import build_watched
from batchadvisor.reports.html.notebook import render as render_html
from batchadvisor.reports.terminal.document import render
from msgspec.structs import replace

from ..on_paper import CPU, GIB, discovery_of, exactly, loader_of, record_of, trial_of
from ..reports.golden import agrees


def spread(value):
    return exactly(value, 0.01, num_samples=99)


def trial(ordinal, size, *, peak_gib=4.0, allocated_gib=None, step_s=0.1, **changes):
    values = {
        "num_samples": 99,
        "samples_per_s": spread(size / step_s),
        "input_wait_s": spread(step_s / 100),
        "memory": Memory(
            peak_bytes=int(peak_gib * GIB),
            peak_source="test",
            allocated_bytes=None if allocated_gib is None else int(allocated_gib * GIB),
        ),
    }
    return trial_of(size, step_s, ordinal=ordinal, **{**values, **changes})


def record(*trials, held_gib=None, noise=None, num_samples=1000, world_size=1, **changes):
    size = trials[0].batch_size
    loader = loader_of(
        num_samples, place=None, batch_size=size, steered="no: a callback only watches"
    )
    observed = Observed(
        framework="plain",
        world_size=world_size,
        num_steps=500,
        num_micro_batches=500,
        num_samples=500 * size,
        sizes=(SizeSeen(batch_size=size, num_micro_batches=500),),
        held_bytes=None if held_gib is None else int(held_gib * GIB),
        noise_scale=noise,
    )
    values = {
        "goal": Goal(margin=0.0),
        "capacity": 16 * GIB,
        "discovery": discovery_of(size, loader=loader, norm_layers=None),
        "observed": observed,
    }
    return record_of(trials, **{**values, **changes})


def rule(advice, name):
    return next((finding for finding in advice.findings if finding.rule == name), None)


def peaks(*sizes_and_gib):
    """A watched training with a trial for each size, and its peak."""
    return record(*(trial(at, size, peak_gib=gib) for at, (size, gib) in enumerate(sizes_and_gib)))


REFUSED_AT_40 = trial(1, 40, outcome="out_of_memory", step_s=0.1)


def test_the_end_of_the_epoch_is_mended_as_the_framework_does_it():
    watched = record(trial(0, 32))
    end = rule(advise(watched), "tails.loader.short")
    assert "DataLoader(" in end.remedy
    pipeline = Pipeline(num_samples=1000, batch_size=32, setup="keras-jax")
    observed = replace(watched.observed, framework="keras (jax)", pipeline=pipeline)
    end = rule(advise(replace(watched, observed=observed)), "tails.loader.short")
    assert end.remedy.startswith("drop the short batch, or cut an array to whole batches")
    assert "DataLoader(" not in end.remedy


def test_no_bound_is_named_where_nothing_is_tried():
    few = record(trial(0, 32), num_samples=320)
    assert rule(advise(few), "bound.steps") is None
    assert rule(advise(replace(few, observed=None)), "bound.steps") is not None


class TestHeadroom:
    @pytest.mark.parametrize(
        ("watched", "size", "samples", "basis"),
        [
            (peaks((32, 4.0)), 32, 96, "at least"),
            # 2 GiB stay, 2 GiB belong to 32 samples; 12 GiB are left: 192 more.
            (record(trial(0, 32, allocated_gib=4.0), held_gib=2.0), 32, 192, "2.00 GiB stay"),
            (peaks((32, 4.0), (64, 6.0)), 64, 160, "line through the sizes 32 and 64"),
            # Noise at the next size leaves a line through a farther one.
            (peaks((32, 4.0), (64, 6.0), (65, 6.0)), 65, 165, "line through the sizes 32 and 65"),
            (record(trial(0, 32), REFUSED_AT_40), 32, 7, "memory was refused at 40"),
        ],
        ids=["in proportion", "what stays does not grow", "a line", "a farther line", "refused"],
    )
    def test_a_number_and_what_it_rests_on(self, watched, size, samples, basis):
        room = headroom(Measurements.of(watched), size)
        assert room.is_number
        assert room.samples == samples
        assert basis in room.basis

    def test_a_line_through_noise_gives_no_number(self):
        """Three sizes of a small model: the process's peak moves by a page here and there."""
        watched = peaks((32, 0.25), (64, 0.251), (100, 0.252))
        assert not headroom(Measurements.of(watched), 100).is_number
        message = rule(advise(watched), "callback.headroom").message
        assert message.startswith("memory leaves room for more samples")
        assert "hardly differs between the sizes 32 and 100" in message

    def test_a_line_reaches_only_so_far(self):
        room = headroom(Measurements.of(peaks((2, 1.0), (4, 1.1))), 4)
        assert not room.is_number
        assert "more than 64 times this size" in room.basis

    def test_none_left_and_unknown(self):
        assert "above" in headroom(Measurements.of(peaks((32, 17.0))), 32)
        assert "not known" in headroom(Measurements.of(record(trial(0, 32, memory=None))), 32)


class TestAdvice:
    def test_one_size_is_not_recommended_over_others_and_one_to_try_is_named(self):
        advice = advise(record(trial(0, 32)))
        assert advice.headline.startswith("Batch size 32 as it ran: 320 samples/s")
        assert advice.recommended.batch_size == 32
        assert advice.change == ""
        assert advice.sureness == "measured once"
        finding = rule(advice, "callback.try")
        assert finding.confidence == "estimate"
        assert finding.evidence[0].value == 64
        assert "one size cannot tell" in finding.message

    def test_what_is_no_script_is_not_named_as_such(self):
        run = record(trial(0, 32))
        worker = replace(run, script=ScriptInfo(path="ray-worker"))
        assert "`batchadvisor run` measures it in a script" in (
            rule(advise(worker), "callback.try").remedy
        )

    def test_never_more_than_fits_or_than_there_is(self):
        full = advise(record(trial(0, 32, peak_gib=15.9)))
        assert "no larger size" in rule(full, "callback.try").message
        few = advise(record(trial(0, 32), num_samples=40))
        assert rule(few, "callback.try").evidence[0].value <= 40
        whole = advise(record(trial(0, 32), num_samples=32))
        assert "room for about" in rule(whole, "callback.headroom").message
        assert "has no more samples" in rule(whole, "callback.try").message

    @pytest.mark.parametrize(
        ("num_samples", "size", "tried"),
        [(4000, 32, 64), (600, 32, 56), (40, 4, None), (70, 8, None)],
    )
    def test_never_more_than_leaves_steps_enough(self, num_samples, size, tried):
        """It would contradict the finding of few steps, which would name a smaller one."""
        advice = advise(record(trial(0, size), num_samples=num_samples))
        finding = rule(advice, "callback.try")
        assert "room for about" in rule(advice, "callback.headroom").message
        if tried is None:
            assert finding.message == (
                "no larger size to try: an epoch would have fewer than 10 optimizer steps"
            )
        else:
            assert finding.evidence[0].value == tried
            assert num_samples // tried >= 10

    def test_nothing_to_try_where_the_loader_limits(self):
        advice = advise(record(trial(0, 32, input_wait_s=spread(0.08))))
        assert advice.verdict.limit == "input"
        finding = rule(advice, "callback.try")
        assert "would not make the steps more efficient" in finding.message
        assert "Nothing to try" in finding.remedy

    @pytest.mark.parametrize("operators", [99.0, 5.0])
    def test_a_slow_window_decides_nothing_on_a_cpu(self, operators):
        times = (OperatorTime(name="aten::mm", num_calls=3, self_s=0.3),)
        profile = Profile(num_steps=3, operators_pct=operators, input_wait_pct=0.5, operators=times)
        cpu = replace(CPU, capacity_bytes=16 * GIB)
        quiet = advise(record(trial(0, 32, profile=profile), device=cpu))
        assert quiet.verdict.limit == ("saturated" if operators > 50 else "host")
        doubt = f"{SLOW_WINDOW}6.0 times as long as the others"
        slow = advise(record(trial(0, 32, profile=profile, doubts=(doubt,)), device=cpu))
        assert slow.verdict.limit == "cannot tell"
        assert slow.verdict.larger_batch == "unknown"

    @pytest.mark.parametrize("operators", [99.0, 5.0])
    def test_cores_that_others_used_decide_nothing_on_a_cpu(self, operators):
        """An operator that waits for its core looks like one that computes, and Python does too."""
        times = (OperatorTime(name="aten::mm", num_calls=3, self_s=0.3),)
        profile = Profile(num_steps=3, operators_pct=operators, input_wait_pct=0.5, operators=times)
        cpu = replace(CPU, capacity_bytes=16 * GIB)
        cause = Cause(
            kind="processes",
            message="other programs used 1.9 of 2 cores (rustc 1.9)",
            cores=1.9,
            remedy="stop rustc, or run it at another hour",
        )
        advice = advise(record(trial(0, 32, profile=profile, causes=(cause,)), device=cpu))
        assert advice.verdict.limit == "cannot tell"
        assert advice.verdict.larger_batch == "unknown"
        finding = rule(advice, "callback.others")
        assert "while it trained, other programs used 1.9 of 2 cores" in finding.message
        assert finding.remedy == "Stop rustc, or run it at another hour."

    def test_two_sizes_are_compared(self):
        advice = advise(record(trial(0, 32), trial(1, 64, step_s=0.11)))
        assert advice.headline.startswith("Use batch size 64")
        assert "not in turn" in advice.reason

    def test_a_size_that_ran_out_of_memory_is_not_recommended(self):
        bad = trial(1, 32, outcome="out_of_memory", detail="no memory", step_s=0.1)
        advice = advise(record(trial(0, 32), bad, state="failed"))
        assert advice.recommended is None
        assert "out of memory" in advice.reason
        assert advice.headline.startswith("Batch size 32 ran out of memory; until then 320 samples")

    def test_a_size_that_ran_is_not_one_to_try(self):
        """The smaller one is recommended because the larger one gained too little."""
        advice = advise(record(trial(0, 32), trial(1, 64, step_s=0.2)))
        assert advice.recommended.batch_size == 32
        message = rule(advice, "callback.try").message
        assert "64" not in message or "ran too and gained too little" in message

    @pytest.mark.parametrize(
        ("low", "high", "part"),
        [(100.0, 300.0, "lies between 100 and 300"), (250.0, None, "is above 250 samples")],
    )
    def test_noise_scale(self, low, high, part):
        noise = NoiseScale(
            source="accumulation", small_batch=32, large_batch=128, num_measured=40,
            first_step=10, last_step=400, low=low, high=high,
        )  # fmt: skip
        finding = rule(advise(record(trial(0, 32), noise=noise)), "callback.noise_scale")
        assert part in finding.message
        assert "steps 10 to 400" in finding.message
        assert "Goyal" in finding.remedy
        assert finding.confidence == "estimate"

    def test_a_run_is_left_alone(self):
        steered = replace(record(trial(0, 32)), observed=None)
        assert advise(steered).headline.startswith("Keep batch size 32")
        assert rule(advise(steered), "callback.try") is None


class TestText:
    def text(self, watched, **options):
        options = {"width": 80, "color": False, "files": (), "next_command": "", **options}
        return render(build_watched(watched, advise(watched)), **options)

    def test_of_one_size(self):
        profile = Profile(num_steps=3, busy_pct=91.0, compute_pct=80.0, sm_efficiency_pct=70.0)
        text = self.text(record(trial(0, 32, profile=profile)))
        agrees("watched-80.txt", text)
        assert max(map(len, text.splitlines())) <= 80

    def test_of_a_schedule_that_memory_ended(self):
        """Times stay, each size has its line, and what is not known its reason."""
        tail = TailCheck(num_samples=8, outcome="ok", num_non_finite=None)
        refused = trial(2, 128, outcome="out_of_memory", detail="no memory", step_s=0.1)
        first = trial(0, 32, tail=tail)
        second = trial(1, 64, unavailable={"profile": "profile=False"})
        said = {"state": "failed", "stop_reason": "out of memory: none"}
        agrees("watched-schedule-80.txt", self.text(record(first, second, refused, **said)))

    def test_a_last_batch_of_one(self):
        text = " ".join(self.text(record(trial(0, 32), num_samples=1025)).split())
        assert "last batch 1 sample instead of 32" in text

    def test_times_stay_after_memory_was_refused_to_the_only_size(self):
        bad = trial(1, 32, outcome="out_of_memory", detail="no memory", step_s=0.1)
        watched = record(trial(0, 32), bad, state="failed", stop_reason="out of memory: none")
        text = " ".join(self.text(watched).split())
        assert "step 100 ms ±1% by the host's clock, 1% of it waiting for data" in text
        assert "peak 4.00 GiB of 16.00 GiB" in text

    def test_a_doubt_that_is_a_warning_is_said_once(self):
        doubt = f"{SLOW_WINDOW}6.0 times as long as the others; its shares are the window's"
        watched = record(trial(0, 32, doubts=(doubt,)), doubts=("another one",))
        warned = [finding for finding in advise(watched).findings if finding.message == doubt]
        text = " ".join(self.text(watched).split())
        assert text.count("took 6.0 times") == max(1, len(warned))
        assert "another one" in text

    def test_a_full_disk_is_no_busy_machine(self):
        doubt = "the record could not be written: no space left on device"
        watched = record(trial(0, 32), doubts=(doubt,))
        assert rule(advise(watched), "doubt").message == doubt
        assert "run again" not in self.text(watched)

    def test_several_ranks_in_ascii(self):
        text = self.text(record(trial(0, 32), world_size=4), width=140, encoding="ascii")
        assert "on rank 0 of 4; all numbers are this rank's" in text
        assert text.isascii()


class TestHtml:
    def test_everything_is_escaped(self):
        hostile = "<script>alert(1)</script>\x1b[31m"
        watched = record(
            trial(0, 32, doubts=(hostile,)), state="failed", stop_reason=hostile, doubts=(hostile,)
        )
        html = render_html(
            build_watched(watched, advise(watched)), files=[("record", "a<b>/record.json")]
        )
        assert "<script" not in html
        assert "\x1b" not in html
        assert "&lt;script&gt;" in html
        assert "a&lt;b&gt;/record.json" in html
        assert "Batch size 32 as it ran" in html

    def test_while_it_runs_and_before(self):
        watched = record(trial(0, 32), state="running", elapsed_s=61.0)
        html = render_html(build_watched(watched, advise(watched)), files=())
        assert "Running for 1 min 1 s" in html
        assert "500 optimizer steps" in html
        assert "no run was begun" in render_html(None, files=())
