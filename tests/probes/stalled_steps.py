"""Timed steps with planted stalls."""

from batchadvisor.probes.windows.clean_steps import (
    TimedStep,
)
from batchadvisor.probes.windows.step_evidence import StepEvidence


def step(seconds=0.02, delay=0.0, **evidence):
    return TimedStep(seconds, StepEvidence(delay_s=delay, switches=0, **evidence))


def steps_with_stalls(num=60, every=10, *, stall_s=1.5):
    return [
        step(0.02 + stall_s, 0.3 * stall_s) if n % every == 0 else step(0.02 + 1e-5 * (n % 7))
        for n in range(num)
    ]
