"""Every family of torch's layers: fake steps against real ones, and the page that says how near."""

import json
import sys

import pytest
import torch
from batchadvisor.probes.fake_step.cuda_recurrent import GRU, LSTM, Sizes
from torch import nn

from tests.pages import ROOT

from .layer_families import ALL

sys.path.insert(0, str(ROOT / "bench"))
import estimate_layers as bench

ROWS = json.loads(bench.RAW.read_text())
QUICK = {
    "Embedding, sparse gradients",
    "EmbeddingBag, sparse gradients",
    "CTC",
    "stft and istft",
    "LBFGS",
    "NAdam",
    "Adagrad",
    "p.data -= update",
    "a meter that formats the loss",
    "checkpoint, use_reentrant=True",
    "Shampoo",
}
NOT_ON_A_CPU = {"flex_attention", "flex_attention, block mask"}
REFUSED = {"experts, by index", "jagged nested tensors", "GRU, packed"}
"""As a CPU runs them; cuDNN's packed GRU is counted."""
WITHIN_TWENTY = {"EmbeddingBag, SparseAdam"}


def test_the_page_is_what_the_benchmark_wrote():
    assert list(ROWS) == list(ALL)
    assert bench.PAGE.read_text() == bench.page(ROWS)
    for name, row in ROWS.items():
        if "refused" not in row:
            continue
        assert len(row["refused"]) > 20, name
        assert "Traceback" not in row["refused"]


@pytest.mark.filterwarnings("ignore")  # torch's own, of prototypes and of a loss read as a float
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in ALL
        if name not in NOT_ON_A_CPU
    ],
)
def test_a_fake_step_takes_what_a_real_one_does(name):
    row = bench.measure([name])[name]
    if name in REFUSED or (name.startswith("LSTM, packed")):
        assert "fake_refused" in row
        return
    assert row["fake"] == pytest.approx(row["real"], rel=0.2 if name in WITHIN_TWENTY else 0.02)


@pytest.mark.parametrize(
    ("kind", "gates", "reserve", "workspace"),
    [(LSTM, 4, 736_000_000, 17_730_560), (GRU, 3, 864_000_000, 13_169_920)],
)
def test_the_memory_that_cudnn_was_seen_to_take(kind, gates, reserve, workspace):
    """pytorch/pytorch issue 2895: 123 inputs, 4 layers of 320 cells, 250 steps of 100 samples."""
    sizes = Sizes(
        kind=kind, layers=4, directions=1, rows=250 * 100, samples=100, cells=320, dropout=False
    )
    layer = (nn.LSTM if gates == 4 else nn.GRU)(123, 320, 4)
    num_weights = sum(each.numel() for each in layer.parameters() if each.dim() > 1)
    assert 4 * sizes.reserved() == reserve
    assert 4 * sizes.taken(num_weights) == workspace
    assert torch.float32.itemsize == 4
