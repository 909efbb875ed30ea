"""Records of GPUs of several types, by formula: nothing in them was measured on any GPU."""

import msgspec
from batchadvisor.advisor.advise import advise
from batchadvisor.features.plan.split.cards import Probed
from batchadvisor.features.plan.split.cluster import plan_cluster
from batchadvisor.records import Communication, Distribution, RankPairs, ScriptInfo, Versions

from .on_paper import GIB, discovery_of, failure_of, metered, numbered, record_of, trial_of

SIZES = (8, 16, 32, 64, 128, 256)
SCRIPT = ScriptInfo(path="train.py", arguments=("--epochs", "2"), digest="0123456789abcdef")
VERSIONS = Versions(batchadvisor="0.1.0", python="3.12", torch="2.13.0", cuda="13.0")
TYPES = {
    "a100": ("NVIDIA A100-SXM4-80GB", 0.012, 0.0005, 300.0),
    "v100": ("Tesla V100-SXM2-16GB", 0.014, 0.0011, 250.0),
    "t4": ("Tesla T4", 0.018, 0.0034, 70.0),
}
"""Device, fixed part and slope of a step in seconds, watts."""


def gpu_record(
    device, fixed_s, slope_s, watts=None, *, sizes=SIZES, fails=(), discovery=None, **changes
):
    """A GPU whose steps take fixed + slope x size."""

    def trial(size):
        peak = GIB + size * 2**20
        step_s = fixed_s + slope_s * size
        if watts is None:
            return trial_of(size, step_s, peak=peak)
        return metered(size, step_s, watts, lasted_s=5.0, peak=peak)

    trials = numbered(*map(trial, sizes), *map(failure_of, fails))
    record = record_of(
        trials,
        capacity=2 * GIB,
        discovery=discovery or discovery_of(),
        **{"script": SCRIPT, "versions": VERSIONS, **changes},
    )
    return msgspec.structs.replace(
        record, device=msgspec.structs.replace(record.device, name=device)
    )


def type_record(name, **changes):
    device, fixed_s, slope_s, watts = TYPES[name]
    return gpu_record(device, fixed_s, slope_s, **{"watts": watts, **changes})


def probed(name, count=0, *, price=None, recommend=None, record=None, **changes):
    """A type of `TYPES`, or of any record, as a plan takes it."""
    record = record or type_record(name, **changes)
    advice = advise(record)
    if recommend is not None:
        chosen = next(row for row in advice.sizes if row.batch_size == recommend)
        advice = msgspec.structs.replace(advice, recommended=chosen)
    return Probed(name=name, folder=name, record=record, advice=advice, count=count, price=price)


def plan_of(*types, **options):
    return plan_cluster(types, **options)


def write(folder, record):
    """The record where a run would have left it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_bytes(msgspec.json.encode(record))
    return folder


def job_record(name, size, compute_s, sync_s, *, alone_s=None, num=20):
    """Two ranks with a type each, that made paired steps."""
    ranks = tuple(
        RankPairs(
            rank=rank,
            compute_s=(compute_s,) * num,
            step_s=(compute_s + sync_s,) * num,
            alone_s=() if alone_s is None else (alone_s,) * num,
        )
        for rank in range(2)
    )
    distribution = Distribution(
        world_size=2,
        launcher="torchrun",
        communication=(Communication(batch_size=size, micro_batches=1, ranks=ranks),),
    )
    return type_record(name, distribution=distribution)
