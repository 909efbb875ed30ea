"""`find_batch_size` on a card: it finds what was planted, and the training goes on as it was."""

import json

import pytest

from .planted import card

pytestmark = [pytest.mark.gpu_build, pytest.mark.alone]

TRAINING = """
import json, os, sys
import batchadvisor, torch
from torch import nn

searches = sys.argv[1] == "search"
rank = int(os.environ.get("RANK", 0))
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
scaler = torch.amp.GradScaler("cuda", growth_interval=4)
canvas = torch.zeros(100 * 1024 * 512, device=device)
{setup}


def train_step(rows):
    rows = rows.to(device)
    part = canvas[: len(rows) * 100 * 1024]
    for _ in range(20):
        part.add(1)
    with torch.autocast("cuda", torch.float16):
        loss = model(rows).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    scheduler.step()
    {after}


def make_batch(size):
    return torch.zeros(size, 64)


for _ in range(5):
    train_step(make_batch(16))
torch.cuda.synchronize()
told = {{}}
if searches:
    held = torch.cuda.memory_reserved()
    places = [each.data_ptr() for each in model.parameters()]
    found = batchadvisor.find_batch_size(train_step, make_batch, {options} quiet=True)
    told = {{
        "size": found.batch_size,
        "ratio": found.ratio,
        "not_restored": found.not_restored,
        "device": found.record.device.name,
        "rates": {{t.batch_size: t.samples_per_s.median for t in found.record.trials
                  if t.samples_per_s is not None}},
        "places": places == [each.data_ptr() for each in model.parameters()],
        "held": held, "holds": torch.cuda.memory_reserved(),
        "limit": found.advice.verdict.limit,
    }}
for _ in range(3):
    train_step(make_batch(16))
states = [optimizer.state_dict()["state"], scheduler.state_dict(), scaler.state_dict()]
plain = json.loads(json.dumps(states, default=lambda tensor: tensor.tolist()))
drawn = [torch.cuda.get_rng_state().sum().item(), torch.rand(1).item()]
with open(f"{{rank}}-{{sys.argv[1]}}.json", "w") as file:
    json.dump({{"told": told, "states": plain, "drawn": drawn}}, file)
"""


def trained(gpu, what, *launcher, rank=0):
    gpu.run(*launcher, "train.py", what, timeout_s=200)
    return json.loads((gpu.folder / f"{rank}-{what}.json").read_text())


def test_a_training_on_a_card_goes_on_with_the_size_that_was_planted(machine, tmp_path):
    """From 64 samples on the step is the card's, but for what the host does after the scaler's read
    of the card."""
    gpu = machine(card(wave_us=250.0))
    options = "own=16, sizes=(16, 64, 256), budget=25, profile=True,"
    script = TRAINING.format(setup="", after="", options=options)
    (tmp_path / "train.py").write_text(script)
    usual, found = (trained(gpu, what) for what in ("none", "search"))
    told = found["told"]
    assert told["device"] == "software GPU planted"
    # A kernel of n samples takes n / 16 waves of 250 us, and there are 20.
    most = 16 / (20 * 250e-6)
    rates = told["rates"]
    assert set(rates) == {"16", "64", "256"}
    assert max(rates.values()) < most
    assert 0.5 * most < rates["64"]
    assert 0.8 * most < rates["256"]
    assert rates[str(told["size"])] > 0.94 * rates["256"]
    assert told["size"] > 16
    assert told["ratio"] > 1
    assert told["limit"] == "saturated"
    assert told["not_restored"] == []
    assert told["places"]
    assert told["holds"] <= told["held"]
    assert (found["states"], found["drawn"]) == (usual["states"], usual["drawn"])


def test_ranks_on_two_cards_agree_on_what_the_smaller_can_hold(machine, tmp_path):
    cards = card(memory_mib=2048) + card(memory_mib=1024)
    gpu = machine(cards)
    script = TRAINING.format(
        setup='torch.distributed.init_process_group("gloo")',
        after="torch.zeros(len(rows) << 20, device=device)",
        options='own=16, goal="memory", max_batch=512, budget=60, profile=False,',
    )
    (tmp_path / "train.py").write_text(script)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    usual, first = (trained(gpu, what, *launcher) for what in ("none", "search"))
    second = json.loads((tmp_path / "1-search.json").read_text())
    # 200 MiB are the canvas's; each sample takes 4 MiB of 95 % of a card.
    assert first["told"]["size"] == second["told"]["size"]
    assert 16 < first["told"]["size"] <= (0.95 * 1024 - 200) / 4
    assert first["told"]["size"] > 0.85 * (0.95 * 1024 - 200) / 4
    assert (first["states"], first["drawn"]) == (usual["states"], usual["drawn"])
