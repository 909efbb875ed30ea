"""Where steps end in a history: layers are no steps, and what cannot be told is not said."""

from pathlib import Path

import pytest
from batchadvisor.session.memory import analyze_memory

from .allocator import ADAM, LINEAR, MIB, TORCH, Allocator, frame, user
from .test_analysis import device_of

SNAPSHOTS = Path(__file__).parents[3] / "shared" / "snapshots"
CALL = frame(TORCH + "nn/modules/module.py", 1750, "_call_impl")
BACKWARD = frame(TORCH + "autograd/__init__.py", 340, "backward")


def script(line, *inner):
    """A stack: the script's main loop at `line`, and frames inside it, the innermost first."""
    return [*inner, frame("/home/me/job/train.py", line, "main"),
            frame("/home/me/job/train.py", 90, "<module>")]  # fmt: skip


def layer(line):
    return frame("/home/me/job/model.py", line, "block")


def forward(device, layers, *, keep=True):
    """A model's forward: embedding, layers that differ in nothing, head; what it keeps."""
    first, inside, last = (frame("/home/me/job/model.py", line, "forward") for line in (30, 32, 34))
    kept = [device.malloc(MIB, script(41, first, CALL))]
    for _ in range(layers):
        kept.append(device.malloc(4 * MIB, script(41, layer(5), CALL, inside, CALL)))
        passing = device.malloc(6 * MIB, script(41, layer(6), CALL, inside, CALL))
        if not keep:
            device.free(kept.pop())
        device.free(passing)
    kept.append(device.malloc(9 * MIB, script(41, last, CALL)))
    return kept


def no_steps(tmp_path, device):
    seen = device_of(tmp_path, device.snapshot())
    assert (seen.num_steps, seen.growth) == (0, ())
    return seen


@pytest.mark.parametrize("layers", [12, 24, 30])
@pytest.mark.parametrize("keep", [True, False], ids=["for the backward", "nothing is kept"])
def test_layers_of_one_forward_are_no_steps(tmp_path, layers, keep):
    device = Allocator()
    forward(device, layers, keep=keep)
    assert "growth cannot be told" in no_steps(tmp_path, device).unavailable["growth"]


@pytest.mark.parametrize("inside", [True, False], ids=["in the backward", "after it"])
def test_layers_of_one_training_step_are_no_steps(tmp_path, inside):
    """The optimizer writes for each layer."""
    device = Allocator()
    kept = forward(device, 24)
    for address in reversed(kept):
        device.malloc(MIB, [])
        device.free(address)
        if inside:
            device.malloc(MIB, script(43, ADAM, BACKWARD))
            device.malloc(2 * MIB, script(43, BACKWARD))
    for _ in () if inside else kept:
        device.malloc(MIB, script(44, ADAM))
        device.malloc(4096, script(45))
        device.free(device.malloc(MIB, script(44, frame(TORCH + "optim/adam.py", 9, "step"))))
    no_steps(tmp_path, device)


def test_layers_in_the_scripts_own_loop_are_no_steps(tmp_path):
    """Without modules: two lines that alternate, and memory that does not come back."""
    device = Allocator()
    for _ in range(24):
        device.malloc(8 * MIB, script(12))
        device.free(device.malloc(4 * MIB, script(13)))
    no_steps(tmp_path, device)


@pytest.mark.parametrize("leak", [0, 700, MIB])
def test_a_loop_whose_line_comes_again(tmp_path, leak):
    """SGD allocates nothing; the loop's lines tell the steps, and the model's layers do not."""
    device = Allocator()
    device.malloc(64 * MIB, script(20))
    for _ in range(8):
        kept = forward(device, 12)
        loss = device.malloc(4096, script(42))
        if leak:
            device.malloc(leak, script(45))
        gradients = [device.malloc(MIB, script(43, BACKWARD)) for _ in kept]
        for address in [*kept, *gradients, loss]:
            device.free(address)
    seen = device_of(tmp_path, device.snapshot())
    assert seen.num_steps == 7
    assert seen.step_source == "a line of the script's loop that comes again"
    assert [(line.line, line.bytes_per_step) for line in seen.growth] == (
        [("job/train.py:45", leak)] if leak else []
    )


def test_a_training_that_keeps_its_activations(tmp_path):
    """What is kept is most of what a step takes; a backward in each says that they are steps."""
    device = Allocator()
    for _ in range(8):
        forward(device, 6)
        device.free(device.malloc(MIB, script(43, BACKWARD)))
    seen = device_of(tmp_path, device.snapshot())
    assert seen.num_steps == 7
    assert seen.growth[0].bytes_per_step == 24 * MIB


def test_memory_that_comes_back_to_its_floor(tmp_path):
    """Inference in one line: each batch gives back all that it took."""
    device = Allocator()
    device.malloc(64 * MIB, script(20))
    for _ in range(9):
        for address in forward(device, 12, keep=False):
            device.free(address)
    seen = device_of(tmp_path, device.snapshot())
    assert (seen.num_steps, seen.step_source) == (9, "memory that comes back to its floor")
    assert seen.growth == ()


def test_an_optimizer_that_writes_in_the_backward_writes_once_a_step(tmp_path):
    device = Allocator()
    for _ in range(6):
        kept = [device.malloc(4 * MIB, user(20, "forward", LINEAR)) for _ in range(5)]
        device.malloc(900, user(41))
        for address in reversed(kept):
            gradient = device.malloc(MIB, user(43, "main", BACKWARD))
            device.free(device.malloc(MIB, user(43, "main", ADAM)))
            device.free(address)
            device.free(gradient)
    seen = device_of(tmp_path, device.snapshot())
    assert (seen.num_steps, seen.step_source) == (6, "allocations of the optimizer")
    assert [line.bytes_per_step for line in seen.growth] == [900]


def published():
    return sorted(SNAPSHOTS.glob("*.pickle")) or [None]


@pytest.mark.parametrize("path", published(), ids=lambda path: path.name if path else "none")
def test_published_snapshots_of_one_forward_or_step(path):
    if path is None:
        pytest.skip(f"the published snapshots are not at {SNAPSHOTS}")
    analysis = analyze_memory(path)
    (seen,) = analysis.devices
    assert (seen.num_steps, seen.growth) == (0, ())
    assert not [cut for cut in analysis.cuts if cut.rule == "growth"]
    assert seen.peak is not None
