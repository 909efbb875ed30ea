"""`batchadvisor analyze` as a user meets it: good input, odd input, bad input."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.errors import UsageError
from batchadvisor.records import Analysis
from batchadvisor.session.analyze import analyze
from click.testing import CliRunner

from .faults import without_steps
from .traces import event, kernel, launch, rank_of, save, step, training


def run(*arguments):
    """(text, analysis) of the command line."""
    listed = [str(argument) for argument in arguments]
    shown = CliRunner().invoke(cli, ["analyze", *listed], catch_exceptions=False)
    data = CliRunner().invoke(cli, ["analyze", "--json", *listed], catch_exceptions=False)
    assert shown.exit_code == data.exit_code == 0
    return shown.output, msgspec.json.decode(data.output, type=Analysis)


def on_two_devices():
    other = [kernel(100.0 * n + 8, 20, n + 1, name="other", device=1) for n in range(3)]
    return [*training(), *other]


class TestOne:
    def test_text_and_json(self, tmp_path):
        path = save(tmp_path / "busy.json", training())
        text, analysis = run(path)
        (report,) = analysis.traces
        assert report.verdict.limit == "saturated"
        assert report.verdict.larger_batch == "does not help"
        assert report.profile.busy_pct == pytest.approx(100 * 270 / 299)
        assert text.startswith(
            "What limits the steps: saturated\n\nbusy\n  saturated: the GPU comp"
        )
        assert "Next: batchadvisor analyze --kernels 10 --steps " in text
        assert analysis.verdict is None
        assert "one trace alone" in analysis.unavailable["collectives"]

    @pytest.mark.parametrize("width", [40, 200])
    def test_steps_and_kernels(self, width, tmp_path, monkeypatch):
        monkeypatch.setenv("COLUMNS", str(width))
        path = tmp_path / "busy.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": training()}).encode()))
        text, _ = run("--steps", "--kernels", 1, path)
        longest = max(len(line) for line in text.splitlines() if not line.startswith("Next: "))
        assert 30 < longest <= width
        assert (longest > 100) == (width > 100)
        assert "Steps of busy" in text
        assert "Kernels of busy" in text
        assert f"Next: batchadvisor view {tmp_path}" in text

    def test_numbers_of_rows(self, tmp_path):
        events = [step(0, 0, 1000)]
        events += [kernel(10 * n, 5, n, name=f"kernel {n}") for n in range(20)]
        path = save(tmp_path / "many.json", events)
        assert len(analyze([path]).traces[0].profile.kernels) == 10
        assert len(analyze([path], num_kernels=3).traces[0].profile.kernels) == 3


class TestOdd:
    def test_without_gpu_events(self, tmp_path):
        events = [step(0, 0, 100), event("cpu_op", "aten::mm", 5, 90)]
        text, analysis = run("--kernels", 3, save(tmp_path / "cpu.json", events))
        (report,) = analysis.traces
        assert report.device is None
        assert report.profile.busy_pct is None
        assert "no GPU activity" in report.profile.unavailable["busy_pct"]
        assert "these are the CPU's shares" in text
        assert "CPU operators of cpu" in text

    def test_without_steps(self, tmp_path):
        events = without_steps(training())
        text, analysis = run("--steps", save(tmp_path / "t.json", events))
        assert analysis.traces[0].window_source == "GPU span"
        assert analysis.traces[0].verdict.confidence == "estimate"
        assert "no steps" in text
        assert "Steps of" not in text

    def test_without_steps_start_up_promises_nothing(self, tmp_path):
        """A GPU that waits for the host while a job starts is no reason for a larger batch.

        Profiled with activities=[CUDA], a wait for the loader looks like a late launch as well.
        """
        events = without_steps(training(kernel_us=10))
        text, analysis = run(save(tmp_path / "t.json", events))
        verdict = analysis.traces[0].verdict
        assert verdict.limit == "host"
        assert (verdict.larger_batch, verdict.gain_at_most) == ("unknown", None)
        assert "of the window the GPU waits" in verdict.message
        assert "or for the DataLoader" in verdict.message
        lines = text.splitlines()
        (place,) = (n for n, line in enumerate(lines) if line.startswith("  trace "))
        assert lines[place + 1][: lines[place].index("input") + 5].split()[-1] == "-"

    def test_where_the_time_went(self, tmp_path):
        text, analysis = run(save(tmp_path / "t.json", training()))
        (report,) = analysis.traces
        assert report.breakdown.compute_s == pytest.approx(90e-6)
        parts = [getattr(report.breakdown, field) for field in report.breakdown.__struct_fields__]
        assert sum(parts[:-1]) == pytest.approx(parts[-1])
        assert "a step, each moment counted once: computing 90 µs" in text
        assert [item.breakdown.compute_s for item in report.steps] == [pytest.approx(90e-6)] * 3

    def test_one_step(self, tmp_path):
        text, analysis = run(save(tmp_path / "t.json", training(num_steps=1)))
        assert len(analysis.traces[0].steps) == 1
        assert "the trace has one step" in text

    def test_each_of_two_devices_has_its_own_row_and_kernels(self, tmp_path):
        text, analysis = run(save(tmp_path / "t.json", on_two_devices()))
        assert [trace.device for trace in analysis.traces] == [0, 1]
        assert analysis.traces[0].profile.busy_pct > analysis.traces[1].profile.busy_pct
        names = [[row.name for row in trace.profile.kernels] for trace in analysis.traces]
        assert names == [["compute"], ["other"]]
        assert "t GPU 1" in text
        assert "2 GPUs worked in this trace" in text

    def test_grids_that_are_not_known_allow_no_bound(self, tmp_path):
        events = training()
        for entry in events:
            entry["args"].pop("blocks per SM", None)
        verdict = analyze([save(tmp_path / "t.json", events)]).traces[0].verdict
        assert verdict.limit == "saturated"
        assert "the trace does not tell" in verdict.message
        assert (verdict.larger_batch, verdict.gain_at_most) == ("unknown", None)

    def test_a_name_that_is_no_utf8(self, tmp_path):
        path = tmp_path / os.fsdecode(b"bad\xff.json")
        try:
            save(path, training())
        except OSError:
            pytest.skip("the file system takes no such name")
        text, analysis = run(path)
        assert "bad" in text
        assert analysis.traces[0].trace.endswith("bad\\udcff.json")

    def test_a_rank_beyond_all_numbers(self, tmp_path):
        path = save(
            tmp_path / "t.json", {**rank_of(0, [100]), "distributedInfo": {"rank": 1 << 80}}
        )
        _, analysis = run(path)
        assert analysis.traces[0].rank is None

    @pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch"])
    def test_graphs(self, name, tmp_path):
        """One launch, many kernels: work waits in the graph, not for the host."""
        events = []
        for number in range(3):
            begin = 1000.0 * number
            events += [step(number, begin, 999), launch(begin, number + 1, 20, name)]
            events += [kernel(begin + 25 + 24 * n, 22, number + 1) for n in range(40)]
        text, analysis = run(save(tmp_path / "t.json", events))
        profile = analysis.traces[0].profile
        assert profile.kernels_per_launch == 40
        assert profile.idle.launch_latency_pct > profile.idle.host_pct
        assert analysis.traces[0].verdict.limit == "saturated"
        assert "120 kernels came from 3 launches: graphs" in text

    def test_graphs_are_not_recommended_where_they_are(self, tmp_path):
        events = []
        for number in range(3):
            begin = 1000.0 * number
            events += [step(number, begin, 999), launch(begin + 600, number + 1, 20)]
            events += [kernel(begin + 625 + 9 * n, 9, number + 1) for n in range(40)]
        remedy = analyze([save(tmp_path / "t.json", events)]).traces[0].verdict.remedy
        assert "more of the step inside CUDA graphs" in remedy
        assert "reduce-overhead" not in remedy


class TestSeveral:
    def test_a_folder_is_searched(self, tmp_path):
        (tmp_path / "deep").mkdir()
        save(tmp_path / "deep/one.json", training())
        save(tmp_path / "two.json", training(kernel_us=10))
        (tmp_path / "record.json").write_text("{}")  # a run's own, beside its traces
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / ".draft-x.json").write_text("half")
        text, analysis = run(tmp_path)
        assert [trace.verdict.limit for trace in analysis.traces] == ["saturated", "host"]
        assert list(analysis.skipped) == [str(tmp_path / "config.json")]
        assert "Left out, no traces: config.json." in text
        assert "does not state its rank" in text

    def test_the_same_file_twice_is_read_once(self, tmp_path):
        path = save(tmp_path / "t.json", training())
        assert len(analyze([path, path, tmp_path]).traces) == 1

    def test_ranks_of_one_job(self, tmp_path):
        for rank, duration in enumerate([4000, 4000, 50, 4000]):
            save(tmp_path / f"rank{rank}.json", rank_of(rank, [duration], world_size=4))
        text, analysis = run(tmp_path)
        assert analysis.collectives.straggler == 2
        assert analysis.verdict.limit == "communication"
        assert "Rank 2 is the slow one" in analysis.verdict.message
        assert "make the ranks equally fast" in analysis.verdict.remedy
        assert "4 ranks of one job" in text
        assert "Rank 2 causes 100% of the waiting." in text

    def test_equal_ranks_transfer(self, tmp_path):
        for rank in range(2):
            save(tmp_path / f"rank{rank}.json", rank_of(rank, [4000], world_size=8))
        text, analysis = run(tmp_path)
        assert analysis.collectives.straggler is None
        assert analysis.verdict.limit == "communication"
        assert "bucket" in analysis.verdict.remedy
        assert "2 of 8 ranks, so that the transfer is an upper bound" in text

    def test_ranks_with_little_communication(self, tmp_path):
        for rank in range(3):
            document = {"traceEvents": training(kernel_us=10 if rank else 95)}
            document["distributedInfo"] = {"rank": rank, "world_size": 3}
            save(tmp_path / f"rank{rank}.json", document)
        analysis = analyze([tmp_path])
        assert analysis.verdict.limit == "host"
        assert "2 of 3 ranks" in analysis.verdict.message
        assert "no collective" in analysis.unavailable["collectives"]

    def test_gpus_of_a_rank_are_not_counted_as_ranks(self, tmp_path):
        for rank in range(2):
            own = {"rank": rank, "world_size": 2}
            document = {"traceEvents": on_two_devices(), "distributedInfo": own}
            save(tmp_path / f"rank{rank}.json", document)
        analysis = analyze([tmp_path])
        assert "2 of 4 GPUs" in analysis.verdict.message

    @pytest.mark.parametrize(
        ("first", "second", "reason"),
        [((0, 2), (0, 2), "same rank"), ((0, 2), (1, 4), "different numbers of ranks")],
    )
    def test_no_common_job(self, first, second, reason, tmp_path):
        for name, (rank, size) in {"a": first, "b": second}.items():
            save(tmp_path / f"{name}.json", rank_of(rank, [100], world_size=size))
        analysis = analyze([tmp_path])
        assert analysis.verdict is None
        assert reason in analysis.unavailable["collectives"]


class TestWrongUse:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b"  \n", "is empty"),
            (b"hello", "is not a profiler trace"),
            (b'{"a": 1}', "no list `traceEvents`"),
            (b'{"traceEvents": []}', "no step, no GPU work and no operator"),
            (b'{"traceEvents": [{"ph": "M", "name": "x"}]}', "no step, no GPU work"),
            (b"\x1f\x8bnothing", "cannot be read"),
        ],
    )
    def test_a_file_that_is_no_trace(self, content, message, tmp_path):
        path = tmp_path / "bad.json"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message) as caught:
            analyze([path])
        assert caught.value.exit_code == 2
        assert caught.value.remedy

    def test_one_bad_file_among_good_ones(self, tmp_path):
        good = save(tmp_path / "good.json", training())
        bad = tmp_path / "bad.txt"
        bad.write_text("no")
        with pytest.raises(UsageError, match=r"bad\.txt"):
            analyze([good, bad])

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("", r"no trace of torch\.profiler is in there"),
            ("nowhere.json", r"nowhere\.json"),
            ("x" * 300 + ".json", "cannot be read"),
        ],
        ids=["a folder without any", "nothing there", "a name too long"],
    )
    def test_no_trace(self, name, message, tmp_path):
        (tmp_path / "record.json").write_text("{}")
        with pytest.raises(UsageError, match=message):
            analyze([tmp_path / name])

    def test_a_folder_that_may_not_be_entered(self, tmp_path, monkeypatch):
        def refused(self):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "is_dir", refused)
        monkeypatch.setattr(Path, "stat", lambda self, **_: refused(self))
        with pytest.raises(UsageError, match="Permission denied"):
            analyze([tmp_path / "t.json"])

    def test_no_argument(self):
        done = CliRunner().invoke(cli, ["analyze"])
        assert done.exit_code == 2
        assert "TRACE" in done.output
