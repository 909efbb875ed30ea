"""Signs of life: rare while steps are timed, and never so rare that a process seems to hang."""

import itertools

import pytest
from batchadvisor.probes.worker.supervisor_line import PERIOD_S, QUIET_PERIOD_S, SignsOfLife
from hypothesis import given
from hypothesis import strategies as st


class Steps:
    """Time that passes step by step, and when a sign was given."""

    def __init__(self, silence_s):
        self.now = 1000.0
        self.signs = SignsOfLife(silence_s, lambda: self.now)
        self.told = []

    def make(self, phase, steps_s):
        for step_s in steps_s:
            self.now += step_s
            if self.signs.due(phase):
                self.told.append(self.now)
        return self

    @property
    def gaps(self):
        return [after - before for before, after in itertools.pairwise(self.told)]


@pytest.mark.parametrize("phase", ["timing", "profiling"])
def test_steps_are_measured_in_quiet(phase):
    steps = Steps(60.0).make(phase, [0.01] * 3_000)
    assert len(steps.told) == 6  # as the phase begins, and then every five seconds
    assert min(steps.gaps) >= QUIET_PERIOD_S


def test_other_phases_are_told_more_often():
    steps = Steps(60.0).make("warming up", [0.01] * 300)
    assert max(steps.gaps) < PERIOD_S + 0.02


def test_a_new_phase_and_a_new_trial_are_told_at_once():
    steps = Steps(60.0).make("warming up", [0.01]).make("timing", [0.01, 0.01])
    assert len(steps.told) == 2
    steps.signs.begin()
    steps.make("timing", [0.01])
    assert len(steps.told) == 3


@given(
    st.floats(0.5, 600.0),
    st.lists(st.floats(1e-4, 0.2), min_size=1, max_size=200),
    st.sampled_from(["warming up", "timing", "profiling", "fitting"]),
)
def test_no_process_at_work_is_taken_for_hung(silence_s, shares, phase):
    """Whatever silence is allowed, and steps of up to a fifth of it: no gap is half as long."""
    steps = Steps(silence_s).make(phase, [share * silence_s for share in shares])
    end_s = steps.now - steps.told[-1] if steps.told else 0.0
    assert max([*steps.gaps, end_s]) < silence_s / 2
