"""Who is which rank, how ranks meet, and what keeps strangers out."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from batchadvisor.errors import RunError, UsageError
from batchadvisor.probes.distributed.group_worker import rank_environment
from batchadvisor.probes.distributed.lockstep import Agreement
from batchadvisor.probes.distributed.messages import Address, Join, dial, read_join
from batchadvisor.probes.distributed.rank_coordinator import RankCoordinator
from batchadvisor.probes.distributed.rank_group import RankGroup
from batchadvisor.probes.distributed.ranked_worker import cause_of, port_was_taken
from batchadvisor.probes.distributed.ranks import Rank, detect_rank
from batchadvisor.probes.distributed.rendezvous import free_port, look_up, publish
from batchadvisor.probes.process.endings import ENDED, WAITED, WorkerGone
from batchadvisor.probes.process.messages import Raised
from batchadvisor.probes.process.orders import Lockstep
from batchadvisor.probes.process.supervisor import Worker, waits_for_others

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "job",
}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
}


ADDRESS = Address(host="127.0.0.1", port=1, token="secret")


def rank(number=0, world=2, job="test"):
    return Rank(
        rank=number, world_size=world, local_rank=number, local_world_size=world,
        launcher="test", job=job,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "detected"),
    [
        # torchrun comes before MPI
        (
            {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "2", **OPEN_MPI},
            ("RANK and WORLD_SIZE", 0, 8, 2, True),
        ),
        (OPEN_MPI, ("mpirun", 1, 2, 1, True)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}, ("mpirun", 2, 4, 0, True)),
        (SLURM, ("srun", 3, 4, 1, False)),
        ({}, None),
        ({"RANK": "0"}, None),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
        ({"RANK": "5", "WORLD_SIZE": "2"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, not a step
        ({**SLURM, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
    ],
)
def test_who_is_which_rank(environment, detected):
    found = detect_rank(environment)
    if detected is None:
        assert found is None
        return
    numbers = (found.rank, found.world_size, found.local_rank)
    assert (found.launcher, *numbers, found.one_host) == detected


class TestMeeting:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        return tmp_path

    def test_through_a_file_that_is_gone_afterwards(self, folder):
        with publish(rank(), ADDRESS, {}):
            (file,) = folder.iterdir()
            assert file.stat().st_mode & 0o077 == 0
            assert look_up(rank(1), {}) == ADDRESS
        assert list(folder.iterdir()) == []

    def test_through_a_store_at_the_jobs_address(self):
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with publish(rank(), ADDRESS, where):
            assert look_up(rank(1), where, timeout_s=20) == ADDRESS

    def test_no_rank_0_is_an_error_soon(self):
        with pytest.raises(RunError, match="found no rank 0"):
            look_up(rank(1), {}, timeout_s=0.2)

    def test_nowhere_to_meet_on_several_hosts(self):
        far = Rank(rank=1, world_size=4, local_rank=0, local_world_size=2, launcher="srun", job="x")
        with pytest.raises(UsageError, match="no address to meet at"):
            look_up(far, {}, timeout_s=0.2)


@pytest.mark.parametrize(
    ("joins", "error", "said"),
    [
        (None, RunError, "missing: 1"),
        ({"token": "wrong"}, RunError, "missing: 1"),
        ({"world_size": 3}, UsageError, "counts 3 ranks"),
        ({"rank": 0}, UsageError, "two processes"),
    ],
    ids=["nobody", "a stranger", "another world size", "two of one rank"],
)
def test_who_may_not_join_and_who_is_missing(joins, error, said, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    connections = []

    def join():
        address = look_up(rank(1), {})
        values = {"token": address.token, "rank": 1, "world_size": 2, **joins}
        connections.append(dial(address.host, address.port, Join(role="supervisor", **values)))

    thread = threading.Thread(target=join)
    if joins is not None:
        thread.start()
    # Who will be let in, or refused, has long come; a rank that never does is not waited for.
    with pytest.raises(error, match=said):
        RankGroup(rank(), {}, meeting_s=1 if error is RunError else 10)
    if joins is not None:
        thread.join()
    for connection in connections:
        connection.close()


class Job:
    """A coordinator, and ranks that join it one by one."""

    def __init__(self, world):
        self._world = world
        self._coordinator = RankCoordinator("127.0.0.1", "secret", world)
        self.address = self._coordinator.address
        self._joined = []

    def join(self, number):
        order = Lockstep(
            rank=number, world_size=self._world, host=self.address.host, port=self.address.port,
            token=self.address.token, generation=0,
        )  # fmt: skip
        self._joined.append(Agreement(order))
        return self._joined[-1]

    def close(self):
        for line in self._joined:
            line.close()
        self._coordinator.close()


class TestCoordinator:
    def test_all_do_what_rank_0_decided(self):
        with contextlib.closing(Job(3)) as job:
            lines = [job.join(number) for number in range(3)]
            answers = {number: [] for number in range(3)}

            def play(number):
                for turn in range(50):
                    decision = turn % 3 == 0 if number == 0 else turn % 2 == 0
                    answers[number].append(lines[number].agree(decision))

            threads = [threading.Thread(target=play, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
        assert answers[0] == answers[1] == answers[2] == [turn % 3 == 0 for turn in range(50)]

    def test_a_rank_waits_for_the_others(self):
        with contextlib.closing(Job(2)) as job:
            waiting = threading.Thread(target=job.join(0).agree, args=(True,), daemon=True)
            waiting.start()
            waiting.join(0.2)
            assert waiting.is_alive()
            assert job.join(1).agree(False) is True
            waiting.join(10)
            assert not waiting.is_alive()

    def test_garbage_does_not_stop_it(self):
        with contextlib.closing(Job(1)) as job:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff\n", b"{}\n"):
                where = (job.address.host, job.address.port)
                with socket.create_connection(where) as stranger:
                    stranger.sendall(data)
            assert job.join(0).agree(True) is True


def raised(text):
    return Raised(kind="RuntimeError", text=text, traceback="", out_of_memory=False)


HELD_BACK = """
import faulthandler, signal
faulthandler.register(signal.SIGUSR1, all_threads=True)
from batchadvisor.probes.distributed.lockstep import Agreement
from batchadvisor.probes.process.orders import Lockstep
order = Lockstep(
    rank=0, world_size={world_size}, host="{host}", port={port}, token="word", generation=0
)
Agreement(order).agree(True)
"""


BROKEN = WorkerGone("exception", "RuntimeError: Connection closed by peer [127.0.0.1]:4242")
ENDED_WITH_THE_OTHERS = WorkerGone("crashed", ENDED)
HUNG = WorkerGone("hung", "nothing was heard for 5 s")


class TestCauses:
    @pytest.mark.parametrize(
        ("consequence", "cause"),
        [
            (BROKEN, WorkerGone("out_of_memory", "refused")),
            (BROKEN, WorkerGone("crashed", "the process was killed (SIGKILL)")),
            (BROKEN, WorkerGone("exception", "ValueError: bad", raised("bad"))),
            (BROKEN, HUNG),
            (WorkerGone("hung", f"nothing was heard; {WAITED}"), HUNG),
            (ENDED_WITH_THE_OTHERS, HUNG),
            (ENDED_WITH_THE_OTHERS, BROKEN),
            (WorkerGone("crashed", ""), WorkerGone("out_of_memory", "")),
        ],
    )
    def test_what_follows_from_another_ranks_end_is_no_cause(self, consequence, cause):
        assert cause_of({0: consequence, 1: cause, 2: consequence}) == (1, cause)

    def test_a_rank_that_we_hold_back_waits_for_the_others(self, tmp_path):
        """Between two steps, until all have come: the one that does not come hangs."""
        log = tmp_path / "script.log"
        silent = socket.create_server(("127.0.0.1", 0))
        with silent, log.open("wb") as output:
            plan = {"world_size": 2, "host": "127.0.0.1", "port": silent.getsockname()[1]}
            rank = subprocess.Popen(
                [sys.executable, "-c", HELD_BACK.format(**plan)], stdout=output, stderr=output
            )
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                assert read_join(connection, 10.0) is not None
                assert connection.recv(1) == b"1"  # its step is over
                rank.send_signal(signal.SIGUSR1)
                deadline = time.monotonic() + 10
                while "Current thread" not in log.read_text() and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(0.2)
                rank.kill()
                rank.wait()
        assert waits_for_others(log, 0)

    def test_a_taken_port_is_recognised(self):
        text = "The server socket has failed to listen: EADDRINUSE"
        assert port_was_taken(WorkerGone("exception", "", raised(text)))
        assert not port_was_taken(BROKEN)


def test_a_rank_gets_a_fresh_port_and_the_usual_names():
    base = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "29500", "HOME": "/root"}
    variables = rank_environment(base, rank(1), "127.0.0.1", 4242)
    assert variables["MASTER_PORT"] == "4242"
    assert variables["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["LOCAL_RANK"]) == ("1", "2", "1")
    assert variables["HOME"] == "/root"
    assert base["MASTER_PORT"] == "29500"


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_last_words_of_one_rank_end_no_other(ranks, monkeypatch, tmp_path):
    """Else a rank whose connection broke would be heard, and the one that died be ended by us."""
    ended = []
    monkeypatch.setattr(Worker, "end", lambda instance: ended.append(instance.order))
    worker = object.__new__(Worker)
    worker.log, worker._log_start = tmp_path / "script.log", 0
    lockstep = Lockstep(rank=0, world_size=ranks, host="", port=0, token="", generation=0)
    worker.order = SimpleNamespace(lockstep=lockstep if ranks > 1 else None)
    assert worker._over(raised("connection closed by peer")).outcome == "exception"
    assert len(ended) == (ranks == 1)
