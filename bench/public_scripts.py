"""What `batchadvisor run` answers to twenty-two kinds of script that people really run.

    python bench/public_scripts.py                        # all, a minute or two each
    python bench/public_scripts.py --only mnist,trl_sft --budget 20s
    python bench/public_scripts.py --resume bench/results/public-scripts_....json

The scripts are in bench/public/, one file a kind. Each is run as a user would type it, in a fresh
copy of that folder, with no option but the budget. Where the answer is a command with a template
to type, that command is run next. The packages that a script imports must be installed; a script
whose package is missing is skipped and named. `--resume` keeps what earlier files have answered
and runs the rest; each row has its date.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from common import HERE, RESULTS, Results, header, say, scratch_folder, table

PUBLIC = HERE / "public"
LIMIT_S = 900


class Kind(NamedTuple):
    """One kind of script.

    Attributes:
        style: the project whose scripts look like this.
        words: what is typed after `batchadvisor run`.
        packages: what it imports beside torch, as the registry names it.
        real: whether a package's own script is run; else it is written in that style.
        before: what is run first, as a download would be.
    """

    style: str
    words: str
    packages: tuple[str, ...] = ()
    real: bool = False
    before: str = ""


KINDS = {
    "mnist": Kind("pytorch/examples mnist", "mnist.py"),
    "timm_train": Kind("timm train.py", "timm_train.py -c timm_train.yaml", ("pyyaml",)),
    "torchvision_classification": Kind(
        "torchvision references/classification", "torchvision_classification.py"
    ),
    "torchvision_detection": Kind(
        "torchvision references/detection", "torchvision_detection.py --batch-size 4"
    ),
    "yolo_train": Kind("Ultralytics detect train", "yolo_train.py", ("pyyaml", "numpy")),
    "nanogpt": Kind("nanoGPT train.py", "nanogpt.py"),
    "mingpt": Kind("minGPT Trainer", "mingpt.py"),
    "makemore": Kind("makemore", "makemore.py"),
    "litgpt_lora": Kind(
        "litgpt finetune_lora",
        "-m litgpt finetune_lora --config litgpt_lora.yaml",
        ("litgpt", "lightning"),
        real=True,
        before="litgpt_prepare.py",
    ),
    "torchtune_recipe": Kind(
        "torchtune full_finetune recipe",
        "torchtune_recipe.py --config torchtune_recipe.yaml epochs=30",
        ("omegaconf",),
    ),
    "hf_run_clm": Kind(
        "transformers run_clm.py", "hf_run_clm.py hf_run_clm.json", ("transformers", "datasets")
    ),
    "trl_sft": Kind(
        "TRL sft.py, SFTTrainer", "trl_sft.py --config trl_sft.yaml", ("trl", "peft", "datasets")
    ),
    "trl_dpo": Kind(
        "TRL dpo.py, DPOTrainer",
        "trl_dpo.py --output_dir dpo-out --per_device_train_batch_size 2 "
        "--gradient_accumulation_steps 2 --max_length 128 --use_cpu True --bf16 True "
        "--report_to none",
        ("trl", "datasets"),
    ),
    "peft_lora": Kind("PEFT sequence classification", "peft_lora.py", ("peft", "transformers")),
    "accelerate_nlp": Kind(
        "Accelerate nlp_example.py", "accelerate_nlp.py --dispatch_batches", ("accelerate",)
    ),
    "lightning_module": Kind("Lightning Trainer.fit", "lightning_module.py", ("lightning",)),
    "pyg_graphs": Kind("PyTorch Geometric mutag_gin.py", "pyg_graphs.py", ("torch_geometric",)),
    "diffusers_lora": Kind(
        "diffusers train_text_to_image_lora.py",
        "diffusers_lora.py --train_batch_size 8 --gradient_accumulation_steps 2",
        ("diffusers", "peft", "accelerate"),
    ),
    "lhotse_asr": Kind("icefall train.py over Lhotse", "lhotse_asr.py", ("lhotse",)),
    "speech_ctc": Kind("torchaudio tutorials, CTC", "speech_ctc.py"),
    "keras_mnist": Kind("keras.io mnist_convnet", "keras_mnist.py", ("keras",)),
    "dqn": Kind("CleanRL dqn.py, replay buffer", "dqn.py"),
}
_MODULES = {"pyyaml": "yaml"}


def main() -> None:
    """Runs what was asked for and prints the table."""
    parser = argparse.ArgumentParser(description="batchadvisor on scripts as people run them")
    parser.add_argument("--only", default=",".join(KINDS), help="names, separated by commas")
    parser.add_argument("--budget", default="60s", help="as of `batchadvisor run`")
    parser.add_argument("--resume", type=Path, nargs="*", default=[], help="earlier raw results")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--logs", type=Path, help="keep each script's log in this folder")
    options = parser.parse_args()
    results = Results(options.results, "public-scripts")
    results.data["versions"] = _versions()
    rows = results.data["rows"] = []
    earlier = {
        row["name"]: row
        for path in options.resume
        for row in json.loads(path.read_text())["rows"]
        if row["answer"] in ("yes", "template")
    }
    for name in options.only.split(","):
        if name in earlier:
            rows.append(earlier[name])
            continue
        say(name)
        rows.append(_row(name, KINDS[name], options))
        say(f"  {rows[-1]['answer']}  {rows[-1].get('headline') or rows[-1].get('error') or ''}")
        results.save()
    results.data["state"] = "finished"
    results.finish(report(results.data))


def _row(name: str, kind: Kind, options: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "style": kind.style, "real": kind.real}
    row |= {"date": time.strftime("%Y-%m-%dT%H:%M", time.gmtime()), "budget": options.budget}
    missing = [each for each in kind.packages if not _is_there(each)]
    if missing:
        return {**row, "answer": "skipped", "error": f"not installed: {', '.join(missing)}"}
    with scratch_folder() as folder:
        place = Path(folder) / "scripts"
        shutil.copytree(PUBLIC, place, ignore=shutil.ignore_patterns("__pycache__"))
        if kind.before:
            subprocess.run([sys.executable, kind.before], cwd=place, check=True, timeout=LIMIT_S)
        first = _run(kind.words, place, options.budget, options.logs and options.logs / name)
        row |= {"command": f"batchadvisor run {kind.words}", **first}
        typed = re.search(r"batchadvisor run (.*?\{batch_size\}\S*)", row.get("error", ""))
        if typed is not None:
            second = _run(typed[1], place, options.budget, None)
            row["typed"] = {"command": f"batchadvisor run {typed[1]}", **second}
            row["answer"] = "template" if second["answer"] == "yes" else "no"
    return row


def _run(words: str, place: Path, budget: str, logs: Path | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "--budget", budget]
    start = time.monotonic()
    done = subprocess.run(
        [*command, "-o", "out", *shlex.split(words)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    wall_s = time.monotonic() - start
    log = place / "out" / "script.log"
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "script.log").write_text(log.read_text() if log.exists() else "")
        (logs / "stdout.json").write_text(done.stdout)
        (logs / "stderr.txt").write_text(done.stderr)
    shutil.rmtree(place / "out", ignore_errors=True)
    base = {"exit_code": done.returncode, "wall_s": round(wall_s, 1)}
    if done.returncode != 0:
        said = done.stderr.strip().replace(str(place) + "/", "")
        return {**base, "answer": "no", "error": said[-2000:]}
    answer = json.loads(done.stdout)
    advice, discovery = answer["advice"], answer["record"]["discovery"]
    return {
        **base,
        "answer": "yes",
        "door": discovery.get("door", "loader"),
        "own": discovery["native_batch_size"],
        "micro_batches": discovery["micro_batches"],
        "headline": advice["headline"],
        "recommended": (advice.get("recommended") or {}).get("batch_size"),
        "sureness": advice["sureness"],
        "change": advice["change"],
        "source": next(
            (
                loader.get("source")
                for loader in discovery["loaders"]
                if loader["ordinal"] == discovery["primary_loader"]
            ),
            None,
        ),
    }


def report(data: dict[str, Any]) -> str:
    """The table, and under it what has to be typed where the first answer was a command."""
    rows = data["rows"]
    run = [row for row in rows if row["answer"] != "skipped"]
    alone = sum(row["answer"] == "yes" for row in run)
    lines = header(data, "Scripts as people run them: what `batchadvisor run` answers")
    lines += [", ".join(f"{name} {version}" for name, version in data["versions"].items()), ""]
    cells = [
        (
            row["name"],
            {"yes": "yes", "template": "one command"}.get(row["answer"], row["answer"]),
            _of(row, "own"),
            _of(row, "recommended"),
            _of(row, "wall_s"),
            _written(row),
        )
        for row in rows
    ]
    lines.append(
        table(
            ("script", "answers", "own", "advised", "seconds", "the own size is written at"), cells
        )
    )
    lines += ["", f"{alone} of {len(run)} answered without an option."]
    for row in rows:
        if "typed" in row:
            lines.append(f"{row['name']}: {row['typed']['command']}")
        elif row["answer"] not in ("yes", "skipped"):
            lines.append(f"{row['name']}: {row['error']}")
        elif row["answer"] == "skipped":
            lines.append(f"{row['name']}: skipped, {row['error']}")
    return "\n".join(lines)


def _written(row: dict[str, Any]) -> str:
    """The place that a change would name."""
    answered = row.get("typed") or row
    source = answered.get("source")
    if not source:
        return "-"
    place = source["place"]
    where = "command line" if place is None else f"{place['file']}:{place['line']}"
    more = f" and {len(source['others'])} more" if source.get("others") else ""
    return f"{where}  {source['before']}{more}"


def _of(row: dict[str, Any], name: str) -> str:
    value = (row.get("typed") or row).get(name)
    return "-" if value is None else str(value)


def _versions() -> dict[str, str]:
    names = sorted({package for kind in KINDS.values() for package in kind.packages})
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(_MODULES.get(package, package)) is not None


if __name__ == "__main__":
    main()
