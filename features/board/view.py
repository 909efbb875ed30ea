"""`batchadvisor view`: TensorBoard on loopback, at our tab.

Also who may ask it, and what becomes of the processes that its plugins start.
"""

from __future__ import annotations

import atexit
import ipaddress
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from ...errors import RunError, UsageError
from ...probes.process.interrupts import like_ctrl_c
from ...session.recording.store import RECORD, TRACES
from .board import Board

RUNS = Path("batchadvisor-runs")
HOST = "127.0.0.1"
RELOAD_S = 5.0
Tab = Literal["auto", "on", "off"]
Result = TypeVar("Result")
Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

PROFILER_MODULE = "torch_tb_profiler"
PROFILER_ADDRESS = "/data/plugin/pytorch_profiler/"
PROFILER_LOG = "TORCH_PROFILER_LOG_LEVEL"
MAX_AUTO_BYTES = 100_000_000
"""The PyTorch profiler tab is added while the traces are smaller: it reads all at the start, at
some 12 MB a second, and keeps several times their size in memory (bench/trace_reader.py)."""
PACKED_RATIO = 20
"""How many times smaller packed traces are, about."""
FORBIDDEN = (
    "batchadvisor view answers requests from this machine only, and {host} is not its name "
    "(localhost, 127.0.0.1). Otherwise a page of another site whose name points here could read "
    "all that is shown.\nBehind a proxy of your own, start TensorBoard itself: tensorboard "
    "--logdir LOGDIR shows the same tab.\n"
)


class Viewing:
    """A TensorBoard that serves.

    Attributes:
        address: of our tab.
        logdir: what it shows.
        profiler_tab: whether the PyTorch profiler tab is there.
        notes: what to tell the user.
    """

    def __init__(
        self,
        server: Any,
        logdir: Path,
        *,
        profiler_tab: bool,
        notes: list[str],
        readers: Readers | None = None,
    ) -> None:
        self._server = server
        self._readers = readers
        self._ended = threading.Event()
        self.logdir = logdir
        self.profiler_tab = profiler_tab
        self.notes = notes
        self.address = f"{server.get_url().rstrip('/')}/#batch_advisor"

    def serve(self) -> None:
        """Serves until Ctrl-C, a polite kill or `stop`; returns when the port is free again."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        before = like_ctrl_c()
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._server.shutdown()
            self._server.server_close()
            thread.join(timeout=5)
            if self._readers is not None:
                self._readers.end()

    def stop(self) -> None:
        """Ends `serve`, from another thread."""
        self._ended.set()


def view(
    logdir: Path | None = None, *, port: int | None = None, profiler_tab: Tab = "auto"
) -> Viewing:
    """Starts TensorBoard; `serve` of what is returned answers requests.

    Args:
        logdir: a run's folder, its record, or a folder of runs or traces; `None` takes
            `batchadvisor-runs`, of which the tab opens the newest.
        port: on loopback; `None` takes 6006, or the next free one as TensorBoard does; 0 any.
        profiler_tab: whether to add the tab of torch-tb-profiler.

    Raises:
        UsageError: there is nothing to show, the port is taken, or nobody knows where we are.
        RunError: TensorBoard does not start.
    """
    _check_working_folder()
    chosen = choose(logdir)
    _check_port(port)
    notes: list[str] = []
    with_profiler = _with_profiler(chosen, profiler_tab, notes)
    if with_profiler and PROFILER_LOG not in os.environ:
        # What it cannot read it tells in tracebacks, also from processes of its own.
        os.environ[PROFILER_LOG] = "CRITICAL"
        notes.append(
            "The PyTorch profiler tab leaves out what its plugin cannot read "
            f"({PROFILER_LOG}=WARNING says why)."
        )
    readers = Readers() if with_profiler else None
    plugins = _plugins(with_profiler=with_profiler)
    server = (
        _server(chosen, port, plugins)
        if readers is None
        else readers.apart(lambda: _server(chosen, port, plugins))
    )
    return Viewing(server, chosen, profiler_tab=with_profiler, notes=notes, readers=readers)


def _check_working_folder() -> None:
    """TensorBoard and its plugins ask for it, and cannot do without."""
    try:
        Path.cwd()
    except OSError as error:
        msg = f"cannot find the working folder: {error.strerror}."
        raise UsageError(msg, "Change to one that exists.") from error


def _check_port(port: int | None) -> None:
    """Fails before plugins are loaded, which takes seconds and may start processes."""
    if not port:
        return
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except PermissionError as error:
        msg = f"this user may not open port {port}."
        raise UsageError(msg, "Choose one above 1023 with --port.") from error
    except OSError as error:
        raise _taken(f"port {port} is") from error


def _taken(what: str) -> UsageError:
    return UsageError(
        f"{what} in use on {HOST}.", "Choose another with --port; 0 takes any free one."
    )


def choose(logdir: Path | None) -> Path:
    """The log directory to show.

    Raises:
        UsageError: there is none, or it holds nothing.
    """
    if logdir is None:
        logdir = RUNS
        if not logdir.is_dir():
            raise UsageError(
                f"there is no folder {RUNS} here.",
                "Name a folder, or start a run: batchadvisor run SCRIPT.",
            )
    if not logdir.exists():
        raise UsageError(f"there is no folder {logdir}.", "Check the path.")
    if logdir.is_file():
        if logdir.name != RECORD:
            raise UsageError(f"{logdir} is a file.", "Give the folder that it is in.")
        logdir = logdir.parent
    board = Board([("", logdir)])
    if not board.active() and not _has_events(logdir):
        raise UsageError(
            f"{logdir} holds no run, no trace and no event file.",
            "Start a run: batchadvisor run SCRIPT.",
        )
    return _log_directory(logdir, board)


def _log_directory(folder: Path, board: Board) -> Path:
    """The folder; of a single run its traces, so that its sizes are named without a prefix.

    Whatever else is in the folder (further runs, scalars of a callback) is shown as well.
    """
    inner = folder / TRACES
    if not (folder / RECORD).exists() or not inner.is_dir():
        return folder
    alone = len(board.entries()) == 1 and not _has_events(folder, but=inner)
    return inner if alone else folder


def _has_events(folder: Path, but: Path | None = None) -> bool:
    return any(
        "tfevents" in name
        for place, _, names in os.walk(folder)
        if but is None or not Path(place).is_relative_to(but)
        for name in names
    )


def _with_profiler(logdir: Path, tab: Tab, notes: list[str]) -> bool:
    if tab == "off":
        return False
    if not any(point.value.startswith(PROFILER_MODULE) for point in _entry_points()):
        if tab == "on":
            raise UsageError("torch-tb-profiler is not installed.", "pip install torch-tb-profiler")
        return False
    if tab == "on":
        return True
    size = sum(
        file.num_bytes * (PACKED_RATIO if file.path.endswith(".gz") else 1)
        for entry in Board([("", logdir)]).entries()
        for file in entry.traces
    )
    if size > MAX_AUTO_BYTES:
        notes.append(
            "The PyTorch profiler tab is left out, it would read all traces first: "
            f"about {size / 1e6:.0f} MB of JSON (--pytorch-profiler-tab on adds it)."
        )
    return size <= MAX_AUTO_BYTES


def _entry_points() -> list[metadata.EntryPoint]:
    return list(metadata.entry_points(group="tensorboard_plugins"))


def _plugins(*, with_profiler: bool) -> list[Any]:
    """TensorBoard's own, ours, and those of other packages; ours also where it is not installed."""
    from tensorboard import default

    from .tensorboard_plugin import BatchAdvisorPlugin

    plugins: list[Any] = [*default.get_static_plugins(), BatchAdvisorPlugin]
    for point in _entry_points():
        ours = point.name == BatchAdvisorPlugin.plugin_name
        if not ours and (with_profiler or not point.value.startswith(PROFILER_MODULE)):
            plugins.append(point.load())
    return plugins


def _server(logdir: Path, port: int | None, plugins: list[Any]) -> Any:
    from tensorboard import program

    def serving(app: Any, flags: Any) -> Any:
        guarded = loopback_only(without_tracebacks(app, PROFILER_ADDRESS))
        return program.create_port_scanning_werkzeug_server(guarded, flags)

    board = program.TensorBoard(plugins=plugins, server_class=serving)
    board.configure(
        argv=("",),
        logdir=os.fspath(logdir.resolve()),
        host=HOST,
        port=port,
        load_fast="false",
        reload_interval=RELOAD_S,
        reload_multifile=True,
    )
    try:
        return board._make_server()  # noqa: SLF001  launch() gives no way to end it
    except program.TensorBoardPortInUseError as error:
        what = "TensorBoard's ports are" if port is None else f"port {port} is"
        raise _taken(what) from error
    except program.TensorBoardServerException as error:
        raise RunError(f"TensorBoard does not start: {error.msg}.") from error


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


class Readers:
    """Processes that this one starts through `multiprocessing` from now on; ended at its exit."""

    def __init__(self) -> None:
        self._others = set(multiprocessing.active_children())
        # After multiprocessing registered its own, so that ours is called first.
        atexit.register(self.end, with_manager=True)

    def apart(self, start: Callable[[], Result]) -> Result:
        """Calls `start` in a thread whose threads and processes never see Ctrl-C.

        Both inherit which signals are blocked. The caller's thread is interrupted as ever.
        """
        resource_tracker.ensure_running()  # starting it would let the signal through again
        results: list[Result] = []
        raised: list[BaseException] = []

        def work() -> None:
            try:
                results.append(start())
            except BaseException as error:  # noqa: BLE001  raised again where it is waited for
                raised.append(error)

        thread = threading.Thread(target=work, daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        thread.join()
        if raised:
            raise raised[0]
        return results[0]

    def end(self, *, with_manager: bool = False) -> None:
        """Kills what was started; the manager of the plugin's cache only at the very end."""
        quiet = 0
        while quiet < 3:  # the plugin's threads may be about to start another
            children = [
                child
                for child in multiprocessing.active_children()
                if child not in self._others
                and (with_manager or not child.name.startswith("SyncManager"))
            ]
            for child in children:
                child.kill()
            quiet = 0 if children else quiet + 1
            time.sleep(0.02)
