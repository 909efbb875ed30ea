"""What took time from outside, by name: snapshots on paper, and real neighbours."""

import json
import os
import subprocess
import sys

import pytest
from batchadvisor.probes.devices import cores, host, neighbours
from batchadvisor.probes.devices.cores import Clock, Process, Quota, Snapshot
from batchadvisor.probes.devices.neighbours import Surroundings, causes_between

from ..needs import bench

loads = bench("loads")
ME, PARENT = 100, 50
SPINS = """
import os, sys, threading, time
import msgspec
from batchadvisor.probes.devices.neighbours import Surroundings
num_threads, num_processes, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
around = Surroundings(num_threads)
end = time.monotonic() + seconds
children = [os.fork() or 0 for _ in range(num_processes - 1)]
while time.monotonic() < end:
    pass
if 0 in children:
    os._exit(0)
print(msgspec.json.encode(around.causes()).decode())
"""


def process(name="python", own_s=0.0, **fields):
    usual = {
        "parent": 1, "session": 1, "started": 7, "running": True, "core": 0, "children_s": 0.0
    }  # fmt: skip
    return Process(name=name, own_s=own_s, **{**usual, **fields})


def snap(at_s=0.0, processes=None, *, busy_s=0.0, stolen_s=0.0, **fields):
    """A machine of two cores with this process and its parent on it."""
    ours = {ME: process(parent=PARENT, session=ME), PARENT: process("batchadvisor")}
    usual = {
        "num_cores": 2, "all_cores": True, "cores": frozenset({0, 1}), "quotas": {},
        "pressure_s": None, "clock": None,
    }  # fmt: skip
    return Snapshot(
        at_s=at_s,
        processes={**ours, **(processes or {})},
        busy_s=busy_s,
        stolen_s=stolen_s,
        **{**usual, **fields},
    )


def causes(before, after, *, num_threads=2, own=(), num_cores=2):
    """Causes by kind."""
    disturbances = causes_between(
        before, after, me=ME, own=own, num_threads=num_threads, num_cores=num_cores
    )
    return {cause.kind: cause for cause in disturbances}


def mine(own_s):
    return {ME: process(own_s=own_s, parent=PARENT, session=ME)}


def beside(others, *, own_s=10.0, busy_s=19.0, before=None):
    """What is said of other programs after ten seconds."""
    after = snap(10.0, {**mine(own_s), **others}, busy_s=busy_s)
    return causes(snap(0.0, before), after)["processes"]


THREE = {200: process("rustc"), 201: process("rustc"), 202: process("rustc")}
LATER = "run it at another hour"
BESIDE = {
    "several of one name": (
        {number: process("python3", 1.8) for number in range(200, 205)}, {},
        "(python3 0.9)", f"stop python3, or {LATER}"),
    # No number of threads leaves them their cores.
    "three that run": (
        {number: process("rustc", 3.0) for number in THREE}, THREE,
        "(rustc 0.9)", f"stop rustc, or {LATER}; {neighbours.PASSIVE}"),
    # As with compilers under make; what they had used before does not count. It runs at both ends.
    "programs that ended, for who waited for them": (
        {200: process("make", 1.0, children_s=65.0)},
        {200: process("make", 1.0, children_s=50.0), 201: process("cc1", 6.0, parent=200)},
        "(make 0.9)", f"stop make, or {LATER}; OMP_NUM_THREADS=1 leaves them their cores"),
    "a number given again": (
        {200: process("new", 9.0, started=2)},
        {200: process("old", 500.0, started=1)},
        "(new 0.9)", f"stop new, or {LATER}"),
    # /proc with hidepid, or the neighbour of another container.
    "hidden names": ({}, {}, "used 0.9 of 2 cores (name not readable)", LATER),
    "half of the names hidden": (
        {200: process("rustc", 4.0)}, {},
        "(rustc 0.4, name not readable 0.5)", f"stop rustc, or {LATER}"),
    "the kernel": ({7: process("kernel", 9.0)}, {}, "(kernel 0.9)", LATER),
}  # fmt: skip


class TestProcesses:
    @pytest.mark.parametrize("who", BESIDE)
    def test_who_took_the_cores_and_what_to_stop(self, who):
        others, before, named, remedy = BESIDE[who]
        cause = beside(others, before=before)
        assert cause.message.endswith(named)
        assert cause.remedy == remedy

    def test_equal_names_are_summed_and_three_are_said(self):
        others = {
            200: process("rustc", 4.0), 201: process("rustc", 3.0), 202: process("make", 2.0),
            203: process("cc1", 1.0), 204: process("ld", 0.6), 205: process("idle", 0.0),
        }  # fmt: skip
        after = snap(10.0, {**mine(9.0), **others}, busy_s=19.6, pressure_s=6.3)
        cause = causes(snap(pressure_s=0.0), after)["processes"]
        assert cause.message == (
            "other programs used 1.1 of 2 cores (rustc 0.7, make 0.2, cc1 0.1), "
            "and 63% of the time some program waited for a core"
        )
        assert cause.cores == pytest.approx(1.06)
        assert cause.lost_s == pytest.approx(10.6)
        assert cause.remedy == "stop rustc, make, cc1, or run it at another hour"

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            ("python3 -u /home/me/train2.py --epochs 3", "python3 train2.py [pid 200]"),
            ("python3 -m torch.distributed.run x.py", "python3 -m torch.distributed.run [pid 200]"),
            ("python3 -", "python3 [pid 200]"),
            ("", "python3 [pid 200]"),
        ],
    )
    def test_an_interpreter_is_told_by_what_it_runs(self, monkeypatch, command, told):
        monkeypatch.setattr(neighbours, "command_of", lambda pid: command.split(" "))
        cause = beside({200: process("python3", 9.0)}, own_s=9.0, busy_s=18.0)
        assert f"({told} 0.9)" in cause.message
        assert cause.remedy.startswith(f"stop {told}, or run it")

    def test_a_core_for_everybody_is_no_cause(self):
        """One thread beside one busy program on two cores: the machine is full, nobody waits."""
        after = snap(10.0, {**mine(10.0), 200: process("rustc", 10.0)}, busy_s=20.0)
        assert causes(snap(), after, num_threads=1) == {}
        assert "processes" in causes(snap(), after, num_threads=None)

    @pytest.mark.parametrize(("busy_s", "own_s"), [(16.0, 10.0), (19.0, 18.0), (19.0, 25.0)])
    def test_little_or_much_room(self, busy_s, own_s):
        assert causes(snap(), snap(10.0, mine(own_s), busy_s=busy_s)) == {}

    def test_what_the_trial_started_is_its_own(self):
        """Also an orphan of its session, a data worker that ended, and what the caller names."""
        spent = {
            ME: process(own_s=8.0, children_s=4.0, parent=PARENT, session=ME),
            PARENT: process("batchadvisor", 0.5),
            101: process("loader", 2.0, parent=ME, session=ME),
            102: process("orphan", 2.0, parent=1, session=ME),
            300: process("second worker", 2.0, parent=PARENT, session=300),
        }
        after = snap(10.0, spent, busy_s=19.0)
        assert causes(snap(), after, own=(300,)) == {}
        others = causes(snap(), after)["processes"]
        assert others.cores == pytest.approx(0.25)
        assert "(second worker 0.2)" in others.message

    def test_some_cores_only(self):
        """Names without cores: which core a program used is not known."""
        pinned = {"num_cores": 1, "all_cores": False, "cores": frozenset({3})}
        here, there = process("rustc", 9.0, core=3), process("make", 9.0, core=0)
        after = snap(10.0, {**mine(5.0), 200: here, 201: there}, busy_s=10.0, **pinned)
        cause = causes(snap(**pinned), after, num_threads=1, num_cores=1)["processes"]
        assert cause.message == "other programs used 0.5 of the 1 core that it may use (rustc)"


class TestOtherCauses:
    @pytest.fixture(autouse=True)
    def nobody_asked_for_threads(self, monkeypatch):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def test_hypervisor(self):
        cause = causes(snap(), snap(10.0, mine(10.0), busy_s=10.0, stolen_s=3.6))["hypervisor"]
        assert cause.message == "the hypervisor took 0.4 of 2 cores"
        assert cause.lost_s == pytest.approx(3.6)
        assert causes(snap(), snap(10.0, mine(10.0), busy_s=10.0, stolen_s=0.4)) == {}

    def test_quota_of_a_parent(self):
        inner = {"/a/b": Quota(cores=4.0, throttled_s=1.0)}
        before = snap(quotas={**inner, "/a": Quota(cores=1.0, throttled_s=5.0)})
        quotas = {**inner, "/a": Quota(cores=1.0, throttled_s=14.0)}
        after = snap(10.0, mine(10.0), busy_s=10.0, quotas=quotas)
        by_kind = causes(before, after, num_cores=1)
        assert by_kind["quota"].message == (
            "the cgroup's CPU quota of 1 core was used up and held back 9.0 core-seconds"
        )
        assert by_kind["quota"].remedy.endswith("or set OMP_NUM_THREADS=1")
        assert by_kind["threads"].remedy == "set OMP_NUM_THREADS=1"
        assert "quota" not in causes(after, snap(20.0, quotas=after.quotas))

    def test_half_a_core_is_too_little_for_any_number_of_threads(self):
        before, after = (
            snap(at_s, quotas={"/": Quota(cores=0.5, throttled_s=at_s)}) for at_s in (0.0, 9.0)
        )
        assert "OMP" not in causes(before, after)["quota"].remedy

    @pytest.mark.parametrize(
        ("first", "last", "base", "slow"),
        [(1200, 1200, None, True), (1200, 3500, None, False), (3500, 1200, None, False),
         (2900, 2900, None, True), (2900, 2900, 2400, False), (1200, 1200, 2400, True)],
    )  # fmt: skip
    def test_frequency(self, first, last, base, slow):
        before, after = (
            Clock(khz=1000 * mhz, highest_khz=3_900_000, base_khz=base and 1000 * base,
                  allowed_khz=3_900_000, governor="powersave")
            for mhz in (first, last)
        )  # fmt: skip
        by_kind = causes(snap(clock=before), snap(10.0, clock=after))
        assert ("frequency" in by_kind) == slow
        if slow:
            assert by_kind["frequency"].remedy == (
                "cpupower frequency-set --governor performance (it is powersave)"
            )

    def test_a_clock_held_down_by_a_setting(self):
        clock = Clock(khz=1_500_000, highest_khz=3_900_000, allowed_khz=1_500_000)
        cause = causes(snap(clock=clock), snap(10.0, clock=clock))["frequency"]
        assert cause.message == "the core ran at 1.5 of 3.9 GHz"
        assert cause.remedy == "allow more: cpupower frequency-set --max 3.90GHz"

    @pytest.mark.parametrize(
        ("variable", "remedy"),
        [("", "set OMP_NUM_THREADS=2"), ("8", "set OMP_NUM_THREADS=2"),
         ("2", "torch.set_num_threads(2), which the script sets higher")],
    )  # fmt: skip
    def test_threads(self, monkeypatch, variable, remedy):
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
        cause = causes(snap(), snap(10.0), num_threads=8)["threads"]
        assert cause.message == "torch computes with 8 threads on 2 cores"
        assert cause.remedy == remedy

    def test_nothing_readable(self):
        before, after = (snap(at_s, busy_s=None, stolen_s=None) for at_s in (0.0, 10.0))
        assert causes(before, after) == {}
        assert causes(before, after, num_threads=None) == {}

    def test_too_short_to_say(self):
        assert causes(snap(), snap(0.04, busy_s=0.08, stolen_s=0.08)) == {}


class TestSnapshot:
    def test_here(self):
        now = cores.snapshot()
        assert now.processes[os.getpid()].parent == os.getppid()
        assert now.busy_s > 0 <= now.stolen_s
        assert now.num_cores == len(os.sched_getaffinity(0))

    def test_without_linux(self, tmp_path, monkeypatch):
        """No /proc, no /sys, no affinity: nothing raised and nothing claimed."""
        monkeypatch.setattr(cores, "_PROC", tmp_path / "proc")
        monkeypatch.setattr(cores, "_CPUS", tmp_path / "cpu")
        monkeypatch.setattr(host, "_CGROUP", tmp_path / "cgroup")
        monkeypatch.delattr(os, "sched_getaffinity")
        around = Surroundings(num_threads=1)
        now = around._before
        assert (now.processes, now.busy_s, now.pressure_s, now.clock) == ({}, None, None, None)
        assert around.causes() == ()

    def test_broken_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cores, "_PROC", tmp_path)
        for name, text in (
            ("stat", "cpu  1 2 3\ncpu0 1 2\nintr 5\n"), ("5/stat", "5 (cut"), ("6/stat", ""),
            ("pressure/cpu", "full avg10=0 total=8\nsome avg10=0.00\n"),
        ):  # fmt: skip
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        now = cores.snapshot()
        assert (now.busy_s, now.processes, now.pressure_s) == (None, {}, None)

    def test_names_of_any_bytes(self):
        """A name is the neighbour's own: it must not speak to the terminal."""
        words = b" R 1 1 1 0 0 0 0 0 0 0 300 100 0 0 20 0 1 0 9".split()
        assert cores._process(b"a\x1b[2J (x\xc3", words, 0.01).name == "a?[2J (x\ufffd"
        assert cores._process(b"a", words, 0.01).own_s == pytest.approx(4.0)

    def test_quota_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(host, "cgroup_folders", lambda _: [tmp_path])
        (tmp_path / "cpu.stat").write_text("usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n")
        (tmp_path / "cpu.max").write_text("150000 100000\n")
        assert cores.snapshot().quotas == {str(tmp_path): Quota(cores=1.5, throttled_s=2.5)}
        (tmp_path / "cpu.max").write_text("max 100000\n")
        assert cores.snapshot().quotas == {}
        (tmp_path / "cpu.max").unlink()
        (tmp_path / "cpu.stat").write_text("nr_periods 4\nthrottled_time 500000000\n")
        (tmp_path / "cpu.cfs_quota_us").write_text("50000\n")
        (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
        assert cores.snapshot().quotas == {str(tmp_path): Quota(cores=0.5, throttled_s=0.5)}

    def test_frequency_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cores, "_CPUS", tmp_path)
        for core in range(os.cpu_count()):
            folder = tmp_path / f"cpu{core}" / "cpufreq"
            folder.mkdir(parents=True)
            (folder / "scaling_cur_freq").write_text("1500000\n")
            (folder / "cpuinfo_max_freq").write_text("3900000\n")
        assert cores.snapshot().clock == Clock(khz=1_500_000, highest_khz=3_900_000)


def spin(num_threads, *, wrapped=lambda command: command, num_processes=1, seconds=1.5):
    """The causes that a process sees which spins meanwhile, by kind."""
    own = [sys.executable, "-c", SPINS, str(num_threads), str(num_processes), str(seconds)]
    done = subprocess.run(wrapped(own), capture_output=True, text=True, timeout=60, check=True)
    return {cause["kind"]: cause for cause in json.loads(done.stdout)}


class TestHere:
    """Real neighbours of a real process."""

    def test_a_busy_neighbour_by_name(self):
        num_cores = len(os.sched_getaffinity(0))
        with loads.neighbours(num_cores, "busyneighbour"):
            by_kind = spin(num_cores, num_processes=num_cores)
        assert "busyneighbour" in by_kind["processes"]["message"]
        assert by_kind["processes"]["cores"] > 0.2 * num_cores
        assert "stop " in by_kind["processes"]["remedy"]

    def test_quota(self):
        try:
            with loads.quota(0.2) as inside:
                by_kind = spin(1, wrapped=inside)
        except loads.Unavailable as reason:
            pytest.skip(str(reason))
        assert "quota of 0.2 cores" in by_kind["quota"]["message"]
        assert by_kind["quota"]["lost_s"] > 0.2
        assert "threads" not in by_kind
