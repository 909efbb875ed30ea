"""What `batchadvisor estimate` foretells, as terminal text."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from ...records import Estimate, FakeTrial, FittedGpu, Forecast
from ...units import format_bytes, format_count
from ..words.wording import bytes_per_sample
from .page import Page

LABEL = "an estimate that was never compared with a GPU"


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
    page.entry(f"What should fit: {LABEL}", style="bold", indent=0)
    own = f"batch size {answer.batch_size}"
    if answer.micro_batches > 1:
        own += f", {answer.micro_batches} batches to a step of the optimizer"
    page.entry(
        f"{answer.script} has {own} and trains {format_count(answer.num_parameters)} parameters."
    )
    for forecast in answer.forecasts:
        _forecast(page, forecast, answer)
    _places(page, _own_trial(answer.forecasts[0], answer))
    page.blank()
    page.entry(
        "Up to the smaller size, what torch's allocator would ask for fits beside 650 MiB for "
        "CUDA itself. Beyond the larger one the tensors alone do not fit. Workspaces of "
        "convolutions are not counted. Counted on one batch of the script, made longer: longer "
        "samples take more.",
        style="dim",
    )
    page.blank()
    page.whole(next_command, label="On the GPU: ", label_style="bold", indent=0)
    return page.render(color=color)


def _forecast(page: Page, forecast: Forecast, answer: Estimate) -> None:
    page.heading(f"Training {forecast.precision}")
    law = f"{format_bytes(forecast.fixed_bytes)} + {bytes_per_sample(forecast.sample_bytes)}"
    parts = _parts(_own_trial(forecast, answer))
    page.pairs([("peak memory", f"{law} x batch, for large batches"), *parts])
    rows = [
        ("GPU", "memory", "largest batch"),
        *(
            (
                gpu.name,
                format_bytes(gpu.memory_bytes),
                _sizes(gpu, answer.num_samples, forecast.trials[0].batch_size),
            )
            for gpu in forecast.gpus
        ),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    page.blank()
    for number, (name, memory, size) in enumerate(rows):
        text = f"  {page.safe(name):<{widths[0]}}  {memory:>{widths[1]}}  {size:>{widths[2]}}"
        page.line(Text(text, style="" if number else "dim"))


def _own_trial(forecast: Forecast, answer: Estimate) -> FakeTrial:
    return next(trial for trial in forecast.trials if trial.batch_size >= answer.batch_size)


def _parts(trial: FakeTrial) -> list[tuple[str, str]]:
    """Where the bytes are."""
    text = ", ".join(f"{role} {format_bytes(size)}" for role, size in trial.at_peak.items())
    return [(f"at batch {trial.batch_size}", text)]


def _places(page: Page, trial: FakeTrial) -> None:
    """What made most of what lives at the peak."""
    if not trial.places:
        return
    page.heading(f"Made in the step, alive at the peak of batch {trial.batch_size}")
    rows = [("memory", "share", "module", "line", "")]
    for place in trial.places:
        share = round(100 * place.num_bytes / trial.peak_bytes)
        rows.append(
            (
                format_bytes(place.num_bytes),
                f"{share}%" if share else "<1%",
                page.safe(place.module),
                page.safe(place.line),
                "" if place.role == "activations" else place.role,
            )
        )
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [
            " " * (width - cell_len(cell)) + cell if at < 2 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        page.line(Text("  " + "  ".join(cells).rstrip(), style="" if number else "dim"))


def _sizes(gpu: FittedGpu, num_samples: int | None, smallest: int) -> str:
    """What should fit on a GPU, as a range."""
    if not gpu.high:
        return f"less than {smallest}" if smallest > 1 else "not even 1"
    if num_samples is not None and gpu.low is not None and gpu.low >= num_samples:
        return f"all {num_samples} samples"
    if num_samples is not None and gpu.high >= num_samples and gpu.low:
        return f"{gpu.low}, perhaps all {num_samples} samples"
    if not gpu.is_bounded:
        return f"{gpu.low or gpu.high} or more"
    if gpu.low is None:
        return f"at most {gpu.high}"
    if not gpu.low:
        return f"at most {gpu.high}, perhaps less than {smallest}"
    return str(gpu.high) if gpu.low == gpu.high else f"{gpu.low} to {gpu.high}"
