"""The requests of a training's first steps, from those of a step in the middle."""

from batchadvisor.features.estimate.fit.first_steps import first_steps
from batchadvisor.features.estimate.fit.forecast import reserved_bytes
from batchadvisor.records import LivedBefore

MIB = 1 << 20
PARAMETER, STATE, BATCH, GRADIENT, ACTIVATION = 5 * MIB, 7 * MIB, 3 * MIB, 5 * MIB, 40 * MIB
HELD = LivedBefore(4, (2, 4))
STEP = (
    *(PARAMETER, STATE, BATCH, GRADIENT),  # what lived before
    -4,  # gradients are given up
    *(ACTIVATION, GRADIENT, -5),  # 5 and 6
    -3,  # the batch goes with the step
    BATCH,  # 7: the next
)


def test_the_first_step_makes_gradients_and_states():
    """No batch lives before it: the last one's does only where another takes its place."""
    two = first_steps(STEP, HELD, num_steps=2)
    first = [PARAMETER, ACTIVATION, GRADIENT, -2, BATCH]
    second = [-3, ACTIVATION, GRADIENT, -6, -4, BATCH]
    assert two == [*first, STATE, *second]


def test_a_step_that_finds_all_it_needs():
    two = first_steps([PARAMETER, ACTIVATION, -2], LivedBefore(1), num_steps=2)
    assert two == [PARAMETER, ACTIVATION, -2, ACTIVATION, -3]


def test_states_cut_the_first_steps_segments():
    """The state lies where the activation did, which needs another segment then."""
    step = [5 * MIB, 16 * MIB, 40 * MIB, -3]
    two = first_steps(step, LivedBefore(2, (2,)), num_steps=2)
    assert two == [5 * MIB, 40 * MIB, -2, 16 * MIB, 40 * MIB, -4]
    assert reserved_bytes(step) == (20 + 16 + 40) * MIB
    assert reserved_bytes(two) == (20 + 40 + 40) * MIB


def test_what_is_left_of_a_step_of_another_size():
    """Logits of a smaller step give way to those of this one, not to one more tensor."""
    few, logits, loss = 2 * MIB, 30 * MIB, 3 * MIB
    step = [5 * MIB, few, loss, 40 * MIB, logits, -2, loss, -3, -4]
    two = first_steps(step, LivedBefore(3), num_steps=2)
    first = [5 * MIB, 40 * MIB, logits, loss, -2]
    second = [40 * MIB, logits, -3, loss, -4, -5]
    assert two == [*first, *second]


def test_cublas_takes_room_at_the_first_product():
    """Of each pass, in the first step alone."""
    workspace = 8 * MIB
    lived = LivedBefore(1, products=(2, 3))
    steps = first_steps([PARAMETER, ACTIVATION, GRADIENT, -2, -3], lived, workspace, num_steps=2)
    first = [PARAMETER, ACTIVATION, workspace, GRADIENT, workspace, -2, -4]
    assert steps == [*first, ACTIVATION, GRADIENT, -6, -7]


def test_each_step_takes_over_what_the_last_one_left():
    steps = first_steps(STEP, HELD)
    two = first_steps(STEP, HELD, num_steps=2)
    assert steps[: len(two)] == two
    # What the third gives back is the gradient, activation and batch of the second.
    sizes = [request for request in steps if request > 0]
    third = [sizes[-request - 1] for request in steps[len(two) :] if request < 0]
    assert third == [GRADIENT, ACTIVATION, BATCH]
    assert -steps[len(two)] == len([request for request in two if request > 0]) - 1


def test_a_workspace_passes_in_every_step():
    held = LivedBefore(1, passing=((2, 8 * MIB),)).scaled(2.0)
    steps = first_steps([PARAMETER, ACTIVATION, GRADIENT, -2, -3], held, num_steps=2)
    first = [PARAMETER, ACTIVATION, 16 * MIB, -3, GRADIENT, -2, -4]
    assert steps == [*first, ACTIVATION, 16 * MIB, -6, GRADIENT, -5, -7]


def test_a_search_for_kernels_empties_the_cache_in_the_first_step():
    """What was free then makes no holes that later steps keep."""
    held = LivedBefore(1, emptied=(3,))
    step = [PARAMETER, 40 * MIB, -2, 30 * MIB, 12 * MIB, -3, -4]
    steps = first_steps(step, held, num_steps=2)
    first = [PARAMETER, 40 * MIB, -2, 0, 30 * MIB, 12 * MIB, -3, -4]
    assert steps == [*first, 40 * MIB, -5, 30 * MIB, 12 * MIB, -6, -7]
    assert reserved_bytes(first) == (20 + 30) * MIB
    assert reserved_bytes([each for each in first if each]) == (20 + 40) * MIB
