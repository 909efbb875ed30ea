"""`batchadvisor run --engine`, once its options were read."""

from __future__ import annotations

from typing import Any

import click

from ...cli.common import terminal
from ...session.setup.options import RunOptions


def run_with_engine(options: RunOptions, typed: dict[str, Any]) -> int:
    """Probes the script on a cluster, prints the answer, and returns the exit code.

    Args:
        typed: all options of the command by their names, those of the engine among them.
    """
    from ...probes.process.interrupts import exit_code
    from ...reports.terminal.progress import NullDisplay, ProgressDisplay
    from .engines import cluster

    where = cluster.Cluster(
        engine=typed["engine"],
        gres=typed["gres"],
        slurm_options=typed["slurm_options"],
        time_limit_s=typed["time_limit"],
    )
    display: Any = NullDisplay() if options.quiet else ProgressDisplay(where.limit_s)
    outcome = cluster.run(options, where, display)
    width, color = terminal()
    said = cluster.cluster_answer(outcome, width=width, color=color, as_json=options.as_json)
    click.echo(said)
    if outcome.record.state == "interrupted":
        return exit_code()
    return 0 if outcome.recommends else 1
