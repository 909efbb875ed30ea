"""Runs in two processes of Accelerate: `python tails_accelerate.py RANK FOLDER CASE...`."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

warnings.simplefilter("ignore")


class Stream(IterableDataset):
    """0..n-1, without a length."""

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        yield from torch.arange(float(self.num_samples))


def loader_of(num_samples, size, *, iterable, drop_last=False):
    data = Stream(num_samples) if iterable else torch.arange(float(num_samples))
    return DataLoader(data, size, drop_last=drop_last)


def accelerator_of(**options):
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state()
    GradientState._reset_state()
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))


def dispatched():
    """Batches of this rank from the dispatcher, for many pipelines."""
    batches = []
    accelerator = accelerator_of(dispatch_batches=True)
    for num_samples, size, drop_last in DISPATCHED:
        loader = loader_of(num_samples, size, iterable=True, drop_last=drop_last)
        loader = accelerator.prepare(loader)
        batches.append([batch.tolist() for batch in loader])
    return batches


DISPATCHED = [
    (samples, size, drop)
    for samples in range(1, 24)
    for size in range(1, 9)
    for drop in (False, True)
    if not drop or samples >= 2 * size  # an epoch without a step raises TypeError here
]


def even_batches():
    """Batches of this rank as prepare deals them."""
    batches = {}
    for name, even, drop in (("even", True, False), ("uneven", False, False), ("drop", True, True)):
        accelerator = accelerator_of(even_batches=even)
        loader = accelerator.prepare(loader_of(9, 4, iterable=False, drop_last=drop))
        batches[name] = [batch.tolist() for batch in loader]
    return batches


def metrics():
    """How many values gather_for_metrics returns in an epoch of 9 samples, B = 4."""
    counts = {}
    for name, iterable, dispatch in (
        ("map", False, None),
        ("dispatched", True, True),
        ("sharded", True, False),
    ):
        accelerator = accelerator_of(dispatch_batches=dispatch)
        loader = accelerator.prepare(loader_of(9, 4, iterable=iterable))
        counts[name] = [len(accelerator.gather_for_metrics(batch)) for batch in loader]
    return counts


def accumulate():
    """Gradients of the optimizer steps of 6 batches, accumulated over 4."""
    accelerator = accelerator_of()
    accelerator.gradient_accumulation_steps = 4
    layer = nn.Linear(1, 1, bias=False)
    model, optimizer, loader = accelerator.prepare(
        layer,
        torch.optim.SGD(layer.parameters(), lr=0.0),
        DataLoader(torch.ones(48, 1), 4),
    )
    gradients = []
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).mean())
            if accelerator.sync_gradients:
                gradients.append(next(model.parameters()).grad.item())
            optimizer.step()
            optimizer.zero_grad()
    return gradients


def uneven_gather():
    """gather of 2 rows here and 1 there."""
    accelerator = accelerator_of()
    accelerator.gather(torch.ones(2 - accelerator.process_index, 3))
    return "gathered"


def uneven_mean():
    """The gradient of a step of 4 and 1 samples, the last of 13 under even_batches=False."""
    accelerator = accelerator_of(even_batches=False)
    layer = nn.Linear(1, 1, bias=False)
    model = accelerator.prepare(layer)
    loader = accelerator.prepare(DataLoader(torch.arange(13.0)[:, None], 4))
    for batch in loader:
        model.zero_grad()
        accelerator.backward(model(batch).mean())
    return next(model.parameters()).grad.item()


def join_uneven():
    """Whether join_uneven_inputs says that it does nothing on CPU ranks."""
    accelerator = accelerator_of(even_batches=False)
    model = accelerator.prepare(nn.Linear(1, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with accelerator.join_uneven_inputs([model]):
            pass
    return [str(warning.message) for warning in caught]


def page_code():
    """Lengths of the batches of this rank after the code of each page, and of what is gathered."""
    results = {}
    for name, job in json.loads(Path(os.environ["PAGE_JOBS"]).read_text()).items():
        accelerator = accelerator_of(
            even_batches=job["even_batches"],
            split_batches=job["split_batches"],
            dispatch_batches=job["dispatch_batches"],
        )
        count = job["num_samples"]
        names = {
            "DataLoader": DataLoader, "DataLoaderConfiguration": DataLoaderConfiguration,
            "Accelerator": lambda dataloader_config: accelerator_of(
                **{key: value for key, value in vars(dataloader_config).items()
                   if key in ("even_batches", "dispatch_batches")}
            ),
            "dataset": Stream(count) if job["iterable"] else torch.arange(float(count)),
            "accelerator": accelerator,
        }  # fmt: skip
        code = job["code"]
        exec(f"accelerator = {code}" if code.startswith("Accelerator(") else code, names)
        if "loader" not in names:
            size = names.get("batch_size", job["batch_size"])
            loader = loader_of(count, size, iterable=job["iterable"])
            names["loader"] = names["accelerator"].prepare(loader)
        lengths, gathered = [], 0
        for batch in names["loader"]:
            lengths.append(len(batch))
            gathered += len(names["accelerator"].gather_for_metrics(batch))
        results[name] = {"lengths": lengths, "gathered": gathered}
    return results


CASES = {
    case.__name__: case
    for case in (
        dispatched, even_batches, metrics, accumulate, uneven_gather, uneven_mean, join_uneven,
        page_code,
    )
}  # fmt: skip


def main():
    rank, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    seen = {name: CASES[name]() for name in names}
    (folder / f"{rank}.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main()
