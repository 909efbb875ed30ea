"""Keeps the children of one job in step, and lets the other ranks' supervisors in.

One thread in the leading rank's supervisor. At the end of every step each child sends one byte;
when all have, each gets the byte of rank 0 back: what all of them do next.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import selectors
import socket
import threading

from .messages import Address, Join, read_join

JOIN_S = 5.0
"""Longest wait for the first line of a connection."""


class RankCoordinator:
    """Listens until it is closed.

    Args:
        host: where; loopback if all ranks are on this host.
        token: the job's secret.
        world_size: ranks of the job.

    Attributes:
        supervisors: connections of the other ranks' supervisors, as they come.
    """

    def __init__(self, host: str, token: str, world_size: int) -> None:
        self._token = token
        self._world_size = world_size
        self._listener = socket.create_server((host, 0), backlog=2 * world_size)
        self.address = Address(host=host, port=self._listener.getsockname()[1], token=token)
        self.supervisors: queue.Queue[tuple[Join, socket.socket]] = queue.Queue()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._children: dict[int, dict[int, socket.socket]] = {}
        self._said: dict[int, dict[int, bytes]] = {}
        self._thread = threading.Thread(target=self._listen, name="coordinator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and every connection that it still holds."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b".")
        self._thread.join()
        for children in self._children.values():
            for child in children.values():
                child.close()
        while not self.supervisors.empty():
            self.supervisors.get_nowait()[1].close()
        for other in (self._listener, self._wake_read, self._wake_write):
            other.close()
        self._selector.close()

    # in the thread ---------------------------------------------------------------------------

    def _listen(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake_read:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._hear(key.fileobj, *key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        join = read_join(connection, JOIN_S)
        if join is None or not hmac.compare_digest(join.token, self._token):
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if join.role == "supervisor":
            self.supervisors.put((join, connection))
            return
        self._children.setdefault(join.generation, {})[join.rank] = connection
        self._selector.register(connection, selectors.EVENT_READ, (join.generation, join.rank))

    def _hear(self, connection: socket.socket, generation: int, rank: int) -> None:
        try:
            byte = connection.recv(1)
        except OSError:
            byte = b""
        if not byte:
            self._dismiss(generation)
            return
        said = self._said.setdefault(generation, {})
        said[rank] = byte
        if len(said) < self._world_size:
            return
        answer = said[0]
        said.clear()
        for child in self._children[generation].values():
            with contextlib.suppress(OSError):
                child.sendall(answer)

    def _dismiss(self, generation: int) -> None:
        """One child is gone: the others of its generation need not wait for it."""
        for child in self._children.pop(generation, {}).values():
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(child)
            child.close()
        self._said.pop(generation, None)
