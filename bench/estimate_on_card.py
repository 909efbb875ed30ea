"""The largest batch that `estimate` says, against what runs on the GPU of this machine.

    python bench/estimate_on_card.py --estimate --gpu H100-80GB      # on any machine, with its CPU
    python bench/estimate_on_card.py --resume bench/results/estimate-on-card_....json   # on the GPU
    python bench/estimate_on_card.py --resume FILE --table           # the table again

Each row is a training of bench/on_a_card, which needs timm and transformers. `estimate` states a
range of sizes: the largest that fits is one of it. On the GPU a process of its own runs steps at
the low end, which must fit, and at the size above the high end, which must not; where one of them
does otherwise, others follow in steps of 3 % until one size ran and the next was refused.

Bytes that the low end took are kept as well, beside those of the same steps on fake tensors.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import runpy
import signal
import statistics
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import HERE, RESULTS, Results, environment, header, say, scratch_folder, table

SCRIPT = HERE / "on_a_card" / "training.py"
STEPS = 3
"""The second has the optimizer's state, the third what the first two left in the allocator."""
FARTHER = 1.03
MOST_SIZES = 10
AHEAD = 3
"""So many processes load their packages while one uses the GPU; none of them touches it."""
ROW_LIMIT_S = 60.0
ROWS = (
    "resnet50",
    "vit_base_patch16_224 --precision bf16 --optimizer adamw",
    "gpt2 --precision bf16 --optimizer adamw",
    "resnet50 --precision bf16 --channels-last",
    "convnext_tiny --precision bf16 --optimizer adamw",
    "bert-base --precision bf16 --optimizer adamw",
    "efficientnet_b0 --precision bf16",
    "swin_tiny_patch4_window7_224 --precision bf16 --optimizer adamw",
    "llama-1b --precision bf16 --optimizer adamw",
    "resnet50 --precision fp16",
    "densenet121",
    "gpt2 --optimizer adamw",
    "mobilenetv3_large_100",
    "regnety_032 --precision bf16",
    "vit_base_patch16_224 --precision bf16 --optimizer adamw --checkpointing",
    "t5-small --precision bf16 --optimizer adamw",
    "mixer_b16_224 --precision bf16 --optimizer adamw",
    "vgg16",
    "resnet18 --optimizer adamw",
    "efficientnet_b0 --channels-last",
    "llama-1b --precision bf16 --optimizer adamw --checkpointing",
    "xcit_small_12_p16_224 --precision bf16 --optimizer adamw",
    "maxvit_tiny_tf_224 --precision bf16 --optimizer adamw",
    "bert-base --optimizer adamw",
    "resnext50_32x4d --precision bf16 --channels-last",
    "dm_nfnet_f0 --precision bf16",
    "vit_small_patch16_224 --optimizer adamw",
    "inception_v4",
    "whisper-tiny --precision bf16 --optimizer adamw",
    "beit_base_patch16_224 --precision bf16 --optimizer adamw",
    "convnext_small --channels-last --optimizer adamw",
    "gpt2 --precision bf16 --optimizer adamw --checkpointing",
    "resnet50 --precision bf16 --channels-last --benchmark",
)


# the estimates -------------------------------------------------------------------------------


def estimated(row: str, gpu: str) -> dict[str, Any]:
    """The range of sizes of a training, as the command prints it."""
    words = ["-m", "batchadvisor", "estimate", "-q", "--json", "--all", "--gpu", gpu]
    done = subprocess.run(
        [sys.executable, *words, str(SCRIPT), *row.split()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    forecast = json.loads(done.stdout)["forecasts"][0]
    trial = max(forecast["trials"], key=lambda each: each["batch_size"])
    kept = {key: forecast[key] for key in ("floor_bytes", "fixed_bytes", "sample_bytes", "no_law")}
    said = forecast["gpus"][0]
    return {
        **kept,
        "low": said["low"],
        "high": said["high"],
        "memory_bytes": said["memory_bytes"],
        "traced": {key: trial[key] for key in ("batch_size", "peak_bytes")},
    }


def estimate_all(results: Results, gpu: str, processes: int) -> None:
    """Fills the rows."""
    results.data |= {"gpu": gpu, "rows": {}}
    with ThreadPoolExecutor(processes) as pool:
        waiting = {row: pool.submit(estimated, row, gpu) for row in ROWS}
        for row, answer in waiting.items():
            results.data["rows"][row] = {"estimate": answer.result()}
            say(f"{row}: {answer.result().get('error') or answer.result()['low']}")
            results.save()


# the card ------------------------------------------------------------------------------------


class DoneError(BaseException):
    """The steps that were wanted were made."""


def child(row: str, low: int, high: int, go: Path) -> None:
    """Runs sizes of a training and prints what became of each, one JSON object a line."""
    import torch  # noqa: PLC0415
    from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415

    # Loaded while another one uses the GPU. Without torchvision timm is left to the script.
    with contextlib.suppress(ImportError):
        import timm  # noqa: F401, PLC0415
        import torchvision  # noqa: F401, PLC0415
    import transformers.modeling_utils  # noqa: F401, PLC0415

    Path(f"{go}.ready").touch()
    while not go.exists():
        time.sleep(0.02)
    made = 0

    def stepped(*_: object) -> None:
        nonlocal made
        made += 1
        if made >= STEPS:
            raise DoneError

    register_optimizer_step_post_hook(stepped)
    before, total = torch.cuda.mem_get_info()
    tried: dict[int, bool] = {}
    size: int | None = low
    while size is not None and len(tried) < MOST_SIZES:
        made = 0
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        began_s, told = time.monotonic(), {"batch_size": size}
        try:
            sys.argv = [str(SCRIPT), *row.split(), f"--batch-size={size}"]
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except DoneError as done:
            torch.cuda.synchronize()
            traceback.clear_frames(done.__traceback__)
            tried[size] = True
        except torch.cuda.OutOfMemoryError as refused:
            traceback.clear_frames(refused.__traceback__)
            tried[size] = False
            told["error"] = str(refused).splitlines()[0][:200]
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            told["error"] = f"{type(error).__name__}: {error}"[:500]
            print(json.dumps(told), flush=True)
            return
        gc.collect()
        stats = torch.cuda.memory_stats()
        told |= {
            "ran": tried[size],
            "steps": made,
            "allocated_bytes": stats["allocated_bytes.all.peak"],
            "reserved_bytes": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
            "context_bytes": total - before,
            "beside_bytes": before - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved(),
            "seconds": round(time.monotonic() - began_s, 2),
        }
        print(json.dumps(told), flush=True)
        size = next_size(tried, low, high)


def next_size(tried: dict[int, bool], low: int, high: int) -> int | None:
    """What is worth a try: the ends of the range, then beyond the one that did otherwise."""
    ran = max((size for size, fits in tried.items() if fits), default=None)
    refused = min((size for size, fits in tried.items() if not fits), default=None)
    if ran is None:
        smaller = min(int(min(tried) / FARTHER), min(tried) - 1)
        return smaller if smaller > 0 else None
    if refused is not None:
        return None
    return max(high + 1, low + 1) if ran <= high else max(int(ran * FARTHER), ran + 1)


def started(row: str, estimate: dict[str, Any], go: Path) -> subprocess.Popen[str]:
    """A process that waits for the GPU."""
    words = [str(Path(__file__)), "--child", row, "--go", str(go)]
    words += ["--sizes", f"{estimate['low']},{estimate['high']}"]
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "4"},
    )  # fmt: skip


def measure_all(results: Results, limit_s: float) -> None:
    """Every row that has a range, one after the other on the GPU."""
    end_s = time.monotonic() + limit_s
    rows = results.data["rows"]
    wanted = [row for row in rows if rows[row]["estimate"].get("low") and "card" not in rows[row]]
    processes: dict[str, subprocess.Popen[str]] = {}
    with scratch_folder() as name:
        goes = {row: Path(name) / str(number) for number, row in enumerate(wanted)}
        try:
            for place, row in enumerate(wanted):
                for other in wanted[place : place + AHEAD]:
                    if other not in processes:
                        processes[other] = started(other, rows[other]["estimate"], goes[other])
                if (left_s := end_s - time.monotonic()) < 5:
                    break
                goes[row].touch()
                try:
                    out, err = processes[row].communicate(timeout=min(left_s, ROW_LIMIT_S))
                except subprocess.TimeoutExpired:
                    os.killpg(processes[row].pid, signal.SIGKILL)
                    out, err = processes[row].communicate()
                told = [json.loads(line) for line in out.splitlines() if line.startswith('{"batch')]
                rows[row]["card"] = told
                if processes[row].returncode:
                    rows[row]["ended"] = err.strip()[-500:]
                say(f"{row}: {[(one['batch_size'], one.get('ran')) for one in told]}")
                results.save()
        finally:
            for process in processes.values():
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


# the table -----------------------------------------------------------------------------------


def judged(row: dict[str, Any]) -> dict[str, Any] | None:
    """The bracket that was measured, and how far the middle of the range is from its ends."""
    told = [one for one in row.get("card", []) if "ran" in one]
    ran = max((one["batch_size"] for one in told if one["ran"]), default=None)
    refused = min((one["batch_size"] for one in told if not one["ran"]), default=None)
    if ran is None or refused is None:
        return None
    low, high = row["estimate"]["low"], row["estimate"]["high"]
    middle = (low + high) / 2
    off = middle / ran - 1 if middle < ran else middle / (refused - 1) - 1
    return {
        "ran": ran,
        "refused": refused,
        "inside": low <= ran and refused <= high + 1,
        "low_ran": low <= ran,
        "off": 0.0 if ran <= middle < refused else off,
        "width": (high - low) / middle,
    }


def report(data: dict[str, Any]) -> str:
    """The printed table."""
    lines = header(data, f"the largest batch that estimate states for {data['gpu']}, on the GPU")
    rows, all_told = [], []
    for name, row in data["rows"].items():
        estimate, told = row["estimate"], judged(row)
        if told is None:
            error = next((one["error"] for one in row.get("card", []) if "error" in one), "")
            why = estimate.get("error") or error or row.get("ended", "not run")
            rows.append((name, estimate.get("low", "-"), estimate.get("high", "-"), "-", "-", "-",
                         str(why).splitlines()[-1][:60] if why else ""))  # fmt: skip
            continue
        all_told.append(told)
        beside = "too small" if told["low_ran"] else "too large"
        word = "inside" if told["inside"] else beside
        rows.append((name, estimate["low"], estimate["high"], told["ran"], told["refused"],
                     f"{told['off']:+.1%}", word))  # fmt: skip
    columns = ("training", "low", "high", "ran", "refused", "middle off", "")
    lines.append(table(columns, rows))
    if all_told:
        off = [told["off"] for told in all_told]
        lines += ["", (
            f"{len(all_told)} trainings: the low end ran in {sum(t['low_ran'] for t in all_told)}, "
            f"the range holds the largest size in {sum(t['inside'] for t in all_told)}; its middle "
            f"is {statistics.median(off):+.1%} off in the median, {min(off):+.1%} to "
            f"{max(off):+.1%}; median width {statistics.median(t['width'] for t in all_told):.1%}"
        )]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--estimate", action="store_true", help="only the ranges, on a CPU")
    parser.add_argument("--gpu", default="H100-80GB", help="(%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="that estimate at once")
    parser.add_argument("--resume", type=Path, help="the ranges, or an earlier part, as JSON")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds on the GPU")
    parser.add_argument("--table", action="store_true", help="only print the table of --resume")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    for hidden in ("--child", "--sizes", "--go"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        low, high = map(int, given.sizes.split(","))
        child(given.child, low, high, Path(given.go))
        return
    if not given.estimate and given.resume is None:
        parser.error("first --estimate, then --resume FILE on the machine with the GPU")
    results = Results(given.results, "estimate-on-card", given.resume)
    if given.estimate:
        estimate_all(results, given.gpu, given.processes)
    elif not given.table:
        results.data["estimated_on"] = results.data.pop("environment")
        results.data["environment"] = environment()
        measure_all(results, given.limit)
    results.data["state"] = "finished"
    results.finish(report(results.data))


if __name__ == "__main__":
    main()
