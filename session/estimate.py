"""`batchadvisor estimate`: what should fit on GPUs that are not here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..advisor.fit.forecast import SMALLEST, forecast, next_size
from ..advisor.fit.gpus import MEMORY_GIB, gpu_named, nearest
from ..errors import RunError, ScriptError, UsageError
from ..probes.process.endings import WorkerGone
from ..probes.process.worker_like import FakesSteps
from ..records import Discovery, Estimate, FakeTrial, Forecast, Variant
from ..units import parse_bytes
from .display import Display
from .fake_failures import why_not_faked
from .memory import write_memory_report
from .run import Run
from .setup.options import RunOptions

VARIANTS = (
    Variant(),
    Variant(bf16=True),
    Variant(checkpointed=True),
    Variant(bf16=True, checkpointed=True),
)
NO_BLOCKS = "no module stands several times in a ModuleList or Sequential"
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
        current.workers.cut_batches(SMALLEST)  # real steps of a large model are slow on a CPU
        try:
            current.workers.start()
        except ScriptError:
            display.note(f"the script fails with batches of {SMALLEST}; starting it with its own")
            current.workers.cut_batches(None)
            current.workers.start()
        discovery = current.writer.record.discovery
        worker = current.workers.current
        assert discovery is not None
        if not isinstance(worker, FakesSteps):
            raise RunError("a script that runs as several ranks is not estimated.", WHY_NOT)
        loop = _Loop(worker, discovery, gpus, display)
        forecasts, unavailable = [], {}
        try:
            for variant in VARIANTS:
                if variant.checkpointed and not loop.blocks:
                    unavailable[variant.name] = NO_BLOCKS
                    break
                try:
                    forecasts.append(loop.forecast(variant))
                except WorkerGone as gone:
                    if not forecasts:
                        raise _failed(gone) from None
                    unavailable[variant.name] = why_not_faked(gone)
                    break  # the process is gone
        finally:
            current.workers.end()
    written, *others = forecasts
    return Estimate(
        script=options.script,
        arguments=options.arguments,
        batch_size=discovery.native_batch_size,
        micro_batches=discovery.micro_batches,
        num_parameters=discovery.num_parameters or 0,
        num_samples=discovery.primary.num_samples,
        forecasts=(written, *(other for other in others if not _same(written, other))),
        blocks=loop.blocks,
        unavailable=unavailable,
    )


class _Loop:
    """The script's loop, whose steps are made on fake tensors."""

    def __init__(
        self,
        worker: FakesSteps,
        discovery: Discovery,
        gpus: Sequence[tuple[str, int]],
        display: Display,
    ) -> None:
        self._worker = worker
        self._own = discovery.native_batch_size
        self._num_samples = discovery.primary.num_samples
        self._gpus = gpus
        self._display = display
        self.blocks = ""

    def forecast(self, variant: Variant) -> Forecast:
        """Steps of one size after the other, until the largest GPU is full.

        Raises:
            RunError: no step can be made.
            WorkerGone: a step failed.
        """
        trials: list[FakeTrial] = []
        requests: list[tuple[int, ...]] = []
        most_bytes = max(memory for _, memory in self._gpus)
        while (size := next_size(trials, self._own, most_bytes, self._num_samples)) is not None:
            self._display.note(f"a step on fake tensors at batch {size}, {variant.name}")
            result = self._worker.run_fake(size, variant)
            if result.trial is None:
                raise RunError(f"the script's steps cannot be foretold: {result.reason}.", WHY_NOT)
            trials.append(result.trial)
            requests.append(result.requests)
            self.blocks = result.blocks
        return forecast(variant, trials, requests, self._gpus)


def _same(written: Forecast, other: Forecast) -> bool:
    """Whether a variant changes nothing: the script is written so already."""
    pairs = zip(written.trials, other.trials, strict=False)
    return all(first.peak_bytes == second.peak_bytes for first, second in pairs)


def _failed(gone: WorkerGone) -> RunError:
    """A step of the script as it is written raised, or ended the process."""
    return RunError(f"the script's steps cannot be foretold: {why_not_faked(gone)}.", WHY_NOT)


def estimate_json(answer: Estimate) -> str:
    """What `--json` prints."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def write_estimate(answer: Estimate, next_command: str, path: Path) -> None:
    """Writes the report whole or not at all; the suffix chooses the format.

    Raises:
        RunError: it cannot be written.
    """
    from ..reports.builder.estimate import build_estimate

    data = estimate_json(answer)
    write_memory_report(lambda: build_estimate(answer, next_command), data, path)


def estimate_text(answer: Estimate, next_command: str, *, width: int, color: bool) -> str:
    """What the command prints."""
    from ..reports.terminal.estimate import render

    encoding = sys.stdout.encoding or "ascii"
    return render(answer, next_command, width=width, color=color, encoding=encoding).rstrip("\n")
