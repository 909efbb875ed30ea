"""The code of the pages of one process, executed; what comes out is what the engine says."""

import itertools
import math

import batchadvisor
import pytest
import torch
from batchadvisor import ModelFacts
from batchadvisor.advisor.tails.cases import BY_ID
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from .pages import as_loader, layout_after, name_of, page_fixes
from .said import case_of, planned

PAGES = page_fixes("dataloader", "data-parallel")
ELSEWHERE = {
    "ddp": "test_pages_of_ranks.py",
    "join": "test_pages_of_ranks.py",
    "multi-worker-mirrored": "test_pages_of_ranks.py",
    "keras-torch": "test_pages_of_ranks.py",
    "accelerate": "frameworks",
    "lightning": "frameworks",
    "trainer": "frameworks",
    "keras-tensorflow": "frameworks",
    "mirrored": "frameworks",
    "jax": "frameworks",
}
"""Where the code for the other setups is executed."""


def test_every_page_is_executed_somewhere():
    setups = {case.example.setup for case in BY_ID.values()}
    assert setups == {"dataloader", "data-parallel", *ELSEWHERE}


class Stream(IterableDataset):
    """0..n-1 without a length, a share to each worker."""

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for value in itertools.islice(range(self.num_samples), first, None, step):
            yield torch.tensor(float(value)), torch.tensor(0)


def names_of(example):
    """What the code of a page finds around it."""
    count = example.num_samples
    whole = TensorDataset(torch.arange(float(count)), torch.zeros(count, dtype=torch.long))
    dataset = Stream(count) if example.iterable else whole
    return {"torch": torch, "nn": nn, "math": math, "DataLoader": DataLoader, "dataset": dataset}


def loads(page):
    """A new loader or a new size: the lengths of its batches."""
    _, _, fix, example = page
    names, changes = names_of(example), fix.changes
    exec(as_loader(fix.snippet), names)
    if "loader" not in names:
        drop = changes.get("drop_last", example.drop_last)
        names["loader"] = DataLoader(
            names["dataset"], names["batch_size"], drop_last=drop, num_workers=example.num_workers
        )
    lengths = [len(batch[0]) for batch in names["loader"]]
    layout = layout_after(fix, example)
    assert len(lengths) == layout.batches[0]
    short = [length for length in lengths if length < layout.full_samples]
    if not example.iterable:
        assert short == ([layout.last_samples] if layout.is_short else [])
    assert sum(lengths) + layout.dropped == changes.get("num_samples", example.num_samples)


def scales(page):
    """Every sample moves a weight of its own as far as the others."""
    example = page[3]
    weights = nn.Parameter(torch.zeros(example.num_samples))
    optimizer = torch.optim.SGD([weights], lr=1.0)
    for target in DataLoader(range(example.num_samples), example.batch_size):
        optimizer.zero_grad()
        names = {"loss": weights[target].mean(), "target": target}
        exec(page[2].snippet, names)
        names["loss"].backward()
        optimizer.step()
    assert weights.detach() == pytest.approx(weights.detach()[:1].expand_as(weights))


def normalises(page):
    """A step of one sample passes, in training mode."""
    names = {"torch": torch, "math": math, "channels": 6}
    exec(page[2].snippet, names)
    assert names["norm"](torch.randn(1, 6, 1, 1)).isfinite().all()


def freezes(page):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).train()
    exec(page[2].snippet, {"torch": torch, "model": model})
    assert model(torch.randn(1, 2)).isfinite().all()


def rescales(page):
    """Every optimizer step moves the weight alike, the last one of fewer micro-batches too."""
    example = page[3]
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    moved, num_micro_batches = [], 0
    loader = DataLoader(torch.ones(example.num_samples, 1), example.batch_size)
    for position, batch in enumerate(loader, 1):
        (model(batch).mean() / example.micro_batches).backward()
        num_micro_batches += 1
        if num_micro_batches == example.micro_batches or position == len(loader):
            before = model.weight.item()
            exec(page[2].snippet, {"num_micro_batches": num_micro_batches, "model": model,
                                   "optimizer": optimizer})  # fmt: skip
            optimizer.zero_grad()
            moved.append(before - model.weight.item())
            num_micro_batches = 0
    assert len(moved) == layout_after(page[2], example).steps
    assert moved == pytest.approx([1.0] * len(moved), abs=1e-5)


def compiles(page):
    """A short batch makes no second graph (the engine of the snippet is not the default one)."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    names = {"torch": torch, "model": nn.Linear(4, 2)}
    exec(page[2].snippet.replace("dynamic", "backend=counter, dynamic"),
         {**names, "counter": counter}, names)  # fmt: skip
    for length in (8, 8, 5, 3):
        names["model"](torch.ones(length, 4))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def wraps(page):
    """On a machine without GPUs DataParallel hands everything to the module."""
    made = eval(page[2].snippet, {"torch": torch, "model": nn.Linear(1, 1)})
    assert isinstance(made, nn.DataParallel)


def launches(page):
    """Executed by test_pages_of_ranks.py; here the numbers."""
    changed = batchadvisor.tails(page[3], **page[2].changes).pipeline
    assert f"--nproc-per-node={changed.num_ranks} " in page[2].snippet
    assert page[2].snippet.endswith(f"batch_size={changed.batch_size}")


WAYS = (
    ("torchrun", launches),
    ("loss * len(target)", scales),
    ("GroupNorm", normalises),
    ("layer.eval()", freezes),
    ("num_micro_batches", rescales),
    ("torch.compile", compiles),
    ("DataParallel(", wraps),
    ("DataLoader(", loads),
    ("batch_size = ", loads),
    ("batch_size, drop_last = ", loads),
)
"""A piece of the code, and what executes and judges it."""


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code(page):
    ways = [way for piece, way in WAYS if piece in page[2].snippet]
    assert ways, page[2].snippet
    ways[0](page)


def fix_with(piece, report, name):
    """A fix that the examples do not show."""
    return next(fix for fix in case_of(report, name).fixes if piece in fix.snippet)


@pytest.mark.parametrize(
    ("piece", "model"),
    [
        ("groups", ModelFacts(group_norm=1, group_norm_values=1)),
        ("InstanceNorm2d", ModelFacts(instance_norm=1, instance_norm_values=1)),
    ],
)
def test_groups_and_maps_of_one_value(piece, model):
    fix = fix_with(piece, planned(9, 4, model=model), "norm.one-value")
    names = {"torch": torch, "nn": nn, "math": math, "channels": 6, "height": 1, "width": 1}
    exec(fix.snippet, names)
    assert names["norm"](torch.randn(1, 6, 1, 1)).isfinite().all()


def test_a_mean_of_no_rows():
    example = BY_ID["loss.empty-batch"].example
    fix = case_of(batchadvisor.tails(example), "loss.empty-batch").fixes[0]
    names = {"F": nn.functional, "output": torch.zeros(0, 3), "target": torch.zeros(0).long()}
    exec(fix.snippet, names)
    assert names["loss"] == 0


def test_batches_weighed_by_their_samples():
    """The mean over samples and not over batches."""
    fix = fix_with("total", planned(9, 4, stage="validate"), "loader.short")
    adds, divides = fix.snippet.splitlines()
    names = {"total": 0.0, "num_samples": 9}
    for target in DataLoader(torch.arange(9.0), 4):
        names.update(loss=target.mean(), target=target)
        exec(adds, names)
    exec(divides, names)
    assert names["mean"] == 4.0


def test_a_loss_from_gathered_outputs():
    report = planned(202, 64, "data-parallel", 4, model=ModelFacts(loss_in_forward=True))
    fix = fix_with("cross_entropy", report, "dataparallel.chunks")
    names = {"F": nn.functional, "data_parallel": nn.DataParallel(nn.Linear(2, 3)),
             "batch": torch.randn(5, 2), "target": torch.zeros(5).long()}  # fmt: skip
    exec(fix.snippet, names)
    assert names["loss"].isfinite()
