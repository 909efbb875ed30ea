"""A declared workload: what to run at a batch size, without a training loop.

    def make(batch_size):                       # called once for each size
        inputs = torch.randn(batch_size, 512)

        def step():                             # one training step, called many times
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

A function that makes the step itself and returns nothing callable serves as well, and so does an
object with `make(batch_size)` and `step()`, or with `step(batch_size)` alone. `batch_size` (the
size in use now) and `num_samples` (of an epoch) may stand beside it, in the module or the object.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ...records import SourceLine
from ..source.call_site import shown_path

DECLARED_NAMES = ("workload", "make", "step")
"""Names that are looked for in a module where none is given."""
DEFAULT_SIZE = 8
EXAMPLE = "def make(batch_size): ... return step, with def step(): ... inside."


class WorkloadError(Exception):
    """The declaration cannot be used.

    Attributes:
        reason, remedy: what is wrong, and what to do about it.
    """

    def __init__(self, reason: str, remedy: str = f"Declare it as {EXAMPLE}") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class Workload:
    """One declared workload, its signature checked.

    Args:
        declared: a function or an object, see above.
        name: what to call it in messages.
        beside: where it may name its sizes, if not itself.
        batch_size, num_samples: where they are known better than from it.

    Attributes:
        batch_size: its own size.
        num_samples: of an epoch, `None` where it says none.
        place: where it is defined, if Python can tell.

    Raises:
        WorkloadError: it takes something else than one batch size.
    """

    def __init__(
        self,
        declared: Any,
        name: str,
        *,
        beside: Any = None,
        batch_size: int | None = None,
        num_samples: int | None = None,
    ) -> None:
        if isinstance(declared, type):
            declared = _called(declared, name)
        self._declared = declared
        self._name = name
        self._make = _function_of(declared, name)
        self.batch_size = batch_size or _positive(declared, beside, "batch_size") or DEFAULT_SIZE
        self.num_samples = num_samples or _positive(declared, beside, "num_samples")
        self.place = _place(self._make)

    def prepared(self, size: int) -> Callable[[], Any]:
        """A function that makes one step of `size` samples.

        Raises:
            WorkloadError: `make` returned no function, or one that takes arguments.
        """
        made = self._make(size)
        own = getattr(self._declared, "step", None)
        if callable(made) and not _is_result(made):
            step: Callable[[], Any] = made
        elif callable(own) and getattr(own, "__func__", own) is not _plain(self._make):
            step = own
        elif getattr(_plain(self._make), "__name__", "") == "make":
            what = "nothing" if made is None else f"a value of type {type(made).__name__}"
            raise WorkloadError(f"make({size}) returned {what}, and no step.")
        else:
            make = self._make
            return lambda: make(size)
        if not accepts(step):
            reason = f"the step of {self._name} takes {signature_of(step)}, and is called without."
            raise WorkloadError(reason)
        return step


def load(spec: str, *, module: bool) -> Workload:
    """The workload in `FILE.py[:NAME]`, or in `package.module[:NAME]`.

    Raises:
        WorkloadError: there is no such module or name, or it is no workload.
    """
    source, _, name = spec.rpartition(":") if _names_an_object(spec) else (spec, "", "")
    loaded = _import_module(source) if module else _import_file(Path(source))
    if name:
        if not hasattr(loaded, name):
            raise WorkloadError(f"{source} holds no {name}.", f"It holds {_names(loaded)}.")
        return Workload(getattr(loaded, name), name, beside=loaded)
    declared = next((candidate for candidate in DECLARED_NAMES if hasattr(loaded, candidate)), None)
    if declared is None:
        wanted = f"{source} declares no workload: none of {', '.join(DECLARED_NAMES)} is in it."
        raise WorkloadError(wanted)
    return Workload(getattr(loaded, declared), declared, beside=loaded)


def path_of(spec: str) -> str:
    """The file or module of a spec, without the object's name."""
    return spec.rpartition(":")[0] if _names_an_object(spec) else spec


def _names_an_object(spec: str) -> bool:
    return spec.rpartition(":")[2].isidentifier() and ":" in spec


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            reason = f"there is no module {name}: {error}."
            raise WorkloadError(reason, "Check the name and the working folder.") from error
        raise


class _LeavesNoCache(SourceFileLoader):
    """Writes no compiled module beside the file, which `python FILE` would not either."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Keeps the compiled module to itself."""


def _import_file(path: Path) -> ModuleType:
    """Not as `__main__`: a script that trains when it is run does not start to."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} is no Python file.", "Give a .py file, or a module with -m.")
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = _LeavesNoCache(path.stem, str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # as an import would, so that its classes can be pickled
    spec.loader.exec_module(module)
    return module


def _function_of(declared: Any, name: str) -> Callable[[int], Any]:
    for attribute in ("make", "step"):
        method = getattr(declared, attribute, None)
        if callable(method):
            declared, name = method, f"{name}.{attribute}"
            break
    if not callable(declared):
        kind = type(declared).__name__
        raise WorkloadError(f"{name} is no function and no object with make(): it is {kind}.")
    if not accepts(declared, DEFAULT_SIZE):
        raise WorkloadError(
            f"{name} takes {signature_of(declared)}, and is called with a batch size."
        )
    return declared  # type: ignore[no-any-return]


def _called(kind: type, name: str) -> Any:
    if not accepts(kind):
        reason = f"the class {name} takes {signature_of(kind)}, and is made without arguments."
        raise WorkloadError(reason, f"Declare an object of it: {name.lower()} = {name}(...).")
    return kind()


def accepts(function: Any, *arguments: Any) -> bool:
    """Whether it can be called with these arguments, as far as Python can tell."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: the call will tell
        return True
    return True


def signature_of(function: Any) -> str:
    """The arguments that it takes, as Python writes them."""
    if not callable(function):
        return f"no arguments, as it is no function but {type(function).__name__}"
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "arguments of its own"


def _is_result(value: Any) -> bool:
    """A model is callable, and yet what a step may return."""
    import torch

    return isinstance(value, (torch.nn.Module, type))


def _plain(function: Any) -> Any:
    return getattr(function, "__func__", function)


def _positive(declared: Any, beside: Any, name: str) -> int | None:
    for holder in (declared, beside):
        value = getattr(holder, name, None)
        if type(value) is int and value > 0:
            return value
    return None


def _place(function: Any) -> SourceLine | None:
    code = getattr(_plain(function), "__code__", None)
    if code is None or not Path(code.co_filename).is_file():
        return None  # typed in: a notebook's cell has a name, and no file
    return SourceLine(file=shown_path(code.co_filename), line=code.co_firstlineno)


def _names(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
    return ", ".join(names[:8]) or "nothing that can be called"
