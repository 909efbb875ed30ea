"""Memory predicted by steps on fake tensors, and what a real step on the CPU takes.

    python bench/estimate_accuracy.py
    python bench/estimate_accuracy.py --models GPT,LSTM --optimizers AdamW --precisions fp32

Each model is traced at half of its largest traced size and at that size. The law of both takes
each request for memory as a line in the batch size (`Between` in
`features/estimate/fit/forecast.py`). At 16 times the largest traced size are compared: the law, a
step on fake tensors, the storages of a real step, and the memory events of torch's profiler over
one more real step. Real and fake steps take the forms of operations that CUDA takes
(`probes/fake_step/cuda_forms.py`).

The profiler also sees what one operation takes and gives back inside itself, such as the CPU's
workspaces of convolutions. The column without them leaves out what was allocated and freed within
one operation of the dispatcher. The range is what `estimate` states of tensors, from the law
(`features/estimate/fit/forecast.py`). Beside it: the least memory in which a replica of torch's
caching allocator serves the requests of the fake step, against those of the real one.

These are bytes, not seconds: other work on the machine does not change them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from batchadvisor.features.estimate.fit.forecast import Between, fits, peak_range, reserved_bytes
from batchadvisor.probes.fake_step.cuda_forms import use_cuda_forms
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.fake_step.storage_count import StorageCount
from batchadvisor.records import Variant
from common import RESULTS, Results, header, say, table
from estimate_models import MODELS, OPTIMIZERS
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

BEYOND = 16
PRECISIONS = ("fp32", "bf16")
PRECISION_BYTES = 256 << 10
IMPLICIT = "CompositeImplicitAutograd"


class Training:
    """A model and its optimizer, with a step as scripts write it."""

    def __init__(self, model: str, optimizer: str, precision: str) -> None:
        torch.manual_seed(0)
        self.batch = MODELS[model].batch
        self.model = MODELS[model].build()
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = OPTIMIZERS[optimizer](self.trained)
        self._bf16 = precision == "bf16"

    def step(self, given: tuple[torch.Tensor, torch.Tensor]) -> None:
        """One step of the optimizer."""
        inputs, target = given
        self.optimizer.zero_grad()
        context: Any = contextlib.nullcontext()
        if self._bf16:
            context = torch.autocast("cpu", torch.bfloat16)
        with context:
            loss = functional.cross_entropy(self.model(inputs), target)
        loss.backward()
        loss.item()
        self.optimizer.step()

    def held(self, given: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """What lives between two steps, without gradients."""
        states = [v for values in self.optimizer.state.values() for v in values.values()]
        tensors = [*self.model.parameters(), *self.model.buffers(), *given, *states]
        return [each for each in tensors if isinstance(each, torch.Tensor)]


def predicted(training: Training, sizes: list[int]) -> tuple[dict[int, dict[str, int]], float]:
    """Fake steps of ascending sizes, and what the two before the last one say of it."""
    steps = FakeSteps(training.trained)
    rows: dict[int, dict[str, int]] = {}
    trials, requests = {}, {}
    for size in sizes:
        small = training.batch(2)
        steps.begin(Variant(), size)
        for number in range(2):
            if number:
                steps.next_step()
            given = tuple(steps.empty(each, [size, *each.shape[1:]]) for each in small)
            steps.enter(given)
            try:
                training.step(given)  # type: ignore[arg-type]
            finally:
                steps.leave()
        trial = steps.trial(size)
        rows[size] = {"peak": trial.peak_bytes, "needed": least_memory(steps.requests)}
        trials[size], requests[size] = trial, steps.requests
    steps.close()
    small, large, target = sizes[-3:]
    between = Between(trials[small], trials[large], requests[small], requests[large])
    return rows, between.peak_bytes(target)


def by_storages(training: Training, size: int) -> dict[str, int]:
    """The second real step: its peak, and the memory that the replica serves it with."""
    given, count = training.batch(size), StorageCount()
    count.hold([*training.model.parameters(), *training.model.buffers(), *given])
    with count:
        for _ in range(2):
            count.reset_peak()
            count.reset_requests()
            training.step(given)
    return {"peak": count.peak_bytes, "needed": least_memory(count.requests)}


def by_profiler(training: Training, size: int) -> dict[str, int]:
    """A further real step, by torch's memory events: all of them, and without those inside one
    operation."""
    given = training.batch(size)
    training.optimizer.zero_grad()  # the profiler sees no end of what began before it
    tensors = training.held(given)
    start = sum({id(s): s.nbytes() for s in (t.untyped_storage() for t in tensors)}.values())
    del tensors
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        training.step(given)
    events = sorted(_allocations(profiler), key=lambda event: event[0])
    inside: set[int] = set()
    open_at: dict[int, tuple[int, Any]] = {}
    for at, (_, pointer, num_bytes, operation) in enumerate(events):
        if num_bytes > 0:
            open_at[pointer] = at, operation
        elif pointer in open_at:
            since, where = open_at.pop(pointer)
            if operation is not None and operation == where:
                inside |= {since, at}
    return {
        "all": _most(start, (event[2] for event in events)),
        "outside": _most(start, (e[2] for at, e in enumerate(events) if at not in inside)),
    }


def least_memory(requests: Sequence[int]) -> int:
    """The least memory in which a replica of torch's caching allocator serves these, in bytes."""
    low, high = 0, reserved_bytes(requests)
    while high - low > PRECISION_BYTES:
        middle = (low + high) // 2
        if fits(requests, middle):
            high = middle
        else:
            low = middle
    return high


def _most(live: int, changes: Iterator[int]) -> int:
    most = live
    for change in changes:
        live += change
        most = max(most, live)
    return most


def _allocations(profiler: Any) -> Iterator[tuple[int, int, int, Any]]:
    """Time, address, bytes and the outermost operation of the dispatcher around each."""
    waiting = [(node, None) for node in profiler.profiler.kineto_results.experimental_event_tree()]
    while waiting:
        node, operation = waiting.pop()
        if node.name == "[memory]":
            fields = node.extra_fields
            yield node.start_time_ns, fields.ptr, fields.alloc_size, operation
        elif operation is None and node.name.startswith("aten::") and _is_dispatched(node.name):
            operation = node.id
        waiting += [(child, operation) for child in node.children]


@functools.cache
def _is_dispatched(name: str) -> bool:
    """Whether an operation is more than a name for others."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    overloads = [] if packet is None else packet.overloads()
    full = [name if each == "default" else f"{name}.{each}" for each in overloads]
    return bool(full) and not all(
        torch._C._dispatch_has_kernel_for_dispatch_key(each, IMPLICIT)  # noqa: SLF001
        for each in full
        if "prim" not in each  # of TorchScript
    )


def measured(model: str, optimizer: str, precision: str) -> dict[str, Any]:
    """Everything of one case, in bytes."""
    largest = MODELS[model].largest
    target = BEYOND * largest
    sizes = [largest // 2, largest]
    was = torch._C._get_mkldnn_enabled()  # noqa: SLF001
    torch._C._set_mkldnn_enabled(was and MODELS[model].fused)  # noqa: SLF001
    try:
        fake, law = predicted(Training(model, optimizer, precision), [*sizes, target])
        gc.collect()
        real = by_storages(training := Training(model, optimizer, precision), target)
        profiled = by_profiler(training, target)
    finally:
        torch._C._set_mkldnn_enabled(was)  # noqa: SLF001
    low, high = peak_range(law)
    return {
        "model": model,
        "optimizer": optimizer,
        "precision": precision,
        "traced": sizes,
        "target": target,
        "fake": fake,
        "law": law,
        "storages": real,
        "profiler": profiled,
        "range": [low, high],
        "covered": low <= real["peak"] <= high,
        "width": (high - low) / real["peak"],
    }


HEADINGS = (
    *("model", "optimizer", "type", "traced to", "at", "law", "fake step", "range"),
    *("storages", "profiler", "all events", "law %", "fake %", "fake/profiler %", "width %", "in"),
    *("needs", "needs %"),
)


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table, in MiB."""
    fake = row["fake"].get(row["target"]) or row["fake"][str(row["target"])]
    real, profiled = row["storages"]["peak"], row["profiler"]
    law = row["law"]
    return [
        row["model"],
        row["optimizer"],
        row["precision"],
        str(row["traced"][-1]),
        str(row["target"]),
        _mib(law),
        _mib(fake["peak"]),
        " to ".join(map(_mib, row["range"])),
        _mib(real),
        _mib(profiled["outside"]),
        _mib(profiled["all"]),
        f"{100 * (law / real - 1):+.2f}",
        f"{100 * (fake['peak'] / real - 1):+.2f}",
        f"{100 * (fake['peak'] / profiled['outside'] - 1):+.2f}",
        f"{100 * row['width']:.1f}",
        "yes" if row["covered"] else "NO",
        _mib(fake["needed"]),
        f"{100 * (fake['needed'] / row['storages']['needed'] - 1):+.1f}",
    ]


def _mib(num_bytes: float) -> str:
    return f"{num_bytes / (1 << 20):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--optimizers", nargs="*", default=list(OPTIMIZERS), choices=OPTIMIZERS)
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--resume", type=Path, help="Results of an earlier part, to go on with.")
    parser.add_argument("--most", type=int, help="Stop after so many cases of the list.")
    options = parser.parse_args()
    use_cuda_forms()
    results = Results(options.results, "estimate-accuracy", options.resume)
    rows = results.data.setdefault("cases", [])
    done = {(row["model"], row["optimizer"], row["precision"]) for row in rows}
    cases = [
        (model, optimizer, precision)
        for optimizer in options.optimizers
        for precision in options.precisions
        for model in options.models
    ]
    try:
        for case in cases[: options.most]:
            if case not in done:
                rows.append(measured(*case))
                say(" ".join(cells(rows[-1])))
                gc.collect()
                results.save()
    except KeyboardInterrupt:
        pass
    results.data["state"] = (
        "finished" if len(rows) >= len(cases) else f"{len(rows)} of {len(cases)} cases"
    )
    num = sum(row["covered"] for row in rows)
    narrow = sum(row["width"] <= 0.10 for row in rows)
    lines = [
        *header(results.data, f"Peaks at {BEYOND} times the largest traced size, MiB"),
        table(HEADINGS, [cells(row) for row in rows]),
        "",
        f"{num} of {len(rows)} ranges cover the real step; {narrow} are at most 10 % wide.",
    ]
    results.finish("\n".join(lines))


if __name__ == "__main__":
    main()
