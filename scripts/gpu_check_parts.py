"""What `scripts/gpu-check` runs: the steps of its parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: also of its folder in the results.
        words: after the interpreter; `{out}` stands for that folder.
        limit_s: its share of the part.
        codes: exit codes that are no failure.
    """

    name: str
    words: tuple[str, ...]
    limit_s: float = 120.0
    codes: tuple[int, ...] = (0,)


def _run(name: str, script: str, *options: str, limit_s: float = 120.0) -> Step:
    words = ("-m", "batchadvisor", "run", "-q", "--json", "-o", "{out}/run", *options, script)
    return Step(name, words, limit_s)


DOCTOR = Step("doctor", ("-m", "batchadvisor", "doctor", "--json"), 60.0, (0, 1))
GPU = ("--device", "cuda", "--memory-limit", "8GiB")
MEMORY = ("--goal", "memory", "--budget", "60s")
GPT, RESNET = "examples/char_gpt.py", "examples/resnet18_cifar10.py"
EXHAUST = "scripts/gpu_exhaust.py"
PARTS: dict[int, tuple[Step, ...]] = {
    0: (
        DOCTOR,
        _run(
            "plain-cpu", "tests/scripts/plain.py", "--device", "cpu", "--sizes", "8,32",
            "--budget", "20s",
        ),
    ),
    1: (
        DOCTOR,
        Step("tests", ("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"), 220.0),
        Step(
            "callback-overhead",
            ("bench/callback_overhead.py", "--device", "cuda", "--seconds", "25", "--windows", "5",
             "--results", "{out}"),
            140.0,
        ),
    ),
    2: (
        _run("char-gpt", GPT, *GPU, "--budget", "90s", limit_s=200.0),
        _run("resnet18", RESNET, *GPU, "--budget", "90s", limit_s=200.0),
    ),
    3: (
        _run("char-gpt-memory", GPT, *GPU, *MEMORY, limit_s=110.0),
        _run("resnet18-memory", RESNET, *GPU, *MEMORY, limit_s=110.0),
        _run("exhaustion", EXHAUST, "--device", "cuda", *MEMORY, limit_s=110.0),
        _run("refusal", EXHAUST, "--device", "cuda", *MEMORY, "--sizes", "8,100000", limit_s=90.0),
    ),
    4: (
        Step(
            "steering-cost",
            ("bench/steering_cost.py", "--seconds", "10", "--starts", "2", "--fetch-pairs", "2",
             "--device", "cuda", "--results", "{out}"),
            180.0,
        ),
        Step(
            "sweep",
            ("bench/sweep.py", "--device", "cuda", "--repeats", "1", "--sweeps", "1", "--pairs",
             "100", "--max", "512", "--budget", "40", "--results", "{out}", GPT),
            240.0,
        ),
    ),
}  # fmt: skip
