"""What every watched training must show, whatever the framework."""

from __future__ import annotations

import torch
from batchadvisor.advisor.advise import advise
from batchadvisor.session.recording.store import read_record


def assert_same_to_the_bit(plain, watched):
    """Losses and final weights of two models that kept their losses."""
    assert len(plain.losses) > 0
    assert plain.losses == watched.losses
    pairs = zip(plain.state_dict().values(), watched.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def assert_found_out(record, *, batch_size, accumulate, num_samples, tail):
    """What the adapter read from its framework's objects, and what was measured."""
    discovery = record.discovery
    assert (discovery.native_batch_size, discovery.micro_batches) == (batch_size, accumulate)
    assert discovery.primary.num_samples == num_samples
    assert discovery.norm_layers.batch_norm == 1
    assert discovery.optimizers[0].name == "AdamW"
    trial = record.trials[0]
    assert 0 < trial.input_wait_s.median < trial.step_s.median
    assert trial.profile.operators_pct > 0
    assert trial.tail.num_samples == tail
    assert advise(record).recommended.batch_size == batch_size


def assert_failed(folder, detail, num_steps):
    """A valid record of a training that raised."""
    record = read_record(folder)
    assert record.state == "failed"
    assert record.faults[0].detail == detail
    assert record.observed.num_steps == num_steps
