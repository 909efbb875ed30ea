"""The callback in a real notebook: a kernel runs the cells, and its outputs are read."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from batchadvisor.session.recording.store import read_record

from ..needs import framework

nbclient = framework("nbclient")
nbformat = framework("nbformat")
framework("ipykernel")
framework("accelerate")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]

TRAIN = """
import signal
import torch
from batchadvisor import ProfilingCallback
from torch import nn

before = signal.getsignal(signal.SIGINT)
data = torch.utils.data.TensorDataset(torch.randn(100, 4))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with ProfilingCallback("log", profile_after=3) as prof:
    for _ in range(3):
        for (x,) in prof.watch(loader):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
assert signal.getsignal(signal.SIGINT) is before
"""
LAUNCH = """
import accelerate

def training():
    with ProfilingCallback("launched", profile=False) as prof:
        for (x,) in prof.watch(loader):
            prof.step()

accelerate.notebook_launcher(training, num_processes=1)
accelerate.debug_launcher(training, num_processes=2)
"""
RAISE = """
with ProfilingCallback("other", profile=False) as prof:
    for (x,) in prof.watch(loader):
        prof.step()
        raise ValueError("mine")
"""
INTERRUPTED = """
import os
import time
from pathlib import Path

with ProfilingCallback("stopped", profile=False) as prof:
    for epoch in range(2):
        for (x,) in prof.watch(loader):
            model(x).sum().backward()
            optimizer.step()
            prof.step()
            if epoch > 0:
                Path("pid.draft").write_text(str(os.getpid()))
                Path("pid.draft").replace("pid")
                time.sleep(60)  # the interrupt comes here, and not in a fetch
"""
AFTER = """
assert signal.getsignal(signal.SIGINT) is before
before is signal.default_int_handler
"""
TWO_PROCESSES = """
def two_ranks():
    import torch
    from batchadvisor.callback import AccelerateCallback

    accelerator = accelerate.Accelerator(cpu=True)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    net = torch.nn.Linear(4, 1)
    training = torch.optim.SGD(net.parameters(), lr=0.1)
    options = {"profile_after": 2, "noise_scale": True, "noise_every": 1}
    with AccelerateCallback(accelerator, "ranks", **options) as prof:
        net, training, batches = accelerator.prepare(net, training, loader)
        for _ in range(3):
            for (x,) in batches:
                accelerator.backward(net(x).square().sum())
                training.step()
                training.zero_grad()
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    return prof.record.observed.num_samples

import socket

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
accelerate.notebook_launcher(two_ranks, num_processes=2, use_port=port)
"""


def interrupt(folder, stop):
    """As the button does it: the kernel gets SIGINT while the loop runs."""
    pid = folder / "pid"
    while not stop.is_set():
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGINT)
            return
        time.sleep(0.05)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    sources = (TRAIN, "prof", RAISE, LAUNCH, INTERRUPTED, AFTER, TWO_PROCESSES)
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "p", "language": "python"}
    client = nbclient.NotebookClient(
        book,
        timeout=100,
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
        kernel_name="python3",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
        stop = threading.Event()
        thread = threading.Thread(target=interrupt, args=(folder, stop))
        thread.start()
        try:
            client.execute()
        finally:
            stop.set()
            thread.join()
    return folder, [cell.outputs for cell in book.cells]


def html_of(outputs):
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def errors_of(outputs):
    return [output for output in outputs if output.output_type == "error"]


def test_the_result_stands_in_the_cell(notebook):
    folder, outputs = notebook
    assert errors_of(outputs[0]) == []
    streams = "".join(one.text for one in outputs[0] if one.output_type == "stream")
    assert "profiler_st" not in streams  # torch's library writes when its profiler starts and stops
    (html,) = html_of(outputs[0])  # progress was replaced in its place
    assert "Batch size 8 as it ran" in html
    assert "39 optimizer steps, 300 samples" in html
    record = read_record(folder / "log")
    assert record.script.path == "notebook"
    assert record.observed.num_samples == 300


def test_the_object_shows_itself(notebook):
    (html,) = html_of(notebook[1][1])
    assert "Batch size 8 as it ran" in html


def test_an_exception_passes(notebook):
    folder, outputs = notebook
    (error,) = errors_of(outputs[2])
    assert (error.ename, error.evalue) == ("ValueError", "mine")
    assert "ValueError: mine" in html_of(outputs[2])[0]
    assert read_record(folder / "other").state == "failed"


def test_launchers(notebook):
    """Inside the kernel the result is HTML; in processes forked off it, it is text."""
    folder, outputs = notebook
    assert errors_of(outputs[3]) == []
    assert "Batch size 8 as it ran" in html_of(outputs[3])[0]
    for name in ("", "rank-0001"):
        record = read_record(folder / "launched" / name)
        assert (record.state, record.observed.num_samples) == ("finished", 100)
        assert record.observed.world_size == 2


def test_an_interrupted_cell(notebook):
    folder, outputs = notebook
    (error,) = errors_of(outputs[4])
    assert error.ename == "KeyboardInterrupt"
    assert "batchadvisor" not in "".join(error.traceback).rpartition("ProfilingCallback(")[2]
    assert "Batch size 8 as it ran" in html_of(outputs[4])[0]
    record = read_record(folder / "stopped")
    assert record.state == "interrupted"
    assert record.observed.num_steps >= 13
    assert errors_of(outputs[5]) == []
    assert outputs[5][0].data["text/plain"] == "True"


def test_notebook_launcher_with_two_processes(notebook):
    folder, outputs = notebook
    assert errors_of(outputs[6]) == []
    for rank, name in enumerate(("", "rank-0001")):
        record = read_record(folder / "ranks" / name)
        assert record.state == "finished"
        observed = record.observed
        assert (observed.rank, observed.world_size) == (rank, 2)
        assert (observed.num_steps, observed.num_samples) == (21, 168)
        assert record.trials[0].profile.operators_pct > 0
        if observed.noise_scale is not None:
            assert observed.noise_scale.source == "ranks"
        else:  # twenty steps of one rank may be too few
            assert observed.unavailable["noise_scale"]
    said = "".join(output.text for output in outputs[6] if output.output_type == "stream")
    assert "[accelerate.even-batches]" in said
    # One rank speaks; its last words may come after the kernel has called the cell done.
    assert said.count("Batch size 8 as it ran") <= 1
