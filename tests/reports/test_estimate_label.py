"""Each figure for a GPU is called what it is; what was compared on a CPU is in the range."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.features.estimate.command import estimate as command
from batchadvisor.features.estimate.estimate import estimate_json
from batchadvisor.features.estimate.estimate import estimate_text as terminal
from batchadvisor.features.estimate.fit.assumptions import ASSUMPTIONS
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.features.estimate.records import (
    HARDLY_CHECKED,
    FittedGpu,
    Forecast,
    StepBound,
    TooSmall,
)
from batchadvisor.records import RunRecord, Variant
from batchadvisor.reports.blocks import Grid, Paragraph
from batchadvisor.reports.html.document import render as html
from batchadvisor.reports.markdown.document import render as markdown
from batchadvisor.units import GIB, MIB

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
    return msgspec.structs.replace(
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
        for assumption in ASSUMPTIONS:
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
