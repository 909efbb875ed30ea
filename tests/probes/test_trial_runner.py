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
    script="train.py",
    arguments=(),
    module=False,
    worker=3,
    device="cpu",
    memory_limit_bytes=None,
    data_limit_bytes=None,
    run_folder="out",
    scratch_folder="scratch",
    loader=None,
    batch_cap=None,
    profile_schedule=(0, 1, 3),
    with_stack=False,
)
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


class Door:
    """Its batches have the size that was asked for last, or a size of their own."""

    def __init__(self, size=None):
        self._own = size
        self.asked = []

    @property
    def size(self):
        return self._own or self.asked[-1]

    def report_to(self, listener):
        self.listener = listener

    def ask(self, batch_size):
        self.asked.append(batch_size)

    def resize(self, batch_size):
        self.asked.append(batch_size)

    meter = None

    def inputs(self):
        return INPUTS

    def parameters(self):
        return []

    def replace_batches(self, substitute):
        return False

    def found(self, **facts):
        loop = FoundLoop(discovery=discovery_of(), device=torch.device("cpu"), **facts)
        self._until_parked(lambda: self.listener.found(loop))

    def steps(self, num):
        for _ in range(num):
            self.listener.arrived(self.size, "shape", 0.01, primary=True)
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


def runner_of(*orders, door):
    line = Line(orders)
    return line, TrialRunner(line, ORDER, door, touched=tuple)


def trials(line):
    return [result.trial for result in line.all_of(Result)]


def test_a_trial():
    door = Door()
    line, runner = runner_of(fit(16, ordinal=5), door=door)
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


def test_a_size_that_does_not_arrive():
    door = Door(size=8)
    line, _ = runner_of(fit(16), door=door)
    door.found()
    door.steps(2)
    assert [trial.outcome for trial in trials(line)] == ["wrong_size"]


@pytest.mark.parametrize(("sizes", "num_steps"), [((8, 16), 2), ((16, 8), 3)])
def test_after_a_larger_size_the_first_step_is_left_out(sizes, num_steps):
    """What the larger one held is still there."""
    door = Door()
    line, _ = runner_of(*map(fit, sizes), door=door)
    door.found()
    door.steps(2)
    door.steps(num_steps - 1)
    assert len(trials(line)) == 1
    door.steps(1)
    assert len(trials(line)) == 2


def test_steps_on_other_batches_are_a_share_of_all():
    door = Door()
    line, runner = runner_of(fit(16), door=door)
    door.found()
    door.steps(1)
    runner.stepped_elsewhere()
    door.steps(1)
    assert [trial.steps_elsewhere for trial in trials(line)] == [0.5]


class TestNoStep:
    @pytest.fixture(autouse=True)
    def _parked(self, monkeypatch):
        for module in (trial_runner, trial_task):
            monkeypatch.setattr(module, "wait_for_the_end", park)

    def test_in_a_trial(self):
        door = Door()
        line, runner = runner_of(fit(16), door=door)
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
        door = Door()
        line, _ = runner_of(self.ORDER, fit(16), door=door)
        door.found()
        (result,) = line.all_of(RecordedResult)
        assert result.reason == "torch records the memory of CUDA devices only"
        assert door.asked == [16]

    @pytest.mark.parametrize("fails", [False, True])
    def test_what_the_recorder_is_asked(self, monkeypatch, fails):
        calls = []

        def history(**options):
            calls.append(("history", options))

        def dump(path):
            calls.append(("dump", path))
            if fails:
                raise OSError("the disk is full")

        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", history)
        monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
        # A CUDA build without a driver cannot say whether its recorder is on.
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: False, raising=False)
        line = Line([])
        door = Door()
        context = TaskContext(
            order=ORDER,
            door=door,
            loop=FoundLoop(discovery=discovery_of(), device=torch.device("cuda", 0)),
            device=None,
            line=SupervisorLine(line, 60.0, tuple),
            outside=Outside(),
        )
        task = RecordTask(self.ORDER, context)
        assert task.begin()
        assert door.asked == [8]
        ended = [task.boundary(Boundary(1, 1)) for _ in range(3)]
        (result,) = line.all_of(RecordedResult)
        assert ended == [False, False, True], result.reason
        assert ("the disk is full" in result.reason) == fails
        begun, dumped, over = calls
        assert begun == ("history", {"max_entries": 100_000, "stacks": "python"})
        assert dumped == ("dump", "/run/snapshot.pickle")
        assert over == ("history", {"enabled": None})

    def test_a_recorder_of_the_script_is_left_on(self, monkeypatch):
        calls = []
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: True, raising=False)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", calls.append)
        line = Line([])
        context = TaskContext(
            order=ORDER,
            door=Door(),
            loop=FoundLoop(discovery=discovery_of(), device=torch.device("cuda", 0)),
            device=None,
            line=SupervisorLine(line, 60.0, tuple),
            outside=Outside(),
        )
        task = RecordTask(self.ORDER, context)
        assert task.begin()
        assert [task.boundary(Boundary(1, 1)) for _ in range(2)] == [False, True]
        (result,) = line.all_of(RecordedResult)
        assert "its recorder is left on" in result.reason
        assert calls == []
