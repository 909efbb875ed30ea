"""The torchvision that is installed, where its compiled operators do not fit this build of torch.

Its Python declares fake versions of two compiled operators on import and ends with "operator
torchvision::nms does not exist" without them. They are declared here, so that its models,
transforms and data sets are the real ones; only the compiled operators stay unusable. Checksums of
data sets are not looked at, so that made-up pictures may lie where a download would.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import torch

_HERE = Path(__file__).resolve().parent
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
if not hasattr(torch.ops.torchvision, "nms"):
    for _name in ("nms", "qnms"):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

_spec = PathFinder.find_spec("torchvision", [p for p in sys.path if Path(p).resolve() != _HERE])
if _spec is None or _spec.loader is None:
    raise ModuleNotFoundError("torchvision is not installed", name="torchvision")
_module = importlib.util.module_from_spec(_spec)
_module.operators_for_the_bench = _OPERATORS
sys.modules["torchvision"] = _module
_spec.loader.exec_module(_module)

import torchvision.datasets.utils as _utils  # noqa: E402  the real one, from here on

_utils.check_md5 = lambda *_, **__: True
