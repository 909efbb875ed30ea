"""Ports for servers and ranks that tests start."""

import contextlib
import random
import socket

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to connections, so that none takes a port that was free."""


def free_ports(num=1):
    """The first of so many successive ports that nobody uses; some libraries want one a rank."""
    while True:
        first = random.randrange(PORTS.start, PORTS.stop - num)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + num):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
