"""The report object says what the record says; its charts hold the record's numbers."""

import re
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import (
    Distribution,
    FileTouched,
    Finding,
    Goal,
    Observed,
    RankInfo,
    RankTrial,
    Scaling,
    ScalingPoint,
    Tail,
)
from batchadvisor.reports.builder.charts.timelines import TIMELINE_POINTS, overlay, timelines
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sections.distribution import epoch_rows
from batchadvisor.reports.builder.sections.identity import identity
from batchadvisor.reports.builder.sections.tail import rank_blocks
from batchadvisor.session.recording.store import read_record
from batchadvisor.units import GIB
from msgspec.structs import replace

from ..on_paper import discovery_of, exactly, loader_of, record_of
from . import builders, samples

CPU = Path(__file__).parents[1] / "data/records/char_gpt_cpu.json"
EVERY = [samples.cpu, samples.gpu, samples.nothing_fits, samples.interrupted]


def test_a_loader_whose_size_is_not_known():
    loader = loader_of(batch_size=None, num_workers=1)
    facts = dict(identity(record_of(discovery=discovery_of(loader=loader))))
    assert "batch_size=?, 15625 samples, RandomSampler, 1 worker," in facts["loader"]


def test_what_is_said_of_many_sizes_is_not_cut():
    record, advice = samples.cpu()
    said = f"{'; '.join(f'{size}: below 0.01%' for size in range(64, 102))}; 102: 97%"
    finding = Finding(rule="memory.lengths", severity="warning", message=said, remedy=said)
    report = build_report(record, replace(advice, reason=said, findings=(finding,)))
    assert report.reason == report.findings[0].message == report.findings[0].remedy == said


def test_the_interval_of_an_epoch_is_not_rounded_to_nothing():
    point = ScalingPoint(world_size=2, epoch_s=exactly(100.0, 0.003), speedup=exactly(1.9, 0.003))
    times = dict.fromkeys(("compute_s", "step_s", "sync_s"), exactly(0.1))
    scaling = Scaling(
        batch_size=8, world_size=2, verdict="pays", message="", points=(point,), **times
    )
    (row,) = epoch_rows(scaling)
    assert row.cells[1] == "1 min 40 s ±0.3%"


def built(sample, **rest):
    return build_report(*sample, **rest)


def chart(report, key):
    return next(chart for chart in report.devices[0].charts if chart.key == key)


def points(series, x):
    return {at: value for at, value in zip(x, series.values, strict=True) if value is not None}


class TestCharts:
    def test_the_band_is_the_tolerance_below_the_fastest(self):
        record, advice = samples.gpu()
        band = chart(built((record, advice)), "throughput").bands[0]
        best = advice.fastest.samples_per_s.median
        assert (band.low, band.high) == pytest.approx((best * 0.95, best))
        other = replace(advice, goal=Goal(kind="throughput"))
        assert chart(built((record, other)), "throughput").bands == ()

    def test_a_limit_far_above_the_peaks_is_a_number_and_not_a_flat_curve(self):
        record = read_record(CPU)
        drawn = chart(built((record, advise(record))), "memory")
        assert not [mark for mark in drawn.marks if mark.axis == "y"]
        assert drawn.notes[0].startswith("The limit, 23.09 GiB, lies above this axis, ")
        assert "7602 fit (estimate)" in drawn.notes[0]
        sizes = [row.batch_size for row in built((record, advise(record))).devices[0].sizes]
        assert drawn.x[-1] <= 2 * max(sizes)


def test_evidence_does_not_mix_fractions_and_percents():
    """Whatever has a unit of share or percent is shown in percent, with its threshold."""
    record = read_record(CPU)
    sentences = [built((record, advise(record))).limit.evidence]
    report = built(samples.gpu())
    sentences += [report.limit.evidence, *(finding.evidence for finding in report.findings)]
    assert "fixed share of the step 14.4% (threshold 30%)" in sentences[0]
    assert "marginal gain 7.1% (threshold 10%)" in sentences[0]
    assert "device busy 93.1% (threshold 70%)" in sentences[1]
    for part in "; ".join(sentences).split("; "):
        share = any(word in part for word in ("share", "busy", "gain"))
        assert not share or re.search(r" [\d.]+%( \(threshold [\d.]+%\))?$", part), part


class TestTimelines:
    ROWS = tuple({"time_s": 5 + at / 10, "power_w": float(at)} for at in range(1000))

    def test_samples_are_averaged_in_groups(self):
        (timeline,) = timelines(self.ROWS)
        assert timeline.key == "timeline_power_w"
        assert len(timeline.x) <= TIMELINE_POINTS
        assert timeline.series[0].values[0] == pytest.approx(1.0)  # mean of 0, 1, 2
        assert timeline.notes == ("Each point is the mean of 3 samples.",)

    def test_several_devices_share_the_points(self):
        (timeline,) = timelines(self.ROWS, num_devices=8)
        assert len(timeline.x) <= TIMELINE_POINTS / 8

    def test_it_says_which_size_was_being_measured(self):
        rows = [{"time_s": 10.0 + at, "trial": at // 4, "power_w": 1.0 * at} for at in range(12)]
        (timeline,) = timelines(rows, sizes={0: 8, 1: 16, 2: 16})
        marks = [(mark.value, mark.label, mark.kind) for mark in timeline.marks]
        assert marks == [(0.0, "8", "phase"), (4.0, "16", "phase")]
        assert timelines(rows)[0].marks == ()

    def test_without_samples_there_is_none(self):
        assert timelines([]) == ()
        assert timelines([{"step_s": 1.0}, {"time_s": "soon"}]) == ()


class TestSeveralDevices:
    def report(self):
        record, advice = samples.gpu()
        twice = [("GPU 0", record, advice, ()), ("GPU 1", record, advice, ())]
        return build_report(record, advice, devices=twice)

    def test_each_has_a_section_and_all_share_charts(self):
        report = self.report()
        assert [device.name for device in report.devices] == ["GPU 0", "GPU 1"]
        assert {chart.key for chart in report.overview} == {
            "all_throughput", "all_memory", "all_shares", "all_energy"
        }  # fmt: skip
        first = report.overview[0]
        assert [line.label for line in first.series] == ["GPU 0", "GPU 1"]
        assert first.series[0].values == first.series[1].values

    def test_sizes_of_one_alone_are_empty_for_the_other(self):
        first, two = (chart(built(sample()), "throughput") for sample in (samples.cpu, samples.gpu))
        both = overlay("both", [("a", first), ("b", two)])
        at = both.x.index(4.0)
        assert both.series[0].values[at] is not None
        assert both.series[1].values[at] is None


class TestTexts:
    def test_control_characters_never_get_into_the_report(self):
        record, advice = samples.cpu()
        evil = "a\x1b[31m\x00\u202eb\r\nc"
        record = replace(
            record, files=(FileTouched(path=evil, action="write"),), command=("x", evil)
        )
        finding = Finding(rule="r", severity="error", message=evil, remedy=evil)
        advice = replace(advice, findings=(finding,), headline=evil)
        report = built((record, advice))
        shown = msgspec.json.encode(replace(report, advice=samples.cpu()[1]))
        text = shown.decode()
        assert "\\u001b" not in text
        assert "\u202e" not in text
        assert report.headline == "a\\x00\\u202eb c"

    def test_parameters_that_nobody_saw_are_not_none_at_all(self):
        record, advice = samples.cpu()
        discovery = replace(
            record.discovery, num_parameters=None, unavailable={"num_parameters": "no model"}
        )
        record = replace(record, discovery=discovery)
        rows = {fact.label: fact.text for fact in build_report(record, advice).identity}
        assert rows["parameters"] == "unavailable: no model"


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_numbers_of_sizes_are_those_of_the_record(sample):
    record, advice = sample()
    for size in built((record, advice)).devices[0].sizes:
        trials = [trial for trial in record.trials if trial.batch_size == size.batch_size]
        assert size.outcome in {trial.outcome for trial in trials}
        if size.peak_bytes is not None:
            assert size.peak_bytes in {trial.memory.peak_bytes for trial in trials if trial.memory}
        if size.breakdown_pct:
            assert sum(size.breakdown_pct.values()) == pytest.approx(100)


class TestTailBlocks:
    def tail(self, **changes):
        values = {
            "num_samples": 100, "batch_size": 8, "drop_last": False, "steps_per_epoch": 7,
            "last_batch": 4, "dropped": 0, "weight": 4.0, "num_ranks": 2, "full": (8, 8),
            "last": (4, 0), "batches": (7, 6),
        }  # fmt: skip
        return Tail(**{**values, **changes})

    def test_ranks_stand_below_each_other_step_by_step(self):
        first, second = rank_blocks(self.tail())
        assert [block.count for block in first.blocks] == [block.count for block in second.blocks]
        assert (first.blocks[-1].kind, first.blocks[-1].samples) == ("short", 4)
        assert second.blocks[-1].kind == "empty"
        assert sum(block.samples * block.count for block in first.blocks) == 6 * 8 + 4
        assert sum(block.samples * block.count for block in second.blocks) == 6 * 8

    def test_an_even_end_is_full(self):
        ranks = rank_blocks(self.tail(last=(8, 8), batches=(7, 7)))
        assert {block.kind for rank in ranks for block in rank.blocks} == {"full"}
        assert {sum(block.count for block in rank.blocks) for rank in ranks} == {7}

    def test_no_more_rows_than_can_be_read(self):
        tail = self.tail(num_ranks=64, full=(8,) * 64, last=(4,) * 64, batches=(7,) * 64)
        assert len(rank_blocks(tail)) == 16

    def test_without_short_batches_dropped_samples_are_drawn(self):
        tail = self.tail(num_ranks=1, full=(), last=(), batches=(), last_batch=0, dropped=4)
        (rank,) = rank_blocks(tail)
        assert rank.blocks[-1].kind == "dropped"


def test_a_watched_training_has_nothing_recommended():
    record, advice = samples.cpu()
    seen = Observed(framework="plain", num_steps=10, num_micro_batches=10)
    report = built((replace(record, observed=seen), advice))
    assert "A callback watched" in report.notices[0]
    assert report.watched[0].label == "seen"
    marks = {mark for row in report.devices[0].table.rows for mark in row.marks}
    assert marks == {"yours"}
    assert all(not chart.marks for chart in report.devices[0].charts if chart.key == "throughput")


class TestRanks:
    def sample(self):
        record, advice = samples.cpu()

        def of_rank(rank, trial):
            step_s = builders.spread(trial.step_s.median * (1 + rank))
            peak_bytes = trial.memory.peak_bytes * (1 + rank)
            return RankTrial(rank=rank, outcome="ok", step_s=step_s, peak_bytes=peak_bytes)

        trials = tuple(
            replace(trial, ranks=(of_rank(0, trial), of_rank(1, trial))) for trial in record.trials
        )
        ranks = tuple(
            RankInfo(
                rank=rank, local_rank=rank, host="h", device="cpu", device_name="<b>",
                capacity_bytes=GIB,
            )
            for rank in range(2)
        )  # fmt: skip
        job = Distribution(world_size=2, launcher="torchrun", ranks=ranks)
        return replace(record, trials=trials, distribution=job), advice

    def test_each_rank_has_a_line_and_a_row(self):
        report = built(self.sample())
        step, peak = report.overview
        assert (step.key, peak.key) == ("rank_step", "rank_peak")
        first, second = (points(line, step.x) for line in step.series)
        assert second[128] == pytest.approx(2 * first[128], rel=1e-4)
        (table,) = report.tables
        assert [row.cells[0] for row in table.rows] == ["0", "1"]
        assert table.rows[1].cells[5] == "1.02 GiB"
        labels = {fact.label: fact.text for fact in report.distribution}
        assert labels["ranks"].startswith("2 on one host (torchrun)")
        assert labels["Tcomp, Tsync"].startswith("unavailable")
