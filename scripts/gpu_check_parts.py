"""What `scripts/gpu-check` runs: the steps of its parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: also of its folder in the results.
        words: after the interpreter; `{out}` stands for that folder, `{limit}` for the seconds
            that it has.
        limit_s: it has at least so long; what steps before it left over comes on top.
        codes: exit codes that are no failure.
    """

    name: str
    words: tuple[str, ...]
    limit_s: float = 120.0
    codes: tuple[int, ...] = (0,)


def _run(name: str, script: str, *options: str, limit_s: float = 120.0) -> Step:
    words = ("-m", "batchadvisor", "run", "-q", "--json", "-o", "{out}/run", *options, script)
    return Step(name, words, limit_s)


def _probe(name: str, limit_s: float, *options: str) -> Step:
    words = (f"scripts/gpu_probes/{name}.py", "--out", "{out}", "--limit", "{limit}", *options)
    return Step(name, words, limit_s)


DOCTOR = Step("doctor", ("-m", "batchadvisor", "doctor", "--json"), 25.0, (0, 1))
GPU = ("--device", "cuda", "--memory-limit", "8GiB")
MEMORY = ("--goal", "memory", "--budget", "45s")
GPT, RESNET = "examples/char_gpt.py", "examples/resnet18_cifar10.py"
HUNGRY = "scripts/gpu_probes/hungry.py"
PROBES = (
    _probe("bare_loop", 90.0),
    _probe("callback_async", 45.0),
    _probe("update_periods", 25.0),
    _probe("energy_windows", 35.0),
    _probe("profiler_start", 15.0),
    _probe("step_after_profile", 20.0),
    _probe("throttle", 15.0),
    _probe("occupancy", 30.0),
    _probe("largest_size", 70.0),
    _probe("memory_fill", 40.0),
    _probe("refusals", 85.0),
    _probe("live_or_fresh", 70.0),
)
"""One question each; the most valuable first, in case the time is short."""
PART_S = {0: 420.0, 1: 540.0, 2: 270.0, 3: 330.0, 4: 420.0}
"""So long a part's steps take together at most."""
PARTS: dict[int, tuple[Step, ...]] = {
    0: (
        DOCTOR,
        _run(
            "plain-cpu", "tests/scripts/plain.py", "--device", "cpu", "--sizes", "8,32",
            "--budget", "20s",
        ),
        _probe("profiler_start", 60.0, "--device", "cpu"),
        _probe("refusals", 60.0, "--device", "cpu"),
        _probe("memory_fill", 60.0, "--device", "cpu"),
    ),
    1: PROBES,
    2: (
        _run("char-gpt", GPT, *GPU, "--budget", "75s", limit_s=135.0),
        _run("resnet18", RESNET, *GPU, "--budget", "75s", limit_s=135.0),
    ),
    3: (
        _run("char-gpt-memory", GPT, *GPU, *MEMORY, limit_s=70.0),
        _run("resnet18-memory", RESNET, *GPU, *MEMORY, limit_s=70.0),
        _probe("fake_or_real", 130.0),
        _run(
            "refusal", HUNGRY, "--device", "cuda", "--goal", "memory", "--budget", "30s",
            "--sizes", "8,100000", limit_s=60.0,
        ),
    ),
    4: (
        DOCTOR,
        Step("tests", ("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"),
             110.0),
        Step(
            "callback-overhead",
            ("bench/callback_overhead.py", "--device", "cuda", "--seconds", "12", "--windows", "3",
             "--results", "{out}"),
            95.0,
        ),
        Step(
            "steering-cost",
            ("bench/steering_cost.py", "--seconds", "5", "--starts", "1", "--fetch-pairs", "1",
             "--device", "cuda", "--results", "{out}"),
            80.0,
        ),
        Step(
            "sweep",
            ("bench/sweep.py", "--device", "cuda", "--repeats", "1", "--sweeps", "1", "--pairs",
             "40", "--max", "256", "--budget", "30", "--results", "{out}", GPT),
            110.0,
        ),
    ),
}  # fmt: skip
