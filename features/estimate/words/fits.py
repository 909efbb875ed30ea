"""What should fit on a GPU, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ....units import format_bytes
from ..records import Estimate, FittedGpu, Forecast, SizeLimit

TITLE = "Largest batch that should fit"
NAMED = 4
"""GPUs that a sentence names."""
ENDS = (
    "Up to the smaller size of a range, what torch's allocator would ask for should fit beside "
    "CUDA itself. Beyond the larger one the tensors alone should not."
)
COUNTED = "Counted on one batch of the script, made longer: longer samples take more."
NONE = "none"
"""Where the evaluation alone does not fit: no sample of the training is to blame."""
COMPILED = (
    "The script compiles its model. These steps run it as it is written, so compiled code may take "
    "less memory than is said here, and its caches and CUDA graphs are not counted."
)


def fitting_sizes(gpu: FittedGpu, num_samples: int | None, smallest: int) -> str:
    """The range of the largest batch.

    Args:
        num_samples: of the epoch; no batch is larger.
        smallest: batch that was looked at.
    """
    if not gpu.high:
        return f"below {smallest}" if smallest > 1 else "not even 1"
    if num_samples is not None and (gpu.low or 0) >= num_samples:
        return f"all {num_samples}"
    if not gpu.is_bounded:
        return f"{gpu.low} or more" if gpu.low else f"maybe {gpu.high} or more"
    high = gpu.high if num_samples is None else min(gpu.high, num_samples)
    if not gpu.low:
        return f"at most {high}"
    return str(high) if gpu.low == high else f"{gpu.low} to {high}"


def fitting_rows(
    forecasts: Sequence[Forecast], answer: Estimate
) -> list[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Names of GPUs with their memory and the ranges of all forecasts; equal ranges share a row."""
    evaluated = () if answer.evaluation is None else answer.evaluation.too_large
    rows: dict[tuple[str, ...], list[FittedGpu]] = {}
    for at, gpu in enumerate(forecasts[0].gpus):
        sizes = tuple(
            NONE if each.gpus[at].name in evaluated and not each.gpus[at].high
            else fitting_sizes(each.gpus[at], answer.num_samples, each.trials[0].batch_size)
            for each in forecasts
        )  # fmt: skip
        rows.setdefault(sizes, []).append(gpu)
    return [
        (tuple(gpu.name for gpu in gpus), _memory_of(gpus), sizes) for sizes, gpus in rows.items()
    ]


def _memory_of(gpus: Sequence[FittedGpu]) -> str:
    low, high = (end(gpu.memory_bytes for gpu in gpus) for end in (min, max))
    return format_bytes(low) if low == high else f"{format_bytes(low)} to {format_bytes(high)}"


def headline(answer: Estimate) -> str:
    """Where the script's own batch size should fit; `label_text` says what that is."""
    own, gpus = answer.batch_size, answer.forecasts[0].gpus
    fits = [gpu for gpu in gpus if (gpu.low or 0) >= own]
    may = [gpu for gpu in gpus if gpu not in fits and (gpu.high >= own or not gpu.is_bounded)]
    parts = []
    if fits:
        parts.append(f"should fit whole on {_and_larger(fits, gpus)}")
    if may:
        parts.append(f"may fit on {_listed(may)}")
    if not parts:
        alone = len(gpus) == 1
        parts.append(f"should not fit on {gpus[0].name if alone else 'any of these GPUs'}")
    return f"Batch size {own} {', '.join(parts)}"


def label_text(answer: Estimate) -> str:
    """What every figure for a GPU is."""
    return f"This is {answer.label}."


def _and_larger(fits: Sequence[FittedGpu], gpus: Sequence[FittedGpu]) -> str:
    """The smallest of them, where all that are larger fit too; else each."""
    least = min(gpu.memory_bytes for gpu in fits)
    if any(gpu.memory_bytes >= least and gpu not in fits for gpu in gpus):
        return _listed(fits)
    smallest = [gpu for gpu in fits if gpu.memory_bytes == least]
    return _listed(smallest) + (" and larger" if len(smallest) < len(fits) else "")


def _listed(gpus: Sequence[FittedGpu]) -> str:
    names = [gpu.name for gpu in gpus]
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def range_texts(answer: Estimate) -> list[str]:
    """Explains a range of sizes, and its assumptions."""
    assumed = "; ".join(answer.assumptions)
    taken = [f"Assumed, and checked on no GPU: {assumed}."] if assumed else []
    return [ENDS, *taken, COUNTED]


def tensors_text(answer: Estimate, size: int) -> str:
    """Words the bytes that tensors of a real step should take, with their spread; or empty."""
    if answer.tensors is None:
        return ""
    low, high = answer.tensors
    middle, half = (low + high) / 2, (high - low) / (high + low)
    return (
        f"The tensors of a real step of batch {size} should take {format_bytes(middle)} "
        f"±{100 * half:.1f}% at once (estimate)."
    )


def evaluation_text(answer: Estimate, size: int, peak_bytes: int) -> str:
    """The evaluation beside the training of the script's own size; empty without one.

    Args:
        size, peak_bytes: of the training.
    """
    evaluation = answer.evaluation
    if evaluation is None:
        return ""
    larger = "The evaluation" if evaluation.peak_bytes > peak_bytes else "The training"
    text = (
        f"Evaluation, on {evaluation.batch}, takes {format_bytes(evaluation.peak_bytes)} at its "
        f"peak, training {format_bytes(peak_bytes)} at batch {size}: {larger.lower()} needs more."
    )
    if evaluation.too_large:
        names = ", ".join(evaluation.too_large)
        text += f" The evaluation alone does not fit on {names}; no training size helps there."
    return text


def limit_texts(answer: Estimate) -> list[str]:
    """Where kernels end though there is memory."""
    return [_limit_text(limit) for limit in answer.limits]


def _limit_text(limit: SizeLimit) -> str:
    place = f" at {limit.line}" if limit.line else ""
    last = f"{limit.begins - 1:,}"
    if limit.use == "attention":
        return (
            f"From batch {limit.begins:,} on no kernel takes the attention{place} ({limit.shape}), "
            "whatever memory there is: its grid has 65,535 blocks along the axis of the sequences."
        )
    what = "a tensor" if limit.use == "other" else f"a tensor of the {limit.use}"
    reached = f"From batch {limit.begins:,} on {what}{place} ({limit.shape}) has over 2^31 elements"
    if limit.use == "convolution":
        return f"{reached}: {last} is the last whose offsets 32 bits hold, as cuDNN has them."
    if limit.use == "loss":
        if limit.unreached is None:
            return f"{reached}, which some kernels index with 32 bits: compare the loss there."
        return (
            f"{reached}, and from {limit.unreached:,} on whole samples lie beyond 2^32: kernels "
            "that index with 32 bits give a wrong loss there, without an error."
        )
    if limit.use in ("interpolation", "pooling", "Fourier transform"):
        return f"{reached}: kernels that index with 32 bits refuse it, whatever memory there is."
    return f"{reached}: kernels that index with 32 bits fail or compute wrong values there."
