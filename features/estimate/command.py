"""`batchadvisor estimate`."""

from __future__ import annotations

from typing import Any

import click

from ...cli.common import (
    ScriptFirst,
    check_output_and_json,
    debug_option,
    end_like_ctrl_c,
    force_option,
    json_option,
    multiple_option,
    output_option,
    terminal,
    wrote,
)
from ...cli.types import PLACE, files

MOST_SHARD_RANKS = 65_536
"""Ranks that `--shard` counts; more share no model today."""


@click.command(
    cls=ScriptFirst,
    context_settings={"allow_interspersed_args": False},
    short_help="Estimate the batch that fits on a GPU you do not have.",
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    help="GPUs by name, also as torch prints it, or memory: H200,A100-40GB,22GiB; `all` for the "
    "whole table (default: those whose speed is known). May be repeated.",
)
@output_option("report")
@force_option
@click.option(
    "--lora",
    default="",
    metavar="NAMES",
    help="Linear layers for LoRA, by name: q_proj,v_proj (default: those of repeated blocks).",
)
@click.option("--lora-rank", type=click.IntRange(1), default=16, show_default=True)
@click.option(
    "--shard",
    type=click.IntRange(2, MOST_SHARD_RANKS),
    metavar="RANKS",
    help="Also say what fits on each of this many ranks that share the model (FSDP2).",
)
@click.option(
    "--seq-len",
    default="",
    metavar="LENGTHS",
    help="What fits with samples of other lengths: 512,2048 tokens of a batch.",
)
@multiple_option
@click.option(
    "--expandable-segments",
    is_flag=True,
    help="As with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
)
@click.option(
    "--calibrate",
    type=PLACE,
    metavar="RECORD",
    help="A run of the script on one real GPU: how far its steps are off the lower bound.",
)
@json_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="In JSON: what every step that was looked at is made of, not the script's own alone.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@debug_option
@click.argument("script", shell_complete=files)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def estimate(
    script: str, arguments: tuple[str, ...], as_json: bool, quiet: bool, **given: Any
) -> None:
    """Estimate the largest batch that fits on GPUs you do not have.

    SCRIPT runs here, on the CPU, up to its first training steps. Then some steps run on tensors
    that have shapes but no contents, and their memory is counted. Everything after SCRIPT goes to
    it. Every figure for a GPU is an estimate; on one only the memory of three trainings was
    checked.
    """
    from ...probes.source.placeholder import command
    from ...records import Goal
    from ...reports.terminal.progress import NullDisplay, ProgressDisplay
    from ...session.setup.checked_options import COMMAND_LINE, checked_options
    from . import estimate as session

    end_like_ctrl_c()
    output = given["output"]
    if output is not None:
        check_output_and_json(output, as_json=as_json, force=given["force"])
    on = session.gpus_of(",".join(given["gpus"]) if given["gpus"] else None)
    wanted = session.wanted(
        given["lora"],
        given["lora_rank"],
        given["shard"],
        lengths=given["seq_len"],
        expandable=given["expandable_segments"],
    )
    goal = Goal(profile=False, multiple_of=given["multiple_of"] or 1)
    options = checked_options(
        COMMAND_LINE,
        script=script,
        arguments=arguments,
        goal=goal,
        device="cpu",
        verb="estimate",
    )
    calibrate = given["calibrate"]
    record = None if calibrate is None else session.calibration_record(calibrate, options)
    display: Any = NullDisplay() if quiet else ProgressDisplay(options.goal.budget_s)
    answer = session.estimate(options, on, wanted, display, record)
    if as_json:
        click.echo(session.estimate_json(answer, everything=given["everything"]))
        return
    next_command = command(script, arguments)
    if output is not None:
        session.write_estimate(answer, next_command, output, everything=given["everything"])
        wrote("report", output)
        return
    width, color = terminal()
    click.echo(session.estimate_text(answer, next_command, width=width, color=color), color=color)
