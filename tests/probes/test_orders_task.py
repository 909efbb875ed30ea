"""Steps in two orders, on a clock of the test's: one position takes one second."""

from types import SimpleNamespace

import pytest
from batchadvisor.probes.loader.loader_samples import LaidBatch
from batchadvisor.probes.loader.token_batch import BatchTokens
from batchadvisor.probes.process.orders import RunOrders
from batchadvisor.probes.worker.orders_task import OrdersTask
from batchadvisor.probes.worker.task import Boundary


def laid(positions, real):
    return LaidBatch(None, BatchTokens(evidence="lengths", positions=positions, real=real))


@pytest.mark.parametrize("parts", [1, 2])
def test_real_tokens_per_second_are_those_of_all_steps_between_two_fetches(parts):
    orders = [laid(40 + 2 * at, 20 + at) for at in range(40)], [laid(20 + at, 20 + at)
        for at in range(40)]  # fmt: skip
    now, given, sent = [0.0], [], []
    door = SimpleNamespace(
        samples=lambda: SimpleNamespace(laid=lambda *_: orders),
        replace_batches=lambda substitute: given.append(substitute) or True,
        ask=lambda _size: None,
    )
    device = SimpleNamespace(
        mark=lambda: now[0], synchronize=lambda: None, elapsed_s=lambda start, end: end - start
    )
    line = SimpleNamespace(begin_task=lambda: None, show=lambda *_, **__: None, send=sent.append)
    order = RunOrders(batch_size=4, num_batches=40, time_limit_s=1e9)
    task = OrdersTask(order, SimpleNamespace(door=door, device=device, line=line))
    assert task.begin()
    over = False
    while not over:
        for _ in range(parts):
            given[0](None, 4, None)
        now[0] += sum(batch.tokens.positions for batch in task._step)
        over = task.boundary(Boundary(parts, parts))
    (result,) = sent
    assert result.orders.reason == ""
    assert result.orders.drawn_per_s.median == pytest.approx(0.5)
    assert result.orders.grouped_per_s.median == pytest.approx(1)
