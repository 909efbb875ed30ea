"""What is found below a log directory, without TensorBoard."""

import gzip
import os

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.features.board import board, logdir
from batchadvisor.features.board.view import choose

from . import zoo


def by_name(folder, name=""):
    return {place.entry.name: place for place in logdir.find([(name, folder)], {})}


class TestFind:
    def test_traces_belong_to_the_run_around_them(self, tmp_path):
        zoo.put_record(tmp_path / "run", zoo.CHAR_GPT.read_bytes())
        zoo.cpu_trace(tmp_path / "run/traces/batch_size=0008/w0.1.pt.trace.json.gz")
        zoo.cpu_trace(tmp_path / "other/host.1.pt.trace.json")
        places = by_name(tmp_path)
        assert {name: place.entry.kind for name, place in places.items()} == {
            "run": "run",
            "other": "traces",
        }
        paths = [trace.path for trace in places["run"].entry.traces]
        assert paths == ["traces/batch_size=0008/w0.1.pt.trace.json.gz"]

    def test_the_traces_folder_of_a_run_shows_the_run(self, tmp_path):
        zoo.put_record(tmp_path / "run", zoo.CHAR_GPT.read_bytes())
        zoo.cpu_trace(tmp_path / "run/traces/batch_size=0008/w0.1.pt.trace.json.gz")
        assert by_name(tmp_path / "run/traces").keys() == {"run"}
        zoo.cpu_trace(tmp_path / "elsewhere/traces/a.pt.trace.json")
        assert by_name(tmp_path / "elsewhere/traces").keys() == {"traces"}

    def test_other_json_is_no_trace(self, tmp_path):
        (tmp_path / "settings.json").write_text('{"schemaVersion": 2, "layers": []}')
        (tmp_path / "record.json").write_text('{"score": 1}')
        (tmp_path / "list.json.gz").write_bytes(gzip.compress(b"[1, 2]"))
        (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"[1, 2]" * 100)[:12])
        (tmp_path / ".draft-a.pt.trace.json").write_text('{"traceEvents": []}')
        assert by_name(tmp_path) == {}
        assert not logdir.any_below([("", tmp_path)])
        zoo.cpu_trace(tmp_path / "named" / "anything.json.gz")
        assert by_name(tmp_path).keys() == {"named"}

    @pytest.mark.parametrize("data", [b"", b'{\n "sche', b"\0\0\0\0", b"\xff\xfe"])
    def test_a_record_that_is_broken_is_listed(self, data, tmp_path):
        """To say so: the folder may hold nothing else."""
        (tmp_path / "record.json").write_bytes(data)
        places = by_name(tmp_path)
        assert [place.entry.kind for place in places.values()] == ["run"]
        assert logdir.any_below([("", tmp_path)])
        assert choose(tmp_path) == tmp_path
        shown = board.Board([("", tmp_path)])
        assert "is not a record" in shown.show(shown.entries()[0].key).problem

    def test_a_file_that_grows_is_looked_at_again_and_remembered_once(self, tmp_path):
        heads, path = {}, tmp_path / "later.json"
        path.write_text("")
        assert logdir.find([("", tmp_path)], heads) == []
        zoo.cpu_trace(path)
        for _ in range(3):
            path.write_bytes(path.read_bytes() + b" ")
            assert len(logdir.find([("", tmp_path)], heads)) == 1
        assert len(heads) == 1

    def test_a_loop_of_links_is_walked_once(self, tmp_path):
        zoo.cpu_trace(tmp_path / "a" / "one.pt.trace.json")
        (tmp_path / "a" / "back").symlink_to(tmp_path)
        (tmp_path / "b").symlink_to(tmp_path / "a")
        assert len(logdir.find([("", tmp_path)], {})) == 1

    def test_names_that_are_no_text(self, tmp_path):
        name = os.fsdecode(b"caf\xe9")
        zoo.cpu_trace(tmp_path / name / "one.pt.trace.json")
        (entry,) = [place.entry for place in logdir.find([("", tmp_path)], {})]
        assert entry.name == "caf\ufffd"
        assert msgspec.json.encode(entry)

    def test_versions_change_with_files_and_keys_do_not(self, tmp_path):
        path = zoo.put_record(tmp_path / "run", zoo.CHAR_GPT.read_bytes())
        before = by_name(tmp_path)["run"].entry
        assert by_name(tmp_path)["run"].entry == before
        os.utime(path, ns=(0, 0))
        after = by_name(tmp_path)["run"].entry
        assert (after.key, after.version != before.version) == (before.key, True)

    def test_what_cannot_be_read_is_left_out(self, tmp_path):
        assert by_name(tmp_path / "missing") == {}
        (tmp_path / "dangling.pt.trace.json").symlink_to(tmp_path / "nowhere")
        assert by_name(tmp_path) == {}


class TestRoots:
    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            (("runs", ""), [("", "runs")]),
            (("", "a:/x,/y:z,b"), [("a", "/x"), ("", "/y:z"), ("", "b")]),
            (("gs://bucket/x", ""), []),
            (("", "a:gs://b,c:/d"), [("c", "/d")]),
            (("", ""), []),
        ],
    )
    def test_flags(self, flags, expected):
        assert [(name, str(path)) for name, path in board.roots_of(*flags)] == expected

    def test_names_stand_before(self, tmp_path):
        zoo.cpu_trace(tmp_path / "x" / "one.pt.trace.json")
        assert by_name(tmp_path, "left").keys() == {"left/x"}


class TestBoard:
    def test_a_run_is_read_again_only_when_it_changed(self, tmp_path, monkeypatch):
        zoo.put_record(tmp_path / "run", zoo.CHAR_GPT.read_bytes())
        tab = board.Board([("", tmp_path)])
        key = tab.entries()[0].key
        shown = tab.show(key)
        assert tab.show(key) is shown
        monkeypatch.setattr(tab, "_fresh_s", 0.0)
        os.utime(tmp_path / "run/record.json", ns=(0, 0))
        assert tab.show(key) is not shown

    def test_reading_is_lazy(self, tmp_path, monkeypatch):
        zoo.put_record(tmp_path / "run", zoo.CHAR_GPT.read_bytes())
        zoo.cpu_trace(tmp_path / "t" / "one.pt.trace.json")
        monkeypatch.setattr(board, "_run", None)
        monkeypatch.setattr(board, "_traces", None)
        tab = board.Board([("", tmp_path)])
        assert tab.active()
        assert len(tab.entries()) == 2
        with pytest.raises(TypeError):
            tab.show(tab.entries()[0].key)

    def test_unknown_keys(self, tmp_path):
        zoo.cpu_trace(tmp_path / "t" / "one.pt.trace.json")
        tab = board.Board([("", tmp_path)])
        with pytest.raises(UsageError, match="no such run"):
            tab.show("../t")
        with pytest.raises(UsageError, match="no such trace"):
            tab.trace(tab.entries()[0].key, "one.pt.trace.json")

    def test_a_broken_trace_leaves_the_others(self, tmp_path):
        zoo.cpu_trace(tmp_path / "t" / "good.pt.trace.json")
        (tmp_path / "t" / "bad.pt.trace.json").write_text("{")
        tab = board.Board([("", tmp_path)])
        shown = tab.show(tab.entries()[0].key)
        assert len(shown.analysis.traces) == 1
        assert len(shown.analysis.skipped) == 1
