"""A function of the running process as `probe` was given it."""

from __future__ import annotations

from typing import Any

import msgspec


class LiveStep(msgspec.Struct, frozen=True):
    """A function of a running Python process, to be probed there.

    Attributes:
        step: as in probes/doors/declared.py.
        batch_size: the size in use now, `None` where the step says it or nobody does.
        num_samples: of an epoch.
    """

    step: Any
    batch_size: int | None = None
    num_samples: int | None = None
