"""The page of an estimate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...records import FakeTrial, Variant
from ...reports.blocks import (
    Command,
    Document,
    Grid,
    Paragraph,
    Section,
    Tone,
    paragraphs,
)
from ...reports.builder.memory import memory_blocks
from ...reports.builder.sections.step_memory import share, step_section
from ...reports.report import Column, Row, Table
from ...reports.words.laws import line_text
from ...reports.words.wording import clean
from ...units import format_bytes, format_count
from .records import Estimate, Forecast
from .words import (
    BOUNDS_HEAD,
    BOUNDS_TITLE,
    COMPILED,
    FITS_TITLE,
    bound_notes,
    bound_rows,
    evaluation_text,
    fitting_rows,
    forecast_law_note,
    headline,
    label_text,
    limit_texts,
    nothing_fits_texts,
    range_texts,
    tensors_text,
)

MEMORY = "memory"
LONGEST = 800
"""Characters of a sentence."""


def build_estimate(answer: Estimate, next_command: str = "") -> Document:
    """Everything that the terminal, HTML and Markdown show of an estimate.

    Args:
        next_command: what to type on a machine with the GPU.
    """
    written = answer.forecasts[0].trial_at(answer.batch_size)
    own = f"batch size {answer.batch_size}"
    if answer.micro_batches > 1:
        own += f", {answer.micro_batches} batches to a step of the optimizer"
    script = " ".join((answer.script, *answer.arguments))
    parameters = format_count(answer.num_parameters)
    evaluated = evaluation_text(answer, written.batch_size, written.peak_bytes)
    return Document(
        kind="an estimate of what fits",
        title=clean(answer.script),
        headline=clean(headline(answer)),
        blocks=(
            Paragraph(text=label_text(answer)),
            Paragraph(text=clean(f"{script} has {own} and trains {parameters} parameters.")),
            *([Paragraph(text=COMPILED)] if answer.compiled else []),
            *_said(nothing_fits_texts(answer)),
            *_fitting(answer, evaluated),
            _peaks(answer),
            *([_what_ifs(answer)] if answer.what_ifs else []),
            *([_bounds(answer)] if answer.bounds else []),
            *_of_the_step(written),
            Section(blocks=_said(range_texts(answer), "dim")),
            *_to_type(next_command),
        ),
    )


def _to_type(command: str) -> list[Section]:
    return [Section(blocks=(Command(label="On the GPU", text=command),))] if command else []


def _said(texts: Iterable[str], tone: Tone = "plain") -> tuple[Paragraph, ...]:
    return paragraphs((clean(text, limit=LONGEST) for text in texts), tone)


def _fitting(answer: Estimate, evaluated: str) -> list[Section]:
    notes = []
    if any(forecast.variant.bf16 for forecast in answer.forecasts):
        notes.append("bf16: under torch.autocast to bfloat16.")
    if any(forecast.variant.checkpointed for forecast in answer.forecasts):
        notes.append(
            f"checkpointed: torch.utils.checkpoint around each of {answer.blocks}; they compute "
            "their activations again, which takes time."
        )
    notes += [f"{name}: unavailable, {reason}." for name, reason in answer.unavailable.items()]
    said = _said([evaluated, *limit_texts(answer)])
    sections = [_sizes(FITS_TITLE, answer.forecasts, answer, notes, said)]
    if answer.sharded:
        ranks = answer.sharded[0].variant.ranks
        title = f"{FITS_TITLE}, of each of {ranks} ranks (FSDP2)"
        sections.append(_sizes(title, answer.sharded, answer))
    if answer.lengths:
        title = f"{FITS_TITLE}, of samples of another length"
        sections.append(_sizes(title, answer.lengths, answer))
    return sections


def _sizes(
    title: str,
    forecasts: Sequence[Forecast],
    answer: Estimate,
    notes: Sequence[str] = (),
    said: Sequence[Paragraph] = (),
) -> Section:
    table = Table(
        title=title,
        columns=(
            Column(title="GPU", left=True),
            Column(title=MEMORY),
            *(Column(title=clean(_column(each.variant))) for each in forecasts),
        ),
        rows=tuple(
            Row(cells=(", ".join(map(clean, names)), memory, *sizes))
            for names, memory, sizes in fitting_rows(forecasts, answer)
        ),
        notes=tuple(clean(note, limit=400) for note in notes),
    )
    return Section(title=title, blocks=(Grid(table=table, dropped_first=(MEMORY,)), *said))


def _column(variant: Variant) -> str:
    """Its name, but for what all columns of a table share."""
    alone = Variant(bf16=variant.bf16, checkpointed=variant.checkpointed, length=variant.length)
    return alone.name


def _peaks(answer: Estimate) -> Section:
    rows = []
    for forecast in answer.forecasts:
        trial = forecast.trial_at(answer.batch_size)
        law = line_text(forecast.fixed_bytes, forecast.sample_bytes)
        cells = (forecast.variant.name, format_bytes(trial.peak_bytes), law)
        rows.append(Row(cells=tuple(map(clean, cells))))
    written = answer.forecasts[0]
    own = written.trial_at(answer.batch_size)
    roles = ", ".join(f"{role} {format_bytes(size)}" for role, size in own.at_peak.items())
    table = Table(
        title="Peak memory",
        columns=(
            Column(title="variant", left=True),
            Column(title=f"batch {own.batch_size}"),
            Column(title="large batches"),
        ),
        rows=tuple(rows),
    )
    said = [
        f"At batch {own.batch_size}, as written: {roles}.",
        tensors_text(answer, own.batch_size),
        forecast_law_note(written),
    ]
    return Section(title=table.title, blocks=(table, *_said(said)))


def _what_ifs(answer: Estimate) -> Section:
    written = answer.forecasts[0].trial_at(answer.batch_size)
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
    table = Table(
        title=f"What would change the peak of batch {written.batch_size}",
        columns=(Column(title="saves"), Column(title="peak"), Column(title="change", left=True)),
        rows=tuple(rows),
        notes=tuple(
            clean(f"{line.change}: unavailable, {line.reason}.", limit=400)
            for line in answer.what_ifs
            if line.saved_bytes is None
        ),
    )
    return Section(title=table.title, blocks=(table,))


def _bounds(answer: Estimate) -> Section:
    table = Table(
        title=BOUNDS_TITLE,
        columns=tuple(Column(title=title, left=at < 2) for at, title in enumerate(BOUNDS_HEAD)),
        rows=tuple(Row(cells=tuple(map(clean, row))) for row in bound_rows(answer)),
        notes=tuple(clean(note, limit=LONGEST) for note in bound_notes(answer)),
    )
    return Section(
        title=BOUNDS_TITLE, blocks=(Grid(table=table, dropped_first=BOUNDS_HEAD[:3:-1]),)
    )


def _of_the_step(trial: FakeTrial) -> list[Section]:
    """What lives at the peak: in a window of text the places that made most of it."""
    whole = step_section(
        trial,
        name=f"batch {trial.batch_size}, as written",
        key="step_memory",
        facts=[("tensors at the peak", format_bytes(trial.peak_bytes))],
    )
    sections = [Section(blocks=memory_blocks([whole]), shown="files")]
    rows = [
        Row(
            cells=(
                format_bytes(place.num_bytes),
                share(place.num_bytes, trial.peak_bytes),
                "" if place.role == "activations" else place.role,
                clean(place.module),
                clean(place.line),
            )
        )
        for place in trial.places
    ]
    if rows:
        title = f"Made in the step, alive at the peak of batch {trial.batch_size}"
        columns = (
            Column(title="memory"),
            Column(title="share"),
            Column(title="role", left=True),
            Column(title="module", left=True),
            Column(title="line", left=True),
        )
        table = Table(title=title, columns=columns, rows=tuple(rows))
        sections.append(Section(title=title, blocks=(table,), shown="window"))
    return sections
