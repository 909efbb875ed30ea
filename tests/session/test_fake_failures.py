"""Why a step could not be made on fake tensors, in words."""

import pytest
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.messages import Raised
from batchadvisor.session.fake_failures import why_not_faked

TEXTS = [
    "There was no fake impl registered for <CustomOpDef(mine::double)>.",
    "'__eq__' is not implemented for __torch__.torch.classes.quantized.LinearPackedParamsBase",
    ".numpy() is not supported for tensor subclasses.",
]


def reason(text):
    message = Raised(kind="RuntimeError", text=text, traceback="", out_of_memory=False)
    return why_not_faked(WorkerGone("raised", f"RuntimeError: {text}", message))


@pytest.mark.parametrize("text", TEXTS)
def test_an_operation_without_a_fake_form_is_named_with_what_to_do(text):
    words = reason(text)
    assert "quantised, or of a custom kernel" in words
    assert text.rstrip(".") in words
    assert words.endswith("torch.library.register_fake")


def test_another_error_is_told_as_it_is():
    assert reason("shapes differ").startswith("on fake tensors, which have no values")
