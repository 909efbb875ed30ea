"""The probes of `scripts/gpu-check`: their arithmetic on planted truths, and what they say here."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PROBES = ROOT / "scripts/gpu_probes"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def call(script, *arguments):
    paths = [str(PROBES), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def judged(load, finding):
    """What a probe's finding says after it has judged these figures."""

    def judge(name, *figures):
        load(name).judge(finding, *figures)
        return finding.data()

    return judge


class TestHarness:
    def script(self, folder, body):
        path = folder / "some_probe.py"
        head = "import sys, time\nfrom harness import child, main\ndef probe(finding, given):\n"
        lines = "".join(f"    {line}\n" for line in body)
        path.write_text(f"{head}{lines}sys.exit(main(probe, 'Is it so?'))")
        return path

    def test_an_error_is_an_answer(self, tmp_path):
        body = ["finding.keep(half_s=0.5)", "raise ValueError('the driver said no')"]
        said = call(self.script(tmp_path, body), "--device", "cpu", "--out", tmp_path / "out")
        assert said["probe"] == "some_probe"
        assert said["answer"] == "unavailable: the driver said no"
        assert said["errors"][0]["type"] == "ValueError"
        assert said["numbers"] == {"half_s": 0.5}
        assert json.loads((tmp_path / "out/finding.json").read_bytes()) == said

    def test_its_time_is_over(self, tmp_path):
        body = ["finding.keep(half_s=0.5)", "child(['-c', 'import time; time.sleep(60)'], 50)"]
        started_s = time.monotonic()
        said = call(self.script(tmp_path, body), "--device", "cpu", "--limit", "1")
        assert time.monotonic() - started_s < 45
        assert said["answer"] == "unavailable: the time of 1 s was over"
        assert said["numbers"] == {"half_s": 0.5}

    def test_a_child_that_dies_leaves_its_words(self, load):
        code = "import os, sys; print('no room', file=sys.stderr, flush=True); os.abort()"
        said = load("harness").child(["-c", code], 20)
        assert said["error"] == "exit code -6"
        assert "no room" in said["stderr"]

    def test_a_run_without_a_record(self, load, tmp_path):
        with pytest.raises(RuntimeError, match=r"run gave no record: .*no_such_script"):
            load("harness").product_run(["no_such_script.py"], tmp_path, 60)

    def test_one_assumption_that_fails_is_a_contradiction(self, finding):
        finding.assume("a.py: A", 1, None, "nothing")
        assert finding.data()["contradicts"] is None
        finding.assume("a.py: A", 1, True, "1")
        assert finding.data()["contradicts"] is False
        finding.assume("a.py: B", 1, False, "2")
        assert finding.data()["contradicts"] is True


@pytest.mark.parametrize("name", ["occupancy", "largest_size", "memory_fill"])
def test_without_cuda_a_probe_says_so(name):
    said = call(PROBES / f"{name}.py", "--device", "cpu")
    assert (said["answer"], said["contradicts"]) == ("unavailable: no CUDA device", None)


@NO_GPU
@pytest.mark.parametrize("options", [["fake_or_real.py"], ["refusals.py", "--device", "cuda"]])
def test_cuda_that_is_not_there_is_an_answer(options):
    assert call(PROBES / options[0], *options[1:])["answer"] == "unavailable: no CUDA device"


@pytest.mark.slow
def test_the_fake_side_of_the_comparison():
    """The side that needs no GPU: the replica reserves what lives, and a little more."""
    script = PROBES / "fake_or_real.py"
    for name in ("gpt checkpointed", "unet"):
        said = call(script, "--device", "cpu", "--fake", name, "--sizes", "8", "32")
        small, large = (said["numbers"]["rows"][size] for size in ("8", "32"))
        assert 1 < large["allocated_bytes"] / small["allocated_bytes"] < 4
        assert 1 <= large["reserved_bytes"] / large["allocated_bytes"] < 1.6


class TestDriver:
    """The counters of the stand-in library, whose periods are planted."""

    @pytest.fixture(autouse=True)
    def _one_thread(self):
        """Two that multiply wait for each other where others take their cores."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)

    def asked(self, load, finding, **settings):
        probe = load("update_periods").probe
        probe(finding, argparse.Namespace(device="cpu", seconds=0.7, **settings))
        return finding.data()

    @pytest.mark.slow
    @pytest.mark.alone
    def test_update_periods(self, stub, load, finding):
        stub.set(energy_update_ms=100, power_update_ms=100)
        said = self.asked(load, finding)
        periods = said["numbers"]["periods"]
        assert set(periods) == {"energy, idle", "power, idle", "energy, busy", "power, busy"}
        for name, period in periods.items():
            assert period["median_s"] == pytest.approx(0.1, rel=0.4), name
        assert said["answer"].startswith("median time between two changes: energy, idle ")

    def test_a_counter_as_the_product_expects_it(self, load, judged):
        period = load("update_periods").periods(recording(0.1))
        assert period["median_s"] == pytest.approx(0.1, rel=0.05)
        assert period["question_every_s"] == pytest.approx(0.004)
        assert judged("update_periods", {"energy, busy": period})["contradicts"] is False

    def test_a_slow_counter_speaks_against_the_product(self, judged):
        said = judged("update_periods", {"energy, busy": {"median_s": 0.25}})
        assert said["contradicts"] is True
        assert "250 ms" in said["answer"]

    @NO_GPU
    def test_without_a_driver(self):
        said = call(PROBES / "throttle.py", "--device", "cpu")
        assert said["answer"].startswith("unavailable: nvmlInit: ")

    @pytest.mark.parametrize(("bits", "against"), [(0x4, False), (0x8, True), (1 << 20, True)])
    def test_throttle_reasons(self, stub, load, finding, bits, against):
        stub.set(throttle=bits)
        load("throttle").probe(finding, argparse.Namespace(device="cpu", seconds=0.4))
        said = finding.data()
        assert said["contradicts"] is against, said["assumptions"]
        assert "saturated: " in said["answer"]
        assert said["numbers"]["idle"]["sm_clock_mhz"] == 1500

    @pytest.mark.slow
    @pytest.mark.alone
    def test_energy_of_windows(self, stub, load, finding, monkeypatch):
        """The whole probe, with short windows of its own."""
        energy_windows = load("energy_windows")
        monkeypatch.setattr(energy_windows, "REAL_S", (0.1,))
        stub.set(energy_update_ms=50)
        given = argparse.Namespace(device="cpu", seconds=1.5, ends_s=time.monotonic() + 60)
        energy_windows.probe(finding, given)
        numbers = finding.data()["numbers"]
        assert numbers["mean_power_w"] == pytest.approx(250, rel=0.1)
        assert 0.1 <= numbers["windows_of_the_sampler"][0]["window_s"] < 1
        errors = numbers["relative_errors"]
        assert {"0.1", "0.3"} <= set(errors)  # for more the recording is too short as a rule
        assert errors["0.1"]["standard_deviation"] > 1.5 * errors["0.3"]["standard_deviation"]


def recording(update_s, seconds=20.0, watts=300.0):
    """What polling every 4 ms sees of a counter that moves every `update_s`."""
    times = [0.004 * number for number in range(int(seconds / 0.004))]
    return [(time_s, watts * update_s * int(time_s / update_s)) for time_s in times]


class TestEnergyArithmetic:
    @pytest.mark.parametrize("length_s", [0.25, 1.03, 2.0])
    def test_the_error_is_that_of_two_edges(self, load, length_s):
        from batchadvisor.advisor.measured.energy import EDGE_SD

        errors = load("energy_windows").cut_errors(recording(0.1), length_s)
        # A difference of whole updates: its largest deviation is what rounding leaves.
        assert errors["standard_deviation"] <= 1.3 * EDGE_SD * 0.1 / length_s
        assert errors["worst"] <= 1.2 * 0.1 / length_s
        assert abs(errors["bias"]) < 0.02

    def test_too_short_a_recording_says_nothing(self, load):
        assert load("energy_windows").cut_errors(recording(0.1, seconds=3.0), 2.0) is None

    def test_a_drifting_power_speaks_against_two_seconds(self, load, finding):
        rows = [(time_s, joules * (1 + time_s / 20)) for time_s, joules in recording(0.1)]
        energy_windows = load("energy_windows")
        finding.keep(relative_errors={"2.0": energy_windows.cut_errors(rows, 2.0)})
        energy_windows.judge(finding, rows)
        assert finding.data()["contradicts"] is True


class TestRefusals:
    def test_what_a_cpu_refuses(self, load):
        said = load("refusals").provoked("allocator", "cpu")
        assert said["recognised"]
        assert "can't allocate memory" in said["raised"]["text"]
        assert not load("refusals").provoked("wrong shapes", "cpu")["recognised"]

    def test_another_process_s_words_are_its_own(self, load, monkeypatch):
        cases = load("refusal_cases")

        def provoke(_):
            raise cases.Heard("CUDA error: out of memory")

        monkeypatch.setitem(cases.CASES, "heard", cases.Case(provoke))
        assert load("refusals").provoked("heard", "cpu")["recognised"]

    def test_what_is_missed_and_what_is_mistaken(self, judged):
        texts = {
            "a": {"expected": True, "recognised": False},
            "b": {"expected": False, "recognised": True},
            "c": {"expected": None, "recognised": True},
            "d": {"expected": True, "error": "ended after 25 s"},
        }
        said = judged("refusals", texts)
        assert said["contradicts"] is True
        assert "not recognised: a; taken for a refusal: b; nothing raised: d" in said["answer"]
        assert said["unavailable"]["d"].startswith("ended after 25 s")


class TestJudgements:
    def test_run_and_callback_against_the_bare_loop(self, judged):
        callback = {"samples_per_s": 97.0, "outside": {"samples_per_s": 99.0}}
        plain = {"samples_per_s": 100.0, "peak_reserved_bytes": 1000}
        rows = {
            32: {"bare": plain, "run": plain | {"samples_per_s": 101.0}, "callback": callback},
            64: {"bare": {"error": "exit code 1"}},
        }
        said = judged("bare_loop", rows)
        assert said["answer"].startswith("samples/s against the bare loop: run at 32: +1.0 %, call")
        assert [entry["holds"] for entry in said["assumptions"]] == [False, True]
        assert said["unavailable"]["run at 64"] == "exit code 1"

    @pytest.mark.parametrize(("refused", "retries", "holds"), [
        (None, 0, True), (None, 3, False), ("CUDA out of memory", 1, False),
    ])  # fmt: skip
    def test_an_optimistic_size(self, judged, refused, retries, holds):
        fresh = {"refused": refused, "num_alloc_retries": retries, "steps_made": 4}
        said = judged("largest_size", 95, fresh, 100)
        assert said["assumptions"][0]["holds"] is holds
        assert said["answer"].endswith("The largest that fits is 100: -5.0 %.")

    @pytest.mark.parametrize(("fake", "holds"), [(1040, True), (1100, False)])
    def test_fake_steps_that_are_near_or_not(self, judged, fake, holds):
        row = {
            "model": "gpt", "batch_size": 64,
            "real": {"allocated_bytes": 1000, "reserved_bytes": 2000},
            "fake": {"allocated_bytes": fake, "reserved_bytes": 1900},
        }  # fmt: skip
        said = judged("fake_or_real", [row])
        assert said["contradicts"] is not holds
        assert "reserved by -5.0 % to -5.0 %" in said["answer"]

    def test_a_live_process_that_is_slower(self, judged):
        row = {"step_s": 1.0, "peak_reserved_bytes": 100}
        cases = {
            "plain": {"live": [row, row], "fresh": [row]},
            "torch.compile": {"live": [row | {"step_s": 1.2}], "fresh": [row]},
            "cudnn.benchmark": {"live": [row]},
        }
        said = judged("live_or_fresh", cases)
        assert [entry["holds"] for entry in said["assumptions"]] == [True, False]

    @pytest.mark.parametrize(("counted", "contradicts"), [(36.0, False), (5.0, True)])
    def test_occupancy(self, judged, counted, contradicts):
        row = {
            "estimated_sm_efficiency_pct": 50.0, "gpm_sm_active_pct": 40.0, "unavailable": {},
            "occupancy_times_busy_pct": 41.0, "gpm_sm_occupancy_pct": counted,
        }  # fmt: skip
        assert judged("occupancy", {"work": row})["contradicts"] is contradicts


def test_a_profiled_window_is_timed(load):
    """The product's own profiler, around a step that is there on any machine."""
    work = load("profiling_work")
    window = work.profiled(lambda: torch.ones(4).sum(), "cpu")
    assert window["start_s"] > 0
    assert len(window["step_s"]) == 4
    assert window["trace_bytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("bare_loop", ("--sizes", "8", "--seconds", "0.2", "--budget", "5s")),
    ("callback_async", ("--steps", "50")),
    ("step_after_profile", ("--steps", "2")),
    ("live_or_fresh", ("--only", "plain", "--sizes", "1,2")),
])  # fmt: skip
def test_what_a_cpu_can_measure(name, options):
    said = call(PROBES / f"{name}.py", "--device", "cpu", *options)
    assert not said["errors"], said
    assert not said["answer"].startswith("unavailable"), said
    assert said["contradicts"] is None  # nothing of it speaks of a GPU


def test_a_summary_is_one_page(load, finding, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    summary = importlib.import_module("gpu_check_summary")
    finding.answer = "the counter moves every 250 ms."
    finding.assume("advisor/measured/energy.py: UPDATE_S", 0.1, False, "every 250 ms")
    silent = load("harness").Finding("silent", "Is it?", "cpu")
    silent.lack("everything", "no CUDA device")
    device = {"name": "NVIDIA H200", "driver": "580.1", "torch": "2.11", "cuda": "13.0"}
    results = {
        "environment": {"device": device, "python": "3.12.3", "started_at": "2026-11-22"},
        "steps": [{"name": "occupancy", "ok": False, "exit_code": 124}],
        "findings": [finding.data()] * 11 + [silent.data()],
    }
    text = summary.page([results])
    assert len(text.splitlines()) <= 60
    first = (
        "gpu-check: NVIDIA H200, driver 580.1, torch 2.11 (CUDA 13.0), Python 3.12.3, 2026-11-22"
    )
    assert text.splitlines()[0] == first
    assert "any [AGAINST]: Is it so?\n  the counter moves every 250 ms.\n" in text
    assert "  against advisor/measured/energy.py: UPDATE_S = 0.1: every 250 ms\n" in text
    assert "step occupancy ended with code 124\n" in text
    assert text.endswith("unavailable: silent.\n")
