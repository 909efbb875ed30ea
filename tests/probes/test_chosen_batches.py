"""A trial begins with the longest samples, of whatever loader; or with others of one length."""

import pytest
import torch
from batchadvisor.probes.loader.budgets import cut_by_budget
from batchadvisor.probes.loader.chosen_batches import (
    band_of,
    census_of,
    worst_of,
)
from batchadvisor.probes.loader.sample_lengths import NO_SAMPLE_LENGTH, SampleLengths
from batchadvisor.records import CHOSEN_STEPS
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    get_worker_info,
)

from .loading import Pass, steered

LENGTHS = [3, 9, 5, 7, 9, 4, 2, 8]


class Rows(Dataset):
    def __init__(self, lengths=LENGTHS):
        self.rows = lengths

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.zeros(self.rows[index]), index


class Stream(IterableDataset):
    def __iter__(self):
        return ((torch.zeros(length), index) for index, length in enumerate(LENGTHS))


class OfAWorker(Rows):
    def __getitem__(self, index):
        return super().__getitem__(index + 0 * get_worker_info().id)


class StreamOfAWorker(Stream):
    def __iter__(self):
        return iter(list(super().__iter__())[get_worker_info().id :])


class Pairs(BatchSampler):
    """Batches of the script's own, whose size it follows: neighbours of like length."""

    def __init__(self, batch_size):
        super().__init__(sorted(range(len(LENGTHS)), key=LENGTHS.__getitem__), batch_size, False)


class Filled(Sampler):
    def __init__(self, max_tokens):
        self.max_tokens = max_tokens

    def __iter__(self):
        order = [*range(len(LENGTHS))] * 8
        return cut_by_budget(order, LENGTHS, self.max_tokens, padded=True)


def rows(batch):
    return [index for _, index in batch]


def begun(loader, size, length="", native=None):
    """A trial of a size, with the longest samples or those of another length."""
    handle = steered(loader, worst_case=not length)
    if native is not None:
        handle.native = native
        handle.try_size()
    handle.begin_trial(length)
    handle.ask(size)
    script = Pass(loader, handle)
    script.loader = loader  # a script keeps it, or its iterator does
    return handle, script


def one_by_one(data=None, **options):
    return DataLoader(data or Rows(), batch_size=1, collate_fn=list, **options)


def lengths_of(script, num=CHOSEN_STEPS + 2):
    return [[LENGTHS[index] for index in rows(next(script))] for _ in range(num)]


class TestWorstCase:
    def test_samples_drawn_one_by_one(self):
        handle, script = begun(one_by_one(), 2)
        assert handle.why_unordered == ""
        seen = lengths_of(script)
        assert seen[:CHOSEN_STEPS] == [[9, 9]] * CHOSEN_STEPS
        assert seen[CHOSEN_STEPS:] == [[3, 9], [5, 7]]
        chosen = handle.inputs().chosen
        assert (chosen.num_samples, chosen.longest, chosen.total) == (2, 9, 18)

    def test_more_than_there_are(self):
        _, script = begun(one_by_one(Rows([3, 9])), 5)
        assert rows(next(script)) == [1, 0, 1, 0, 1]

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_a_stream(self, num_workers):
        handle, script = begun(one_by_one(Stream(), num_workers=num_workers), 3)
        assert handle.why_unordered == ""
        seen = lengths_of(script)
        assert seen[:CHOSEN_STEPS] == [[9, 9, 8]] * CHOSEN_STEPS
        assert seen[CHOSEN_STEPS] == [3, 9, 5]
        handle.begin_trial()
        handle.ask(2)
        assert lengths_of(script)[0] == [9, 9]
        assert handle.chosen.used.longest == 9

    def test_all_batches_of_the_steps_are_chosen(self):
        """Accumulation over four: the first of three steps may be left out, and took four."""
        handle, script = begun(one_by_one(), 2)
        handle.begin_trial(batches_a_step=4)
        assert lengths_of(script, 13) == [[9, 9]] * 12 + [[3, 9]]

    @pytest.mark.parametrize("kind", [OfAWorker, StreamOfAWorker])
    def test_samples_that_load_in_a_data_worker_alone(self, kind):
        """Nothing is chosen, and the script hears nothing of the try."""
        handle, script = begun(one_by_one(kind(), num_workers=1), 2)
        assert "could not be loaded for its length: AttributeError" in handle.why_unordered
        assert lengths_of(script, 2) == [[3, 9], [5, 7]]
        assert handle.chosen.used is None

    def test_lengths_of_such_samples_that_the_script_keeps(self):
        class Known(OfAWorker):
            lengths = LENGTHS

        _, script = begun(one_by_one(Known(), num_workers=1), 2)
        assert lengths_of(script, 1) == [[9, 9]]

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_a_pass_that_the_script_begins_later_is_as_any_other(self, num_workers):
        loader = one_by_one(Stream(), num_workers=num_workers)
        handle, script = begun(loader, 2)
        assert lengths_of(script)[0] == [9, 9]
        handle.chosen.begin("")
        assert lengths_of(Pass(loader, handle))[0] == [3, 9]

    def test_a_batch_sampler_of_its_own(self):
        loader = DataLoader(Rows(), batch_sampler=Pairs(2), collate_fn=list)
        _, script = begun(loader, 3)
        # Of its own groups that are whole: two samples of 9 are left over.
        assert lengths_of(script)[:2] == [[5, 7, 8]] * 2

    def test_a_budget(self):
        loader = DataLoader(Rows(), batch_sampler=Filled(18), collate_fn=list)
        handle, script = begun(loader, 27, native=2)
        assert handle.info().axis == "tokens"
        worst = lengths_of(script)[0]
        passes = [[LENGTHS[index] for index in batch] for batch in Filled(27)]
        assert len(worst) * max(worst) == max(len(batch) * max(batch) for batch in passes)

    @pytest.mark.parametrize("stream", [False, True])
    def test_texts_that_a_collate_function_splits(self, stream):
        class Texts(IterableDataset):
            def __iter__(self):
                return iter(["two words", "three more words"])

        data = Texts() if stream else ["two words", "three more words"] * 4
        handle, script = begun(DataLoader(data, batch_size=2), 3)
        assert handle.why_unordered == NO_SAMPLE_LENGTH
        assert len(next(script)) == 3
        assert handle.inputs() is None


@pytest.mark.parametrize(
    ("length", "size", "band"),
    [
        ("shortest", 8, (1, 2)),
        ("median", 8, (50, 51)),
        ("longest", 8, (99, 100)),
        ("median", 1, (50, 50)),
    ],
)
def test_lengths_at_a_place_in_their_order(length, size, band):
    assert band_of(range(1, 101), length, size) == band


class TestChosenLengths:
    @pytest.mark.parametrize(
        ("length", "expected"), [("shortest", [2, 2]), ("median", [7, 7]), ("longest", [9, 9])]
    )
    def test_of_samples(self, length, expected):
        handle, script = begun(one_by_one(), 2, length)
        assert sorted(lengths_of(script)[0], reverse=True) == expected
        inputs = handle.inputs()
        assert inputs.chosen.length == length
        assert inputs.census.num_samples == len(LENGTHS)
        assert inputs.census.complete

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_of_a_stream_by_rank(self, num_workers):
        handle, script = begun(one_by_one(Stream(), num_workers=num_workers), 2, "shortest")
        for length, expected in (("shortest", [2, 2]), ("median", [5, 5]), ("longest", [9, 9])):
            handle.begin_trial(length)
            handle.ask(2)
            assert lengths_of(script)[0] == expected
            used = handle.inputs().chosen
            assert (used.length, used.longest, used.num_samples) == (length, expected[0], 2)

    def test_of_a_budget(self):
        loader = DataLoader(Rows(), batch_sampler=Filled(18), collate_fn=list)
        _, script = begun(loader, 20, "shortest", native=2)
        assert lengths_of(script)[0] == [2] * 10


def test_a_data_set_that_has_no_need_of_it_is_not_asked_for_lengths():
    class Asked(Rows):
        asked = 0

        @property
        def lengths(self):
            Asked.asked += 1
            return self.rows

        def __getitem__(self, index):
            Asked.asked += 1
            return super().__getitem__(index)

    loader = DataLoader(Asked(), batch_size=2, collate_fn=list)
    handle = steered(loader)
    handle.native = 2
    handle.try_size()
    assert Asked.asked == 0
    assert handle.info().steered == "exact"


class TestCensus:
    def test_counts(self):
        lengths = SampleLengths(Rows())
        lengths.load(range(len(LENGTHS)))
        census = census_of(lengths, len(LENGTHS))
        assert dict(zip(census.lengths, census.counts, strict=True))[9] == 2
        assert census.complete
        assert not census_of(lengths, 10**6).complete
        assert census_of(SampleLengths(Rows()), 8) is None

    def test_many_lengths_are_joined_upwards(self):
        values = list(range(1, 5001))
        lengths = SampleLengths(Rows(values))
        lengths.by_index = dict(enumerate(values))
        census = census_of(lengths, 5000)
        assert census.num_samples == 5000
        assert len(census.lengths) <= 500
        assert census.lengths[-100:] == tuple(range(4901, 5001))
        for limit in (100, 2500, 4800, 4950):
            above = sum(
                count
                for length, count in zip(census.lengths, census.counts, strict=True)
                if length > limit
            )
            assert above >= 5000 - limit


def test_the_worst_of_equal_ones_is_the_longest():
    lengths = SampleLengths(Rows([4, 4, 8]))
    assert worst_of([[0, 1], [2]], lengths) == [2]
    assert worst_of([], lengths) == []
