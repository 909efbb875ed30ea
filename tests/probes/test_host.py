"""What the machine says about itself, read from files of several kinds of system."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batchadvisor.probes.devices import host

GIB = 2**30
MIB = 2**20


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty machine: /proc and /sys/fs/cgroup lie in a temporary folder."""
    monkeypatch.setattr(host, "_CGROUP", tmp_path / "cgroup")

    def moved(path):
        return tmp_path / path.lstrip("/") if str(path).startswith("/proc") else Path(path)

    monkeypatch.setattr(host, "Path", moved)

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return write


@pytest.fixture
def machine(root):
    """One of 16 GiB, of which 10 are free."""
    root("proc/meminfo", f"MemTotal: {16 << 20} kB\nMemAvailable: {10 << 20} kB\n")
    return root


def limited(root, folder, limit, used):
    root(f"cgroup/{folder}memory.max", f"{limit}\n")
    root(f"cgroup/{folder}memory.current", f"{used}\n")


def memory():
    return host.total_bytes(), *host.available_bytes()


ALONE = (16 * GIB, 10 * GIB, "available memory of the machine")
IN_CGROUP = "memory left in the cgroup"


class TestMemory:
    def test_machine_alone(self, machine):
        assert memory() == ALONE
        limited(machine, "", "", "much")
        assert memory() == ALONE  # these files hold no numbers

    def test_cgroup_v2(self, machine):
        machine("proc/self/cgroup", "0::/user.slice/job\n")
        limited(machine, "user.slice/job/", 4 * GIB, 3 * GIB)
        machine("cgroup/user.slice/job/memory.stat", f"anon 5\ninactive_file {GIB}\nfile 7\n")
        assert memory() == (4 * GIB, 2 * GIB, IN_CGROUP)

    def test_the_limit_of_a_parent_holds(self, machine):
        machine("proc/self/cgroup", "0::/outer/inner\n")
        limited(machine, "outer/inner/", "max", 5)
        limited(machine, "outer/", 2 * GIB, GIB)
        assert memory() == (2 * GIB, GIB, IN_CGROUP)

    def test_container_that_names_a_path_it_cannot_see(self, machine):
        machine("proc/self/cgroup", "0::/docker/1234\n")
        limited(machine, "", GIB, 0)
        assert memory() == (GIB, GIB, IN_CGROUP)

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [(4 * GIB, (4 * GIB, 512 * MIB, IN_CGROUP)), (2**63 - 4096, ALONE)],
        ids=["limit", "no limit"],
    )
    def test_cgroup_v1(self, machine, limit, expected):
        machine("proc/self/cgroup", "3:cpu,cpuacct:/job\n2:memory:/job\n1:name=systemd:/x\n")
        machine("cgroup/memory/job/memory.limit_in_bytes", f"{limit}\n")
        machine("cgroup/memory/job/memory.usage_in_bytes", f"{4 * GIB}\n")
        machine("cgroup/memory/job/memory.stat", f"total_inactive_file {512 * MIB}\n")
        assert memory() == expected

    def test_over_the_limit_nothing_is_left(self, machine):
        limited(machine, "", GIB, 2 * GIB)
        assert memory() == (GIB, 0, IN_CGROUP)

    def test_without_proc(self, root):
        assert host.available_bytes() is None
        assert host.total_bytes() is None
        assert host.status_bytes("VmHWM") is None
        assert host.num_oom_kills() is None
        assert host.descendants(1) == []
        assert host.cpu_name() == os.uname().machine

    def test_here(self):
        available, source = host.available_bytes()
        assert 0 < available <= host.total_bytes()
        assert source
        assert host.status_bytes("VmHWM") >= host.status_bytes("VmRSS") > MIB


class TestCores:
    @pytest.mark.parametrize(
        ("quota", "cores"),
        [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("9900000 100000", 8)],
    )
    def test_quota(self, root, monkeypatch, quota, cores):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
        root("cgroup/cpu.max", quota + "\n")
        assert host.num_cores() == cores

    @pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("200000", 2), ("50000", 1)])
    def test_quota_v1(self, root, monkeypatch, quota, cores):
        """The smallest holds: here the parent's."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
        root("proc/self/cgroup", "4:memory:/\n1:cpu,cpuacct:/outer/inner\n")
        for folder, micros in (("outer", quota), ("outer/inner", "400000")):
            root(f"cgroup/cpu/{folder}/cpu.cfs_quota_us", micros + "\n")
            root(f"cgroup/cpu/{folder}/cpu.cfs_period_us", "100000\n")
        assert host.num_cores() == min(cores, 4)

    def test_affinity(self, root, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
        assert host.num_cores() == 2

    def test_no_affinity(self, root, monkeypatch):
        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        assert host.num_cores() == 1

    def test_name(self, root):
        root("proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU: fast\nflags : x\n")
        assert host.cpu_name() == "Some CPU: fast"


def test_memory_kills_are_counted_of_the_cgroup_else_of_the_machine(root):
    root("proc/vmstat", "nr_free_pages 5\noom_kill 7\n")
    assert host.num_oom_kills() == 7
    root("proc/self/cgroup", "0::/job\n")
    root("cgroup/job/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 9\n")
    assert host.num_oom_kills() == 2


class TestDescendants:
    def test_tree(self, root):
        for pid, parent, name in (
            (10, 1, "sh"),
            (11, 10, "python (x) y"),
            (12, 11, "worker"),
            (13, 10, "other"),
            (20, 1, "stranger"),
        ):
            root(f"proc/{pid}/stat", f"{pid} ({name}) S {parent} {pid} 0 0\n")
        root("proc/self/stat", "1 (x) S 10 0\n")
        assert host.descendants(10) == [11, 13, 12]
        assert host.descendants(20) == []

    def test_session(self, root):
        """The one that began it is dead; its orphan is known by the session."""
        root("proc/11/stat", "11 (worker) S 1 10 10 0\n")
        root("proc/20/stat", "20 (stranger) S 1 20 20 0\n")
        assert host.session_members(10) == [11]
        assert host.descendants(10) == []

    def test_here(self):
        assert os.getpid() in host.descendants(os.getppid())

    def test_names_of_any_bytes(self):
        """Also a stranger's: the kernel cuts a name in the middle of a character."""
        code = "import ctypes; ctypes.CDLL(None).prctl(15, 'naive-entraînée'.encode()); input()"
        with subprocess.Popen([sys.executable, "-c", code + "\n"], stdin=subprocess.PIPE) as named:
            stat = Path(f"/proc/{named.pid}/stat")
            deadline = time.monotonic() + 20
            while b"(naive-entra\xc3\xaen\xc3)" not in stat.read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert named.pid in host.descendants(os.getpid())
            named.communicate(b"\n")
