"""Runs a script as it is, without batchadvisor, and says what its training steps are like.

    python bench/observed_script.py --seconds 3 --out seen.json train.py --its-options

Samples are counted where they enter the outermost module that trains, and a step ends with the
optimizer's. Where a script steps without an optimizer of torch, a step ends with the backward pass.
After some steps that do not count it times as many as fit, writes what it saw, and ends the script.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

NUM_WARMUP_STEPS = 3


class Observer:
    """Counts samples and steps of this process.

    Args:
        seconds: how long steps are timed.
        dimension: of a batch that counts its samples.
        out: where to write what was seen.
    """

    def __init__(self, seconds: float, dimension: int, out: Path) -> None:
        self._seconds, self._dimension, self._out = seconds, dimension, out
        self._depth = self._entered = self._num_steps = 0
        self._timed: list[tuple[float, int]] = []
        self._sizes: dict[int, int] = {}
        self._learners: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._last = self._begun = 0.0

    def install(self) -> None:
        """Looks at modules, backward passes and optimizers from here on."""
        call, backward = torch.nn.Module.__call__, torch.Tensor.backward
        has_optimizer = [False]

        def observed_call(module: Any, *inputs: Any, **named: Any) -> Any:
            if not self._depth and torch.is_grad_enabled() and self._trains(module):
                self._enters([*inputs, *named.values()])
            self._depth += 1
            try:
                return call(module, *inputs, **named)
            finally:
                self._depth -= 1

        def observed_backward(tensor: Any, *inputs: Any, **named: Any) -> None:
            backward(tensor, *inputs, **named)
            if not has_optimizer[0]:
                self._step()

        torch.nn.Module.__call__ = observed_call  # type: ignore[method-assign]
        torch.Tensor.backward = observed_backward  # type: ignore[assignment, method-assign]
        register_optimizer_step_post_hook(lambda *_: self._step())
        init = torch.optim.Optimizer.__init__

        def observed_init(optimizer: Any, *inputs: Any, **named: Any) -> None:
            has_optimizer[0] = True  # a step ends with its own, no longer with a backward pass
            init(optimizer, *inputs, **named)

        torch.optim.Optimizer.__init__ = observed_init  # type: ignore[method-assign]

    def _trains(self, module: Any) -> bool:
        if not module.training:
            return False
        if module not in self._learners:  # losses and transforms are modules too
            self._learners[module] = any(weight.requires_grad for weight in module.parameters())
        return self._learners[module]

    def _enters(self, inputs: list[Any]) -> None:
        for value in inputs:
            if isinstance(value, torch.Tensor) and value.dim() > self._dimension:
                size = value.shape[self._dimension]
                self._entered += size
                self._sizes[size] = self._sizes.get(size, 0) + 1
                return

    def _step(self) -> None:
        if not self._entered:
            return  # another optimizer's step of the same batch
        now = time.perf_counter()
        self._num_steps += 1
        if self._num_steps == NUM_WARMUP_STEPS:
            self._begun, self._sizes = now, {}
        elif self._num_steps > NUM_WARMUP_STEPS:
            self._timed.append((now - self._last, self._entered))
            if now - self._begun > self._seconds:
                self.end()
        self._last, self._entered = now, 0

    def end(self) -> None:
        """Writes what was seen, and ends this process."""
        took, samples = sum(took for took, _ in self._timed), sum(num for _, num in self._timed)
        seen = {
            "num_steps": len(self._timed),
            "samples_per_s": samples / took if took else None,
            "sizes": self._sizes,
        }
        self._out.write_text(json.dumps(seen))
        sys.stdout.flush()
        os._exit(0)


def main() -> None:
    """Runs the script under an observer."""
    parser = argparse.ArgumentParser(description="what a script's training steps are like")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--dimension", type=int, default=0, help="of a batch that counts samples")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("words", nargs=argparse.REMAINDER, help="the script and its arguments")
    options = parser.parse_args()
    if options.words[0] == "--":
        del options.words[0]
    observer = Observer(options.seconds, options.dimension, options.out.resolve())
    observer.install()
    sys.argv = options.words
    if options.words[0] == "-m":
        sys.argv = options.words[1:]
        runpy.run_module(options.words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(options.words[0]).resolve().parent)
        runpy.run_path(options.words[0], run_name="__main__")
    observer.end()


if __name__ == "__main__":
    main()
