"""An estimate begins with its answer; equal rows are one, and its JSON is short by default."""

import json

import msgspec
import pytest
from batchadvisor.features.estimate.estimate import estimate_json
from batchadvisor.features.estimate.estimate import estimate_text as terminal
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.features.estimate.records import Estimate, FittedGpu
from batchadvisor.features.estimate.words.fits import headline
from batchadvisor.reports.blocks import Grid
from batchadvisor.reports.markdown.document import render as markdown
from batchadvisor.units import GIB

from .explained_samples import estimate

SIZES = {"T4": 16, "V100-16GB": 16, "V100-32GB": 32, "A100-40GB": 40, "H200": 141}


def of(ranges):
    """An estimate whose script has batches of 32, with low and high for each GPU."""
    known = estimate()
    gpus = tuple(
        FittedGpu(name=name, memory_bytes=SIZES[name] * GIB, low=low, high=high)
        for name, (low, high) in ranges.items()
    )
    (forecast,) = known.forecasts
    return msgspec.structs.replace(known, forecasts=(msgspec.structs.replace(forecast, gpus=gpus),))


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        (
            {"T4": (4, 8), "V100-32GB": (32, 40), "H200": (300, 310)},
            "Batch size 32 should fit whole on V100-32GB and larger",
        ),
        (
            {"T4": (8, 40), "V100-16GB": (9, 41), "H200": (300, 310)},
            "Batch size 32 should fit whole on H200, may fit on T4 and V100-16GB",
        ),
        (
            {"T4": (64, 70), "V100-16GB": (64, 70), "H200": (300, 310)},
            "Batch size 32 should fit whole on T4 and V100-16GB and larger",
        ),
        ({"T4": (0, 0), "H200": (8, 9)}, "Batch size 32 should not fit on any of these GPUs"),
        ({"T4": (None, 9)}, "Batch size 32 should not fit on T4"),
        # A larger GPU on which it does not fit for sure: each that it fits on is named.
        (
            {"V100-32GB": (32, 40), "A100-40GB": (31, 40), "H200": (300, 310)},
            "Batch size 32 should fit whole on V100-32GB and H200, may fit on A100-40GB",
        ),
    ],
)
def test_it_begins_with_the_answer(ranges, said):
    answer = of(ranges)
    assert headline(answer) == said
    page = terminal(answer, "batchadvisor run train.py", width=100, color=False)
    assert page.strip().splitlines()[0] == said
    assert build_estimate(answer).headline == said


def test_equal_rows_are_one():
    answer = of({"T4": (4, 8), "V100-32GB": (60_000, 60_000), "H200": (60_000, 70_000)})
    table = next(each.table for each in build_estimate(answer).walk() if isinstance(each, Grid))
    assert [row.cells[:3] for row in table.rows] == [
        ("T4", "16.00 GiB", "4 to 8"),
        ("V100-32GB, H200", "32.00 GiB to 141.00 GiB", "all 60000"),
    ]
    assert "V100-32GB, H200" in markdown(build_estimate(answer))
    page = terminal(answer, "batchadvisor run train.py", width=100, color=False)
    (line,) = [line for line in page.splitlines() if "V100-32GB, H200" in line]
    assert line.endswith("all 60000")


def test_json_has_what_the_own_step_is_made_of():
    answer = estimate()
    brief, whole = (json.loads(estimate_json(answer, everything=all_)) for all_ in (False, True))
    for shown, every in zip(
        brief["forecasts"][0]["trials"], whole["forecasts"][0]["trials"], strict=True
    ):
        assert shown["peak_bytes"] == every["peak_bytes"]
        assert shown["at_peak"] == every["at_peak"]
        assert shown["timeline"] is None
        assert every["timeline"] is not None
        own = shown["batch_size"] == answer.batch_size
        assert bool(shown["modules"]) == own
        assert every["modules"]
    assert msgspec.json.decode(estimate_json(answer, everything=True), type=Estimate) == answer
