"""Memory that is really refused or taken: by `ulimit`, and by a watcher that kills.

A cgroup of one's own cannot be made everywhere; the limits of a process can.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from batchadvisor.probes.devices.host import descendants, status_bytes
from batchadvisor.units import MIB

from .driver import SCRIPTS, run, start

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--budget", "60s")
SIZES = ("--sizes", "8,1024")
"""The script's own, which needs no confirmation in a fresh process, and one that is refused."""
ROOM = 900 * MIB
"""What a script may map beside what torch itself maps; 1024 samples need over 2 GiB."""
KILLED_ABOVE = 800 * MIB

ABORTS = textwrap.dedent("""
    import ctypes
    import torch
    from torch.utils.data import DataLoader

    native = ctypes.CDLL("libstdc++.so.6")
    native._Znwm.restype = ctypes.c_void_p
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(100):
        for batch in DataLoader(torch.zeros(400, 4), batch_size=8):
            block = native._Znwm(ctypes.c_size_t(len(batch) << 22))  # operator new
            model(batch).mean().backward()
            optimizer.step()
            native._ZdlPv(ctypes.c_void_p(block))
    """)
"""Its native code asks for 4 MiB a sample, and ends the process where they are refused."""


@pytest.fixture
def limited():
    """A launcher under `ulimit -v`."""
    code = (
        "import torch; torch.randn(64, 64, requires_grad=True).sum().backward(); "
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmPeak')))"
    )
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.check_output([sys.executable, "-c", code], env=variables, text=True)
    most_kb = int(said.split()[1]) + ROOM // 1024
    return ("bash", "-c", f'ulimit -v {most_kb}; exec "$@"', "bash", sys.executable)


def assert_answered_below(done):
    """An answer that ran, below the smallest size that did not."""
    assert done.code == 0, done
    assert done.left == []
    chosen = done.advice.recommended.batch_size
    searched = done.searched
    by_size = {trial.batch_size: trial.outcome for trial in searched}
    assert by_size[chosen] == "ok"
    assert chosen < min(size for size, outcome in by_size.items() if outcome != "ok")


def test_a_process_that_ulimit_ends(limited, tmp_path):
    """Native code has no exception to raise: the whole process is gone."""
    (tmp_path / "aborts.py").write_text(ABORTS)
    done = run("run", *OPTIONS, *SIZES, "aborts.py", folder=tmp_path, launcher=limited)
    assert_answered_below(done)
    refused = [trial for trial in done.record.trials if trial.outcome == "out_of_memory"]
    assert refused
    assert all("SIGABRT" in trial.detail for trial in refused)
    assert "bad_alloc" in done.log


def test_a_watcher_that_kills(tmp_path):
    """As batch systems and earlyoom do it; the kernel denies that it was one of its own kills."""
    words = ("run", *OPTIONS, *SIZES, SCRIPTS / "memory_hungry.py")
    started = start(*words, folder=tmp_path, preloaded=True)
    killed = 0
    while started.process.poll() is None:
        for pid in descendants(started.process.pid):
            if (status_bytes("VmRSS", pid) or 0) > KILLED_ABOVE:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        time.sleep(0.01)
    done = started.finish()
    assert killed
    assert_answered_below(done)
    details = {trial.detail for trial in done.record.trials if not trial.ran}
    assert all("SIGKILL" in detail for detail in details)
    assert any(
        "batch" in finding.message and "SIGKILL" in finding.message
        for finding in done.advice.findings
    )
