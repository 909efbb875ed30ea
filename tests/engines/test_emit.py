"""Manifests as they are printed, and what is refused; tests/frameworks has the schemas."""

import json
import re

import pytest
from batchadvisor.features.plan.engines.kubernetes import Probes, manifests
from batchadvisor.features.plan.engines.names import slugs
from click.testing import CliRunner

from .emitted import IMAGE, TYPES, emit, objects


def pods(kind, items):
    """Pod specs by the type that each asks for."""
    if kind == "k8s":
        specs = [item["spec"]["template"]["spec"] for item in items if item["kind"] == "Job"]
    else:
        [job_set] = [item for item in items if item["kind"] == "JobSet"]
        specs = [
            job["template"]["spec"]["template"]["spec"] for job in job_set["spec"]["replicatedJobs"]
        ]
    return {spec["nodeSelector"]["nvidia.com/gpu.product"]: spec for spec in specs}


@pytest.mark.parametrize("kind", ["k8s", "jobset"])
def test_a_pod_for_each_type(kind):
    done = emit(kind, "/job/train.py", "--run-options", "--budget 10m", "--", "--epochs", "2")
    assert (done.returncode, done.stderr) == (0, "")
    items = objects(done.stdout)
    [claim] = [item for item in items if item["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    found = pods(kind, items)
    assert tuple(found) == TYPES
    folders = []
    for pod in found.values():
        [container] = pod["containers"]
        assert container["image"] == IMAGE
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
        assert [each["key"] for each in pod["tolerations"]] == ["nvidia.com/gpu"]
        program, verb, option, folder, *rest = container["command"]
        assert (program, verb, option) == ("batchadvisor", "run", "-o")
        assert rest == ["--budget", "10m", "/job/train.py", "--epochs", "2"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert volumes.keys() == mounts.keys()
        assert folder.startswith(mounts["records"] + "/")
        claimed = volumes["records"]["persistentVolumeClaim"]["claimName"]
        assert claimed == claim["metadata"]["name"]
        folders.append(folder)
    assert len(set(folders)) == len(TYPES)


@pytest.mark.parametrize("kind", ["k8s", "jobset"])
def test_the_jobs_are_those_that_the_next_step_watches(kind):
    """A JobSet gives its jobs the labels of their template."""
    probes = Probes(command=("batchadvisor", "run"), image=IMAGE, products=TYPES, name="probe")
    jobs = manifests(kind, probes)[1:]
    if kind == "jobset":
        jobs = [job["template"] for job in jobs[0]["spec"]["replicatedJobs"]]
    labels = [job["metadata"]["labels"]["app.kubernetes.io/instance"] for job in jobs]
    assert labels == ["probe", "probe"]


def test_a_train_job_for_each_type():
    done = emit(
        "trainjob", "train.py", "--runtime", "ours", "--claim", "disk", "--time-limit", "5m"
    )
    items = objects(done.stdout)
    assert [item["kind"] for item in items] == ["TrainJob", "TrainJob"]
    for item, product in zip(items, TYPES, strict=True):
        spec = item["spec"]
        assert spec["activeDeadlineSeconds"] == 300
        assert spec["runtimeRef"] == {"name": "ours"}
        assert spec["trainer"]["image"] == IMAGE
        assert spec["trainer"]["command"][-1] == "train.py"
        [patch] = spec["runtimePatches"]
        [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        pod = job["template"]["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"nvidia.com/gpu.product": product}
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "disk"}


def test_the_command_is_one_that_run_takes(tmp_path):
    from batchadvisor.cli import cli

    script = tmp_path / "train.py"
    script.write_text("print()")
    done = emit("k8s", script, "--run-options", "--goal memory", "--", "--goal", "mine")
    command = pods("k8s", objects(done.stdout))[TYPES[0]]["containers"][0]["command"]
    where = command.index("-o") + 1
    command[where] = str(tmp_path / "record")
    answer = CliRunner().invoke(cli, [*command[1:2], "--dry-run", *command[2:]])
    assert "No such option" not in answer.output
    assert "Usage" not in answer.output


def test_json_is_the_same():
    whole = json.loads(emit("jobset", "train.py", "--json").stdout)
    assert (whole["apiVersion"], whole["kind"]) == ("v1", "List")
    assert whole["items"] == objects(emit("jobset", "train.py").stdout)


def test_next_steps_name_the_folders_and_no_file_is_overwritten(tmp_path):
    words = ("k8s", "train.py", "--namespace", "ml", "-o", "jobs.yaml")
    done = emit(*words, folder=tmp_path)
    assert done.returncode == 0
    assert "kubectl apply -n ml -f jobs.yaml" in done.stdout
    for pod in pods("k8s", objects((tmp_path / "jobs.yaml").read_text())).values():
        folder = pod["containers"][0]["command"][3].removeprefix("/records/")
        assert folder in done.stdout
    again = emit(*words, folder=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert emit(*words, "--force", folder=tmp_path).returncode == 0


REFUSED = {
    "no kind": (("pods", "train.py"), "k8s"),
    "an argument of the script": (("k8s", "train.py", "--epochs", "2"), "--"),
    "an option that the manifest decides": (
        ("k8s", "train.py", "--run-options", "-o here"),
        "--output",
    ),
    "an option that run lacks": (("k8s", "train.py", "--run-options", "--speed 3"), "--speed"),
    "no end of a quotation": (("k8s", "train.py", "--run-options", "'x"), "Quote"),
    "a script among the options": (("k8s", "train.py", "--run-options", "x.py"), "--run-options"),
    "a name in capitals": (("k8s", "train.py", "--name", "Probe"), "lower-case"),
    "a name too long": (("k8s", "train.py", "--name", "a" * 24), "at most 23"),
    "a name of a folder": (("k8s", "train.py", "--claim", "a/b"), "--claim"),
    "a namespace with a dot": (("k8s", "train.py", "--namespace", "a.b"), "--namespace"),
    "a label that is none": (("k8s", "--gpu-product", "T 4", "train.py"), "kubectl get nodes"),
    "a type twice": (("k8s", "--gpu-product", TYPES[0], "train.py"), "twice"),
    "a size that is none": (("k8s", "train.py", "--storage", "much"), "1Gi"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    words, said = REFUSED[case]
    done = emit(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["k8s", "trainjob"])
def test_dollars_arrive_as_they_were_typed(kind):
    """Kubernetes puts a variable in the place of `$(NAME)`, and one dollar in that of two."""
    typed = ("$(HOME)", "a$$b", "^x$")
    probes = Probes(
        command=("batchadvisor", "run", "x.py", *typed), image="i", products=TYPES, name="n"
    )
    (_, job, _) = manifests(kind, probes)
    if kind == "k8s":
        (container,) = job["spec"]["template"]["spec"]["containers"]
    else:
        container = job["spec"]["trainer"]
    arrived = [
        re.sub(r"\$\$|\$\((\w+)\)", lambda found: f"<{found[1]}>" if found[1] else "$", word)
        for word in container["command"]
    ]
    assert arrived[-3:] == list(typed)


def test_names_have_room_for_what_is_added():
    types = tuple(f"NVIDIA-H100-80GB-HBM3-MIG-{part}g.80gb" for part in range(1, 12))
    names = slugs(types)
    assert len(set(names)) == len(names)
    probes = Probes(
        command=("batchadvisor", "run", "x.py"), image="i", products=types, name="n" * 23
    )
    for item in manifests("trainjob", probes):
        assert len(item["metadata"]["name"] + "-node-0-0-xxxxx") <= 63
    [_, job_set] = manifests("jobset", probes)
    for job in job_set["spec"]["replicatedJobs"]:
        assert len(f"{job_set['metadata']['name']}-{job['name']}-0-0-xxxxx") <= 63
