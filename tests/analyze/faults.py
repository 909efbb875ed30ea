"""Traces with planted faults, and what has to be said of each."""

from __future__ import annotations

from typing import NamedTuple

from .traces import event, kernel, launch, step

STEP_US, KERNELS = 1000.0, 20


def training(*, num_steps=5, kernel_us=5.0, at=0.0):
    """Steps of 1 ms with 20 kernels 50 us apart, each launched right before it: 10 % busy."""
    events = []
    for number in range(num_steps):
        begin = at + STEP_US * number
        events.append(step(number, begin, STEP_US - 1))
        events.append(event("cpu_op", "aten::mm", begin, 5))
        for place in range(KERNELS):
            now, link = begin + 50.0 * place, number * KERNELS + place + 1
            events += [launch(now, link, 3), kernel(now + 5.125, kernel_us, link, blocks=0.1)]
    return events


def of(events, category):
    return [entry for entry in events if entry["cat"] == category]


def without_steps(events):
    return [entry for entry in events if not entry["name"].startswith("ProfilerStep")]


def longer(events, place, dur, **changes):
    """The events with one kernel's duration changed."""
    of(events, "kernel")[place].update(dur=dur, **changes)
    return events


def lacking(events, gone):
    """The events without the kernels whose number `gone` says."""
    kernels = of(events, "kernel")
    left = {id(entry) for number, entry in enumerate(kernels) if gone(number)}
    return [entry for entry in events if id(entry) not in left]


def endless_copy():
    copy = event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 2011, 3_150_000.0, pid=0, tid=7,
                 device=0, stream=7, correlation=999, bytes=40)  # fmt: skip
    return [*training(), launch(2008, 999, 1, "cudaMemcpyAsync"), copy]


def alone_on_its_stream():
    """Nothing follows the kernel; the host has waited for the device."""
    events = longer(training(), 30, 3_400_000.0)
    of(events, "kernel")[30]["args"]["stream"] = 9
    return [*events, launch(5000, 9999, 20, "cudaDeviceSynchronize")]


def graphs(recorded, *, num=12):
    """Steps of one graph launch; only those of `recorded` have their kernels."""
    events = []
    for number in range(num):
        begin = 1000.0 * number
        events += [step(number, begin, 999), launch(begin, number + 1, 20, "cudaGraphLaunch")]
        if number in recorded:
            events += [kernel(begin + 25 + 24 * n, 22, number + 1) for n in range(40)]
    return events


def changed(events, category, change, every=1):
    for number, entry in enumerate(of(events, category)):
        if number % every == 0:
            change(entry)
    return events


def as_text(entry):
    entry.update(ts=f"{entry['ts']:.3f}", dur=str(entry["dur"]))
    entry["args"] = {key: str(value) for key, value in entry["args"].items()}


def ascend(category=None, **args):
    """Operators of the host, and work on something else in events of its own."""
    events = [entry for entry in training() if entry["cat"] not in ("kernel", "cuda_runtime")]
    for number in range(80):
        entry = event(category, "MatMulV2", 12.0 + 50 * number, 45, pid=31, tid=2, **args)
        events.append({key: value for key, value in entry.items() if value is not None})
    return events


class Fault(NamedTuple):
    """What is wrong, in the words of the docs; a trace with it; what has to be said."""

    what: str
    events: list
    says: str
    judged: bool = True


FAULTS = [
    Fault("a kernel that lasts for seconds, while the next of its stream begins 50 µs later",
          longer(training(), 30, 3_400_000.0), "1 GPU event that ends after later ones"),
    Fault("a copy that lasts for seconds, while the next work of its stream begins at once",
          endless_copy(), "1 GPU event that ends after later ones"),
    Fault("a kernel alone on its stream that outlasts the host's next wait for the GPU",
          alone_on_its_stream(), "ends after the host has waited for all work"),
    Fault("the last kernel of all goes on for longer than all else took",
          longer(training(num_steps=6), -1, 3_400_000.0), "long after everything else"),
    Fault("a kernel that lasts for seconds, before a pause: how long it took is not known",
          longer([entry for entry in training() if not 1050 < entry["ts"] < 1999
                  or entry["cat"] == "user_annotation"], 21, 3_400_000.0),
          "1 GPU event that ends after later ones of the same stream"),
    Fault("many kernels that end after later ones",
          changed(training(), "kernel", lambda entry: entry.update(dur=9000.0), 5),
          "their durations are wrong, or several queues stand under one stream", judged=False),
    Fault("graph launches, most of them without kernels, in a trace without steps",
          without_steps(graphs({0, 4, 8})), "for 9 of 12 launches the profiler recorded no work",
          judged=False),
    Fault("graph launches without kernels in most steps", graphs({4, 5, 6, 9}),
          "for 8 of 8 launches"),
    Fault("kernels missing in the first steps", lacking(training(), lambda n: n < 25),
          "steps 0, 1: for 25 of 40 launches the profiler recorded no work"),
    Fault("kernels missing in a step in the middle", lacking(training(), lambda n: 42 <= n < 55),
          "step 2: for 13 of 20 launches the profiler recorded no work of the GPU; steps 3, 4"),
    Fault("kernels of one stream missing in every step", lacking(training(), lambda n: n % 2),
          "for 50 of 100 launches the profiler recorded no work", judged=False),
    Fault("all kernels missing, while copies are there", [*of(training(), "cuda_runtime"),
          *of(training(), "user_annotation"),
          *(entry for entry in endless_copy()[-2:])],
          "for 100 of 100 launches the profiler recorded no work", judged=False),
    Fault("a step that lasts into the next ones",
          changed(training(), "user_annotation", lambda entry: entry.update(dur=9e6), 9),
          "what step 0 had left when the next began"),
    Fault("times of zero",
          changed(training(at=5e6), "kernel", lambda entry: entry.update(ts=0), 50),
          "2 events with a time of zero"),
    Fault("kernels that begin before their launch",
          changed(training(at=9000.0), "kernel", lambda entry: entry.update(ts=10.0), 50),
          "2 GPU events that begin before the call that launched"),
    Fault("times of the GPU since the epoch, of the host since the start",
          changed(training(), "kernel", lambda entry: entry.update(ts=1.7e15 + entry["ts"])),
          "the times of host and GPU do not go together", judged=False),
    Fault("kernels without a duration",
          changed(training(), "kernel", lambda entry: entry.update(dur=0.0), 2),
          "50 of 100 kernels have no duration", judged=False),
    Fault("times that are no numbers", changed(training(), "kernel",
          lambda entry: entry.update(ts="N/A"), 60), "2 events could not be read"),
    Fault("events of an accelerator without a category", ascend(**{"Stream Id": 2}),
          "an accelerator that this version does not read (80 events such as MatMulV2)",
          judged=False),
    Fault("events of a category that is not Kineto's, beside the script's process", ascend("TPU"),
          "an accelerator that this version does not read", judged=False),
    Fault("events of one of Kineto's plugins", ascend("hpu_op"),
          "an accelerator that this version does not read (hpu_op)", judged=False),
]  # fmt: skip
