"""Steps on fake tensors that stand for a GPU's, in a process of their own: `python -m`.

Prints the peak in bytes of each case, whose number in the recording is given.
"""

import json
import sys
from pathlib import Path

from batchadvisor.probes.fake_step.cuda_forms import use_cuda_forms
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.records import Variant

from tests.fake_step.cuda_cases import training

RECORDED = json.loads((Path(__file__).parents[1] / "data/cuda_memory.json").read_text())["rows"]


def peak_bytes(case, size):
    """Of a second step."""
    optimizer, batch, step = training(*case, "cpu")
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    steps = FakeSteps(trained, for_gpu=True)
    steps.begin(Variant())
    for number in range(2):
        if number:
            steps.next_step()
        steps.enter(batch)
        try:
            step(batch)
        finally:
            steps.leave()
    peak = steps.trial(size).peak_bytes
    steps.close()
    return peak


if __name__ == "__main__":
    use_cuda_forms(on_fakes=True)
    for number in map(int, sys.argv[1:]):
        row = RECORDED[number]
        sys.stdout.write(json.dumps([number, peak_bytes(row["case"], row["batch_size"])]) + "\n")
