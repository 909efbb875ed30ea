"""The identity of a run: command, versions, device, loaders, optimizers."""

from __future__ import annotations

import shlex

from ....records import DeviceInfo, Discovery, LoaderInfo, OptimizerInfo, RunRecord
from ....units import format_bytes, format_seconds
from ...words.wording import clean, number, plural


def device_name(record: RunRecord) -> str:
    """The device's name in reports."""
    device = record.device
    if device is None:
        return "no device was found"
    index = "" if device.index is None else f":{device.index}"
    return clean(f"{device.name} ({device.kind}{index})")


def identity(record: RunRecord) -> list[tuple[str, str]]:
    """Everything that tells this run from others."""
    rows = [
        ("command", shlex.join(record.command)),
        ("script", shlex.join([record.script.path, *record.script.arguments])),
        ("started", record.started_at),
        ("took", format_seconds(record.elapsed_s)),
        ("schema of the record", record.schema_version),
    ]
    versions = record.versions
    if versions is not None:
        rows += [
            ("batchadvisor", versions.batchadvisor),
            ("Python", versions.python),
            ("torch", versions.torch),
            ("CUDA", versions.cuda or ""),
            ("driver", versions.driver or ""),
            ("platform", versions.platform),
        ]
    device = record.device
    if device is not None:
        rows += [
            ("device", device_name(record)),
            ("device UUID", device.uuid or ""),
            ("memory", _memory(device)),
            ("CPU cores", "" if device.num_cores is None else str(device.num_cores)),
        ]
    discovery = record.discovery
    if discovery is not None:
        rows += [
            ("loader", _loader(loader, discovery.primary_loader)) for loader in discovery.loaders
        ]
        rows += [
            ("optimizer", _optimizer(optimizer))
            for optimizer in discovery.optimizers
            if optimizer.trains
        ]
        rows += [("parameters", _parameters(discovery))]
    return [(label, text) for label, text in rows if text]


def _parameters(discovery: Discovery) -> str:
    if discovery.num_parameters is None:
        return f"unavailable: {discovery.unavailable.get('num_parameters', 'not recorded')}"
    return f"{discovery.num_parameters:,} on {discovery.parameter_device}"


def _memory(device: DeviceInfo) -> str:
    whole = format_bytes(device.total_bytes)
    return f"{format_bytes(device.capacity_bytes)} of {whole} ({device.capacity_source})"


def _loader(loader: LoaderInfo, primary: int) -> str:
    samples = "unknown length"
    if loader.num_samples is not None:
        samples = plural(loader.num_samples, "sample")
    role = ", steered" if loader.ordinal == primary else ""
    place = f"{loader.place}: " if loader.place is not None else ""
    size = "?" if loader.batch_size is None else loader.batch_size
    return (
        f"{place}{loader.size_name}={size}, {samples}, {loader.sampler}, "
        f"{plural(loader.num_workers, 'worker')}, drop_last={loader.drop_last}{role}"
    )


def _optimizer(optimizer: OptimizerInfo) -> str:
    place = f"{optimizer.place}: " if optimizer.place is not None else ""
    rate = "not known" if optimizer.learning_rate is None else number(optimizer.learning_rate)
    return f"{place}{optimizer.name}, learning rate {rate}"
