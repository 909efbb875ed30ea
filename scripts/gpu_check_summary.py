"""The one page that `scripts/gpu-check` ends with: each question, its answer, what it speaks to."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

WIDTH = 98
MAX_ANSWER_LINES = 4
RESULTS = "gpu-check-part"


def findings_below(folder: Path) -> list[dict[str, Any]]:
    """The findings of a part's steps, in the order in which they were made."""
    paths = sorted(folder.glob("*/finding.json"), key=lambda path: path.stat().st_mtime)
    return [json.loads(path.read_bytes()) for path in paths]


def slug(text: str) -> str:
    """Lower case letters and digits joined by dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def write_results(
    folder: Path, manifest: dict[str, Any], findings: Sequence[dict[str, Any]]
) -> Path:
    """Findings as a result of a benchmark: JSON, and the page beside it.

    The name says hardware and date; both files are fit for `bench/results`. Recordings of raw
    samples stay in the part's archive.
    """
    hardware = slug(str(manifest["device"].get("name", "cpu")))
    name = f"{RESULTS}{manifest['part']}_{hardware}_{manifest['started_at'][:10]}"
    path = folder / f"{name}.json"
    data = {
        "state": manifest["state"],
        "environment": {
            key: manifest[key]
            for key in ("device", "platform", "python", "packages", "command", "started_at")
        },
        "steps": manifest["steps"],
        "findings": [_without_recordings(finding) for finding in findings],
    }
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(data, indent=1) + "\n")
    draft.replace(path)
    path.with_suffix(".txt").write_text(page([data]))
    return path


def _without_recordings(finding: dict[str, Any]) -> dict[str, Any]:
    numbers = {
        name: value
        for name, value in finding["numbers"].items()
        if not name.startswith("recording_")
    }
    return {**finding, "numbers": numbers}


def page(results: Iterable[dict[str, Any]]) -> str:
    """All questions on one page."""
    lines: list[str] = []
    findings: list[dict[str, Any]] = []
    for result in results:
        if not lines:
            lines += _header(result["environment"])
        findings += result["findings"]
        for step in result["steps"]:
            if not step["ok"]:
                lines.append(f"step {step['name']} ended with code {step['exit_code']}")
    lines.append("")
    for finding in findings:
        lines += _question(finding)
    against = [finding["probe"] for finding in findings if finding["contradicts"]]
    silent = [
        finding["probe"] for finding in findings if finding["answer"].startswith("unavailable")
    ]
    lines.append(
        f"{len(findings)} questions; against what the product assumes: "
        f"{', '.join(against) or 'none'}; unavailable: {', '.join(silent) or 'none'}."
    )
    return "\n".join(lines) + "\n"


def _header(environment: dict[str, Any]) -> list[str]:
    device = environment["device"]
    versions = f"torch {device.get('torch')} (CUDA {device.get('cuda')})"
    driver = f"driver {device.get('driver') or 'unavailable'}"
    python = f"Python {environment['python']}"
    named = (device.get("name"), driver, versions, python, environment["started_at"])
    return [f"gpu-check: {', '.join(map(str, named))}"]


def _question(finding: dict[str, Any]) -> list[str]:
    mark = {True: "AGAINST", False: "agrees", None: "-"}[finding["contradicts"]]
    lines = [f"{finding['probe']} [{mark}]: {finding['question']}"]
    answer = textwrap.wrap(finding["answer"], WIDTH - 2)
    lines += [f"  {line}" for line in answer[:MAX_ANSWER_LINES]]
    for entry in finding["assumptions"]:
        if entry["holds"] is False:
            text = f"against {entry['constant']} = {_short(entry['value'])}: {entry['measured']}"
            lines += [f"  {line}" for line in textwrap.wrap(text, WIDTH - 2)[:2]]
    for error in finding["errors"][:2]:
        words = error["text"].splitlines() or [""]
        lines.append(f"  {error['where']}: {error['type']}: {words[0]}"[:WIDTH])
    return lines


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
