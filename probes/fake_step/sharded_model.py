"""The script's model sharded over ranks that are not there: torch's FSDP2 on a fake group.

`fully_shard` is called on each repeated block and on the whole model, as its documentation
advises. Nothing is sent; what this rank would hold and gather is real in its sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed._composable_state import _module_state_mapping
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class ShardedModel:
    """Modules sharded over ranks, from now until `remove`.

    Args:
        roots: modules of the script.
        blocks: the repeated ones among them, the outer ones only.
        num_ranks: of the fake group; this process stands for the first.
        bf16: parameters are gathered, and the forward pass computes, in bfloat16.

    Raises:
        ValueError: the script has a process group of its own.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        blocks: Sequence[nn.Module],
        num_ranks: int,
        *,
        bf16: bool = False,
    ) -> None:
        if distributed.is_initialized():
            msg = "the script has a process group of its own"
            raise ValueError(msg)
        self._modules = {id(m): m for root in roots for m in root.modules()}
        self._was = {key: _inside(module) for key, module in self._modules.items()}
        before = dict(_named(self._modules))
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=num_ranks)
        with torch.utils._python_dispatch._disable_current_modes():
            mesh = init_device_mesh("cpu", (num_ranks,))
        dtypes = (torch.bfloat16, torch.float32) if bf16 else (None, None)
        policy = MixedPrecisionPolicy(*dtypes)
        for module in (*blocks, *roots):
            fully_shard(module, mesh=mesh, mp_policy=policy)
        after = dict(_named(self._modules))
        self.in_place_of: Mapping[int, torch.Tensor] = {
            id(parameter): after[place] for place, parameter in before.items()
        }
        """The sharded parameter for each that was there before, by its id."""
        self.gone = list(before.values())
        """Parameters from before, kept for `remove`; a rank would not hold them."""
        self._native_shapes = _uncounted_shapes()

    def remove(self) -> None:
        """The modules are as they were."""
        for key, module in self._modules.items():
            kind, inside = self._was[key]
            module.__class__ = kind
            held = vars(module)
            for name in set(held) - set(inside):
                del held[name]
            for name, (value, contents) in inside.items():
                if contents is not None:
                    value.clear()
                    value.update(contents)
                held[name] = value
            _module_state_mapping.pop(module, None)
        distributed.destroy_process_group()
        self._native_shapes()


def _uncounted_shapes() -> Callable[[], None]:
    """To learn the whole shape of a result, torch makes the operation on whole tensors without
    contents. No rank holds them, so that is not to be counted.

    Returns:
        What takes this back.
    """
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    name = "_propagate_tensor_meta_non_cached"
    native = getattr(ShardingPropagator, name, None)
    if native is None:  # torch keeps it for itself, so it may be gone
        return lambda: None

    def shapes(self: Any, *args: Any) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            return native(self, *args)

    setattr(ShardingPropagator, name, shapes)
    return lambda: setattr(ShardingPropagator, name, native)


def _inside(module: nn.Module) -> tuple[type[nn.Module], dict[str, tuple[Any, Any]]]:
    return type(module), {
        name: (value, copy.copy(value) if isinstance(value, dict) else None)
        for name, value in vars(module).items()
    }


def _named(
    modules: Mapping[int, nn.Module],
) -> Iterator[tuple[tuple[int, str], torch.Tensor]]:
    for key, module in modules.items():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield (key, name), parameter
