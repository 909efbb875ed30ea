"""The arithmetic of an epoch's end, against the code that really deals out samples."""

import pytest
import torch
from batchadvisor.advisor.tails.layouts import chunks, layout_of, slices
from batchadvisor.records import Pipeline
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

SAMPLES = st.integers(1, 300)
SIZES = st.integers(1, 70)
RANKS = st.integers(1, 9)


def layout(num_samples, size, **facts):
    """The layout of a pipeline that has one."""
    epoch = layout_of(Pipeline(num_samples=num_samples, batch_size=size, **facts))
    assert not isinstance(epoch, str)
    return epoch


def assert_same(epoch, ranks, num_samples, micro=1):
    """A layout against the index batches that each rank really got.

    Args:
        ranks: for each rank its batches, lists of indices.
    """
    counts = tuple(len(batches) for batches in ranks)
    most = max(counts)
    assert epoch.batches == counts
    assert epoch.steps == -(-most // micro)
    assert epoch.accumulation_tail == most % micro
    if most:
        last = tuple(len(rank[-1]) if len(rank) == most else 0 for rank in ranks)
        assert epoch.last == last
        assert epoch.last_samples == sum(last)
    else:
        assert epoch.last == ()
    drawn = [index for batches in ranks for batch in batches for index in batch]
    assert epoch.duplicates == len(drawn) - len(set(drawn))
    assert epoch.dropped == num_samples - len(set(drawn))


class TestOneProcess:
    @given(SAMPLES, SIZES, st.booleans(), st.integers(1, 5))
    def test_batch_sampler(self, num_samples, size, drop_last, micro):
        batches = list(BatchSampler(SequentialSampler(range(num_samples)), size, drop_last))
        epoch = layout(num_samples, size, drop_last=drop_last, micro_batches=micro)
        assert_same(epoch, [batches], num_samples, micro)
        assert epoch.weight == (size / len(batches[-1]) if batches else 1.0)

    @given(st.integers(1, 200), st.integers(1, 20), st.integers(2, 5), st.booleans())
    def test_workers_of_an_iterable_dataset(self, num_samples, size, workers, drop_last):
        """What the workers would do, by the rule of the DataLoader's workers; below they do."""
        batches = [
            list(BatchSampler(range(worker, num_samples, workers), size, drop_last))
            for worker in range(workers)
        ]
        epoch = layout(num_samples, size, iterable=True, num_workers=workers, drop_last=drop_last)
        in_turn = [
            own[turn]
            for turn in range(max(map(len, batches), default=0))
            for own in batches
            if turn < len(own)
        ]
        assert_same(epoch, [in_turn], num_samples)
        assert sorted(epoch.short) == sorted(len(batch) for batch in in_turn if len(batch) < size)


class Sharded(IterableDataset):
    """0..n-1; each worker yields its part."""

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        yield from range(info.id, self.num_samples, info.num_workers)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.case("iterable.worker-tails", "10 samples, B = 4, three workers", "torch")
@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 3, 3]), (True, [4])])
def test_real_workers(drop_last, sizes):
    loader = DataLoader(Sharded(10), 4, num_workers=3, drop_last=drop_last)
    batches = [batch.tolist() for batch in loader]
    assert [len(batch) for batch in batches] == sizes
    epoch = layout(10, 4, iterable=True, num_workers=3, drop_last=drop_last)
    assert_same(epoch, [batches], 10)
    assert epoch.short == (() if drop_last else (3, 3))


@pytest.mark.parametrize("sampler", ["distributed", "plain", "shards"])
@given(SAMPLES, SIZES, RANKS, st.booleans(), st.booleans())
def test_samplers(sampler, num_samples, size, ranks, drops, sampler_drops):
    facts = {"setup": "ddp", "sampler": sampler, "num_ranks": ranks, "drop_last": drops}
    indices = range(num_samples)
    own = [indices] * ranks
    if sampler == "shards":
        own = [range(rank, num_samples, ranks) for rank in range(ranks)]
    elif sampler == "distributed":
        facts["sampler_drop_last"] = sampler_drops
        options = {"shuffle": False, "drop_last": sampler_drops}
        own = [DistributedSampler(indices, ranks, rank, **options) for rank in range(ranks)]
    dealt = [list(BatchSampler(each, size, drops)) for each in own]
    assert_same(layout(num_samples, size, **facts), dealt, num_samples)


@given(SAMPLES, st.lists(st.integers(1, 9), min_size=2, max_size=5), st.booleans())
def test_sizes_by_rank(num_samples, sizes, drops):
    whole = list(BatchSampler(range(num_samples), sum(sizes), drops))
    starts = [sum(sizes[:rank]) for rank in range(len(sizes))]
    dealt = [
        [batch[start : start + size] for batch in whole]
        for start, size in zip(starts, sizes, strict=True)
    ]
    facts = {"setup": "ddp", "num_ranks": len(sizes), "drop_last": drops}
    epoch = layout(num_samples, sum(sizes), rank_batch_sizes=tuple(sizes), **facts)
    assert_same(epoch, dealt, num_samples)
    left = num_samples % sum(sizes)
    assert sum(slices(left, tuple(sizes))) == left


class TestChunks:
    @given(st.integers(1, 400), st.integers(1, 20))
    def test_torch_chunk(self, num_samples, parts):
        real = [len(chunk) for chunk in torch.arange(num_samples).chunk(parts)]
        assert chunks(num_samples, parts) == (*real, *[0] * (parts - len(real)))

    @given(st.integers(1, 400), st.integers(2, 20))
    def test_who_is_idle(self, num_samples, parts):
        """The two rules that the page of `dataparallel.chunks` states."""
        idle = 0 in chunks(num_samples, parts)
        assert idle == ((parts - 1) * -(-num_samples // parts) >= num_samples)
        if num_samples > (parts - 1) ** 2 or num_samples % parts == 0:
            assert not idle

    @given(SAMPLES, SIZES, st.integers(1, 8), st.booleans())
    def test_data_parallel_and_mirrored(self, num_samples, size, parts, drops):
        batches = list(BatchSampler(range(num_samples), size, drops))
        for setup in ("data-parallel", "mirrored"):
            epoch = layout(num_samples, size, setup=setup, num_ranks=parts, drop_last=drops)
            assert epoch.full == chunks(size, parts)
            assert epoch.last == (chunks(len(batches[-1]), parts) if batches else ())
            assert epoch.batches == (len(batches),)
            assert epoch.dropped == num_samples - sum(map(len, batches))
