"""Batches that come but once, passed several times."""

import itertools

from batchadvisor.probes.loader import one_pass
from batchadvisor.probes.loader.one_pass import passed_again


def test_each_pass_begins_at_the_start():
    batches = passed_again(iter([[1], [2], [3]]))
    first, second = iter(batches), iter(batches)
    assert [next(first), next(second), next(second), next(first), next(first)] == [
        [1], [1], [2], [2], [3],
    ]  # fmt: skip
    assert list(batches) == [[1], [2], [3]]
    assert list(first) == []


def test_of_an_endless_one_not_all_is_kept(monkeypatch):
    monkeypatch.setattr(one_pass, "MAX_REMEMBERED", 2)
    batches = passed_again(itertools.count())
    assert list(itertools.islice(batches, 5)) == [0, 1, 2, 3, 4]
    assert list(itertools.islice(batches, 4)) == [0, 1, 5, 6]


class BeginsAnew:
    def __iter__(self):
        self.place = 0
        return self

    def __next__(self):
        return [self.place]


def test_others_are_left_alone():
    for sampler in ([[1], [2]], BeginsAnew()):
        assert passed_again(sampler) is sampler
