"""Accelerate's way of dealing out samples, against the engine."""

import json
from pathlib import Path

import batchadvisor
import pytest
from batchadvisor.advisor.tails.layouts import layout_of
from batchadvisor.records import Pipeline
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler

from ..needs import framework
from ..tails.launch import launch
from ..tails.pages import layout_after, name_of, page_fixes
from ..tails.said import case_of
from ..tails.test_layouts import assert_same

framework("accelerate")

from accelerate.data_loader import (  # noqa: E402
    BatchSamplerShard,
    IterableDatasetShard,
)
from torch.utils.data import IterableDataset  # noqa: E402

from .tails_accelerate import DISPATCHED  # noqa: E402

pytestmark = pytest.mark.frameworks
SCRIPT = Path(__file__).with_name("tails_accelerate.py")
SAMPLES = st.integers(1, 200)
SIZES = st.integers(1, 20)
RANKS = st.integers(2, 6)


def dealt(num_samples, size, ranks, *, drop, **options):
    """The batches of each rank from BatchSamplerShard."""
    by_rank = []
    for rank in range(ranks):
        batches = BatchSampler(SequentialSampler(range(num_samples)), size, drop)
        by_rank.append(list(BatchSamplerShard(batches, ranks, rank, **options)))
    return by_rank


def layout(num_samples, size, ranks, **facts):
    pipeline = Pipeline(
        num_samples=num_samples, batch_size=size, num_ranks=ranks, setup="accelerate", **facts
    )
    return layout_of(pipeline)


class TestLayouts:
    @given(SAMPLES, SIZES, RANKS, st.booleans(), st.booleans())
    def test_batch_sampler_shard(self, num_samples, size, ranks, even, drop):
        real = dealt(num_samples, size, ranks, drop=drop, even_batches=even)
        epoch = layout(num_samples, size, ranks, even_batches=even, drop_last=drop)
        assert_same(epoch, real, num_samples)

    @given(SAMPLES, st.integers(1, 8), RANKS, st.booleans(), st.booleans())
    def test_split_batches(self, num_samples, own, ranks, even, drop):
        size = own * ranks
        real = dealt(num_samples, size, ranks, drop=drop, even_batches=even, split_batches=True)
        epoch = layout(
            num_samples, size, ranks, even_batches=even, drop_last=drop, split_batches=True
        )
        assert_same(epoch, real, num_samples)

    @given(SAMPLES, SIZES, RANKS, st.booleans())
    def test_iterable_dataset_shard(self, num_samples, size, ranks, drop):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from range(num_samples)

        real = [
            list(
                BatchSampler(
                    list(IterableDatasetShard(Stream(), size, drop, ranks, rank)), size, drop
                )
            )
            for rank in range(ranks)
        ]
        epoch = layout(
            num_samples, size, ranks, iterable=True, dispatch_batches=False, drop_last=drop
        )
        assert_same(epoch, real, num_samples)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What two ranks saw."""
    names = ("dispatched", "even_batches", "metrics", "accumulate", "uneven_mean", "join_uneven")
    return launch(SCRIPT, tmp_path_factory.mktemp("ranks"), *names, ACCELERATE_USE_CPU="true")


@pytest.mark.case(
    "accelerate.even-batches", "9 samples, B = 4, two processes", "accelerate", "torch"
)
def test_even_batches(seen):
    real = [rank["even_batches"]["even"] for rank in seen]
    assert sum(len(batch) for rank in real for batch in rank) == 16
    report = batchadvisor.tails(num_samples=9, batch_size=4, num_ranks=2, setup="accelerate")
    assert_same(report.layout, real, 9)
    assert report.layout.duplicates == 7
    assert case_of(report, "accelerate.even-batches").message.startswith("7 of 9 samples")
    assert not report.layout.is_short
    dropped = batchadvisor.tails(
        num_samples=9, batch_size=4, num_ranks=2, setup="accelerate", drop_last=True
    )
    assert_same(dropped.layout, [rank["even_batches"]["drop"] for rank in seen], 9)
    epoch = layout_of(Pipeline(num_samples=1, batch_size=4, num_ranks=2, setup="accelerate"))
    assert epoch.duplicates == 7


@pytest.mark.case(
    "accelerate.uneven", "the gradient of a step of 4 and 1 samples", "accelerate", "torch"
)
def test_uneven(seen):
    facts = {"num_ranks": 2, "setup": "accelerate", "even_batches": False, "batch_size": 4}
    report = batchadvisor.tails(num_samples=9, **facts)
    assert_same(report.layout, [rank["even_batches"]["uneven"] for rank in seen], 9)
    assert "1 to 2 steps" in case_of(report, "accelerate.uneven").message
    biased = batchadvisor.tails(num_samples=13, **facts)
    assert biased.layout.last == (4, 1)
    assert case_of(biased, "accelerate.uneven") is not None
    weight = case_of(biased, "ddp.uneven-sizes").evidence[0].value
    assert weight == 2.5
    exact, mean = sum(range(8, 13)) / 5, (sum(range(8, 12)) / 4 + 12) / 2
    assert (exact, mean) == (10.0, 10.75)
    assert seen[0]["uneven_mean"] == pytest.approx(mean)
    # On CPU ranks joining has no effect.
    assert any("no effect" in text for text in seen[0]["join_uneven"]), seen[0]["join_uneven"]


@pytest.mark.case("accelerate.uneven", "gather of unequal shapes aborts", "accelerate", "torch")
def test_uneven_gather(tmp_path):
    """Which of the two is hit depends on who sends first."""
    codes, errors = launch(SCRIPT, tmp_path, "uneven_gather", fails=True, ACCELERATE_USE_CPU="true")
    assert any(code not in (0, -9) for code in codes), (codes, errors)
    assert "gloo" in errors.lower()


@pytest.mark.case("accelerate.split", "a global batch of 3 on two processes", "accelerate")
def test_split():
    with pytest.raises(ValueError, match="round multiple of the number of processes"):
        dealt(9, 3, 2, drop=False, split_batches=True)
    report = batchadvisor.tails(
        num_samples=9, batch_size=3, num_ranks=2, setup="accelerate", split_batches=True
    )
    assert report.layout is None
    finding = case_of(report, "accelerate.split")
    assert "3 is no multiple of 2" in finding.message
    assert "# a multiple of 2" in finding.fixes[0].snippet
    assert finding.fixes[0].changes["batch_size"] % 2 == 0


@pytest.mark.case(
    "accelerate.dispatch",
    "hundreds of pipelines through the dispatcher, two processes",
    "accelerate",
    "torch",
)
def test_dispatch(seen):
    ranks = [rank["dispatched"] for rank in seen]
    assert len(DISPATCHED) > 200
    for (num_samples, size, drop), *real in zip(DISPATCHED, *ranks, strict=True):
        epoch = layout(num_samples, size, 2, iterable=True, drop_last=drop)
        assert_same(epoch, real, num_samples)
    for num_samples, last in ((10, (1, 1)), (9, (1, 1))):
        report = batchadvisor.tails(
            num_samples=num_samples,
            batch_size=4,
            num_ranks=2,
            setup="accelerate",
            iterable=True,
            model=batchadvisor.ModelFacts(batch_norm=1),
        )
        assert report.layout.last == last
        assert case_of(report, "accelerate.dispatch").evidence[0].value == 4.0
        assert case_of(report, "norm.one-value") is not None


@pytest.mark.case(
    "accelerate.gather-for-metrics", "values of three loaders over 9 samples", "accelerate", "torch"
)
def test_gather_for_metrics(seen):
    real = seen[0]["metrics"]
    assert {name: sum(own) for name, own in real.items()} == {
        "map": 9, "dispatched": 9, "sharded": 16,
    }  # fmt: skip
    facts = {
        "num_samples": 9, "batch_size": 4, "num_ranks": 2, "setup": "accelerate",
        "stage": "validate",
    }  # fmt: skip
    sharded = batchadvisor.tails(**facts, iterable=True, dispatch_batches=False)
    finding = case_of(sharded, "accelerate.gather-for-metrics")
    assert "returns 8 values for the 1 sample " in finding.message
    assert real["sharded"][-1] == 8
    assert case_of(batchadvisor.tails(**facts), "accelerate.gather-for-metrics") is None
    dispatched = batchadvisor.tails(**facts, iterable=True)
    assert case_of(dispatched, "accelerate.gather-for-metrics") is None


@pytest.mark.case(
    "accumulation.tail", "Accelerate: 6 batches accumulated over 4", "accelerate", "torch"
)
def test_accumulate(seen):
    assert seen[0]["accumulate"] == [1.0, 0.5]
    report = batchadvisor.tails(
        num_samples=48, batch_size=4, num_ranks=2, setup="accelerate", micro_batches=4
    )
    assert report.layout.steps == 2
    finding = case_of(report, "accumulation.tail")
    assert finding.evidence[0].value == 0.5
    assert "this setup does" in finding.message


PAGES = page_fixes("accelerate")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What four ranks did with the code of each page."""
    folder = tmp_path_factory.mktemp("pages")
    jobs = {
        name_of(page): {
            "code": page[2].snippet,
            **{name: getattr(page[3], name) for name in (
                "num_samples", "batch_size", "iterable", "even_batches", "split_batches",
                "dispatch_batches",
            )},
        }
        for page in PAGES
    }  # fmt: skip
    (folder / "jobs.json").write_text(json.dumps(jobs))
    jobs_file = str(folder / "jobs.json")
    return [
        rank["page_code"]
        for rank in launch(SCRIPT, folder, "page_code", world=4, PAGE_JOBS=jobs_file)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_code(executed, page):
    """Steps and samples of every rank are those that the engine says of the pipeline then."""
    layout = layout_after(*page[2:])
    lengths = [rank[name_of(page)]["lengths"] for rank in executed]
    assert tuple(map(len, lengths)) == layout.batches
    assert tuple(own[-1] for own in lengths) == layout.last
    if page[0] == "accelerate.gather-for-metrics":
        assert executed[0][name_of(page)]["gathered"] == page[3].num_samples
