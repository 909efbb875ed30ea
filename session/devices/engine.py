"""The interface of what starts runs of a script elsewhere: here, by Slurm, by Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ..setup.options import RunOptions


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the script on one device.

    Attributes:
        name: unique among all that an engine starts.
        request: the device as the engine asks for it: `gpu:a100:1`.
        options: of that run; its `output` is the folder of its record.
        log: what the run says on standard error has to get there, while it runs.
        cores: of this machine, to which the run is bound; empty for all.
        time_limit_s: it ends after so many seconds, the wait for a node included.
    """

    name: str
    request: str
    options: RunOptions
    log: Path
    cores: tuple[int, ...] = ()
    time_limit_s: float

    @property
    def output(self) -> Path:
        """The folder of its record."""
        assert self.options.output is not None
        return self.options.output


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe stands.

    Attributes:
        detail: why it waits, or where it runs; in the engine's words.
        exit_code: of a run that ended, where the engine tells it.
        error: why it ended, in the engine's words; a run that says so itself needs none.
    """

    state: Literal["waiting", "running", "ended"]
    detail: str = ""
    exit_code: int | None = None
    error: str = ""


class Engine(Protocol):
    """Starts probes; its records lie in the folders of the probes once they have ended."""

    def start(self, probe: Probe) -> None:
        """Hands a probe to the engine, and returns at once.

        Raises:
            RunError: the engine refuses it.
        """
        ...

    def look(self) -> Mapping[str, Standing]:
        """How all started probes stand, by their names. Asked several times a second."""
        ...

    def cancel(self, names: Sequence[str]) -> None:
        """Asks probes to end as Ctrl-C does: each keeps what it measured."""
        ...

    def close(self) -> None:
        """Ends what is left, at once, and removes what the engine needed."""
        ...
