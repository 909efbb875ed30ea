"""Repair makes a file valid and changes nothing else."""

import gzip
import json
import shutil
import stat

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.trace import chunks
from batchadvisor.probes.trace.damaged import mend
from batchadvisor.probes.trace.reader import read_trace
from batchadvisor.probes.trace.repair import repair

GOOD = '{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1.25, "dur": 2}'
QUOTES = GOOD.replace('"op"', '"f({"a": "b"})(1): run"')


def document(*events, head='{"schemaVersion": 1,\n "traceEvents": [\n', tail="\n],\n"):
    return head + ",\n".join(events) + tail + ' "traceName": "x"}\n'


@pytest.mark.parametrize(
    "name",
    [
        "small/cpu_torch213_dataloader.pt.trace.json.gz",
        "v100_torch18_gpu_metrics_input.json",
        "h100_ddp8_nanogpt_compile/rank0.json.gz",
        "v100_torch19_resnet50_workers0.pt.trace.json.gz",
    ],
)
def test_recorded_valid_files_stay(recorded, tmp_path, name):
    path = tmp_path / name.rpartition("/")[2]
    shutil.copyfile(recorded / name, path)
    before = path.stat()
    assert repair(path) == 0
    assert path.read_bytes() == (recorded / name).read_bytes()
    assert path.stat().st_ino == before.st_ino
    assert list(tmp_path.iterdir()) == [path]


def test_recorded_file_of_torch_2_13(recorded, tmp_path):
    source_path = recorded / "small" / "malformed_torch213_unescaped_quotes.json"
    path = tmp_path / "t.json"
    shutil.copyfile(source_path, path)
    path.chmod(0o640)
    assert repair(path) == 1
    events = json.loads(path.read_text())["traceEvents"]
    assert len(events) == 49
    assert '{"device": "cpu", "dtype": "float32"}(1): run' in {e["name"] for e in events}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert repair(path) == 0
    assert not read_trace(path).losses.any


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_only_the_broken_event_changes(write, name):
    path = write(document(GOOD, QUOTES, GOOD), name)
    assert repair(path) == 1
    text = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    events = json.loads(text)["traceEvents"]
    assert [e["name"] for e in events] == ["op", 'f({"a": "b"})(1): run', "op"]
    assert text.decode().count(GOOD) == 2
    assert json.loads(text)["traceName"] == "x"


def test_not_a_number(write):
    args = '"args": {"a": NaN, "b": -Infinity, "c": N/A, "d": "NaN"}'
    path = write(document(f"{GOOD[:-1]}, {args}}}"))
    assert repair(path) == 1
    (event,) = json.loads(path.read_text())["traceEvents"]
    assert event["args"] == {"a": None, "b": None, "c": None, "d": "NaN"}


@pytest.mark.parametrize(
    ("text", "repaired", "kept"),
    [
        (document(GOOD, head='{"host": "a "quoted" name",\n "traceEvents": ['), 0, 1),
        (document(GOOD, tail='],\n "note": "say "hi"",'), 0, 1),
        (document(GOOD, GOOD).replace("},\n{", "},,\n{"), 0, 2),
        (document(GOOD, GOOD, GOOD)[:-80], 1, 2),
        (f"[{GOOD}, {QUOTES}", 1, 2),
    ],
    ids=["header", "footer", "double commas", "unfinished", "unfinished list"],
)
def test_a_damaged_document_becomes_a_valid_one(write, text, repaired, kept):
    path = write(text)
    assert repair(path) == repaired
    content = json.loads(path.read_text())
    events = content if text.startswith("[") else content["traceEvents"]
    assert events[0] == json.loads(GOOD)
    assert len(events) == kept


def test_many_chunks(write, monkeypatch):
    monkeypatch.setattr(chunks, "PIECE", 1000)
    monkeypatch.setattr(chunks, "_CHUNK", 3000)
    path = write(document(*[GOOD, QUOTES, GOOD, GOOD] * 200))
    assert repair(path) == 200
    assert len(json.loads(path.read_text())["traceEvents"]) == 800


@pytest.mark.parametrize("content", ["", "no trace", '{"traceEvents": [{"ph": "X", "nam'])
def test_what_is_no_trace_stays(write, content):
    path = write(content)
    with pytest.raises(UsageError):
        repair(path)
    assert path.read_text() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (r'"C:\Users\new"', r"C:\Users\new"),
        (r'"tab\there"', "tab\there"),
        ('"a"b"', 'a"b'),
        ('"raw\nline"', "raw\nline"),
        (r'"half \ud83d pair"', r"half \ud83d pair"),
        (r'"whole \ud83d\ude00"', "whole \U0001f600"),
        ('""', ""),
    ],
)
def test_strings(broken, name):
    mended = mend(GOOD.replace('"op"', broken))
    assert json.loads(mended)["name"] == name


@pytest.mark.parametrize("event", ["", "{", "{}}", "[]", '{"a": [}', GOOD[:-1], '{"name": "x'])
def test_what_cannot_be_mended(event):
    assert mend(event) is None
