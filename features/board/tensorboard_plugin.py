"""The tab "Batch Advisor" in TensorBoard: a door that answers requests, no more.

What is in the log directory comes from `features/board/board.py`, pages from `features/board/html`.
Only TensorBoard imports this module, so its base class may stand at the top. At TensorBoard's start
nothing is read.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response
from werkzeug.wsgi import FileWrapper

from ...errors import BatchAdvisorError, UsageError
from ...reports.builder.summary import run_summary
from ...reports.builder.traces import trace_page
from . import html as render
from .board import Board, roots_of
from .page import compare_shown
from .perfetto import INDEX, OTHER_TYPE, TYPES, viewer_files, viewer_policy

NAME = "batch_advisor"
"""The plugin's name in addresses: `/data/plugin/batch_advisor/...`, and after TensorBoard's `#`."""
TAB = "Batch Advisor"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
FRAGMENT_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Fragments are put into the page by its script; opened on their own they can do nothing."""
MAX_KEYS = 50
"""Entries that one request may name."""
PIECE_BYTES = 1 << 20
HTML, JSON, PLAIN = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]+")


class BatchAdvisorPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # has no types
    """Serves the tab for one TensorBoard.

    Args:
        context: from TensorBoard; only its log directory is used.
    """

    plugin_name = NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        super().__init__(context)
        flags = getattr(context, "flags", None)
        spec = getattr(flags, "logdir_spec", "") or ""
        self._board = Board(roots_of(context.logdir or "", spec))
        self._lock = threading.Lock()
        self._files: Mapping[str, Path] | None = None

    def is_active(self) -> bool:
        """Whether there is a run or a trace: TensorBoard shows the tab, or lists it as inactive."""
        return self._board.active()

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Metadata with which TensorBoard makes the tab."""
        return base_plugin.FrontendMetadata(
            es_module_path="/index.js", tab_name=TAB, disable_reload=True
        )

    def get_plugin_apps(self) -> dict[str, Any]:
        """Routes below `/data/plugin/batch_advisor`."""
        return {
            "/index.js": _app(self._index),
            "/page": _app(self._page),
            "/assets/*": _app(self._asset),
            "/entries": _app(self._entries),
            "/lines": _app(self._lines),
            "/show": _app(self._show),
            "/compare": _app(self._compare),
            "/trace/*": _app(self._trace),
            "/viewer/*": _app(self._viewer),
        }

    def _index(self, _: Request) -> Response:
        return _answer(render.assets()["index.js"].read_bytes(), TYPES[".js"])

    def _page(self, _: Request) -> Response:
        return _answer(render.page(), HTML, policy=PAGE_POLICY)

    def _asset(self, request: Request) -> Response:
        path = render.assets().get(request.path.partition("/assets/")[2])
        if path is None:
            raise _NOT_FOUND
        return _answer(path.read_bytes(), TYPES.get(path.suffix, OTHER_TYPE))

    def _entries(self, _: Request) -> Response:
        listed = [
            {
                "key": entry.key,
                "name": entry.name,
                "kind": entry.kind,
                "version": entry.version,
                "modified_s": entry.modified_s,
                "num_traces": len(entry.traces),
            }
            for entry in self._board.entries()
        ]
        data = {"entries": listed, "viewer": bool(self._viewer_files())}
        return _answer(msgspec.json.encode(data), JSON)

    def _lines(self, request: Request) -> Response:
        lines = {}
        for key in _keys(request):
            try:
                shown = self._board.show(key)
                several = shown.entry.kind == "devices"
                lines[key] = self._board.report(shown).headline if several else render.line(shown)
            except BatchAdvisorError:
                continue  # gone between the listing and this request
        return _answer(msgspec.json.encode(lines), JSON)

    def _show(self, request: Request) -> Response:
        shown = self._board.show(_one_key(request))
        viewer = bool(self._viewer_files())
        if shown.entry.kind == "devices":
            text = render.show_devices(self._board.report(shown))
        elif shown.record is not None and shown.advice is not None:
            summary = run_summary(shown.record, shown.advice)
            report = self._board.report(shown)
            pictures = self._board.pictures(shown, report)
            text = render.show_run(shown.entry, report, summary, pictures, viewer=viewer)
        elif shown.analysis is not None:
            page, pictures = trace_page(shown.analysis), self._board.pictures(shown)
            text = render.show_traces(shown.entry, page, pictures, viewer=viewer)
        else:
            text = render.show_problem(shown.entry, shown.problem)
        return _answer(text, HTML, policy=FRAGMENT_POLICY)

    def _compare(self, request: Request) -> Response:
        shown = [self._board.show(key) for key in _keys(request)]
        two = self._board.comparison(shown) if len(shown) == 2 else None
        if two is not None:
            return _answer(render.compare_two(two), HTML, policy=FRAGMENT_POLICY)
        text = render.compare_many(compare_shown(shown))
        return _answer(text, HTML, policy=FRAGMENT_POLICY)

    def _trace(self, request: Request) -> Response:
        """`trace/ENTRY/TRACE/name`: the file as it is, in pieces; viewers unpack packed ones.

        The two keys say which file; the name is for whoever saves it.
        """
        entry, _, rest = request.path.partition("/trace/")[2].partition("/")
        path = self._board.trace(entry, rest.partition("/")[0])
        try:
            file = path.open("rb")
        except OSError as error:
            raise UsageError(f"the trace cannot be read: {error.strerror}.") from error

        name = _UNSAFE.sub("_", path.name)
        return Response(
            FileWrapper(file, PIECE_BYTES),  # closes it, read or not
            mimetype=OTHER_TYPE,
            headers={
                "Content-Length": str(os.fstat(file.fileno()).st_size),
                "Content-Disposition": f'attachment; filename="{name}"',
                **_headers(),
            },
        )

    def _viewer(self, request: Request) -> Response:
        name = request.path.partition("/viewer/")[2] or INDEX
        path = self._viewer_files().get(name)
        if path is None:
            raise _NOT_FOUND
        data = path.read_bytes()
        policy = viewer_policy(data.decode()) if path.suffix == ".html" else ""
        return _answer(data, TYPES.get(path.suffix, OTHER_TYPE), policy=policy)

    def _viewer_files(self) -> Mapping[str, Path]:
        with self._lock:
            if self._files is None:
                self._files = viewer_files()
            return self._files


_NOT_FOUND = UsageError("there is no such file.")


def _app(answer: Callable[[Request], Response]) -> Any:
    """A WSGI application that answers GET and HEAD; an error of ours becomes a plain sentence."""

    @Request.application
    def app(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _answer("only GET is answered.", PLAIN, status=405)
        try:
            return answer(request)
        except BatchAdvisorError as error:
            return _answer(str(error), PLAIN, status=404)

    return app


def _answer(
    data: str | bytes, content_type: str, *, policy: str = "", status: int = 200
) -> Response:
    headers = _headers()
    if policy:
        headers["Content-Security-Policy"] = policy
    return Response(data, status=status, content_type=content_type, headers=headers)


def _headers() -> dict[str, str]:
    return {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }


def _keys(request: Request) -> list[str]:
    return list(dict.fromkeys(request.args.getlist("key")))[:MAX_KEYS]


def _one_key(request: Request) -> str:
    return request.args.get("key", "")
