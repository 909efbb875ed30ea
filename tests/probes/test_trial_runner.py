"""The trial runner between a door and a line to the supervisor, both on paper."""

import msgspec
import pytest
import torch
from batchadvisor.probes.devices.outside import Outside
from batchadvisor.probes.doors.caught_errors import CaughtErrors
from batchadvisor.probes.doors.protocols import FoundLoop
from batchadvisor.probes.loader.model_inputs import ModelInputs
from batchadvisor.probes.process.messages import Found, RecordedResult, Result
from batchadvisor.probes.process.orders import RunRecorded, RunTrial, WorkOrder
from batchadvisor.probes.worker import trial_runner, trial_task
from batchadvisor.probes.worker.record_task import RecordTask
from batchadvisor.probes.worker.supervisor_line import SupervisorLine
from batchadvisor.probes.worker.task import Boundary, TaskContext
from batchadvisor.probes.worker.trial_runner import TrialRunner
from batchadvisor.records import InputSize, TrialRequest

from ..on_paper import discovery_of

ORDER = WorkOrder(
    script="train.py", arguments=(), module=False, worker=3, device="cpu",
    memory_limit_bytes=None, data_limit_bytes=None, run_folder="out", scratch_folder="scratch",
    loader=None, batch_cap=None, profile_schedule=(0, 1, 3), with_stack=False,
)  # fmt: skip
INPUTS = InputSize(num_batches=2, smallest=1.0, largest=4.0)


@pytest.fixture(autouse=True)
def hooks_go(monkeypatch):
    """A trial on paper ends in the middle of a step: the hooks on every module go with the test."""
    made = []
    hooks = torch.nn.modules.module._global_forward_hooks
    before = dict(hooks)

    def inputs():
        made.append(ModelInputs())
        return made[-1]

    monkeypatch.setattr(trial_task, "ModelInputs", inputs)
    yield
    for each in made:
        each.stop()
    assert hooks == before


class ParkedError(Exception):
    """The script waits for the next order, or for its end."""


def park():
    raise ParkedError


class Line:
    """Hands out orders and keeps what is sent."""

    def __init__(self, orders):
        self._orders = [msgspec.json.encode(order) for order in orders]
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def receive_line(self):
        if not self._orders:
            park()
        return self._orders.pop(0)

    def all_of(self, kind):
        return [message for message in self.sent if isinstance(message, kind)]


class Batches:
    """Batches that nobody counts tokens in."""

    meter = None

    def are_all_ready(self):
        return False

    def inputs(self):
        return INPUTS


class Door:
    """Its batches have the size that was asked for last."""

    batches = Batches()

    def __init__(self):
        self.asked = []

    def report_to(self, listener):
        self.listener = listener

    def ask(self, batch_size):
        self.asked.append(batch_size)

    def parameters(self):
        return []

    def found(self, **facts):
        loop = FoundLoop(discovery=discovery_of(), device=torch.device("cpu"), **facts)
        self._until_parked(lambda: self.listener.found(loop))

    def steps(self, num):
        for _ in range(num):
            self.listener.arrived(self.asked[-1], "shape", 0.01, primary=True)
            self._until_parked(self.listener.boundary)

    @staticmethod
    def _until_parked(act):
        try:
            act()
        except ParkedError:
            return


def fit(size, ordinal=0):
    request = TrialRequest(batch_size=size, kind="fit")
    return RunTrial(request=request, ordinal=ordinal, precision=0.02, time_limit_s=1.0)


def runner_of(*orders):
    """A runner with its line and a door behind which no loop was found yet."""
    line, door = Line(orders), Door()
    return TrialRunner(line, ORDER, door, touched=tuple), line, door


def trials(line):
    return [result.trial for result in line.all_of(Result)]


def test_a_trial():
    runner, line, door = runner_of(fit(16, ordinal=5))
    assert not runner.has_loop
    door.found(no_input="nobody knows")
    assert runner.has_loop
    assert len(line.all_of(Found)) == 1
    assert door.asked == [16]
    door.steps(2)
    (trial,) = trials(line)
    assert (trial.outcome, trial.batch_size, trial.ordinal, trial.worker) == ("ok", 16, 5, 3)
    assert trial.inputs == INPUTS
    assert trial.steps_per_batch == 1
    assert trial.unavailable["input_wait_s"] == "nobody knows"


@pytest.mark.parametrize(("sizes", "num_steps"), [((8, 16), 2), ((16, 8), 3)])
def test_after_a_larger_size_the_first_step_is_left_out(sizes, num_steps):
    """What the larger one held is still there."""
    _, line, door = runner_of(*map(fit, sizes))
    door.found()
    door.steps(2 + num_steps - 1)
    assert len(trials(line)) == 1
    door.steps(1)
    assert len(trials(line)) == 2


def test_steps_on_other_batches_are_a_share_of_all():
    runner, line, door = runner_of(fit(16))
    door.found()
    door.steps(1)
    runner.stepped_elsewhere()
    door.steps(1)
    assert [trial.steps_elsewhere for trial in trials(line)] == [0.5]


def test_no_step_in_a_trial(monkeypatch):
    for module in (trial_runner, trial_task):
        monkeypatch.setattr(module, "wait_for_the_end", park)
    runner, line, door = runner_of(fit(16))
    door.found()
    with pytest.raises(ParkedError):
        runner.no_step(65, CaughtErrors())
    (trial,) = trials(line)
    assert trial.outcome == "no_step"
    assert "65 batches of 16 samples" in trial.detail


class TestARecordedStep:
    """The recorder itself needs a CUDA device; what is asked of it, and when, does not."""

    ORDER = RunRecorded(batch_size=8, path="/run/snapshot.pickle")

    def test_elsewhere_than_on_cuda(self):
        """The order after it is carried out."""
        _, line, door = runner_of(self.ORDER, fit(16))
        door.found()
        (result,) = line.all_of(RecordedResult)
        assert result.reason == "torch records the memory of CUDA devices only"
        assert door.asked == [16]

    @pytest.fixture
    def recorder(self, monkeypatch):
        """A task, the line it answers on, and the calls of torch's recorder."""
        calls = []
        monkeypatch.setattr(
            torch.cuda.memory,
            "_record_memory_history",
            lambda **options: calls.append(("history", options)),
        )
        monkeypatch.setattr(
            torch.cuda.memory, "_dump_snapshot", lambda path: calls.append(("dump", path))
        )
        # A CUDA build without a driver cannot say whether its recorder is on.
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: False, raising=False)
        line = Line([])
        context = TaskContext(
            order=ORDER,
            door=Door(),
            loop=FoundLoop(discovery=discovery_of(), device=torch.device("cuda", 0)),
            device=None,
            line=SupervisorLine(line, 60.0, tuple),
            outside=Outside(),
        )
        return RecordTask(self.ORDER, context), line, calls

    @pytest.mark.parametrize("fails", [False, True])
    def test_what_the_recorder_is_asked(self, recorder, monkeypatch, fails):
        task, line, calls = recorder

        def full(path):
            calls.append(("dump", path))
            raise OSError("the disk is full")

        if fails:
            monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", full)
        assert task.begin()
        assert task._context.door.asked == [8]
        ended = [task.boundary(Boundary(1, 1)) for _ in range(3)]
        (result,) = line.all_of(RecordedResult)
        assert ended == [False, False, True], result.reason
        assert ("the disk is full" in result.reason) == fails
        assert calls == [
            ("history", {"max_entries": 100_000, "stacks": "python"}),
            ("dump", "/run/snapshot.pickle"),
            ("history", {"enabled": None}),
        ]

    def test_a_recorder_of_the_script_is_left_on(self, recorder, monkeypatch):
        task, line, calls = recorder
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: True, raising=False)
        assert task.begin()
        assert [task.boundary(Boundary(1, 1)) for _ in range(2)] == [False, True]
        (result,) = line.all_of(RecordedResult)
        assert "its recorder is left on" in result.reason
        assert calls == []
