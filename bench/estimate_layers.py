"""Each family of torch's layers and optimizers through `batchadvisor estimate`, against a real step.

    python bench/estimate_layers.py                 all of them
    python bench/estimate_layers.py --only LSTM     one of them
    python bench/estimate_layers.py --train LSTM    is the script that is estimated

The families are those of tests/fake_step/layer_families.py. A real step runs on the CPU: what its
storages take at most in its second step is compared with the same of a fake step, once in the form
that the CPU has, and once in that of a GPU, which `estimate` counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
BATCHES = 400
WITHIN = 0.02
RAW = HERE.parent / "results" / "estimate-layers_torch-2.13.0.json"
ESTIMATE = (sys.executable, "-m", "batchadvisor", "estimate", "--json", "-q", "--gpu", "2GiB")


def train(name: str) -> None:
    """A script as people write it."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    from tests.fake_step.layer_families import ALL, usual_step

    family = ALL[name]
    torch.manual_seed(0)

    class Items(Dataset[Any]):
        def __len__(self) -> int:
            return BATCHES * (1 if family.whole else family.size)

        def __getitem__(self, index: int) -> Any:
            return family.sample()

    size = None if family.whole else family.size
    loader = DataLoader(Items(), batch_size=size, collate_fn=family.collate)
    model = family.build()
    optimizer = family.optimizer(model)
    for batch in loader:
        usual_step(family, model, optimizer, batch)


def measure(names: list[str]) -> dict[str, Any]:
    """Peaks of a real and a fake second step in the CPU's form, or why there is none."""
    import torch

    torch.set_num_threads(1)
    out = {}
    for name in names:
        # mkldnn's fused LSTM keeps what no tensor shows.
        torch._C._set_mkldnn_enabled(not name.startswith(("LSTM", "GRU", "RNN")))
        row: dict[str, Any] = {}
        for kind, peak in (("real", _real), ("fake", _fake)):
            try:
                row[kind] = peak(name)
            except Exception as error:  # noqa: BLE001  of whatever kind: it is what is asked for
                row[f"{kind}_refused"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        out[name] = row
    return out


def _made(name: str) -> tuple[Any, Any, Any, Any]:
    import torch
    from torch.utils.data import default_collate

    from tests.fake_step.layer_families import ALL

    torch.manual_seed(0)
    family = ALL[name]
    model = family.build()
    optimizer = family.optimizer(model)
    if family.whole:
        batch = family.sample()
    else:
        items = [family.sample() for _ in range(family.size)]
        batch = (family.collate or default_collate)(items)
    return family, model, optimizer, batch


def _tensors(tree: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(getattr(tree, "parts", tree))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _real(name: str) -> int:
    from batchadvisor.probes.fake_step.storage_count import StorageCount

    from tests.fake_step.layer_families import usual_step

    family, model, optimizer, batch = _made(name)
    count = StorageCount()
    state = [leaf for values in optimizer.state.values() for leaf in _tensors(values)]
    count.hold([*model.parameters(), *model.buffers(), *_tensors(batch), *state])
    with count:
        for _ in range(2):
            count.reset_peak()
            usual_step(family, model, optimizer, batch)
    return int(count.peak_bytes)


def _fake(name: str) -> int:
    from tests.fake_step.layer_families import usual_step
    from tests.fake_step.small_models import faked

    family, model, optimizer, batch = _made(name)
    steps = faked(lambda given: usual_step(family, model, optimizer, given), batch, optimizer)
    return int(steps.trial(family.size).peak_bytes)


def estimated(name: str) -> dict[str, Any]:
    """What `batchadvisor estimate` says of the script at its own size."""
    command = (*ESTIMATE, str(HERE), "--train", name)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"refused": " ".join(line.strip() for line in lines[:4])}
    answer = json.loads(done.stdout)
    trials = answer["forecasts"][0]["trials"]
    own = next(trial for trial in trials if trial["batch_size"] >= answer["batch_size"])
    return {"estimated": own["peak_bytes"], "batch_size": own["batch_size"]}


def apart(row: dict[str, Any], kind: str) -> float | None:
    """By what share a fake step differs from the real one."""
    if row.get("real") is None or row.get(kind) is None:
        return None
    return float(row[kind] / row["real"] - 1)


def verdict(row: dict[str, Any]) -> str:
    """The row of the table: one of three."""
    if "refused" in row:
        return f"refused: {row['refused']}"
    gpu, cpu = apart(row, "estimated"), apart(row, "fake")
    if gpu is None:
        return f"counted; no real step on a CPU: {row['real_refused']}"
    if abs(gpu) <= WITHIN:
        return "within 2 %"
    if cpu is not None and abs(cpu) <= WITHIN:
        return f"within 2 % as a CPU runs it; a GPU's form differs by {gpu:+.1%}"
    return f"differs by {gpu:+.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", metavar="FAMILY")
    parser.add_argument("--only", nargs="+", metavar="FAMILY")
    parser.add_argument("--measure", nargs="*", metavar="FAMILY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train)
        return 0
    if given.measure is not None:
        with contextlib.redirect_stdout(sys.stderr):
            out = measure(given.measure)
        print(json.dumps(out))
        return 0
    from tests.fake_step.layer_families import ALL, FAMILIES

    names = given.only or list(ALL)
    command = (sys.executable, str(HERE), "--measure", *names)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(done.stdout)
    groups = {name: group for group, families in FAMILIES.items() for name in families}
    for name in names:
        rows[name] |= estimated(name)
        rows[name]["group"] = groups[name]
        rows[name]["verdict"] = verdict(rows[name])
        print(f"{name:48} {rows[name]['verdict']}", flush=True)
        kept = json.loads(RAW.read_text()) if RAW.exists() else {}
        kept = {
            each: (kept | rows)[each] for each in ALL if "verdict" in (kept | rows).get(each, {})
        }
        RAW.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
