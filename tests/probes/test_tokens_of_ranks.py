"""Tokens of a trial that several ranks ran: what a rank has, at the pace of the slowest."""

import pytest
from batchadvisor.probes.distributed.merged_trial import merged
from batchadvisor.records import TokenLengths, Tokens

from ..on_paper import trial_of


def part(step_s, positions, real, **changes):
    values = {
        "num_batches": 10,
        "evidence": "attention mask",
        "positions_per_step": positions,
        "real_per_step": real,
        "padding_share": None if real is None else 1 - real / positions,
        "lengths": TokenLengths(num_sequences=20, shortest=3, median=real or 1, longest=positions),
    }
    return trial_of(8, step_s, tokens=Tokens(**{**values, **changes}))


def test_the_mean_at_the_pace_of_the_slowest():
    trial = merged([part(0.1, 100, 50), part(0.2, 300, 210)])
    tokens = trial.tokens
    assert (tokens.positions_per_step, tokens.real_per_step) == (200, 130)
    assert tokens.padding_share == pytest.approx(1 - 260 / 400)
    assert tokens.real_per_s.median == pytest.approx(130 / 0.2)
    assert tokens.positions_per_s.median == pytest.approx(200 / 0.2)
    assert (tokens.num_batches, tokens.lengths.num_sequences) == (20, 40)
    assert (tokens.lengths.shortest, tokens.lengths.longest) == (3, 300)


def test_one_rank_that_cannot_tell_makes_them_unknown():
    unknown = part(0.1, 100, None, unavailable={"real_per_s": "why"}, lengths=None)
    tokens = merged([part(0.1, 100, 50), unknown]).tokens
    assert (tokens.positions_per_step, tokens.real_per_step) == (100, None)
    assert (tokens.padding_share, tokens.real_per_s, tokens.lengths) == (None, None, None)
    assert tokens.unavailable == {"real_per_s": "why"}


@pytest.mark.parametrize("other", [trial_of(8, 0.1), part(0.1, 100, 50, evidence="lengths")])
def test_a_rank_without_tokens_or_with_another_sign(other):
    assert merged([part(0.1, 100, 50), other]).tokens is None
