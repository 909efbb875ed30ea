"""Parts of a partitioned GPU, over the stand-in for the driver's library."""

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.devices.gpus_in_use import with_prefix
from batchadvisor.probes.nvml import calls, gpus
from batchadvisor.session.setup.target import choose_target
from batchadvisor.session.workers.gpu_watch import GpuWatch

from .windows import GPM, window_of

CUDA = "CUDA_VISIBLE_DEVICES"
FIRST = "MIG-00000000-1111-2222-3333-444444444441"
SECOND = "MIG-00000000-1111-2222-3333-444444444442"


@pytest.fixture(autouse=True)
def partitioned(stub, monkeypatch):
    monkeypatch.delenv(CUDA, raising=False)
    stub.set(mig=1, parts=2)


def test_they_are_listed_with_their_gpu():
    (gpu,) = gpus.devices()
    assert gpu.mig_enabled
    assert [instance.uuid for instance in gpu.instances] == [FIRST, SECOND]
    assert all(instance.total_bytes for instance in gpu.instances)


def test_a_driver_that_refuses_to_tell(stub):
    stub["nvmlDeviceGetMaxMigDeviceCount"] = 3
    (gpu,) = gpus.devices()
    assert gpu.instances == ()


@pytest.mark.parametrize("text", [SECOND, SECOND.removeprefix("MIG-"), "GPU-" + SECOND[4:]])
def test_a_handle_by_any_prefix(text):
    """torch gives the UUID of a part without a prefix; GPU- was once put before each."""
    handle = gpus.find_handle(text)
    assert calls.ask("nvmlDeviceGetUUID", handle) == SECOND


def test_counters_of_a_part(clock):
    counters = window_of(SECOND, clock)
    # The stub answers 50 + metric, and 2 more for the second part.
    assert counters.sm_active_pct == 50 + 2 + 2
    assert {name for name in GPM if getattr(counters, name) is None} == set()
    # What the driver counts for the whole GPU alone is not taken for the part's.
    for field in ("energy_j", "power_w", "utilization_pct"):
        assert getattr(counters, field) is None
        assert "Not Supported" in counters.unavailable[field]


def test_the_prefix_of_what_torch_says():
    plain = SECOND.removeprefix("MIG-")
    assert with_prefix(plain, {CUDA: f"{FIRST},{SECOND[:-3]}"}) == "MIG-" + plain[:-3] + plain[-3:]
    assert with_prefix(plain, {CUDA: FIRST}) == "GPU-" + plain
    assert with_prefix(plain, {}) == "GPU-" + plain


def test_a_run_takes_the_part_that_the_user_named():
    target = choose_target("auto", None, {CUDA: SECOND})
    assert (target.device, target.gpus.variables) == ("cuda", {})


def test_one_that_is_gone():
    with pytest.raises(UsageError, match=r"MIG-dead.*no GPU here has that UUID") as error:
        choose_target("auto", None, {CUDA: "MIG-dead"})
    assert FIRST in error.value.remedy
    assert "0 (Stub GPU 0)" in error.value.remedy


def test_a_watch_follows_a_part(clock):
    watch = GpuWatch((FIRST,))
    watch.follow(1)
    watch.phase("timing")
    watch.close()
