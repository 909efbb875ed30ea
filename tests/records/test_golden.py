"""Golden records: written by earlier versions, read by this one."""

import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.records import SCHEMA_VERSION, SourceLine
from batchadvisor.session.recording.store import read_record

GOLDEN = sorted((Path(__file__).parents[1] / "data" / "records").glob("schema-*.json"))


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
