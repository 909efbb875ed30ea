"""Words of an estimate, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence

from ...units import format_bytes, format_seconds
from .records import Estimate, FittedGpu, Forecast, SizeLimit, StepBound, TooSmall

FITS_TITLE = "Largest batch that should fit"
NAMED = 4
"""GPUs that the headline names."""
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
MOST_SHARE = 0.55
"""Share of the memory held from which on one part is called most of it."""
MOST_NAMES = 7
"""GPUs that a sentence of those names that are too small."""
MOST_CHANGES = 5
BOUNDS_TITLE = "A step takes no less than this (a roofline; lower bounds, no forecasts)"
LAUNCH = "4 us"
BOUNDS_HEAD = ("GPU", "variant", "batch", "step", "largest", "step there")


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
        parts.append(f"may fit on {_of_gpus(may)}")
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
        return _of_gpus(fits)
    smallest = [gpu for gpu in fits if gpu.memory_bytes == least]
    return _of_gpus(smallest) + (" and larger" if len(smallest) < len(fits) else "")


def _of_gpus(gpus: Sequence[FittedGpu]) -> str:
    return _listed([gpu.name for gpu in gpus], NAMED)


def _listed(names: Sequence[str], most: int) -> str:
    """Names some things; of too many the last ones are counted."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


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


def nothing_fits_texts(answer: Estimate) -> list[str]:
    """Sentences to stand before the tables; none if a batch fits on every GPU."""
    texts = []
    for group in answer.too_small:
        texts.append(f"{_not_even(group)} {_what_fills(group)}")
        texts.append(_remedy(group, sharded=bool(answer.sharded)))
    return texts


def _not_even(group: TooSmall) -> str:
    where = _listed(group.gpus, MOST_NAMES)
    if group.for_sure:
        return f"Not even one sample should fit on {where}."
    return (
        f"A batch of {group.batch_size}, the smallest that was looked at, should not fit on "
        f"{where}; one sample may."
    )


def _what_fills(group: TooSmall) -> str:
    (first, size), *others = group.parts.items()
    rest = ", ".join(f"{role} {format_bytes(part)}" for role, part in others)
    of = (
        f"Whatever the batch, the script as written holds {format_bytes(group.held_bytes)}"
        if group.for_sure
        else f"As written its tensors take {format_bytes(group.held_bytes)}"
    )
    most = f"most of it {first}" if size > MOST_SHARE * group.held_bytes else f"{first} first"
    text = f"{of}, {most}: {format_bytes(size)} ({_share(size, group.held_bytes)})"
    return f"{text}; {rest}." if rest else f"{text}."


def _remedy(group: TooSmall, *, sharded: bool) -> str:
    lines = [
        f"{fix.change}, batch {fix.batch_size}, on {_listed(fix.gpus, MOST_NAMES)}"
        for fix in group.fixes[:MOST_CHANGES]
    ]
    if lines:
        return f"What would make it fit, by its tensors: {'; '.join(lines)}."
    ranks = "over more ranks" if sharded else "over ranks"
    return (
        "None of the changes that were looked at would make it fit. Take a GPU with more memory, "
        f"or share the model {ranks} (--shard RANKS)."
    )


def _share(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)}%"


def bound_rows(answer: Estimate) -> list[tuple[str, ...]]:
    """A row for each GPU and variant, as `BOUNDS_HEAD` says; "largest" is the batch that fits."""
    rows: dict[tuple[str, str], list[StepBound]] = {}
    for bound in answer.bounds:
        rows.setdefault((bound.gpu, bound.variant), []).append(bound)
    table = []
    for (gpu, variant), bounds in rows.items():
        cells = [gpu, variant]
        for bound in bounds:
            cells += [str(bound.batch_size), _time(bound)]
        table.append((*cells, *([""] * (len(BOUNDS_HEAD) - len(cells)))))
    return table


def _time(bound: StepBound) -> str:
    if bound.seconds is None:
        return "unavailable"
    launches = (bound.launch_s or 0.0) >= (bound.roofline_s or 0.0)
    return f"{format_seconds(bound.seconds)}{' L' if launches else ''}"


def bound_notes(answer: Estimate) -> list[str]:
    """Notes on the bounds: what they are, why some are missing, and how a real run compares."""
    notes = [
        (
            "The sum over the step's operations of the larger of FLOPs / dense peak and bytes / "
            "bandwidth, one by one. L: launching a kernel for each takes longer, if that takes "
            f"{LAUNCH}, an assumption. Real steps take longer, unless compiled code or a GPU's "
            "cache saves traffic."
        )
    ]
    if answer.calibration is None:
        notes.append(f"Speeds of data sheets: {answer.label}.")
    reasons: dict[str, list[str]] = {}
    for bound in answer.bounds:
        if bound.reason:
            names = reasons.setdefault(bound.reason, [])
            name = f"{bound.gpu}, {bound.variant}"
            if name not in names:
                names.append(name)
    every = len({(bound.gpu, bound.variant) for bound in answer.bounds})
    for reason, names in reasons.items():
        which = "everywhere" if len(names) == every else "; ".join(names)
        notes.append(f"Unavailable ({which}): {reason}.")
    calibration = answer.calibration
    if calibration is None:
        notes.append("Where the knee should lie is said with --calibrate and a run on a real GPU.")
        return notes
    low, high = min(calibration.factors.values()), max(calibration.factors.values())
    sizes = ", ".join(map(str, calibration.factors))
    notes.append(
        f"Measured on {calibration.device}: x{calibration.factor:.2f} of the bound (x{low:.2f} to "
        f"x{high:.2f} over the batch sizes {sizes})."
    )
    if calibration.reason:
        notes.append(f"Where the knee should lie: cannot tell, {calibration.reason}.")
    elif calibration.knees:
        knees = ", ".join(f"{gpu} {size}" for gpu, size in calibration.knees.items())
        notes.append(
            f"Where the knee should lie, an estimate (as written; the smallest of doubling sizes "
            f"with 90% of the best throughput, every GPU as far off its bound): {knees}."
        )
    return notes


def forecast_law_note(forecast: Forecast) -> str:
    """Where the peak does not follow the line of the two largest sizes, or how well it does.

    Empty where nothing more is known, as in old records.
    """
    name, smallest = forecast.variant.name, forecast.trials[0].batch_size
    if forecast.no_law:
        return f"{name}: the line of the two largest sizes that were looked at ({forecast.no_law})."
    if not forecast.floor_bytes:
        return ""
    at_smallest = forecast.fixed_bytes + forecast.sample_bytes * smallest
    least = min(trial.peak_bytes for trial in forecast.trials)
    floor = format_bytes(min(least, max(forecast.floor_bytes, at_smallest)))
    text = f"{name}: a batch of {smallest} or more takes at least {floor}"
    if forecast.residual is None:
        return f"{text}."
    return (
        f"{text}; larger ones that were looked at miss the line by {forecast.residual:.1%} at most."
    )
