"""Numbers that have to change with the batch size."""

import json

import msgspec
import pytest
from batchadvisor.advisor.explain.change import change
from batchadvisor.probes.source.following import Told, find_dataset_size, find_whole
from batchadvisor.records import BatchSizeSource, Following, SourceLine

from ...on_paper import discovery_of, record_of

CONFIG = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
}


class Streaming:
    """As StreamingDataset: it shares its samples out by the batch size."""

    def __init__(self, batch_size):
        self.batch_size = batch_size


class Shards(Streaming):
    """The user's own."""


@pytest.mark.parametrize("in_script", [False, True])
def test_deepspeed_names_both_numbers(tmp_path, in_script):
    path = tmp_path / ("train.py" if in_script else "ds.json")
    path.write_text(("config = " if in_script else "") + json.dumps(CONFIG, indent=2))
    settings, files = ([], [str(path)]) if in_script else ([(path, "ds.json")], [])
    whole = find_whole(4, 2, settings, files)
    assert (whole.name, whole.number, whole.source.place.line) == ("train_batch_size", 32, 2)
    assert find_whole(8, 2, settings, files) is None  # not the size in use
    assert find_whole(4, 3, settings, files) is None  # nor the accumulation
    record = record_of(discovery=discovery_of(4, micro_batches=2, following=(whole,)))
    said = change(record, 16, None)
    assert '"train_batch_size": 32 → "train_batch_size": 128' in said
    assert "micro-batch x accumulation x ranks, 16 x 2 x 4" in said
    assert "train_batch_size" not in change(record, 8, 1)  # 8 x 1 x 4 is what it says


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Shards(batch_size=4)", "batch_size=4 → batch_size=16"),
        ("Shards(batch_size=args.batch)", "batch_size=args.batch has to be the same number"),
        ("Shards(4)", "Shards(batch_size=) 4 → 16"),
    ],
)
def test_a_dataset_that_is_told_the_size(tmp_path, written, said):
    script = tmp_path / "train.py"
    script.write_text(f"data = {written}\n")
    found = find_dataset_size(Told.of(Shards(4)), 4, [str(script)])
    record = record_of(discovery=discovery_of(4, following=(found,)))
    assert said in change(record, 16, None)
    assert find_dataset_size(Told.of(Shards(8)), 4, [str(script)]) is None
    assert find_dataset_size(Told.of([]), 4, [str(script)]) is None


SHARED = Following(
    name="batch_size",
    number=16,
    source=BatchSizeSource(
        place=SourceLine(file="train.py", line=3), before="batch_size=16", template="batch_size={}"
    ),
    is_shared=True,
)


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        (
            SHARED,
            "train.py:3  batch_size=16 → batch_size=64 (of all 4 ranks, 16 of each)",
        ),
        (
            msgspec.structs.replace(SHARED, source=None, name="Mine's batch_size"),
            "train.py:7  Mine's batch_size=16 → 64 (of all 4 ranks, 16 of each)",
        ),
    ],
)
def test_a_size_that_ranks_share(shared, said):
    """Sizes are those of a rank; the script's own line names that of all together."""
    record = record_of(discovery=discovery_of(4, following=(shared,)))
    assert change(record, 16, None) == said
    assert change(record, 4, None) == "nothing to change"


def test_nothing_follows():
    record = record_of(discovery=discovery_of(4))
    assert "and with it" not in change(record, 16, None)
    assert record.discovery.following == ()
    assert Following(name="train_batch_size", number=8).source is None
