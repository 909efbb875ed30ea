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


RHYTHMS = {
    "plain": ("0a0a0a0a", 4, {0: 1}, {0}),
    "accumulation": ("0000a0000a0000a", 10, {0: 4}, {0}),
    "GAN": ("0ab0ab0ab", 6, {0: 1}, {0, 1}),
    # The generator steps with every second batch: two batches are a cycle.
    "GAN, every other batch": ("0a0ab0a0ab0a0ab0a0ab", 10, {0: 2}, {0, 1}),
    # After a warm-up with one optimizer the first cycle with both counts, not an older one.
    "an optimizer that comes late": ("0a0ab0ab0ab0ab", 8, {0: 1}, {0, 1}),
    # Validation with gradients: batches before the first step prove nothing, nor do those of
    # `if step % 50 == 0: evaluate()`, which are fetched from first and would become the ones.
    "validation first": ("111110a0a0a0a", 9, {0: 1}, {0}),
    "validation after a step": ("0a1110a0a0a", 7, {0: 1}, {0}),
    "validation before and after": ("110a110a0a0a", 10, {0: 1}, {0}),
    "tasks that take turns": ("0a1a2a0a1a2a0a", 10, {1: 1}, {0}),
    "two loaders in one step": ("01a01a01a0", 9, {0: 1, 1: 1}, {0}),
    "two loaders of different pace": ("011a011a011a0", 12, {0: 1, 1: 2}, {0}),
    "in the order of the first fetch": ("10a10a10a1", 9, {1: 1, 0: 1}, {0}),
    # SAM and line searches step twice; the cycle ends with the next fetch.
    "two steps with one batch": ("0aa0aa0aa", 6, {0: 1}, {0}),
}


@pytest.mark.parametrize("case", RHYTHMS)
def test_what_trains(case):
    rhythm, position, loaders, optimizers = RHYTHMS[case]
    finder, complete = follow(rhythm)
    assert complete == position
    assert list(finder.training_loaders.items()) == list(loaders.items())
    assert finder.optimizers == optimizers


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

    @pytest.mark.parametrize(
        ("signs", "position", "rhythm"),
        [
            ("0a0b" * 5, 10, Rhythm(1, 1, 2)),
            ("000aaa00aa0", 10, Rhythm(1, 1, 2)),
            ("0aaa0a0a0a", 8, Rhythm(1)),
        ],
        ids=["two optimizers in turn", "pools of unlike sizes", "one cycle of another kind"],
    )
    def test_unsteady(self, signs, position, rhythm):
        finder, complete = follow(signs)
        assert (complete, finder.rhythm(0)) == (position, rhythm)

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


@pytest.mark.parametrize(
    ("rhythm", "num_steps", "num_fetches"),
    [("0" * 50, 0, 50), ("aaaaa", 5, 0), ("0a0", 1, 2)],
    ids=["no steps", "steps without batches", "one cycle"],
)
def test_too_little_to_tell(rhythm, num_steps, num_fetches):
    finder, position = follow(rhythm)
    assert position is None
    assert not finder.complete
    assert (finder.num_steps, finder.num_fetches) == (num_steps, num_fetches)
