"""`batchadvisor tails`."""

from __future__ import annotations

from typing import Any

import click

from .common import debug_option, json_option, terminal
from .types import RANGE, SIZE, SIZES

SETUPS = (
    "dataloader", "distributed-sampler", "data-parallel", "ddp", "join", "accelerate", "lightning",
    "trainer", "keras-torch", "keras-tensorflow", "keras-jax", "mirrored", "multi-worker-mirrored",
    "jax", "tpu",
)  # fmt: skip


@click.command(short_help="Predict what the last batch of an epoch will do. Runs nothing.")
@click.option("--samples", "num_samples", type=int, help="Number of samples in the dataset.")
@click.option(
    "--batch-size", type=int, help="Samples per batch, as the setup's own argument takes it."
)
@click.option(
    "--ranks", "num_ranks", type=int, default=1, help="Number of processes, replicas or devices."
)
@click.option(
    "--setup",
    type=click.Choice(SETUPS),
    help="What connects the ranks (default: dataloader for one rank, ddp for several).",
)
@click.option("--global", "is_global", is_flag=True, help="--batch-size is for all ranks together.")
@click.option("--per-rank", "is_per_rank", is_flag=True, help="--batch-size is for one rank.")
@click.option("--rank-batch-sizes", type=SIZES, help="One size per rank: 96,32.")
@click.option("--drop-last", is_flag=True, help="The loader drops a short last batch.")
@click.option(
    "--accumulate", "micro_batches", type=int, default=1, help="Batches per optimizer step."
)
@click.option(
    "--sampler",
    type=click.Choice(["distributed", "plain", "shards"]),
    help="How ranks share the samples: DistributedSampler, not at all (plain), or unpadded shards.",
)
@click.option("--sampler-drop-last", is_flag=True, help="DistributedSampler(drop_last=True).")
@click.option("--iterable", is_flag=True, help="The dataset is iterable.")
@click.option(
    "--workers", "num_workers", type=int, default=0, help="Workers that read an iterable dataset."
)
@click.option("--uneven-batches", is_flag=True, help="Accelerate: even_batches=False.")
@click.option("--split-batches", is_flag=True, help="Accelerate: split_batches=True.")
@click.option("--dispatch-batches/--no-dispatch-batches", default=None, help="As in Accelerate.")
@click.option(
    "--stage",
    type=click.Choice(["train", "validate", "predict"]),
    default="train",
    help="What the epoch is for (default: train).",
)
@click.option("--batch-norm", is_flag=True, help="The model has BatchNorm layers.")
@click.option(
    "--batch-norm-values",
    type=int,
    help="Values per channel that a sample gives the smallest BatchNorm layer: height x width.",
)
@click.option("--group-norm-values", type=int, help="The same for GroupNorm, per group.")
@click.option("--instance-norm-values", type=int, help="The same for InstanceNorm, per channel.")
@click.option("--sync-batch-norm", is_flag=True, help="BatchNorm is synchronised over the ranks.")
@click.option(
    "--multiple-of",
    type=SIZE,
    metavar="K",
    help="The model takes multiples of K only: 2 for Mixup.",
)
@click.option("--optimizer", help="Class of the optimizer, such as SGD.")
@click.option(
    "--loss",
    type=click.Choice(["mean", "sum", "contrastive"]),
    default="mean",
    help="How the loss reduces a batch; contrastive compares a batch's samples (default: mean).",
)
@click.option(
    "--compiled",
    type=click.Choice(["default", "static", "dynamic"]),
    help="How torch.compile treats shapes.",
)
@click.option("--sweep", is_flag=True, help="Show which sizes in --range are clean.")
@click.option("--range", "sizes", type=RANGE, help="LOW:HIGH[:STEP] for --sweep.")
@click.option(
    "--all", "every", is_flag=True, help="With --sweep, also show sizes with a harmful tail."
)
@click.option(
    "--explain", metavar="ID", help="Explain a case by its id or number; `all` lists the cases."
)
@json_option
@debug_option
def tails(
    *,
    explain: str | None,
    sweep: bool,
    sizes: tuple[int, int, int] | None,
    every: bool,
    as_json: bool,
    **facts: Any,
) -> None:
    """Predict what the last batch of an epoch will do to a training, from numbers alone.

    Steps per epoch, samples of each rank in the last step, what is repeated or left out, and what
    that does: errors, NaN, samples that weigh too much, idle devices.
    """
    from ..session import tails as session

    width, _ = terminal()
    if explain is not None:
        if sweep or facts["num_samples"] is not None or facts["batch_size"] is not None:
            raise click.UsageError("--explain prints a page; leave the other options out.")
        if explain == "all":
            pages = session.catalogue()
            text = session.as_json(pages) if as_json else session.catalogue_text(pages, width=width)
        else:
            page = session.explain(explain)
            text = session.as_json(page) if as_json else session.explained_text(page, width=width)
        click.echo(text)
        return
    pipeline = _pipeline(facts, sweep=sweep, sizes=sizes)
    if not sweep:
        if sizes is not None or every:
            raise click.UsageError("--range and --all belong to --sweep.")
        report = session.plan(pipeline)
        click.echo(session.as_json(report) if as_json else session.report_text(report, width=width))
        return
    rows = session.sweep(pipeline, *(sizes or session.default_range(pipeline)))
    click.echo(
        session.as_json(rows)
        if as_json
        else session.sweep_text(pipeline, rows, width=width, every=every)
    )


def _pipeline(facts: dict[str, Any], *, sweep: bool, sizes: tuple[int, int, int] | None) -> Any:
    from ..records import ModelFacts, Pipeline

    if facts["num_samples"] is None:
        raise click.UsageError("Missing option '--samples': the number of samples of an epoch.")
    if facts["batch_size"] is None and facts["rank_batch_sizes"]:
        facts["batch_size"] = sum(facts["rank_batch_sizes"])
    if facts["batch_size"] is None and sweep:
        # No size was typed: one that all ranks share evenly, as others of the range need not be.
        ranks = max(1, facts["num_ranks"]) if facts["is_global"] else 1
        facts["batch_size"] = -(-(sizes[0] if sizes is not None else 64) // ranks) * ranks
    if facts["batch_size"] is None:
        raise click.UsageError("Missing option '--batch-size', or --sweep for many sizes.")
    is_global, is_per_rank = facts.pop("is_global"), facts.pop("is_per_rank")
    if is_global and is_per_rank:
        raise click.UsageError("--global and --per-rank contradict each other; use one of them.")
    facts["batch_is"] = "global" if is_global else "per rank" if is_per_rank else None
    values = {
        name: facts.pop(name)
        for name in ("batch_norm_values", "group_norm_values", "instance_norm_values")
    }
    bad = next((name for name in values if values[name] is not None and values[name] < 1), None)
    if bad is not None:
        option = f"--{bad.replace('_', '-')}"
        raise click.UsageError(
            f"{option}: {values[bad]} is no number of values; it must be at least 1."
        )
    if facts["optimizer"] is not None and not facts["optimizer"].strip():
        raise click.UsageError(
            "--optimizer: the name is empty; give the optimizer's class, such as SGD."
        )
    named = facts.pop("batch_norm")
    model = ModelFacts(
        batch_norm=1 if named or values["batch_norm_values"] else None,
        group_norm=1 if values["group_norm_values"] else None,
        instance_norm=1 if values["instance_norm_values"] else None,
        **values,
        sync_batch_norm=1 if facts.pop("sync_batch_norm") else None,
        optimizer=facts.pop("optimizer"),
        compiled=facts.pop("compiled"),
        loss=facts.pop("loss"),
        multiple_of=facts.pop("multiple_of") or 1,
    )
    if facts["setup"] is None:
        facts["setup"] = "ddp" if facts["num_ranks"] > 1 else "dataloader"
    return Pipeline(
        even_batches=not facts.pop("uneven_batches"),
        rank_batch_sizes=facts.pop("rank_batch_sizes") or (),
        model=model,
        **facts,
    )
