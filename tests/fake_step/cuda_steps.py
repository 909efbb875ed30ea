"""Steps on fake tensors that stand for a GPU's, in a process of their own: `python -m`.

Prints, of each case whose number in the recording is given, the peak of a step in bytes, what the
replica of torch's allocator reserves for the first two, and the largest batch that it has room for.
"""

import gc
import json
import sys
from pathlib import Path

from batchadvisor.features.estimate.fit.first_steps import first_steps
from batchadvisor.features.estimate.fit.forecast import WORKSPACE_BYTES, Between, reserved_bytes
from batchadvisor.probes.fake_step.cuda_forms import use_cuda_forms

from tests.fake_step.cuda_cases import CAPACITY, batch_of, training
from tests.fake_step.small_models import faked_in_turn

RECORDED = json.loads((Path(__file__).parents[1] / "data/cuda_memory.json").read_text())["rows"]
GROWTH = 64


def figures(row):
    """Peak, reserved bytes, and the largest batch; `None` for it where the recording has none."""
    case, size = row["case"], row["batch_size"]
    optimizer, step = training(*case, "cpu")
    sizes = (size, GROWTH * size) if "largest_batch" in row else (size,)
    batches = (batch_of(case[0], each, "cpu") for each in sizes)
    looked = [
        (steps.trial(each), steps.requests, steps.lived._replace(passing=(), emptied=()))
        for each, steps in zip(
            sizes, faked_in_turn(step, batches, optimizer, for_gpu=True), strict=True
        )
    ]
    small, fewer, held = looked[0]
    reserved = reserved_bytes(first_steps(fewer, held, WORKSPACE_BYTES))
    if len(looked) == 1:
        return [small.peak_bytes, reserved, None]
    large, more, _ = looked[1]
    between = Between(small, large, fewer, more, held=held)
    return [small.peak_bytes, reserved, between.largest_by_segments(CAPACITY, large.batch_size)]


if __name__ == "__main__":
    use_cuda_forms(on_fakes=True)
    gc.freeze()  # what torch has made so far holds no model, and need not be walked for each
    for number in map(int, sys.argv[1:]):
        sys.stdout.write(json.dumps([number, figures(RECORDED[number])]) + "\n")
