"""What `batchadvisor estimate` foretells, as terminal text."""

from __future__ import annotations

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
    shown = next(trial for trial in forecast.trials if trial.batch_size >= answer.batch_size)
    page.pairs([("peak memory", f"{law} x batch, for large batches"), *_parts(shown)])
    rows = [
        ("GPU", "memory", "largest batch"),
        *(_row(gpu, answer.num_samples) for gpu in forecast.gpus),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    page.blank()
    for number, (name, memory, size) in enumerate(rows):
        text = f"  {page.safe(name):<{widths[0]}}  {memory:>{widths[1]}}  {size:>{widths[2]}}"
        page.line(Text(text, style="" if number else "dim"))


def _parts(trial: FakeTrial) -> list[tuple[str, str]]:
    """Where the bytes are."""
    known = {
        "parameters": trial.parameter_bytes,
        "gradients": trial.gradient_bytes,
        "optimizer's state": trial.optimizer_bytes,
        "batch": trial.input_bytes,
    }
    rest = trial.peak_bytes - sum(known.values())
    if rest > 0:
        known["activations and the rest"] = rest
    text = ", ".join(f"{name} {format_bytes(size)}" for name, size in known.items())
    return [(f"at batch {trial.batch_size}", text)]


def _row(gpu: FittedGpu, num_samples: int | None) -> tuple[str, str, str]:
    low = "?" if gpu.low is None else str(gpu.low)
    more = "" if gpu.is_bounded else " or more"
    size = f"{low} to {gpu.high}{more}" if gpu.high else "does not fit"
    if num_samples is not None and gpu.low is not None and gpu.low >= num_samples:
        size = f"all {num_samples} samples"
    return gpu.name, format_bytes(gpu.memory_bytes), size
