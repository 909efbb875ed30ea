"""The doors: how sizes reach a script, and what follows from it."""

from __future__ import annotations

from typing import Literal

import msgspec

Door = Literal["loader", "template", "workload", "keras", "live"]
"""How the sizes reach the script: through its DataLoader, as an argument (a process a size), as
the argument of a declared workload, as that of Keras' `Model.fit`, or as the argument of a live
function in the process that asked."""


class DoorTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Traits of a door, whatever the script.

    Attributes:
        steers_loader: the sizes are those of a DataLoader that the script made.
        process_per_size: each size has a process of its own.
        size_is_argument: the size is an argument of the script.
        declares_workload: what is named is a file with a declared function, `FILE.py[:NAME]`.
        in_this_process: the steps run in the process that asked, and are gone with it.
        reorders_samples: a batch can be made of samples of our choice, such as the longest.
        takes_turns: sizes can take turns inside one process.
        may_start_ranks: a script may start ranks of its own, which are steered then.
        sees_data: what yields the batches was seen, its length included.
        trains_by_keras: the end of an epoch is that of Keras.
    """

    steers_loader: bool = False
    process_per_size: bool = False
    size_is_argument: bool = False
    declares_workload: bool = False
    in_this_process: bool = False
    reorders_samples: bool = False
    takes_turns: bool = False
    may_start_ranks: bool = False
    sees_data: bool = False
    trains_by_keras: bool = False


_TRAITS: dict[Door, DoorTraits] = {
    "loader": DoorTraits(
        steers_loader=True,
        reorders_samples=True,
        takes_turns=True,
        may_start_ranks=True,
        sees_data=True,
    ),
    "template": DoorTraits(process_per_size=True, size_is_argument=True),
    "workload": DoorTraits(declares_workload=True),
    "keras": DoorTraits(sees_data=True, trains_by_keras=True),
    "live": DoorTraits(in_this_process=True, takes_turns=True),
}


def traits_of(door: Door) -> DoorTraits:
    """Returns the traits of a door.

    >>> traits_of("template").process_per_size, traits_of("template").takes_turns
    (True, False)
    """
    return _TRAITS[door]
