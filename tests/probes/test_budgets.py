"""Batch samplers that fill a budget: found, scaled as they are, or rebuilt by their rule."""

import random

import pytest
from batchadvisor.probes.loader import remade_samplers
from batchadvisor.probes.loader.budgets import BY_RULE, budget_of, cut_by_budget
from batchadvisor.probes.loader.sample_lengths import NO_SAMPLE_LENGTH, SampleLengths, length_of
from torch.utils.data import DataLoader, Dataset, Sampler

from .test_loaders import begun

LENGTHS = [5 + (index * 37) % 60 for index in range(600)]
TABLE = dict(enumerate(LENGTHS))


class Texts(Dataset):
    def __init__(self, lengths=LENGTHS):
        self.rows = lengths

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return [1] * self.rows[index], index


class AtEachPass(Sampler):
    """The budget is an attribute, read at each pass."""

    def __init__(self, max_tokens):
        self.max_tokens = max_tokens

    def __iter__(self):
        order = sorted(TABLE, key=TABLE.__getitem__)
        return cut_by_budget(order, TABLE, self.max_tokens, padded=True)


class Constraint:
    def __init__(self, max_duration):
        self.max_duration = max_duration


class Dynamic(AtEachPass):
    """As Lhotse's: the budget lies in a part of the sampler, in seconds."""

    def __init__(self, max_duration):
        self.constraint = Constraint(max_duration)

    @property
    def max_tokens(self):
        return self.constraint.max_duration


class WhenMade(Sampler):
    """Cut when it is made, and it keeps no budget."""

    def __init__(self, lengths, max_tokens_per_batch):
        self.batches = list(
            cut_by_budget(range(len(lengths)), lengths, max_tokens_per_batch, padded=False)
        )

    def __iter__(self):
        return iter(self.batches)


def made(kind, *args, **named):
    sampler = kind(*args, **named)
    remade_samplers.remember(sampler, args, named)
    return sampler


def found(sampler, lengths=None):
    return budget_of(sampler, lengths or SampleLengths(Texts()))


def padded(batch):
    return len(batch) * max(TABLE[index] for index in batch)


def cut(budget, *, by_pad=True, order="shortest", shuffled=False):
    indices = list(TABLE)
    if order != "given":
        indices.sort(key=TABLE.__getitem__, reverse=order == "longest")
    batches = list(cut_by_budget(indices, TABLE, budget, padded=by_pad))
    if shuffled:
        random.Random(1).shuffle(batches)
    return batches


class TestByParameter:
    @pytest.mark.parametrize(
        ("sampler", "parameter", "axis", "how"),
        [
            (AtEachPass(400), "max_tokens", "tokens", "attribute"),
            (Dynamic(400.0), "max_duration", "seconds", "attribute"),
            (made(WhenMade, LENGTHS, 400), "max_tokens_per_batch", "tokens", "argument"),
        ],
        ids=["attribute", "part", "argument"],
    )
    def test_it_is_found_and_left_as_it_was(self, sampler, parameter, axis, how):
        before = [list(batch) for batch in sampler]
        budget = found(sampler)
        assert (budget.parameter, budget.own, budget.axis) == (parameter, 400, axis)
        assert budget.how == how
        assert [list(batch) for batch in sampler] == before
        largest = max(len(batch) for batch in before)
        wide = list(budget.batches(sampler, 1200, SampleLengths(Texts())))
        assert max(map(len, wide)) > 2 * largest
        assert sorted(index for batch in wide for index in batch) == list(TABLE)

    def test_a_kind_of_number_is_kept(self):
        sampler = Dynamic(400.0)
        found(sampler).batches(sampler, 900, SampleLengths(Texts()))
        assert repr(sampler.constraint.max_duration) == "900.0"

    def test_a_number_without_effect_is_no_budget(self):
        sampler = AtEachPass(10**6)
        sampler.max_frames = 7
        assert found(sampler) is None


class TestByRule:
    @pytest.mark.parametrize("by_pad", [True, False], ids=["padded", "sum"])
    @pytest.mark.parametrize("order", ["shortest", "longest", "given"])
    def test_batches_that_were_cut_before(self, order, by_pad):
        own = cut(500, by_pad=by_pad, order=order)
        budget = found(own)
        assert budget.how == BY_RULE
        assert budget.own <= 500 <= budget.at_most
        assert budget.rule.padded == by_pad
        again = [list(batch) for batch in budget.batches(own, 500, SampleLengths(Texts()))]
        cost = padded if by_pad else lambda batch: sum(TABLE[index] for index in batch)
        assert max(map(cost, again)) <= 500
        assert len(again) == len(own)

    def test_shuffled_after_they_were_cut(self):
        own = cut(500, shuffled=True)
        budget = found(own)
        assert budget.rule.shuffled
        wide = list(budget.batches(own, 1500, SampleLengths(Texts())))
        assert max(map(padded, wide)) <= 1500
        assert wide != sorted(wide, key=lambda batch: TABLE[batch[0]])

    def test_batches_of_other_sizes_have_no_budget(self):
        assert found([list(range(at, at + 10)) for at in range(0, 600, 10)]) is None
        rng = random.Random(4)
        order = rng.sample(list(TABLE), len(TABLE))
        at_random = []
        while order:
            num = rng.randint(2, 20)
            at_random.append(order[:num])
            order = order[num:]
        assert found(at_random) is None

    def test_one_sequence_longer_than_the_budget_says_nothing_of_it(self):
        table = {**TABLE, 600: 900}
        own = list(cut_by_budget(sorted(table, key=table.get), table, 500, padded=True))
        budget = found(own, SampleLengths(Texts([*LENGTHS, 900])))
        assert budget.own <= 500 <= budget.at_most

    def test_samples_that_were_not_looked_at_are_left_out(self, monkeypatch):
        monkeypatch.setattr("batchadvisor.probes.loader.sample_lengths.SCAN_SAMPLES", 300)
        monkeypatch.setattr("batchadvisor.probes.loader.budgets.MAX_CUT", 20)
        own, lengths = cut(300, order="given"), SampleLengths(Texts())
        budget = found(own, lengths)
        assert budget.how == BY_RULE
        batches = list(budget.batches(own, 600, lengths))
        assert sum(map(len, batches)) == 300
        assert max(map(padded, batches)) <= 600

    def test_a_batch_of_very_many_samples_is_filled_in_one_go(self):
        """A look at the whole batch for each sample more would take minutes."""
        lengths = [1] * 100_000
        (batch,) = cut_by_budget(range(100_000), lengths, 100_000, padded=True)
        assert len(batch) == 100_000

    def test_lengths_that_only_the_collate_function_knows(self):
        class Words(Texts):
            def __getitem__(self, index):
                return "word " * self.rows[index]

        lengths = SampleLengths(Words())
        assert found(cut(500), lengths) is None
        assert lengths.why == NO_SAMPLE_LENGTH


def tried(loader):
    """The handle of a loader that found out how its sampler takes a size, and the script's pass."""
    handle, script = begun(loader)
    next(script)
    handle.try_size()
    return handle, script


class TestSteering:
    @pytest.mark.parametrize("native", [AtEachPass(400), cut(400)], ids=["attribute", "rule"])
    def test_batches_fill_the_budget_that_is_asked_for(self, native):
        handle, script = tried(DataLoader(Texts(), batch_sampler=native, collate_fn=list))
        assert (handle.info().axis, handle.info().steered) == ("tokens", "exact")
        for size in (300, 900, 300):
            handle.ask(size)
            batches = [[row[1] for row in next(script)] for _ in range(200)]
            assert handle.proof == "budget"
            assert size / 2 < max(map(padded, batches)) <= size

    def test_a_sampler_that_yields_whole_batches(self):
        """As Lhotse's with `batch_size=None`: the data set makes a batch of what it yields."""

        class Batches(Dataset):
            def __len__(self):
                return len(LENGTHS)

            def __getitem__(self, indices):
                return indices

        handle, script = tried(DataLoader(Batches(), sampler=Dynamic(400.0), batch_size=None))
        info = handle.info()
        assert (info.steered, info.axis, info.batch_size) == ("exact", "seconds", 400)
        handle.ask(1000)
        assert max(padded(next(script)) for _ in range(60)) > 800


class TestLengths:
    def test_a_list_of_the_sampler_is_taken(self):
        assert not SampleLengths(Texts(), (WhenMade(LENGTHS, 400),)).declared
        sampler = AtEachPass(400)
        sampler.lengths = LENGTHS
        assert SampleLengths(Texts(), (sampler,)).declared

    def test_numbers_that_are_no_lengths_are_not(self):
        data = Texts()
        data.sizes = [index % 7 for index in range(len(data))]
        lengths = SampleLengths(data)
        assert not lengths.declared
        assert lengths.of([3, 4]) == LENGTHS[3:5]

    @pytest.mark.parametrize(
        ("sample", "length"),
        [({"input_ids": [1, 2], "labels": 1}, 2), (([], 0), 0), ("text", None), (3, None)],
    )
    def test_of_one_sample(self, sample, length):
        assert length_of(sample) == length
