"""Streams, data workers, what a loader says of itself, the longest samples first."""

import pytest
import torch
from batchadvisor.probes.loader.cycled_dataset import CycledDataset
from batchadvisor.probes.loader.loader_handle import is_training_fetch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
)

from .loading import ByHalf, Fixed, Pass, Stream, info_of, numbers, steered


class TestIterable:
    def test_it_goes_round(self):
        loader = DataLoader(Stream(20), batch_size=8)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(1) == [8]
        for size in (3, 50, 7):
            handle.ask(size)
            assert script.sizes(3) == [size] * 3
        assert handle.info().steered == "exact"

    def test_native_pass_ends(self):
        loader = DataLoader(Stream(20), batch_size=8)
        handle = steered(loader)
        assert [len(batch) for batch in Pass(loader, handle)] == [8, 8, 4]
        assert isinstance(loader.dataset, Stream)

    def test_with_workers(self):
        loader = DataLoader(Stream(40), batch_size=4, num_workers=2)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [4, 4]
        for size in (10, 3):
            handle.ask(size)
            assert script.sizes(4) == [size] * 4

    def test_the_promised_length_is_not_held_against_it(self):
        """torch warns when an iterable dataset yields more than its length: warnings are errors."""
        loader = DataLoader(Stream(20, promised=20), batch_size=8)
        handle = steered(loader)
        assert len(loader) == 3
        script = Pass(loader, handle)
        next(script)
        handle.ask(6)
        assert script.sizes(10) == [6] * 10
        assert len(loader) == 3
        assert Pass(loader, handle).sizes(10) == [6] * 10

    @pytest.mark.parametrize("workers", [0, 1])
    def test_two_views_of_each_sample(self, workers):
        """No axis is as long as the batch. A stream that goes round fills what was asked for."""
        loader = DataLoader(
            Stream(40),
            batch_size=8,
            num_workers=workers,
            collate_fn=lambda rows: torch.zeros(2 * len(rows)),
        )
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [16, 16]
        for size in (50, 3):
            handle.ask(size)
            assert script.sizes(4) == [2 * size] * 4
            assert (handle.arrived, handle.proof) == (size, "indices")

    def test_empty_stream_ends(self):
        loader = DataLoader(Stream(0), batch_size=8)
        handle = steered(loader)
        handle.ask(4)
        with pytest.raises(StopIteration):
            next(Pass(loader, handle))

    def test_cycled_dataset_passes_everything_on(self):
        inner = Stream(3, promised=3)
        cycled = CycledDataset(inner)
        iterator = iter(cycled)
        assert [next(iterator) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
        assert len(cycled) == 3
        cycled.num = 2
        assert inner.num == 2
        with pytest.raises(AttributeError):
            _ = cycled.nothing


class Slow(Dataset):
    """Says which size each batch was fetched with, by its length."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        return torch.tensor(index)


class TestWorkers:
    def test_prefetched_batches_of_an_older_size_are_dropped(self):
        loader = DataLoader(Slow(), batch_size=8, num_workers=2, prefetch_factor=3)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [8, 8]
        for size in (5, 40, 8, 3):
            handle.ask(size)
            assert script.sizes(3) == [size] * 3

    def test_persistent_workers(self):
        loader = DataLoader(Slow(), batch_size=8, num_workers=1, persistent_workers=True)
        handle = steered(loader)
        assert sum(Pass(loader, handle).sizes(50)) == 400
        handle.ask(9)
        assert Pass(loader, handle).sizes(3) == [9] * 3

    def test_an_epoch_of_persistent_workers_that_was_broken_off(self):
        """The iterator that the loader keeps for its next pass was shut down, and is not kept."""
        loader = DataLoader(Stream(40), batch_size=8, num_workers=1, persistent_workers=True)
        handle = steered(loader)
        assert Pass(loader, handle).sizes(2) == [8, 8]
        for size in (9, 5):
            handle.ask(size)
            assert Pass(loader, handle).sizes(3) == [size] * 3

    def test_workers_of_a_stream_start_once_for_a_pass(self):
        """Those that persist do so under steering, else each pass would wait for new ones."""
        loader = DataLoader(Stream(40), batch_size=8, num_workers=1, persistent_workers=True)
        handle = steered(loader)
        handle.ask(9)
        assert Pass(loader, handle).sizes(2) == [9, 9]
        workers = set()
        for _ in range(3):
            assert Pass(loader, handle).sizes(2) == [9, 9]
            workers |= {worker.pid for worker in loader._iterator._workers if worker.is_alive()}
        assert len(workers) == 1

    def test_persistent_workers_at_the_end_of_their_epoch(self):
        loader = DataLoader(Slow(), batch_size=200, num_workers=1, persistent_workers=True)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [200, 200]
        handle.ask(9)
        assert script.sizes(2) == [9, 9]
        assert Pass(loader, handle).sizes(3) == [9] * 3

    @pytest.mark.skipif(
        "in_order" not in DataLoader.__init__.__code__.co_varnames, reason="needs torch 2.6"
    )
    def test_batches_out_of_order_are_told_by_their_shape(self):
        loader = DataLoader(Slow(), batch_size=8, num_workers=2, in_order=False)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [8, 8]
        handle.ask(6)
        assert script.sizes(4) == [6] * 4


class Repeated:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


class TestInfo:
    def test_map_style(self):
        loader = DataLoader(numbers(), batch_size=8, shuffle=True, drop_last=True)
        info = info_of(loader)
        assert (info.batch_size, info.num_samples, info.drop_last) == (8, 100, True)
        assert (info.sampler, info.iterable, info.num_workers) == ("RandomSampler", False, 0)

    def test_sampler_decides_the_epoch(self):
        sampler = RandomSampler(range(100), num_samples=30)
        info = info_of(DataLoader(numbers(), batch_size=8, sampler=sampler))
        assert info.num_samples == 30

    def test_batch_sampler(self):
        info = info_of(DataLoader(numbers(), batch_sampler=ByHalf(100, 10)))
        assert (info.batch_size, info.num_samples, info.sampler) == (10, 100, "ByHalf")
        batches = BatchSampler(SequentialSampler(range(40)), 8, True)
        info = info_of(DataLoader(numbers(), batch_sampler=batches))
        assert (info.batch_size, info.num_samples, info.drop_last) == (8, 40, True)

    def test_a_batch_sampler_that_leaves_the_rest_out(self):
        """It names neither its size nor what it drops: its first batch and its length tell."""
        batches = [list(range(at, at + 7)) for at in range(0, 98, 7)]
        loader = DataLoader(numbers(), batch_sampler=batches)
        handle = steered(loader)
        assert not handle.info().drop_last
        next(Pass(loader, handle))
        assert (handle.native, handle.info().drop_last) == (7, True)
        assert not info_of(DataLoader(numbers(98), batch_sampler=Fixed(98))).drop_last

    def test_one_that_repeats_its_batches_for_ever(self):
        """timm's and ultralytics' loaders put a sampler of their own around the batch sampler."""
        loader = DataLoader(numbers(), batch_size=8)
        handle = steered(loader)
        loader.__dict__["batch_sampler"] = Repeated(loader.batch_sampler)
        assert handle.info().num_samples == 100

    @pytest.mark.parametrize(("promised", "num"), [(None, None), (20, 20)])
    def test_iterable(self, promised, num):
        info = info_of(DataLoader(Stream(20, promised), batch_size=8))
        assert (info.num_samples, info.iterable) == (num, True)

    def test_dataset_that_batches_itself(self):
        loader = DataLoader(numbers(), batch_size=None)
        handle = steered(loader)
        assert handle.cannot_steer
        assert handle.info().steered == "no: the dataset batches itself"
        assert handle.info().batch_size is None

    def test_a_loader_that_is_gone(self):
        handle = steered(DataLoader(numbers(), batch_size=8))
        info = handle.info()
        assert (info.batch_size, info.num_samples, info.sampler) == (8, None, "?")


class TestTrainingFetch:
    def test_only_with_gradients(self):
        assert is_training_fetch()
        with torch.no_grad():
            assert not is_training_fetch()
        with torch.inference_mode():
            assert not is_training_fetch()
