"""Which steps the step time is made of."""

from batchadvisor.probes.windows.clean_steps import Judged, stood_for

STEPS = Judged((0.1, 0.2, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7), (0, 0.1, 0, 0, 0, 0.2, 0, 0), known=True)


def test_clean_steps():
    assert stood_for(STEPS, "clean steps") == [0, 2, 3, 4, 6, 7]
    assert stood_for(STEPS, "all steps", group=2) == [0, 2, 3, 4, 6, 7]


def test_the_fastest_quarter():
    assert stood_for(STEPS, "low quantile") == [0, 2]


def test_the_fastest_groups():
    assert stood_for(STEPS, "low quantile", group=2) == [0, 1]


def test_too_few_for_a_group():
    assert stood_for(STEPS, "low quantile", group=50) == [0, 2]


def test_no_steps():
    assert stood_for(Judged((), (), known=False), "low quantile") == []
