"""Who is which rank, how ranks meet, and what keeps strangers out."""

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
from batchadvisor.probes.distributed.ranked_worker import cause_of, port_was_taken, with_rank
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


def rank(number=0, world=2, job="test"):
    return Rank(
        rank=number, world_size=world, local_rank=number, local_world_size=world,
        launcher="test", job=job,
    )  # fmt: skip


class TestDetection:
    def test_torchrun_comes_before_mpi(self):
        detected = detect_rank({"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", **OPEN_MPI})
        assert (detected.rank, detected.world_size) == (0, 8)

    def test_open_mpi(self):
        detected = detect_rank(OPEN_MPI)
        assert (detected.rank, detected.world_size, detected.local_rank) == (1, 2, 1)
        assert detected.launcher == "mpirun"
        assert detected.one_host

    def test_pmi(self):
        detected = detect_rank({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"})
        assert (detected.rank, detected.world_size, detected.local_rank) == (2, 4, 0)

    def test_slurm_inside_a_step(self):
        detected = detect_rank(SLURM)
        assert (detected.rank, detected.world_size, detected.local_rank) == (3, 4, 1)
        assert not detected.one_host

    @pytest.mark.parametrize(
        "environment",
        [
            {},
            {"RANK": "0"},
            {"RANK": "x", "WORLD_SIZE": "2"},
            {"RANK": "5", "WORLD_SIZE": "2"},
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script, not a step
            {**SLURM, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        ],
    )
    def test_an_ordinary_process(self, environment):
        assert detect_rank(environment) is None


class TestMeeting:
    def test_through_a_file_that_is_gone_afterwards(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        address = Address(host="127.0.0.1", port=1, token="secret")
        with publish(rank(), address, {}):
            (file,) = tmp_path.iterdir()
            assert file.stat().st_mode & 0o077 == 0
            assert look_up(rank(1), {}) == address
        assert list(tmp_path.iterdir()) == []

    def test_through_a_store_at_the_jobs_address(self):
        address = Address(host="127.0.0.1", port=1, token="secret")
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with publish(rank(), address, where):
            assert look_up(rank(1), where, timeout_s=20) == address

    def test_a_port_in_use_is_an_error(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
            address = Address(host="127.0.0.1", port=1, token="secret")
            with pytest.raises(UsageError, match="cannot listen"), publish(rank(), address, where):
                pass

    def test_no_rank_0_is_an_error_soon(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(RunError, match="found no rank 0"):
            look_up(rank(1), {}, timeout_s=0.2)

    def test_nowhere_to_meet_on_several_hosts(self):
        far = Rank(rank=1, world_size=4, local_rank=0, local_world_size=2, launcher="srun", job="x")
        with pytest.raises(UsageError, match="no address to meet at"):
            look_up(far, {}, timeout_s=0.2)


class TestGroup:
    def join(self, tmp_path, **changes):
        def go():
            address = look_up(rank(1), {})
            values = {"token": address.token, "rank": 1, "world_size": 2, **changes}
            join = Join(role="supervisor", **values)
            self.connection = dial(address.host, address.port, join)

        thread = threading.Thread(target=go)
        thread.start()
        return thread

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        yield
        if hasattr(self, "connection"):
            self.connection.close()

    def test_a_missing_rank_is_named(self):
        with pytest.raises(RunError, match="missing: 1"):
            RankGroup(rank(), {}, meeting_s=0.3)

    def test_another_world_size_is_refused(self, tmp_path):
        thread = self.join(tmp_path, world_size=3)
        with pytest.raises(UsageError, match="counts 3 ranks"):
            RankGroup(rank(), {}, meeting_s=10)
        thread.join()

    def test_who_does_not_know_the_token_is_not_let_in(self, tmp_path):
        thread = self.join(tmp_path, token="wrong")
        with pytest.raises(RunError, match="missing: 1"):
            RankGroup(rank(), {}, meeting_s=1)
        thread.join()

    def test_two_of_one_rank_are_refused(self, tmp_path):
        thread = self.join(tmp_path, rank=0)
        with pytest.raises(UsageError, match="two processes"):
            RankGroup(rank(), {}, meeting_s=10)
        thread.join()


class TestCoordinator:
    def lockstep(self, coordinator, number, world=2):
        address = coordinator.address
        return Lockstep(
            rank=number, world_size=world, host=address.host, port=address.port,
            token=address.token, generation=0,
        )  # fmt: skip

    def test_all_do_what_rank_0_decided(self):
        coordinator = RankCoordinator("127.0.0.1", "secret", 3)
        lines = [Agreement(self.lockstep(coordinator, number, 3)) for number in range(3)]
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
        for line in lines:
            line.close()
        coordinator.close()

    def test_a_rank_waits_for_the_others(self):
        coordinator = RankCoordinator("127.0.0.1", "secret", 2)
        line = Agreement(self.lockstep(coordinator, 0))
        waiting = threading.Thread(target=line.agree, args=(True,), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        other = Agreement(self.lockstep(coordinator, 1))
        assert other.agree(False) is True
        waiting.join(10)
        assert not waiting.is_alive()
        for agreement in (line, other):
            agreement.close()
        coordinator.close()

    def test_garbage_does_not_stop_it(self):
        coordinator = RankCoordinator("127.0.0.1", "secret", 1)
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff\n", b"{}\n"):
            with socket.create_connection(
                (coordinator.address.host, coordinator.address.port)
            ) as stranger:
                stranger.sendall(data)
        line = Agreement(self.lockstep(coordinator, 0, 1))
        assert line.agree(True) is True
        line.close()
        coordinator.close()


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


class TestCauses:
    broken = WorkerGone("exception", "RuntimeError: Connection closed by peer [127.0.0.1]:4242")

    @pytest.mark.parametrize(
        "cause",
        [
            WorkerGone("out_of_memory", "refused"),
            WorkerGone("crashed", "the process was killed (SIGKILL)"),
            WorkerGone("exception", "ValueError: bad", raised("bad")),
            WorkerGone("hung", "nothing was heard for 5 s"),
        ],
    )
    def test_a_broken_connection_is_no_cause(self, cause):
        assert cause_of({0: self.broken, 1: cause, 2: self.broken}) == (1, cause)

    def test_who_waited_did_not_hang_by_itself(self):
        waited = WorkerGone("hung", f"nothing was heard; {WAITED}")
        alone = WorkerGone("hung", "nothing was heard")
        assert cause_of({0: waited, 1: alone})[0] == 1

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

    def test_who_was_ended_with_the_others_is_no_cause(self):
        ended = WorkerGone("crashed", ENDED)
        assert cause_of({0: ended, 1: WorkerGone("hung", "nothing was heard")})[0] == 1
        assert cause_of({0: ended, 1: self.broken})[0] == 1

    def test_memory_explains_a_crash_elsewhere(self):
        cause = cause_of({0: WorkerGone("crashed", ""), 1: WorkerGone("out_of_memory", "")})
        assert cause[0] == 1

    def test_the_rank_is_named(self):
        assert with_rank(3, self.broken).detail.startswith("rank 3: RuntimeError")

    def test_a_taken_port_is_recognised(self):
        text = "The server socket has failed to listen: EADDRINUSE"
        assert port_was_taken(WorkerGone("exception", "", raised(text)))
        assert not port_was_taken(self.broken)


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
    said = Raised(
        kind="RuntimeError", text="connection closed by peer", traceback="", out_of_memory=False
    )
    assert worker._over(said).outcome == "exception"
    assert len(ended) == (ranks == 1)
