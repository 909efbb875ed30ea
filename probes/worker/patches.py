"""The hooks into torch, put in place before the script runs. All of them are here.

They live in the worker process alone and are never undone: the process is thrown away.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ..doors.protocols import ScriptDoor
from ..loader.compiled_modules import watch_compile
from ..loader.epochs import began_anew, made
from ..loader.remade_samplers import remember
from ..windows.optimizer_hooks import is_captured, listen, watch_graphs
from .saves import silence_saves

_LOADER = "_batchadvisor_loader"
"""Attribute of the script's iterator: its loader."""


def install(
    door: ScriptDoor, saved: Callable[[Any], None], hold: Callable[[], None] = lambda: None
) -> None:
    """Puts `door` between the script and torch.

    Args:
        door: told of everything.
        saved: told of the target of each `torch.save` to a file, which writes nothing.
        hold: called before each batch and for each optimizer, until the training loop is known.
    """
    watch_compile()
    _watch_samplers()
    _watch_loaders(door, hold)
    _watch_optimizers(door, saved, hold)
    _watch_backward_passes(door)
    _forgive_schedulers(door)
    silence_saves(saved, lambda: not door.in_control)


def _watch_samplers() -> None:
    """Remembers the arguments of each sampler: a batch sampler may have to be made once more."""

    def make(cls: Any, *args: Any, **named: Any) -> Any:
        native_new = super(Sampler, cls).__new__
        arguments = () if native_new is object.__new__ else args
        sampler = native_new(cls, *arguments, **(named if arguments else {}))
        remember(sampler, args, named)
        return sampler

    Sampler.__new__ = staticmethod(make)  # type: ignore[method-assign]


def _watch_loaders(door: ScriptDoor, hold: Callable[[], None]) -> None:
    pid = os.getpid()
    native_new, native_init = DataLoader.__new__, DataLoader.__init__
    native_iterator_init = _BaseDataLoaderIter.__init__
    native_reset = _BaseDataLoaderIter._reset
    native_next = _BaseDataLoaderIter.__next__

    # One that is no more than a subclass by name, such as torchdata's StatefulDataLoader, never
    # calls the __init__ below, and is seen as late as it is iterated over.
    def loader_new(cls: Any, *_args: Any, **_kwargs: Any) -> Any:
        loader = native_new(cls)
        if cls.__init__ is not DataLoader.__init__ and os.getpid() == pid:
            door.watch.makes_loader(loader)
        return loader

    # In place, so that every `from torch.utils.data import DataLoader` and subclass is covered.
    @functools.wraps(native_init)
    def loader_init(self: Any, *args: Any, **kwargs: Any) -> None:
        native_init(self, *args, **kwargs)
        if os.getpid() == pid:
            door.watch.made_loader(self)

    @functools.wraps(native_iterator_init)
    def iterator_init(self: Any, loader: Any) -> None:
        # A forked rank has hooks of its own, around these; fastai iterates over what is no loader.
        if os.getpid() == pid and isinstance(loader, DataLoader):
            self.__dict__["_batchadvisor_handle"] = door.watch.handle_of(loader)
            # `for batch in DataLoader(...)` keeps the iterator alone; we still ask the loader.
            self.__dict__[_LOADER] = loader
            made(self)
        with door.watch.apart():  # it draws a seed, which has to be a number
            native_iterator_init(self, loader)

    @functools.wraps(native_next)
    def iterator_next(self: Any) -> Any:
        handle = self.__dict__.get("_batchadvisor_handle")
        # A forked data worker may read from a loader of its own.
        if handle is None or os.getpid() != pid:
            return native_next(self)
        handle.epochs.asked(self)
        _break_cycle(self)
        if not door.in_control:
            hold()
        _tell_of_update(door)
        return door.next_batch(handle, self, native_next)

    @functools.wraps(native_reset)
    def iterator_reset(self: Any, *args: Any, **kwargs: Any) -> None:
        with door.watch.apart():
            native_reset(self, *args, **kwargs)
        began_anew(self)

    DataLoader.__new__ = staticmethod(loader_new)  # type: ignore[method-assign]
    DataLoader.__init__ = loader_init  # type: ignore[method-assign]
    _BaseDataLoaderIter.__init__ = iterator_init  # type: ignore[method-assign]
    _BaseDataLoaderIter._reset = iterator_reset  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = iterator_next  # type: ignore[method-assign]


def _break_cycle(iterator: Any) -> None:
    """Lets go of a loader that holds its iterator, as persistent workers have it.

    In a cycle both would outlive the script's last reference, with the data workers. It stays where
    nobody else holds the loader.
    """
    kept = iterator.__dict__
    if getattr(kept.get(_LOADER), "_iterator", None) is not iterator:
        return
    nobody_else = sys.getrefcount(object()) + 1
    if sys.getrefcount(kept[_LOADER]) > nobody_else:
        del kept[_LOADER]


def _watch_optimizers(
    door: ScriptDoor, saved: Callable[[Any], None], hold: Callable[[], None]
) -> None:
    pid = os.getpid()
    native_init = Optimizer.__init__
    begun: set[int] = set()

    @functools.wraps(native_init)
    def optimizer_init(self: Any, *args: Any, **kwargs: Any) -> None:
        native_init(self, *args, **kwargs)
        if os.getpid() == pid:
            hold()
            door.watch.made_optimizer(self)
            silence_lightning(saved)  # it is loaded by then, and nothing has been saved yet

    def begins(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        begun.add(id(optimizer))
        door.watch.own_updates.stop()

    def stepped(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        # A step() that calls that of the class above it has both hooks twice: one step it is.
        again = id(optimizer) not in begun
        begun.discard(id(optimizer))
        if os.getpid() == pid and not again:  # a forked rank has hooks of its own
            door.stepped(optimizer)

    Optimizer.__init__ = optimizer_init  # type: ignore[method-assign]
    listen(begins, stepped)
    watch_graphs()


def _watch_backward_passes(door: ScriptDoor) -> None:
    """The function that `backward` and `grad` of torch.autograd both call.

    A pass that goes into a CUDA graph computes nothing yet, and a look at values would break the
    graph's capture.
    """
    pid = os.getpid()
    autograd: Any = torch.autograd
    native = autograd._engine_run_backward

    @functools.wraps(native)
    def run_backward(
        outputs: Any,
        gradients: Any,
        retain: Any,
        create: Any,
        inputs: Any = (),
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        # Checkpointing has a pass inside a pass; a forked rank has hooks of its own.
        inside = torch._C._current_graph_task_id() != -1
        if os.getpid() == pid and not inside and not is_captured():
            _tell_of_update(door)
            accumulates, known = kwargs.get("accumulate_grad", False), door.in_control
            updates = door.watch.own_updates
            try:
                updates.begins(outputs, inputs, accumulates=accumulates, known=known)
            except Exception:  # noqa: BLE001  a look that fails ends the looks, not the script
                updates.stop()
        return native(outputs, gradients, retain, create, inputs, *args, **kwargs)

    autograd._engine_run_backward = run_backward


def _tell_of_update(door: ScriptDoor) -> None:
    updates, update = door.watch.own_updates, None
    try:
        update = updates.made(known=door.in_control)
    except Exception:  # noqa: BLE001  as above
        updates.stop()
    if update is not None:
        door.stepped(update)


def _forgive_schedulers(door: ScriptDoor) -> None:
    """A schedule of a fixed length runs out while we measure; that is ours, not the script's.

    Past its end one raises, and another comes to rates that no optimizer takes, or that make the
    loss diverge: the roots and the lines that end at 0 turn complex and negative. The last rate
    that is one stays.
    """
    native_step = LRScheduler.step

    @functools.wraps(native_step)
    def scheduler_step(self: Any, *args: Any, **kwargs: Any) -> None:
        if not door.in_control:
            native_step(self, *args, **kwargs)
            return
        groups = self.optimizer.param_groups
        before = [group["lr"] for group in groups]
        with contextlib.suppress(ValueError, LookupError, ArithmeticError):
            native_step(self, *args, **kwargs)
        for group, rate in zip(groups, before, strict=True):
            if not _is_rate(group["lr"]):
                group["lr"] = rate

    LRScheduler.step = scheduler_step  # type: ignore[method-assign]


def _is_rate(rate: Any) -> bool:
    """Whether a learning rate is one. A tensor counts as one: a look would wait for the device."""
    if isinstance(rate, (int, float)):
        return 0 <= rate < math.inf
    return not isinstance(rate, complex)


# Lightning's checkpoints: filled from memory, where keeping `torch.save` from files is no help.

_WRITERS = ("lightning.fabric.plugins.io.torch_io", "lightning_fabric.plugins.io.torch_io")
_CALLBACKS = (
    "lightning.pytorch.callbacks.model_checkpoint",
    "pytorch_lightning.callbacks.model_checkpoint",
)


def silence_lightning(saved: Callable[[Any], None]) -> None:
    """Keeps what is loaded of Lightning from writing checkpoints, and from replacing `last.ckpt`.

    Args:
        saved: told of each path that would have been written.
    """

    def save(checkpoint: object, filepath: Any) -> None:
        del checkpoint
        saved(filepath)

    def link(*_: object) -> None:
        """It would remove an older `last.ckpt` for a link to a file that is not there."""

    for name in _WRITERS:
        module = sys.modules.get(name)
        if hasattr(module, "_atomic_save"):
            vars(module)["_atomic_save"] = save
    for name in _CALLBACKS:
        callback: Any = getattr(sys.modules.get(name), "ModelCheckpoint", None)
        if hasattr(callback, "_link_checkpoint"):
            callback._link_checkpoint = staticmethod(link)
