"""Attention and linear layers as CUDA runs them: the memory that they keep, and its layout.

Only for steps on fake tensors: no CPU has these kernels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

FLASH_TYPES = (torch.float16, torch.bfloat16)
FLASH_WIDTH = 256
"""Flash attention's widest head."""
FLASH_MULTIPLE = 8
"""Heads are padded to it."""
ALIGNED_BYTES = 16
"""The efficient kernel takes heads whose width is a multiple of so many bytes."""
BIAS_MULTIPLE = 16
"""The efficient kernel wants a mask whose rows are aligned to so many numbers."""


def use_cuda_kernels() -> None:
    """From now on attention and linear layers take the memory that they take on CUDA."""
    functional.scaled_dot_product_attention = _attention
    functional.linear = _Linear(functional.linear)
    if hasattr(torch.ops.aten, "_fused_rms_norm_backward"):  # from torch 2.9 on
        functional.rms_norm = _rms_norm(functional.rms_norm)


def _rms_norm(native: Any) -> Any:
    """CUDA makes it in one kernel, if what it scales by has the type of what is scaled."""

    def rms_norm(
        input: torch.Tensor,  # noqa: A002  torch's name
        normalized_shape: list[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> Any:
        if weight is not None and weight.dtype is not input.dtype:
            return native(input, normalized_shape, weight, eps)
        return _RmsNorm.apply(input, weight, len(normalized_shape))  # type: ignore[no-untyped-call]

    return rms_norm


class _RmsNorm(torch.autograd.Function):
    """Keeps its input and one number of each row."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: Any, num_dims: int) -> torch.Tensor:  # noqa: A002
        rows = input.new_empty((*input.shape[:-num_dims], *[1] * num_dims), dtype=torch.float32)
        ctx.save_for_backward(input, weight, rows)
        return torch.empty_like(input, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        del gradients
        scaled, weight, _ = ctx.saved_tensors
        of_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        of_input = torch.empty_like(scaled) if ctx.needs_input_grad[0] else None
        return of_input, of_weight, None


class _Linear:
    """Adds the bias in place; to fake tensors torch itself adds it beside them."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def __call__(
        self,
        input: torch.Tensor,  # noqa: A002  torch's name
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> Any:
        if bias is None or input.dim() == 2 or (input.dim() == 3 and input.is_contiguous()):
            return self._native(input, weight, bias)
        return self._native(input, weight).add_(bias)


def _attention(  # noqa: PLR0917  as torch has them
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Computes by CUDA's choice of kernel (aten/src/ATen/native/transformers/attention.cpp)."""
    device = query.device.type
    if torch.is_autocast_enabled(device):
        narrow = torch.get_autocast_dtype(device)
        query, key, value = (each.to(narrow) for each in (query, key, value))
        if attn_mask is not None and attn_mask.dtype is not torch.bool:
            attn_mask = attn_mask.to(narrow)
    if query.dim() == 3:
        query, key, value = (each.unsqueeze(0) for each in (query, key, value))
        return _attention(query, key, value, attn_mask, dropout_p, is_causal, scale).squeeze(0)
    width = query.size(-1)
    is_narrow, is_plain = query.dtype in FLASH_TYPES, attn_mask is None and width == value.size(-1)
    allowed: Any = torch.backends.cuda  # as `sdpa_kernel` of the script set them
    # A bias that was permuted from a table of distances, as T5 has it, is in no fused kernel.
    in_rows = all(each.stride(-1) == 1 or width == 1 for each in (query, key, value)) and (
        attn_mask is None or attn_mask.stride(-1) == 1
    )
    fused = query.dim() == 4 and in_rows
    fits_flash = fused and is_narrow and is_plain and width <= FLASH_WIDTH
    if fits_flash and allowed.flash_sdp_enabled():
        scale = width**-0.5 if scale is None else scale
        return _flash(query, key, value, dropout_p, is_causal=is_causal, scale=scale)
    alignment = ALIGNED_BYTES // query.element_size()
    efficient = allowed.mem_efficient_sdp_enabled() or not allowed.math_sdp_enabled()
    if not fused or query.dtype is torch.float64 or width % alignment or not efficient:
        # Already cast, CUDA casts nothing within; its dropout keeps a mask of bytes.
        shape = (*query.shape[:-1], key.size(-2))
        dropped = query.new_empty((), dtype=torch.bool).expand(shape) if dropout_p else None
        with torch.autocast(device, enabled=False):
            return torch.ops.aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, dropped,
                scale=scale, enable_gqa=enable_gqa,
            )[0]  # fmt: skip
    if enable_gqa:
        groups = query.size(1) // key.size(1)
        key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, _bias(attn_mask, query, key),
        any(each.requires_grad for each in (query, key, value)),
        dropout_p, is_causal, scale=scale,
    )[0]  # fmt: skip


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    *,
    is_causal: bool,
    scale: float,
) -> Any:
    width = query.size(-1)
    padding = -width % FLASH_MULTIPLE
    if padding:
        query, key, value = (functional.pad(each, (0, padding)) for each in (query, key, value))
    out = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, False, scale=scale
    )[0]
    return out[..., :width] if padding else out


def _bias(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> Any:
    """The mask as the efficient kernel adds it to the scores."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
    length = mask.size(-1)
    if length % BIAS_MULTIPLE:
        mask = functional.pad(mask, (0, -length % BIAS_MULTIPLE))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
