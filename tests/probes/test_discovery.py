"""The rhythm of a training loop: which loaders and optimizers make a cycle."""

import pytest
from batchadvisor.probes.doors.training_cycle import (
    MOST_CYCLES,
    CycleFinder,
    Rhythm,
    parts_of,
    usual_steps,
)


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

    def test_validation_with_gradients_after_the_first_step(self):
        """`if step % 50 == 0: evaluate()`: it is fetched from first, and would become the one."""
        finder, position = follow("0a1110a0a0a")
        assert finder.training_loaders == {0: 1}
        assert position == 7

    def test_validation_with_gradients_before_and_after_the_first_step(self):
        finder, position = follow("110a110a0a0a")
        assert finder.training_loaders == {0: 1}
        assert position == 10

    def test_tasks_that_take_turns(self):
        finder, position = follow("0a1a2a0a1a2a0a")
        assert finder.training_loaders == {1: 1}
        assert position == 10

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


class TestSteps:
    """How many optimizer steps a batch gets, and how many batches a step."""

    @pytest.mark.parametrize(
        ("cycle", "rhythm"),
        [
            ("0a", Rhythm(1)),
            ("0000a", Rhythm(4)),
            ("0ab", Rhythm(1)),
            ("0a0ab", Rhythm(1, 1, 2)),  # the generator of a GAN steps on every other batch
            ("00a00ab", Rhythm(2, 1, 2)),
            ("0aaaaab", Rhythm(1)),
            ("000aaa", Rhythm(1, 1, 3)),  # a pool of batches, trained on one by one
            ("0000aa", Rhythm(2, 1, 2)),
            ("0aaaa", Rhythm(1, 4, 1)),  # truncated backpropagation
            ("0ababab", Rhythm(1, 3, 1)),
            ("00aaaa", Rhythm(1, 2, 2)),
        ],
    )
    def test_steady(self, cycle, rhythm):
        finder, position = follow(cycle * 4)
        assert position == 2 * len(cycle)
        assert finder.rhythm(0) == rhythm

    def test_two_optimizers_in_turn(self):
        """A batch each: what one steps on the other does not see."""
        finder, position = follow("0a0b" * 5)
        assert position is not None
        assert finder.rhythm(0) == Rhythm(1, 1, 2)

    def test_pools_of_unlike_sizes(self):
        finder, _ = follow("000aaa00aa0")
        assert finder.rhythm(0) == Rhythm(1, 1, 2)

    def test_one_cycle_of_another_kind_is_waited_for(self):
        finder, position = follow("0aaa0a0a0a")
        assert position == 8
        assert finder.rhythm(0) == Rhythm(1)

    @pytest.mark.parametrize("rhythm", ["000aa" * 9, "0aaa0aa" * 9])
    def test_no_whole_number(self, rhythm):
        finder, position = follow(rhythm)
        assert position is not None
        assert finder.num_cycles == MOST_CYCLES
        assert finder.rhythm(0) is None

    def test_a_thread_fetches(self):
        """How many steps fall between two of its fetches is chance."""
        finder = CycleFinder()
        finder.set_apart()
        for sign in "0a000aaa0a":
            if sign == "a":
                finder.stepped(0)
            else:
                finder.fetching()
                finder.fetched(0)
        finder.fetching()
        assert (finder.rhythm(0), finder.last_steps) == (Rhythm(1), 1)

    def test_parts(self):
        parts = [parts_of(*counts) for counts in ((8, 8), (8, 4), (1, 4), (5, 3), (4, 1), (0, 4))]
        assert parts == [8, 4, 1, 1, 1, 1]

    @pytest.mark.parametrize(
        ("seen", "steps"),
        [({}, None), ({1: 9}, 1), ({4: 9, 2: 1}, 4), ({4: 5, 2: 4}, 0), ({4: 2, 2: 1}, 4)],
    )
    def test_of_a_window(self, seen, steps):
        assert usual_steps(seen) == steps


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
