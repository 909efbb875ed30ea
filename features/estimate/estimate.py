"""`batchadvisor estimate`: what should fit on GPUs that are not here."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import RunError, UsageError
from ...records import FakeTrial, LivedBefore, RunRecord, Variant
from ...session.display import Display
from ...session.pages import terminal_text, write_page
from ...session.run import Run
from ...session.setup.options import RunOptions
from ...units import parse_bytes
from .fake_loop import WHY_NOT, CannotFakeError, FakeLoop
from .fit.evaluation import beside_evaluation
from .fit.forecast import assumptions, forecast, next_size, peak_range
from .fit.gpu_specs import SPECS
from .fit.gpus import MEMORY_GIB, AmbiguousGpuError, gpu_named, nearest
from .fit.nothing_fits import fits_nowhere, too_small
from .fit.size_limits import size_limits
from .records import Estimate, Forecast
from .step_times import StepTimes, calibration_record
from .what_ifs import Wanted, hopeless, looked_at

VARIANTS = (
    Variant(),
    Variant(bf16=True),
    Variant(checkpointed=True),
    Variant(bf16=True, checkpointed=True),
)
__all__ = ["calibration_record", "estimate", "estimate_json", "estimate_text", "gpus_of"]
__all__ += ["wanted", "write_estimate"]
LEAST_MEMORY, MOST_MEMORY = 1 << 30, 16 << 40
NO_BLOCKS = "no module stands several times in a ModuleList or Sequential"

TOO_LARGE = "the smallest batch fits none of these GPUs, so only ranks were looked at"


def gpus_of(text: str | None) -> list[tuple[str, int]]:
    """Names and memory in bytes of what `--gpu` asks for.

    Args:
        text: names or amounts; `None` for the GPUs of the table whose speed is known.

    Raises:
        UsageError: a name that is not in the table or of several GPUs, and no amount of memory.
    """
    if text is None:
        text = ",".join(SPECS)
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("--gpu names no GPU.", "Write --gpu H200,A100-40GB or --gpu all.")
    every = [part for name in names for part in (MEMORY_GIB if name.lower() == "all" else (name,))]
    return list(dict.fromkeys(_gpu(name) for name in every))


def _gpu(text: str) -> tuple[str, int]:
    try:
        known = gpu_named(text)
    except AmbiguousGpuError as error:
        *first, last = error.names
        raise UsageError(
            f"--gpu: {text!r} may be {', '.join(first)} or {last}.", "Write one of these names."
        ) from None
    if known is not None:
        return known
    if text[:1].isdigit() and not text.upper().endswith("TI"):  # 3090 Ti: a card, no tebibytes
        with contextlib.suppress(ValueError, OverflowError):
            return f"a GPU of {text}", _memory_of(text)
    near = nearest(text)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"--gpu: no GPU in the table is named {text!r}.",
        f"{hint}Write its memory instead, such as 22GiB; the table has {', '.join(MEMORY_GIB)}.",
    )


def _memory_of(text: str) -> int:
    """Bytes of a GPU.

    Raises:
        ValueError: it is no size.
        UsageError: no GPU has so little, or so much.
    """
    memory = parse_bytes(text)
    if not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise UsageError(
            f"--gpu: no GPU has {text} of memory.",
            "CUDA itself takes up to 650 MiB; write 1GiB to 16TiB, such as 22GiB.",
        )
    return memory


def wanted(
    lora: str, lora_rank: int, ranks: int | None, *, lengths: str, expandable: bool
) -> Wanted:
    """Reads what the user asked for from the options of these names.

    Raises:
        UsageError: a length is no whole number above 1.
    """
    parts = [part.strip() for part in lengths.split(",") if part.strip()]
    bad = next((part for part in parts if not part.isdecimal() or int(part) < 2), None)
    if bad is not None:
        raise UsageError(f"--seq-len: {bad!r} is no length.", "Write --seq-len 512,2048.")
    names = tuple(name.strip() for name in lora.split(",") if name.strip())
    return Wanted(
        lora=names,
        lora_rank=lora_rank,
        ranks=ranks or 0,
        expandable=expandable,
        lengths=tuple(map(int, parts)),
    )


def estimate(
    options: RunOptions,
    gpus: Sequence[tuple[str, int]],
    asked: Wanted,
    display: Display,
    record: RunRecord | None = None,
) -> Estimate:
    """Runs the script up to its training loop, then steps of it on fake tensors.

    Args:
        record: of a run of the script on a real GPU, that calibrates the bounds of step times.

    Raises:
        BatchAdvisorError: the loop was not found, or its steps do not run on fake tensors.
    """
    if options.traits.size_is_argument:
        msg = "estimate makes batches of every size itself; {batch_size} is for `run`."
        raise UsageError(msg, "Write the script's own size in its place.")
    with Run(options, display, keep=False) as current:
        loop = FakeLoop(current, display)
        discovery = loop.start()
        own = discovery.native_batch_size
        num_samples = discovery.primary.num_samples
        sizes = Sizes(own, num_samples, gpus, asked.expandable, options.goal.multiple_of)
        forecasts: list[Forecast] = []
        unavailable: dict[str, str] = {}
        try:
            times = StepTimes(gpus, own, record)
            for variant in VARIANTS:
                if variant.checkpointed and not loop.blocks:
                    unavailable[variant.name] = NO_BLOCKS
                    break
                if variant == VARIANTS[3] and _adds_nothing(forecasts):
                    forecasts.append(msgspec.structs.replace(forecasts[-1], variant=variant))
                    continue
                try:
                    written = forecasts[0] if forecasts else None
                    forecasts.append(_forecast(loop, sizes, variant, times, written))
                except CannotFakeError as error:
                    if not forecasts:
                        raise RunError(
                            f"the script's steps cannot be predicted: {error}.", WHY_NOT
                        ) from None
                    unavailable[variant.name] = str(error)
                if asked.ranks and fits_nowhere(forecasts[0]):
                    break  # no variant on a single GPU has fewer parameters
            if hopeless(forecasts, asked):
                unavailable["other changes on a single GPU"] = TOO_LARGE
            sharded = _sharded(loop, sizes, asked.ranks, unavailable)
            what_ifs = looked_at(loop, own, forecasts, asked, sharded)
            changes = [Variant(length=length) for length in asked.lengths]
            lengths = _looked_at(loop, sizes, changes, unavailable)
            evaluation = loop.evaluation(own)
        finally:
            current.workers.end()
    alone = forecasts[0]
    if isinstance(evaluation, str):
        unavailable["evaluation"] = evaluation
        evaluation = None
    elif evaluation is not None:
        evaluation, forecasts = beside_evaluation(evaluation, forecasts, eager=loop.eager)
    written, *others = forecasts
    answer = Estimate(
        script=options.script,
        arguments=options.arguments,
        batch_size=own,
        micro_batches=discovery.micro_batches,
        num_parameters=discovery.num_parameters or 0,
        num_samples=num_samples,
        forecasts=(written, *(other for other in others if not _same(written, other))),
        blocks=loop.blocks,
        unavailable=unavailable,
        what_ifs=what_ifs,
        sharded=tuple(sharded),
        lengths=tuple(lengths),
        bounds=times.bounds(forecasts),
        calibration=times.calibration(written),
        tensors=peak_range(written.trial_at(own).peak_bytes),
        compiled=discovery.compiled,
        evaluation=evaluation,
        limits=size_limits(forecasts),
        assumptions=assumptions((name for name, _ in gpus), eager=loop.eager, grouped=loop.grouped),
    )
    return msgspec.structs.replace(answer, too_small=too_small(answer, alone))


class Sizes(NamedTuple):
    """The sizes and GPUs that are looked at.

    Attributes:
        own: batch size of the script.
        num_samples: of an epoch, if known.
        gpus: names and memory in bytes.
        expandable, multiple_of: see `forecast`.
    """

    own: int
    num_samples: int | None
    gpus: Sequence[tuple[str, int]]
    expandable: bool
    multiple_of: int = 1


def _forecast(
    loop: FakeLoop,
    sizes: Sizes,
    variant: Variant,
    times: StepTimes | None = None,
    written: Forecast | None = None,
) -> Forecast:
    """Steps of one size after the other, until the largest GPU is full.

    Args:
        times: gets the operations of the steps.
        written: of the script as it is; a variant whose first step does the same is the same.

    Raises:
        CannotFakeError: a step could not be made.
    """
    trials: list[FakeTrial] = []
    requests: list[tuple[int, ...]] = []
    held: list[LivedBefore] = []
    most_bytes = max(memory for _, memory in sizes.gpus)
    while True:
        size = next_size(
            trials, sizes.own, most_bytes, sizes.num_samples, multiple_of=sizes.multiple_of
        )
        if size is None:
            return forecast(
                variant, trials, requests, sizes.gpus,
                held=held, expandable=sizes.expandable, multiple_of=sizes.multiple_of,
                own=sizes.own, eager=loop.eager,
            )  # fmt: skip
        trial, result = loop.step(size, variant)
        trials.append(trial)
        if times is not None:
            times.note(variant, size, result)
            if written is not None and times.are_alike(variant, written.variant, size):
                return msgspec.structs.replace(written, variant=variant)
        requests.append(result.requests)
        held.append(result.lived)


def _looked_at(
    loop: FakeLoop, sizes: Sizes, variants: Sequence[Variant], unavailable: dict[str, str]
) -> list[Forecast]:
    """Forecasts for each variant; reasons of those that cannot be looked at go to `unavailable`."""
    forecasts = []
    for variant in variants:
        try:
            forecasts.append(_forecast(loop, sizes, variant))
        except CannotFakeError as error:
            unavailable[variant.name] = str(error)
    return forecasts


def _sharded(
    loop: FakeLoop, sizes: Sizes, ranks: int, unavailable: dict[str, str]
) -> list[Forecast]:
    """Forecasts over the ranks asked for; sharding the model anew costs most, so it is rare."""
    if not ranks:
        return []
    known = VARIANTS if loop.blocks else VARIANTS[:2]
    changes = [msgspec.structs.replace(each, ranks=ranks) for each in known]
    anew_last = sorted(changes, key=lambda variant: variant.bf16)
    made = _looked_at(loop, sizes, anew_last, unavailable)
    return sorted(made, key=lambda each: changes.index(each.variant))


def _adds_nothing(forecasts: Sequence[Forecast]) -> bool:
    """Whether bf16 was seen to change nothing, so that it changes a checkpointed step as little."""
    looked_at = tuple(each.variant for each in forecasts)
    return looked_at == VARIANTS[:3] and forecasts[0].trials == forecasts[1].trials


def _same(written: Forecast, other: Forecast) -> bool:
    """Whether a variant changes nothing: the script is written so already."""
    pairs = zip(written.trials, other.trials, strict=False)
    return all(first.peak_bytes == second.peak_bytes for first, second in pairs)


def estimate_json(answer: Estimate, *, everything: bool = False) -> str:
    """What `--json` prints.

    Args:
        everything: with what every step that was looked at is made of, and when it lived; else
            what lived at the peak of the script's own step.
    """
    shown = answer if everything else _with_own_step_alone(answer)
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def _with_own_step_alone(answer: Estimate) -> Estimate:
    """Without what other steps than the script's own were made of."""
    own = answer.forecasts[0].trial_at(answer.batch_size)

    def brief(forecasts: Sequence[Forecast]) -> tuple[Forecast, ...]:
        return tuple(
            msgspec.structs.replace(
                each,
                trials=tuple(
                    msgspec.structs.replace(trial, timeline=None) if trial is own
                    else msgspec.structs.replace(
                        trial, places=(), modules=(), lines=(), timeline=None, largest=()
                    )
                    for trial in each.trials
                ),
            )
            for each in forecasts
        )  # fmt: skip

    return msgspec.structs.replace(
        answer,
        forecasts=brief(answer.forecasts),
        sharded=brief(answer.sharded),
        lengths=brief(answer.lengths),
    )


def write_estimate(
    answer: Estimate, next_command: str, path: Path, *, everything: bool = False
) -> None:
    """Writes the report whole or not at all; the suffix chooses the format.

    Args:
        everything: see `estimate_json`.

    Raises:
        RunError: it cannot be written.
    """
    from .page import build_estimate

    data = estimate_json(answer, everything=everything)
    write_page(lambda: build_estimate(answer, next_command), data, path)


def estimate_text(answer: Estimate, next_command: str, *, width: int, color: bool) -> str:
    """The output of the command."""
    from .page import build_estimate

    page = build_estimate(answer, next_command)
    return terminal_text(page, width=width, color=color).rstrip("\n")
