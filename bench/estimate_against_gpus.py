"""What `estimate` says of trainings whose largest batch on a real GPU others published.

    python bench/estimate_against_gpus.py ROWS.csv
    python bench/estimate_against_gpus.py ROWS.csv --share 25 --minutes 60 --resume RESULTS.json
    python bench/estimate_against_gpus.py ROWS.csv --models resnet152 vgg16 --command
    python bench/estimate_against_gpus.py ROWS.csv --again --minutes 20      # with newer code
    python bench/estimate_against_gpus.py --page         # docs/estimate-against-gpus.md again

A row names a model, a setting, a GPU with its bytes, the size that ran and the size that failed. It
is estimated in a process of its own that runs a script of bench/published with batches on fake
tensors: the steps, the sizes and the range are those of the command. `--command` runs the command
itself as well, and says whether both agree and how long it takes.

`--share` takes the models of which sha256 of the name, modulo 100, is smaller: no row is chosen by
its outcome. It needs timm 0.6 or later (0.6.13 is the nearest to the rows) on the path, with the
constraints of this repository; torchvision is not needed. The page of the results is written to
docs/estimate-against-gpus.md.

These are bytes, not seconds: other work on the machine changes only how long it takes.
"""

from __future__ import annotations

import argparse
import csv
import functools
import hashlib
import json
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from against_gpus_page import PAGE, page, report
from batchadvisor.features.estimate.fit.forecast import forecast, next_size
from batchadvisor.probes.fake_step.cuda_forms import use_cuda_forms
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.fake_step.large_parameters import LargeParameters
from batchadvisor.probes.worker.fake_task import NUM_FAKE_STEPS
from batchadvisor.probes.worker.versions import loads_all_kernels
from batchadvisor.records import FakeTrial, LivedBefore, Variant
from common import HERE, RESULTS, Results, say

SCRIPT = HERE / "published" / "image_training.py"
THEME = "estimate-against-gpus"
AGAIN = "estimate-against-gpus-again"
"""Theme of results that only check some rows with newer code."""
PEAKS = "peaks-against-gpus"
GIB = 1 << 30
COLUMNS = ("id", "source", "model", "task", "seq_or_img", "technique", "gpu", "gpu_GiB_note")
COLUMNS += ("largest_fit", "first_fail")
TASK = "image classification, random tensors"
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(?:-\d+(?:\.\d+)?)?\s*(GiB|MiB)")
SEVERAL_KINDS = re.compile(r"(\d+)/(\d+)\s*GB")
TIME_LIMIT_S = 600.0
JUDGED = (
    "features/estimate/fit",
    "advisor/gpu_memory",
    "probes/fake_step",
    "bench/published",
)
"""Folders of the code that makes a range."""
OTHERS = (
    ("llm-foundry", "FSDP over several GPUs with a kernel of its own; sizes chosen, not bracketed"),
    ("method_comparison", "evaluation by generate() and answers of many lengths set the peak"),
    ("litgpt", "the longest sample of a data set sets the peak, quantised weights in part"),
    ("torchtune", "recipes of another package: compiled, packed, states in bf16"),
    ("torchtitan", "compiled and sharded over many GPUs by another package"),
    ("detectron2", "pictures of many sizes; operators of another package"),
    ("DeepLearningExamples", "optimizers and kernels of apex"),
    ("perf_train_gpu_one", "one size each, read from the driver; not bracketed"),
)
"""Why rows of a source are left out, by what its name holds."""


class CannotJudgeError(Exception):
    """A row that cannot be estimated; its text says why, in one line."""


# rows ------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[dict[str, str]]:
    """All rows of the file.

    Raises:
        SystemExit: there is none, or it lacks columns.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(f"no rows: {path} cannot be read: {error.strerror}")
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        sys.exit(f"no rows: {path} lacks the columns {', '.join(missing)}")
    return rows


def why_left_out(row: dict[str, str]) -> str:
    """Why no script of ours does what a row did; empty if one does."""
    if row["task"] == TASK:
        return ""
    known = (reason for part, reason in OTHERS if part in row["source"])
    return next(known, "a report of one setting, without what a script would need to repeat it")


def bytes_of(row: dict[str, str]) -> int:
    """Of the device, as the row says that torch or the driver reports them.

    Raises:
        CannotJudgeError: it does not say, or not of which card.
    """
    amount = AMOUNT.search(row["gpu_GiB_note"])
    if amount is not None:
        return int(float(amount[1]) * (GIB if amount[2] == "GiB" else GIB >> 10))
    kinds = SEVERAL_KINDS.search(row["gpu"])
    if kinds is not None:
        msg = f"{row['gpu']!r} is a card of {kinds[1]} or of {kinds[2]} GB"
        raise CannotJudgeError(msg)
    msg = f"no bytes of the device {row['gpu']!r} are given"
    raise CannotJudgeError(msg)


def code_state() -> str:
    """Of the code that makes a range: sha256 of its files, shortened; no history is needed."""
    digest = hashlib.sha256()
    for folder in JUDGED:
        for path in sorted((HERE.parent / folder).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def bucket_of(model: str) -> int:
    """0 to 99, by the name alone."""
    return int(hashlib.sha256(model.encode()).hexdigest(), 16) % 100


def wanted(
    rows: Sequence[dict[str, str]], share: int, models: Sequence[str]
) -> list[dict[str, str]]:
    """The rows to estimate, in the order of their buckets.

    Raises:
        SystemExit: a model that no row has.
    """
    able = [row for row in rows if not why_left_out(row)]
    unknown = set(models).difference(row["model"] for row in able)
    if unknown:
        sys.exit(f"no row that can be estimated has the model {', '.join(sorted(unknown))}")
    chosen = [
        row for row in able
        if (row["model"] in models if models else bucket_of(row["model"]) < share)
    ]  # fmt: skip
    return sorted(chosen, key=lambda row: (bucket_of(row["model"]), row["model"], row["id"]))


# one row, in a process of its own --------------------------------------------------------------


class FakeLoader:
    """Takes the place of torch's: its batches have every size that is looked at, without contents.

    Args:
        gpu_bytes: of the GPU.
    """

    gpu_bytes: int = 0
    current: FakeLoader

    def __init__(self, dataset: Any, batch_size: int, collate_fn: Any, **_: Any) -> None:
        self._sample = collate_fn([dataset[0]])
        self._own = batch_size
        self.trials: list[FakeTrial] = []
        self.requests: list[tuple[int, ...]] = []
        self.held: list[LivedBefore] = []
        FakeLoader.current = self

    def __iter__(self) -> Iterator[Any]:
        return self.batches(iter(self.next_size, None), sys._getframe(1))  # noqa: SLF001

    def next_size(self) -> int | None:
        """The size to look at next, as the command chooses it."""
        return next_size(self.trials, self._own, self.gpu_bytes, None)

    def batches(self, sizes: Iterator[int], script: FrameType) -> Iterator[Any]:
        """Steps of these sizes.

        Args:
            script: the frame that has the model.
        """
        model = script.f_globals["model"]
        steps = FakeSteps((p for p in model.parameters() if p.requires_grad), for_gpu=True)
        for size in sizes:
            is_settled = steps.begin(Variant(), size)
            for number in range(NUM_FAKE_STEPS):
                if number:
                    steps.next_step()
                batch = steps.empty(self._sample, [size, *self._sample.shape[1:]])
                steps.enter(batch)
                yield batch
                del batch
                steps.leave()
                if is_settled and steps.is_as_the_next(size):
                    break
            self.trials.append(steps.trial(size))
            self.requests.append(steps.requests)
            self.held.append(steps.lived)
        steps.close()


def on_fakes(script: Path, arguments: Sequence[str], kind: type[FakeLoader]) -> FakeLoader:
    """Runs a script of bench/ with batches on fake tensors, in this process.

    Returns:
        the loader, with what it saw of the steps.
    """
    LargeParameters().start()
    use_cuda_forms(on_fakes=True)
    torch.utils.data.DataLoader = kind  # type: ignore[misc, assignment]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    return kind.current


def estimated(row: dict[str, str], gpu_bytes: int) -> dict[str, Any]:
    """The range of a row, by the script with batches on fake tensors.

    Raises:
        CannotJudgeError: timm has no such model.
    """
    import timm

    if not timm.is_model(row["model"]):
        msg = f"timm {timm.__version__} has no model {row['model']!r}"
        raise CannotJudgeError(msg)
    began = time.perf_counter()
    FakeLoader.gpu_bytes = gpu_bytes
    loader = on_fakes(SCRIPT, arguments_of(row), FakeLoader)
    answer = forecast(
        Variant(), loader.trials, loader.requests, [(row["gpu"], gpu_bytes)],
        held=loader.held, eager=loads_all_kernels(),
    ).gpus[0]  # fmt: skip
    return {
        "low": answer.low,
        "high": answer.high,
        "trials": [[each.batch_size, each.peak_bytes] for each in loader.trials],
        "family": timm.models.model_entrypoint(row["model"]).__module__.rpartition(".")[2],
        "seconds": round(time.perf_counter() - began, 1),
    }


def arguments_of(row: dict[str, str]) -> list[str]:
    """Of the script."""
    return [row["model"], row["technique"], row["seq_or_img"]]


def _in_child(estimate: Callable[[], dict[str, Any]], pipe: Any) -> None:
    try:
        pipe.send(estimate())
    except CannotJudgeError as error:
        pipe.send({"problem": str(error)})
    except Exception as error:  # noqa: BLE001  a model of whatever kind
        text = " ".join(f"{type(error).__name__}: {error}".split())
        pipe.send({"problem": text[:200]})


def in_own_process(estimate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it makes in a copy of this process, which has torch and timm; or its problem."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_in_child, args=(estimate, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(TIME_LIMIT_S):
            return dict(ours.recv())
    except EOFError:
        return {"problem": "its process died"}
    finally:
        process.kill()
        process.join()
    return {"problem": f"took more than {TIME_LIMIT_S:.0f} s"}


def by_command(row: dict[str, str], gpu_bytes: int) -> dict[str, Any]:
    """The range that the command prints for the script, and what it costs."""
    words = [
        *(sys.executable, "-m", "batchadvisor", "estimate", "--json"),
        *("--gpu", f"{gpu_bytes / GIB}GiB", str(SCRIPT), *arguments_of(row)),
    ]
    began = time.monotonic()
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    wall_s = time.monotonic() - began
    if made.returncode:
        return {"problem": made.stderr.strip().splitlines()[-1][:200], "wall_s": wall_s}
    gpu = json.loads(made.stdout)["forecasts"][0]["gpus"][0]
    load = os.getloadavg()[0]
    return {"low": gpu["low"], "high": gpu["high"], "wall_s": round(wall_s, 1), "load": load}


def judged(row: dict[str, str], *, command: bool) -> dict[str, Any]:
    """All that is written of a row."""
    made: dict[str, Any] = {
        "id": row["id"],
        "source": row["source"].partition(" ")[0],
        "model": row["model"],
        "layout": row["technique"],
        "size": row["seq_or_img"],
        "gpu": row["gpu"],
        "fit": int(row["largest_fit"]),
        "fail": int(row["first_fail"]) if row["first_fail"] else None,
    }
    try:
        made["gpu_bytes"] = bytes_of(row)
    except CannotJudgeError as error:
        return made | {"problem": str(error)}
    made |= in_own_process(functools.partial(estimated, row, made["gpu_bytes"]))
    if command and "problem" not in made:
        made["command"] = by_command(row, made["gpu_bytes"])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path, nargs="?", help="CSV file of published rows.")
    parser.add_argument("--page", action="store_true", help="Only write table and page again.")
    parser.add_argument("--share", type=int, default=100, help="Of the models, per cent.")
    parser.add_argument("--models", nargs="*", default=[], help="Only these.")
    parser.add_argument("--minutes", type=float, help="Stop after so many.")
    parser.add_argument("--command", action="store_true", help="Run the command too.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--resume", type=Path, help="Results of an earlier part, to go on with.")
    parser.add_argument("--again", action="store_true", help="Check some rows with newer code.")
    parser.add_argument("--no-page", action="store_true", help="Leave the page as it is.")
    options = parser.parse_args()
    if options.page:
        write_again(max(options.results.glob(f"{THEME}_*.json")))
        return
    if options.rows is None:
        parser.error("name the CSV file of rows")
    sys.path.insert(0, str(SCRIPT.parent))
    import without_torchvision

    without_torchvision.install()
    import timm

    rows = rows_of(options.rows)
    chosen = wanted(rows, options.share, options.models)
    results = Results(options.results, AGAIN if options.again else THEME, options.resume)
    data = results.data
    if options.resume is None:
        data["code"] = code_state()
    elif data.get("code") != code_state():
        sys.exit(f"{options.resume.name} was made with other code; begin anew without --resume")
    data["timm"] = timm.__version__
    data["share"] = None if options.models else options.share
    data["num_rows"] = len(rows)
    data["num_able"] = sum(not why_left_out(row) for row in rows)
    data["left_out"] = left_out(rows)
    made: dict[str, Any] = data.setdefault("rows", {})
    end = time.monotonic() + 60 * options.minutes if options.minutes else None
    for row in chosen:
        if row["id"] in made and not (options.command and "command" not in made[row["id"]]):
            continue
        if end is not None and time.monotonic() > end:
            break
        made[row["id"]] = line = judged(row, command=options.command)
        words = line.get("problem") or f"{line['low']} to {line['high']}"
        say(f"{row['id']}: {words}; {line['fit']} ran, {line['fail'] or 'none'} failed")
        results.save()
    left = sum(row["id"] not in made for row in chosen)
    data["state"] = "finished" if not left else f"{left} of {len(chosen)} rows are left"
    results.finish(report(data))
    if not options.no_page and not options.again:
        PAGE.write_text(whole_page(data, results.name, options.results), encoding="utf-8")
        say(f"wrote {PAGE.name}")


def write_again(raw: Path) -> None:
    """The table and the page of results that are there."""
    data = json.loads(raw.read_text())
    raw.with_suffix(".txt").write_text(report(data) + "\n", encoding="utf-8")
    PAGE.write_text(whole_page(data, raw.name, raw.parent), encoding="utf-8")


def whole_page(data: dict[str, Any], name: str, folder: Path) -> str:
    """The page with the newest results of a run with `--again`, and of peaks_against_gpus.py."""
    again, peaks = newest(folder, AGAIN), newest(folder, PEAKS)
    return page(data, name, again[1] if again else None, peaks)


def newest(folder: Path, theme: str) -> tuple[str, dict[str, Any]] | None:
    """Name and data of the newest results, if there are any."""
    made = sorted(folder.glob(f"{theme}_*.json"))
    return (made[-1].name, json.loads(made[-1].read_text())) if made else None


def left_out(rows: Sequence[dict[str, str]]) -> list[list[Any]]:
    """Source, number of rows and the reason, of what is not reproduced."""
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        reason = why_left_out(row)
        if reason:
            owner = row["source"].partition(" ")[0].partition("#")[0]
            key = (owner if any(part in row["source"] for part, _ in OTHERS) else "others", reason)
            counts[key] = counts.get(key, 0) + 1
    return [[source, num, reason] for (source, reason), num in sorted(counts.items())]


if __name__ == "__main__":
    main()
