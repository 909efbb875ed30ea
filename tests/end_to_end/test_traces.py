"""Profiled windows: valid traces that torch-tb-profiler and TensorBoard itself read."""

import gzip
import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from batchadvisor.reports.data import speedscope
from batchadvisor.session.report import report_of
from batchadvisor.session.run_traces import stacks_of, with_flames

from ..trace.test_flames import check_speedscope
from .driver import LIMIT_S

RUNS = ("plain", pytest.param("positional", marks=pytest.mark.slow))


def profiled(result):
    return [trial for trial in result.record.trials if trial.profile is not None]


@pytest.mark.parametrize("name", RUNS)
class TestTraces:
    def test_every_searched_size_has_a_valid_one(self, styled, name):
        result = styled(name)
        trials = profiled(result)
        # On a busy machine steps may be too long for a profile; then that is said.
        assert trials == [
            trial
            for trial in result.record.trials
            if trial.purpose == "search"
            and trial.kind != "turns"
            and "profile" not in trial.unavailable
        ]
        assert trials
        files = [*(result.run_folder / "traces").rglob("*.pt.trace.json*")]
        assert len(files) == len(trials)
        for trial in trials:
            folder = f"traces/batch_size={trial.batch_size:04d}"
            path = trial.profile.trace
            assert re.fullmatch(rf"{folder}/w\d+t\d+\.\d+\.pt\.trace\.json\.gz", path)
            data = gzip.decompress((result.run_folder / path).read_bytes())
            trace = json.loads(data.decode("utf-8"))
            events = trace["traceEvents"]
            steps = [e for e in events if str(e.get("name", "")).startswith("ProfilerStep#")]
            assert len({e["name"] for e in steps if e.get("ph") == "X"}) == 3
            assert any(e.get("name") == "aten::addmm" for e in events) or name == "positional"
            if name == "positional":
                assert trace["with_stack"] == 1
                assert any(e.get("cat") == "python_function" for e in events)

    def test_their_numbers_are_in_the_record(self, styled, name):
        for trial in profiled(styled(name)):
            profile = trial.profile
            assert profile.num_steps == 3
            assert 0 < profile.operators_pct <= 100
            assert profile.operators
            assert all(op.num_calls > 0 and op.self_s >= 0 for op in profile.operators)
            assert profile.busy_pct is None
            assert profile.unavailable["busy_pct"]

    def test_tensorboard_shows_them(self, styled, name, tmp_path):
        result = styled(name)
        command = [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "0"]
        command += ["--logdir", result.run_folder / "traces", "--load_fast", "false"]
        log = tmp_path / "log"
        with log.open("w") as output:
            board = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            address = r"at (http://\S+?)/? "
            url = _wait_for(lambda: re.search(address, log.read_text()), board).group(1)
            plugin = f"{url.replace('localhost', '127.0.0.1')}/data/plugin/pytorch_profiler"
            wanted = {f"batch_size={trial.batch_size:04d}" for trial in profiled(result)}

            def shown():
                data = _get(f"{plugin}/runs")
                return data if not data["loading"] and set(data["runs"]) >= wanted else None

            assert set(_wait_for(shown, board)["runs"]) == wanted
            for run in wanted:
                views = _get(f"{plugin}/views?run={run.replace('=', '%3D')}")
                assert {"Overview", "Operator", "Trace"} <= set(views)
        finally:
            board.terminate()
            board.wait(30)


def test_stacks_lead_to_the_lines_of_the_script(styled, tmp_path):
    """Tables, flame graphs and speedscope's file of a run `--stacks`; none of a run without."""
    result = styled("positional")
    script = Path(result.record.script.path).name
    for trial in profiled(result):
        assert trial.profile.stacks
        places = [place for one in trial.profile.operators for place in one.callers]
        lines = {place.line.partition("(")[0] for place in places if place.line}
        assert script in lines
        assert not any("batchadvisor/" in line or line.startswith("torch/") for line in lines)
        assert any(place.backward for place in places)
    report = with_flames(report_of(result.record, result.run_folder), result.run_folder, tmp_path)
    (section,) = report.devices
    assert section.trace.href.startswith("./")
    (host,) = section.flames
    names = {frame.name for frame in host.frames}
    assert any(name.startswith(f"{script}(") for name in names)
    assert any(name.endswith("Backward0") for name in names)
    stacks, _ = stacks_of(result.record, result.run_folder)
    document = check_speedscope(speedscope.render(stacks, script))
    assert script in {frame.get("file") for frame in document["shared"]["frames"]}

    plain = styled("plain")
    (section,) = with_flames(report_of(plain.record, plain.run_folder), plain.run_folder).devices
    assert section.flames == ()
    assert section.trace.problem == ""
    assert all(place.line == "" for one in profiled(plain)[0].profile.operators
               for place in one.callers)  # fmt: skip


def _get(url):
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def _wait_for(condition, process):
    deadline = time.monotonic() + LIMIT_S / 2
    while time.monotonic() < deadline:
        try:
            value = condition()
        except OSError:
            value = None
        if value:
            return value
        assert process.poll() is None
        time.sleep(0.1)
    raise AssertionError("it never came")
