"""For all tests: settings, where the recorded traces are, how to make small synthetic ones."""

from __future__ import annotations

import gc
import gzip
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from . import parallel
from .proofs import Watch

# A shell that starts something in the background has it ignore SIGINT, and so its children, which
# tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

if parallel.IN_PARALLEL:  # pytest-xdist sets a width, which every command in a test would take
    os.environ.pop("COLUMNS", None)
    # Read when torch is loaded, here and in what tests start: several threads on cores that other
    # tests share wait for each other, and burn more than they compute with.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples every time, and none fails because the machine is busy.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

_PROOFS = pytest.StashKey()
TRACES = Path(__file__).parents[1].parent / "shared" / "traces"


@pytest.fixture(autouse=True, scope="module")
def _few_objects():
    """Looks through all live objects see neither torch's own nor what other files' tests left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_compiled():
    """What a test compiled is not known to the next, which is any in another process."""
    yield
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.counters.clear()


@pytest.fixture
def fill_disk(monkeypatch):
    """Called, it leaves no room on the disk for what is written safely."""

    def full(_):
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr("os.fsync", full)


@pytest.fixture(scope="session")
def recorded():
    """Folder of the recorded traces; the test is skipped where they are not."""
    if not (TRACES / "expected.json").exists():
        message = f"the recorded traces are not at {TRACES}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return TRACES


@pytest.fixture(scope="session")
def expected(recorded):
    """Reference values by trace."""
    return json.loads((recorded / "expected.json").read_text())


@pytest.fixture
def write(tmp_path):
    """Writes a synthetic trace: `write(events, **document)` or `write(text)`; returns its path."""

    def write(content, name="synthetic.json", indent=None, **document):
        if isinstance(content, (str, bytes)):
            data = content.encode() if isinstance(content, str) else content
        else:
            document = {"schemaVersion": 1, **document, "traceEvents": content}
            data = json.dumps(document, indent=indent).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def pytest_configure(config):
    """The proofs of tails watch how their tests come out; see proofs.py."""
    config.stash[_PROOFS] = Watch()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Which files stay together where several tests run at once; see parallel.py."""
    by_file = config.getoption("dist") == "loadfile"
    return parallel.scheduler(config, log) if by_file else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Lets the proofs of tails see how their tests came out."""
    report = yield
    item.config.stash[_PROOFS].saw(item, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """What a process of pytest-xdist saw, once it is over."""
    node.config.stash[_PROOFS].take(getattr(node, "workeroutput", {}).get("proofs", []))


def pytest_sessionfinish(session):
    """Fails a session whose proofs differ from the stored ones."""
    watch = session.config.stash[_PROOFS]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # of pytest-xdist; who started this process compares
        output["proofs"] = watch.told()
        return
    different = watch.finish()
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    for line in different if terminal is not None else []:
        terminal.write_line(f"\nproofs of tails: {line}")
    if different and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
