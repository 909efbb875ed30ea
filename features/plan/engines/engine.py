"""The interface of every engine: start a probe on a GPU of a type, say how it stands, end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ....session.setup.options import RunOptions


class GpuType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of GPU that a cluster has.

    Attributes:
        name: unique in the run, and the name of the folder of its record.
        request: as the engine asks for one of them: `gpu:a100:1`.
    """

    name: str
    request: str


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the script on one GPU of a type.

    Attributes:
        options: of that run; its `output` is the folder of its record.
        log: what the run says on standard error has to get there, while it runs.
        time_limit_s: it ends after so many seconds, the wait for a node included.
    """

    type: GpuType
    options: RunOptions
    log: Path
    time_limit_s: float

    @property
    def name(self) -> str:
        """The name of its type."""
        return self.type.name

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

    def types(self) -> tuple[GpuType, ...]:
        """The types of GPU to probe.

        Raises:
            UsageError: the engine is not here, or its cluster has no GPU, or none as asked for.
        """
        ...

    def start(self, probe: Probe) -> None:
        """Hands a probe to the engine, and returns at once.

        Raises:
            RunError: the engine refuses it.
        """
        ...

    def look(self) -> Mapping[str, Standing]:
        """How all started probes stand, by their names. Asked about twice a second."""
        ...

    def cancel(self, names: Sequence[str]) -> None:
        """Asks probes to end as Ctrl-C does: each keeps what it measured."""
        ...

    def close(self) -> None:
        """Ends what is left, at once, and removes what the engine needed."""
        ...
