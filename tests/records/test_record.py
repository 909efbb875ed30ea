"""The folder of a run: its record, those of earlier versions, files that are cut, two writers."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.errors import RunError, UsageError
from batchadvisor.records import SCHEMA_VERSION, SourceLine
from batchadvisor.session.recording.store import (
    RECORD,
    SAMPLES,
    RunStore,
    read_record,
    read_samples,
)

from .full_record import full_record

GOLDEN = sorted((Path(__file__).parents[1] / "data" / "records").glob("schema-*.json"))
NO_TIME = {"median": 0.0, "low": 0.0, "high": 0.0, "num_samples": 9, "confidence": 0.9}


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs" / "one")


@contextmanager
def rewritten(store):
    """A full record is stored, and its JSON changed."""
    store.save(full_record())
    data = json.loads(store.record_path.read_text())
    yield data
    store.record_path.write_text(json.dumps(data))


def changed_at(store, place, value):
    *holders, name = place.split(".")
    with rewritten(store) as data:
        part = data
        for holder in holders:
            part = part[int(holder) if holder.isdecimal() else holder]
        part[name] = value


def pairs_of(*, ranks=(0, 1), micro_batches=1):
    pairs = [{"rank": rank, "compute_s": [0.1] * 9, "step_s": [0.2] * 9} for rank in ranks]
    sizes = [{"batch_size": 8, "micro_batches": micro_batches, "ranks": pairs}]
    return {"world_size": 2, "launcher": "torchrun", "communication": sizes}


def timeline_of(positions, live):
    timeline = {"positions": positions, "live": live, "num_events": 2}
    names = ("batch_size", "peak_bytes", "parameter_bytes", "gradient_bytes", "optimizer_bytes")
    trial = dict.fromkeys((*names, "input_bytes"), 8) | {"timeline": timeline}
    return {"sizes": [{"batch_size": 8, "why": "recommended", "trial": trial}]}


class TestRecord:
    def test_round_trip(self, store):
        record = full_record()
        store.save(record)
        assert read_record(store.folder) == record
        assert read_record(store.record_path) == record

    def test_newer_minor_version_with_unknown_fields_is_read(self, store):
        with rewritten(store) as data:
            data |= {"schema_version": "1.7", "weather": "fine"}
            data["trials"][0]["colour"] = "blue"
            data["device"]["cooling"] = {"water": True}
        expected = msgspec.structs.replace(full_record(), schema_version="1.7")
        assert read_record(store.folder) == expected

    def test_fields_that_an_older_minor_version_lacks_get_their_defaults(self, store):
        with rewritten(store) as data:
            del data["faults"], data["search_s"]
        expected = msgspec.structs.replace(full_record(), faults=(), search_s=0.0)
        assert read_record(store.folder) == expected

    @pytest.mark.parametrize("version", ["2.0", "0.9", "10.0"])
    def test_another_major_version_is_refused(self, store, version):
        # What else changed in it must not matter: the version is looked at first.
        with rewritten(store) as data:
            data |= {"schema_version": version, "trials": "somewhere else"}
        with pytest.raises(UsageError, match=version) as error:
            read_record(store.folder)
        assert error.value.remedy

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            '{"schema_version": 1}',
            '{"schema_version": "1.0"}',
            "nonsense",
            '{"schema_version": "1.1", "x": ' + "[" * 100_000,
            "null",
            "\x00\xff",
            '{"a": NaN}',
        ],
        ids=[
            *("empty", "cut", "list", "number", "nothing else", "word", "brackets without end"),
            *("null", "bytes", "no number"),
        ],
    )
    def test_what_is_no_record_is_refused(self, tmp_path, text):
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(UsageError, match="is not a record") as error:
            read_record(tmp_path)
        assert "\n" not in error.value.what

    @pytest.mark.parametrize(
        ("place", "value", "reason"),
        [
            ("discovery.primary_loader", 3, "loader 3, which is steered"),
            ("trials.0.turns", {"sizes": [8, 16], "step_s": [[0.1, 0.2], [0.1]]}, "2 sizes"),
            ("trials.0.turns", {"sizes": [8, 16], "step_s": [[1, 2, 3]]}, "2 sizes"),
            ("trials.0.turns", {"sizes": [0, 16], "step_s": []}, "turns.sizes"),
            ("trials.0.batch_size", 0, "Expected `int` >= 1"),
            ("discovery.native_batch_size", -1, "native_batch_size"),
            ("trials.0.step_s", NO_TIME, "trial 0: `step_s` is no interval above 0"),
            ("trials.0.samples_per_s", NO_TIME, "trial 0: `samples_per_s` is no interval"),
            ("trials.0.memory.peak_bytes", 10**19, "memory"),
            ("distribution", pairs_of(ranks=(0, 0)), "a rank stands twice"),
            ("distribution", pairs_of(micro_batches=0), "Expected `int` >= 1"),
            ("explained", timeline_of([], {}), "has no position"),
            ("explained", timeline_of([0, 1], {"parameters": [8]}), "2 positions"),
        ],
    )
    def test_what_does_not_fit_together_is_no_record(self, store, place, value, reason):
        """Else advice on it would end in a traceback."""
        changed_at(store, place, value)
        with pytest.raises(UsageError, match=f"is not a record: .*{reason}"):
            read_record(store.folder)

    @pytest.mark.parametrize(
        ("place", "value", "said"),
        [
            ("trials.0.step_s.high", 1e308, r"trials\[0\].step_s.high is 1e\+308"),
            ("trials.0.samples_per_s.high", 1e308, r"samples_per_s.high is 1e\+308"),
            ("trials.0.memory.peak_bytes", -5, r"trials\[0\].memory.peak_bytes is -5"),
            ("trials.0.elapsed_s", 1e308, r"trials\[0\].elapsed_s is 1e\+308"),
            ("trials.0.batch_size", 10**18, "batch_size"),
            ("trials.0.steps_elsewhere", 1e308, "steps_elsewhere"),
            ("device.capacity_bytes", -1, "device.capacity_bytes is -1"),
            ("discovery.native_step_s", 1e308, "native_step_s"),
            ("discovery.loaders.0.num_samples", 10**18, "num_samples is 1000000000000000000"),
            ("discovery.loaders.0.dataset_samples", -1, "dataset_samples"),
            ("elapsed_s", -3.0, "elapsed_s is -3.0"),
            ("discovery.optimizers.0.learning_rate", 1e308, "learning_rate is 1e"),
        ],
    )
    def test_numbers_that_nothing_can_have_measured(self, store, place, value, said):
        changed_at(store, place, value)
        with pytest.raises(UsageError, match=f"is not a record: .*{said}.*nothing can have"):
            read_record(store.folder)

    def test_no_steps_and_some_slow_ones(self, store):
        step = {"num_steps": 0, "num_clean": 0, "num_disturbed": 0, "num_slow": 2, "slow_s": 1.0}
        changed_at(store, "trials.0.quality", step)
        assert advise(read_record(store.folder)).recommended is not None

    def test_text_that_is_not_utf_8_is_refused(self, store):
        store.save(full_record())
        path = store.folder / RECORD
        path.write_bytes(path.read_bytes().replace(b'"finished"', b'"f\xe9"'))
        with pytest.raises(UsageError, match="is not a record"):
            read_record(store.folder)

    def test_missing_file(self, tmp_path):
        with pytest.raises(UsageError, match="cannot read a record"):
            read_record(tmp_path / "nowhere")


class TestGolden:
    """Records as earlier versions wrote them stay readable, and advice can be made from them."""

    def test_each_schema_version_has_one(self):
        assert f"schema-{SCHEMA_VERSION}" in [one.stem for one in GOLDEN]

    @pytest.mark.parametrize("path", GOLDEN, ids=lambda one: one.stem)
    def test_it_gives_advice(self, path):
        record = read_record(path)
        advice = advise(record)
        assert advice.recommended.batch_size in {one.batch_size for one in record.trials}
        assert advice.sureness == "not confirmed"  # the fresh process read 0.62 of the search
        next_trial(record)

    def test_schema_1_0(self):
        record = read_record(GOLDEN[0])
        assert [one.batch_size for one in record.trials] == [2, 16, 64, 256, 1024, 256, 208]
        assert all(one.ran for one in record.trials)
        assert record.discovery.primary.place == SourceLine(file="plain.py", line=12)
        advice = advise(record)
        assert (advice.recommended.batch_size, advice.native.batch_size) == (256, 16)
        assert advice.change == "plain.py:12  batch_size=16 → batch_size=256"

    @pytest.mark.parametrize("path", GOLDEN, ids=lambda one: one.stem)
    def test_nothing_of_it_is_lost(self, path):
        """Every value of the file is in what was read; newer fields may stand beside it."""
        written = json.loads(msgspec.json.encode(read_record(path)))
        assert missing(json.loads(path.read_text()), written) == []
        assert missing({"trials": [{"colour": 1}]}, written) == [".trials: lengths"]


def missing(old, new, where=""):
    """Paths of the values in `old` that `new` does not have."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            path
            for key, value in old.items()
            for path in (missing(value, new[key], f"{where}.{key}") if key in new else [key])
        ]
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return [f"{where}: lengths"]
        pairs = enumerate(zip(old, new, strict=True))
        return [path for at, (a, b) in pairs for path in missing(a, b, f"{where}[{at}]")]
    return [] if old == new else [where]


class TestStore:
    def test_save_replaces_whole_files(self, store):
        store.save(full_record())
        store.save(msgspec.structs.replace(full_record(), state="interrupted"))
        assert read_record(store.folder).state == "interrupted"
        assert [one.name for one in store.folder.iterdir()] == [RECORD]

    def test_a_failed_save_leaves_the_old_record(self, store, fill_disk):
        store.save(full_record())

        fill_disk()
        with pytest.raises(RunError, match="No space left"):
            store.save(msgspec.structs.replace(full_record(), state="failed"))
        assert read_record(store.folder) == full_record()
        assert [one.name for one in store.folder.iterdir()] == [RECORD]

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
        store.log_path.with_name("script-rank1.log").write_text("what a further rank said")
        store.discard()
        assert list(tmp_path.iterdir()) == []

    def test_discard_keeps_what_was_there(self, tmp_path):
        (tmp_path / "keep.txt").write_text("mine")
        RunStore(tmp_path).discard()
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

    def test_a_process_that_was_forked_meanwhile(self, store):
        """A loader's workers outlive a run; the folder is free for the next one all the same."""
        parent, child = os.pipe()
        worker = os.fork()
        if not worker:
            os.close(child)
            os.read(parent, 1)
            os._exit(0)
        try:
            store.close()
            RunStore(store.folder).close()
        finally:
            os.close(child)
            os.waitpid(worker, 0)
            os.close(parent)

    def test_what_a_forked_process_lets_go_of_stays_locked(self, store):
        worker = os.fork()
        if not worker:
            store.close()
            os._exit(0)
        os.waitpid(worker, 0)
        with pytest.raises(UsageError, match="another run is writing"):
            RunStore(store.folder)

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
        folder = tmp_path / ("x" * 300)
        with pytest.raises(UsageError, match=r"cannot write into .*: File name too long"):
            RunStore(folder)
        with pytest.raises(UsageError, match=r"cannot read a record from .*: File name too long"):
            read_record(folder)
        assert list(tmp_path.iterdir()) == []
