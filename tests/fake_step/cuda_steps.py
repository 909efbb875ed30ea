"""Steps on fake tensors that stand for a GPU's, in a process of their own: `python -m`.

Prints, of each case whose number in the recording is given, the peak of a step in bytes, and what
the replica of torch's allocator reserves for the first two.
"""

import json
import sys
from pathlib import Path

from batchadvisor.advisor.fit.first_step import Held, first_two_steps
from batchadvisor.advisor.fit.reserved_memory import reserved_bytes
from batchadvisor.probes.fake_step.cuda_forms import use_cuda_forms

from tests.fake_step.cuda_cases import training
from tests.fake_step.small_models import faked

RECORDED = json.loads((Path(__file__).parents[1] / "data/cuda_memory.json").read_text())["rows"]


if __name__ == "__main__":
    use_cuda_forms(on_fakes=True)
    for number in map(int, sys.argv[1:]):
        row = RECORDED[number]
        optimizer, batch, step = training(*row["case"], "cpu")
        steps = faked(step, batch, optimizer, for_gpu=True)
        both = first_two_steps(steps.requests, Held(steps.num_held, steps.late))
        peak = steps.trial(row["batch_size"]).peak_bytes
        sys.stdout.write(json.dumps([number, [peak, reserved_bytes(both)]]) + "\n")
