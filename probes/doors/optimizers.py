"""The optimizers that a script makes, and what they say of themselves."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ...records import OptimizerInfo, SourceLine
from ..source.call_site import user_call_site

if TYPE_CHECKING:
    from torch import Tensor


OWN_UPDATE = "the script's own update"


class ScriptUpdate:
    """Stands where an optimizer would: what it trains, and no learning rate that is known.

    Attributes:
        place: of the first backward pass.
    """

    def __init__(self) -> None:
        self.place: SourceLine | None = None
        self.defaults: dict[str, Any] = {}
        self.param_groups: list[dict[str, Any]] = [{"params": []}]


def optimizer_info(
    optimizer: Any, ordinal: int, *, place: SourceLine | None = None
) -> OptimizerInfo:
    """Its record, as of one that trains; torch is not imported for it.

    Args:
        ordinal: among the optimizers, in order of creation.
        place: where the script makes it.
    """
    groups = optimizer.param_groups
    # What the user wrote, not what a schedule has made of it by now.
    rate = optimizer.defaults.get("lr", groups[0].get("lr") if groups else None)
    return OptimizerInfo(
        ordinal=ordinal,
        place=place,
        name=_name_of(optimizer),
        learning_rate=_number(rate),
        num_parameters=sum(parameter.numel() for group in groups for parameter in group["params"]),
        trains=True,
    )


class Optimizers:
    """All that the script made, by their ordinals; held weakly, as whole models hang on them."""

    def __init__(self) -> None:
        self._made: list[_Made] = []
        self._ordinals: dict[int, int] = {}

    def add(self, optimizer: Any) -> int:
        """One was constructed; its ordinal."""
        ordinal = len(self._made)
        self._ordinals[id(optimizer)] = ordinal
        place = optimizer.place if isinstance(optimizer, ScriptUpdate) else user_call_site()
        self._made.append(_Made(optimizer, ordinal, place))
        return ordinal

    def ordinal_of(self, optimizer: Any) -> int:
        """Number of an optimizer that steps; one that was not seen before, such as a copy, gets its
        own."""
        ordinal = self._ordinals.get(id(optimizer))
        if ordinal is None or self._made[ordinal].there() is not optimizer:
            return self.add(optimizer)
        return ordinal

    def look(self, ordinal: int) -> None:
        """Keeps what can be told of one, for when it is gone."""
        self._made[ordinal].look()

    def gone(self, ordinals: set[int]) -> set[int]:
        """Those of them that the script let go."""
        return {ordinal for ordinal in ordinals if self._made[ordinal].there() is None}

    def replaced_by(self, optimizer: Any, ordinals: set[int]) -> set[int]:
        """Those of them that trained what this one trains now: Adam at first, SGD later."""
        own = set(map(id, _parameters_of(optimizer)))
        return {
            ordinal
            for ordinal in ordinals
            if not own.isdisjoint(map(id, self._made[ordinal].parameters()))
        }

    def parameters(self, ordinals: Iterable[int]) -> list[Tensor]:
        """Parameters that these optimizers train, in their order."""
        return [
            parameter
            for ordinal in sorted(ordinals)
            for parameter in self._made[ordinal].parameters()
        ]

    def would_train_more(self, ordinals: set[int]) -> bool:
        """Whether others than these hold parameters that these do not, and that want a gradient.

        What the script writes itself, an optimizer may still be made for.
        """
        of_torch = {ordinal for ordinal in ordinals if not self._made[ordinal].is_own_update}
        stepping = {id(parameter) for parameter in self.parameters(of_torch)}
        others = set(range(len(self._made))) - ordinals
        return any(
            parameter.requires_grad and id(parameter) not in stepping
            for parameter in self.parameters(others)
        )

    def infos(self, training: set[int]) -> tuple[OptimizerInfo, ...]:
        """The record of each.

        Args:
            training: ordinals of those that step.
        """
        return tuple(
            made.info(trains=ordinal in training) for ordinal, made in enumerate(self._made)
        )


class _Made:
    """An optimizer that the script made.

    Args:
        optimizer: it may not be ready yet.
        place: where it was made.
    """

    def __init__(self, optimizer: Any, ordinal: int, place: SourceLine | None) -> None:
        self.there = weakref.ref(optimizer)
        self.is_own_update = isinstance(optimizer, ScriptUpdate)
        # Its parameters may not be initialized before it steps (lazy modules).
        self._last = OptimizerInfo(
            ordinal=ordinal,
            place=place,
            name=_name_of(optimizer),
            learning_rate=None,
            num_parameters=None,
        )

    def parameters(self) -> list[Tensor]:
        """None of one that is gone."""
        optimizer = self.there()
        return [] if optimizer is None else _parameters_of(optimizer)

    def look(self) -> None:
        optimizer = self.there()
        if optimizer is not None:
            last = self._last
            self._last = optimizer_info(optimizer, last.ordinal, place=last.place)

    def info(self, *, trains: bool) -> OptimizerInfo:
        """Its record."""
        self.look()
        return msgspec.structs.replace(self._last, trains=trains)


def _number(rate: Any) -> float | None:
    """A learning rate; `None` of one that each group has to name (torch's `required`)."""
    try:
        return float(rate)
    except (TypeError, ValueError, RuntimeError):
        return None


def _name_of(optimizer: Any) -> str:
    return OWN_UPDATE if isinstance(optimizer, ScriptUpdate) else type(optimizer).__name__


def _parameters_of(optimizer: Any) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
