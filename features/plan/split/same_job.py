"""Whether records are of one job: what differs is said, what cannot be compared is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from ....records import Finding, RunRecord

Named = tuple[str, RunRecord]
"""Where a record stands, and the record."""

_DIFFERENCES: tuple[tuple[str, str, Callable[[RunRecord], object], str], ...] = (
    (
        "plan-script",
        "the text of the script",
        lambda record: record.script.digest,
        "Probe the same version of the script on every type.",
    ),
    (
        "plan-arguments",
        "the script's arguments",
        lambda record: " ".join(record.script.arguments),
        "Paths may differ from host to host; what changes the model or its input may not.",
    ),
    (
        "plan-precision",
        "the precision",
        lambda record: None if record.discovery is None else record.discovery.precision or None,
        "Steps of another precision are another job, unless a type has no other one.",
    ),
    (
        "plan-torch",
        "torch",
        lambda record: None if record.versions is None else record.versions.torch,
        "Another version may be faster or slower by itself.",
    ),
    (
        "plan-cuda",
        "CUDA",
        lambda record: None if record.versions is None else record.versions.cuda,
        "Another version may be faster or slower by itself.",
    ),
    (
        "plan-compiled",
        "torch.compile",
        lambda record: None if record.discovery is None else record.discovery.compiled,
        "Compile on every type, or on none.",
    ),
    (
        "plan-data",
        "the number of samples of the data set",
        lambda record: None if record.discovery is None else _num_samples(record),
        "The plan takes the smaller number.",
    ),
    (
        "plan-tool",
        "batchadvisor",
        lambda record: None if record.versions is None else record.versions.batchadvisor,
        "Probe again with one version if the numbers surprise you.",
    ),
)
"""Rule, what it is about, its value in a record (`None`: not known), what to do."""


def why_not_one_job(records: Sequence[Named]) -> str:
    """Why the records cannot be compared; empty where they can."""
    first_name, first = records[0]
    for name, record in records[1:]:
        if _other_script(first, record):
            return f"{first_name} is of {first.script.path}, {name} of {record.script.path}"
        for what, value in (
            ("parameters", _num_parameters),
            ("batches for an optimizer step", _micro_batches),
            ("optimizer steps on a batch", _steps_per_batch),
        ):
            its, other = value(first), value(record)
            if its is not None and other is not None and its != other:
                return f"{first_name} has {its} {what}, {name} has {other}"
    return ""


def differences(records: Sequence[Named]) -> tuple[Finding, ...]:
    """Lists the differences between records that can be compared."""
    findings = []
    for rule, what, value, remedy in _DIFFERENCES:
        groups: dict[object, list[str]] = {}
        for name, record in records:
            its = value(record)
            if its is not None:
                groups.setdefault(its, []).append(name)
        if len(groups) < 2:
            continue
        shown = rule != "plan-script"
        parts = [
            f"{', '.join(names)}: {_shown(its)}" if shown else ", ".join(names)
            for its, names in groups.items()
        ]
        findings.append(
            Finding(
                rule=rule,
                severity="warning",
                message=f"{what} differs between the records ({'; '.join(parts)})",
                remedy=remedy,
            )
        )
    findings += [
        Finding(
            rule="plan-unfinished",
            severity="warning",
            message=f"{name}: the run {_ENDINGS[record.state]}; only what it measured is used",
            remedy=f"Go on with: batchadvisor run --resume {name}",
        )
        for name, record in records
        if record.state in _ENDINGS
    ]
    return tuple(findings)


_ENDINGS = {
    "running": "has not finished",
    "interrupted": "was interrupted",
    "failed": "failed before its end",
}


def _other_script(first: RunRecord, second: RunRecord) -> bool:
    """Another name and another text; one script may be renamed, or changed a little."""
    same_name = PurePath(first.script.path).name == PurePath(second.script.path).name
    its, other = first.script.digest, second.script.digest
    return not same_name and (its is None or its != other)


def _num_parameters(record: RunRecord) -> int | None:
    return None if record.discovery is None else record.discovery.num_parameters


def _micro_batches(record: RunRecord) -> int | None:
    return None if record.discovery is None else record.discovery.micro_batches


def _steps_per_batch(record: RunRecord) -> int | None:
    return None if record.discovery is None else record.discovery.steps_per_batch


def _num_samples(record: RunRecord) -> int | None:
    """Samples of the whole data set; `None` for several ranks: a rank's part tells nothing here."""
    assert record.discovery is not None
    ranks = record.distribution.world_size if record.distribution is not None else 1
    return record.discovery.primary.num_samples if ranks == 1 else None


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "none"
