"""Records on disk: whole round trips, other schema versions, cut files, golden records."""

import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.search import next_trial
from batchadvisor.errors import RunError, UsageError
from batchadvisor.records import (
    SCHEMA_VERSION,
    BatchSizeSource,
    Counters,
    DeviceInfo,
    Discovery,
    Fault,
    FileTouched,
    Goal,
    KernelTime,
    LoaderInfo,
    Memory,
    NormLayers,
    OperatorTime,
    OptimizerInfo,
    Profile,
    RunRecord,
    ScriptInfo,
    SourceLine,
    Spread,
    TailCheck,
    Trial,
    Versions,
)
from batchadvisor.session.store import RECORD, SAMPLES, RunStore, read_record, read_samples

GOLDEN = sorted((Path(__file__).parent / "data" / "records").glob("schema-*.json"))
SPREAD = Spread(median=0.2, low=0.19, high=0.22, num_samples=9, confidence=0.96)
NO_TIME = {"median": 0.0, "low": 0.0, "high": 0.0, "num_samples": 9, "confidence": 0.9}
TIME = {"median": 0.1, "low": 0.1, "high": 0.1, "num_samples": 9, "confidence": 0.9}
PLACE = SourceLine(file="train.py", line=7)


def full_record():
    """A record with every kind of struct in it and no field left at its default where it can."""
    loader = LoaderInfo(
        ordinal=0,
        place=PLACE,
        batch_size=16,
        num_samples=1000,
        drop_last=True,
        num_workers=2,
        sampler="RandomSampler",
        iterable=False,
        steered="exact",
        trains=True,
        source=BatchSizeSource(
            place=PLACE,
            before="batch_size=16",
            template="batch_size={}",
            option="--batch-size",
        ),
    )
    discovery = Discovery(
        loaders=(loader,),
        optimizers=(
            OptimizerInfo(
                ordinal=0,
                place=None,
                name="AdamW",
                learning_rate=1e-3,
                num_parameters=12,
                trains=True,
            ),
        ),
        primary_loader=0,
        native_batch_size=16,
        micro_batches=4,
        parameter_device="cuda:0",
        num_parameters=12,
        norm_layers=NormLayers(batch_norm=3),
        setup_s=4.5,
        native_step_s=0.1,
        unavailable={"norm_layers": "not counted"},
    )
    trial = Trial(
        ordinal=0,
        worker=0,
        batch_size=16,
        kind="timed",
        purpose="confirm",
        outcome="ok",
        arrived_batch_size=16,
        size_proof="shape",
        micro_batches=4,
        num_warmup_steps=3,
        step_s=SPREAD,
        samples_per_s=SPREAD,
        input_wait_s=SPREAD,
        memory=Memory(peak_bytes=10**9, peak_source="allocator", num_alloc_retries=1),
        profile=Profile(
            trace="traces/a.json",
            num_steps=3,
            busy_pct=90.0,
            operators=(OperatorTime(name="aten::mm", num_calls=3, self_s=0.1),),
            kernels=(KernelTime(name="gemm", num_calls=3, total_s=0.1, occupancy_pct=40.0),),
        ),
        counters=Counters(num_samples=5, power_w=200.0, throttle_reasons=("power cap",)),
        tail=TailCheck(num_samples=8, outcome="ok", num_non_finite=2),
        elapsed_s=3.0,
        doubts=("high load: 9",),
        unavailable={"step_s": "an example"},
    )
    return RunRecord(
        state="finished",
        started_at="2026-11-20T00:00:00+00:00",
        command=("batchadvisor", "run", "train.py"),
        script=ScriptInfo(path="train.py", arguments=("--wörter", "ß")),
        goal=Goal(kind="memory", sizes=(8, 16), max_batch=64, start=8),
        versions=Versions(batchadvisor="0.1.0", python="3.11", torch="2.9", cuda="12.8"),
        device=DeviceInfo(
            kind="cuda",
            name="H200",
            index=0,
            uuid="GPU-1",
            total_bytes=10**11,
            capacity_bytes=10**11,
            capacity_source="free memory",
        ),
        discovery=discovery,
        trials=(trial,),
        faults=(Fault(outcome="hung", detail="silence", worker=1, log="script.log"),),
        files=(FileTouched(path="out.txt", action="write"),),
        doubts=("busy",),
        stop_reason="all is measured",
        num_workers_started=2,
        elapsed_s=10.0,
        search_s=5.0,
    )


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs" / "one")


def rewritten(store, **changes):
    """The stored record with some of its JSON changed."""
    data = json.loads(store.record_path.read_text())
    data.update(changes)
    store.record_path.write_text(json.dumps(data))


class TestRecord:
    def test_round_trip(self, store):
        record = full_record()
        store.save(record)
        assert read_record(store.folder) == record
        assert read_record(store.record_path) == record

    def test_it_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            full_record().trials[0].batch_size = 5

    def test_brackets_without_end_are_no_record(self, store):
        store.record_path.write_text('{"schema_version": "1.1", "x": ' + "[" * 100_000)
        with pytest.raises(UsageError, match="is not a record"):
            read_record(store.folder)

    def test_newer_minor_version_with_unknown_fields_is_read(self, store):
        store.save(full_record())
        data = json.loads(store.record_path.read_text())
        data["trials"][0]["colour"] = "blue"
        data["device"]["cooling"] = {"water": True}
        rewritten(
            store,
            schema_version="1.7",
            weather="fine",
            trials=data["trials"],
            device=data["device"],
        )
        assert read_record(store.folder) == msgspec.structs.replace(
            full_record(), schema_version="1.7"
        )

    def test_fields_that_an_older_minor_version_lacks_get_their_defaults(self, store):
        store.save(full_record())
        data = json.loads(store.record_path.read_text())
        del data["faults"], data["search_s"]
        store.record_path.write_text(json.dumps(data))
        assert read_record(store.folder) == msgspec.structs.replace(
            full_record(), faults=(), search_s=0.0
        )

    @pytest.mark.parametrize("version", ["2.0", "0.9", "10.0"])
    def test_another_major_version_is_refused(self, store, version):
        store.save(full_record())
        # What else changed in it must not matter: the version is looked at first.
        rewritten(store, schema_version=version, trials="somewhere else")
        with pytest.raises(UsageError, match=version) as error:
            read_record(store.folder)
        assert error.value.remedy

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": "1.0"}', "nonsense"]
    )
    def test_what_is_no_record_is_refused(self, tmp_path, text):
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(UsageError, match="is not a record"):
            read_record(tmp_path)

    @pytest.mark.parametrize(
        ("struct", "changes", "reason"),
        [
            ("discovery", {"primary_loader": 3}, "loader 3, which is steered"),
            ("trial", {"turns": {"sizes": [8, 16], "step_s": [[0.1, 0.2], [0.1]]}}, "2 sizes"),
            ("trial", {"turns": {"sizes": [8, 16], "step_s": [[1, 2, 3]]}}, "2 sizes"),
            ("trial", {"turns": {"sizes": [0, 16], "step_s": []}}, "turns.sizes"),
            ("trial", {"batch_size": 0}, "Expected `int` >= 1"),
            ("discovery", {"native_batch_size": -1}, "native_batch_size"),
            ("trial", {"step_s": NO_TIME}, "trial 0: `step_s` is no interval above 0"),
            ("trial", {"samples_per_s": NO_TIME}, "trial 0: `samples_per_s` is no interval"),
            (
                "trial",
                {"memory": {"peak_bytes": -5, "peak_source": "x"}},
                r"trials\[0\]\.memory\.peak_bytes is -5",
            ),
            ("trial", {"memory": {"peak_bytes": 10**19, "peak_source": "x"}}, "memory"),
            ("trial", {"elapsed_s": 1e308}, r"trials\[0\]\.elapsed_s is 1e\+308"),
            ("trial", {"step_s": {**TIME, "high": 1e308}}, r"step_s\.high"),
            ("trial", {"samples_per_s": {**TIME, "high": 1e308}}, r"samples_per_s\.high"),
            ("trial", {"batch_size": 10**18}, r"batch_size"),
            ("trial", {"steps_elsewhere": 1e308}, "steps_elsewhere"),
            ("discovery", {"native_step_s": 1e308}, "native_step_s"),
            ("loader", {"num_samples": 10**18}, r"loaders\[0\]\.num_samples"),
            ("loader", {"dataset_samples": -1}, "dataset_samples"),
            ("optimizer", {"learning_rate": 1e308}, "learning_rate"),
        ],
    )
    def test_what_does_not_fit_together_is_no_record(self, store, struct, changes, reason):
        """Else advice on it would end in a traceback."""
        store.save(full_record())
        data = json.loads(store.record_path.read_text())
        places = {
            "discovery": data["discovery"],
            "loader": data["discovery"]["loaders"][0],
            "optimizer": data["discovery"]["optimizers"][0],
            "trial": data["trials"][0],
        }
        places[struct].update(changes)
        store.record_path.write_text(json.dumps(data))
        with pytest.raises(UsageError, match=f"is not a record: .*{reason}"):
            read_record(store.folder)

    @pytest.mark.parametrize(
        ("path", "value", "said"),
        [
            ("trials.0.step_s.high", 1e308, r"trials\[0\].step_s.high is 1e\+308"),
            ("trials.0.samples_per_s.high", 1e308, r"samples_per_s.high is 1e\+308"),
            ("trials.0.memory.peak_bytes", -5, r"trials\[0\].memory.peak_bytes is -5"),
            ("device.capacity_bytes", -1, "device.capacity_bytes is -1"),
            ("discovery.loaders.0.num_samples", 10**18, "num_samples is 1000000000000000000"),
            ("elapsed_s", -3.0, "elapsed_s is -3.0"),
            ("discovery.optimizers.0.learning_rate", 1e308, "learning_rate is 1e"),
        ],
    )
    def test_numbers_that_nothing_can_have_measured(self, store, path, value, said):
        store.save(full_record())
        data = json.loads(store.record_path.read_text())
        *holders, name = path.split(".")
        place = data
        for one in holders:
            place = place[int(one) if one.isdecimal() else one]
        place[name] = value
        store.record_path.write_text(json.dumps(data))
        with pytest.raises(UsageError, match=f"is not a record: .*{said}.*nothing can have"):
            read_record(store.folder)

    def test_text_that_is_not_utf_8_is_refused(self, store):
        store.save(full_record())
        path = store.folder / RECORD
        path.write_bytes(path.read_bytes().replace(b'"finished"', b'"f\xe9"'))
        with pytest.raises(UsageError, match="is not a record"):
            read_record(store.folder)

    def test_missing_file(self, tmp_path):
        with pytest.raises(UsageError, match="cannot read a record"):
            read_record(tmp_path / "nowhere")


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


class TestGolden:
    """Records as they were written; they stay readable, and advice can be made from them."""

    def test_each_schema_version_has_one(self):
        names = [one.stem for one in GOLDEN]
        assert f"schema-{SCHEMA_VERSION}" in names

    @pytest.mark.parametrize("path", GOLDEN, ids=lambda one: one.stem)
    def test_it_gives_advice(self, path):
        record = read_record(path)
        advice = advise(record)
        assert advice.recommended.batch_size in {one.batch_size for one in record.trials}
        assert advice.sureness == "not confirmed"  # the fresh process read 0.62 of the search
        assert next_trial(record) == next_trial(record)

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
