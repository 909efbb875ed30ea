"""Remedies of a GPU, under torch's own CUDA build: what each is worth is planted in the card."""

import json

import pytest

pytestmark = [pytest.mark.gpu_build, pytest.mark.alone]

CARD = """[card]
name = remedies
memory_mib = 2048
kernel_us = 5
copy_us = 5
launch_us = 5
bandwidth_gb_s = 1000
fp32_tflops = 0.05
tf32_tflops = 0.1
half_tflops = 0.2
half_efficiency_gflop = 0
pageable_gb_s = 0.1
pinned_gb_s = 10
"""
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
{setup}

class Rows(Dataset):
    row = torch.zeros({shape})

    def __len__(self):
        return 1_000_000

    def __getitems__(self, numbers):
        return self.row.expand(len(numbers), *self.row.shape)


loader = DataLoader(Rows(), batch_size=64, collate_fn=torch.Tensor.contiguous)
model = nn.Sequential({layers}).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for rows in loader:
    optimizer.zero_grad()
    loss = model(rows.cuda()).float().square().mean()
    loss.backward()
    optimizer.step()
"""


def tried(machine, tmp_path, names, *, budget="40s", card=CARD, **planted):
    """What came of each remedy."""
    gpu = machine(card)
    planted = {"setup": "", "shape": "1024", **planted}
    (tmp_path / "train.py").write_text(SCRIPT.format(**planted))
    gpu.answer(
        "--sizes", "64", "--budget", budget, "--no-profile", "--try", names, "train.py",
        timeout_s=280,
    )  # fmt: skip
    found = json.loads((tmp_path / "out/remedies.json").read_text())
    return found, {each["name"]: each for each in found["tried"]}


PRODUCTS = "*[nn.Linear(1024, 1024) for _ in range(8)]"


def test_lower_precision_is_worth_what_the_card_makes_of_it(machine, tmp_path):
    """Three products a layer are all that takes time: x2 with TF32, x4 in half precision, less what
    the host and the casts take."""
    found, by_name = tried(machine, tmp_path, "tf32,amp,fp16", layers=PRODUCTS, budget="60s")
    assert {each["outcome"] for each in by_name.values()} == {"gain"}, found
    for name, factor in (("tf32", 2), ("amp", 4), ("fp16", 4)):
        gain = by_name[name]["gain"]
        assert 0.6 * factor < gain["high"], (name, gain)
        assert gain["low"] < 1.02 * factor, (name, gain)
    assert by_name["tf32"]["code"] == ['torch.set_float32_matmul_precision("high")']


def test_what_is_in_use_is_recognised(machine, tmp_path):
    setup = 'torch.set_float32_matmul_precision("high"); torch.backends.cudnn.benchmark = True'
    _, by_name = tried(machine, tmp_path, "tf32,benchmark", layers=PRODUCTS, setup=setup)
    assert by_name["tf32"]["outcome"] == "in use"
    assert by_name["benchmark"]["outcome"] == "in use"


def test_pinned_memory_is_worth_the_copy(machine, tmp_path):
    """2 MiB take 21 ms from pageable memory and 0.2 ms from pinned, which takes time as well."""
    layers = "nn.Flatten(), nn.Linear(1 << 13, 16)"
    found, by_name = tried(machine, tmp_path, "pin", layers=layers, shape="1 << 13")
    pin = by_name["pin"]
    assert pin["outcome"] == "gain", found
    assert pin["gain"]["low"] > 1.2
    assert any("pin_memory=True" in line for line in pin["code"])


def test_a_search_for_kernels_that_finds_none_better_is_no_gain(machine, tmp_path):
    layers = "nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)"
    found, by_name = tried(machine, tmp_path, "benchmark", layers=layers, shape="16, 24, 24")
    benchmark = by_name["benchmark"]
    assert benchmark["outcome"] in {"no gain", "cannot tell"}, found
    assert benchmark["gain"]["low"] < 1.02, found


SPLIT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.zeros(1 << 20, 16)), batch_size=64)
model = torch.nn.Linear(16, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for (rows,) in loader:
    part = len(rows) * 100 * 1024
    first = torch.empty(10 * part, dtype=torch.uint8, device="cuda")
    del first
    held = torch.empty(6 * part, dtype=torch.uint8, device="cuda")
    last = torch.empty(9 * part, dtype=torch.uint8, device="cuda")
    for _ in range(20):
        model.weight.data.add_(0)
    optimizer.zero_grad()
    model(rows.cuda()).mean().backward()
    optimizer.step()
    del held, last
"""


def test_expandable_segments_make_room_for_a_larger_batch(machine, tmp_path):
    """Where 6 parts lie in a block of 10, 9 more do not fit into its rest: 19 parts are taken for
    15. Each launch takes a millisecond, so that all the batch's room is gain."""
    gpu = machine("[card]\nname = split\nmemory_mib = 1024\nlaunch_us = 1000\n")
    (tmp_path / "train.py").write_text(SPLIT)
    answer = gpu.answer("--budget", "40s", "--no-profile", "--try", "segments", "train.py")
    found = json.loads((tmp_path / "out/remedies.json").read_text())
    same, larger = found["tried"]
    part_mib = 100 / 1024
    usual, size = answer["advice"]["recommended"]["batch_size"], larger["batch_size"]
    assert 0.8 * 973 / 19 / part_mib < usual <= 1024 / 19 / part_mib, answer["advice"]
    assert same["peak_bytes"] / same["usual_bytes"] == pytest.approx(15 / 19, rel=0.05)
    assert larger["outcome"] == "gain", found
    assert 1024 / 19 / part_mib < size <= 1024 / 15 / part_mib, found
    assert larger["gain"]["low"] < size / usual < larger["gain"]["high"] * 1.02, found
    assert larger["code"][0] == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
