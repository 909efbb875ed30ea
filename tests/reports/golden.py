"""Stored texts: `BATCHADVISOR_UPDATE_GOLDEN=1 pytest tests/reports` writes them anew."""

import os
from pathlib import Path

FOLDER = Path(__file__).with_name("golden")


def agrees(name, text):
    path = FOLDER / name
    if os.environ.get("BATCHADVISOR_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
