"""Steps that keep memory: a size that fits now will not fit for ever."""

from __future__ import annotations

from ...records import Evidence, Finding, KeptTensors, MemoryCreep
from ...units import format_bytes
from ..measured.creep import LEAST_TENSORS, Keeping, keeping_of, looks_of
from ..measured.measurements import Measurements

RULE = "memory.creep"


def creep(measurements: Measurements) -> list[Finding]:
    """A step that keeps a little more each time."""
    observed = measurements.record.observed
    if observed is not None:
        return [] if observed.creep is None else [_of_a_training(measurements, observed.creep)]
    looks = looks_of(measurements.record)
    keeping = keeping_of(looks)
    return [_of_a_run(keeping)] if isinstance(keeping, Keeping) else []


def why_unknown(measurements: Measurements) -> str:
    """Why a run cannot tell whether steps keep something; empty where it can."""
    record = measurements.record
    looks = looks_of(record)
    if not looks:
        reasons = (trial.unavailable.get("kept", "") for trial in record.trials)
        return next((reason for reason in reasons if reason), "")
    keeping = keeping_of(looks)
    return keeping if isinstance(keeping, str) else ""


def _of_a_run(keeping: Keeping) -> Finding:
    evidence = [
        Evidence(metric="steps between the looks", value=keeping.num_steps),
        Evidence(metric="tensors a step", value=round(keeping.tensors, 2), threshold=LEAST_TENSORS),
    ]
    if keeping.nodes:
        evidence.append(Evidence(metric="graph nodes a step", value=round(keeping.nodes, 1)))
    if keeping.tensors:
        what = f"each step keeps {_tensors(keeping.tensors)} more"
        what += f" ({format_bytes(keeping.more_bytes)})" if keeping.more_bytes > 0 else ""
    else:
        what = f"each step adds {keeping.nodes:.3g} nodes to an autograd graph that lives on"
    return Finding(
        rule=RULE,
        severity="warning",
        message=f"{what}{_where(keeping.latest)}: a size that fits now will not fit for ever",
        evidence=tuple(evidence),
        remedy=_remedy(keeping.latest, by_graph=not keeping.tensors),
    )


def _tensors(count: float) -> str:
    shown = f"{count:.2g}"
    return "1 tensor" if shown == "1" else f"{shown} tensors"


def _of_a_training(measurements: Measurements, creep: MemoryCreep) -> Finding:
    step, device = creep.step_bytes, measurements.record.device
    kept = creep.kept if creep.kept is not None and _keeps(creep.kept) else None
    where = "; no tensor of Python's explains it" if kept is None else _where(kept)
    if creep.not_looked:
        where = (
            f"; what holds it is unavailable: {creep.not_looked}, and it may be rubbish that waits "
            "for Python's collector"
        )
    message = (
        f"memory rises by {format_bytes(step)} a step{where}: {creep.source} between steps went "
        f"from {format_bytes(creep.first_bytes)} to {format_bytes(creep.last_bytes)} in "
        f"{creep.num_steps} steps, with every block of them"
    )
    if device is not None and device.capacity_bytes > creep.last_bytes:
        left = (device.capacity_bytes - creep.last_bytes) / step
        message += f"; at this pace it is full after about {_rounded(left)} more (estimate)"
    evidence = [
        Evidence(metric="bytes a step", value=round(step)),
        Evidence(metric="steps watched", value=creep.num_steps),
    ]
    remedy = (
        "look for what grows outside of torch: lists of numbers or arrays, caches, a library's own "
        "memory."
    )
    if kept is not None:
        rate = kept.more_tensors / kept.num_steps
        evidence.append(Evidence(metric="tensors a step", value=round(rate, 2)))
        remedy = _remedy(kept, by_graph=rate < LEAST_TENSORS)
    if creep.not_looked:
        remedy = "call gc.collect() now and then: if memory still rises, a step keeps something."
    return Finding(
        rule=RULE,
        severity="info" if creep.not_looked else "warning",
        message=message,
        evidence=tuple(evidence),
        remedy=remedy,
    )


def _rounded(count: float) -> int:
    """Rounds to two digits: a pace says no more."""
    return int(float(f"{count:.2g}"))


def _keeps(kept: KeptTensors) -> bool:
    return max(2 * kept.more_tensors, kept.more_nodes) >= kept.num_steps


def _where(kept: KeptTensors) -> str:
    if not kept.holder_kind:
        return ""
    graph = ", with the graph that made them" if kept.with_graph else ""
    name = f"`{kept.holder}`, a {kept.holder_kind}," if kept.holder else f"a {kept.holder_kind}"
    if kept.holder_kind == "tensor":
        return f", behind {name.rstrip(',')}"
    return f", in {name.rstrip(',')}{graph}"


def _remedy(kept: KeptTensors, *, by_graph: bool) -> str:
    name = kept.holder or ("total" if by_graph else "losses")
    if by_graph:
        return f"add the number, not the tensor: {name} += loss.item()."
    if kept.with_graph:
        return (
            f"keep the number, not the tensor: {name}.append(loss.item()); or .detach() what is "
            "needed as a tensor."
        )
    return f"empty or bound `{name}`, or keep it in the host's memory as numbers."
