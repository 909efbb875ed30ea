"""The end of an epoch of the probed script: what discovery saw, given to the engine of tails."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...records import (
    CleanSize,
    Discovery,
    Layout,
    Loss,
    ModelFacts,
    Pipeline,
    RunRecord,
    Setup,
    Tail,
)
from ...units import format_count
from ..tails.layouts import layout_of
from ..tails.pipeline import sampler_of
from ..tails.sweeps import is_clean, nearest_clean, row_of, sweep, why_none_clean
from .multiples import ANY, Multiples

CLEAN_REACH = 1.34
"""How many times as large, or as small, a size without a harmful tail may be that is preferred."""
LONGEST_OF_A_STREAM, LONGEST_OF_DATA = (30 * 86400.0, "30 days"), (365 * 86400.0, "a year")
"""Nobody trains on an epoch of a stream, or of another data set, that takes longer: such a length
is a bound, given because `len` has to say something. Seconds, and words for them."""
SCRIPTS_OWN = frozenset(("accumulation.tail",))
"""Cases that depend on how the script's loop divides its loss, which nobody saw."""


def pipeline_of(
    discovery: Discovery, batch_size: int, loss: Loss = "mean", taken: Multiples = ANY
) -> Pipeline:
    """The input pipeline of a script, as far as it was seen, at one batch size a rank.

    Args:
        loss: how it reduces a batch; nearly all take the mean.
        taken: sizes that the script takes.
    """
    loader, norms = discovery.primary, discovery.norm_layers
    optimizers = {optimizer.name for optimizer in discovery.optimizers if optimizer.trains}
    pipeline = Pipeline(
        num_samples=loader.num_samples,
        batch_size=batch_size,
        drop_last=loader.drop_last or leaves_out(discovery),
        iterable=loader.iterable,
        num_workers=loader.num_workers,
        micro_batches=1 if discovery.why_steps_unknown else discovery.micro_batches,
        model=ModelFacts(
            batch_norm=None if norms is None else norms.batch_norm,
            sync_batch_norm=None if norms is None else norms.sync_batch_norm,
            group_norm=None if norms is None else norms.group_norm,
            instance_norm=None if norms is None else norms.instance_norm,
            batch_norm_values=None if norms is None else norms.batch_norm_values,
            group_norm_values=None if norms is None else norms.group_norm_values,
            instance_norm_values=None if norms is None else norms.instance_norm_values,
            optimizer=optimizers.pop() if len(optimizers) == 1 else None,
            compiled="default" if discovery.compiled else None,
            loss=loss,
            multiple_of=taken.step,
            any_up_to_multiple=taken.any_up_to,
        ),
    )
    return _shared(pipeline, discovery)


def with_believed_length(record: RunRecord) -> RunRecord:
    """The record; its epoch is unknown where the samples would take longer than anybody trains."""
    discovery = record.discovery
    if discovery is None or discovery.axis != "samples":
        return record
    samples = discovery.primary.num_samples
    is_stream = discovery.primary.iterable
    longest_s, longest = LONGEST_OF_A_STREAM if is_stream else LONGEST_OF_DATA
    rates = [
        trial.samples_per_s.median
        for trial in record.trials
        if trial.ran and trial.says_of_size and trial.samples_per_s is not None
    ]
    if samples is None or not rates or samples <= max(rates) * longest_s:
        return record
    why = (
        f"the length of {format_count(samples)} samples is not taken at its word: at the "
        f"fastest speed of this run, one epoch of them takes more than {longest}"
    )
    loaders = tuple(
        msgspec.structs.replace(loader, num_samples=None, dataset_samples=None)
        if loader.ordinal == discovery.primary_loader
        else loader
        for loader in discovery.loaders
    )
    unavailable = {**discovery.unavailable, "epoch": why}
    return msgspec.structs.replace(
        record,
        discovery=msgspec.structs.replace(discovery, loaders=loaders, unavailable=unavailable),
    )


def leaves_out(discovery: Discovery) -> bool:
    """Whether the training loop leaves out what `drop_last` would.

    Of several ranks one alone may have a short batch, and of several data workers each ends in one
    before the epoch does.
    """
    loader = discovery.primary
    alone = discovery.num_ranks == 1 and not (loader.iterable and loader.num_workers > 1)
    return bool(discovery.leaves_out) and alone


def _shared(pipeline: Pipeline, discovery: Discovery) -> Pipeline:
    """The pipeline of all ranks, where the script has several."""
    loader, ranks = discovery.primary, discovery.num_ranks
    whole = loader.dataset_samples
    if discovery.traits.trains_by_keras:
        setup = _KERAS.get(loader.sampler, "dataloader")
        return msgspec.structs.replace(pipeline, setup=setup, num_ranks=discovery.num_replicas)
    if discovery.num_replicas > 1:
        return msgspec.structs.replace(
            pipeline, setup="data-parallel", num_ranks=discovery.num_replicas
        )
    if ranks < 2 or (whole is None and loader.num_samples is not None):
        # One rank, or one rank's part of the data: what it draws is known, and no more.
        return pipeline
    if loader.even_batches is not None or loader.dispatch_batches:
        split = bool(loader.split_batches)
        return msgspec.structs.replace(
            pipeline,
            setup="accelerate",
            num_samples=whole,
            num_ranks=ranks,
            even_batches=loader.even_batches is not False,
            split_batches=split,
            dispatch_batches=loader.dispatch_batches,
            batch_size=pipeline.batch_size * (ranks if split else 1),
        )
    distributed = "Distributed" in loader.sampler
    if whole is None:
        return msgspec.structs.replace(pipeline, setup="ddp", num_ranks=ranks, sampler="plain")
    if not distributed and (loader.iterable or loader.sampler not in _PLAIN):
        return pipeline  # a sampler of the script's own: how it shares nobody knows
    return msgspec.structs.replace(
        pipeline,
        setup="ddp",
        num_samples=whole,
        num_ranks=ranks,
        sampler="distributed" if distributed else "plain",
        sampler_drop_last=loader.sampler_drop_last,
    )


_PLAIN = ("SequentialSampler", "RandomSampler")
_KERAS: dict[str, Setup] = {
    "Keras on torch": "keras-torch",
    "Keras on tensorflow": "keras-tensorflow",
    "Keras on jax": "keras-jax",
    "Keras on jax, DataParallel": "jax",
    "Keras on tensorflow, MirroredStrategy": "mirrored",
    "Keras on tensorflow, MultiWorkerMirroredStrategy": "multi-worker-mirrored",
    "Keras on tensorflow, TPUStrategy": "tpu",
}
"""Setups by the name that the Keras door gives in place of a sampler's."""


def unknown_reason(discovery: Discovery, batch_size: int) -> str:
    """Why the end of the epoch is unknown, and how to plan it; empty where it is known."""
    loader = discovery.primary
    if loader.axis != "samples":
        return (
            f"batches are cut by {loader.size_name}: how many samples the last one has depends on "
            "the lengths"
        )
    if loader.num_samples is None:
        plan = plan_command(discovery, batch_size)
        unseen = not discovery.traits.sees_data and loader.place is None
        what = "no data set was seen" if unseen else "the dataset has no length"
        what = discovery.why_epoch_unknown or what
        return f"{what}; if you know its length: {plan}"
    if loader.iterable and loader.num_workers > 1:
        return (
            f"each of {loader.num_workers} workers makes a tail of its own; if they share the data "
            f"evenly: {plan_command(discovery, batch_size)}"
        )
    return ""


def plan_command(discovery: Discovery, batch_size: int, loss: Loss = "mean") -> str:
    """The command line that plans what could not be known, with all that was seen."""
    pipeline = pipeline_of(discovery, batch_size, loss)
    model, samples = pipeline.model, pipeline.num_samples
    words = [f"--samples {'N' if samples is None else samples}"]
    words.append(f"--batch-size {pipeline.batch_size}")
    if pipeline.num_ranks > 1 or pipeline.setup != "dataloader":
        words.append(f"--setup {pipeline.setup}")
    words += [f"--ranks {pipeline.num_ranks}"] if pipeline.num_ranks > 1 else []
    usual = sampler_of(msgspec.structs.replace(pipeline, sampler=None))
    words += [f"--sampler {pipeline.sampler}"] if pipeline.sampler not in (None, usual) else []
    words += ["--sampler-drop-last"] if pipeline.sampler_drop_last else []
    words += ["--iterable"] if pipeline.iterable else []
    words += [f"--workers {pipeline.num_workers}"] if pipeline.num_workers else []
    words += ["--drop-last"] if pipeline.drop_last else []
    words += [] if pipeline.even_batches else ["--uneven-batches"]
    words += ["--split-batches"] if pipeline.split_batches else []
    if pipeline.dispatch_batches is not None:
        words.append(f"--{'' if pipeline.dispatch_batches else 'no-'}dispatch-batches")
    if pipeline.micro_batches > 1:
        words.append(f"--accumulate {pipeline.micro_batches}")
    if model.batch_norm:
        values = model.batch_norm_values
        words.append("--batch-norm" if values is None else f"--batch-norm-values {values}")
    for kind, count, values in (
        ("group", model.group_norm, model.group_norm_values),
        ("instance", model.instance_norm, model.instance_norm_values),
    ):
        words += [f"--{kind}-norm-values {values}"] if count and values else []
    words += ["--sync-batch-norm"] if model.sync_batch_norm else []
    words += [] if loss == "mean" else [f"--loss {loss}"]
    return f"batchadvisor tails {' '.join(words)}"


def known_loss(record: RunRecord) -> Loss | None:
    """How the loss reduces a batch, where a version that measured it saw that."""
    return None if record.loss is None else record.loss.reduction


def loss_question(record: RunRecord, discovery: Discovery, batch_size: int) -> str:
    """The command to ask where the epoch's end is another one under another reduction; or empty."""
    if known_loss(record) is not None or unknown_reason(discovery, batch_size):
        return ""
    kinds: tuple[Loss, ...] = ("mean", "sum", "contrastive")
    ends = {row_of(pipeline_of(discovery, batch_size, kind)).ids for kind in kinds}
    return plan_command(discovery, batch_size, "sum") if len(ends) > 1 else ""


def layout_at(discovery: Discovery, batch_size: int) -> Layout | None:
    """The end of an epoch at a size, `None` where it is unknown."""
    if unknown_reason(discovery, batch_size):
        return None
    layout = layout_of(pipeline_of(discovery, batch_size))
    return None if isinstance(layout, str) else layout


def own_samples(discovery: Discovery) -> int | None:
    """Samples that a process draws in an epoch: its own part of them where ranks share them.

    It is the number of batches of one sample each.
    """
    layout = layout_at(discovery, 1)
    return discovery.primary.num_samples if layout is None else max(layout.batches)


def last_batch(discovery: Discovery, batch_size: int) -> int | None:
    """Samples that this process gets in a short last batch: 0 without one, `None` if unknown.

    Under drop_last there is no short batch. An iterable dataset with several workers makes a
    tail per worker, which its length does not tell.
    """
    layout = layout_at(discovery, batch_size)
    if layout is None:
        return None
    if not layout.is_short:
        return 0
    return layout.last_samples if len(layout.batches) == 1 else layout.last[0]


def tail_of(
    discovery: Discovery,
    batch_size: int,
    *,
    loss: Loss = "mean",
    largest: int | None = None,
    predict: Callable[[int], float] | None = None,
    taken: Multiples = ANY,
) -> Tail | str:
    """The layout of the epoch's end, or why it is unknown.

    Args:
        loss, taken: as in `pipeline_of`.
        largest, predict: as in `nearest_clean` of the engine.
    """
    reason = unknown_reason(discovery, batch_size)
    if reason:
        return reason
    pipeline = pipeline_of(discovery, batch_size, loss, taken)
    layout = layout_of(pipeline)
    if isinstance(layout, str):
        return layout
    several, drops = pipeline.num_ranks > 1, discovery.primary.drop_last
    known = not discovery.why_steps_unknown
    clean: tuple[CleanSize, ...] = ()
    none = ""
    harms = has_harmful_tail(discovery, batch_size, loss, taken)
    if harms:
        clean = nearest_clean(pipeline, largest=largest, predict=predict)
        none = "" if clean else why_none_clean(pipeline, largest=largest)
    return Tail(
        num_samples=pipeline.num_samples or 0,
        batch_size=batch_size,
        drop_last=pipeline.drop_last,
        steps_per_epoch=layout.steps * (discovery.steps_per_batch if known else 1),
        steps_known=known,
        last_batch=last_batch(discovery, batch_size) or 0,
        dropped=layout.dropped,
        weight=layout.weight,
        nearest_clean=tuple(clean_size.batch_size for clean_size in clean),
        clean_sizes=clean,
        why_none_clean=none,
        num_ranks=pipeline.num_ranks,
        full=layout.full if several else (),
        last=layout.last if several else (),
        batches=_by_rank(layout) if several else (),
        duplicates=layout.duplicates,
        left_out_by=discovery.leaves_out if leaves_out(discovery) and not drops else "",
        harmful=harms,
    )


def _by_rank(layout: Layout) -> tuple[int, ...]:
    """Micro-steps of each rank or replica; one process makes those of all its replicas."""
    ranks = len(layout.full)
    return layout.batches * ranks if len(layout.batches) == 1 else layout.batches


def has_harmful_tail(
    discovery: Discovery, batch_size: int, loss: Loss = "mean", taken: Multiples = ANY
) -> bool:
    """Whether the epoch's end does harm at this size, or no step is made at all.

    Args:
        loss, taken: as in `pipeline_of`.
    """
    if unknown_reason(discovery, batch_size):
        return False
    pipeline = pipeline_of(discovery, batch_size, loss, taken)
    (row,) = sweep(pipeline, [pipeline.batch_size])
    ids = tuple(case_id for case_id in row.ids if case_id not in SCRIPTS_OWN)
    return not is_clean(msgspec.structs.replace(row, ids=ids))
