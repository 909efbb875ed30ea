"""Hugging Face's Trainer, against the engine."""

from pathlib import Path

import batchadvisor
import pytest

from ..needs import framework
from ..tails.launch import launch
from ..tails.pages import page_fixes
from ..tails.said import case_of
from ..tails.test_layouts import assert_same
from .preloads import HUGGING_FACE

framework("transformers")
framework("accelerate")

from .tails_trainer import LOADERS  # noqa: E402

pytestmark = pytest.mark.frameworks
SCRIPT = Path(__file__).with_name("tails_trainer.py")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process saw."""
    folder = tmp_path_factory.mktemp("alone")
    cases = ("predictions", "accumulate", "loaders")
    return launch(SCRIPT, folder, *cases, world=1, preload=HUGGING_FACE)[0]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What two ranks saw."""
    folder = tmp_path_factory.mktemp("ranks")
    return launch(
        SCRIPT, folder, "batches", "loaders", preload=HUGGING_FACE, ACCELERATE_USE_CPU="true"
    )


@pytest.mark.case(
    "trainer.drop-last", "predictions for 9 samples with and without drop_last", "transformers"
)
def test_predictions(alone):
    assert alone["predictions"] == {"all": 9, "drop": 8}
    facts = {"num_samples": 9, "batch_size": 4, "setup": "trainer", "drop_last": True}
    report = batchadvisor.tails(**facts, stage="predict")
    assert report.layout.dropped == 1
    finding = case_of(report, "trainer.drop-last")
    assert "1 of 9 samples without a prediction" in finding.message
    assert "get_train_dataloader" in finding.fixes[0].snippet
    assert case_of(batchadvisor.tails(**facts), "trainer.drop-last") is None


@pytest.mark.case(
    "accumulation.tail", "Trainer: divides by what was accumulated", "transformers", "accelerate"
)
def test_accumulate(alone):
    assert alone["accumulate"] == pytest.approx([1.0, 1.0])
    report = batchadvisor.tails(num_samples=24, batch_size=4, setup="trainer", micro_batches=4)
    assert report.layout.steps == 2
    assert report.layout.accumulation_tail == 2
    assert case_of(report, "accumulation.tail") is None


@pytest.mark.case(
    "accelerate.even-batches", "Trainer: 9 samples, B = 4, two processes", "transformers"
)
def test_even_batches(seen):
    report = batchadvisor.tails(num_samples=9, batch_size=4, num_ranks=2, setup="trainer")
    assert_same(report.layout, [rank["batches"] for rank in seen], 9)
    assert case_of(report, "accelerate.even-batches").message.startswith("7 of 9")


@pytest.mark.parametrize("ranks", [1, 2])
def test_layouts(alone, seen, ranks):
    """Hundreds of training loaders as the Trainer makes them."""
    assert len(LOADERS) > 200
    by_rank = [alone["loaders"]] if ranks == 1 else [rank["loaders"] for rank in seen]
    for (num_samples, size, drop), *real in zip(LOADERS, *by_rank, strict=True):
        report = batchadvisor.tails(
            num_samples=num_samples,
            batch_size=size,
            num_ranks=ranks,
            setup="trainer",
            drop_last=drop,
        )
        assert_same(report.layout, real, num_samples)


def test_page_code(tmp_path):
    """Training drops the sample that is left over, and every sample is predicted."""
    ((_, _, fix, _),) = page_fixes("trainer")
    (done,) = launch(
        SCRIPT, tmp_path, "page_code", world=1, preload=HUGGING_FACE, PAGE_CODE=fix.snippet
    )
    assert done["page_code"]["trained"] == [4, 4]
    assert done["page_code"]["predicted"] == 9
