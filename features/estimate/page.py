"""The report object of an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import FakeTrial
from ...reports.builder.sections.step_memory import share, step_section
from ...reports.report import Column, Fact, MemoryReport, MemorySection, Row, Table
from ...reports.words.laws import line_text
from ...reports.words.wording import clean
from ...units import format_bytes, format_count
from .records import Estimate, Forecast
from .words.bounds import HEAD, TITLE, bound_notes, bound_rows
from .words.fits import (
    COMPILED,
    evaluation_text,
    fitting_rows,
    headline,
    label_text,
    limit_texts,
    range_texts,
    tensors_text,
)
from .words.fits import TITLE as FITTING
from .words.laws import forecast_law_note
from .words.nothing_fits import nothing_fits_texts


def build_estimate(answer: Estimate, next_command: str = "") -> MemoryReport:
    """Everything that HTML and Markdown show of an estimate.

    Args:
        next_command: what to type on a machine with the GPU.
    """
    written = own_trial(answer.forecasts[0], answer)
    own = f"batch size {answer.batch_size}"
    if answer.micro_batches > 1:
        own += f", {answer.micro_batches} batches to a step of the optimizer"
    evaluated = evaluation_text(answer, written.batch_size, written.peak_bytes)
    identity = [
        ("script", " ".join((answer.script, *answer.arguments))),
        ("its own", own),
        ("trains", f"{format_count(answer.num_parameters)} parameters"),
    ]
    if next_command:
        identity.append(("on the GPU", next_command))
    return MemoryReport(
        kind="an estimate of what fits",
        title=clean(answer.script),
        headline=clean(headline(answer)),
        notices=(
            label_text(answer),
            *([COMPILED] if answer.compiled else []),
            *(clean(text, limit=800) for text in nothing_fits_texts(answer)),
            *([clean(evaluated, limit=800)] if evaluated else []),
            *(clean(text, limit=800) for text in limit_texts(answer)),
            *(clean(text, limit=800) for text in range_texts(answer)),
        ),
        devices=(
            _fitting(answer),
            step_section(
                written,
                name=f"batch {written.batch_size}, as written",
                key="step_memory",
                facts=[("tensors at the peak", format_bytes(written.peak_bytes))],
            ),
        ),
        identity_title="This script",
        identity=tuple(Fact(label=label, text=clean(text)) for label, text in identity),
    )


def own_trial(forecast: Forecast, answer: Estimate) -> FakeTrial:
    """The trial of the script's own batch size, or of the next larger size that was looked at."""
    return next(trial for trial in forecast.trials if trial.batch_size >= answer.batch_size)


def _fitting(answer: Estimate) -> MemorySection:
    notes = []
    if any(forecast.variant.bf16 for forecast in answer.forecasts):
        notes.append("bf16: under torch.autocast to bfloat16.")
    if any(forecast.variant.checkpointed for forecast in answer.forecasts):
        notes.append(
            f"checkpointed: torch.utils.checkpoint around each of {answer.blocks}; they compute "
            "their activations again, which takes time."
        )
    notes += [f"{name}: unavailable, {reason}." for name, reason in answer.unavailable.items()]
    tables = [_sizes(FITTING, answer.forecasts, answer, notes)]
    if answer.sharded:
        ranks = answer.sharded[0].variant.ranks
        title = f"{FITTING}, of each of {ranks} ranks (FSDP2)"
        tables.append(_sizes(title, answer.sharded, answer, ()))
    if answer.lengths:
        title = f"{FITTING}, of samples of another length"
        tables.append(_sizes(title, answer.lengths, answer, ()))
    tables.append(_peaks(answer))
    if answer.what_ifs:
        tables.append(_what_ifs(answer))
    if answer.bounds:
        tables.append(_bounds(answer))
    return MemorySection(name="", facts=(), tables=tuple(tables))


def _bounds(answer: Estimate) -> Table:
    return Table(
        title=TITLE,
        columns=tuple(Column(title=title, left=at < 2) for at, title in enumerate(HEAD)),
        rows=tuple(Row(cells=tuple(map(clean, row))) for row in bound_rows(answer)),
        notes=tuple(clean(note, limit=800) for note in bound_notes(answer)),
    )


def _what_ifs(answer: Estimate) -> Table:
    written = own_trial(answer.forecasts[0], answer)
    known = [line for line in answer.what_ifs if line.saved_bytes is not None]
    rows = []
    for line in sorted(known, key=lambda line: -(line.saved_bytes or 0)):
        saved, peak = line.saved_bytes or 0, written.peak_bytes
        text = f"{format_bytes(saved)} ({share(saved, peak)})"
        cells = (
            text if saved > 0 else f"{format_bytes(-saved)} more",
            format_bytes(line.peak_bytes or 0),
            clean(line.change),
        )
        rows.append(Row(cells=cells))
    return Table(
        title=f"What would change the peak of batch {written.batch_size}",
        columns=(Column(title="saves"), Column(title="peak"), Column(title="change", left=True)),
        rows=tuple(rows),
        notes=tuple(
            clean(f"{line.change}: unavailable, {line.reason}.", limit=400)
            for line in answer.what_ifs
            if line.saved_bytes is None
        ),
    )


def _sizes(
    title: str, forecasts: Sequence[Forecast], answer: Estimate, notes: Sequence[str]
) -> Table:
    rows = [
        Row(cells=(", ".join(map(clean, names)), memory, *sizes))
        for names, memory, sizes in fitting_rows(forecasts, answer)
    ]
    return Table(
        title=title,
        columns=(
            Column(title="GPU", left=True),
            Column(title="memory"),
            *(Column(title=clean(each.variant.name)) for each in forecasts),
        ),
        rows=tuple(rows),
        notes=tuple(clean(note, limit=400) for note in notes),
    )


def _peaks(answer: Estimate) -> Table:
    rows = []
    for forecast in answer.forecasts:
        trial = own_trial(forecast, answer)
        law = line_text(forecast.fixed_bytes, forecast.sample_bytes)
        cells = (forecast.variant.name, format_bytes(trial.peak_bytes), law)
        rows.append(Row(cells=tuple(map(clean, cells))))
    written = answer.forecasts[0]
    size = own_trial(written, answer).batch_size
    notes = (tensors_text(answer, size), forecast_law_note(written))
    return Table(
        title="Peak memory",
        columns=(
            Column(title="variant", left=True),
            Column(title=f"batch {size}"),
            Column(title="large batches"),
        ),
        rows=tuple(rows),
        notes=tuple(clean(note, limit=400) for note in notes if note),
    )
