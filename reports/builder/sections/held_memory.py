"""Which tensors a watched training holds, as a callback saw them."""

from __future__ import annotations

from ....records import HeldTensors, RunRecord
from ....units import format_bytes, format_seconds
from ...report import Fact, MemorySection
from ...words.wording import clean, plural
from .step_memory import category, category_table, source_table

NO_STEP = (
    "unavailable: a callback makes no step of its own inside a training. `batchadvisor run` shows "
    "where a step's memory goes by line; on a CUDA device memory_history=True records it"
)
UNSEEN = "only autograd or torch itself"
UNOWNED = "of no module"
OTHERS_NOTE = (
    "Tensors that Python can still name: batches, activations and losses that variables hold, and "
    "what data sets keep."
)


def held_section(held: HeldTensors, record: RunRecord) -> MemorySection:
    """The section on memory that lived between two steps, or as memory was refused."""
    when = "as memory was refused" if held.refused else "between two steps"
    sizes = _sizes(held)
    facts = [("measured", f"{when}, after {plural(held.step, 'optimizer step')}")]
    if held.line:
        facts.append(("refused at", held.line))
    if held.allocated_bytes is not None:
        text = f"{format_bytes(held.allocated_bytes)} by the count of torch's allocator"
        facts.append(("allocated", text))
    texts = set(held.unavailable.values())
    facts += [("not seen", text) for text in sorted(texts)]
    peak = _peak(record)
    if peak and not held.refused:
        facts.append(("peak of the training", peak))
    facts.append(("by line, over a step", NO_STEP))
    facts.append(("the look took", format_seconds(held.elapsed_s)))
    tables = [
        category_table(sizes, sum(size for _, size in sizes), "memory"),
        source_table(
            held.modules, held.num_bytes, title="By module", what="module", unnamed=UNOWNED
        ),
        source_table(
            held.others,
            held.num_bytes,
            title="All other tensors",
            what="kind",
            unnamed=UNOWNED,
            note=OTHERS_NOTE,
        ),
    ]
    return MemorySection(
        name=f"Tensors {when}",
        facts=tuple(Fact(label=label, text=clean(text)) for label, text in facts),
        tables=tuple(table for table in tables if table.rows),
    )


def held_sentence(held: HeldTensors) -> str:
    """Says in one sentence what tensors held memory."""
    when = "As memory was refused" if held.refused else f"Between two steps (after {held.step})"
    sizes = _sizes(held)
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes) or "nothing"
    return f"{when} tensors held {format_bytes(sum(size for _, size in sizes))}: {parts}."


def _sizes(held: HeldTensors) -> list[tuple[str, int]]:
    """Bytes by category, with what the allocator counts beyond the tensors that were seen."""
    sizes = [(category(role), size) for role, size in held.held.items()]
    beyond = (held.allocated_bytes or 0) - held.num_bytes
    if beyond > 0:
        sizes.append((f"held by {UNSEEN}", beyond))
    return sorted(sizes, key=lambda pair: -pair[1])


def _peak(record: RunRecord) -> str:
    trial = record.usual_trial
    if trial is None or trial.memory is None:
        return ""
    return f"{format_bytes(trial.memory.peak_bytes)}, {trial.memory.peak_source}"
