"""`--json=brief`: short, as its schema says, with a diff that `git apply` takes."""

import gzip
import hashlib
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.cli import cli
from batchadvisor.records import (
    BatchSizeSource,
    EditCheck,
    Following,
    RunRecord,
    ScriptInfo,
    SourceLine,
)
from batchadvisor.session.brief import brief_json, brief_of, schema_text
from click.testing import CliRunner

from ..reports import samples
from ..reports.test_json import check

DATA = Path(__file__).parents[1] / "data"
SCHEMA = Path(__file__).parents[2] / "reports/brief.schema.json"
STORED = DATA / "records/char_gpt_cpu.json"
RECORDED = [
    STORED,
    *(path for path in sorted((DATA / "h100").glob("*.json.gz")) if ".trace." not in path.name),
]
OWN, SIZE = 8, 40
SCRIPT = """import torch

LAYERS = 8
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
for batch in loader:
    pass
"""


def stored(path=STORED):
    data = path.read_bytes()
    return msgspec.json.decode(
        gzip.decompress(data) if path.suffix == ".gz" else data, type=RunRecord
    )


def holds(text):
    assert len(text.encode()) < 2048
    schema = msgspec.json.decode(schema_text())
    check(msgspec.json.decode(text), schema, schema["$defs"])


@pytest.mark.parametrize("path", RECORDED, ids=lambda one: one.name)
def test_a_recorded_run(path):
    record = stored(path)
    advice = advise(record)
    holds(brief_json(record, advice, Path("runs/one")))
    brief = brief_of(record, advice, Path("runs/one"))
    assert brief.answer == advice.headline
    assert brief.next.startswith("batchadvisor ")
    nulls = {name for name in ("size", "own_size", "ratio", "diff") if getattr(brief, name) is None}
    assert nulls == set(brief.unavailable)


@pytest.mark.parametrize("sample", [samples.nothing_fits, samples.interrupted])
def test_a_run_without_an_answer(sample):
    record, advice = sample()[:2]
    holds(brief_json(record, advice, Path("runs/one")))


def test_the_longest_texts_are_cut():
    record = stored()
    advice = msgspec.structs.replace(
        advise(record), headline="A" * 900, reason="B" * 900, change="C" * 900
    )
    holds(brief_json(record, advice, Path("runs/one")))


def test_the_published_schema_is_that_of_the_code():
    if os.environ.get("BATCHADVISOR_UPDATE_GOLDEN"):
        SCHEMA.write_text(schema_text())
    assert SCHEMA.read_text() == schema_text()


def source_at(file, line, before):
    """Where the size 8 is written."""
    return BatchSizeSource(
        place=SourceLine(file=str(file), line=line), before=before,
        template=before.replace("8", "{}"),
    )  # fmt: skip


class TestDiff:
    """The record's place of the size, in a file of a scratch repository."""

    @pytest.fixture
    def repository(self, tmp_path):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        return tmp_path

    @pytest.fixture
    def script(self, repository):
        path = repository / "train.py"
        path.write_text(SCRIPT)
        return path

    def brief(self, script, /, file=None, line=4, before="batch_size=8", following=(), **changes):
        """The answer for a script, to which the size was seen to get from a line of a file."""
        record = stored()
        source = source_at(file or script, line, before)
        discovery = msgspec.structs.replace(
            record.discovery,
            loaders=tuple(
                msgspec.structs.replace(loader, source=source)
                for loader in record.discovery.loaders
            ),
            following=following,
        )
        fields = {
            "script": ScriptInfo(
                path=str(script), digest=hashlib.sha256(script.read_bytes()).hexdigest()[:16]
            ),
            "discovery": discovery,
            "edit": EditCheck(size=SIZE, arrived=SIZE),
        }
        record = msgspec.structs.replace(record, **{**fields, **changes})
        return brief_of(record, advise(record), Path("runs/one"))

    def applied(self, brief, folder, wanted):
        """Applies the diff from a folder; the files then hold what is wanted."""
        assert brief.unavailable.get("diff") is None
        done = subprocess.run(
            ["git", "apply", "-v"], check=False, input=brief.diff.encode(), cwd=folder,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for path, data in wanted.items():
            assert path.read_bytes() == data

    @pytest.mark.parametrize("name", ["train.py", "deep/er/train it.py", "größe.py"])
    @pytest.mark.parametrize(
        "text", [SCRIPT, SCRIPT.replace("\n", "\r\n"), SCRIPT.rstrip()], ids=["lf", "crlf", "cut"]
    )
    def test_git_applies_it(self, repository, name, text):
        script = repository / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes(text.encode())
        brief = self.brief(script)
        assert script.read_bytes() == text.encode()  # nothing edits it
        wanted = text.replace("batch_size=8", f"batch_size={SIZE}").encode()
        self.applied(brief, repository, {script: wanted})

    def test_a_change_in_the_last_line_without_its_end(self, repository, script):
        script.write_text("batch_size = 8")
        brief = self.brief(script, line=1, before="batch_size = 8")
        self.applied(brief, repository, {script: b"batch_size = 40"})

    def test_outside_a_repository_paths_begin_at_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        script = Path("train.py")
        script.write_text(SCRIPT)
        wanted = SCRIPT.replace("batch_size=8", "batch_size=40").encode()
        self.applied(self.brief(script), tmp_path, {script: wanted})

    def test_a_second_place_is_in_it(self, repository, script):
        also = source_at(script, 3, "LAYERS = 8")
        brief = self.brief(script, edit=EditCheck(size=SIZE, arrived=SIZE, also=also))
        self.applied(brief, repository, {script: SCRIPT.replace("8", str(SIZE)).encode()})

    def test_a_settings_file(self, repository, script):
        settings = repository / "train.yaml"
        settings.write_text("seed: 8\nbatch_size: 8\n")
        brief = self.brief(script, file=settings, line=2, before="batch_size: 8")
        self.applied(brief, repository, {settings: b"seed: 8\nbatch_size: 40\n"})

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"edit": None}, "unchecked: the script was not started so"),
            ({"edit": EditCheck(size=SIZE, arrived=OWN)}, "checked, and not enough"),
            (
                {"following": (Following(name="train_batch_size", number=OWN),)},
                "more than one number has to change: ",
            ),
            ({"before": "--batch-size 8"}, "the size was typed: "),
        ],
    )
    def test_it_is_left_out_where_it_would_not_do(self, script, changes, reason):
        brief = self.brief(script, **changes)
        assert brief.diff is None
        assert brief.unavailable["diff"].startswith(reason)

    def test_it_is_left_out_where_the_file_is_another_by_now(self, script):
        brief = self.brief(script, script=ScriptInfo(path=str(script), digest="0" * 16))
        assert "has changed since the run" in brief.unavailable["diff"]

    def test_it_is_left_out_where_the_answer_is_too_long_with_it(self, script):
        script.write_text(SCRIPT.replace("shuffle=True)", f"shuffle=True)  # {'x' * 600}"))
        assert "longer than the 2000 bytes" in self.brief(script).unavailable["diff"]


def interrupted(*words):
    record, advice = samples.interrupted()
    script = msgspec.structs.replace(record.script, arguments=words)
    command = ("batchadvisor", "run", record.script.path, *words)
    return msgspec.structs.replace(record, script=script, command=command), advice


class TestLength:
    """Whatever is long: what a program acts on stays whole, or is left out with a reason."""

    def test_letters_of_several_bytes(self):
        record, advice = interrupted()
        advice = msgspec.structs.replace(advice, reason="节" * 600, change="节" * 600)
        text = brief_json(record, advice, Path("runs") / "节")
        holds(text)
        assert "--resume" in msgspec.json.decode(text)["next"]

    def test_a_long_command_stays_whole_as_far_as_it_fits(self):
        record, advice = interrupted(*[f"--option{at}=value" for at in range(70)])
        brief = msgspec.json.decode(brief_json(record, advice, Path("runs")))
        assert brief["next"].endswith("--option69=value")

    def test_a_longer_one_is_left_out(self):
        record, advice = interrupted(*[f"--option{at}=value" for at in range(200)])
        text = brief_json(record, advice, Path("runs"))
        holds(text)
        brief = msgspec.json.decode(text)
        assert brief["next"] == ""
        assert "batchadvisor show runs/record.json" in brief["unavailable"]["next"]


class TestCommand:
    def advise(self, *words):
        return CliRunner().invoke(cli, ["advise", *words])

    def test_brief_is_a_line(self):
        done = self.advise("--json=brief", str(STORED))
        assert done.exit_code == 0, done.output
        assert done.output.count("\n") == 1
        holds(done.output)

    def test_json_stays_as_it_is(self):
        answer = msgspec.json.decode(self.advise(str(STORED), "--json").output)
        assert set(answer) == {"record_path", "advice", "record"}

    def test_another_kind_is_said_in_a_line(self):
        done = self.advise("--json=short", str(STORED))
        assert done.exit_code == 2
        assert "--json=brief" in done.output.splitlines()[-1]

    @pytest.mark.parametrize(
        "other", [("--gpus", "all"), ("--dry-run",), ("--device", "cpu:0,cpu:1")]
    )
    def test_a_run_on_several_devices_has_none(self, tmp_path, other):
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        done = CliRunner().invoke(cli, ["run", "--json=brief", *other, str(script)])
        assert "--json=brief is the answer of a run on one device" in str(done.exception)

    def test_what_follows_the_script_is_the_scripts(self, tmp_path):
        done = CliRunner().invoke(cli, ["run", str(tmp_path / "no.py"), "--json=brief"])
        assert "there is no file" in str(done.exception)
