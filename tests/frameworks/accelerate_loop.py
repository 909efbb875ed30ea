"""Loops under Accelerate for `accelerate launch`: FOLDER, then how each of them runs."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from batchadvisor.callback import AccelerateCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

folder = Path(sys.argv[1])
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)


def run(how):
    """Trains; what each rank did goes into a file of its own."""
    set_seed(0)
    x = torch.randn(101, 6)
    loader = DataLoader(TensorDataset(x, x[:, :1] * 2), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, sizes, steps = [], [], 0
    prof = AccelerateCallback(accelerator, folder / "log", profile_after=4)
    with prof if how != "plain" else nullcontext():
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for epoch in range(3):
            part = accelerator.skip_first_batches(loader, 4) if how == "resume" else loader
            for a, b in part:
                with accelerator.accumulate(model):
                    loss = nn.functional.mse_loss(model(a), b)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                    steps += accelerator.sync_gradients
                    losses.append(loss.item())
                    sizes.append(len(a))
                if how == "raise" and epoch == 2:
                    raise ValueError("mine")
    weights = [parameter.tolist() for parameter in model.parameters()]
    result = {"losses": losses, "weights": weights, "sizes": sizes, "steps": int(steps)}
    name = f"{how}-{accelerator.process_index}.json"
    (folder / name).write_text(json.dumps(result))


for how in sys.argv[2:]:
    run(how)
accelerator.end_training()
