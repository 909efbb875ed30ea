"""`batchadvisor view`, started as a user does."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.features.board import view

from ..ports import free_ports
from . import zoo

COMMAND = [sys.executable, "-m", "batchadvisor", "view"]


@pytest.fixture
def work(tmp_path):
    """A working folder with two runs; `new` is the newest."""
    for name, modified_s in (("old", 1_000_000_000), ("new", 2_000_000_000)):
        folder = tmp_path / "batchadvisor-runs" / name
        path = zoo.put_record(folder, zoo.CHAR_GPT.read_bytes())
        os.utime(path, (modified_s, modified_s))
    zoo.cpu_trace(tmp_path / "batchadvisor-runs/new/traces/batch_size=0008/w0.1.pt.trace.json.gz")
    return tmp_path


def failing(work, *arguments):
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=work, env=zoo.environment(), capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.returncode, done.stderr


def viewing(work, port, tab, **options):
    """The command as a process of its own, with or without the profiler's tab."""
    return subprocess.Popen(
        [*COMMAND, "--port", str(port), "--pytorch-profiler-tab", tab], cwd=work,
        env=zoo.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def asked(address, **headers):
    """Status and text of an answer, also of a refusal."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def group(number):
    """The processes of a group that have not ended."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of) == number and state != "Z":
                pids.append(int(stat.parent.name))
    return pids


class TestServe:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_serves_until_it_is_ended(self, work, number):
        port = free_ports()
        with viewing(work, port, "off") as process:
            lines = [process.stdout.readline().strip() for _ in range(3)]
            assert lines[0] == "Showing batchadvisor-runs"
            address = re.fullmatch(r"Open +(http://127\.0\.0\.1:\d+/)#batch_advisor", lines[1])
            assert address.group(1) == f"http://127.0.0.1:{port}/"
            with urllib.request.urlopen(address.group(1) + "data/plugins_listing") as answer:
                listing = answer.read().decode()
            assert "batch_advisor" in listing
            assert "pytorch_profiler" not in listing
            with urllib.request.urlopen(f"{address.group(1)}{zoo.PLUGIN}/entries") as answer:
                names = [entry["name"] for entry in json.load(answer)["entries"]]
            assert names == ["new", "old"], "the newest first: the tab opens it"
            assert asked(address.group(1), Host=f"localhost:{port + 1}")[0] == 200, "a tunnel"
            for foreign in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
                status, text = asked(f"{address.group(1)}{zoo.PLUGIN}/entries", Host=foreign)
                assert status == 403, "a name that was made to point here reads nothing"
                assert foreign in text
                assert "char_gpt" not in text
            process.send_signal(number)
            rest, errors = process.communicate(timeout=30)
        assert (process.returncode, errors.strip()) == (0, "")
        assert rest == ""
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    @pytest.mark.slow
    def test_no_traceback_of_the_profiler_plugin_is_shown(self, work):
        """Neither of a trace that it cannot read nor of a request that it cannot answer."""
        traces = work / "batchadvisor-runs/new/traces"
        (traces / "odd").mkdir()
        (traces / "odd/w0.2.pt.trace.json").write_text("[1]")
        (traces / "cut").mkdir()
        whole = (traces / "batch_size=0008/w0.1.pt.trace.json.gz").read_bytes()
        (traces / "cut/w0.3.pt.trace.json.gz").write_bytes(whole[:60])
        with viewing(work, 0, "on") as process:
            lines = []
            while not lines or "Press Ctrl-C to end it." not in lines[-1]:
                lines.append(process.stdout.readline())
            said = "".join(lines)
            assert "TORCH_PROFILER_LOG_LEVEL=WARNING says why" in said
            plugin = (
                re.search(r"http://127\.0\.0\.1:\d+/", said)[0] + "data/plugin/pytorch_profiler/"
            )
            end_s = time.monotonic() + 90
            while time.monotonic() < end_s:
                listing = json.loads(asked(f"{plugin}runs")[1])
                if len(listing["runs"]) == 3 and not listing["loading"]:
                    break
                time.sleep(0.2)
            (run,) = (run for run in listing["runs"] if "batch_size" in run)
            query = f"run={run}&worker=w0&span=1&group_by=Operation&op_name=none&input_shape="
            status, text = asked(f"{plugin}operation/stack?{query}")
            assert (status, text) == (500, "This plugin failed here: KeyError: 'none'\n")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert errors.strip() == ""

    @pytest.mark.slow
    @pytest.mark.parametrize("when", ["the plugin starts a process", "it serves"])
    def test_ctrl_c_reaches_no_process_of_the_profiler_plugin(self, work, when):
        """A terminal sends it to the whole group, also to one process a trace."""
        for size in range(16, 22):
            trace = f"batchadvisor-runs/new/traces/batch_size={size:04}/w0.1.pt.trace.json.gz"
            zoo.cpu_trace(work / trace)
        with viewing(work, 0, "on", start_new_session=True) as process:
            if when == "it serves":
                while "Press Ctrl-C to end it." not in process.stdout.readline():
                    pass
            else:
                end_s = time.monotonic() + 60
                while len(group(process.pid)) < 5 and time.monotonic() < end_s:
                    time.sleep(0.02)
            assert len(group(process.pid)) > 1, "nothing was started"
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert errors.strip() in ("", "Interrupted.")
        assert process.returncode in (0, 130)
        end_s = time.monotonic() + 10
        while group(process.pid) and time.monotonic() < end_s:  # the resource tracker goes last
            time.sleep(0.05)
        assert group(process.pid) == []

    def test_a_taken_port(self, work):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            code, error = failing(work, "--port", str(port))
        assert code == 2
        assert f"port {port} is in use" in error
        assert "--port" in error


class TestErrors:
    @pytest.mark.parametrize(
        ("logdir", "words"),
        [
            ("missing", "there is no folder missing"),
            ("batchadvisor-runs", "batchadvisor-runs holds no run, no trace and no event file"),
            ("file.txt", "file.txt is a file"),
            (None, "batchadvisor-runs holds no run"),
        ],
    )
    def test_nothing_to_show(self, tmp_path, monkeypatch, logdir, words):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "batchadvisor-runs").mkdir()
        (tmp_path / "file.txt").touch()
        with pytest.raises(UsageError, match=words):
            view.choose(logdir and Path(logdir))

    def test_no_runs_here(self, tmp_path):
        """As a user sees it."""
        code, error = failing(tmp_path)
        assert code == 2
        assert "there is no folder batchadvisor-runs here" in error


class TestChoose:
    def test_folders(self, work, monkeypatch):
        monkeypatch.chdir(work)
        runs = work / "batchadvisor-runs"
        assert view.choose(runs) == runs
        assert view.choose(runs / "old") == runs / "old"
        assert view.choose(runs / "new" / "record.json") == runs / "new" / "traces"
        assert view.choose(None) == view.RUNS
        # What a callback leaves beside the traces, and other people's traces, are shown too.
        scalars = runs / "new" / "events.out.tfevents.1.x"
        scalars.touch()
        assert view.choose(runs / "new") == runs / "new"
        scalars.unlink()
        zoo.put_record(runs / "new" / "rank-0001", zoo.CHAR_GPT.read_bytes())
        assert view.choose(runs / "new") == runs / "new"
        shutil.rmtree(runs / "new" / "rank-0001")
        assert view.choose(runs / "new") == runs / "new" / "traces"
        for name in ("old", "new"):
            shutil.rmtree(runs / name)
        zoo.cpu_trace(runs / "somebody" / "host.1.pt.trace.json")
        assert view.choose(None) == view.RUNS, "traces alone are something to show"
        events = work / "only events"
        events.mkdir()
        (events / "events.out.tfevents.1.x").touch()
        assert view.choose(events) == events

    def test_the_profiler_tab_is_added_while_traces_are_small(self, work, monkeypatch):
        notes = []
        assert view._with_profiler(work, "auto", notes)
        assert notes == []
        monkeypatch.setattr(view, "MAX_AUTO_BYTES", 10)
        assert not view._with_profiler(work, "auto", notes)
        assert "--pytorch-profiler-tab on" in notes[0]
        assert view._with_profiler(work, "on", [])
        assert not view._with_profiler(work, "off", [])
        monkeypatch.setattr(view, "_entry_points", list)
        assert not view._with_profiler(work, "auto", [])
        with pytest.raises(UsageError, match="not installed"):
            view._with_profiler(work, "on", [])
