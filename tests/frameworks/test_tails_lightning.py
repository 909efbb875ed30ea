"""Lightning's samplers and accumulation in two processes, against the engine."""

from pathlib import Path

import batchadvisor
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from ..needs import framework
from ..tails.launch import launch
from ..tails.pages import page_fixes
from ..tails.said import case_of
from ..tails.test_layouts import assert_same
from .preloads import LIGHTNING

framework("lightning")

from lightning.pytorch.trainer.connectors.data_connector import _get_distributed_sampler  # noqa: E402
from lightning.pytorch.trainer.states import RunningStage  # noqa: E402
from lightning.pytorch.utilities.data import _update_dataloader  # noqa: E402

pytestmark = pytest.mark.frameworks
STAGES = {
    "train": RunningStage.TRAINING,
    "validate": RunningStage.VALIDATING,
    "predict": RunningStage.PREDICTING,
}
SCRIPT = Path(__file__).with_name("tails_lightning.py")
FACTS = {"num_samples": 9, "batch_size": 4, "num_ranks": 2, "setup": "lightning"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What two ranks saw."""
    return launch(
        SCRIPT,
        tmp_path_factory.mktemp("ranks"),
        *("fit", "validate", "predict", "predict_drop", "plain", "accumulate"),
        preload=LIGHTNING,
        TORCHELASTIC_RUN_ID="tails",
        GROUP_RANK="0",
        LOCAL_WORLD_SIZE="2",
    )


@pytest.mark.case(
    "lightning.sampler", "fit, validate and predict of 9 samples", "lightning", "torch"
)
def test_sampler(seen):
    trained = [rank["fit"]["trained"] for rank in seen]
    train = batchadvisor.tails(**FACTS)
    assert_same(train.layout, trained, 9)
    assert trained[0][0] != [0.0, 2.0, 4.0, 6.0]  # shuffled, though the loader does not
    finding = case_of(train, "lightning.sampler")
    assert "shuffle=False" in finding.message
    assert not finding.harmful
    validated = [rank["validate"]["validated"] for rank in seen]
    validate = batchadvisor.tails(**FACTS, stage="validate")
    assert_same(validate.layout, validated, 9)
    assert seen[0]["validate"]["mean"] == pytest.approx(3.6)
    assert sum(range(9)) / 9 == 4.0
    assert case_of(validate, "lightning.sampler").message.startswith("1 sample validated twice")
    predicted = [rank["predict"] for rank in seen]
    predict = batchadvisor.tails(**FACTS, stage="predict")
    assert_same(predict.layout, predicted, 9)
    assert predict.layout.duplicates == 0
    assert case_of(predict, "lightning.sampler") is None


@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=150)
@given(st.integers(1, 120), st.integers(1, 20), st.integers(2, 6), st.booleans())
def test_layouts(stage, num_samples, size, ranks, drops):
    """The loaders that Lightning makes for each rank, without starting the ranks."""
    facts = {"num_samples": num_samples, "batch_size": size, "num_ranks": ranks}
    report = batchadvisor.tails(**facts, setup="lightning", stage=stage, drop_last=drops)
    if stage == "predict" and num_samples < ranks:
        with pytest.raises(AssertionError):
            dealt(num_samples, size, ranks, stage, drops)
        assert "raises AssertionError" in case_of(report, "distributed.no-samples").message
        return
    assert case_of(report, "distributed.no-samples") is None
    assert_same(report.layout, dealt(num_samples, size, ranks, stage, drops), num_samples)


def dealt(num_samples, size, ranks, stage, drops):
    """The batches of each rank from the loader that Lightning makes."""
    real = []
    for rank in range(ranks):
        loader = DataLoader(range(num_samples), size, drop_last=drops)
        sampler = _get_distributed_sampler(
            loader, shuffle=False, overfit_batches=0, mode=STAGES[stage], num_replicas=ranks,
            rank=rank,
        )  # fmt: skip
        real.append(list(_update_dataloader(loader, sampler, STAGES[stage]).batch_sampler))
    return real


@pytest.mark.case(
    "lightning.sampler", "predict with drop_last=True leaves nothing out", "lightning", "torch"
)
def test_predict_drops_nothing(seen):
    predicted = [rank["predict_drop"] for rank in seen]
    assert sorted(index for rank in predicted for batch in rank for index in batch) == list(
        range(9)
    )
    report = batchadvisor.tails(**FACTS, stage="predict", drop_last=True)
    assert_same(report.layout, predicted, 9)
    assert report.layout.dropped == 0


@pytest.mark.case(
    "ddp.no-sampler", "Lightning with use_distributed_sampler=False", "lightning", "torch"
)
def test_no_sampler(seen):
    plain = batchadvisor.tails(**FACTS, sampler="plain")
    assert_same(plain.layout, [rank["plain"] for rank in seen], 9)
    assert plain.layout.duplicates == 9
    assert case_of(plain, "ddp.no-sampler") is not None


@pytest.mark.case(
    "accumulation.tail", "Lightning: 6 batches accumulated over 4", "lightning", "torch"
)
def test_accumulate(seen):
    assert seen[0]["accumulate"] == pytest.approx([1.0, 0.5])
    report = batchadvisor.tails(**{**FACTS, "num_samples": 48}, micro_batches=4)
    assert report.layout.steps == 2
    assert case_of(report, "accumulation.tail").evidence[0].value == 0.5


def test_page_code(tmp_path):
    """The fixes of Lightning's pages, executed: each sample once, and steps of one size."""
    ((_, _, validates, _),) = page_fixes("lightning")
    uneven = batchadvisor.tails(num_samples=24, batch_size=4, micro_batches=4, setup="lightning")
    rescales = case_of(uneven, "accumulation.tail").fixes[0]
    (done,) = launch(
        SCRIPT, tmp_path, "page_validate", "page_accumulate", world=1, preload=LIGHTNING,
        PAGE_VALIDATE=validates.snippet, PAGE_ACCUMULATE=rescales.snippet,
    )  # fmt: skip
    assert sorted(value for batch in done["page_validate"] for value in batch) == list(range(9))
    for gradients in done["page_accumulate"]:
        assert gradients == pytest.approx([1.0, 1.0])
