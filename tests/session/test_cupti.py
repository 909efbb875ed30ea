"""A GPU run whose profiler saw no GPU: what libkineto printed, and what is not concluded."""

import msgspec
import pytest
from batchadvisor.advisor.explain.findings import findings_of
from batchadvisor.advisor.explain.verdict import verdict_at
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import OperatorTime, Profile
from batchadvisor.session.recording.traces import cupti_refusal

from ..on_paper import record_of, trial_of

# libkineto/src/init.cpp and CuptiCallbackApi.cpp; the second line comes with every failure.
HINT = (
    "INFO:2026-11-20 10:00:00 7:7 init.cpp:185] If you see CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "
    "refer to https://developer.nvidia.com/nvidia-development-tools-solutions-err-nvgpuctrperm-cupti"
)
FAILED = "init.cpp:184] CUPTI initialization failed - CUDA profiler activities will be missing\n"
REFUSED = "function cuptiSubscribe failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)\n"
OTHER = "function cuptiSubscribe failed with error CUPTI_ERROR_INVALID_DEVICE (2)\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (REFUSED + FAILED + HINT, "CUPTI failed: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        (OTHER + FAILED + HINT, "CUPTI failed: CUPTI_ERROR_INVALID_DEVICE"),
        (FAILED + HINT, "CUPTI failed to start"),
        ("epoch 1, loss 0.3\n", None),
    ],
)
def test_what_libkineto_prints(tmp_path, text, reason):
    (tmp_path / "script.log").write_text(text)
    assert cupti_refusal(tmp_path / "script.log") == reason
    assert cupti_refusal(tmp_path / "no.log") is None


BLIND = Profile(
    trace="traces/one.json.gz", num_steps=3, operators_pct=20.0, input_wait_pct=1.0,
    unavailable={"busy_pct": "CUPTI failed: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"},
)  # fmt: skip


def record(kind, profile=BLIND):
    run = record_of([trial_of(64, 0.1, profile=profile)])
    return msgspec.structs.replace(run, device=msgspec.structs.replace(run.device, kind=kind))


def verdict(kind, profile=BLIND):
    return verdict_at(Measurements.of(record(kind, profile)), 64, None)


def no_gpu_seen(kind, profile=BLIND):
    """The finding that says so."""
    found = findings_of(Measurements.of(record(kind, profile)), 64, None, None)
    return next((each for each in found if each.rule == "profile.no_gpu"), None)


def test_a_gpu_run_is_not_judged_by_the_rules_of_a_cpu():
    """Outside its operators the host may sit in `cuda.synchronize()`: that is no Python at work."""
    assert "of the step Python runs" in verdict("cpu").message
    on_gpu = verdict("cuda")
    assert on_gpu.limit == "cannot tell"
    assert "Python" not in on_gpu.message
    assert "operators" not in " ".join(evidence.metric for evidence in on_gpu.evidence)


def test_long_operators_do_not_saturate_a_gpu():
    calls = (OperatorTime(name="aten::mm", num_calls=3, self_s=0.3),)
    busy = msgspec.structs.replace(BLIND, operators_pct=99.0, operators=calls)
    assert verdict("cpu", busy).limit == "saturated"
    assert verdict("cuda", busy).limit == "cannot tell"


def test_the_answer_names_the_refusal_and_the_way_to_allow_it():
    finding = no_gpu_seen("cuda")
    assert "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in finding.message
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finding.remedy
    assert no_gpu_seen("cpu") is None
    other = msgspec.structs.replace(BLIND, unavailable={"busy_pct": "CUPTI failed to start"})
    assert "NVreg" not in no_gpu_seen("cuda", other).remedy
