"""Runs a script in several real processes and reads what each rank saw."""

import json
import os
import subprocess

from ..end_to_end.preloaded import TORCH, Forked
from ..ports import free_ports

DEADLINE_S = 280


def launch(script, folder, *cases, world=2, fails=False, preload=TORCH, **environment):
    """What each rank wrote into `folder`, by case; nothing for a rank that was ended.

    The script is called with its rank, the folder and the cases. When rank 0 is done the others
    have done their part as well, or wait for nobody.

    Args:
        fails: ranks are expected to die; the exit codes of all and what they wrote to standard
            error are returned instead.
        preload: of the process that the ranks are forks of.
    """
    port = free_ports(world)
    shared = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        **environment,
    }
    ranks = [
        Forked(
            (rank, folder, *cases),
            script=script,
            cwd=folder,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            preload=preload,
        )
        for rank in range(world)
    ]
    errors = []
    for rank, process in enumerate(ranks):
        patience_s = 2 if "stays" in cases else 30 if fails else DEADLINE_S
        try:
            _, text = process.communicate(patience_s if rank else DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, text = process.communicate(DEADLINE_S)
        errors.append(text)
    if fails:
        return [process.returncode for process in ranks], "".join(errors)
    seen = []
    for rank in range(world):
        file = folder / f"{rank}.json"
        seen.append(json.loads(file.read_text()) if file.exists() else {})
    assert set(cases) <= set(seen[0]), errors[0][-3000:]
    return seen
