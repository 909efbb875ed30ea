"""Messages between the supervisors of several ranks, and from a child to the coordinator.

The orders of a worker and its answers to them, and a few of their own: JSON lines over one TCP
connection a rank. The first line of every connection is a `Join` with the
job's token; who does not know the token is not answered.
"""

from __future__ import annotations

import os
import socket
from typing import Literal

import msgspec

from ...records import FileTouched, Outcome
from ..process.channel import Channel
from ..process.messages import (
    CannotSteer,
    Ended,
    Found,
    Message,
    PairsResult,
    Progress,
    Raised,
    Result,
)
from ..process.orders import Lockstep, RunPairs, RunTrial, WorkOrder

CONNECT_S = 30.0
MAX_FIRST_LINE = 4096


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the leading rank listens, and the word that proves that one belongs to the job."""

    host: str
    port: int
    token: str


class Join(Message, frozen=True, kw_only=True):
    """The first line of a connection.

    Attributes:
        role: `supervisor` for the rank's own process, `child` for the script's.
        generation: of the children, counted from 0; every restart makes a new one.
    """

    token: str
    role: Literal["supervisor", "child"]
    rank: int
    world_size: int
    generation: int = 0
    local_rank: int = 0
    host: str = ""


class Spawn(Message, frozen=True, kw_only=True):
    """Start the script and bring it to its training loop; answered by `Found` or `Gone`."""

    order: WorkOrder
    master_address: str
    master_port: int
    silence_s: float
    setup_s: float
    log: str


class End(Message, frozen=True, kw_only=True):
    """End the script; answered by `Done`, after the answer to what was under way."""


class Bye(Message, frozen=True, kw_only=True):
    """All is over."""


class Gone(Message, frozen=True, kw_only=True):
    """The rank's script is over; see endings.WorkerGone."""

    outcome: Outcome
    detail: str
    message: Raised | Ended | CannotSteer | None = None


class Done(Message, frozen=True, kw_only=True):
    """The rank's script was ended."""

    files: tuple[FileTouched, ...] = ()


ToFollower = Spawn | RunTrial | RunPairs | End | Bye
FromFollower = Found | Result | PairsResult | Gone | Done | Progress

to_follower: msgspec.json.Decoder[ToFollower] = msgspec.json.Decoder(ToFollower)
from_follower: msgspec.json.Decoder[FromFollower] = msgspec.json.Decoder(FromFollower)
_join: msgspec.json.Decoder[Join] = msgspec.json.Decoder(Join)


def dial(host: str, port: int, join: Join) -> socket.socket:
    """A connection of one rank, its first line sent.

    Raises:
        OSError: nobody answers there.
    """
    connection = socket.create_connection((host, port), CONNECT_S)
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(msgspec.json.encode(join) + b"\n")
    return connection


def dial_supervisor(
    address: Address | Lockstep, *, rank: int, world_size: int, local_rank: int
) -> Channel:
    """A rank's line to the supervisor of rank 0.

    Args:
        address: where it listens, and the job's token.

    Raises:
        OSError: it does not answer.
    """
    join = Join(
        token=address.token,
        role="supervisor",
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        host=os.uname().nodename,
    )
    return channel_over(dial(address.host, address.port, join))


def dial_starter(lockstep: Lockstep) -> Channel:
    """Connects a rank that the script started itself; all ranks are on one host."""
    return dial_supervisor(
        lockstep, rank=lockstep.rank, world_size=lockstep.world_size, local_rank=lockstep.rank
    )


def read_join(connection: socket.socket, timeout_s: float) -> Join | None:
    """The first line of whoever connected, `None` if it is none of ours."""
    connection.settimeout(timeout_s)
    data = bytearray()
    try:
        while not data.endswith(b"\n"):
            byte = connection.recv(1)
            if not byte or len(data) > MAX_FIRST_LINE:
                return None
            data += byte
        connection.settimeout(None)
        return _join.decode(data)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def channel_over(connection: socket.socket) -> Channel:
    """The connection as a channel; the socket object is used up."""
    read_fd = connection.detach()
    return Channel(read_fd, os.dup(read_fd))
