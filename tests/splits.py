"""Devices of unlike speed, by formula: nothing in them was measured."""

import msgspec
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.split.allocation import plan_split
from batchadvisor.records import DeviceRun, DevicesRecord

from . import on_paper
from .on_paper import GIB, failure_of, numbered, record_of, trial_of

SIZES = (8, 16, 32, 64, 128, 256)


def answer_of(fixed_s, slope_s, sizes=SIZES, *, recommend=None, fails=(), kind="cuda", **discovery):
    """A device whose steps take fixed + slope x size, by formula."""
    trials = numbered(
        *(trial_of(size, fixed_s + slope_s * size, peak=GIB + size * 2**20) for size in sizes),
        *map(failure_of, fails),
    )
    record = record_of(trials, capacity=2 * GIB, discovery=on_paper.discovery_of(**discovery))
    record = msgspec.structs.replace(
        record, device=msgspec.structs.replace(record.device, kind=kind)
    )
    advice = advise(record)
    if recommend is not None:
        chosen = next(row for row in advice.sizes if row.batch_size == recommend)
        advice = msgspec.structs.replace(advice, recommended=chosen)
    return record, advice


def plan_of(answers, runs=None, **options):
    return plan_split(devices_of(answers, runs), answers, **options)


def devices_of(answers, runs=None):
    runs = runs or [DeviceRun(device=name, model=name, folder=name) for name in answers]
    return DevicesRecord(state="finished", started_at="", command=("x",), devices=tuple(runs))


def three():
    """Devices whose steps take about 12 + 0.5 b, 14 + 1.1 b and 18 + 3.4 b milliseconds."""
    return {
        "fast": answer_of(0.012, 0.0005, recommend=128),
        "middle": answer_of(0.014, 0.0011, recommend=64),
        "slow": answer_of(0.018, 0.0034, recommend=64),
    }
