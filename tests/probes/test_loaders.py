"""Real DataLoaders under steering, without a process of their own."""

import copy
import pickle

import pytest
import torch
from batchadvisor.probes.loader.batch_sampler import SteeredBatchSampler
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from .loading import ByHalf, Fixed, Pass, Stream, length, numbers, steered

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
    "stream": lambda: DataLoader(Stream(20), batch_size=8),
    "stream of workers": lambda: DataLoader(Stream(40), batch_size=4, num_workers=2),
    # Batches that they fetched ahead with an older size are dropped.
    "workers": lambda: DataLoader(list(range(400)), batch_size=8, num_workers=2, prefetch_factor=3),
}
if "in_order" in DataLoader.__init__.__code__.co_varnames:  # since torch 2.6
    LOADERS["out of order"] = lambda: DataLoader(
        list(range(400)), batch_size=8, num_workers=2, in_order=False
    )


def begun(loader, cap=None):
    """The handle of a loader under steering, and a pass of the script over it."""
    handle = steered(loader, cap)
    script = Pass(loader, handle)
    script.loader = loader  # a script keeps it, or its iterator does
    return handle, script


class Shared(Sampler):
    """The part of one of four ranks."""

    def __init__(self, indices, batch_size):
        self.indices, self.batch_size = indices, batch_size

    def __iter__(self):
        for start in range(0, len(self.indices), self.batch_size):
            yield list(self.indices[start : start + self.batch_size][::4])


class SplitShard:
    """As Accelerate's BatchSamplerShard: the first of four parts of each batch."""

    split_batches, num_processes = True, 4

    def __init__(self, batch_sampler):
        self.batch_sampler, self.batch_size = batch_sampler, batch_sampler.batch_size

    def __iter__(self):
        return (batch[: len(batch) // self.num_processes] for batch in self.batch_sampler)


class TestSizes:
    @pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())
    def test_asked_sizes_arrive(self, make):
        """Up, down, larger than the data, and one: in one running loop."""
        handle, script = begun(make())
        next(script)
        native = handle.native
        for size in (3, 33, 8, 250, 1):
            handle.ask(size)
            for _ in range(3):
                batch = next(script)
                seen = batch["x"] if isinstance(batch, dict) else batch
                assert length(seen) == size
                assert (handle.arrived, handle.proof) == (size, "shape")
        assert handle.native == native
        assert handle.info().steered == "exact"

    def test_short_dataset_goes_round(self):
        """Seven samples, batches of five: every sample comes as often as the others."""
        handle, script = begun(DataLoader(numbers(7), batch_size=2))
        handle.ask(5)
        seen = torch.cat([next(script)[1] for _ in range(7)]).tolist()
        assert sorted(seen) == sorted(list(range(7)) * 5)

    def test_batches_that_come_but_once(self):
        """The question how it takes sizes takes none of them away; the data come again."""
        batches = (list(range(start, start + 4)) for start in range(0, 100, 4))
        handle, script = begun(DataLoader(list(range(100)), batch_sampler=batches))
        assert next(script).tolist() == [0, 1, 2, 3]
        handle.try_size()
        assert [next(script).tolist()[0] for _ in range(3)] == [4, 8, 12]
        handle.ask(50)
        seen = torch.cat([next(script) for _ in range(4)])
        assert torch.bincount(seen).tolist() == [2] * 100
        assert handle.info().steered == "approximate"
        assert handle.sampler_name == "generator"

    @pytest.mark.parametrize("kind", [iter, lambda data: (index for index in data)])
    def test_samples_that_come_but_once(self, kind):
        """They come again for our sizes; the script's own passes go on, and end, as without us."""
        handle, script = begun(DataLoader(list(range(100)), batch_size=4, sampler=kind(range(100))))
        assert next(script).tolist() == [0, 1, 2, 3]
        handle.try_size()
        assert next(Pass(script.loader, handle)).tolist() == [4, 5, 6, 7]
        handle.ask(50)
        seen = torch.cat([next(script) for _ in range(4)])
        assert torch.bincount(seen).tolist() == [2] * 100
        assert handle.info().steered == "exact"

    def test_samples_that_came_once_are_over(self):
        handle, script = begun(DataLoader(list(range(8)), batch_size=4, sampler=iter(range(8))))
        assert len(list(script)) == 2
        assert list(Pass(script.loader, handle)) == []

    def test_a_batch_that_ranks_share(self):
        """Its sampler names the size of all ranks together, and yields the part of one."""
        handle, script = begun(DataLoader(list(range(100)), batch_sampler=Shared(range(100), 8)))
        next(script)
        handle.try_size()
        assert (handle.native, handle.batch_size) == (2, 2)
        assert (handle.info().num_samples, handle.info().source) == (25, None)
        shared = handle.shared
        assert (shared.name, shared.number, shared.is_shared) == ("Shared's batch_size", 8, True)
        handle.ask(12)
        assert len(next(script)) == 12

    def test_a_batch_that_a_framework_shares_out(self):
        """Accelerate's `split_batches`: the script's size is that of all ranks together."""
        inner = BatchSampler(SequentialSampler(range(100)), 8, False)
        handle, script = begun(DataLoader(list(range(100)), batch_sampler=SplitShard(inner)))
        assert handle.batch_size == 2
        assert (handle.shared.name, handle.shared.number) == ("batch_size", 8)
        next(script)
        assert (handle.native, handle.info().num_samples) == (2, 25)
        handle.ask(12)
        assert len(next(script)) == 12
        assert inner.batch_size == 48

    @pytest.mark.parametrize("data", [[], Stream(0)], ids=["list", "stream"])
    def test_without_data_it_ends(self, data):
        handle, script = begun(DataLoader(data, batch_size=8))
        handle.ask(4)
        with pytest.raises(StopIteration):
            next(script)

    @pytest.mark.filterwarnings("ignore:.*prototype")
    @pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
    @pytest.mark.parametrize("times", [1, 2])
    def test_nested_tensors(self, layout, times):
        """Their samples have a shape each, they have none: the indices tell."""
        loader = DataLoader(
            numbers(),
            batch_size=2,
            collate_fn=lambda rows: tuple(
                torch.nested.nested_tensor(
                    [torch.zeros(3 + at, 4) for at in range(len(rows))], layout=layout
                )
                for _ in range(times)
            ),
        )
        handle, script = begun(loader)
        next(script)
        for size in (5, 1):
            handle.ask(size)
            assert next(script)[0].size(0) == size
            assert (handle.arrived, handle.proof) == (size, "indices")

    @pytest.mark.parametrize("workers", [None, 0, 1], ids=["list", "stream", "stream of a worker"])
    def test_size_that_no_tensor_carries(self, workers):
        """Packed batches: the number of samples is proved by the indices that were fetched."""
        handle, script = begun(
            DataLoader(
                numbers() if workers is None else Stream(40),
                batch_size=8,
                num_workers=workers or 0,
                collate_fn=lambda rows: torch.zeros(3 * len(rows) + 1),
            )
        )
        assert script.sizes(2) == [25, 25]
        for size in (50, 3):
            handle.ask(size)
            assert script.sizes(4) == [3 * size + 1] * 4
            assert (handle.arrived, handle.proof) == (size, "indices")

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("missing", [9, 0], ids=["later", "first"])
    def test_a_collate_function_that_leaves_samples_out(self, missing, stream):
        """One of ten is unreadable; what was drawn is as asked, what arrives is counted."""
        loader = DataLoader(
            Stream(100) if stream else list(range(100)),
            batch_size=8,
            collate_fn=lambda rows: torch.tensor([row for row in rows if row % 10 != missing]),
        )
        handle, script = begun(loader)
        assert 8 in script.sizes(5)  # before a whole batch nothing tells which axis it is
        for size in (20, 4):
            handle.ask(size)
            sizes = script.sizes(5)
            assert (handle.arrived, sum(sizes)) == (sizes[-1], 4.5 * size)
        assert (handle.arrived, handle.proof) in {(3, "drawn"), (4, "shape")}
        handle.ask(10)
        assert script.sizes(3) == [9, 9, 9]
        assert (handle.arrived, handle.proof) == (9, "drawn")
        assert handle.lengths.take() is None

    def test_batches_that_do_not_follow_their_size(self):
        handle, script = begun(
            DataLoader(
                list(range(100)), batch_size=8, collate_fn=lambda rows: torch.tensor(rows[:8])
            )
        )
        next(script)
        handle.ask(16)
        assert script.sizes(2) == [8, 8]
        assert (handle.arrived, handle.proof) == (8, "shape")

    def test_an_axis_as_long_as_the_native_size(self):
        """Sequences come time first, and are as long as the script's batches: 8 steps, 8 to one."""
        handle, script = begun(
            DataLoader(
                numbers(), batch_size=8, collate_fn=lambda rows: torch.zeros(8, len(rows), 2)
            )
        )
        next(script)
        next(script)
        for size in (12, 8, 3):
            handle.ask(size)
            assert next(script).shape == (8, size, 2)
            assert (handle.arrived, handle.proof) == (size, "shape")


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
                batches = [batch[1].tolist() for _ in range(2) for batch in Pass(loader, handle)]
            else:
                batches = [batch[1].tolist() for _ in range(2) for batch in loader]
            passes.append((batches, torch.rand(3).tolist()))
        assert passes[0] == passes[1]
        assert len(passes[0][0]) == 26

    def test_epoch_ends_and_length_stays(self):
        loader = DataLoader(numbers(), batch_size=8)
        handle = steered(loader)
        assert len(loader) == 13
        assert [length(batch) for batch in Pass(loader, handle)] == [8] * 12 + [4]
        # The short last batch is not the script's size.
        assert handle.native == 8
        handle.ask(50)
        assert len(loader) == 13
        Pass(loader, handle).sizes(1)
        assert len(loader) == 13

    @pytest.mark.parametrize("data", [list(range(90)), Stream(90)], ids=["list", "stream"])
    def test_cap(self, data):
        """The size of a stream is learnt from the batches that were cut."""
        handle, script = begun(DataLoader(data, batch_size=32), cap=4)
        assert script.sizes(2) == [4, 4]
        handle.ask(40)
        assert script.sizes(1) == [40]
        assert (handle.arrived, handle.proof) == (40, "shape")

    def test_a_cap_leaves_single_indices_alone(self):
        loader = DataLoader(numbers(), batch_size=None, sampler=[3, 1, 2])
        handle = steered(loader, cap=4)
        assert [int(label) for _, label in Pass(loader, handle)] == [3, 1, 2]

    def test_what_is_set_on_the_batch_sampler_reaches_the_scripts_own(self):
        sampler = ByHalf(100, 10)
        loader = DataLoader(numbers(), batch_sampler=sampler)
        handle = steered(loader)
        assert loader.batch_sampler.num == 100
        with pytest.raises(AttributeError):
            _ = loader.batch_sampler.nothing
        loader.batch_sampler.epoch = 3
        loader.batch_sampler.batch_size = 5
        assert (sampler.epoch, sampler.batch_size) == (3, 5)
        assert Pass(loader, handle).sizes(2) == [5, 5]

    @pytest.mark.parametrize("sampler", [ByHalf(100, 10), Fixed(100), [[0, 1], [2, 3]]])
    def test_the_batch_sampler_is_still_of_its_class(self, sampler):
        loader = DataLoader(numbers(), batch_sampler=sampler)
        steered(loader)
        assert isinstance(loader.batch_sampler, type(sampler))
        assert isinstance(loader.batch_sampler, SteeredBatchSampler)


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
        second.ask(20)
        assert Pass(wrapped, second).sizes(3) == [20, 20, 20]
        assert second.info().sampler == "SequentialSampler"

    def test_another_process_gets_the_scripts_own(self):
        loader = DataLoader(numbers(), batch_size=8)
        steered(loader)
        there = pickle.loads(pickle.dumps(loader))
        assert type(there.batch_sampler) is BatchSampler
        assert [length(batch) for batch in there] == [8] * 12 + [4]

    def test_a_copy_is_steered_by_the_same_handle(self):
        loader = DataLoader(numbers(), batch_size=8)
        handle = steered(loader)
        twin = copy.deepcopy(loader)
        assert twin.batch_sampler is not loader.batch_sampler
        assert twin.batch_sampler.handle is handle


class Sealed(Fixed):
    """Its size is set without effect."""

    batch_size = property(lambda self: 5, lambda self, value: None)

    def __init__(self, num):
        self.num = num


class Angry(Sealed):
    """Its size cannot be set."""

    batch_size = property(lambda self: 5)


class TestBatchSamplers:
    def test_one_that_follows_its_size_keeps_its_grouping(self):
        handle, script = begun(DataLoader(numbers(), batch_sampler=ByHalf(100, 10)))
        handle.ask(7)
        for _ in range(40):
            labels = next(script)[1]
            assert len(labels) == 7
            assert (labels < 50).all() or (labels >= 50).all()
        assert handle.info().steered == "exact"

    @pytest.mark.parametrize("kind", [Fixed, Sealed, Angry])
    def test_one_that_does_not_is_cut_again(self, kind):
        handle, script = begun(DataLoader(numbers(), batch_sampler=kind(100)))
        handle.ask(7)
        assert script.sizes(30) == [7] * 30
        assert handle.info().steered == "approximate"

    def test_a_plain_list_of_batches(self):
        handle, script = begun(DataLoader(numbers(), batch_sampler=[[0, 1, 2], [3, 4, 5]]))
        assert script.sizes(1) == [3]
        assert handle.info().steered == "approximate"  # known when the loop is found
        handle.ask(4)
        assert [next(script)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 0, 1]]

    def test_sizes_that_take_turns_go_on_with_their_own_pass(self):
        """Begun anew at each turn, every turn would show the first batches of an epoch."""
        handle, script = begun(DataLoader(numbers(40), batch_sampler=ByHalf(40, 4)))
        next(script)
        seen = {2: [], 5: []}
        for _ in range(4):
            for size, firsts in seen.items():
                handle.ask(size)
                batch, _ = next(script)
                firsts.append(int(batch[0]))
        assert seen == {2: [0, 2, 4, 6], 5: [0, 5, 10, 15]}
