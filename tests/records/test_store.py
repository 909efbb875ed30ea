"""The folder of a run: files that are cut, disks that are full, two writers."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.errors import RunError, UsageError
from batchadvisor.session.recording.store import (
    RECORD,
    SAMPLES,
    RunStore,
    read_record,
    read_samples,
)

from .full_record import full_record


class TestStore:
    def test_save_replaces_whole_files(self, store):
        store.save(full_record())
        store.save(msgspec.structs.replace(full_record(), state="interrupted"))
        assert read_record(store.folder).state == "interrupted"
        assert [one.name for one in store.folder.iterdir()] == [RECORD]

    def test_a_failed_save_leaves_the_old_record(self, store, monkeypatch):
        store.save(full_record())

        def full_disk(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full_disk)
        with pytest.raises(RunError, match="No space left"):
            store.save(msgspec.structs.replace(full_record(), state="failed"))
        assert read_record(store.folder) == full_record()
        assert [one.name for one in store.folder.iterdir()] == [RECORD]

    def test_a_cut_last_line_is_left_out(self, store):
        store.append([{"trial": 0, "step_s": 0.1}, {"trial": 0, "step_s": 0.2}])
        path = store.folder / SAMPLES
        path.write_bytes(path.read_bytes()[:-7])
        assert read_samples(store.folder) == [{"trial": 0, "step_s": 0.1}]

    def test_a_cut_in_every_place_keeps_all_lines_before(self, store):
        rows = [{"trial": n, "text": "é\n"} for n in range(3)]
        store.append(rows)
        path = store.folder / SAMPLES
        whole = path.read_bytes()
        for cut in range(len(whole)):
            path.write_bytes(whole[:cut])
            read = read_samples(store.folder)
            assert read == rows[: len(read)]
            assert len(read) >= whole[:cut].count(b"\n")

    def test_append_after_a_cut_line(self, store):
        store.append([{"trial": 0}, {"trial": 1}])
        path = store.folder / SAMPLES
        path.write_bytes(path.read_bytes()[:-3])
        store.append([{"trial": 2}])
        assert read_samples(store.folder) == [{"trial": 0}, {"trial": 2}]

    def test_no_samples(self, store):
        store.append([])
        assert read_samples(store.folder) == []
        assert list(store.folder.iterdir()) == []

    def test_discard_removes_what_it_made(self, tmp_path):
        store = RunStore(tmp_path / "runs" / "one")
        store.save(full_record())
        store.append([{"trial": 0}])
        store.discard()
        assert list(tmp_path.iterdir()) == []

    def test_discard_keeps_what_was_there(self, tmp_path):
        (tmp_path / "keep.txt").write_text("mine")
        store = RunStore(tmp_path)
        store.discard()
        assert [one.name for one in tmp_path.iterdir()] == ["keep.txt"]

    def test_discard_leaves_nothing_in_an_empty_folder_that_was_there(self, tmp_path):
        """Else a second try would be told that the folder holds a run already."""
        store = RunStore(tmp_path)
        store.save(full_record())
        store.log_path.write_text("what the script said")
        store.discard()
        assert list(tmp_path.iterdir()) == []

    def test_discard_keeps_the_record_of_a_folder_that_was_there(self, store):
        store.save(full_record())
        store.close()
        RunStore(store.folder).discard()
        assert read_record(store.folder) == full_record()

    def test_two_writers(self, store):
        store.save(full_record())
        with pytest.raises(UsageError, match="another run is writing"):
            RunStore(store.folder)
        assert read_record(store.folder) == full_record()
        store.close()
        RunStore(store.folder).close()

    def test_folder_below_a_file(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cannot write into"):
            RunStore(tmp_path / "file" / "run")
        assert [one.name for one in tmp_path.iterdir()] == ["file"]

    def test_a_folder_to_go_on_in_that_cannot_be_written(self, store, monkeypatch):
        """Another folder is no way out there."""
        store.save(full_record())
        store.close()

        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "touch", refuse)
        with pytest.raises(UsageError, match="Permission denied") as error:
            RunStore(store.folder)
        assert error.value.remedy.startswith("Make it writable")
        assert store.record_path.exists()

    def test_a_name_too_long(self, tmp_path):
        with pytest.raises(UsageError, match=r"cannot write into .*: File name too long"):
            RunStore(tmp_path / ("x" * 300) / "run")
        with pytest.raises(UsageError, match=r"cannot read a record from .*: File name too long"):
            read_record(tmp_path / ("x" * 300))
        assert list(tmp_path.iterdir()) == []
