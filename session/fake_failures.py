"""Why a step could not be made on fake tensors."""

from __future__ import annotations

from ..probes.process.endings import WorkerGone
from ..probes.process.messages import Raised

COMPILED_NOT_FAKED = "the model is compiled, and steps on fake tensors run it as it is written"
NO_LOADER = "only batches of a DataLoader can be made of tensors without contents"
UNKNOWN_SHAPES = ("DataDependentOutputException", "DynamicOutputShapeException")
"""Exceptions of torch where the shape of a result depends on values."""

WITHOUT_FORM = "UnsupportedOperatorException"
"""Exception of torch at a library's operator that has kernels and no form for fake tensors."""
UNSUPPORTED = (
    "fake impl",
    "torch.classes.quantized",
    "quantized::",
    ".numpy() is not supported for tensor subclasses",
)
"""Parts of what torch raises where an operation has no form for fake tensors."""


def why_not_faked(gone: WorkerGone) -> str:
    """The reason in a step that raised, or that ended its process."""
    message = gone.message
    if not isinstance(message, Raised):
        return f"on fake tensors {gone.detail}"
    if message.kind == "batchadvisor":
        return message.text.removeprefix("NotImplementedError: ")
    if message.kind in UNKNOWN_SHAPES:
        return f"a shape depends on values, which fake tensors do not have ({message.text})"
    if message.kind == WITHOUT_FORM or any(sign in message.text for sign in UNSUPPORTED):
        return (
            "an operation of the step (quantised, or of a custom kernel) has no form for tensors "
            f"without contents ({message.text.rstrip('.')}). torch.library.register_fake gives a "
            "custom operator one; estimate a quantised model before it is quantised"
        )
    return f"on fake tensors, which have no values (a loss reads as 1.0), it raised {gone.detail}"
