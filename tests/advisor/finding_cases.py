"""The findings of a record on paper."""

from batchadvisor.advisor.explain.findings import findings_of
from batchadvisor.advisor.measured.epoch_end import tail_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import NormLayers

from ..on_paper import discovery_of, loader_of, numbered, record_of, trial_of


def findings(*trials, size=64, loader=None, norms=None, cores=None, check=None, **changes):
    """The findings for a size, by their rules."""
    discovery = discovery_of(
        native=64, loader=loader or loader_of(6400), norm_layers=norms or NormLayers(), cores=cores
    )
    record = record_of(numbered(*(trials or (trial_of(64, 0.1),))), discovery=discovery, **changes)
    tail = tail_of(discovery, size)
    listed = findings_of(
        Measurements.of(record), size, None if isinstance(tail, str) else tail, check
    )
    order = ["error", "warning", "info"]
    ranks = [order.index(finding.severity) for finding in listed]
    assert ranks == sorted(ranks)
    assert all(finding.message for finding in listed)
    return {finding.rule: finding for finding in listed}
