"""`report` with flame graphs, links to traces and stacks for speedscope."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
from batchadvisor.probes.trace.summary import summarise
from batchadvisor.session.recording.store import RunStore
from msgspec.structs import replace

from ..trace.test_flames import check_speedscope
from ..trace.test_launchers import PLANTED
from . import samples
from .test_report_command import report

OLDER = Path(__file__).parents[1] / "data/h100/nanogpt.json.gz"
NAME = "traces/batch_size=0128/w0t0.1.pt.trace.json"


@pytest.fixture
def run(tmp_path):
    return planted(tmp_path / "run", PLANTED)


def planted(folder, events, name=NAME):
    """A run whose recommended size has a trace of these events."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events}))
    record, advice = samples.gpu()
    chosen = advice.recommended.batch_size
    assert chosen == 128
    profile = summarise(path, name)
    trials = [
        replace(trial, profile=profile if trial.batch_size == chosen else None)
        for trial in record.trials
    ]
    RunStore(folder).save(replace(record, trials=tuple(trials)))
    return folder


def page(run, name="report.html"):
    code, text = report(run, "-o", run / name, "--force")
    assert code == 0, text
    return (run / name).read_text()


class TestFlames:
    def test_the_page_has_both(self, run):
        text = page(run)
        assert text.count('<figure class="flame"') == 2
        assert "The host" in text
        assert "GPU time by the stack that launched it: 35 µs a step" in text
        titles = re.findall(r"<title>([^<]*)</title>", text)
        assert any(title.startswith("backward pass: 20 µs a step, 57.1%") for title in titles)

    def test_without_stacks_there_is_none_and_operators_alone_are_said(self, tmp_path):
        events = [event for event in PLANTED if event["cat"] != "python_function"]
        run = planted(tmp_path / "run", events)
        text = page(run)
        assert '<figure class="flame"' not in text
        assert "No flame graph" not in text
        assert "no frames of Python" in text
        code, text = report(run, "-o", tmp_path / "a.speedscope.json")
        assert code == 0
        assert "operators alone" in text
        assert "--stacks" in text

    def test_a_trace_that_is_cut_damaged_or_gone(self, run):
        whole = (run / NAME).read_bytes()
        (run / NAME).write_bytes(whole[: len(whole) // 2])
        assert '<figure class="flame"' in page(run)
        (run / NAME).write_bytes(b"\x1f\x8b no gzip")
        assert "No flame graph: " in page(run)
        (run / NAME).unlink()
        text = page(run)
        assert '<figure class="flame"' not in text
        assert "No flame graph: the trace is not in the run&#39;s folder." in text
        assert "<a href" not in text

    def test_a_trace_outside_the_run_is_not_read(self, run):
        shutil.move(run / NAME, run.parent / "other.json")
        record = json.loads((run / "record.json").read_text())
        for trial in record["trials"]:
            if trial["profile"] is not None:
                trial["profile"]["trace"] = "../other.json"
        (run / "record.json").write_text(json.dumps(record))
        text = page(run)
        assert '<figure class="flame"' not in text
        assert "<a href" not in text

    def test_names_are_escaped(self, tmp_path):
        evil = "</svg><script>alert(1)</script>"
        events = [
            event | {"name": evil} if event["cat"] == "cpu_op" else event for event in PLANTED
        ]
        text = page(planted(tmp_path / "run", events))
        assert "alert(1)" in text
        assert "<script>alert" not in text


class TestLinks:
    def test_beside_the_record_and_from_elsewhere(self, run, tmp_path):
        assert f'href="./{NAME.replace("=", "%3D")}"' in page(run)
        (tmp_path / "pages").mkdir()
        output = tmp_path / "pages/a.html"
        assert report(run, "-o", output)[0] == 0
        (link,) = re.findall(r'<a href="([^"]+)"', output.read_text())
        assert link == f"./../run/{NAME.replace('=', '%3D')}"
        assert (output.parent / link.replace("%3D", "=")).resolve() == (run / NAME).resolve()

    def test_json_names_the_file(self, run):
        code, text = report(run, "--json")
        assert code == 0
        (device,) = json.loads(text)["devices"]
        assert device["trace"]["path"] == NAME
        assert len(device["flames"]) == 2


class TestSpeedscope:
    def test_it_keeps_the_rules(self, run, tmp_path):
        output = tmp_path / "stacks.speedscope.json"
        code, text = report(run, "-o", output)
        assert code == 0
        assert f"Wrote stacks of batch size 128  {output}" in text
        document = check_speedscope(output.read_text())
        assert document["name"].endswith("batch size 128")
        assert len(document["profiles"]) == 3
        assert report(run, "-o", output)[0] == 0, "it may write over its own"

    def test_somebody_elses_file_is_kept(self, run, tmp_path):
        output = tmp_path / "mine.speedscope.json"
        output.write_text("{}")
        code, text = report(run, "-o", output)
        assert (code, output.read_text()) == (2, "{}")
        assert "--force" in text

    @pytest.mark.parametrize("how", ["gone", "unprofiled", "two", "empty"])
    def test_one_clear_line(self, run, tmp_path, how):
        arguments = [run]
        if how == "gone":
            (run / NAME).unlink()
        elif how == "unprofiled":
            RunStore(run).save(samples.interrupted()[0])
        elif how == "two":
            arguments = [run, run]
        else:
            (run / NAME).write_text('{"traceEvents": []}')
        code, text = report(*arguments, "-o", tmp_path / "a.speedscope.json")
        assert code == 2
        assert len(text.splitlines()) == 1
        assert not (tmp_path / "a.speedscope.json").exists()


def test_the_page_of_an_older_record_says_what_it_lacks(tmp_path):
    """A record of an H100 that an earlier version wrote: ten kernels, and not who launched them."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "record.json").write_bytes(gzip.decompress(OLDER.read_bytes()))
    text = page(run)
    assert "of an older version" in text
    assert "What grew with the batch" in text
    assert "x3.71" in text
