"""TPUStrategy's row: what is documented of it, and nothing that only MirroredStrategy showed."""

import pytest
from batchadvisor.advisor.measured.epoch_end import tail_of
from batchadvisor.advisor.tails.engine import report_of
from batchadvisor.records import ModelFacts, Pipeline

from ..on_paper import discovery_of, loader_of


def test_a_short_batch_is_a_new_shape():
    facts = {"setup": "tpu", "num_ranks": 8, "model": ModelFacts(batch_norm=1)}
    report = report_of(Pipeline(num_samples=1029, batch_size=64, **facts))
    cases = {finding.id: finding.message for finding in report.findings}
    assert "not run on a TPU" in next(
        text for rule, text in cases.items() if "compiled.shape" in rule
    )
    assert not any("mirrored" in rule for rule in cases)
    whole = report_of(Pipeline(num_samples=1024, batch_size=64, **facts))
    assert not any("compiled.shape" in finding.id for finding in whole.findings)


@pytest.mark.parametrize(
    ("sampler", "full"),
    [
        ("Keras on jax, DataParallel", (16,) * 4),
        ("Keras on tensorflow, MirroredStrategy", (16,) * 4),
        ("Keras on tensorflow, TPUStrategy", (16,) * 4),
        ("Keras on jax", ()),
    ],
)
def test_what_keras_spreads_a_batch_with_is_known_again(sampler, full):
    loader = loader_of(1029, batch_size=64, sampler=sampler)
    discovery = discovery_of(64, loader=loader, door="keras", num_replicas=4 if full else 1)
    tail = tail_of(discovery, 64)
    assert (tail.num_ranks, tail.full) == (4 if full else 1, full)
