"""Each family of torch's layers and optimizers through `estimate`, against a real step.

    python bench/estimate_layers.py                 all of them
    python bench/estimate_layers.py --only LSTM     one of them
    python bench/estimate_layers.py --page          docs/estimate-layers.md from the raw output
    python bench/estimate_layers.py --train LSTM    is the script that is estimated

The families are those of tests/fake_step/layer_families.py. A real step runs on the CPU: what its
storages take at most in its second step is compared with the same of a fake step, once in the form
that the CPU has, and once in that of a GPU, which `estimate` counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from batchadvisor.probes.fake_step.storage_count import StorageCount
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset, default_collate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fake_step.layer_families import ALL, FAMILIES, unfused, usual_step
from tests.fake_step.small_models import faked

HERE = Path(__file__).resolve()
PAGE = HERE.parents[1] / "docs" / "estimate-layers.md"
BATCHES = 400
WITHIN = 0.02
RAW = HERE.parent / "results" / "estimate-layers_torch-2.13.0.json"
HEAD = """# Layers that `estimate` knows

Each family of torch's layers and optimizers was trained by a small script. `batchadvisor estimate`
ran each script, and the peak that it says of the script's own batch was compared with the storages
of a real second step on the CPU (torch 2.13). `bench/estimate_layers.py` does it again; its raw
output is [here](../bench/results/estimate-layers_torch-2.13.0.json). No figure was compared with a
GPU here: where a GPU runs a layer in another form than a CPU, the difference stands beside it
([how good an estimate is](estimate.md#how-good-it-is))."""
CUDNN = "all steps in one operation, with cuDNN's reserve space and workspace"
KERNELS = "CUDA's fused kernels; see the comparison with torch's own CUDA code"
FOREACH = "a GPU's sums over leading dimensions take a buffer"
WHY_APART = {
    **dict.fromkeys(("LSTM", "LSTM, both ways", "LSTM, projected", "LSTM, dropout"), CUDNN),
    "GRU, packed": CUDNN,
    "RNN": f"{CUDNN}, which are assumed for a plain RNN",
    "EmbeddingBag, SparseAdam": "a GPU keeps only merged rows of the gradient",
    "scaled_dot_product_attention, grouped": "keys and values are repeated in fp32",
    "scaled_dot_product_attention, dropout": KERNELS,
    "TransformerEncoder": KERNELS,
    "RMSNorm": "one kernel",
    "Dropout": "a mask of bytes, where a CPU has one of numbers",
    "checkpoint, use_reentrant=True": FOREACH,
}
"""Why a GPU's form takes another amount."""
ESTIMATE = (sys.executable, "-m", "batchadvisor", "estimate", "--json", "-q", "--gpu", "2GiB")


def train(name: str) -> None:
    """A script as people write it."""
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
    torch.set_num_threads(1)
    out = {}
    for name in names:
        row: dict[str, Any] = {}
        # mkldnn's fused LSTM keeps what no tensor shows.
        with unfused(on=name.startswith(("LSTM", "GRU", "RNN"))):
            for kind, peak in (("real", _real), ("fake", _fake)):
                try:
                    row[kind] = peak(name)
                except Exception as error:  # noqa: BLE001  of whatever kind: it is what is asked for
                    words = str(error).splitlines()[0]
                    row[f"{kind}_refused"] = f"{type(error).__name__}: {words}"
        out[name] = row
    return out


def _made(name: str) -> tuple[Any, Any, Any, Any]:
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
    leaves = tree_leaves(getattr(tree, "parts", tree))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _real(name: str) -> int:
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
    family, model, optimizer, batch = _made(name)
    steps = faked(lambda given: usual_step(family, model, optimizer, given), batch, optimizer)
    return int(steps.trial(family.size).peak_bytes)


def estimated(name: str) -> dict[str, Any]:
    """What `batchadvisor estimate` says of the script at its own size."""
    command = (*ESTIMATE, str(HERE), "--train", name)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": refusal(done.stderr)}
    answer = json.loads(done.stdout)
    trials = answer["forecasts"][0]["trials"]
    own = next(trial for trial in trials if trial["batch_size"] >= answer["batch_size"])
    return {"estimated": own["peak_bytes"], "batch_size": own["batch_size"]}


def apart(row: dict[str, Any], kind: str) -> float | None:
    """By what share a fake step differs from the real one."""
    if row.get("real") is None or row.get(kind) is None:
        return None
    return float(row[kind] / row["real"] - 1)


def refusal(text: str) -> str:
    """Why, in the words of the command, without what to do about it."""
    words = " ".join(text.rpartition("Error: ")[2].split())
    words = words.removeprefix("the script's steps cannot be predicted: ")
    after = r"\.+ (?:`batchadvisor run`|Name |If the script )"
    return re.split(after, words)[0].rstrip(".")


def verdict(name: str, row: dict[str, Any]) -> str:
    """The row of the table: one of three."""
    if "refused" in row:
        return f"refused: {row['refused']}"
    gpu, cpu = apart(row, "estimated"), apart(row, "fake")
    if gpu is None:
        return "counted; a CPU makes no such step to compare it with"
    if abs(gpu) <= WITHIN:
        return "within 2 %"
    why = WHY_APART.get(name, "")
    known = "as a CPU runs it within 2 %; " if cpu is not None and abs(cpu) <= WITHIN else ""
    return f"{known}differs by {100 * gpu:+.0f} %{why and f': {why}'}"


def page(rows: dict[str, Any]) -> str:
    """The page of the manual."""
    verdicts = {name: verdict(name, row) for name, row in rows.items()}
    kinds = ("within", "as a CPU", "differs", "counted", "refused")
    counts = {kind: sum(each.startswith(kind) for each in verdicts.values()) for kind in kinds}
    others = counts["differs"] + counts["counted"]
    lines = [HEAD, ""]
    lines.append(
        f"Of {len(rows)} families, {counts['within']} are within 2 %. {counts['as a CPU']} are "
        "within 2 % as a CPU runs them; a GPU runs them otherwise, and that is what is counted. "
        f"{others} differ or have nothing to be compared with, {counts['refused']} are refused."
    )
    for group, families in FAMILIES.items():
        lines += ["", f"## {group[0].upper()}{group[1:]}", "", "| layer | against a real step |"]
        lines += ["|---|---|"]
        lines += [f"| {name} | {verdicts[name]} |" for name in families if name in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", metavar="FAMILY")
    parser.add_argument("--only", nargs="+", metavar="FAMILY")
    parser.add_argument("--page", action="store_true", help="write the page of the raw output")
    parser.add_argument("--measure", nargs="*", metavar="FAMILY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train)
        return 0
    if given.page:
        PAGE.write_text(page(json.loads(RAW.read_text())))
        return 0
    if given.measure is not None:
        with contextlib.redirect_stdout(sys.stderr):
            out = measure(given.measure)
        print(json.dumps(out))
        return 0

    names = given.only or list(ALL)
    command = (sys.executable, str(HERE), "--measure", *names)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(done.stdout)
    for name in names:
        rows[name] |= estimated(name)
        print(f"{name:48} {verdict(name, rows[name])}", flush=True)
        kept = json.loads(RAW.read_text()) if RAW.exists() else {}
        kept[name] = rows[name]
        kept = {each: kept[each] for each in ALL if each in kept}
        RAW.write_text(json.dumps(kept, indent=1) + "\n")
        PAGE.write_text(page(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
