"""What the kernel counted while a step ran: read from files on paper, and from the real ones."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from batchadvisor.probes.windows import step_evidence
from batchadvisor.probes.windows.page_faults import page_faults
from batchadvisor.probes.windows.step_evidence import EvidenceReader, Reading, StepEvidence, between
from hypothesis import given
from hypothesis import strategies as st

OPEN_FILES = Path("/proc/self/fd")
HAS_WAITING = Path("/proc/self/schedstat").exists()


class Files:
    """The kernel's files on paper."""

    def __init__(self, folder):
        self.tasks = folder / "task"
        self.stat = folder / "stat"
        self.quota = folder / "cpu.stat"
        self.made = []
        self.tasks.mkdir()
        self.thread(os.getpid(), 0)
        self.stolen(0)
        self.quota.write_text("usage_usec 1\nthrottled_usec 0\n")

    def thread(self, number, delay_ns):
        path = self.tasks / str(number)
        path.mkdir(exist_ok=True)
        (path / "schedstat").write_text(f"123456 {delay_ns} 7\n")

    def ended(self, number):
        (self.tasks / str(number) / "schedstat").write_text("")

    def stolen(self, ticks):
        self.stat.write_text(f"cpu  1 2 3 4 5 6 7 {ticks} 0 0\ncpu0 1 2 3 4 5 6 7 {ticks} 0 0\n")

    def reader(self):
        self.made.append(EvidenceReader(self.tasks, self.stat, (self.quota,)))
        return self.made[-1]


@pytest.fixture
def files(tmp_path):
    files = Files(tmp_path)
    yield files
    for reader in files.made:
        reader.close()


@pytest.fixture
def always_dear(monkeypatch):
    """All counters are read each time, whatever that costs."""
    monkeypatch.setattr(step_evidence, "DEAR_SHARE", float("inf"))


def reading(delays=None, stolen_s=None, throttled_s=None):
    return Reading(
        delays or {}, stolen_s, throttled_s, switches=None, thread_s=0.0, process_s=0.0, stops=None
    )


@pytest.mark.usefixtures("always_dear")
class TestOnPaper:
    def test_of_the_thread_that_waited_longest(self, files):
        files.thread(7, 100)
        reader = files.reader()
        before = reader.read()
        files.thread(os.getpid(), 2_000_000)
        files.thread(7, 30_000_100)
        assert between(before, reader.read()).delay_s == pytest.approx(0.03)

    def test_stolen_time_is_counted_in_ticks(self, files):
        reader = files.reader()
        before = reader.read()
        files.stolen(25)
        stolen_s = between(before, reader.read()).stolen_s
        assert stolen_s == pytest.approx(25 / os.sysconf("SC_CLK_TCK"))

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("usage_usec 9\nnr_throttled 4\nthrottled_usec 350000\n", 0.35),
            ("nr_periods 8\nnr_throttled 4\nthrottled_time 350000000\n", 0.35),
            ("usage_usec 9\n", None),
            ("", None),
            ("throttled_usec nonsense\n", None),
        ],
    )
    def test_throttled_of_both_cgroup_versions(self, files, text, seconds):
        files.quota.write_text(text)
        assert files.reader().read().throttled_s == pytest.approx(seconds)

    def test_a_thread_that_ends_is_left_out(self, files):
        files.thread(7, 5)
        reader = files.reader()
        before = reader.read()
        files.ended(7)
        after = reader.read()
        assert set(before.delays_ns) == {os.getpid(), 7}
        assert set(after.delays_ns) == {os.getpid()}
        assert between(before, after).delay_s == 0

    def test_a_thread_that_began_counts_from_the_next_renewal(self, files):
        reader = files.reader()
        files.thread(7, 10**9)
        before = reader.read()
        assert 7 not in before.delays_ns
        reader.renew()
        after = reader.read()
        assert between(before, after).delay_s == 0  # what it waited before is no step's
        files.thread(7, 3 * 10**9)
        assert between(after, reader.read()).delay_s == pytest.approx(2)

    def test_a_kernel_that_counts_nothing(self, files):
        """No file of a thread, none of the machine, none of a quota."""
        (files.tasks / str(os.getpid()) / "schedstat").unlink()
        files.stat.unlink()
        files.quota.unlink()
        reader = files.reader()
        assert set(reader.unavailable) == {"delay_s", "stolen_s"}
        evidence = between(reader.read(), reader.read())
        assert evidence.delay_s is evidence.stolen_s is evidence.throttled_s is None
        assert evidence.process_s >= 0

    @pytest.mark.skipif(not OPEN_FILES.exists(), reason="open files are not listed here")
    def test_close_leaves_no_file_open(self, files):
        before = len(list(OPEN_FILES.iterdir()))
        reader = files.reader()
        assert len(list(OPEN_FILES.iterdir())) == before + 3
        reader.close()
        reader.close()
        assert len(list(OPEN_FILES.iterdir())) == before


def test_only_the_main_thread_is_read_while_the_rest_would_cost_too_much(files, monkeypatch):
    files.thread(7, 0)
    monkeypatch.setattr(step_evidence, "DEAR_SHARE", 0.0)
    reader = files.reader()
    files.thread(7, 10**9)
    files.thread(os.getpid(), 5_000_000)
    files.stolen(100)
    sample = reader.read()
    assert sample.delays_ns == {os.getpid(): 5_000_000, 7: 0}
    assert sample.stolen_s == 0


class TestBetween:
    def test_counters_that_go_back_are_no_negative_time(self):
        """A machine that was moved or slept."""
        evidence = between(reading(stolen_s=5.0, throttled_s=2.0), reading(stolen_s=1.0))
        assert evidence.stolen_s == 0
        assert evidence.throttled_s is None
        assert evidence.delay_s is None

    def test_a_reused_thread_number_only_counts_if_it_was_there_before(self):
        assert between(reading({1: 5}), reading({1: 5, 2: 10**9})).delay_s == 0
        assert between(reading({2: 5}), reading({1: 5})).delay_s is None

    @given(st.integers(1, 20), st.floats(0, 100), st.integers(0, 1000))
    def test_parts_share_what_was_counted_together(self, parts, delay_s, switches):
        evidence = StepEvidence(delay_s=delay_s, switches=switches).per(parts)
        assert evidence.delay_s * parts == pytest.approx(delay_s)
        assert evidence.switches * parts == pytest.approx(switches)
        assert evidence.stolen_s is None


@pytest.mark.skipif(not HAS_WAITING, reason="the kernel counts no waiting for a core here")
class TestRealOne:
    def test_work_takes_cpu_time_and_sleep_takes_none(self):
        reader = EvidenceReader()
        start = reader.read()
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s:
            pass
        worked = reader.read()
        time.sleep(0.02)
        slept = between(worked, reader.read())
        evidence = between(start, worked)
        reader.close()
        assert evidence.thread_s >= 0.02
        assert evidence.process_s >= evidence.thread_s * 0.99
        assert slept.thread_s < 0.01
        assert evidence.delay_s is not None
        assert evidence.delay_s >= 0

    def test_threads_that_end_meanwhile_disturb_nothing(self):
        stop = threading.Event()
        threads = [threading.Thread(target=stop.wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        reader = EvidenceReader()
        before = reader.read()
        stop.set()
        for thread in threads:
            thread.join()
        for _ in range(50):
            evidence = between(before, reader.read())
        reader.renew()
        reader.close()
        assert evidence.delay_s is not None


def test_full_collections_are_timed():
    before = list(gc.callbacks)
    reader = EvidenceReader()
    start = reader.read()
    gc.collect(0)
    young = reader.read()
    gc.collect()
    end = reader.read()
    reader.close()
    assert between(start, young).collections == between(start, young).collected_s == 0
    evidence = between(young, end)
    assert evidence.collections == 1
    assert 0 < evidence.collected_s <= end.at_s - young.at_s
    assert evidence.per(2).collections == 0.5
    assert gc.callbacks == before


STEPS = """
import sys, time
from batchadvisor.probes.windows.step_evidence import EvidenceReader, between
reader = EvidenceReader()
for _ in range(3):
    before = reader.read()
    print("step", flush=True)
    sys.stdin.readline()
    print(between(before, reader.read()).stops, flush=True)
reader.close()
import signal
print(signal.getsignal(signal.SIGCONT) is signal.SIG_DFL)
"""


@pytest.fixture
def continued():
    """The signal as it was before, and is again after the test."""
    before = signal.getsignal(signal.SIGCONT)
    yield
    signal.signal(signal.SIGCONT, before)


class TestStops:
    def test_a_stopped_process_counts_it_in_the_step_where_it_happened(self):
        with subprocess.Popen(
            [sys.executable, "-c", STEPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            told = []
            for stops in (0, 1, 0):
                assert process.stdout.readline() == "step\n"
                if stops:
                    process.send_signal(signal.SIGSTOP)
                    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
                    process.send_signal(signal.SIGCONT)
                    os.waitid(os.P_PID, process.pid, os.WCONTINUED)
                process.stdin.write("go on\n")
                process.stdin.flush()
                told.append(int(process.stdout.readline()))
            assert process.stdout.readline() == "True\n", "the signal is as it was"
        assert told == [0, 1, 0]

    @pytest.mark.usefixtures("continued")
    def test_a_script_that_handles_it_keeps_its_handler(self):
        def own(*_):
            pass

        signal.signal(signal.SIGCONT, own)
        reader = EvidenceReader()
        assert reader.read().stops is None
        assert "SIGCONT" in reader.unavailable["stops"]
        reader.close()
        assert signal.getsignal(signal.SIGCONT) is own

    def test_stops_that_give_a_process_its_share_are_no_disturbance(self):
        reader = EvidenceReader(paced=True)
        assert signal.getsignal(signal.SIGCONT) is signal.SIG_DFL
        assert reader.read().stops is None
        assert "stops" not in reader.unavailable
        reader.close()

    @pytest.mark.usefixtures("continued")
    def test_a_script_that_takes_it_later_too(self):
        reader = EvidenceReader()
        assert callable(signal.signal(signal.SIGCONT, signal.SIG_IGN))
        assert reader.read().stops is None
        reader.close()
        assert signal.getsignal(signal.SIGCONT) is signal.SIG_IGN


class TestPageFaults:
    """What they cost a step: their number."""

    def test_a_heap_that_grows_once_is_no_step_s_cost(self):
        assert page_faults([20_000, 0, 10, 5], 0.01) is None

    def test_one_step_tells_nothing(self):
        assert page_faults([20_000, None], 0.01) is None

    def test_each_step_has_its_own(self):
        counted = page_faults([12_000, 12_100, None, 11_900], 0.02)
        assert counted.num == 11_950
        assert 0 < counted.each_s < 1e-3
