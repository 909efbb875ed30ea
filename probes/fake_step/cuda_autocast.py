"""Autocast as CUDA has it, for the CPU's tensors that stand for a GPU's.

Which operations autocast runs in fp32 differs between devices: CUDA keeps the outputs of
normalisations, of softmax and of exponentials in fp32, the CPU does not. The lists are those of
torch's aten/src/ATen/autocast_mode.h.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

IN_FP32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "tan"),
    *("reciprocal", "rsqrt", "sinh", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
    *("softplus", "layer_norm", "native_layer_norm", "group_norm", "cosine_similarity"),
    *("frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "poisson_nll_loss"),
    *("cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div"),
    *("l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss"),
    *("multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss"),
    *("binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)
"""AT_FORALL_FP32."""
AS_GIVEN = (
    *("cross_entropy_loss", "ctc_loss.IntList", "ctc_loss.Tensor", "avg_pool3d", "max_pool3d"),
    *("adaptive_avg_pool3d", "reflection_pad1d", "reflection_pad2d", "replication_pad1d"),
    *("replication_pad2d", "replication_pad3d", "quantile", "quantile.scalar", "nanquantile"),
    *("nanquantile.scalar", "trace"),
)
"""Operations that autocast runs in fp32 on the CPU and not on CUDA."""
TO_FP32 = (
    *("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum"),
    *("linalg_vector_norm", "linalg_matrix_norm", "sum", "sum.dim_IntList"),
)
"""AT_FORALL_FP32_SET_OPT_DTYPE: they get fp32 as the type of their result where none is given."""
PROMOTED = ("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "tensordot")
"""Those of AT_FORALL_PROMOTE that the CPU leaves as they are: they take the widest type given."""
KEY = "AutocastCPU"

_library: list[Any] = []
"""Keeps the library alive: its registrations end with it."""


def use_cuda_autocast() -> None:
    """From now on autocast does on CPU tensors what it does on a CUDA device."""
    if _library:
        return
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    _library.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each kernel that takes the place of another warns
        for name in AS_GIVEN:
            if _operation(name) is not None:
                library.impl(name, torch.library.fallthrough_kernel, KEY)
        for names, make in ((IN_FP32, _in_fp32), (TO_FP32, _to_fp32), (PROMOTED, _promoted)):
            for name in names:
                operation = _operation(name)
                if operation is not None:
                    library.impl(name, make(operation), KEY)
    if not torch.cuda.is_available():
        _stand_in_for_cuda()


def _operation(name: str) -> Any:
    """Finds an operation of torch by its name; `None` if this torch has none."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def _stand_in_for_cuda() -> None:
    """Without a GPU torch turns autocast for CUDA off: the CPU's takes its place."""
    autocast = torch.amp.autocast_mode.autocast
    native = autocast.__init__

    def begin(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        native(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    autocast.__init__ = begin  # type: ignore[method-assign]


def _in_fp32(operation: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            args, kwargs = tree_map_only(torch.Tensor, _widened, (args, kwargs))
            return operation(*args, **kwargs)

    return kernel


def _to_fp32(operation: Any) -> Callable[..., Any]:
    names = [argument.name for argument in operation._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            given = dict(zip(names, args, strict=False)) | kwargs
            if given.get("dtype") is None and _is_eligible(args[0]):
                args, kwargs = args[: names.index("dtype")], {**kwargs, "dtype": torch.float32}
            return operation(*args, **kwargs)

    return kernel


def _promoted(operation: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            given = [each for each in (*args, *kwargs.values()) if _is_eligible(each)]
            if any(each.dtype is torch.float32 for each in given):
                args, kwargs = tree_map_only(torch.Tensor, _widened, (args, kwargs))
            return operation(*args, **kwargs)

    return kernel


def _without_autocast() -> Any:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    return torch._C._ExcludeDispatchKeyGuard(keys)


def _is_eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if _is_eligible(tensor) else tensor
