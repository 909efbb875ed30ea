"""`batchadvisor emit`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ...cli.common import ScriptLast, debug_option
from ...cli.run import run
from ...cli.types import PLACE, SECONDS, files
from ...errors import UsageError

MANIFEST_OPTIONS = (
    *("output", "resume", "gpus", "device", "nproc_per_node", "dry_run"),
    *("engine", "gres", "slurm_options", "time_limit"),
)
"""Options of `run` that a manifest decides, or that make no sense in one."""


@click.command(
    cls=ScriptLast, short_help="Write Kubernetes manifests that run SCRIPT once on each GPU type."
)
@click.option("--image", required=True, help="Container image with batchadvisor and the script.")
@click.option(
    "--gpu-product",
    "products",
    multiple=True,
    required=True,
    help="A GPU type, as nodes name it in the label nvidia.com/gpu.product. Give one or more.",
)
@click.option("--name", help="Name of the jobs (default: from the script's name).")
@click.option("--namespace", help="Namespace of all objects (default: kubectl's).")
@click.option(
    "--claim",
    help="PersistentVolumeClaim for the records (default: a new one that several nodes may write).",
)
@click.option("--storage", default="1Gi", help="Size of the new claim (default: 1Gi).")
@click.option(
    "--time-limit",
    type=SECONDS,
    default="1h",
    help="A job ends after this long, the wait for a node included (default: 1h).",
)
@click.option(
    "--runtime",
    default="torch-distributed",
    help="ClusterTrainingRuntime of a trainjob (default: torch-distributed).",
)
@click.option("--run-options", default="", help="Options of `batchadvisor run`: '--budget 10m'.")
@click.option("-o", "--output", type=PLACE, help="Write to this file instead of stdout.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option("--json", "as_json", is_flag=True, help="Print a List as JSON, which kubectl takes.")
@debug_option
@click.argument("kind", type=click.Choice(["k8s", "jobset", "trainjob"]))
@click.argument("script", shell_complete=files)
@click.argument(
    "arguments",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[-- SCRIPT'S ARGUMENTS]...",
    shell_complete=files,
)
def emit(
    *,
    script: str,
    arguments: tuple[str, ...],
    run_options: str,
    output: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write Kubernetes manifests that run SCRIPT once on each GPU type. Applies nothing.

    KIND is k8s (a Job for each type), jobset (one JobSet of them all) or trainjob (Kubeflow
    Trainer). SCRIPT is its path in the image; what follows `--` goes to it. The
    records go to a volume, a folder for each type.
    """
    from ...session.recording.store import write_output
    from .engines.kubernetes import emitted

    typed = _checked_options(run_options, script, arguments)
    if output is not None and output.exists() and not force:
        raise UsageError(f"{output} exists.", "Name another file, or overwrite it with --force.")
    command = ("batchadvisor", "run", *typed, script, *arguments)
    text, steps = emitted(command, script, as_json=as_json, **options)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text)
        click.echo(f"Wrote {output}")
    if output is not None or sys.stdout.isatty():
        place = os.fspath(output) if output is not None else "FILE"
        click.echo("\n".join(["Next:", *steps(shlex.quote(place))]), err=output is None)


def _checked_options(text: str, script: str, arguments: tuple[str, ...]) -> list[str]:
    """The words of `--run-options`, if `run` would take them.

    Raises:
        UsageError: words that a shell could not split, or an option that the manifest decides.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--run-options: {error}.", "Quote it as a shell does.") from None
    context = run.make_context("batchadvisor run", [*words, script, *arguments])
    if context.params["script"] != script or context.params["arguments"] != arguments:
        raise UsageError(
            f"--run-options holds more than options: {text}", "Put the script at the end."
        )
    given = click.core.ParameterSource.COMMANDLINE
    for name in MANIFEST_OPTIONS:
        if context.get_parameter_source(name) is given:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"--run-options holds {option}, which the manifest decides.", "Leave it out."
            )
    return words
