"""Scripts and machines that behave badly: each leaves a valid record, and nothing else."""

import functools
import json
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from batchadvisor.session.recording.store import read_record

from .ahead import Ahead, names_asked_for
from .driver import SCRIPTS, listing, run, run_preloaded, start

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "8,24")
OWN_SIZE = (*OPTIONS[:-1], "16")
"""Of plain.py: nothing is confirmed in a second process of the script."""

PRELUDES = {
    "forks": """
        import os, time
        for _ in range(2):
            if os.fork() == 0:
                time.sleep(0.2)
                os._exit(3)
        os.fork()  # both go on and train
        """,
    "changes directory": """
        import os
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        assert os.path.exists(__file__)
        """,
    "replaces stdout": """
        import sys
        class Odd:
            def write(self, text): return "not a number"
        sys.stdout.close()
        sys.stdout = Odd()
        sys.stderr = None
        """,
    "handles signals": """
        import signal
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, lambda *_: None)
        """,
    "prints 100 MB": """
        import os
        for _ in range(100):
            os.write(1, b"x" * 999_999 + b"\\n")
        """,
    "writes to every descriptor": """
        import os
        garbage = [b"\\0\\xff garbage\\n", b"{}\\n", b'{"type": "Result"}\\n', b"[" * 99 + b"\\n"]
        for descriptor in range(3, 64):
            for text in garbage:
                try:
                    os.write(descriptor, text)
                except OSError:
                    pass
        """,
    "replaces the clock": """
        import time
        time.time = lambda: -1e9
        """,
}


def script_with(prelude, folder):
    """plain.py with something before it."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(prelude) + (SCRIPTS / "plain.py").read_text())
    return path.name


@pytest.fixture(scope="module")
def adverse(request, tmp_path_factory):
    """The run of a script with a prelude, by its name."""

    def start(what):
        folder = tmp_path_factory.mktemp("adverse")
        name = script_with(PRELUDES[what], folder)
        return functools.partial(run_preloaded, "run", *OPTIONS, name, folder=folder)

    ahead = Ahead(names_asked_for(request.session, "what", PRELUDES), start)
    yield ahead
    ahead.close()


@pytest.mark.parametrize("what", PRELUDES)
def test_a_script_that(adverse, what):
    done = adverse(what)
    assert done.code == 0, done
    assert done.left == []
    assert done.record.state == "finished"
    search = done.searched
    assert [(trial.batch_size, trial.outcome) for trial in search] == [(8, "ok"), (24, "ok")]
    assert done.advice.recommended.batch_size == 24
    there = {path.name for path in done.folder.iterdir()} - {"out", "train.py"}
    assert there == ({"elsewhere"} if what == "changes directory" else set())


def test_a_change_of_directory_leaves_the_place_right(adverse):
    """The line to change is named as it is seen from where the command was typed."""
    done = adverse("changes directory")
    file = done.advice.change.split(":")[0]
    assert (done.folder / file).samefile(done.folder / "train.py")
    assert "batch_size=16 → batch_size=24" in done.advice.change
    assert {touched.path for touched in done.record.files} == {"elsewhere"}


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
static long calls;
static long jump(void) { return (calls++ % 7 - 3) * 86400; }
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += jump();
    return result;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def test_a_clock_that_jumps(tmp_path, monkeypatch):
    """The wall clock jumps by days with every reading; no time in the record comes from it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    command = [compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    code = "import time; print(max(abs(time.time() - time.time()) for _ in range(9)))"
    assert float(subprocess.check_output([sys.executable, "-c", code])) > 80_000
    started_s = time.monotonic()
    done = run("run", *OWN_SIZE, SCRIPTS / "plain.py", folder=tmp_path)
    took_s = time.monotonic() - started_s
    monkeypatch.delenv("LD_PRELOAD")
    assert done.code == 0, done
    assert done.left == []
    record = done.record
    assert 0 < record.search_s <= record.elapsed_s <= took_s
    timed = [trial for trial in record.trials if trial.step_s is not None]
    assert timed
    assert all(0 < trial.step_s.median < took_s for trial in timed)


class TestFolders:
    def test_two_runs_into_one(self, tmp_path):
        """The second is refused at once, and the first does not notice."""
        waits = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
        (tmp_path / "waits.py").write_text(waits + (SCRIPTS / "plain.py").read_text())
        job = start("run", *OPTIONS, "waits.py", folder=tmp_path, preloaded=True)
        job.wait_for(lambda: read_record(tmp_path / "out"), "the first run's record")
        second = run("run", "--resume", "out", "-q", "waits.py", folder=tmp_path)
        (tmp_path / "go").touch()
        second.assert_refused()
        assert "another run is writing into out" in second.error
        done = job.finish()
        assert done.code == 0, done
        assert done.left == []
        third = run("run", *OPTIONS, SCRIPTS / "plain.py", folder=tmp_path)
        third.assert_refused()
        assert "out holds a run already" in third.error

    def test_a_read_only_file_system(self, mounted):
        folder = mounted("-o", "ro,size=1m")
        done = run("run", "-q", SCRIPTS / "plain.py", folder=folder)
        done.assert_refused()
        assert "cannot write into" in done.error
        assert "Read-only file system" in done.error
        assert listing(folder) == {}

    def test_a_full_disk(self, mounted):
        """What was measured before it was full is in the record; the answer is printed."""
        folder = mounted("-o", "size=64k")
        name = script_with(FILLS, folder)
        done = run_preloaded("run", *OPTIONS[:-1], "8,16,24,32,40,48", name, folder=folder)
        assert done.code == 1, done
        assert "No space left on device" in done.error
        assert "Traceback" not in done.stderr
        assert done.left == []
        record = read_record(folder / "out")
        assert record.trials
        assert {trial.outcome for trial in record.trials} == {"ok"}
        assert not list((folder / "out").glob(".record*"))


FILLS = """
import os, threading
def fill():
    import time
    while not os.path.exists("out/record.json") or b'"trials": [{' not in open(
        "out/record.json", "rb"
    ).read().replace(b"\\n", b"").replace(b"  ", b"").replace(b"[ {", b"[{"):
        time.sleep(0.01)
    with open("filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            pass
threading.Thread(target=fill, daemon=True).start()
"""


@pytest.fixture
def mounted(tmp_path):
    """Mounts small file systems in memory, where this may be done."""
    folders = []

    def mount(*options):
        folder = Path(tmp_path) / f"disk{len(folders)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here")
        if done.returncode:
            pytest.skip(f"may not mount a file system: {done.stderr.strip()}")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("closing", ["<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(tmp_path, closing):
    """As some service managers start programs: our pipes must not take their numbers."""
    launcher = ("sh", "-c", f'exec "$0" "$@" {closing}', sys.executable)
    done = run("run", *OWN_SIZE, SCRIPTS / "plain.py", folder=tmp_path, launcher=launcher)
    assert done.code == 0, done
    assert done.left == []
    assert (done.stdout == "") is (">&-" in closing)
    assert {trial.outcome for trial in done.record.trials} == {"ok"}


def test_json_stays_json_whatever_the_script_prints(adverse):
    done = adverse("prints 100 MB")
    assert set(json.loads(done.stdout)) >= {"record", "advice"}
    assert len(done.stdout) < 1_000_000
    there = {path.split("/")[0] for path in listing(done.folder / "out")}
    assert there - {"traces"} == {"record.json", "samples.jsonl", "script.log"}
