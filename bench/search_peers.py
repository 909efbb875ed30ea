"""The other finders of search_cost.py on search_workload.py, each as its documentation shows it.

    SEARCH_LIMIT=700 python bench/search_peers.py lightning-power

Prints the answer as JSON. Runs in the environment in which the finders are installed.
"""

# ruff: noqa: PLC0415  a finder is imported only where it is asked for
from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any

import search_workload as work
import torch
from torch import nn

NUM_STEPS = 3
"""Of the training that Accelerate repeats until it fits; a real one would take all its steps."""


def lightning(mode: str) -> int | None:
    """`Tuner.scale_batch_size` with its defaults."""
    import lightning as L  # noqa: N812  as its documentation writes it
    from lightning.pytorch.tuner import Tuner

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = work.Model()
            self.batch_size = 32

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            return nn.functional.mse_loss(self.model(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

        def train_dataloader(self) -> Any:
            return work.loader_of(self.batch_size)

    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return Tuner(trainer).scale_batch_size(Module(), mode=mode)


def accelerate() -> int:
    """`find_executable_batch_size` with its default start of 128."""
    from accelerate.utils import find_executable_batch_size

    used = 0

    @find_executable_batch_size
    def train(batch_size: int) -> None:
        nonlocal used
        used = batch_size
        model = work.Model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for number, (x, y) in enumerate(work.loader_of(batch_size)):
            if number == NUM_STEPS:
                return
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

    train()
    return used


def batchtune() -> int:
    """`find_max_batch_size`; it reads CUDA only, so its readings come from the paper."""
    from batchtune import core

    core.get_device_memory_limit = lambda _: work.CAPACITY
    core.get_device_used_memory = lambda _: work.METER.peak_bytes()
    core.empty_device_cache = lambda _: work.METER.reset()
    core.synchronize_device = lambda _: None
    model = work.Model()
    size: int = core.find_max_batch_size(
        model,
        torch.optim.Adam(model.parameters(), lr=1e-3),
        nn.functional.mse_loss,
        work.Samples(),
        device=torch.device("cpu"),
        dataloader_kwargs={"collate_fn": work.collate},
    )
    return size


def batch_finder() -> Any:
    """`find_max_minibatch`; forward and backward without an optimizer, a process an attempt."""
    from batch_finder import find_max_minibatch

    shape = find_max_minibatch(
        work.Model, input_shapes=(-1, work.NUM_FEATURES), device=torch.device("cpu")
    )
    return shape[0] if isinstance(shape, (tuple, list)) else shape  # the whole shape


FINDERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "lightning-power": ("lightning", lambda: lightning("power")),
    "lightning-binsearch": ("lightning", lambda: lightning("binsearch")),
    "accelerate": ("accelerate", accelerate),
    "batchtune": ("batchtune", batchtune),
    "batch-finder": ("batch-finder", batch_finder),
}


def main() -> None:
    """Runs one finder."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    package, function = FINDERS[sys.argv[1]]
    answer: dict[str, Any] = {"answer": None, "error": ""}
    try:
        answer["version"] = metadata.version(package)
        answer["answer"] = function()
    except Exception as error:  # noqa: BLE001  what a finder raises is its result
        answer["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
