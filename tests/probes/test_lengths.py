"""How long the inputs of a batch are, and which samples are the longest."""

import torch
from batchadvisor.probes.loader.lengths import EQUAL_BATCHES, Lengths, LongestFirst, elements


def text(*shape):
    return {"ids": torch.zeros(*shape), "label": torch.zeros(shape[0])}


class TestLengths:
    def test_the_spread_of_a_trial(self):
        lengths = Lengths()
        for length in (9, 99, 49):
            lengths.note(text(4, length), 4)
        spread = lengths.take()
        assert (spread.num_batches, spread.smallest, spread.largest) == (3, 10.0, 100.0)
        lengths.begin()
        lengths.note(text(2, 19), 2)
        assert (lengths.take().smallest, lengths.take().largest) == (20.0, 20.0)

    def test_one_length_is_no_spread(self):
        lengths = Lengths()
        for size in (4, 8, 2):
            lengths.note(text(size, 9), size)
        assert lengths.take() is None

    def test_it_stops_looking_where_nothing_varies(self):
        lengths = Lengths()
        for _ in range(EQUAL_BATCHES + 1):
            lengths.note(text(4, 9), 4)
        lengths.note(None, 4)  # not looked at any more
        assert lengths.take() is None

    def test_batches_without_a_size_or_tensors(self):
        lengths = Lengths()
        lengths.note(text(4, 9), None)
        lengths.note(("only", "words"), 2)
        assert lengths.take() is None

    def test_elements(self):
        assert elements(text(4, 9)) == 40
        assert elements([torch.zeros(3, 5), [1, 2, 3]]) == 18
        assert elements("words") == 0


DATASET = tuple(torch.zeros(length) for length in (3, 50, 7, 50, 20))


class TestLongestFirst:
    def test_order(self):
        longest = LongestFirst(DATASET, iter(range(5)))
        assert longest.batch(3) == [1, 3, 4]
        assert longest.batch(5) == [1, 3, 4, 2, 0]

    def test_more_than_there_are(self):
        longest = LongestFirst(DATASET, iter(range(2)))
        assert longest.batch(5) == [1, 0, 1, 0, 1]

    def test_nothing(self):
        assert LongestFirst([], iter(())).batch(4) == []

    def test_a_dataset_that_fetches_several_at_once(self):
        """torch's DataLoader asks such a one for nothing else."""

        class Many:
            def __getitems__(self, indices):
                return [DATASET[index] for index in indices]

        assert LongestFirst(Many(), iter(range(5))).batch(3) == [1, 3, 4]
