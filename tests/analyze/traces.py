"""Small synthetic traces, event by event. No number here was measured on any device."""

from __future__ import annotations

import json


def event(cat, name, ts, dur, *, pid=1, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def step(number, ts, dur):
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def launch(ts, correlation, dur=5, name="cudaLaunchKernel"):
    return event("cuda_runtime", name, ts, dur, correlation=correlation)


def kernel(ts, dur, correlation, *, name="compute", device=0, stream=7, blocks=8.0):
    return event("kernel", name, ts, dur, pid=device, tid=stream, device=device, stream=stream,
                 correlation=correlation, **{"blocks per SM": blocks})  # fmt: skip


def training(*, num_steps=3, kernel_us=90.0, device=0, launched=True):
    """Steps of 100 us with one kernel each."""
    events = []
    for number in range(num_steps):
        begin = 100.0 * number
        events.append(step(number, begin, 99))
        if launched:
            events.append(launch(begin + 1, number + 1))
        events.append(kernel(begin + 8, kernel_us, number + 1, device=device))
    return events


def rank_of(rank, durations, *, world_size=None, names=None, num_steps=1):
    """A rank whose collectives take so long, one after the other; the document as well."""
    events = []
    correlation = 0
    for number in range(num_steps):
        now = 10_000.0 * number
        events.append(step(number, now, 9_000))
        for position, duration in enumerate(durations):
            correlation += 1
            name = names[position] if names else "ncclDevKernel_AllReduce_Sum_f32(args)"
            events.append(launch(now + 1 + position, correlation))
            begin = now + 100 + position * 1000
            events.append(kernel(begin, duration, correlation, name=name, stream=20, blocks=0.1))
    distributed = {"backend": "nccl", "rank": rank, "world_size": world_size or 2}
    return {"traceEvents": events, "distributedInfo": distributed}


def save(path, document):
    """Writes events or a whole document."""
    if isinstance(document, list):
        document = {"traceEvents": document}
    path.write_text(json.dumps(document))
    return path
