"""`batchadvisor report` on good records, on others, and on what is no record."""

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.errors import BatchAdvisorError
from batchadvisor.records import SCHEMA_VERSION, DeviceRun, DevicesRecord, TwinCheck
from batchadvisor.session.recording.store import RunStore
from click.testing import CliRunner
from msgspec.structs import replace

from . import builders, samples

CPU = Path(__file__).parents[1] / "data/records/char_gpt_cpu.json"


def report(*arguments):
    """Exit code and text; errors as `main` would print them."""
    done = CliRunner().invoke(cli, ["report", *map(str, arguments)])
    if isinstance(done.exception, BatchAdvisorError):
        return done.exception.exit_code, str(done.exception)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(CPU, run / "record.json")
    return run


def stored(tmp_path, sample, name="run", **changes):
    folder = tmp_path / name
    record = replace(sample()[0], **changes)
    RunStore(folder).save(record)
    return folder


def changed(folder, **changes):
    path = folder / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "start"),
        [
            ("a.html", "<!doctype html>"),
            ("a.HTM", "<!doctype html>"),
            ("a.md", "<!-- batchadvisor report -->"),
            ("a.json", '{\n "kind": "run"'),
        ],
    )
    def test_the_suffix_chooses(self, folder, tmp_path, name, start):
        code, text = report(folder, "-o", tmp_path / name)
        assert code == 0, text
        assert (tmp_path / name).read_text().startswith(start)
        assert f"Wrote report  {tmp_path / name}" in text
        assert "Next: batchadvisor report" in text
        assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []

    def test_without_a_name_it_stands_beside_the_record(self, folder):
        assert report(folder)[0] == 0
        assert "Use batch size 40" in (folder / "report.html").read_text()
        assert report(folder / "record.json")[0] == 0  # ours: written anew

    def test_a_link_stays_a_link(self, folder, tmp_path):
        (tmp_path / "link.md").symlink_to("folder.md")
        for _ in range(2):  # the second time over what the first wrote
            assert report(folder, "-o", tmp_path / "link.md")[0] == 0
        assert (tmp_path / "link.md").is_symlink()
        assert (tmp_path / "folder.md").read_text().startswith("<!-- batchadvisor report -->")

    @pytest.mark.parametrize(("goal", "size"), [((), 40), (("--goal", "memory"), 128)])
    def test_json_on_stdout_also_for_another_goal(self, folder, goal, size):
        code, text = report(folder, *goal, "--json")
        assert code == 0
        assert json.loads(text)["advice"]["recommended"]["batch_size"] == size
        assert not (folder / "report.html").exists()

    def test_the_schema_needs_no_record(self):
        code, text = report("--schema")
        assert code == 0
        assert set(json.loads(text)["$defs"]) >= {"Report", "ComparisonReport", "Chart"}

    def test_the_next_command_asks_the_same_question(self, folder, tmp_path):
        goal = ("--goal", "knee", "--tolerance", "0.025", "--memory-margin", "10%")
        code, text = report(folder, *goal, "-o", tmp_path / "out.html")
        assert code == 0, text
        said = f"report --goal knee --tolerance 0.025 --memory-margin 0.1 {folder} -o report.md"
        assert f"Next: batchadvisor {said}" in text

    def test_nvml_samples_become_a_timeline(self, tmp_path):
        folder = stored(tmp_path, samples.gpu)
        rows = [{"trial": 0, "time_s": 9 + at / 10, "power_w": 100 + at} for at in range(20)]
        RunStore(folder).append([{"trial": 0, "step_s": 0.1}, *rows])
        with (folder / "samples.jsonl").open("a") as file:
            file.write('{"trial": 0, "time_s": 12.0, "pow')  # cut short
        data = json.loads(report(folder, "--json")[1])
        (chart,) = data["devices"][0]["timelines"]
        assert chart["series"][0]["values"] == [float(100 + at) for at in range(20)]


class TestComparison:
    def test_two_records(self, folder, tmp_path):
        other = stored(tmp_path, samples.cpu, "other")
        code, text = report(folder, other)
        assert code == 0, text
        page = (other / "comparison.html").read_text()
        assert "run and other" in page
        code, text = report(folder, other, "--json")
        data = json.loads(text)
        assert data["kind"] == "comparison"
        assert data["before"]["advice"]["recommended"]["batch_size"] == 40

    def test_with_itself_nothing_can_be_told(self, folder):
        data = json.loads(report(folder, folder, "--json")[1])
        assert data["headline"].startswith("Cannot tell: x1.00")
        assert data["names"] == ["run (first)", "run (second)"]

    def test_a_record_without_an_answer(self, folder, tmp_path):
        other = stored(tmp_path, samples.nothing_fits, "other")
        code, text = report(folder, other, "-o", tmp_path / "c.md")
        assert code == 0, text
        assert "the second run recommends no timed size" in (tmp_path / "c.md").read_text()


class TestOtherRecords:
    def test_an_unfinished_run(self, tmp_path):
        folder = stored(tmp_path, samples.interrupted, state="running", stop_reason="")
        assert report(folder, "-o", tmp_path / "r.md")[0] == 0
        assert "This run has not finished" in (tmp_path / "r.md").read_text()

    def test_a_run_that_has_just_begun(self, tmp_path):
        folder = stored(
            tmp_path, samples.cpu, state="running", trials=(), device=None, discovery=None,
            versions=None, stop_reason="", files=(),
        )  # fmt: skip
        for name in ("r.html", "r.md", "r.json"):
            code, text = report(folder, "-o", tmp_path / name)
            assert code == 0, text
            assert "No size was tried" in (tmp_path / name).read_text()

    def test_a_newer_minor_version_is_read_and_named(self, folder, tmp_path):
        major, minor = SCHEMA_VERSION.split(".")
        newer = f"{major}.{int(minor) + 3}"
        changed(folder, schema_version=newer, invented_later={"a": 1})
        assert report(folder, "-o", tmp_path / "r.md")[0] == 0
        text = (tmp_path / "r.md").read_text()
        assert f"The record has schema {newer}" in text
        assert "Use batch size 40" in text

    def test_another_major_version_is_refused(self, folder):
        code, text = report(changed(folder, schema_version="9.0"))
        assert code == 2
        assert "schema 9.0" in text
        assert not (folder / "report.html").exists()

    def test_a_cut_record_is_one_clear_error(self, folder):
        path = folder / "record.json"
        path.write_text(path.read_text()[:20_000])
        code, said = report(folder)
        assert code == 2
        assert "is not a record" in said
        assert "\n" not in said
        assert not (folder / "report.html").exists()


class TestWrongUse:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("nowhere",), "cannot read a record"),
            (("run", "run", "run"), "compares two at most"),
            (("run", "run", "--goal", "memory"), "--goal"),
            (("run", "-o", "r.pdf"), ".html, .htm, .md, .json"),
            (("run", "-o", "report"), ".html, .htm, .md, .json"),
            (("run", "-o", "no/r.html"), "no folder"),
            (("run", "-o", "folder.html"), "a folder"),
            (("run", "-o", "pipe.html"), "no ordinary file"),
            (("run", "--json", "-o", "r.json"), "--json"),
        ],
    )
    def test_it_is_said(self, folder, tmp_path, monkeypatch, arguments, said):
        (tmp_path / "folder.html").mkdir()
        os.mkfifo(tmp_path / "pipe.html")  # nobody waits for who reads it
        monkeypatch.chdir(tmp_path)
        code, text = report(*arguments)
        assert code == 2
        assert said in text
        assert {path.name for path in tmp_path.iterdir()} == {"run", "folder.html", "pipe.html"}

    def test_somebody_elses_file_is_left_alone(self, folder, tmp_path):
        path = tmp_path / "README.md"
        path.write_text("# mine\n")
        code, text = report(folder, "-o", path)
        assert code == 2
        assert "--force" in text
        assert path.read_text() == "# mine\n"
        assert report(folder, "-o", path, "--force")[0] == 0
        assert "batch size 40" in path.read_text()


class TestSeveralDevices:
    @pytest.fixture
    def run(self, tmp_path):
        """Two devices of unlike strength, a twin that shares a record, one that failed."""
        folder = tmp_path / "both"
        stored(folder, samples.gpu, "a")
        stored(folder, samples.cpu, "b")
        check = TwinCheck(twin="a", batch_size=128, verdict="equal", ratio=builders.spread(1.0))
        devices = (
            DeviceRun(device="a", model="Synthetic", folder="a", exit_code=0),
            DeviceRun(device="b", model="Other", folder="b", exit_code=0),
            DeviceRun(device="twin", model="Synthetic", folder="a", twin_of="a", check=check),
            DeviceRun(device="broken", model="Other", exit_code=1, error="Error: no power"),
        )
        record = DevicesRecord(state="finished", started_at="", command=("x",), devices=devices)
        (folder / "devices.json").write_bytes(msgspec.json.encode(record))
        return folder

    def test_all_are_side_by_side(self, run, tmp_path):
        code, text = report(run, "--json")
        assert code == 0, text
        data = json.loads(text)
        assert data["headline"] == "Batch size by device: a 256, b 256, twin 256"
        assert [device["name"] for device in data["devices"]] == ["a", "b"]
        assert {chart["key"] for chart in data["overview"]} >= {"all_throughput", "all_memory"}
        (table,) = data["tables"]
        assert [row["cells"][0] for row in table["rows"]] == ["a", "b", "twin", "broken"]
        assert [row["state"] for row in table["rows"]] == ["ok", "ok", "ok", "failed"]
        shares = [int(row["cells"][-1]) for row in table["rows"][:3]]
        assert sum(shares) == pytest.approx(100, abs=2)
        messages = [finding["message"] for finding in data["findings"]]
        assert any("no power" in message for message in messages)
        assert any(message.startswith("twin is as fast as a") for message in messages)
        for name in ("r.html", "r.md"):
            assert report(run, "-o", tmp_path / name)[0] == 0
            text = (tmp_path / name).read_text()
            assert "Batch size by device" in text
            assert "no power" in text

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            ("empty", "nothing was measured"),
            ("damaged", "devices.json is not a record"),
            ("another goal", "goal"),
        ],
    )
    def test_what_cannot_be_is_said(self, run, how, said):
        if how == "empty":
            for name in ("a", "b"):
                (run / name / "record.json").unlink()
        elif how == "damaged":
            (run / "devices.json").write_text("{")
        code, text = report(run, *(["--goal", "memory"] if how == "another goal" else []))
        assert code == 2
        assert said in text

    def test_one_device_alone_is_an_ordinary_record(self, run):
        assert json.loads(report(run / "a", "--json")[1])["headline"].startswith("Use batch")
