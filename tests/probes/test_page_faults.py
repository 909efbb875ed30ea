"""What page faults cost a step: their number."""

import pytest
from batchadvisor.probes.windows.page_faults import page_faults

pytest.importorskip("resource")


def test_a_heap_that_grows_once_is_no_step_s_cost():
    assert page_faults([20_000, 0, 10, 5], 0.01) is None


def test_one_step_tells_nothing():
    assert page_faults([20_000, None], 0.01) is None


def test_each_step_has_its_own():
    counted = page_faults([12_000, 12_100, None, 11_900], 0.02)
    assert counted.num == 11_950
    assert 0 < counted.each_s < 1e-3
