"""The rhythm of a training loop: which loaders and optimizers make a cycle."""

from batchadvisor.probes.discovery import CycleFinder


def follow(rhythm):
    """A finder after `rhythm`: `0` fetches from loader 0, `a` is a step of the first optimizer.

    Gives the finder and the position in the rhythm at which it was complete first.
    """
    finder, complete = CycleFinder(), None
    for position, sign in enumerate(rhythm):
        if sign.isdigit():
            finder.fetching()
            if finder.complete and complete is None:
                complete = position
                break
            finder.fetched(int(sign))
        else:
            finder.stepped("abc".index(sign))
    return finder, complete


class TestRhythms:
    def test_plain(self):
        finder, position = follow("0a0a0a0a")
        assert position == 4
        assert finder.training_loaders == {0: 1}
        assert (finder.num_steps, finder.num_fetches) == (2, 2)

    def test_accumulation(self):
        finder, position = follow("0000a0000a0000a")
        assert finder.training_loaders == {0: 4}
        assert position == 10

    def test_gan_with_two_optimizers_a_batch(self):
        finder, position = follow("0ab0ab0ab")
        assert finder.training_loaders == {0: 1}
        assert finder.optimizers == {0, 1}
        assert position == 6

    def test_second_optimizer_every_other_batch(self):
        """The generator steps with every second batch: two batches are a cycle."""
        finder, _ = follow("0a0ab0a0ab0a0ab0a0ab")
        assert finder.training_loaders == {0: 2}
        assert finder.optimizers == {0, 1}

    def test_an_optimizer_that_comes_late(self):
        """After a warm-up with one optimizer the first cycle with both counts, not an older one."""
        finder, position = follow("0a0ab0ab0ab0ab")
        assert finder.optimizers == {0, 1}
        assert finder.training_loaders == {0: 1}
        assert position is not None

    def test_validation_with_gradients_first(self):
        """Batches before the first step prove nothing."""
        finder, _ = follow("111110a0a0a0a")
        assert finder.training_loaders == {0: 1}

    def test_two_loaders_in_one_step(self):
        finder, _ = follow("01a01a01a")
        assert list(finder.training_loaders.items()) == [(0, 1), (1, 1)]

    def test_two_loaders_of_different_pace(self):
        finder, _ = follow("011a011a011a")
        assert finder.training_loaders == {0: 1, 1: 2}

    def test_the_loader_that_is_fetched_first_comes_first(self):
        finder, _ = follow("10a10a10a")
        assert list(finder.training_loaders) == [1, 0]

    def test_two_steps_with_one_batch(self):
        """SAM and line searches step twice; the cycle ends with the next fetch."""
        finder, position = follow("0aa0aa0aa")
        assert finder.training_loaders == {0: 1}
        assert position == 6


class TestIncomplete:
    def test_no_steps(self):
        finder, position = follow("0" * 50)
        assert (position, finder.num_steps, finder.num_fetches) == (None, 0, 50)

    def test_steps_without_batches(self):
        finder, position = follow("aaaaa")
        assert (position, finder.num_fetches) == (None, 0)
        assert not finder.complete

    def test_one_cycle_is_not_enough(self):
        assert follow("0a0")[1] is None
        assert follow("0a0a0")[1] == 4
