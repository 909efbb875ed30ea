"""Folders that the script made when it was started first, and makes again.

`os.makedirs(log_folder)` refuses one that is there, so that no training overwrites another. But
each process of a run stands for the same training: to the script it is the first one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection
from typing import Any

from ..source.replaced import in_pathlib


def may_be_made_again(folders: Collection[str]) -> None:
    """From now on these are made without an error; any other is as it was.

    Args:
        folders: absolute, or seen from the present folder.
    """
    made = frozenset(map(os.path.abspath, folders))
    if not made:
        return
    native = os.mkdir

    @functools.wraps(native)
    def mkdir(path: Any, *args: Any, **options: Any) -> None:
        try:
            native(path, *args, **options)
        except FileExistsError:
            full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  no link is followed
            is_ours = options.get("dir_fd") is None and full in made
            if not (is_ours and os.path.isdir(full)):  # noqa: PTH112
                raise

    os.mkdir = mkdir
    in_pathlib("mkdir", mkdir)
