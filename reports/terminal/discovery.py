"""What was found in a script before anything is tried."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import (
    BatchSizeSource,
    DeviceInfo,
    Discovery,
    FileTouched,
    LoaderInfo,
    OptimizerInfo,
)
from ...units import format_bytes
from ..words.wording import clean, plural
from .touched import render as touched_files


def render(
    discovery: Discovery,
    device: DeviceInfo,
    files: Sequence[FileTouched] = (),
    *,
    encoding: str = "utf-8",
) -> str:
    """The device, the loaders, the optimizers and the step.

    Args:
        files: that the script touched while it was looked at.
        encoding: of the output; characters that it lacks are replaced.
    """
    lines = [f"Device: {device.name} ({device.kind}), {format_bytes(device.capacity_bytes)} to use"]
    steers = discovery.traits.steers_loader
    lines += [
        _loader(loader, discovery) if steers else _batches(loader) for loader in discovery.loaders
    ]
    lines += [_optimizer(optimizer) for optimizer in discovery.optimizers]
    ranks = discovery.num_ranks
    samples = discovery.effective_batch * ranks
    axis = discovery.axis if discovery.axis == "samples" else f"{discovery.axis} at most"
    each = f"{ranks} ranks x " if ranks > 1 else ""
    step = f"{each}{discovery.micro_batches} x {discovery.native_batch_size} = {samples} {axis}"
    if discovery.steps_per_batch > 1:
        step = f"{discovery.steps_per_batch} optimizer steps for each {samples} {axis}"
    if discovery.why_own_unknown:
        step = f"not known of how many samples: {discovery.why_own_unknown}"
    if discovery.why_steps_unknown:
        step = f"not known of how many samples: {discovery.why_steps_unknown}"
    lines.append(
        f"Step: {step}; {_parameters(discovery.num_parameters)} on {discovery.parameter_device}"
    )
    if steers:
        steered = f"Loader {discovery.primary_loader} would be steered; --loader N takes another."
        lines.append(steered)
    seen = "\n".join(clean(line, encoding) for text in lines for line in text.split("\n"))
    touched = touched_files(files, encoding=encoding)
    return f"{seen}\n{touched}" if touched else seen


def _batches(loader: LoaderInfo) -> str:
    """Describes the batches behind another door than a DataLoader's."""
    where = f" {loader.place}" if loader.place is not None else ""
    size = "an unknown size" if loader.batch_size is None else loader.batch_size
    text = f"Batches{where}: of {size}, sizes get in {loader.steered}"
    if loader.num_samples is not None:
        text += f"; {plural(loader.num_samples, 'sample')} an epoch"
    return text + (_source_line(loader.source) if loader.trains else "")


def _source_line(source: BatchSizeSource | None) -> str:
    if source is None:
        return ""
    where = "on the command line" if source.place is None else f"at {source.place}"
    return f"\n    its size is set {where}: {source.before}"


def _loader(loader: LoaderInfo, discovery: Discovery) -> str:
    size = loader.batch_size if loader.batch_size is not None else "?"
    samples = "unknown length"
    if loader.num_samples is not None:
        samples = plural(loader.num_samples, "sample")
    role = (
        "steered"
        if loader.ordinal == discovery.primary_loader
        else "trains"
        if loader.trains
        else "left alone"
    )
    text = (
        f"Loader {loader.ordinal} ({role}): {loader.place}  {loader.size_name}={size}, {samples}, "
        f"{loader.sampler}, num_workers={loader.num_workers}, drop_last={loader.drop_last}"
    )
    if loader.ordinal == discovery.primary_loader and discovery.shared is not None:
        shared = discovery.shared
        text += f"\n    each rank gets its part of {shared.name}={shared.number}"
        return text + _source_line(shared.source)
    return text + (_source_line(loader.source) if loader.trains else "")


def _parameters(number: int | None) -> str:
    return "an unknown number of parameters" if number is None else f"{number:,} parameters"


def _optimizer(optimizer: OptimizerInfo) -> str:
    role = "steps" if optimizer.trains else "does not step"
    rate = "?" if optimizer.learning_rate is None else f"{optimizer.learning_rate:g}"
    return (
        f"Optimizer {optimizer.ordinal} ({role}): {optimizer.place}  {optimizer.name}, "
        f"lr={rate}, {_parameters(optimizer.num_parameters)}"
    )
