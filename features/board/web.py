"""The layer before TensorBoard's application: who may ask, what is told of others' failures."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

FORBIDDEN = (
    "batchadvisor view answers requests from this machine only, and {host} is not its name "
    "(localhost, 127.0.0.1). Otherwise a page of another site whose name points here could read "
    "all that is shown.\nBehind a proxy of your own, start TensorBoard itself: tensorboard "
    "--logdir LOGDIR shows the same tab.\n"
)


def loopback_only(app: App) -> App:
    """Refuses requests whose Host header names anything but this machine's loopback.

    A browser sends the name of the page's own site there. A site that has its name resolve to
    127.0.0.1 (DNS rebinding) would otherwise be of the same origin as TensorBoard and read it all.
    """

    def guarded(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if is_loopback(host):
            return app(environ, start)
        return _plain(start, "403 Forbidden", FORBIDDEN.format(host=host[:100] or "(none)"))

    return guarded


def is_loopback(host: str) -> bool:
    """Whether a Host header names the loopback, on any port: a tunnel may come from another.

    >>> list(map(is_loopback, ("localhost:6006", "127.0.0.1", "[::1]:80", "LocalHost")))
    [True, True, True, True]
    >>> list(map(is_loopback, ("", "a.com", "127.0.0.1.a.com", "0.0.0.0", "localhost.a.com")))
    [False, False, False, False, False]
    >>> list(map(is_loopback, ("a@localhost", "localhost/a.com", "[::1", "localhost#a.com")))
    [False, False, False, False]
    """
    if set(host) & set("@/?#\\"):
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def without_tracebacks(app: App, prefix: str) -> App:
    """Answers with a sentence where a plugin of others raises; the terminal shows nothing.

    Args:
        prefix: of the plugin's addresses.
    """

    def guarded(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        try:
            return app(environ, start)
        except Exception as error:
            if not str(environ.get("PATH_INFO", "")).startswith(prefix):
                raise
            failed = f"This plugin failed here: {type(error).__name__}: {error}\n"
            return _plain(start, "500 Internal Server Error", failed)

    return guarded


def _plain(start: StartResponse, status: str, text: str) -> Iterable[bytes]:
    body = text.encode("utf-8", "replace")
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
    ]
    start(status, headers)
    return [body]
