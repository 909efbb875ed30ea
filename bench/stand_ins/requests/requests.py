"""Stands for `requests`: whatever is asked for is the file of that name in the working folder."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace


@contextmanager
def get(url: str, **_: object):
    """The file that the URL ends in."""
    with Path(url.rpartition("/")[2]).open("rb") as raw:
        yield SimpleNamespace(raw=raw, status_code=200)
