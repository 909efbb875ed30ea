"""Scripts that capture a graph for each size: their pools stay while the process lives."""

import msgspec
import pytest
import torch
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.probes.devices.torch_devices import CudaProbe

from .device import VirtualGpu
from .machine import timed
from .script import Script, truth_of
from .test_memory import CONTEXT_BYTES, GIB, outcomes
from .torch_cuda import install

SCRIPT = Script(graph=True)
ALL = 16 * GIB - CONTEXT_BYTES
FOUND = SCRIPT.step_bytes(SCRIPT.native)
"""What the steps leave in which the loop was found: no process of the script is without it."""


def gpu_of():
    gpu = VirtualGpu(capacity_bytes=16 * GIB)
    gpu.other_bytes = CONTEXT_BYTES
    return gpu


@pytest.mark.parametrize("kind", ["memory", "throughput", "knee"])
def test_a_size_is_too_large_only_by_itself(machine, tmp_path, kind):
    """Beside the graphs of smaller ones none of these would fit."""
    result = machine(gpu_of(), SCRIPT).run(tmp_path, kind=kind)
    fits, refused = SCRIPT.largest(ALL - FOUND), SCRIPT.largest(0.95 * ALL - FOUND)
    workers = [entry.worker for entry in result.record.trials]
    for number, trial in enumerate(result.record.trials):
        alone = trial.worker not in workers[:number]
        if trial.purpose == "tail" or trial.outcome == "ok":
            continue
        assert trial.outcome == "out_of_memory"
        if alone:
            assert trial.batch_size > fits
            continue
        after = [later for later in result.record.trials[number + 1 :] if later.purpose != "tail"]
        again = next(later for later in after if later.batch_size == trial.batch_size)
        assert again.ran == (trial.batch_size <= fits), outcomes(result)
    size = result.advice.recommended.batch_size
    assert size <= refused
    if kind != "knee":
        assert size > 0.9 * refused
    for trial in timed(result.record):
        truth = truth_of(SCRIPT, VirtualGpu(), trial.batch_size)
        assert trial.step_s.median == pytest.approx(truth.step_s, rel=0.02)
    for tail in (entry for entry in result.record.trials if entry.purpose == "tail"):
        both = sum(map(SCRIPT.step_bytes, (size, tail.batch_size)))
        assert (tail.outcome == "ok") == (SCRIPT.fixed_bytes + FOUND + both <= ALL)


def test_the_answer_says_what_of_its_peak_is_not_its_own(machine, tmp_path):
    result = machine(gpu_of(), SCRIPT).run(tmp_path, kind="memory")
    (said,) = (
        finding for finding in result.advice.findings if finding.rule == "memory.graph_pools"
    )
    size = result.advice.recommended.batch_size
    peak = SCRIPT.fixed_bytes + FOUND + SCRIPT.step_bytes(size)
    assert result.advice.recommended.peak_bytes == peak
    assert said.evidence[0].value == pytest.approx(FOUND / peak, abs=1e-3)
    assert "1.00 GiB of the peak" in said.message
    assert "memory.scattered" not in {finding.rule for finding in result.advice.findings}


def test_without_time_to_try_again_that_is_said(machine, tmp_path):
    """The refusal stands, and with it what it was made beside."""
    record = machine(gpu_of(), SCRIPT).run(tmp_path, kind="memory").record
    kept = [trial.outcome for trial in record.trials].index("out_of_memory") + 1
    cut = advise(msgspec.structs.replace(record, trials=record.trials[:kept]))
    for advice, doubtful in ((cut, True), (advise(record), False)):
        said = [finding.message for finding in advice.findings if finding.rule == "memory.refused"]
        assert any("beside captured graphs" in message for message in said) == doubtful


def test_the_script_s_own_size_is_not_blamed_on_others(machine, tmp_path):
    result = machine(gpu_of(), SCRIPT).run(tmp_path, sizes=(SCRIPT.native,))
    assert result.advice.recommended.batch_size == SCRIPT.native
    assert "memory.graph_pools" not in {finding.rule for finding in result.advice.findings}


def test_scripts_without_graphs_are_refused_once(machine, tmp_path):
    script = Script(jump=(300, 6 * GIB))
    result = machine(gpu_of(), script).run(tmp_path, kind="throughput")
    refused = [size for size, outcome in outcomes(result) if outcome == "out_of_memory"]
    assert refused
    assert len(refused) == len(set(refused))


def test_an_old_record_without_pools(machine, tmp_path):
    """Records of earlier versions tell nothing of graphs; what they refused stays refused."""
    record = machine(gpu_of(), SCRIPT).run(tmp_path, kind="memory").record
    trials = tuple(
        trial
        if trial.memory is None
        else msgspec.structs.replace(
            trial,
            memory=msgspec.structs.replace(
                trial.memory, graph_pools_bytes=None, earlier_pools_bytes=None
            ),
        )
        for trial in record.trials
    )
    advice = advise(msgspec.structs.replace(record, trials=trials))
    first = next(trial for trial in trials if trial.outcome == "out_of_memory")
    assert advice.recommended.batch_size < first.batch_size


def test_what_a_probe_reads(monkeypatch):
    gpu = gpu_of()
    install(gpu, monkeypatch)
    probe = CudaProbe(torch.device("cuda:0"), None)
    gpu.capture(8, GIB)
    probe.reset_peaks()
    gpu.capture(16, 2 * GIB)
    gpu.free(gpu.allocate(GIB))
    memory = probe.read_memory()
    assert (memory.earlier_pools_bytes, memory.graph_pools_bytes) == (GIB, 3 * GIB)
    assert memory.peak_bytes == 4 * GIB

    def untold(*_, **__):
        raise RuntimeError("another allocator")

    monkeypatch.setattr("torch.cuda.memory_snapshot", untold)
    probe.reset_peaks()
    memory = probe.read_memory()
    assert (memory.earlier_pools_bytes, memory.graph_pools_bytes) == (None, None)


class TestTime:
    """What is asked for next, at other moments of a run."""

    def test_beyond_the_budget_no_size_is_searched(self, machine, tmp_path):
        """A process for it would be started and ended at once, again and again."""
        record = machine(gpu_of(), SCRIPT).run(tmp_path, kind="knee").record
        last = max(n for n, trial in enumerate(record.trials) if trial.purpose == "search")
        assert record.trials[last + 1].purpose in ("confirm", "tail")
        for share in (0.6, 1.0, 1.05, 1.1):
            spent_s = share * record.goal.budget_s
            before = msgspec.structs.replace(record, trials=record.trials[:last], search_s=spent_s)
            step = next_trial(before)
            if share < 1:
                assert (step.purpose, step.batch_size) == ("search", record.trials[last].batch_size)
            else:
                assert isinstance(step, Done)

    def test_a_process_too_dear_for_the_budget_does_not_end_the_search(self, machine, tmp_path):
        record = machine(gpu_of(), SCRIPT).run(tmp_path, kind="throughput").record
        states = (
            msgspec.structs.replace(record, trials=record.trials[:number], search_s=1.0)
            for number in range(1, len(record.trials))
        )
        before = next(
            state for state in states if "of its own" in getattr(next_trial(state), "reason", "")
        )
        assert next_trial(before).fresh_process
        slow = msgspec.structs.replace(record.discovery, setup_s=record.goal.budget_s)
        step = next_trial(msgspec.structs.replace(before, discovery=slow))
        assert step.purpose == "search"
        assert not step.fresh_process
