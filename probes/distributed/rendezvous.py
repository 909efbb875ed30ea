"""How the ranks of one job find each other: the leading rank says where it listens.

Under torchrun this is written to a prefix of our own on the launcher's store. Where the job has
only an address (MASTER_ADDR and MASTER_PORT), the leading rank keeps a store there. Where it has
neither and all ranks are on one host, a file that only this user can read says it. The script's
own process group is never touched: its port is a fresh one, agreed on for every start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from ...errors import RunError, UsageError
from .messages import Address
from .ranks import Rank

MEETING_S = 120.0
"""Longest wait for the other ranks of the job."""
POLL_S = 0.05
_KEY = "address"


def new_token() -> str:
    """A secret of one job."""
    return secrets.token_hex(16)


def host_for(rank: Rank, environment: Mapping[str, str]) -> str:
    """The address on which the leading rank listens: loopback where nobody else needs it."""
    if rank.one_host:
        return "127.0.0.1"
    master = environment.get("MASTER_ADDR", "")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # sends nothing; asks the kernel for the way there
        address = str(probe.getsockname()[0])
        if not address.startswith("127."):
            return address
    return socket.gethostbyname(socket.getfqdn())


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def publish(rank: Rank, address: Address, environment: Mapping[str, str]) -> Iterator[None]:
    """The leading rank: its address can be read until the block ends.

    Raises:
        RunError: the launcher's store does not answer.
        UsageError: there is nothing to meet at.
    """
    data = msgspec.json.encode(address)
    if rank.world_size == 1:
        yield
        return
    if not _has_address(environment):
        path = _file(rank)
        _write_for_us_alone(path, data)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
        return
    store = _store(rank, environment, leads=True)
    store.set(_KEY, data)
    yield
    del store


def look_up(rank: Rank, environment: Mapping[str, str], timeout_s: float = MEETING_S) -> Address:
    """Another rank: where the leading one listens.

    Raises:
        RunError: it did not say so in time.
        UsageError: there is nothing to meet at.
    """
    if not _has_address(environment):
        return _read_when_there(rank, timeout_s)
    end = time.monotonic() + timeout_s
    store = _store(rank, environment, leads=False, timeout_s=timeout_s)
    try:
        while not store.check([_KEY]):  # a wait inside the store would not hear Ctrl-C
            if time.monotonic() > end:
                raise _nobody(rank, timeout_s)
            time.sleep(POLL_S)
        data = store.get(_KEY)
    except RuntimeError as error:
        raise _nobody(rank, timeout_s) from error
    return msgspec.json.decode(data, type=Address)


def _has_address(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"))


def _store(
    rank: Rank, environment: Mapping[str, str], *, leads: bool, timeout_s: float = MEETING_S
) -> Any:
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    agents = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = TCPStore(
            host,
            port,
            is_master=leads and not agents,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        if leads and not agents:
            msg = f"cannot listen on {host}:{port} (MASTER_ADDR, MASTER_PORT): {_first(error)}."
            raise UsageError(msg, "Set MASTER_PORT to a port that is free.") from error
        raise _nobody(rank, timeout_s) from error
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"batchadvisor/{attempt}", store)


def _file(rank: Rank) -> Path:
    if not rank.one_host or not rank.job:
        msg = f"{rank.launcher} started {rank.world_size} ranks and no address to meet at."
        raise UsageError(msg, "Set MASTER_ADDR and MASTER_PORT for all ranks.")
    name = hashlib.sha256(rank.job.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"batchadvisor-{os.getuid()}-{name}"


def _write_for_us_alone(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    draft.replace(path)


def _read_when_there(rank: Rank, timeout_s: float) -> Address:
    path = _file(rank)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if path.stat().st_uid == os.getuid():
                return msgspec.json.decode(path.read_bytes(), type=Address)
        time.sleep(POLL_S)
    raise _nobody(rank, timeout_s)


def _nobody(rank: Rank, timeout_s: float) -> RunError:
    msg = (
        f"rank {rank.rank} of {rank.world_size} found no rank 0 within {timeout_s:.0f} s "
        f"({rank.launcher})."
    )
    return RunError(msg, "Start batchadvisor in every rank, with the same command.")


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
