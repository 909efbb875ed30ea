"""`batchadvisor emit`: manifests for Kubernetes as text."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import msgspec

from .engines.kubernetes import (
    NAME_LETTERS,
    RECORDS,
    Kind,
    Probes,
    checked,
    manifests,
)
from .engines.names import name_from, slugs

Steps = Callable[[str], list[str]]


def emitted(
    command: tuple[str, ...],
    script: str,
    *,
    kind: Kind,
    as_json: bool,
    name: str | None,
    time_limit: float,
    **options: Any,
) -> tuple[str, Steps]:
    """The manifests, and what to type next for the file that holds them.

    Args:
        command: as it is typed in the container.
        name: of the jobs, `None` for one from the script's.
        time_limit: seconds.
        options: further fields of `Probes`.

    Raises:
        UsageError: Kubernetes would refuse a name.
    """
    probes = Probes(
        command=command,
        name=name or f"probe-{name_from(PurePosixPath(script).stem)}"[:NAME_LETTERS].strip("-"),
        time_limit_s=max(1, round(time_limit)),
        **options,
    )
    objects = manifests(kind, checked(probes))
    if as_json:
        whole = {"apiVersion": "v1", "kind": "List", "items": objects}
        text = msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
    else:
        parts = [msgspec.yaml.encode(item).decode() for item in objects]
        text = _heading(kind) + "---\n".join(parts)
    return text, lambda place: _steps(kind, probes, place)


def _heading(kind: Kind) -> str:
    lines = ["Written by batchadvisor emit. Nothing has been applied."]
    if kind == "jobset":
        lines.append("A JobSet ends as soon as one of its jobs fails; with k8s the others go on.")
    return "".join(f"# {line}\n" for line in lines)


def _steps(kind: Kind, probes: Probes, place: str) -> list[str]:
    """Commands to apply, to watch and to gather; the records lie on the volume."""
    space = "" if probes.namespace is None else f" -n {shlex.quote(probes.namespace)}"
    what = {"k8s": "jobs", "jobset": "jobs", "trainjob": "trainjobs"}[kind]
    folders = " ".join(f"{probes.name}/{slug}" for slug in slugs(probes.products))
    return [
        f"  kubectl apply{space} -f {place}",
        f"  kubectl get{space} {what} --watch -l app.kubernetes.io/instance={probes.name}",
        f"  then, where the volume is mounted at {RECORDS}:",
        f"  cd {RECORDS} && batchadvisor plan {folders}",
    ]
