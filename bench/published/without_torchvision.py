"""Names of torchvision that timm asks for on import, where no torchvision fits the local torch.

The models are built of none of them: they belong to timm's data sets and transforms.
"""

import sys
from types import ModuleType
from typing import Any, ClassVar

NAMES = (
    *("torchvision", "torchvision.datasets", "torchvision.models", "torchvision.ops"),
    *("torchvision.models.feature_extraction", "torchvision.ops.misc", "torchvision.transforms"),
    *("torchvision.transforms.functional", "torchvision.transforms.v2"),
)


class _Empty(ModuleType):
    """A module in which every name is a class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        inner = sys.modules.get(f"{self.__name__}.{name}")
        return type(name, (), _MODES) if inner is None else inner


_MODES = {"NEAREST": 0, "LANCZOS": 1, "BILINEAR": 2, "BICUBIC": 3, "BOX": 4, "HAMMING": 5}
"""Of interpolation, which timm puts into tables."""


def install() -> None:
    """From now on torchvision is these."""
    for name in NAMES:
        sys.modules.setdefault(name, _Empty(name))
