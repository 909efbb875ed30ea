"""Each figure for a GPU is called what it is; what was compared on a CPU is in the range."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.features.estimate.command import estimate as command
from batchadvisor.features.estimate.estimate import estimate_json
from batchadvisor.features.estimate.estimate import estimate_text as terminal
from batchadvisor.features.estimate.fit.forecast import assumptions
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.features.estimate.records import (
    HARDLY_CHECKED,
    Estimate,
    FittedGpu,
    Forecast,
    StepBound,
    TooSmall,
)
from batchadvisor.features.estimate.words import headline
from batchadvisor.records import RunRecord, Variant
from batchadvisor.reports.blocks import Grid, Paragraph
from batchadvisor.reports.html.document import render as html
from batchadvisor.reports.markdown.document import render as markdown
from batchadvisor.units import GIB, MIB
from msgspec.structs import replace

from .explained_samples import estimate, step

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
GPUS = ("Card-80GB", "Card-8GB")
CHAR_GPT = ROOT / "tests/data/h100/char_gpt.json.gz"
WORKSPACES = 2 * 32 * MIB
TABLES_OF_GPUS = 4
"""As written, sharded, of another length, bounds."""


def forecast(**variant):
    return Forecast(
        variant=Variant(**variant),
        trials=(step(2), step(32), step(128)),
        fixed_bytes=200 * MIB,
        sample_bytes=6 * MIB,
        gpus=(
            FittedGpu(name=GPUS[0], memory_bytes=80 * GIB, low=165, high=186),
            FittedGpu(name=GPUS[1], memory_bytes=8 * GIB, low=0, high=0),
        ),
    )


@pytest.fixture(scope="module")
def answer():
    """With everything that a page can say of a GPU."""
    return replace(
        estimate(),
        forecasts=(forecast(),),
        sharded=(forecast(ranks=8),),
        lengths=(forecast(length=512),),
        bounds=tuple(
            StepBound(gpu=name, variant="as written", batch_size=32, seconds=0.1) for name in GPUS
        ),
        too_small=(
            TooSmall(gpus=GPUS[1:], for_sure=True, batch_size=2, held_bytes=9 * GIB,
                     parts={"parameters": 9 * GIB}),
        ),
    )  # fmt: skip


def pages(answer):
    report = build_estimate(answer, "batchadvisor run train.py")
    return {
        "terminal": terminal(answer, "batchadvisor run train.py", width=300, color=False),
        "narrow terminal": terminal(answer, "batchadvisor run train.py", width=48, color=False),
        "HTML": html(report),
        "Markdown": markdown(report).replace("\\", ""),
        "JSON": estimate_json(answer),
    }


def plain(text):
    return " ".join(text.replace("&#39;", "'").split())


def test_every_format_says_it_first_and_what_is_assumed(answer):
    for name, page in pages(answer).items():
        assert HARDLY_CHECKED in plain(page), name
        for assumption in assumptions():
            assert assumption in plain(page), (name, assumption)


def test_every_table_of_gpus_says_it(answer):
    tables = [block.table for block in build_estimate(answer).walk() if isinstance(block, Grid)]
    tables = [table for table in tables if table.columns[0].title == "GPU"]
    assert len(tables) == TABLES_OF_GPUS
    for table in tables:
        said = " ".join((table.title, *table.notes))
        assert "should fit" in said or HARDLY_CHECKED in said, table.title


def test_no_sentence_names_a_gpu_without_a_should(answer):
    report = build_estimate(answer)
    texts = [block.text for block in report.walk() if isinstance(block, Paragraph)]
    named = [text for text in texts if any(name in text for name in GPUS)]
    assert named
    for text in named:
        first = text.partition(". ")[0]
        assert "should" in first or "would" in first, text


def test_the_manual_and_the_command_say_it():
    for place in ("docs/estimate.md", "README.md"):
        assert HARDLY_CHECKED in plain((ROOT / place).read_text()), place
    assert "an estimate; on one only the memory of three trainings was checked" in plain(
        command.help
    )


def test_it_is_true():
    """Two trainings with a fake step beside them, and one whose memory a run explained.

    Real steps also hold cuBLAS's workspaces: on Hopper 32 MiB in each of two threads. Published
    sizes of others are no runs of ours.
    """
    made = [json.loads(path.read_text()) for path in RESULTS.glob("gpu-probes_*.json")]
    findings = [each for visit in made for each in visit["findings"]]
    (checked,) = (each for each in findings if each["probe"] == "fake_or_real")
    rows = checked["numbers"]["rows"]
    assert {row["model"] for row in rows} == {"gpt", "gpt with dropout"}
    for row in rows:
        tensors = row["real"]["allocated_bytes"] - WORKSPACES
        assert row["fake"]["allocated_bytes"] == pytest.approx(tensors, rel=0.005)
    run = msgspec.json.decode(gzip.decompress(CHAR_GPT.read_bytes()), type=RunRecord)
    at_most = max(trial.memory.allocated_bytes for trial in run.trials if trial.memory is not None)
    counted = run.explained.sizes[0].trial.peak_bytes
    assert counted == pytest.approx(at_most - WORKSPACES, rel=0.006)


SIZES = {"T4": 16, "V100-16GB": 16, "V100-32GB": 32, "A100-40GB": 40, "H200": 141}


def of(ranges):
    """An estimate whose script has batches of 32, with low and high for each GPU."""
    known = estimate()
    gpus = tuple(
        FittedGpu(name=name, memory_bytes=SIZES[name] * GIB, low=low, high=high)
        for name, (low, high) in ranges.items()
    )
    (forecast,) = known.forecasts
    return replace(known, forecasts=(replace(forecast, gpus=gpus),))


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
