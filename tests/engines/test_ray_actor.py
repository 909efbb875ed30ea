"""The actor of a probe, without Ray: what it leaves when it is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ACTOR = """
import os, signal, sys
from batchadvisor.features.plan.engines.ray_cluster import Prober
from batchadvisor.session.setup.options import RunOptions
prober = Prober()
prober.begin(RunOptions(script="model.py"), os.getcwd())
print(prober._folder, prober._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_actor_leaves_no_folder_and_no_process(tmp_path):
    (tmp_path / "model.py").write_text("import time\ntime.sleep(600)\n")
    done = subprocess.run(
        [sys.executable, "-c", ACTOR], cwd=tmp_path, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done
    folder, pid = done.stdout.split()
    until_s = time.monotonic() + 60
    while Path(folder).exists():
        assert time.monotonic() < until_s, "its folder was left"
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


WAITING = """
from batchadvisor.features.plan.engines.ray_cluster import Prober
prober = Prober()
try:
    prober.files()
except AssertionError:
    pass
else:
    raise SystemExit("files of no run")
"""


def test_an_actor_that_never_begins_leaves_nothing(tmp_path):
    subprocess.run(
        [sys.executable, "-c", WAITING], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True,
        cwd=tmp_path,
    )  # fmt: skip
    assert not list(tmp_path.iterdir())
