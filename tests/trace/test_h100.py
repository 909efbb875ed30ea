"""What traces say of a real GPU, beside what its driver counted of the same work."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.limits import losses_of
from batchadvisor.advisor.measured.speeds import OF_A_CPU, OF_A_GPU, wander_of
from batchadvisor.probes.nvml.windows import GPM_SHORTEST_S
from batchadvisor.probes.trace.as_timed import as_timed
from batchadvisor.probes.trace.summary import summarise
from batchadvisor.records import RunRecord, Spread
from batchadvisor.reports.builder.run import build_report
from batchadvisor.session.recording.store import read_record

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data" / "h100"
PROBES = TESTS.parent / "bench/results/gpu-probes_nvidia-h100-80gb-hbm3_2026-11-26.json"
REGRET = TESTS.parent / "bench/results/regret_nvidia-h100-80gb-hbm3_2026-11-26.json"


def counted():
    """GPM's values of the probe of occupancy, by work."""
    findings = json.loads(PROBES.read_text())["findings"]
    return next(each["numbers"]["works"] for each in findings if each["probe"] == "occupancy")


def record(name, folder):
    path = folder / "record.json"
    path.write_bytes(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return read_record(folder)


def spread(low, median, high):
    return Spread(median=median, low=low, high=high, num_samples=10, confidence=0.9)


def trial_of(run: RunRecord, size):
    return next(trial for trial in run.trials if trial.batch_size == size)


@pytest.mark.parametrize("name", ["matrices", "elementwise", "tiny"])
def test_what_a_trace_estimates_is_not_far_above_what_was_counted(name):
    """An estimate from launches takes each multiprocessor for full to the end of a kernel."""
    profile, truth = summarise(DATA / f"{name}.pt.trace.json.gz", name), counted()[name]
    occupancy = profile.occupancy_pct * profile.kernel_pct / 100
    assert -0.1 <= occupancy - truth["gpm_sm_occupancy_pct"] <= 20
    assert -0.1 <= profile.sm_efficiency_pct - truth["gpm_sm_active_pct"] <= 5


def test_a_model_s_occupancy(tmp_path):
    """Six sizes of a GPT: estimated and counted occupancy while the GPU works."""
    trials = [
        each for each in record("char_gpt", tmp_path).trials if each.profile and each.counters
    ]
    for trial in trials:
        truth = 100 * trial.counters.sm_occupancy_pct / trial.counters.sm_active_pct
        assert trial.profile.occupancy_pct == pytest.approx(truth, abs=10)
    assert len({trial.batch_size for trial in trials}) == 6


class TestProfilingSlowsTheHost:
    """Compiled steps of 21 ms took 29 ms while they were profiled."""

    @pytest.fixture
    def trial(self, tmp_path):
        return trial_of(record("nanogpt", tmp_path), 256)

    @pytest.fixture
    def profiled(self):
        return summarise(DATA / "nanogpt_256.pt.trace.json.gz", "a")

    def test_the_gpu_is_busier_than_its_trace(self, trial, profiled):
        timed = as_timed(profiled, trial.step_s)
        assert any(kernel.name.startswith("triton_") for kernel in profiled.kernels)
        assert profiled.step_s == pytest.approx(0.0293, rel=0.01)
        assert profiled.busy_pct == pytest.approx(63, abs=1)
        assert profiled.busy_pct < trial.counters.sm_active_pct < timed.busy_pct
        assert timed.busy_pct == pytest.approx(86, abs=1)
        idle = timed.idle
        assert timed.busy_pct + idle.total_pct == pytest.approx(100)
        total, *parts, _drained = (getattr(idle, field) for field in idle.__struct_fields__)
        assert sum(parts) == pytest.approx(total)

    def test_the_host_is_not_blamed_for_the_profiler_s_time(self, trial, profiled):
        assert losses_of(profiled).host > 0.3
        assert losses_of(as_timed(profiled, trial.step_s)).host < 0.15

    def test_work_never_exceeds_the_step(self, profiled):
        timed = as_timed(profiled, spread(0.01, 0.01, 0.01))
        assert timed.busy_pct == pytest.approx(100)
        assert timed.compute_pct <= 100
        assert timed.idle.total_pct == pytest.approx(0)

    @pytest.mark.parametrize(
        "step_s",
        [None, spread(0.028, 0.029, 0.030), spread(0.01, 0.02, 0.03)],
        ids=["untimed", "as long", "unsteady"],
    )
    def test_nothing_is_changed_without_need(self, profiled, step_s):
        assert as_timed(profiled, step_s) == profiled

    def test_a_cpu_s_profile(self, profiled, trial):
        bare = msgspec.structs.replace(profiled, busy_pct=None, idle=None)
        assert as_timed(bare, trial.step_s) == bare


def test_a_loader_that_is_too_slow_is_blamed(tmp_path):
    """Four workers make 1,600 images a second, of which the GPU could take 4,500."""
    run = record("imagenet", tmp_path)
    assert trial_of(run, 256).profile.idle.input_pct > 50
    advice = advise(run)
    assert advice.recommended.batch_size == 256
    assert (advice.verdict.limit, advice.verdict.larger_batch) == ("input", "does not help")


def test_a_page_says_what_every_column_means(tmp_path):
    """A GPU's counters fill more columns than any other machine's."""
    run = record("char_gpt", tmp_path)
    (device,) = build_report(run, advise(run)).devices
    (legend,) = [note for note in device.table.notes if note.startswith("±")]
    assert "by the driver's counters" in legend
    assert legend.endswith("padding, if any, included.")


def test_a_gpu_that_waits_for_its_host_is_as_unsteady_as_that(tmp_path):
    """32 samples were read twice in one process: 1,720 and 2,400 a second."""
    run = record("char_gpt", tmp_path)
    rates = [trial.samples_per_s.median for trial in run.trials if trial.batch_size == 32]
    assert max(rates) > 1.3 * min(rates)
    assert wander_of(run.device, run.trials) == OF_A_CPU
    assert wander_of(run.device, ()) == OF_A_GPU
    against = advise(run).against_own
    assert against.high > 1.3 * against.low


class TestGraphs:
    """A step that is one launch of a captured graph of 68 kernels, replayed."""

    def test_its_kernels_are_all_there(self):
        profile = summarise(DATA / "graphs.pt.trace.json.gz", "a")
        assert profile.num_steps == 3
        assert profile.kernels_per_launch == 68
        assert profile.busy_pct == pytest.approx(88, abs=0.5)  # 97 % of a step without profiler
        assert profile.occupancy_pct > 99

    def test_a_short_window_of_the_driver_s_counters_is_false(self, tmp_path):
        """Which is why none below GPM_SHORTEST_S is taken."""
        counters = record("graphs", tmp_path).trials[0].counters
        assert counters.window_s < GPM_SHORTEST_S
        assert counters.sm_active_pct < 25


class TestWorkers:
    """A small CNN with 4 workers, from 16 samples on."""

    def test_the_size_is_that_of_the_sweep(self, tmp_path):
        run = record("cnn", tmp_path)
        measured = json.loads(REGRET.read_text())["scripts"]["cnn, 4 workers, GPU"]["passes"]
        best = max(measured[0]["rates"], key=lambda size: measured[0]["rates"][size])
        advice = advise(run)
        assert advice.recommended.batch_size == int(best) == 4096
        assert advice.against_own.low > 30

    def test_the_step_copies_and_launches(self):
        losses = losses_of(summarise(DATA / "cnn_1024.pt.trace.json.gz", "a"))
        assert losses.host == pytest.approx(0.39, abs=0.01)
        assert losses.copies == pytest.approx(0.19, abs=0.01)
