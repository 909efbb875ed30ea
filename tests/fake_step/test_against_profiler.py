"""The peak of a fake step, compared with the memory events of torch's own profiler.

Convolutions are left out: on a CPU they take memory inside themselves, which no tensor shows.
"""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from .small_models import estimated, made


def profiled(name, autocast, size):
    """The peak of a second step, from what lived before it and torch's memory events."""
    model, optimizer, step, batch = made(name, "adamw", autocast)
    given = batch(size)
    step(given)
    state = [value for values in optimizer.state.values() for value in values.values()]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    live = sum(
        tensor.untyped_storage().nbytes()
        for tensor in (*model.parameters(), *model.buffers(), *given, *gradients, *state)
    )
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step(given)
    peak = live
    events = profiler.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    assert peak > live
    return peak


@pytest.mark.parametrize(
    ("autocast", "apart"),
    [
        pytest.param(False, 0.01, id="fp32"),
        pytest.param(True, 0.04, id="bf16"),  # operations convert inside themselves
    ],
)
@pytest.mark.parametrize("name", ["gpt", "dropout", "checkpointed", "lora", "lstm"])
def test_torchs_profiler_counts_the_same(name, autocast, apart):
    was, threads = torch._C._get_mkldnn_enabled(), torch.get_num_threads()
    torch.set_num_threads(1)  # several convert in buffers of their own, some at the same time
    torch._C._set_mkldnn_enabled(was and name != "lstm")
    try:
        peak = estimated(name, "adamw", autocast, 256).peak_bytes
        assert peak == pytest.approx(profiled(name, autocast, 256), rel=apart)
    finally:
        torch._C._set_mkldnn_enabled(was)
        torch.set_num_threads(threads)
