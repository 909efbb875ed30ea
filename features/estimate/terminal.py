"""The prediction of `batchadvisor estimate` as terminal text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ...records import FakeTrial, Variant
from ...reports.terminal.page import Page
from ...reports.words.laws import line_text
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

NAMES_WIDTH = 30
"""Columns of the names of GPUs that share a row."""


def render(
    answer: Estimate, next_command: str, *, width: int, color: bool, encoding: str = "utf-8"
) -> str:
    """The whole page.

    Args:
        next_command: what to type on a machine with the GPU.
        width: columns of the terminal.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    page.entry(page.safe(headline(answer)), style="bold", indent=0)
    page.entry(label_text(answer))
    own_text = f"batch size {answer.batch_size}"
    if answer.micro_batches > 1:
        own_text += f", {answer.micro_batches} batches to a step of the optimizer"
    page.entry(
        f"{answer.script} has {own_text} and trains "
        f"{format_count(answer.num_parameters)} parameters."
    )
    if answer.compiled:
        page.entry(COMPILED)
    for text in nothing_fits_texts(answer):
        page.entry(page.safe(text))
    _sizes(page, FITTING, answer.forecasts, answer)
    _remarks(page, answer)
    own = _own_trial(answer.forecasts[0], answer)
    evaluated = evaluation_text(answer, own.batch_size, own.peak_bytes)
    for text in (evaluated, *limit_texts(answer)):
        if text:
            page.entry(page.safe(text))
    if answer.sharded:
        ranks = answer.sharded[0].variant.ranks
        _sizes(page, f"{FITTING}, of each of {ranks} ranks (FSDP2)", answer.sharded, answer)
    if answer.lengths:
        _sizes(page, f"{FITTING}, of samples of another length", answer.lengths, answer)
    _peaks(page, answer)
    _what_ifs(page, answer)
    _bounds(page, answer)
    _places(page, _own_trial(answer.forecasts[0], answer))
    page.blank()
    page.entry(page.safe(" ".join(range_texts(answer))), style="dim")
    page.blank()
    page.whole(next_command, label="On the GPU: ", label_style="bold", indent=0)
    return page.render(color=color)


def _sizes(page: Page, title: str, forecasts: Sequence[Forecast], answer: Estimate) -> None:
    page.heading(title)
    names: list[str] = []
    cells: list[tuple[str, ...]] = []
    for gpus, memory, sizes in fitting_rows(forecasts, answer):
        shown = _lines_of([page.safe(gpu) for gpu in gpus])
        names += shown
        cells += [(memory, *sizes), *[("",) * (1 + len(sizes))] * (len(shown) - 1)]
    titles = ("memory", *(_column(forecast.variant) for forecast in forecasts))
    columns = [("GPU", names), *zip(titles, map(list, zip(*cells, strict=True)), strict=True)]
    if _width(columns) > page.width:
        del columns[1]
    _table(page, columns, num_left=1)


def _lines_of(names: Sequence[str]) -> list[str]:
    """Names that share a row, in lines of at most `NAMES_WIDTH` columns."""
    lines = [names[0]]
    for name in names[1:]:
        joined = f"{lines[-1]}, {name}"
        if cell_len(joined) <= NAMES_WIDTH:
            lines[-1] = joined
        else:
            lines[-1] += ","
            lines.append(name)
    return lines


def _column(variant: Variant) -> str:
    """Its name, but for what all columns share."""
    alone = Variant(bf16=variant.bf16, checkpointed=variant.checkpointed, length=variant.length)
    return alone.name


def _remarks(page: Page, answer: Estimate) -> None:
    names = [forecast.variant.name for forecast in answer.forecasts]
    page.blank()
    if "bf16" in names:
        page.entry("bf16: under torch.autocast to bfloat16.", style="dim")
    if "checkpointed" in names:
        page.entry(
            f"checkpointed: torch.utils.checkpoint around each of {page.safe(answer.blocks)}; they "
            "compute their activations again, which takes time.",
            style="dim",
        )
    for name, reason in answer.unavailable.items():
        page.entry(f"{name}: unavailable, {page.safe(reason)}.", style="dim")


def _what_ifs(page: Page, answer: Estimate) -> None:
    if not answer.what_ifs:
        return
    written = _own_trial(answer.forecasts[0], answer)
    page.heading(f"What would change the peak of batch {written.batch_size}")
    known = sorted(
        (line for line in answer.what_ifs if line.saved_bytes is not None),
        key=lambda line: -(line.saved_bytes or 0),
    )
    columns = [
        ("saves", [_saving(line.saved_bytes or 0, written.peak_bytes) for line in known]),
        ("peak", [format_bytes(line.peak_bytes or 0) for line in known]),
        ("change", [page.safe(line.change) for line in known]),
    ]
    _table(page, columns, num_right=2)
    for line in answer.what_ifs:
        if line.saved_bytes is None:
            page.entry(f"{page.safe(line.change)}: unavailable, {page.safe(line.reason)}.")


def _bounds(page: Page, answer: Estimate) -> None:
    if not answer.bounds:
        return
    page.heading(TITLE)
    rows = [tuple(map(page.safe, row)) for row in bound_rows(answer)]
    columns = list(zip(HEAD, zip(*rows, strict=True), strict=True))
    if _width(columns) > page.width:
        del columns[4:]
    _table(page, columns, num_left=2)
    page.blank()
    for note in bound_notes(answer):
        page.entry(note, style="dim")


def _saving(saved: int, peak: int) -> str:
    share = f"{round(100 * abs(saved) / peak)}%"
    return f"{format_bytes(saved)} ({share})" if saved > 0 else f"{format_bytes(-saved)} more"


def _peaks(page: Page, answer: Estimate) -> None:
    page.heading("Peak memory")
    own = [_own_trial(forecast, answer) for forecast in answer.forecasts]
    laws = [line_text(each.fixed_bytes, each.sample_bytes) for each in answer.forecasts]
    columns = [
        ("", [forecast.variant.name for forecast in answer.forecasts]),
        (f"batch {own[0].batch_size}", [format_bytes(trial.peak_bytes) for trial in own]),
        ("large batches", laws),
    ]
    _table(page, columns, num_left=1)
    page.blank()
    roles = own[0].at_peak.items()
    text = ", ".join(f"{role} {format_bytes(size)}" for role, size in roles)
    page.entry(f"At batch {own[0].batch_size}, as written: {text}.")
    if answer.tensors is not None:
        page.entry(tensors_text(answer, own[0].batch_size))
    note = forecast_law_note(answer.forecasts[0])
    if note:
        page.entry(page.safe(note))


def _own_trial(forecast: Forecast, answer: Estimate) -> FakeTrial:
    return next(trial for trial in forecast.trials if trial.batch_size >= answer.batch_size)


def _places(page: Page, trial: FakeTrial) -> None:
    """Places that made most of what lives at the peak."""
    if not trial.places:
        return
    page.heading(f"Made in the step, alive at the peak of batch {trial.batch_size}")
    shares = [round(100 * place.num_bytes / trial.peak_bytes) for place in trial.places]
    columns = [
        ("memory", [format_bytes(place.num_bytes) for place in trial.places]),
        ("share", [f"{share}%" if share else "<1%" for share in shares]),
        ("module", [page.safe(place.module) for place in trial.places]),
        ("line", [page.safe(place.line) for place in trial.places]),
        ("", ["" if place.role == "activations" else place.role for place in trial.places]),
    ]
    _table(page, columns, num_right=2)


Columns = Sequence[tuple[str, Sequence[str]]]


def _table(page: Page, columns: Columns, *, num_left: int = 0, num_right: int = 0) -> None:
    """Rows of text; the columns after `num_left`, or up to `num_right`, stand to the right."""
    widths = [_column_width(column) for column in columns]
    lines = zip(*((title, *cells) for title, cells in columns), strict=True)
    for number, cells in enumerate(lines):
        text = ""
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            right = at < num_right or (num_left and at >= num_left)
            text += "  " + (space + cell if right else cell + space)
        page.line(Text(text.rstrip(), style="" if number else "dim"))


def _width(columns: Columns) -> int:
    return sum(2 + _column_width(column) for column in columns)


def _column_width(column: tuple[str, Sequence[str]]) -> int:
    return max(cell_len(cell) for cell in (column[0], *column[1]))
