"""`batchadvisor compare`: exit codes, files, what it prints."""

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.features.gate.records import Gate
from batchadvisor.features.gate.session import schema_text
from click.testing import CliRunner

from ..reports.test_json import check
from .runs import in_turn, run, write

SCHEMA = Path(__file__).parents[2] / "features/gate/schema.json"


@pytest.fixture
def slower(tmp_path):
    """Eight rounds, a tenth slower after the change, or nearly."""
    return sides(tmp_path, [(1.0, 1.09), (1.0, 1.11)] * 4)


def sides(folder, pairs):
    before, after = in_turn(pairs)
    return str(write(folder / "base", before)), str(write(folder / "head", after))


def compare(*words):
    return CliRunner().invoke(cli, ["compare", *words], catch_exceptions=True)


def failed(*words):
    """What an error says."""
    done = compare(*words)
    assert done.exception is not None
    assert not isinstance(done.exception, SystemExit) or done.exit_code == 2
    return str(done.exception)


class TestAnswer:
    def test_a_broken_condition_is_exit_code_1(self, slower):
        done = compare(*slower, "--fail-if", "step_time>+5%", "--fail-if", "peak_memory>+3%")
        assert done.exit_code == 1, done.output
        assert done.output.startswith("Fails at batch size 8: step_time +10.0% (+9.0% to +11.0%)")
        assert "exceeded" in done.output
        assert "kept" in done.output
        assert "Next: batchadvisor report" in done.output

    def test_a_single_pair_says_that_it_cannot_tell(self, tmp_path):
        done = compare(*sides(tmp_path, [(1.0, 1.1)]), "--fail-if", "step_time>+5%")
        assert done.exit_code == 0
        assert done.output.startswith("Cannot tell at batch size 8: step_time +10.0%")
        assert "Times need 7 rounds at least" in done.output

    def test_runs_by_their_records(self, tmp_path):
        base, head = (Path(side) / "0" for side in sides(tmp_path, [(1.0, 1.0)]))
        done = compare(str(base), str(head / "record.json"), "--fail-if", "peak_memory>+3%")
        assert done.exit_code == 0, done.output
        assert done.output.startswith("Passes at batch size 8: peak_memory +0.0%")

    def test_what_cannot_be_compared_is_exit_code_3(self, tmp_path):
        base = write(tmp_path / "base", [run("<1>&", 0)])
        head = write(tmp_path / "head", [run("1", 9, size=64)])
        file = tmp_path / "gate.xml"
        done = compare(str(base), str(head), "--fail-if", "step_time>+5%", "--junit", str(file))
        assert done.exit_code == 3
        assert "Cannot be compared: the batch sizes are not the same" in done.output
        (error,) = ET.parse(file).getroot().iter("error")
        assert "<1>&" in error.get("message")

    def test_json(self, slower):
        done = compare(*slower, "--fail-if", "step_time>+5%", "--json")
        gate = msgspec.json.decode(done.output, type=Gate)
        assert (gate.verdict, gate.exit_code, done.exit_code) == ("fails", 1, 1)
        schema = msgspec.json.decode(schema_text())
        check(msgspec.json.decode(done.output), schema, schema["$defs"])

    def test_the_published_schema_is_that_of_the_code(self):
        if os.environ.get("BATCHADVISOR_UPDATE_GOLDEN"):
            SCHEMA.write_text(schema_text())
        assert SCHEMA.read_text() == schema_text() == compare("--schema").output


class TestFiles:
    def test_junit(self, tmp_path, slower):
        conditions = ("step_time>+5%", "peak_memory>+3%", "step_time>+10%")
        words = [word for text in conditions for word in ("--fail-if", text)]
        file = tmp_path / "gate.xml"
        assert compare(*slower, *words, "--junit", str(file)).exit_code == 1
        (suite,) = ET.parse(file).getroot()
        counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
        assert counts == {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
        cases = suite.findall("testcase")
        assert [case.get("name") for case in cases] == list(conditions)
        assert [[part.tag for part in case] for case in cases] == [["failure"], [], ["skipped"]]

    def test_markdown_and_json_beside_the_answer(self, tmp_path, slower):
        files = [tmp_path / "gate.md", tmp_path / "gate.json"]
        outputs = [word for file in files for word in ("-o", str(file))]
        done = compare(*slower, "--fail-if", "step_time>+5%", *outputs)
        assert done.exit_code == 1
        text = files[0].read_text()
        assert text.startswith("<!-- batchadvisor report -->\n\n### Fails at batch size 8: step")
        assert "| step\\_time |" in text
        assert msgspec.json.decode(files[1].read_bytes(), type=Gate).verdict == "fails"
        assert done.output.count("Wrote ") == 2

    def test_its_own_files_are_written_over_and_no_others(self, tmp_path, slower):
        own, other = tmp_path / "gate.xml", tmp_path / "other.md"
        other.write_text("mine")
        for _ in range(2):
            assert compare(*slower, "--junit", str(own)).exit_code == 0
        assert "was not written by this command" in failed(*slower, "-o", str(other))
        assert other.read_text() == "mine"
        assert compare(*slower, "-o", str(other), "--force").exit_code == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("head", "--fail-if", "speed>+5%"), "is no measure"),
        (("head", "-o", "gate.html"), "Use .md, .json."),
        (("head", "--junit", "gate.txt"), "Use .xml."),
        (("base",), "is on both sides"),
        (("empty",), "holds no run"),
    ],
)
def test_wrong_use_is_said(tmp_path, monkeypatch, slower, words, part):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert part in failed("base", *words)
