"""Which steps the step time is made of."""

import pytest
from batchadvisor.probes.windows.clean_steps import Judged, stood_for

STEPS = Judged((0.1, 0.2, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7), (0, 0.1, 0, 0, 0, 0.2, 0, 0), known=True)


@pytest.mark.parametrize(
    ("method", "group", "places"),
    [
        ("clean steps", 1, [0, 2, 3, 4, 6, 7]),
        ("all steps", 2, [0, 2, 3, 4, 6, 7]),
        ("low quantile", 1, [0, 2]),  # the fastest quarter
        ("low quantile", 2, [0, 1]),  # the fastest groups
        ("low quantile", 50, [0, 2]),  # too few for a group
    ],
)
def test_the_steps_of_a_method(method, group, places):
    assert stood_for(STEPS, method, group=group) == places


def test_no_steps():
    assert stood_for(Judged((), (), known=False), "low quantile") == []
