"""Batch samplers of the script's own: followed, made anew, or flattened, as an experiment tells."""

import gc
import random
import subprocess
import sys
import weakref

import pytest
from batchadvisor.probes.loader import remade_samplers
from torch.utils.data import DataLoader, Sampler

from .loading import ByHalf, Pass, numbers, steered

LENGTHS = [5 + (index * 37) % 60 for index in range(400)]


class Cut(Sampler):
    """Sorted by length and cut when it is made."""

    def __init__(self, lengths, batch_size=10, *, epoch=0):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        self.set_epoch(epoch)

    def set_epoch(self, epoch):
        self.epoch = epoch
        random.Random(epoch).shuffle(self.batches)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Named(Cut):
    """It names a size that has no effect any more."""

    def __init__(self, lengths, batch_size=10, **named):
        super().__init__(lengths, batch_size, **named)
        self.batch_size = batch_size


class Budget(Sampler):
    """A budget of tokens, and a bound on the number of samples."""

    def __init__(self, lengths, max_tokens, batch_size):
        self.lengths, self.max_tokens, self.batch_size = lengths, max_tokens, batch_size

    def __iter__(self):
        batch = []
        for index in range(len(self.lengths)):
            tokens = sum(self.lengths[each] for each in [*batch, index])
            if batch and (tokens > self.max_tokens or len(batch) == self.batch_size):
                yield batch
                batch = []
            batch.append(index)
        yield batch


def made(kind, *args, **named):
    """As the hooks into torch see it."""
    sampler = kind(*args, **named)
    remade_samplers.remember(sampler, args, named)
    return sampler


def tried(sampler, num=400):
    loader = DataLoader(numbers(num), batch_sampler=sampler)
    handle = steered(loader)
    script = Pass(loader, handle)
    next(script)
    handle.try_size()
    return handle, script


def assert_approximate(handle, script, size, num=5):
    """Batches have the size that is asked for, and are not those of the sampler."""
    assert handle.info().steered == "approximate"
    handle.ask(size)
    assert script.sizes(num) == [size] * num


class TestMadeAnew:
    @pytest.mark.parametrize("kind", [Cut, Named])
    def test_grouping_is_kept(self, kind):
        handle, script = tried(made(kind, LENGTHS, batch_size=10))
        assert handle.info().steered == "exact"
        for size in (20, 7, 20):
            handle.ask(size)
            for _ in range(60):
                lengths = [LENGTHS[index] for index in next(script)[1].tolist()]
                assert len(lengths) == size
                assert max(lengths) - min(lengths) <= size // 5

    def test_positional_size_and_epoch(self):
        fresh = remade_samplers.remade(made(Cut, LENGTHS, 10, epoch=3), 25)
        assert (len(fresh), fresh.epoch) == (16, 3)

    def test_what_the_script_holds_stays_its_own(self):
        sampler = made(Named, LENGTHS, 10)
        before = list(map(list, sampler))
        handle, script = tried(sampler)
        handle.ask(30)
        next(script)
        assert (sampler.batch_size, list(sampler)) == (10, before)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Named(LENGTHS, 10),  # not seen
            lambda: made(Named, LENGTHS),  # the size is the default: a copy looks like this
        ],
    )
    def test_unknown_arguments_are_not_guessed(self, make):
        assert_approximate(*tried(make()), size=7, num=30)

    def test_used_up_arguments(self):
        class Once(Cut):
            def __init__(self, lengths, batch_size):
                super().__init__(list(lengths), batch_size)

        assert_approximate(*tried(made(Once, iter(LENGTHS), 10)), size=7)

    def test_one_that_raises_the_second_time(self):
        class Single(Cut):
            num_made = 0

            def __init__(self, lengths, batch_size):
                Single.num_made += 1
                if Single.num_made > 1:
                    raise RuntimeError("made twice")
                super().__init__(lengths, batch_size)

        assert_approximate(*tried(made(Single, LENGTHS, 10)), size=7)

    def test_arguments_are_let_go_with_the_sampler(self):
        sampler = made(Cut, LENGTHS, 10)
        gone = weakref.ref(sampler)
        del sampler
        gc.collect()
        assert gone() is None


class TestAttribute:
    def test_one_that_follows_keeps_its_own_size(self):
        sampler = ByHalf(400, 10)
        handle, _ = tried(sampler)
        assert (handle.info().steered, handle.remakes, sampler.batch_size) == ("exact", False, 10)

    def test_a_bound_beside_a_budget_is_no_size(self):
        """Batches of 20 would be those of the shortest sequences alone, and the budget is none
        either, as the bound holds before it.
        """
        assert_approximate(*tried(made(Budget, LENGTHS, 300, 5)), size=20)

    def test_a_budget_that_never_binds(self):
        handle, _ = tried(made(Budget, LENGTHS, 10**6, 5))
        assert (handle.info().steered, handle.remakes) == ("exact", False)

    def test_empty(self):
        assert not remade_samplers.follows([], 3)
        assert not remade_samplers.follows(iter([[]]), 3)


def test_a_sampler_that_groups_by_length_keeps_its_order():
    """As the Trainer's: sorted within groups of its own; torch's batch sampler cuts it."""
    order = random.Random(3).sample(range(400), 400)
    groups = (order[start : start + 80] for start in range(0, 400, 80))
    grouped = [each for group in groups for each in sorted(group, key=LENGTHS.__getitem__)]
    loader = DataLoader(numbers(400), batch_size=8, sampler=grouped)
    handle = steered(loader)
    script = Pass(loader, handle)
    handle.try_size()
    assert handle.info().steered == "exact"
    handle.ask(20)
    assert [index for _ in range(20) for index in next(script)[1].tolist()] == grouped


MAKES = """
import copy, inspect, pickle
from torch.utils.data import BatchSampler, Sampler, SequentialSampler
from batchadvisor.probes.loader.remade_samplers import remade
from batchadvisor.probes.worker.patches import _watch_samplers

_watch_samplers()

class Own(Sampler):
    def __init__(self, lengths, batch_size, *, seed=0):
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed

class Rows(Sampler, list):
    def __init__(self, rows, batch_size):
        list.__init__(self, rows)

class Unhashed(Own):
    def __eq__(self, other):
        return self is other

own = Own([1, 2], 8, seed=5)
fresh = remade(own, 9)
assert (type(fresh), fresh.lengths, fresh.batch_size, fresh.seed) == (Own, [1, 2], 9, 5)
assert list(inspect.signature(Own).parameters) == ["lengths", "batch_size", "seed"]
for other in (copy.copy(own), copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
    assert (other.batch_size, other.seed, remade(other, 9)) == (8, 5, None)
assert Rows([[1], [2]], 1) == [[1], [2]]
assert Unhashed([1], 8).batch_size == 8 and remade(Unhashed([1], 8), 9) is None
assert list(BatchSampler(SequentialSampler(range(3)), 2, False)) == [[0, 1], [2]]
try:
    Own([1])
except TypeError as error:
    assert "batch_size" in str(error)
else:
    raise AssertionError("a missing argument passed")
"""


def test_samplers_are_made_as_without_the_hook():
    """In a process of its own: the hook is never undone."""
    command = [sys.executable, "-c", MAKES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
