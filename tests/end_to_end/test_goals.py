"""The goals: what is recommended follows from what was measured, and can be asked again later."""

import json

import msgspec
import pytest
from batchadvisor.advisor.choose.finalists import is_below, passed_over
from batchadvisor.advisor.choose.knee import fastest, uncompared
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT
from batchadvisor.records import RunRecord

from .driver import KEPT, SCRIPTS, line_of, run_well
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow


def size_of_the_goal(advice):
    """The size that the goal chose, also where the script keeps its own."""
    return advice.considered or advice.recommended.batch_size


class TestKnee:
    def test_the_bounds_are_kept(self, styled):
        result = styled("weighted_sampler")
        sizes = {trial.batch_size for trial in result.record.trials}
        assert max(sizes) == 256 or (max(sizes) < 256 and result.record.stop_reason == BUDGET_SPENT)
        assert min(sizes) < 16
        assert 16 in sizes

    def test_none_of_its_finalists_was_shown_to_be_better(self, styled):
        """A confirmed size lies within the tolerance of each size that took turns with it.

        How close it comes to the best of a sweep in fresh processes is shown by bench/sweep.py: no
        single run on a busy machine can.
        """
        result = styled("weighted_sampler")
        chosen, record = result.advice.recommended, result.record
        sizes = {trial.batch_size for trial in Measurements.of(record).confirmations}
        if result.advice.standing in KEPT:
            assert chosen.batch_size == record.discovery.native_batch_size == 16
            return
        if result.advice.sureness == "measured once":  # no time was left for a fresh process
            assert record.search_s > record.goal.budget_s / 3
        else:
            assert chosen.batch_size in sizes
        for other in sizes - {chosen.batch_size}:
            floor = 1 - record.goal.tolerance
            shown = is_below(Measurements.of(record), chosen.batch_size, other, floor)
            assert not shown or result.advice.sureness != "confirmed"
        # A smaller size than the script's own may cost the tolerance.
        least = 1 - (record.goal.tolerance if chosen.batch_size < 16 else 0)
        assert chosen.samples_per_s.high >= least * result.advice.native.samples_per_s.low

    def test_a_smaller_size_under_a_larger_tolerance(self, styled):
        result = styled("weighted_sampler")
        path = result.run_folder / "record.json"
        done = run_well("advise", "--json", "--tolerance", "95%", path, folder=result.folder)
        assert done.advice.goal.tolerance == 0.95
        smaller, size = (size_of_the_goal(advice) for advice in (done.advice, result.advice))
        assert smaller < size or (smaller == size and result.advice.standing in KEPT)
        assert done.left == []


def test_the_fastest_is_recommended(styled):
    """By the search, of sizes that were compared; or by the fresh process, which comes after.

    Whether the script then keeps its own size is decided by another comparison.
    """
    result = styled("explicit_iter")
    record, chosen = result.record, size_of_the_goal(result.advice)
    trials = [trial for trial in record.trials if trial.purpose == "search"]
    assert trials[0].batch_size == 24
    largest = max(trial.batch_size for trial in trials)
    assert largest == 96 or (largest < 96 and record.stop_reason == BUDGET_SPENT)
    # A size may be timed twice; the faster undisturbed trial speaks for it.
    measurements = Measurements.of(record)
    rates = {size: trial.samples_per_s for size, trial in measurements.searched.items()}
    best = fastest(measurements)
    for size in rates.keys() - uncompared(measurements):
        assert rates[best].median >= 0.97 * rates[size].low
    again = measurements.speeds.compare(chosen, best)
    as_fast = rates[chosen].median >= 0.97 * rates[best].median
    assert as_fast or (again is not None and again.median > 1)


def test_the_effective_batch_is_kept(styled):
    result = styled("accumulate_amp")
    sizes = {trial.batch_size for trial in result.record.trials if trial.purpose != "tail"}
    assert {64 % size for size in sizes} == {0}
    assert len(sizes) >= 3
    training, size = result.advice.training, result.advice.recommended.batch_size
    assert training.effective_before == training.effective_after == 64
    assert training.micro_batches * size == 64
    assert [(rate.before, rate.suggested) for rate in training.learning_rates] == [(1e-3, 1e-3)]
    if size != 16:
        assert f"accumulate over {training.micro_batches} micro-batch" in result.advice.change


class TestMemory:
    def test_the_largest_below_the_limit_less_the_margin(self, memory_run):
        """Each larger size that was tried was refused or took more than may be used, or ends its
        epoch badly; where none was, the memory is used as closely as it can be read."""
        assert memory_run.code == 0, memory_run
        assert memory_run.left == []
        record, advice = memory_run.record, memory_run.advice
        limit, size = 450 * 1024**2, advice.recommended.batch_size
        assert record.device.limit_bytes == record.device.capacity_bytes == limit
        assert record.goal.margin == 0.15
        target = limit * (1 - 0.15)
        assert advice.recommended.peak_bytes <= target
        assert advice.sureness == "confirmed"
        measurements = Measurements.of(record)
        clean_instead = passed_over(measurements) is not None
        over = {}
        for trial in record.trials:
            avoided = clean_instead and measurements.harmful(trial.batch_size)
            if trial.purpose != "tail" and trial.batch_size > size and not avoided:
                refused = trial.outcome == "out_of_memory" or trial.memory.peak_bytes > target
                over[trial.batch_size] = over.get(trial.batch_size, False) or refused
        assert all(over.values())
        if over:
            assert min(over) <= 1.6 * size
        elif not clean_instead:
            assert "used up" in record.stop_reason
            assert advice.recommended.peak_bytes >= 0.94 * target
        assert {trial.outcome for trial in record.trials} <= {"ok", "out_of_memory"}

    def test_refusals_are_real(self, tmp_path):
        """The kernel itself refuses; the run goes on below with a new process."""
        options = ("--no-profile", "--memory-limit", "450MiB", "--goal", "memory")
        options = ("--json", "-q", "-o", "out", "--budget", "60s", *options)
        script = SCRIPTS / "memory_hungry.py"
        done = run_well("run", *options, "--sizes", "8,200,400", script, folder=tmp_path)
        search = done.searched
        # Above a size that was refused nothing is tried.
        tried = [(trial.batch_size, trial.outcome) for trial in search]
        assert tried == [(8, "ok"), (200, "out_of_memory")]
        assert "allocate memory" in search[-1].detail
        assert done.advice.recommended.batch_size == 8
        (found,) = (finding for finding in done.advice.findings if "at 200" in finding.message)
        assert "out of memory" in found.message
        assert done.left == []
        # Where the memory goes is said of both, by steps on tensors without contents.
        explained = done.record.explained
        why = [(each.batch_size, each.why) for each in explained.sizes]
        assert why == [(8, "recommended"), (200, "out of memory")]
        small, large = (each.trial for each in explained.sizes)
        assert large.peak_bytes > 20 * small.peak_bytes
        line = line_of(script, "x = self.layers(")
        assert large.lines[0].name == f"scripts/memory_hungry.py:{line}"
        page = (done.run_folder / "memory.html").read_text()
        assert "Batch 200 ran out of memory" in page
        assert "Batch 200, out of memory" in page


class TestAdvise:
    @pytest.mark.parametrize("name", ["plain", "accumulate_amp", "weighted_sampler"])
    def test_the_same_answer(self, styled, name):
        result = styled(name)
        done = run_well("advise", "--json", result.run_folder, folder=result.folder)
        assert done.stderr == ""
        assert done.advice == result.advice
        again = msgspec.convert(done.answer["record"], RunRecord, str_keys=True)
        assert again == result.record

    def test_another_goal(self, styled, tmp_path):
        done = run("advise", "--json", "--goal", "memory", styled("plain").run_folder,
                   folder=tmp_path)  # fmt: skip
        assert (done.advice.goal.kind, done.advice.recommended.batch_size) == ("memory", 300)
        assert list(tmp_path.iterdir()) == []

    def test_a_newer_minor_version(self, styled, tmp_path):
        result = styled("plain")
        data = json.loads((result.run_folder / "record.json").read_text())
        data |= {"schema_version": "1.99", "colour": "blue"}
        (tmp_path / "record.json").write_text(json.dumps(data))
        done = run_well("advise", "--json", tmp_path, folder=tmp_path)
        assert done.advice.recommended == result.advice.recommended
