"""Real DataLoaders under steering, without a process of their own."""

import copy
import pickle

import pytest
import torch
from batchadvisor.probes.batch_sampler import SteeredBatchSampler
from batchadvisor.probes.loaders import (
    CycledDataset,
    LoaderHandle,
    is_training_fetch,
)
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

NATIVE_NEXT = _BaseDataLoaderIter.__next__


class Pass:
    """One pass of the script over a loader, fetched the way steering fetches."""

    def __init__(self, loader, handle):
        self.handle = handle
        self.iterator = iter(loader)

    def __iter__(self):
        return self

    def __next__(self):
        return self.handle.fetch(self.iterator, NATIVE_NEXT)

    def sizes(self, num):
        return [length(next(self)) for _ in range(num)]


def length(batch):
    return len(batch[0]) if isinstance(batch, (list, tuple)) else len(batch)


def steered(loader, cap=None):
    return LoaderHandle(loader, 0, None, None, cap)


def info_of(loader):
    return steered(loader).info()


def numbers(num=100):
    return TensorDataset(torch.arange(float(num)), torch.arange(num))


class Stream(IterableDataset):
    def __init__(self, num=20, promised=None):
        self.num = num
        self.promised = promised

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step = info.num_workers if info else 1
        return iter(range(info.id if info else 0, self.num, step))

    def __len__(self):
        if self.promised is None:
            raise TypeError("no length")
        return self.promised


class ByHalf(BatchSampler):
    """A batch sampler of the script's own: batches lie in one half of the data."""

    def __init__(self, num, batch_size):
        self.num, self.batch_size = num, batch_size

    def __iter__(self):
        half = self.num // 2
        for start in (0, half):
            for at in range(start, start + half - self.batch_size + 1, self.batch_size):
                yield list(range(at, at + self.batch_size))

    def __len__(self):
        return 2 * (self.num // 2 // self.batch_size)


class Fixed:
    """Batches of five, whatever its attribute says."""

    def __init__(self, num):
        self.num, self.batch_size = num, 5

    def __iter__(self):
        for at in range(0, self.num, 5):
            yield list(range(at, min(at + 5, self.num)))

    def __len__(self):
        return (self.num + 4) // 5


LOADERS = {
    "keyword": lambda: DataLoader(numbers(), batch_size=8),
    "positional": lambda: DataLoader(numbers(), 8, True),
    "drop last": lambda: DataLoader(numbers(), batch_size=8, drop_last=True),
    "batch sampler": lambda: DataLoader(
        numbers(), batch_sampler=BatchSampler(SequentialSampler(range(100)), 8, False)
    ),
    "weighted": lambda: DataLoader(
        numbers(), batch_size=8, sampler=WeightedRandomSampler(torch.ones(100), 50)
    ),
    "collate": lambda: DataLoader(
        numbers(), batch_size=8, collate_fn=lambda rows: {"x": torch.stack([a for a, _ in rows])}
    ),
    "list": lambda: DataLoader(list(range(100)), batch_size=8),
    "no batch size": lambda: DataLoader(numbers()),
}


class TestSizes:
    @pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())
    def test_asked_sizes_arrive(self, make):
        """Up, down, larger than the data, and one: in one running loop."""
        loader = make()
        handle = steered(loader)
        script = Pass(loader, handle)
        next(script)
        native = handle.native
        for size in (3, 33, 8, 250, 1):
            handle.asked = size
            for _ in range(3):
                batch = next(script)
                seen = batch["x"] if isinstance(batch, dict) else batch
                assert length(seen) == size
                assert (handle.arrived, handle.proof) == (size, "shape")
        assert handle.native == native
        assert not handle.approximate

    def test_short_dataset_goes_round(self):
        """Seven samples, batches of five: every sample comes as often as the others."""
        loader = DataLoader(numbers(7), batch_size=2)
        handle = steered(loader)
        script = Pass(loader, handle)
        handle.asked = 5
        seen = torch.cat([next(script)[1] for _ in range(7)]).tolist()
        assert sorted(seen) == sorted(list(range(7)) * 5)

    def test_a_new_pass_goes_on_with_the_asked_size(self):
        loader = DataLoader(numbers(), batch_size=8)
        handle = steered(loader)
        handle.asked = 20
        assert Pass(loader, handle).sizes(2) == [20, 20]
        assert Pass(loader, handle).sizes(2) == [20, 20]

    def test_empty_dataset_ends(self):
        loader = DataLoader([], batch_size=8)
        handle = steered(loader)
        handle.asked = 4
        with pytest.raises(StopIteration):
            next(Pass(loader, handle))

    def test_size_that_no_tensor_carries(self):
        """Packed batches: the number of samples is proved by the indices that were fetched."""
        loader = DataLoader(
            numbers(), batch_size=8, collate_fn=lambda rows: torch.zeros(3 * len(rows) + 1)
        )
        handle = steered(loader)
        script = Pass(loader, handle)
        next(script)
        next(script)
        handle.asked = 12
        assert len(next(script)) == 37
        assert (handle.arrived, handle.proof) == (12, "indices")


class TestNative:
    @pytest.mark.parametrize("workers", [0, 1])
    def test_batches_are_those_of_an_unsteered_loader(self, workers):
        """Same seed, same batches in the same order, and the same random numbers after them."""
        passes = []
        for patched in (False, True):
            torch.manual_seed(7)
            loader = DataLoader(numbers(), batch_size=8, shuffle=True, num_workers=workers)
            if patched:
                handle = steered(loader)
                batches = [one[1].tolist() for _ in range(2) for one in Pass(loader, handle)]
            else:
                batches = [one[1].tolist() for _ in range(2) for one in loader]
            passes.append((batches, torch.rand(3).tolist()))
        assert passes[0] == passes[1]
        assert len(passes[0][0]) == 26

    def test_epoch_ends_and_length_stays(self):
        loader = DataLoader(numbers(), batch_size=8)
        handle = steered(loader)
        assert len(loader) == 13
        assert [length(one) for one in Pass(loader, handle)] == [8] * 12 + [4]
        # The short last batch is not the script's size.
        assert handle.native == 8
        handle.asked = 50
        assert len(loader) == 13
        Pass(loader, handle).sizes(1)
        assert len(loader) == 13

    def test_cap(self):
        loader = DataLoader(numbers(), batch_size=32)
        handle = steered(loader, cap=4)
        assert Pass(loader, handle).sizes(2) == [4, 4]
        handle.asked = 40
        assert Pass(loader, handle).sizes(1) == [40]

    def test_attributes_of_the_batch_sampler_are_still_there(self):
        sampler = ByHalf(100, 10)
        loader = DataLoader(numbers(), batch_sampler=sampler)
        steered(loader)
        assert isinstance(loader.batch_sampler, SteeredBatchSampler)
        assert loader.batch_sampler.num == 100
        with pytest.raises(AttributeError):
            _ = loader.batch_sampler.nothing


class TestMadeAnew:
    """What frameworks and other processes do with a batch sampler that they find in a loader."""

    def test_its_class_is_called_as_that_of_the_scripts_own(self):
        loader = DataLoader(numbers(), batch_size=8)
        first = steered(loader)
        kind = type(loader.batch_sampler)
        anew = kind(SequentialSampler(range(50)), batch_size=8, drop_last=True)
        assert len(anew) == 6
        assert anew.handle is first  # whose line is the one to change
        wrapped = DataLoader(numbers(), batch_sampler=anew)
        second = steered(wrapped)
        second.asked = 20
        assert Pass(wrapped, second).sizes(3) == [20, 20, 20]
        assert second.info().sampler == "SequentialSampler"

    def test_another_process_gets_the_scripts_own(self):
        loader = DataLoader(numbers(), batch_size=8)
        steered(loader)
        there = pickle.loads(pickle.dumps(loader))
        assert type(there.batch_sampler) is BatchSampler
        assert [length(one) for one in there] == [8] * 12 + [4]

    def test_a_copy_is_steered_by_the_same_handle(self):
        loader = DataLoader(numbers(), batch_size=8)
        handle = steered(loader)
        twin = copy.deepcopy(loader)
        assert twin.batch_sampler is not loader.batch_sampler
        assert twin.batch_sampler.handle is handle


class TestBatchSamplers:
    def test_one_that_follows_its_size_keeps_its_grouping(self):
        loader = DataLoader(numbers(), batch_sampler=ByHalf(100, 10))
        handle = steered(loader)
        script = Pass(loader, handle)
        handle.asked = 7
        for _ in range(40):
            labels = next(script)[1]
            assert len(labels) == 7
            assert (labels < 50).all() or (labels >= 50).all()
        assert handle.info().steered == "exact"

    def test_one_that_does_not_is_cut_again(self):
        loader = DataLoader(numbers(), batch_sampler=Fixed(100))
        handle = steered(loader)
        script = Pass(loader, handle)
        handle.asked = 7
        assert script.sizes(30) == [7] * 30
        assert handle.approximate
        assert handle.info().steered == "approximate"

    def test_one_whose_size_cannot_be_set(self):
        class Sealed(Fixed):
            batch_size = property(lambda self: 5, lambda self, value: None)

            def __init__(self, num):
                self.num = num

        class Angry(Sealed):
            batch_size = property(lambda self: 5)

        for kind in (Sealed, Angry):
            loader = DataLoader(numbers(), batch_sampler=kind(100))
            handle = steered(loader)
            handle.asked = 12
            assert Pass(loader, handle).sizes(3) == [12] * 3
            assert handle.approximate

    def test_a_plain_list_of_batches(self):
        loader = DataLoader(numbers(), batch_sampler=[[0, 1, 2], [3, 4, 5]])
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(1) == [3]
        handle.asked = 4
        assert next(script)[1].tolist() == [0, 1, 2, 3]
        assert next(script)[1].tolist() == [4, 5, 0, 1]
        assert handle.approximate


class TestIterable:
    def test_it_goes_round(self):
        loader = DataLoader(Stream(20), batch_size=8)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(1) == [8]
        for size in (3, 50, 7):
            handle.asked = size
            assert script.sizes(3) == [size] * 3
        assert handle.info().steered == "exact"

    def test_native_pass_ends(self):
        loader = DataLoader(Stream(20), batch_size=8)
        handle = steered(loader)
        assert [len(one) for one in Pass(loader, handle)] == [8, 8, 4]
        assert isinstance(loader.dataset, Stream)

    def test_with_workers(self):
        loader = DataLoader(Stream(40), batch_size=4, num_workers=2)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [4, 4]
        for size in (10, 3):
            handle.asked = size
            assert script.sizes(4) == [size] * 4

    def test_the_promised_length_is_not_held_against_it(self):
        """torch warns when an iterable dataset yields more than its length: warnings are errors."""
        loader = DataLoader(Stream(20, promised=20), batch_size=8)
        handle = steered(loader)
        assert len(loader) == 3
        script = Pass(loader, handle)
        next(script)
        handle.asked = 6
        assert script.sizes(10) == [6] * 10

    def test_empty_stream_ends(self):
        loader = DataLoader(Stream(0), batch_size=8)
        handle = steered(loader)
        handle.asked = 4
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
            handle.asked = size
            assert script.sizes(3) == [size] * 3

    def test_persistent_workers(self):
        loader = DataLoader(Slow(), batch_size=8, num_workers=1, persistent_workers=True)
        handle = steered(loader)
        assert sum(Pass(loader, handle).sizes(50)) == 400
        handle.asked = 9
        assert Pass(loader, handle).sizes(3) == [9] * 3

    @pytest.mark.skipif(
        "in_order" not in DataLoader.__init__.__code__.co_varnames, reason="needs torch 2.6"
    )
    def test_batches_out_of_order_are_told_by_their_shape(self):
        loader = DataLoader(Slow(), batch_size=8, num_workers=2, in_order=False)
        handle = steered(loader)
        script = Pass(loader, handle)
        assert script.sizes(2) == [8, 8]
        handle.asked = 6
        assert script.sizes(4) == [6] * 4


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


class TestWorstCase:
    def test_the_longest_come_first(self):
        loader = DataLoader([torch.zeros(n) for n in (3, 9, 5, 7)], batch_size=1)
        handle = steered(loader)
        handle.worst_case = True
        assert handle.why_unordered == ""
        handle.begin_trial()
        handle.asked = 1
        found = Pass(loader, handle)
        assert [next(found).numel() for _ in range(6)] == [9, 9, 9, 9, 3, 9]

    def test_a_stream_is_left_as_it_is(self):
        loader = DataLoader(Stream(), batch_size=4)
        handle = steered(loader)
        handle.worst_case = True
        handle.begin_trial()
        handle.asked = 5
        assert "iterable" in handle.why_unordered
        assert Pass(loader, handle).sizes(2) == [5, 5]

    def test_a_batch_sampler_of_its_own_is_left_as_it_is(self):
        class Own(BatchSampler):
            pass

        loader = DataLoader(numbers(), batch_sampler=Own(SequentialSampler(range(100)), 4, False))
        handle = steered(loader)
        handle.worst_case = True
        handle.begin_trial()
        handle.asked = 5
        assert "(Own)" in handle.why_unordered
        assert next(Pass(loader, handle))[0].tolist() == [0, 1, 2, 3, 4]
