"""Tokens of a training of the user's own."""

import pytest
import torch
from batchadvisor.callback.adapters.plain import ProfilingCallback
from batchadvisor.callback.token_count import FIRST_BATCHES, NEVER, TokenCount
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from ..on_paper import exactly

LENGTHS = [3 + 7 * (place % 5) for place in range(200)]
"""In turn, so that every batch of 10 holds the same."""
WIDTH = max(LENGTHS)
SHARE = 1 - sum(LENGTHS) / (len(LENGTHS) * WIDTH)


def collate(places):
    ids = pad_sequence([torch.ones(LENGTHS[i], dtype=torch.long) for i in places], batch_first=True)
    return {"input_ids": ids, "attention_mask": ids}


def test_a_plain_loop(tmp_path):
    texts = DataLoader(range(len(LENGTHS)), batch_size=10, collate_fn=collate)
    model = nn.Embedding(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ProfilingCallback(tmp_path, profile=False, quiet=True) as prof:
        for batch in prof.watch(texts):
            optimizer.zero_grad()
            model(batch["input_ids"]).sum().backward()
            optimizer.step()
            prof.step()
    (trial,) = [trial for trial in prof.record.trials if trial.tokens is not None]
    tokens = trial.tokens
    assert tokens.evidence == "attention mask"
    assert tokens.num_batches >= FIRST_BATCHES
    assert tokens.padding_share == pytest.approx(SHARE)
    assert tokens.real_per_step == 10 * sum(LENGTHS) / len(LENGTHS)
    per_sample = sum(LENGTHS) / len(LENGTHS)
    assert tokens.real_per_s.median == pytest.approx(per_sample * trial.samples_per_s.median)
    assert (tokens.lengths.shortest, tokens.lengths.longest) == (3, WIDTH)
    text = " ".join(str(prof).split())
    assert "real tokens/s" in text
    assert f"{100 * SHARE:.0f}% padding (attention mask)" in text
    assert "half of them above 17" in text
    (choice,) = prof.advice.sizes
    assert choice.real_tokens_per_s.median == pytest.approx(tokens.real_per_s.median)
    assert any(finding.rule == "tokens.padding" for finding in prof.advice.findings)


class Clock:
    """Each look at it is a millisecond later."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1_000_000
        return self.now


def test_counting_takes_a_small_share_of_the_time():
    clock = Clock()
    count = TokenCount(clock)
    batch = collate(range(10))
    for _ in range(10_000):
        count.note(batch, 10)
    # Each took one millisecond, and the next one waits for 500 of them.
    assert FIRST_BATCHES < count.num_seen < FIRST_BATCHES + 10_000 / 450
    tokens = count.of_size(10, 2, exactly(100.0))
    assert tokens.num_batches == count.num_seen
    assert tokens.real_per_step == 2 * 10 * sum(LENGTHS) / len(LENGTHS)
    assert count.of_size(8, 1, None) is None


def test_what_holds_no_tokens_is_not_looked_at_again():
    count = TokenCount(Clock())
    for _ in range(100):
        count.note(torch.rand(4, 3, 8, 8), 4)
    assert (count.num_seen, count.due_ns) == (FIRST_BATCHES, NEVER)
    assert count.of_size(4, 1, None) is None


def test_a_batch_that_lies_on_a_device_says_why():
    batch = {name: ids.to("meta") for name, ids in collate(range(10)).items()}
    count = TokenCount(Clock())
    count.note(batch, 10)
    tokens = count.of_size(10, 1, exactly(100.0))
    assert tokens.real_per_s is None
    assert "came on meta" in tokens.unavailable["real_per_s"]
    assert tokens.positions_per_s.median == pytest.approx(100 * WIDTH)
