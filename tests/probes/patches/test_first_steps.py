"""How long a step of the script's own seems to take before any is timed; it plans the trials."""

import pytest

ASIDE_S = 1.0
"""An evaluation, or a look of ours. A step takes a few milliseconds."""
TOLD = """
import time
from batchadvisor.probes.loader.norm_inputs import NormInputs
listener.found = lambda loop: listener.tell(loop.discovery.native_step_s)
validation = DataLoader(data, batch_size=50)
def evaluate():
    with torch.no_grad():
        for batch in validation: time.sleep({each_s})
"""
LOOP = """
for n, batch in enumerate(DataLoader(data, batch_size=8), 1):
    if {before}: evaluate()
    step(batch)
    if {after}: evaluate()
"""


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (0, 0, False),
        (0, "n == 1", False),
        (0, "n == 2", False),
        ("n == 2", 0, False),
        (0, 1, True),
    ],
    ids=["none", "after the first", "after the second", "before it", "after each"],
)
def test_an_evaluation_counts_where_each_step_has_one(run, before, after, counts):
    told = TOLD.format(each_s=ASIDE_S / 2) + LOOP.format(before=before, after=after)
    assert (run(told) >= ASIDE_S) is counts


def test_our_own_look_does_not_count(run):
    """Going through all objects of the process took most of a second."""
    slow = """
look = NormInputs.watch
def watch(self):
    time.sleep(1.0)
    look(self)
NormInputs.watch = watch
"""
    assert run(TOLD.format(each_s=0) + slow + LOOP.format(before=0, after=0)) < ASIDE_S
