"""`batchadvisor emit` in a process of its own, as it is typed."""

import os
import subprocess
import sys

TYPES = ("NVIDIA-A100-SXM4-80GB", "Tesla-T4")
IMAGE = "registry.example/team/train:1"


def emit(*words, folder=None, types=TYPES, image=IMAGE):
    products = [word for name in types for word in ("--gpu-product", name)]
    before, after = [*map(str, words)], []
    if "--" in before:
        place = before.index("--")
        before, after = before[:place], before[place:]
    return subprocess.run(
        [
            *(sys.executable, "-m", "batchadvisor", "emit", *before),
            *("--image", image, *products, *after),
        ],
        cwd=folder, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


def objects(text):
    """The documents of a stream of YAML."""
    import yaml

    return [item for item in yaml.safe_load_all(text) if item is not None]
