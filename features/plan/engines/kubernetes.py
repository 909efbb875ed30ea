"""Manifests for Kubernetes: a job for each GPU type, and a volume for the records. Pure.

Nothing is applied. A probe needs no other one, so every type is a job of its own with one GPU: one
that never comes ends with its time limit, and the others go on. Fields as of `batch/v1`,
`jobset.x-k8s.io/v1alpha2` and `trainer.kubeflow.org/v1alpha1` (Kubeflow Trainer 2.2 and later).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from ....errors import UsageError
from .names import name_from, slugs

Kind = Literal["k8s", "jobset", "trainjob"]
RECORDS = "/records"
"""Where the containers find the volume."""
PRODUCT = "nvidia.com/gpu.product"
"""The node's label with the name of its GPU, from NVIDIA's GPU Feature Discovery."""
GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
"""Nodes with GPUs often keep other pods away by this taint."""
NAME_LETTERS = 23
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?")


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """The probes to run, and where.

    Attributes:
        command: as typed in the container, without `-o`: `("batchadvisor", "run", ...)`; the
            place for `-o` is after these two words.
        image: the container's image; has batchadvisor, the script and its data.
        products: values of the node label `nvidia.com/gpu.product`, one for each type.
        name: begins the names of all objects.
        namespace: `None` leaves it to kubectl.
        claim: an existing PersistentVolumeClaim for the records; `None` writes one.
        storage: size of the claim that is written.
        time_limit_s: a job ends after so many seconds, the wait for a node included.
        runtime: the ClusterTrainingRuntime of a TrainJob.
    """

    command: tuple[str, ...]
    image: str
    products: tuple[str, ...]
    name: str
    namespace: str | None = None
    claim: str | None = None
    storage: str = "1Gi"
    time_limit_s: int = 3600
    runtime: str = "torch-distributed"


def checked(probes: Probes) -> Probes:
    """Returns the probes after checking that Kubernetes takes their names.

    Raises:
        UsageError: a name or label that it would refuse.
    """
    for product in probes.products:
        if not _LABEL_VALUE.fullmatch(product):
            raise UsageError(
                f"{product!r} is no value of a node label.",
                f"List them: kubectl get nodes -L {PRODUCT}",
            )
    twice = sorted({p for p in probes.products if probes.products.count(p) > 1})
    if twice:
        raise UsageError(f"--gpu-product {twice[0]} is given twice.", "Give each type once.")
    if not probes.image.strip() or any(letter.isspace() for letter in probes.image):
        raise UsageError(f"{probes.image!r} is no image.", "Give its name as docker pull takes it.")
    if len(probes.name) > NAME_LETTERS or not _NAME.fullmatch(probes.name):
        raise UsageError(
            f"--name {probes.name!r} is no name for a job.",
            f"Use at most {NAME_LETTERS} lower-case letters, digits and dashes, a letter first.",
        )
    for option, name, letters, dots in (
        ("--namespace", probes.namespace, _LABEL, ""),
        ("--claim", probes.claim, _OBJECT, " and dots"),
        ("--runtime", probes.runtime, _OBJECT, " and dots"),
    ):
        if name is not None and not letters.fullmatch(name):
            raise UsageError(
                f"{option} {name!r} is no name in Kubernetes.",
                f"Use lower-case letters, digits, dashes{dots}.",
            )
    if not _QUANTITY.fullmatch(probes.storage):
        raise UsageError(
            f"--storage {probes.storage!r} is no size in Kubernetes.", "Write it as 1Gi or 500Mi."
        )
    return probes


def manifests(kind: Kind, probes: Probes) -> list[dict[str, Any]]:
    """The objects to apply, the volume first."""
    jobs = list(zip(slugs(probes.products), probes.products, strict=True))
    objects: list[dict[str, Any]] = [] if probes.claim else [_claim(probes)]
    if kind == "jobset":
        return [*objects, _job_set(probes, jobs)]
    of_type = _job if kind == "k8s" else _train_job
    return [*objects, *(of_type(probes, slug, product) for slug, product in jobs)]


def _claim(probes: Probes) -> dict[str, Any]:
    """Written by pods on several nodes, hence ReadWriteMany."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(probes, _claim_name(probes)),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": probes.storage}},
        },
    }


def _job(probes: Probes, slug: str, product: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(probes, f"{probes.name}-{slug}"),
        "spec": _job_spec(probes, slug, product),
    }


def _job_set(probes: Probes, jobs: list[tuple[str, str]]) -> dict[str, Any]:
    replicated = [
        {
            "name": slug,
            "replicas": 1,
            "template": {
                "metadata": {"labels": _labels(probes)},
                "spec": _job_spec(probes, slug, product),
            },
        }
        for slug, product in jobs
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(probes, probes.name),
        "spec": {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": replicated},
    }


def _train_job(probes: Probes, slug: str, product: str) -> dict[str, Any]:
    """The runtime brings the container `node` of its replicated job `node`; a patch places it."""
    pod = {
        "nodeSelector": {PRODUCT: product},
        "tolerations": [TAINT],
        "volumes": _volumes(probes),
        "containers": [{"name": "node", "volumeMounts": _mounts()}],
    }
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    patch = {"template": {"spec": {"replicatedJobs": [job]}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(probes, f"{probes.name}-{slug}"),
        "spec": {
            "activeDeadlineSeconds": probes.time_limit_s,
            "runtimeRef": {"name": probes.runtime},
            "trainer": {
                "image": probes.image,
                "command": _command(probes, slug),
                "numNodes": 1,
                "resourcesPerNode": {"limits": {GPU: 1}},
            },
            "runtimePatches": [{"manager": "batchadvisor/emit", "trainingRuntimeSpec": patch}],
        },
    }


def _job_spec(probes: Probes, slug: str, product: str) -> dict[str, Any]:
    """Never tried again: a script that fails would fail again."""
    container = {
        "name": "probe",
        "image": probes.image,
        "command": _command(probes, slug),
        "resources": {"limits": {GPU: 1}},
        "volumeMounts": _mounts(),
    }
    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": probes.time_limit_s,
        "template": {
            "metadata": {"labels": _labels(probes)},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {PRODUCT: product},
                "tolerations": [TAINT],
                "containers": [container],
                "volumes": _volumes(probes),
            },
        },
    }


def _command(probes: Probes, slug: str) -> list[str]:
    """What was typed: Kubernetes takes `$(NAME)` for a variable, and `$$` for one dollar."""
    words = [word.replace("$", "$$") for word in probes.command]
    return [*words[:2], "-o", f"{RECORDS}/{probes.name}/{slug}", *words[2:]]


def _volumes(probes: Probes) -> list[dict[str, Any]]:
    """The records; and shared memory for the DataLoader's workers, of which a pod has 64 MiB."""
    return [
        {"name": "records", "persistentVolumeClaim": {"claimName": _claim_name(probes)}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]


def _mounts() -> list[dict[str, Any]]:
    return [
        {"name": "records", "mountPath": RECORDS},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]


def _claim_name(probes: Probes) -> str:
    return probes.claim or f"{probes.name}-records"


def _metadata(probes: Probes, name: str) -> dict[str, Any]:
    place = {} if probes.namespace is None else {"namespace": probes.namespace}
    return {"name": name, **place, "labels": _labels(probes)}


def _labels(probes: Probes) -> dict[str, str]:
    return {"app.kubernetes.io/name": "batchadvisor", "app.kubernetes.io/instance": probes.name}


def emitted(
    command: tuple[str, ...],
    script: str,
    *,
    kind: Kind,
    as_json: bool,
    name: str | None,
    time_limit: float,
    **options: Any,
) -> tuple[str, Callable[[str], list[str]]]:
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
