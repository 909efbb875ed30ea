"""Commands that start several ranks, on gloo and the CPU."""

import sys

from ..end_to_end import driver
from ..end_to_end.driver import SCRIPTS

TRAIN = SCRIPTS / "train_ddp.py"
QUICK = ("-q", "--no-profile", "--budget", "25s", "-o", "out")
LARGEST = ("--goal", "memory", "--sizes")
"""Of listed sizes the largest is the answer; each is timed, its steps not averaged in groups."""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")


def torchrun(num_ranks):
    """`torchrun`, up to before `-m batchadvisor`."""
    return (*TORCHRUN, f"--nproc-per-node={num_ranks}")


def start_ranks(num_ranks, *options, folder, script=TRAIN, preloaded=False, **planted):
    """`batchadvisor run --nproc-per-node N`; faults are planted through the environment.

    Args:
        preloaded: as in driver.py: launcher, ranks and workers are forks too.
    """
    return driver.start(
        "run", *QUICK, "--nproc-per-node", num_ranks, *options, script,
        folder=folder, variables=planted, preloaded=preloaded,
    )  # fmt: skip


def run_ranks(num_ranks, *options, folder, preloaded=True, **given):
    """The same, to its end."""
    return start_ranks(num_ranks, *options, folder=folder, preloaded=preloaded, **given).finish()


def left_of(result):
    """What a command left. Not shared memory: other programs make some at any time, gloo none."""
    return [text for text in result.left if not text.startswith("shared memory ")]
