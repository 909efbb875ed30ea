"""Starts the commands of this environment, and servers among them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from .ports import free_ports


def with_our_commands() -> dict[str, str]:
    """In which the commands of this environment are found by their names; one thread each."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}


def serve(command: list[str], folder: Path, path: str, words: str) -> None:
    """Starts a TensorBoard and waits until an address of it answers with the words."""
    port = free_ports()
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=folder,
        env=with_our_commands(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 90
        text = ""
        while time.monotonic() < end and words not in text:
            assert server.poll() is None, "TensorBoard ended"
            try:
                address = f"http://127.0.0.1:{port}/{path}"
                with urllib.request.urlopen(address, timeout=5) as answer:
                    text = answer.read().decode()
            except OSError:
                pass
            time.sleep(0.5)
        assert words in text
    finally:
        server.terminate()
        server.wait()
