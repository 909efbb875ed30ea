"""Snapshots of torch's own CUDA allocator, recorded on a stand-in for a GPU."""

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path

from batchadvisor.probes.memory.snapshot import read_snapshot

FOLDER = Path(__file__).parent / "data/snapshots"
CASES = json.loads((FOLDER / "index.json").read_text())["files"]


def pickled(name):
    """The bytes that `torch.cuda.memory._dump_snapshot` would have written."""
    return gzip.decompress((FOLDER / name).read_bytes())


@cache
def snapshot_of(name):
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickled(name))
        file.flush()
        return read_snapshot(Path(file.name))
