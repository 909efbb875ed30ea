"""How the script's threads wait on a CPU that others use: decided once, said, and the same on."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import msgspec
import pytest
from batchadvisor.advisor.explain.disturbances import DISTURBANCE_RULES
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.probes.devices.neighbours import Use
from batchadvisor.session.setup import waiting_threads
from batchadvisor.session.setup.target import Target
from batchadvisor.session.setup.waiting_threads import SLEEPING, collide, variables_beside_others

from ..advisor.test_beside_others import measured, timed
from ..end_to_end import driver
from ..needs import bench

CPU = Target(device="cpu", data_limit_bytes=None)
SCRIPT = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

with open("seen.txt", "a") as file:
    print(os.environ.get("OMP_WAIT_POLICY", "unset"), file=file)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (batch,) in DataLoader(TensorDataset(torch.randn(4096, 64)), batch_size=8):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def busy():
    """As many busy processes as there are cores, each of which has run for a while."""
    num = os.cpu_count() or 1
    with bench("loads").neighbours(num, "neighbour-here"):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            every = waiting_threads.snapshot().processes.values()
            if sum(each.name == "neighbour-here" and each.own_s > 0.05 for each in every) == num:
                break
            time.sleep(0.01)
        yield


@pytest.fixture
def unset(monkeypatch):
    for name in (*SLEEPING, "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("others_s", "num_threads", "num_cores", "wanted"),
    [
        (1.0, 2, 2, True),
        (0.3, 2, 2, False),  # a little goes by
        (2.0, 1, 2, False),  # one thread waits for nobody
        (2.0, 4, 8, False),  # there is a core for each
        (5.0, 4, 8, True),
    ],
)
def test_it_needs_others_on_its_cores(others_s, num_threads, num_cores, wanted):
    use = Use(
        wall_s=1.0, busy_s=others_s, stolen_s=0.0, own_s=0.0, by_name={}, most={}, num_running=0
    )
    assert collide(use, num_threads, num_cores) is wanted


ASKED = """
import json, sys
import msgspec
from batchadvisor.session.setup.target import Target
from batchadvisor.session.setup.waiting_threads import variables_beside_others
target, environment = json.loads(sys.argv[1])
print(json.dumps(variables_beside_others(msgspec.convert(target, Target), environment)))
"""


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("target", "environment", "expected"),
    [
        (CPU, {}, SLEEPING),
        (msgspec.structs.replace(CPU, device="cuda"), {}, {}),
        (msgspec.structs.replace(CPU, cores=(0,)), {}, {}),
        (CPU, {"OMP_NUM_THREADS": "1"}, {}),
        (CPU, {"OMP_WAIT_POLICY": "ACTIVE"}, {}),
        (CPU, {"GOMP_SPINCOUNT": "9"}, {}),
    ],
)
def test_what_a_worker_gets_beside_busy_processes(target, environment, expected):
    """What the user chose stands. Another process asks: what this one started is its own."""
    if os.cpu_count() == 1:
        pytest.skip("one thread waits for nobody")
    environment = {"OMP_NUM_THREADS": str(os.cpu_count()), **environment}
    asked = msgspec.json.encode([target, environment]).decode()
    command = [sys.executable, "-c", ASKED, asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


def test_nobody_waits_on_a_quiet_machine(monkeypatch):
    quiet = dataclasses.replace(waiting_threads.snapshot(), processes={})
    monkeypatch.setattr(waiting_threads, "snapshot", lambda: quiet)
    monkeypatch.setattr(waiting_threads.time, "sleep", lambda _: pytest.fail("it waited"))
    assert variables_beside_others(CPU, {"OMP_NUM_THREADS": "2"}) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("busy", "unset")
def test_a_run_has_it_in_all_processes_and_says_so(tmp_path):
    if os.cpu_count() == 1:
        pytest.skip("one thread waits for nobody")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = driver.run(
        "run", "-o", "out", "--no-profile", "--sizes", "8,64", "--budget", "20s", "train.py",
        folder=tmp_path, variables={"OMP_NUM_THREADS": str(os.cpu_count())},
    )  # fmt: skip
    assert "give theirs away while they wait (OMP_WAIT_POLICY=PASSIVE)" in done.stderr
    assert set((tmp_path / "seen.txt").read_text().split()) == {"PASSIVE"}
    assert done.record.variables == SLEEPING


@pytest.mark.slow
@pytest.mark.usefixtures("busy", "unset")
def test_a_run_that_times_nothing_does_not_look(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = {"OMP_NUM_THREADS": str(os.cpu_count())}
    done = driver.run("run", "--dry-run", "train.py", folder=tmp_path, variables=variables)
    assert done.code == 0, done
    assert "while they wait" not in done.stderr
    assert (tmp_path / "seen.txt").read_text().split() == ["unset"]


@pytest.mark.parametrize(
    ("trial", "severity", "text"),
    [
        (timed(64, 0.5, 0.4), "info", "threads that spin would have told little"),
        (timed(64, 0.5, clean=True), "warning", "without it small sizes may be faster"),
    ],
)
def test_the_answer_says_how_they_waited(trial, severity, text):
    record = msgspec.structs.replace(measured(trial).record, variables=SLEEPING)
    found = [each for rule in DISTURBANCE_RULES for each in rule(Measurements.of(record))]
    (finding,) = (each for each in found if each.rule == "threads.waiting")
    assert finding.severity == severity
    assert text in finding.message
    assert "OMP_WAIT_POLICY=PASSIVE" in finding.message
