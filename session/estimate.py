"""`batchadvisor estimate`: what should fit on GPUs that are not here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from ..advisor.fit.forecast import forecast, next_size
from ..advisor.fit.gpus import MEMORY_GIB, gpu_named, nearest
from ..errors import RunError, UsageError
from ..probes.process.endings import WorkerGone
from ..probes.process.messages import Raised
from ..probes.process.worker_like import FakesSteps
from ..records import Discovery, Estimate, FakeTrial, Forecast
from ..units import parse_bytes
from .display import Display
from .run import Run
from .setup.options import RunOptions

PRECISIONS = (("as written", False), ("bf16 autocast", True))
UNKNOWN_SHAPES = ("DataDependentOutputException", "DynamicOutputShapeException")
"""What torch raises where the shape of a result is not that of its inputs."""
WHY_NOT = "`batchadvisor run` measures what it takes, on the GPU itself."


def gpus_of(text: str) -> list[tuple[str, int]]:
    """Names and memory in bytes of what `--gpu` asks for.

    Raises:
        UsageError: a name that is not in the table, and no amount of memory.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("--gpu names no GPU.", "Write --gpu H100,A100-40GB or --gpu all.")
    every = [part for name in names for part in (MEMORY_GIB if name.lower() == "all" else (name,))]
    return list(dict.fromkeys(_gpu(name) for name in every))


def _gpu(text: str) -> tuple[str, int]:
    known = gpu_named(text)
    if known is not None:
        return known
    if text[:1].isdigit():
        try:
            return f"a GPU of {text}", parse_bytes(text)
        except ValueError:
            pass
    near = nearest(text)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"--gpu: no GPU in the table is named {text!r}.",
        f"{hint}Write its memory instead, such as 22GiB; the table has {', '.join(MEMORY_GIB)}.",
    )


def estimate(options: RunOptions, gpus: Sequence[tuple[str, int]], display: Display) -> Estimate:
    """Runs the script up to its training loop, then steps of it on fake tensors.

    Raises:
        BatchAdvisorError: the loop was not found, or its steps do not run on fake tensors.
    """
    with Run(options, display, keep=False) as current:
        current.workers.start()
        discovery = current.writer.record.discovery
        worker = current.workers.current
        assert discovery is not None
        if not isinstance(worker, FakesSteps):
            raise RunError("a script that runs as several ranks is not estimated.", WHY_NOT)
        try:
            forecasts = [
                _forecast(worker, discovery, name, bf16=bf16, gpus=gpus, display=display)
                for name, bf16 in PRECISIONS
            ]
        except WorkerGone as gone:
            raise _failed(gone) from None
        finally:
            current.workers.end()
    written, autocast = forecasts
    if _same(written, autocast):
        forecasts = [written]
    return Estimate(
        script=options.script,
        arguments=options.arguments,
        batch_size=discovery.native_batch_size,
        micro_batches=discovery.micro_batches,
        num_parameters=discovery.num_parameters or 0,
        num_samples=discovery.primary.num_samples,
        forecasts=tuple(forecasts),
    )


def _forecast(
    worker: FakesSteps,
    discovery: Discovery,
    precision: str,
    *,
    bf16: bool,
    gpus: Sequence[tuple[str, int]],
    display: Display,
) -> Forecast:
    trials: list[FakeTrial] = []
    requests: list[tuple[int, ...]] = []
    own, most_bytes = discovery.native_batch_size, max(memory for _, memory in gpus)
    num_samples = discovery.primary.num_samples
    while (size := next_size(trials, own, most_bytes, num_samples)) is not None:
        display.note(f"a step on fake tensors at batch {size}, {precision}")
        result = worker.run_fake(size, bf16=bf16)
        if result.trial is None:
            raise RunError(f"the script's steps cannot be foretold: {result.reason}.", WHY_NOT)
        trials.append(result.trial)
        requests.append(result.requests)
    return forecast(precision, trials, requests, gpus)


def _same(written: Forecast, autocast: Forecast) -> bool:
    """Whether autocast changes nothing: the script asks for it already."""
    return [t.peak_bytes for t in written.trials] == [t.peak_bytes for t in autocast.trials]


def _failed(gone: WorkerGone) -> RunError:
    """A step that raised, or ended the process."""
    message = gone.message
    if not isinstance(message, Raised):
        return RunError(f"the steps on fake tensors ended: {gone.detail}.", WHY_NOT)
    if message.kind == "batchadvisor":
        reason = message.text.removeprefix("NotImplementedError: ")
    elif message.kind in UNKNOWN_SHAPES:
        reason = f"a shape depends on values, which fake tensors do not have ({message.text})"
    else:
        reason = (
            f"on fake tensors, which have no values (a loss reads as 1.0), it raised {gone.detail}"
        )
    return RunError(f"the script's steps cannot be foretold: {reason}.", WHY_NOT)


def estimate_json(answer: Estimate) -> str:
    """What `--json` prints."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def estimate_text(answer: Estimate, next_command: str, *, width: int, color: bool) -> str:
    """What the command prints."""
    from ..reports.terminal.estimate import render

    encoding = sys.stdout.encoding or "ascii"
    return render(answer, next_command, width=width, color=color, encoding=encoding).rstrip("\n")
