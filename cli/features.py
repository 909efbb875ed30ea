"""What features add to the command line: found by its name, and imported when it is asked for."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import click

from .. import features

COMMAND = "_command"
"""How the name of a module ends that holds a command: `view_command.py` holds `view`."""


def verbs() -> list[str]:
    """The commands of all features."""
    return [name.removesuffix(COMMAND) for _, name in _modules() if name.endswith(COMMAND)]


def command(verb: str) -> click.Command | None:
    """A feature's command; `None` where no feature has it."""
    module = find(f"{verb}{COMMAND}")
    found = getattr(module, verb, None)
    return found if isinstance(found, click.Command) else None


def find(name: str) -> ModuleType | None:
    """A module that stands right in a feature's folder; `None` where no feature has one.

    Args:
        name: that only one feature has.
    """
    for feature, each in _modules():
        if each == name:
            return import_module(f"{features.__name__}.{feature}.{name}")
    return None


def _modules() -> Iterator[tuple[str, str]]:
    """Names of a feature and of a module in its folder; nothing is imported."""
    for feature in pkgutil.iter_modules(features.__path__):
        folders = [f"{folder}/{feature.name}" for folder in features.__path__]
        for module in pkgutil.iter_modules(folders):
            yield feature.name, module.name
