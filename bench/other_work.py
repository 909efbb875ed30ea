"""What other processes take of the machine while a bench measures."""

from __future__ import annotations

import os
from pathlib import Path


class OtherWork:
    """What other work took of the cores' time since it was made, by the kernel's counts."""

    def __init__(self) -> None:
        self._start = self._read()

    def others_pct(self) -> float | None:
        """Percent of all cores' time that neither these processes nor idling took."""
        if self._start is None or (end := self._read()) is None:
            return None
        busy, total, ours = (now - then for now, then in zip(end, self._start, strict=True))
        return 100 * max(0.0, busy - ours) / total if total else None

    @staticmethod
    def _read() -> tuple[float, float, float] | None:
        try:
            words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return None
        ticks = [float(word) / os.sysconf("SC_CLK_TCK") for word in words]
        total, idle = sum(ticks), ticks[3] + ticks[4]
        own = os.times()
        return total - idle, total, sum(own[:4])
