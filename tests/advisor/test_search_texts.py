"""The whole search for speed on paper, over batches of texts, on a CPU whose speed drifts."""

import pytest
from batchadvisor.records import Goal

from .texts import TextMachine

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
ENOUGH = 0.97


@pytest.mark.parametrize(
    ("batching", "own", "seed"),
    [
        *(
            (*kind, seed)
            for kind in (("padded", 8), ("padded", 64), ("grouped", 2), ("stream", 32))
            for seed in (1, 2)
        ),
        ("padded", 64, 4),  # 16 and 32 take turns, 1 to 8 do: no size of one meets the other
        ("grouped", 2, 4),  # the fresh process meets few of the longest batches
        ("grouped", 2, 5),  # 8 and 16 are told apart by the last rounds that the budget has
    ],
)
def test_the_answer_is_near_the_best_real_tokens_per_second(batching, own, seed):
    machine = TextMachine(batching, own=own, seed=seed)
    result = machine.search(Goal(kind="throughput", budget_s=40))
    best = max(map(machine.real_rate, SIZES))
    assert machine.real_rate(result.size) >= ENOUGH * best
    assert machine.real_rate(own) < ENOUGH * best  # it had to change
    assert result.record.search_s < 41  # with the step in progress


def test_no_step_up_that_the_law_says_would_lose():
    result = TextMachine("padded", own=64).search(Goal(kind="throughput", budget_s=40))
    assert max(result.tried) == 64
    assert result.size < 64
    assert "pads less" in result.advice.reason
