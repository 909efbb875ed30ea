"""`--gpus`: which GPUs are probed, and how each is pinned."""

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.session.setup.device_choice import chosen_gpus


@pytest.fixture
def three(stub, monkeypatch):
    """Three GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the stub's GPUs are unlike
    stub.set(gpus=3)


def names(option):
    return [gpu.name for gpu in chosen_gpus(option)]


def test_all_and_some(three):
    assert names("all") == ["cuda-0", "cuda-1", "cuda-2"]
    assert names("2,0") == ["cuda-2", "cuda-0"]
    assert names("0,0") == ["cuda-0"]
    # The stub's GPUs have names of their own: each is a model.
    assert names("distinct") == ["cuda-0", "cuda-1", "cuda-2"]


def test_one_of_each_model(three, monkeypatch):
    import msgspec
    from batchadvisor.session.setup import target

    gpus = target.devices()
    same = [msgspec.structs.replace(gpu, name="T4" if gpu.index else "A100") for gpu in gpus]
    monkeypatch.setattr(target, "devices", lambda: same)
    assert names("distinct") == ["cuda-0", "cuda-1"]
    assert [gpu.model for gpu in chosen_gpus("all")] == ["A100", "T4", "T4"]


def test_each_is_pinned_by_its_uuid(three):
    options = [gpu.option for gpu in chosen_gpus("all")]
    assert all(option.startswith("cuda:GPU-") for option in options)
    assert len(set(options)) == 3


def test_what_is_hidden_is_not_taken(three, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (only,) = chosen_gpus("all")
    assert (only.name, only.model) == ("cuda-0", "Stub GPU 1")  # numbers are those of torch
    assert chosen_gpus("0") == (only,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", only.option.removeprefix("cuda:"))
    assert chosen_gpus("all") == (only,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="no GPU"):
        chosen_gpus("all")


@pytest.mark.parametrize("option", ["7", "0,7", "x", ","])
def test_a_gpu_that_is_not_there(three, option):
    with pytest.raises(UsageError, match="there is no GPU") as error:
        chosen_gpus(option)
    assert "all, or distinct" in error.value.remedy
