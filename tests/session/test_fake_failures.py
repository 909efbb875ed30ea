"""Why a step could not be made on fake tensors, in words."""

import pytest
import torch
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.messages import Raised
from batchadvisor.session.fake_failures import why_not_faked

from ..fake_step.small_models import faked


def reason(text, kind="RuntimeError"):
    message = Raised(kind=kind, text=text, traceback="", out_of_memory=False)
    return why_not_faked(WorkerGone("raised", f"RuntimeError: {text}", message))


@pytest.mark.parametrize(
    "text",
    [
        "There was no fake impl registered for <CustomOpDef(mine::double)>.",
        "'__eq__' is not implemented for __torch__.torch.classes.quantized.LinearPackedParamsBase",
        ".numpy() is not supported for tensor subclasses.",
    ],
)
def test_an_operation_without_a_fake_form_is_named_with_what_to_do(text):
    words = reason(text)
    assert "quantised, or of a custom kernel" in words
    assert text.rstrip(".") in words
    assert "torch.library.register_fake gives a custom operator one" in words


def test_an_operator_of_a_library_without_a_fake_form_is_named_too():
    library = torch.library.Library("mine_too", "DEF")
    library.define("halved(Tensor x) -> Tensor")
    library.impl("halved", lambda x: x * 0.5, "CPU")
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(Exception, match=r"mine_too\.halved") as raised:
        faked(
            lambda batch: torch.ops.mine_too.halved(layer(*batch)), (torch.ones(4, 8),), optimizer
        )
    words = reason(str(raised.value), type(raised.value).__name__)
    assert "has no form for tensors without contents (mine_too.halved.default)" in words
    assert "torch.library.register_fake gives a custom operator one" in words


def test_the_remedy_is_one():
    """A step with a custom operator is made once the operator has a fake form."""
    layer = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(given):
        optimizer.zero_grad()
        layer(_shifted(given[0])).sum().backward()
        optimizer.step()

    with pytest.raises(Exception, match="fake impl") as failed:
        faked(step, (torch.ones(64, 8),), optimizer)
    assert "register_fake" in reason(str(failed.value))
    _shifted.register_fake(torch.empty_like)
    trial = faked(step, (torch.ones(64, 8),), optimizer).trial(64)
    assert trial.peak_bytes > 2 * 64 * 8 * 4


@torch.library.custom_op("batchadvisor_tests::shifted", mutates_args=())
def _shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() + 1)


def test_another_error_is_told_as_it_is():
    assert reason("shapes differ").startswith("on fake tensors, which have no values")
