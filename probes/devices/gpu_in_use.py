"""A GPU that the script's process uses, as data."""

from __future__ import annotations

import msgspec


class GpuInUse(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU on which the script's process has memory.

    Attributes:
        index: as the process numbers it.
        uuid: with its prefix; `None` where torch does not tell it.
    """

    index: int
    uuid: str | None = None
