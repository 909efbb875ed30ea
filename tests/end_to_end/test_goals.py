"""The goals: what is recommended follows from what was measured, and can be asked again later."""

import json
import sys
from subprocess import run as run_process

import msgspec
import pytest
from batchadvisor.advisor.confirm import passed_over, ratio_to
from batchadvisor.advisor.facts import confirmations, searched
from batchadvisor.advisor.tail import harmful
from batchadvisor.records import Advice, RunRecord

from .driver import SCRIPTS, run

pytestmark = pytest.mark.slow


MIB = 1024**2


class TestKnee:
    def test_the_bounds_are_kept(self, styled):
        result = styled("weighted_sampler")
        sizes = {one.batch_size for one in result.record.trials}
        assert result.record.goal.max_batch == max(sizes) == 256
        assert min(sizes) < 16
        assert 16 in sizes

    def test_it_is_close_to_the_best(self, styled):
        """It loses little against each size of its own confirmation, measured in turn with it."""
        result = styled("weighted_sampler")
        chosen, record = result.advice.recommended, result.record
        sizes = {one.batch_size for one in confirmations(record)}
        assert chosen.batch_size in sizes
        for other in sizes - {chosen.batch_size}:
            middle, _, _ = ratio_to(record, chosen.batch_size, other)
            assert middle >= 0.7
        assert chosen.samples_per_s.median >= result.advice.native.samples_per_s.median

    def test_a_smaller_size_under_a_larger_tolerance(self, styled):
        result = styled("weighted_sampler")
        path = result.run_folder / "record.json"
        done = run("advise", "--json", "--tolerance", "95%", path, folder=result.folder)
        assert done.code == 0, done
        assert done.advice.goal.tolerance == 0.95
        assert done.advice.recommended.batch_size < result.advice.recommended.batch_size
        assert done.left == []


class TestThroughput:
    def test_the_fastest_is_recommended(self, styled):
        result = styled("explicit_iter")
        trials = [one for one in result.record.trials if one.purpose == "search"]
        assert trials[0].batch_size == 24
        assert max(one.batch_size for one in trials) == 96
        # A size may be timed twice; the faster undisturbed trial speaks for it.
        rates = {size: one.samples_per_s.median for size, one in searched(result.record).items()}
        assert rates[result.advice.recommended.batch_size] >= 0.97 * max(rates.values())


class TestKeepEffectiveBatch:
    def test_sizes_divide_the_effective_batch(self, styled):
        result = styled("accumulate_amp")
        search = [one for one in result.record.trials if one.purpose != "tail"]
        assert {64 % one.batch_size for one in search} == {0}
        assert len({one.batch_size for one in search}) >= 3

    def test_the_effective_batch_stays(self, styled):
        advice = styled("accumulate_amp").advice
        training = advice.training
        assert training.effective_before == training.effective_after == 64
        assert training.micro_batches * advice.recommended.batch_size == 64
        assert [(one.before, one.suggested) for one in training.learning_rates] == [(1e-3, 1e-3)]
        if advice.recommended.batch_size != 16:
            micro = training.micro_batches
            assert f"accumulate over {micro} micro-batch" in advice.change


class TestMemory:
    LIMIT = 450 * MIB
    MARGIN = 0.15

    def test_it_stays_below_the_limit_less_the_margin(self, memory_run):
        assert memory_run.code == 0, memory_run
        assert memory_run.left == []
        record, advice = memory_run.record, memory_run.advice
        assert record.goal.margin == self.MARGIN
        assert record.device.limit_bytes == record.device.capacity_bytes == self.LIMIT
        assert advice.recommended.peak_bytes <= self.LIMIT * (1 - self.MARGIN)
        assert advice.sureness == "confirmed"

    def test_it_is_the_largest(self, memory_run):
        """Each larger size that was tried was refused or took more than may be used, or ends its
        epoch badly; where none was, the memory is used as closely as it can be read."""
        record, size = memory_run.record, memory_run.advice.recommended.batch_size
        target = self.LIMIT * (1 - self.MARGIN)
        larger = {}
        for one in record.trials:
            avoided = passed_over(record) is not None and harmful(record, one.batch_size)
            if one.purpose != "tail" and one.batch_size > size and not avoided:
                over = one.outcome == "out_of_memory" or one.memory.peak_bytes > target
                larger[one.batch_size] = larger.get(one.batch_size, False) or over
        assert all(larger.values())
        if larger:
            assert min(larger) <= 1.6 * size
        elif passed_over(record) is None:
            assert "used up" in record.stop_reason
            assert memory_run.advice.recommended.peak_bytes >= 0.94 * target
        assert {one.outcome for one in record.trials} <= {"ok", "out_of_memory"}

    def test_refusals_are_real(self, tmp_path):
        """The kernel itself refuses; the run goes on below with a new process."""
        options = ("--no-profile", "--memory-limit", "450MiB", "--goal", "memory")
        options = ("--json", "-q", "-o", "out", *options)
        script = SCRIPTS / "memory_hungry.py"
        done = run("run", *options, "--sizes", "8,200,400", script, folder=tmp_path)
        assert done.code == 0, done
        search = [one for one in done.record.trials if one.purpose == "search"]
        # Above a size that was refused nothing is tried.
        assert [(one.batch_size, one.outcome) for one in search] == [
            (8, "ok"),
            (200, "out_of_memory"),
        ]
        assert "allocate memory" in search[-1].detail
        assert done.advice.recommended.batch_size == 8
        (found,) = (one for one in done.advice.findings if "at 200" in one.message)
        assert "out of memory" in found.message
        assert done.left == []


BLOCKED = """
import sys
for name in ("torch", "numpy", "tensorboard", "torch_tb_profiler"):
    sys.modules[name] = None
from batchadvisor.cli import main
main()
"""


class TestAdvise:
    def advise(self, folder, *arguments):
        command = [sys.executable, "-c", BLOCKED, "advise", *map(str, arguments)]
        return run_process(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
        )

    @pytest.mark.parametrize("name", ["plain", "accumulate_amp", "weighted_sampler"])
    def test_the_same_answer_without_torch(self, styled, name):
        result = styled(name)
        done = self.advise(result.folder, "--json", result.run_folder)
        assert done.returncode == 0, done
        assert done.stderr == ""
        again = json.loads(done.stdout)
        assert msgspec.convert(again["advice"], Advice) == result.advice
        assert msgspec.convert(again["record"], RunRecord) == result.record

    def test_another_goal(self, styled, tmp_path):
        result = styled("plain")
        done = self.advise(tmp_path, "--json", "--goal", "memory", result.run_folder)
        advice = msgspec.convert(json.loads(done.stdout)["advice"], Advice)
        assert advice.goal.kind == "memory"
        assert advice.recommended.batch_size == 300
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("", "is not a record"),
            ("{", "is not a record"),
            ('{"schema_version": "1.0"}', "is not a record"),
            ('{"schema_version": "9.0", "trials": 5}', "has schema 9.0"),
            ("\0\1", "is not a record"),
        ],
    )
    def test_what_is_no_record(self, tmp_path, text, part):
        (tmp_path / "record.json").write_text(text)
        done = run("advise", "record.json", folder=tmp_path)
        done.assert_refused()
        assert part in done.error

    def test_what_is_not_there(self, tmp_path):
        done = run("advise", "nothere", folder=tmp_path)
        done.assert_refused()
        assert "nothere" in done.error

    def test_a_newer_minor_version(self, styled, tmp_path):
        result = styled("plain")
        data = json.loads((result.run_folder / "record.json").read_text())
        data |= {"schema_version": "1.99", "colour": "blue"}
        (tmp_path / "record.json").write_text(json.dumps(data))
        done = run("advise", "--json", tmp_path, folder=tmp_path)
        assert done.code == 0, done
        assert done.advice.recommended == result.advice.recommended
