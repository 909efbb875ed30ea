"""A cluster of Slurm on this host: its own munged, slurmctld, slurmd, and GPUs that are none."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.needs import PROGRAMS

from ..ports import free_ports

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "salloc", "squeue", "scancel")
START_S = 60
CONFIGURATION = """
ClusterName=batchadvisor-test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=100 {first}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=100 {second}
PartitionName=gpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
FIRST, SECOND = "Gres=gpu:a100:1,gpu:1g.20gb:1", "Gres=gpu:v100:1"
GPUS = """
NodeName=n1 Name=gpu Type=a100 File=/dev/null
NodeName=n1 Name=gpu Type=1g.20gb File=/dev/zero
NodeName=n2 Name=gpu Type=v100 File=/dev/full
"""
"""Slurm takes any character device for a GPU."""


class Cluster:
    """One that runs.

    Attributes:
        variables: what a user's shell has there.
    """

    def __init__(self, folder):
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PROGRAMS}

    def ask(self, *command):
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            command, env={**os.environ, **self.variables}, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip
        return done.stdout.strip()

    def jobs(self):
        """Ids of the jobs that wait or run; ended ones stay listed until their node is free."""
        states = "PENDING,CONFIGURING,RUNNING,SUSPENDED"
        return self.ask("squeue", "--noheader", "--states", states, "-o", "%i").split()


@contextlib.contextmanager
def cluster(*, gpus=True):
    """A cluster of two nodes with three types of GPUs, or with none."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a socket's name must stay short
    daemons = []
    try:
        _configure(folder, gpus=gpus)
        here = Cluster(folder)
        socket_path = folder / "munge.socket"
        munged = [
            *("munged", "--foreground", "--force", f"--key-file={folder}/munge.key"),
            *(f"--socket={socket_path}", f"--pid-file={folder}/munged.pid"),
            *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"),
        ]
        commands = [munged, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", "n1"]]
        for number, command in enumerate([*commands, ["slurmd", "-D", "-N", "n2"]]):
            daemons.append(_daemon(command, here, number))
            if number == 0:
                _wait(socket_path.exists, daemons, folder)
        _wait(lambda: here.ask("sinfo", "--noheader", "-o", "%D %T") == "2 idle", daemons, folder)
        yield here
        for job in here.jobs():
            here.ask("scancel", "--signal=KILL", job)
    finally:
        for daemon in reversed(daemons):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder, *, gpus):
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    (folder / "state").mkdir()
    text = CONFIGURATION.format(
        host=socket.gethostname().partition(".")[0],
        user=getpass.getuser(),
        folder=folder,
        ports=_ports(3),
        first=FIRST if gpus else "",
        second=SECOND if gpus else "",
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(GPUS if gpus else "")


def _daemon(command, here, number):
    with (here.folder / f"daemon-{number}.out").open("wb") as output:
        return subprocess.Popen(
            command, env={**os.environ, **here.variables}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


def _ports(num):
    first = free_ports(num)
    return range(first, first + num)


def _wait(condition, daemons, folder):
    deadline = time.monotonic() + START_S
    while not condition():
        dead = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > deadline:
            logs = [*folder.glob("daemon-*.out"), *folder.glob("*.log")]
            said = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)
            raise AssertionError(f"Slurm does not start; ended: {dead}\n{said}")
        time.sleep(0.1)
