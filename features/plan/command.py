"""`batchadvisor plan`, and beside it `emit`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...cli.common import (
    check_output_and_json,
    debug_option,
    force_option,
    json_option,
    multiple_option,
    output_option,
    terminal,
    wrote,
)
from ...cli.types import PLACE, SIZE, Parsed
from .emit_command import emit

__all__ = ["emit", "plan"]

if TYPE_CHECKING:
    from .split.interconnects import Interconnect

MOST_NAMED = 10_000_000
LEAST_PRICE = 1e-6


def _named(example: str, number: Callable[[str], float], least: float) -> Parsed:
    """Makes the type of `NAME=NUMBER`.

    Args:
        example: a value that is right.
        number: makes a number of the text, or raises `ValueError`.
        least: a smaller number is none.
    """

    def parse(text: str) -> tuple[str, float]:
        name, equals, digits = text.rpartition("=")
        try:
            value = number(digits)
        except ValueError:
            value = 0
        if not equals or not name.strip() or not least <= value <= MOST_NAMED:
            raise ValueError(f"{text!r} is no name and number: write {example}")
        return name.strip(), value

    return Parsed("name=number", parse)


def _link(text: str) -> tuple[str, Interconnect]:
    """Reads `pcie4`, or `12.5GB/s,5us`.

    Raises:
        ValueError: it is no link.
    """
    from .split.interconnects import interconnect

    return text, interconnect(text)


@click.command(short_help="Put records of several GPU types together into one plan.")
@click.option(
    "--count",
    "counts",
    multiple=True,
    type=_named("A100=4", int, 1),
    help="How many GPUs of a type there are: A100=4. Give one for each type; without any, the "
    "cards are compared one by one.",
)
@click.option(
    "--global-batch",
    type=SIZE,
    help="Samples of all GPUs in a step (default: the sum of the recommended sizes).",
)
@multiple_option
@click.option(
    "--price",
    "prices",
    multiple=True,
    type=_named("A100=2.1", float, LEAST_PRICE),
    help="What one GPU of a type costs an hour, in any currency: A100=2.1.",
)
@click.option(
    "--interconnect",
    type=Parsed("link", _link),
    help="For an estimate of Tsync: nvlink, pcie4, 100GbE, ... or bandwidth,latency such as "
    "12.5GB/s,5us (default: what a record of several ranks measured).",
)
@click.option(
    "--up-to",
    type=click.IntRange(1, 1_000_000),
    help="GPUs of the forecast (default: 64; more only with a measured Tsync).",
)
@output_option("plan")
@force_option
@json_option
@debug_option
@click.argument("records", metavar="RECORD...", nargs=-1, required=True, type=PLACE)
def plan(
    *,
    records: tuple[Path, ...],
    counts: tuple[tuple[str, int], ...],
    global_batch: int | None,
    multiple_of: int | None,
    prices: tuple[tuple[str, float], ...],
    interconnect: Any,
    up_to: int | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Put records of one job from any hosts together into one plan.

    Each RECORD is a run's folder or its record.json. Prints how to divide a step over the GPUs,
    what that is predicted to do beside equal and proportional shares, and a forecast by number of
    GPUs. A record of several ranks tells what synchronisation takes. Needs no torch.
    """
    from . import cluster_plan as session

    if output is not None:
        check_output_and_json(output, as_json=as_json, force=force, what="plan")
    answer = session.plan(
        records,
        counts=counts,
        prices=prices,
        global_batch=global_batch,
        multiple_of=multiple_of or 1,
        interconnect=interconnect,
        up_to=up_to,
    )
    if as_json:
        click.echo(session.plan_json(answer))
        return
    if output is not None:
        session.write_plan(answer, output)
        wrote("plan", output)
        return
    width, color = terminal()
    typed = [
        *map(os.fspath, records),
        *(word for name, number in counts for word in ("--count", f"{name}={number}")),
        *(word for name, price in prices for word in ("--price", f"{name}={price:g}")),
        *(("--global-batch", str(global_batch)) if global_batch is not None else ()),
        *(("--multiple-of", str(multiple_of)) if multiple_of is not None else ()),
        *(("--interconnect", interconnect[0]) if interconnect is not None else ()),
        *(("--up-to", str(up_to)) if up_to is not None else ()),
    ]
    text = session.plan_text(answer, session.next_command(answer, typed), width=width, color=color)
    click.echo(text, color=color)
