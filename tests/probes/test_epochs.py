"""Whether an epoch ends where the script expects it."""

from batchadvisor.probes.loader.epochs import Epochs, began_anew


class Held:
    """An iterator that a script holds."""


def test_epochs_that_go_on():
    epochs, iterator = Epochs(end=False), Held()
    epochs.look([0] * 3)
    for number in range(1, 12):
        assert not epochs.is_over(iterator)
        epochs.gave(iterator)
        assert epochs.is_past is (number > 3)
        assert epochs.just_past is (3 < number <= 7)  # later failures have other causes


def test_epochs_that_end():
    epochs, iterator = Epochs(end=True), Held()
    epochs.look([0] * 3)
    for _ in range(2):  # the iterator of persistent workers goes on
        for _ in range(3):
            assert not epochs.is_over(iterator)
            epochs.gave(iterator)
        assert not epochs.begins()
        assert epochs.is_over(iterator)
        assert epochs.begins()
        assert not epochs.begins()
        assert not epochs.is_past
    epochs.gave(iterator)
    began_anew(iterator)  # the script left the loop
    for _ in range(3):
        assert not epochs.is_over(iterator)
        epochs.gave(iterator)


def test_without_a_length():
    class Stream:
        def __len__(self):
            raise TypeError

    epochs, iterator = Epochs(end=True), Held()
    epochs.look(Stream())
    for _ in range(5):
        assert not epochs.is_over(iterator)
        epochs.gave(iterator)
    assert not epochs.is_past
