"""Manifests against the schemas of Kubernetes, JobSet and Kubeflow Trainer, strictly."""

import copy

import pytest

from tests.engines.emitted import emit, objects
from tests.needs import framework

kubernetes = framework("kubernetes_validate")
models = framework("kubeflow_trainer_api.models")

pytestmark = pytest.mark.frameworks

VERSION = "1.34"
KINDS = {"JobSet": "JobsetV1alpha2JobSet", "TrainJob": "TrainerV1alpha1TrainJob"}


def wrong(item):
    """What the schema does not know, or not like this; nothing where the object is valid."""
    if item["kind"] in KINDS:
        model = getattr(models, KINDS[item["kind"]])
        # The model drops what it does not know, so what comes back is compared.
        try:
            back = model.from_dict(copy.deepcopy(item)).to_dict()
        except ValueError as error:
            return str(error)
        return "" if back == item else f"came back as {back}"
    try:
        kubernetes.validate(item, VERSION, strict=True)
    except kubernetes.ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["k8s", "jobset", "trainjob"])
@pytest.mark.parametrize("options", [(), ("--namespace", "ml", "--claim", "disk")])
def test_valid(kind, options):
    items = objects(emit(kind, "train.py", *options, "--", "--epochs", "2").stdout)
    assert items
    assert [wrong(item) for item in items] == [""] * len(items)


def places(value, path=()):
    """Paths of all mappings in an object that the schema describes field by field."""
    if isinstance(value, dict):
        if path[-1:] not in {("labels",), ("limits",), ("requests",), ("nodeSelector",)}:
            yield path
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from places(inner, (*path, place))


def at(value, path):
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize("kind", ["k8s", "jobset", "trainjob"])
def test_a_wrong_field_is_caught_everywhere(kind):
    for item in objects(emit(kind, "train.py").stdout):
        for path in places(item):
            broken = copy.deepcopy(item)
            at(broken, path)["colour"] = "red"
            assert wrong(broken), path


def test_a_wrong_value_is_caught():
    [_, job, _] = objects(emit("k8s", "train.py").stdout)
    job["spec"]["backoffLimit"] = "none"
    assert wrong(job)
