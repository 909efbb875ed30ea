"""Records on disk: whole round trips, other schema versions, what is no record."""

import json

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.session.recording.store import RECORD, read_record

from .full_record import full_record

NO_TIME = {"median": 0.0, "low": 0.0, "high": 0.0, "num_samples": 9, "confidence": 0.9}
TIME = {"median": 0.1, "low": 0.1, "high": 0.1, "num_samples": 9, "confidence": 0.9}


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
