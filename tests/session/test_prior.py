"""When steps on fake tensors are left out before a search for memory."""

from types import SimpleNamespace

from batchadvisor.records import Goal
from batchadvisor.session.prior import predict_memory

from ..on_paper import discovery_of, loader_of, record_of


def test_sizes_that_are_budgets_cost_no_start_of_the_script():
    discovery = discovery_of(loader=loader_of(batch_size=512, axis="tokens"))
    record = record_of([], discovery=discovery, goal=Goal(kind="memory"))
    written, said = {}, []
    writer = SimpleNamespace(record=record, change=written.update)
    predict_memory(SimpleNamespace(current=None), writer, SimpleNamespace(note=said.append))
    assert "budget" in written["prior"].reason
    assert written["prior"].reason in said[0]
