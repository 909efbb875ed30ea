"""Streams, workers that persist, what a loader says of itself, its epochs."""

import itertools
import time
from types import SimpleNamespace

import pytest
import torch
from batchadvisor.probes.loader import one_pass
from batchadvisor.probes.loader.cycled_dataset import CycledDataset
from batchadvisor.probes.loader.epochs import Epochs
from batchadvisor.probes.loader.loader_handle import is_training_fetch
from batchadvisor.probes.loader.one_pass import passed_again
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from .loading import ByHalf, Fixed, Pass, Stream, info_of, numbers, steered
from .test_loaders import begun


class TestIterable:
    def test_native_pass_ends(self):
        loader = DataLoader(Stream(20), batch_size=8)
        _, script = begun(loader)
        assert [len(batch) for batch in script] == [8, 8, 4]
        assert isinstance(loader.dataset, Stream)

    def test_the_promised_length_is_not_held_against_it(self):
        """torch warns when an iterable dataset yields more than its length: warnings are errors."""
        loader = DataLoader(Stream(20, promised=20), batch_size=8)
        handle, script = begun(loader)
        assert len(loader) == 3
        next(script)
        handle.ask(6)
        assert script.sizes(10) == [6] * 10
        assert len(loader) == 3
        assert Pass(loader, handle).sizes(10) == [6] * 10

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_a_pass_that_trains_nothing_ends_with_the_stream(self, num_workers):
        """The training's goes on beside it, and so does the next one."""
        loader = DataLoader(Stream(20), batch_size=8, num_workers=num_workers)
        handle, script = begun(loader)
        next(script)
        handle.ask(6)
        for _ in range(2):
            assert script.sizes(5) == [6] * 5
            assert [len(batch) for batch in Pass(loader, handle, training=False)] == [6, 6, 6, 2]
        assert Pass(loader, handle).sizes(5) == [6] * 5

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
        inner.dataset = "of what it wraps"
        assert cycled.dataset == "of what it wraps"


class TestPersistentWorkers:
    @pytest.mark.parametrize(
        ("data", "size", "native"),
        [
            (list(range(400)), 8, [8] * 50),
            # The iterator that the loader keeps for its next pass was shut down, and is not kept.
            (Stream(40), 8, [8, 8]),
        ],
        ids=["over", "broken off"],
    )
    def test_a_pass_after_an_epoch(self, data, size, native):
        loader = DataLoader(data, batch_size=size, num_workers=1, persistent_workers=True)
        handle, script = begun(loader)
        assert script.sizes(len(native)) == native
        for asked in (9, 5):
            handle.ask(asked)
            assert Pass(loader, handle).sizes(3) == [asked] * 3

    def test_the_epoch_goes_on_at_its_end(self):
        loader = DataLoader(
            list(range(400)), batch_size=200, num_workers=1, persistent_workers=True
        )
        handle, script = begun(loader)
        assert script.sizes(2) == [200, 200]
        handle.ask(9)
        assert script.sizes(2) == [9, 9]
        assert Pass(loader, handle).sizes(3) == [9] * 3

    def test_workers_of_a_stream_start_once_for_a_pass(self):
        """Those that persist do so under steering, else each pass would wait for new ones."""
        loader = DataLoader(Stream(40), batch_size=8, num_workers=1, persistent_workers=True)
        handle, script = begun(loader)
        handle.ask(9)
        assert script.sizes(2) == [9, 9]
        workers = set()
        for _ in range(3):
            assert Pass(loader, handle).sizes(2) == [9, 9]
            workers |= {worker.pid for worker in loader._iterator._workers if worker.is_alive()}
        assert len(workers) == 1


class Slow(Dataset):
    """Each sample takes its worker so many seconds."""

    def __init__(self, sample_s):
        self.sample_s = sample_s

    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return index


def until(condition, seconds=20.0):
    """Whether it comes to be so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return condition()


class TestHoldsAll:
    def test_once_the_workers_made_all(self):
        loader = DataLoader(Slow(0.05), batch_size=4, num_workers=2)
        handle, script = begun(loader)
        assert not handle.holds_all(), "nothing was fetched"
        script.sizes(4)
        assert until(handle.holds_all)
        handle.ask(9)
        assert script.sizes(1) == [9]
        assert not handle.holds_all(), "those of the size before were dropped"
        assert until(handle.holds_all)
        assert script.sizes(1) == [9]

    def test_nothing_tells_without_workers(self):
        handle, script = begun(DataLoader(list(range(40)), batch_size=4))
        script.sizes(2)
        assert not handle.holds_all()

    def test_of_the_iterator_that_took_the_place_of_the_script_s(self):
        loader = DataLoader(Slow(0.01), batch_size=200, num_workers=1)
        handle, script = begun(loader)
        script.sizes(2)
        handle.ask(9)
        assert script.sizes(1) == [9]
        assert not handle.holds_all()
        assert until(handle.holds_all)


class Repeated:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


def facts(loader):
    info = info_of(loader)
    return info.batch_size, info.num_samples, info.drop_last, info.sampler


class TestInfo:
    def test_map_style(self):
        loader = DataLoader(numbers(), batch_size=8, shuffle=True, drop_last=True)
        assert facts(loader) == (8, 100, True, "RandomSampler")
        info = info_of(loader)
        assert (info.iterable, info.num_workers) == (False, 0)

    def test_the_sampler_decides_the_epoch(self):
        fewer = RandomSampler(range(100), num_samples=30)
        assert facts(DataLoader(numbers(), batch_size=8, sampler=fewer))[1] == 30
        loader = DataLoader(numbers(), batch_sampler=ByHalf(100, 10))
        assert facts(loader) == (10, 100, False, "ByHalf")
        batches = BatchSampler(SequentialSampler(range(40)), 8, True)
        assert facts(DataLoader(numbers(), batch_sampler=batches))[:3] == (8, 40, True)

    def test_a_batch_sampler_that_leaves_the_rest_out(self):
        """It names neither its size nor what it drops: its first batch and its length tell."""
        batches = [list(range(at, at + 7)) for at in range(0, 98, 7)]
        handle, script = begun(DataLoader(numbers(), batch_sampler=batches))
        assert not handle.info().drop_last
        next(script)
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

    def test_a_length_that_raises_stops_nothing(self):
        class Unread(Stream):
            def __len__(self):
                msg = "the index is not read yet"
                raise OSError(msg)

        handle, script = begun(DataLoader(Unread(20), batch_size=8))
        assert handle.info().num_samples is None
        next(script)
        handle.ask(6)
        assert script.sizes(10) == [6] * 10

    def test_dataset_that_batches_itself(self):
        info = info_of(DataLoader(numbers(), batch_size=None))
        assert (info.steered, info.batch_size) == ("no: the dataset batches itself", None)

    def test_a_batch_sampler_in_the_samplers_place(self):
        """As torch's documentation has it for data sets that take a list of indices."""
        data = TensorDataset(torch.arange(100))
        sampler = BatchSampler(RandomSampler(data), 8, drop_last=True)
        loader = DataLoader(data, batch_size=None, sampler=sampler)
        handle, script = begun(loader)
        info = handle.info()
        assert (info.steered, info.batch_size, info.num_samples) == ("exact", 8, 100)
        assert (info.drop_last, info.sampler) == (True, "RandomSampler")
        assert len(next(script)[0]) == 8
        handle.ask(60)
        assert [len(next(script)[0]) for _ in range(3)] == [60, 60, 60]
        assert len(loader) == 12

    def test_a_loader_that_is_gone(self):
        handle = steered(DataLoader(numbers(), batch_size=8))
        info = handle.info()
        assert (info.batch_size, info.num_samples, info.sampler) == (8, None, "?")


class TestEpochs:
    """How far an epoch went beyond its end; patches/test_steering.py sees it end in a loop."""

    def test_epochs_that_go_on(self):
        epochs, iterator = Epochs(end=False), SimpleNamespace()
        epochs.look([0] * 6)
        for number in range(1, 20):
            assert not epochs.is_over(iterator)
            epochs.gave(iterator)
            assert epochs.is_past is (number > 6)
            # Failures at other batches have other causes.
            assert epochs.just_past is (number in {7, 8, 9, 10, 13, 14, 15, 16, 19})

    def test_without_a_length(self):
        epochs, iterator = Epochs(end=True), SimpleNamespace()
        epochs.look(Stream())
        for _ in range(5):
            assert not epochs.is_over(iterator)
            epochs.gave(iterator)
        assert not epochs.is_past

    def test_of_a_stream_it_is_what_the_script_was_told(self):
        """Asking may count a file, and torch warns of a stream that goes beyond what it told."""
        loader = DataLoader(Stream(20, promised=20), batch_size=8)
        epochs, iterator = Epochs(end=True), SimpleNamespace()
        for _ in range(3):
            epochs.look(loader)
            epochs.gave(iterator)
        assert loader._IterableDataset_len_called is None
        assert not epochs.is_over(iterator)
        assert len(loader) == 3
        epochs.look(loader)
        assert epochs.is_over(iterator)


class TestTrainingFetch:
    def test_only_with_gradients(self):
        assert is_training_fetch()
        with torch.no_grad():
            assert not is_training_fetch()
        with torch.inference_mode():
            assert not is_training_fetch()


class BeginsAnew:
    def __iter__(self):
        self.place = 0
        return self

    def __next__(self):
        return [self.place]


class TestOnePass:
    """Batches that come but once, passed several times."""

    def test_each_pass_begins_at_the_start(self):
        batches = passed_again(iter([[1], [2], [3]]))
        first, second = iter(batches), iter(batches)
        assert [next(first), next(second), next(second), next(first), next(first)] == [
            [1], [1], [2], [2], [3],
        ]  # fmt: skip
        assert list(batches) == [[1], [2], [3]]
        assert list(first) == []

    def test_of_an_endless_one_not_all_is_kept(self, monkeypatch):
        monkeypatch.setattr(one_pass, "MAX_REMEMBERED", 2)
        batches = passed_again(itertools.count())
        assert list(itertools.islice(batches, 5)) == [0, 1, 2, 3, 4]
        assert list(itertools.islice(batches, 4)) == [0, 1, 5, 6]

    def test_others_are_left_alone(self):
        for sampler in ([[1], [2]], BeginsAnew()):
            assert passed_again(sampler) is sampler
