"""The remedies that there are: when each makes sense, what it gains at most, what to write.

Pure: a remedy is made of what is known of the script, and knows nothing of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from statistics import median
from typing import Literal, NamedTuple

from ...advisor.explain.device_findings import FAULTS_SHARE, KEEPING
from ...advisor.measured.page_faults import KEEPS_MEMORY
from ...records import Limit, SourceLine
from ...units import format_seconds
from .edits import LOADERS, in_line, is_forward, loader_arguments, optimizer_arguments
from .records import Ceiling
from .settings import POOL_BATCHES, Settings, UsedAlready

Group = Literal["input", "precision", "host", "memory"]

GROUPS_FIRST: dict[Limit, tuple[Group, ...]] = {
    "input": ("input", "host", "precision", "memory"),
    "host": ("host", "precision", "input", "memory"),
    "synchronisation": ("host", "precision", "input", "memory"),
    "small kernels": ("host", "precision", "input", "memory"),
    "memory": ("memory", "precision", "host", "input"),
}
"""Which kind of remedy goes first where bounds are equal; else precision does."""
USUAL_ORDER: tuple[Group, ...] = ("precision", "host", "input", "memory")
LEAST_GAIN = 1.02
"""A remedy that gains less at most is not tried: no comparison would show it."""


class Known(NamedTuple):
    """What bounds and conditions go by.

    Attributes:
        used: what the script does already.
        limit: of the step at this size.
        input_share: of a step that waits for the loader, 0..1; `None` where it is not known.
        idle_share: of a step in which a GPU does not compute, 0..1; `None` without a trace.
        samples_per_s: of the script as it is.
        samples_per_epoch: `None` where the loader has no length.
        ceilings: what the loader gives alone.
        batch_size: at which remedies are tried.
        memory_limits: a size not much larger was refused for its memory, or takes too much.
        accumulates: how a size that does not fit is reached with this one; empty where all fit.
        peak_share: peak memory over what there is, 0..1; `None` where it is not known.
        precision: of the parameters, as torch names it.
        faults_share: of a step in page faults at the least, 0..1.
        allocator: of the process, as `PageFaults` names it; empty where steps have few of them.
    """

    used: UsedAlready
    limit: Limit = "cannot tell"
    input_share: float | None = None
    idle_share: float | None = None
    samples_per_s: float = 0.0
    samples_per_epoch: int | None = None
    ceilings: tuple[Ceiling, ...] = ()
    batch_size: int = 1
    memory_limits: bool = False
    accumulates: str = ""
    peak_share: float | None = None
    precision: str = "float32"
    faults_share: float = 0.0
    allocator: str = ""

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU trains."""
        return self.used.device == "cpu"


class Bound(NamedTuple):
    """What a remedy gains at most.

    Attributes:
        factor: on the throughput; infinite where nothing bounds it.
        why: in words, after "since"; empty where nothing bounds it.
    """

    factor: float
    why: str = ""


NO_BOUND = Bound(inf)


class Remedy(NamedTuple):
    """One remedy as `--try` names it.

    Attributes:
        excludes: remedies with the same word do not go together; its name if not given.
        in_use: why it is in use already; empty if it is not.
        refused: why it does not apply to this script; empty if it does.
        variants: settings to try, each with its words; of several the best is kept.
        bound: of each variant; as a rule nothing bounds it.
        place: which line of the script is changed: a key of `UsedAlready.lines`.
        code: to write, for these settings.
    """

    name: str
    group: Group
    refused: Callable[[Known], str]
    variants: Callable[[Known], Sequence[Settings]]
    words: Callable[[Settings], str]
    code: Callable[[Known, Settings], tuple[str, ...]]
    excludes: str = ""
    in_use: Callable[[Known], str] = lambda _: ""
    bound: Callable[[Known, Settings], Bound] = lambda _, __: NO_BOUND
    place: Literal["loader", "call", "optimizer", "backward", ""] = ""

    @property
    def kind(self) -> str:
        """Remedies of one kind do not go together."""
        return self.excludes or self.name


class Candidate(NamedTuple):
    """A remedy with one setting, and what it gains at most."""

    remedy: Remedy
    settings: Settings
    bound: Bound

    @property
    def words(self) -> str:
        """What is changed, in words."""
        return self.remedy.words(self.settings)


def place_of(remedy: Remedy, known: Known) -> tuple[SourceLine | None, str]:
    """The line to change and its text; nothing where it is not known."""
    used = known.used
    places = {
        "loader": used.loader_place,
        "call": used.call_place,
        "optimizer": used.optimizer_place,
        "backward": used.backward_place,
    }
    return places.get(remedy.place), used.lines.get(remedy.place, "")


# Bounds.


def of_input(known: Known) -> Bound:
    """What no wait for the loader at all would gain."""
    share = known.input_share
    if share is None:
        return NO_BOUND
    return Bound(
        1 / max(1 - share, 0.01), f"a step waits for its loader for {share:.1%} of its time"
    )


def of_workers(known: Known, settings: Settings) -> Bound:
    """No wait, and no more than the loader gives alone with as many workers."""
    wait = of_input(known)
    rates = {each.num_workers: each.samples_per_s for each in known.ceilings}
    rate = rates.get(settings.num_workers or 0)
    if rate is None or not known.samples_per_s:
        return wait
    most = rate / known.samples_per_s
    if most >= wait.factor:
        return wait
    return Bound(
        most,
        f"the loader alone gives at most {rate:,.0f} samples/s with that, and now "
        f"{known.samples_per_s:,.0f} arrive",
    )


def of_compute(known: Known, _: Settings) -> Bound:
    """What a step without any work on the device would gain: it waits as long as before."""
    waits = known.input_share or 0.0
    idle = known.idle_share
    if idle is not None and idle > waits:
        return Bound(1 / idle, f"the GPU does not compute for {idle:.0%} of a step")
    return of_host(known, _)


def of_host(known: Known, _: Settings) -> Bound:
    """All but the wait for the loader."""
    waits = known.input_share or 0.0
    if waits <= 0:
        return NO_BOUND
    return Bound(1 / waits, f"a step waits for its loader for {waits:.1%} of its time")


def of_optimizer(known: Known, _: Settings) -> Bound:
    """What an update that takes no time would gain."""
    share = known.used.optimizer_share
    if share is None:
        return of_host(known, _)
    return Bound(1 / max(1 - share, 0.01), f"the optimizer takes {share:.1%} of a step")


def of_start(known: Known, _: Settings) -> Bound:
    """What an epoch gains whose workers are there already."""
    starts, epoch_s = restarts_of(known).starts_s, epoch_of(known)
    if not starts or epoch_s is None:
        return NO_BOUND
    start_s = median(starts)
    return Bound(
        1 + start_s / epoch_s,
        f"an epoch takes {format_seconds(epoch_s)}, and its workers start in "
        f"{format_seconds(start_s)}",
    )


def restarts_of(known: Known) -> Ceiling:
    """What was read of the loader with as many workers as it has."""
    number = known.used.num_workers
    mine = [each for each in known.ceilings if each.num_workers == number]
    return mine[0] if mine else Ceiling(num_workers=number)


def epoch_of(known: Known) -> float | None:
    """Seconds of an epoch's steps; `None` where its length is not known."""
    rate, samples = known.samples_per_s, known.samples_per_epoch
    return samples / rate if rate and samples else None


# Conditions.


def _cuda_only(known: Known) -> str:
    return "" if known.used.device == "cuda" else "for CUDA devices only"


def _without_convolutions(known: Known) -> str:
    return "" if known.used.num_convolutions else "its model has no convolutions"


def _not_started_anew(known: Known) -> str:
    if not known.used.num_workers:
        return "the loader has no workers to keep"
    if epoch_of(known) is None:
        return "the length of an epoch is not known"
    found = restarts_of(known)
    return "" if found.starts_s and found.persistent_s else found.reason or "nobody timed its start"


def _no_loader(known: Known) -> str:
    return "" if known.used.loader_place or known.ceilings else "no DataLoader was seen"


def _no_workers(known: Known) -> str:
    repeat = next((each.reason for each in known.ceilings if each.repeats), "")
    return _no_loader(known) or ("" if _worker_variants(known) else repeat)


def _without_faults(known: Known) -> str:
    if not known.on_cpu:
        return "a GPU trains"
    if known.faults_share < FAULTS_SHARE:
        return "its steps get little memory from the system"
    return "" if known.allocator == "glibc" else "its allocator is not that of glibc"


def _one(settings: Settings) -> Callable[[Known], Sequence[Settings]]:
    return lambda _: (settings,)


def _worker_variants(known: Known) -> Sequence[Settings]:
    """Numbers of workers up to the cores, doubled each time; those that the loader can serve.

    Of numbers that give the loader alone the same within a tenth, the smallest.
    """
    rates = {each.num_workers: each.samples_per_s or 0.0 for each in known.ceilings}
    left_out = {each.num_workers for each in known.ceilings if each.repeats}
    left_out.add(known.used.num_workers)
    numbers = [n for n in worker_numbers(known.used.cores_at_start) if n not in left_out]
    useful: list[int] = []
    for number in numbers:
        if (
            not useful
            or rates.get(number, inf) > 1.1 * rates.get(useful[-1], inf)
            or rates.get(number) is None
        ):
            useful.append(number)
    best = sorted(useful, key=lambda n: -(rates.get(n) or 0.0))[:2]
    return [Settings(num_workers=n, persistent_workers=True) for n in best]


def worker_numbers(num_cores: int) -> list[int]:
    """1, 2, 4 and so on up to the cores.

    >>> worker_numbers(6), worker_numbers(1)
    ([1, 2, 4, 6], [1])
    """
    numbers = [1]
    while 2 * numbers[-1] <= num_cores:
        numbers.append(2 * numbers[-1])
    if numbers[-1] < num_cores:
        numbers.append(num_cores)
    return numbers


def _thread_variants(known: Known) -> Sequence[Settings]:
    cores, now = known.used.num_cores, known.used.threads
    wanted = [n for n in dict.fromkeys((cores, max(1, cores // 2), 1)) if n != now]
    return [
        Settings(threads=n, variables=(("OMP_NUM_THREADS", str(n)), ("MKL_NUM_THREADS", str(n))))
        for n in wanted[:2]
    ]


def _autocast_in_use(known: Known) -> str:
    if known.used.autocast:
        return f"its modules run under autocast to {known.used.autocast}"
    if known.precision not in ("", "float32"):
        return f"its parameters are {known.precision}"
    return ""


def _optimizer_in_use(name: str) -> Callable[[Known], str]:
    def in_use(known: Known) -> str:
        kinds = known.used.optimizers
        return f"its optimizer is {name}" if kinds and set(kinds) == {name} else ""

    return in_use


def _better_in_use(known: Known) -> str:
    kinds = set(known.used.optimizers)
    if kinds == {"fused"}:
        return "its optimizer is fused, which does more"
    return _optimizer_in_use("foreach")(known)


# Code.


def _loader_code(known: Known, settings: Settings) -> tuple[str, ...]:
    arguments = loader_arguments(settings)
    line = in_line(known.used.lines.get("loader", ""), LOADERS, arguments)
    added = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return (line or f"DataLoader(..., {added})",)


def _autocast_code(known: Known, settings: Settings) -> tuple[str, ...]:
    kind = known.used.device
    lines = [f'with torch.autocast("{kind}", dtype=torch.{settings.autocast}):']
    call = known.used.lines.get("call", "")
    lines.append(f"    {call if is_forward(call) else 'output = model(batch)'}  # and the loss")
    if settings.autocast == "float16":
        return (
            f'scaler = torch.amp.GradScaler("{kind}")  # once',
            *lines,
            "scaler.scale(loss).backward()",
            "scaler.unscale_(optimizer)  # before gradients are clipped, if they are",
            "scaler.step(optimizer)",
            "scaler.update()",
        )
    return tuple(lines)


def _compile_code(known: Known, settings: Settings) -> tuple[str, ...]:
    mode = "" if settings.compile == "default" else f'mode="{settings.compile}"'
    modules = known.used.modules
    each = f", and so each of {', '.join(modules)}" if len(modules) > 1 else ""
    return (f"model.compile({mode})  # once, before the loop{each}",)


def _optimizer_code(known: Known, settings: Settings) -> tuple[str, ...]:
    used, line = known.used, ""
    if used.num_optimizer_places == 1:
        arguments = optimizer_arguments(settings)
        line = in_line(used.lines.get("optimizer", ""), used.optimizer_classes, arguments)
    names = " or ".join(f"torch.optim.{name}" for name in used.optimizer_classes)
    return (line or f"{names or 'the optimizer'}(..., {settings.optimizer}=True)",)


def _threads_code(_: Known, settings: Settings) -> tuple[str, ...]:
    return (f"torch.set_num_threads({settings.threads})  # or OMP_NUM_THREADS={settings.threads}",)


def _order_code(_: Known, settings: Settings) -> tuple[str, ...]:
    size, pool = settings.order, POOL_BATCHES * settings.order
    return (
        "lengths = [len(sample[0]) for sample in dataset]  # once: what is padded",
        "order = torch.randperm(len(lengths)).tolist()  # from here on in each epoch",
        f"pools = [sorted(order[i:i + {pool}], key=lengths.__getitem__)",
        f"         for i in range(0, len(order), {pool})]",
        f"batches = [pool[i:i + {size}] for pool in pools for i in range(0, len(pool), {size})]",
        "random.shuffle(batches)",
        "DataLoader(dataset, batch_sampler=batches, collate_fn=...)",
    )


CHANNELS_LAST, PERSISTENT = "channels_last", "persistent"
LAYOUT = ("model = model.to(memory_format=torch.channels_last)  # once",)
LAYOUT_BY_HAND = (
    "for weight in model.parameters():  # once",
    "    if weight.dim() == 4:",
    "        weight.data = weight.data.contiguous(memory_format=torch.channels_last)",
)
EVERY_REMEDY: tuple[Remedy, ...] = (
    Remedy(
        name="workers",
        group="input",
        refused=_no_workers,
        variants=_worker_variants,
        bound=of_workers,
        words=lambda s: f"{s.num_workers} data worker" + "s" * (s.num_workers != 1),
        place="loader",
        code=_loader_code,
    ),
    Remedy(
        name=PERSISTENT,
        group="input",
        excludes="workers",
        in_use=lambda k: "persistent_workers=True" if k.used.persistent_workers else "",
        refused=_not_started_anew,
        variants=_one(Settings(persistent_workers=True)),
        bound=of_start,
        words=lambda _: "persistent workers",
        place="loader",
        code=_loader_code,
    ),
    Remedy(
        name="prefetch",
        group="input",
        refused=lambda k: "" if k.used.num_workers else "without workers nothing is prefetched",
        variants=lambda k: (Settings(prefetch_factor=2 * (k.used.prefetch_factor or 2)),),
        bound=lambda k, _: of_input(k),
        words=lambda s: f"prefetch_factor={s.prefetch_factor}",
        place="loader",
        code=_loader_code,
    ),
    Remedy(
        name="pin",
        group="input",
        in_use=lambda k: "pin_memory=True" if k.used.pin_memory else "",
        refused=_cuda_only,
        variants=_one(Settings(pin_memory=True)),
        words=lambda _: "pin_memory=True",
        place="loader",
        code=_loader_code,
    ),
    Remedy(
        name="cores",
        group="input",
        refused=lambda k: (
            ""
            if k.used.num_cores < k.used.cores_at_start
            else "the script may use all cores that it began with"
        ),
        variants=_one(Settings(widen=True)),
        words=lambda _: "all cores that the process began with",
        code=lambda _, __: ("os.sched_setaffinity(0, range(os.cpu_count()))  # after the imports",),
    ),
    Remedy(
        name="order",
        group="input",
        refused=lambda k: "" if k.used.by_order else k.used.why_no_order,
        variants=lambda k: (Settings(order=k.batch_size),),
        bound=lambda k, _: Bound(
            k.used.by_order or 1.0,
            "that is what the squares of the padded lengths shrink by where like ones meet",
        ),
        words=lambda _: "samples grouped by length",
        place="loader",
        code=_order_code,
    ),
    Remedy(
        name="amp",
        group="precision",
        excludes="autocast",
        in_use=_autocast_in_use,
        refused=lambda _: "",
        variants=_one(Settings(autocast="bfloat16")),
        bound=of_compute,
        words=lambda _: "bf16 autocast",
        place="call",
        code=_autocast_code,
    ),
    Remedy(
        name="fp16",
        group="precision",
        excludes="autocast",
        in_use=_autocast_in_use,
        refused=lambda _: "",
        variants=_one(Settings(autocast="float16")),
        bound=of_compute,
        words=lambda _: "fp16 with a scaler",
        place="call",
        code=_autocast_code,
    ),
    Remedy(
        name="tf32",
        group="precision",
        in_use=lambda k: "matrix products may use TF32" if k.used.tf32 else "",
        refused=_cuda_only,
        variants=_one(Settings(tf32=True)),
        bound=of_compute,
        words=lambda _: "TF32 matrix products",
        code=lambda _, __: ('torch.set_float32_matmul_precision("high")',),
    ),
    Remedy(
        name="benchmark",
        group="precision",
        in_use=lambda k: "torch.backends.cudnn.benchmark is on" if k.used.benchmark else "",
        refused=lambda k: _cuda_only(k) or _without_convolutions(k),
        variants=_one(Settings(benchmark=True)),
        bound=of_compute,
        words=lambda _: "cudnn.benchmark",
        code=lambda _, __: ("torch.backends.cudnn.benchmark = True",),
    ),
    Remedy(
        name=CHANNELS_LAST,
        group="precision",
        excludes="layout",
        in_use=lambda k: "its convolutions are channels_last" if k.used.channels_last else "",
        refused=_without_convolutions,
        variants=_one(Settings(channels_last=True)),
        bound=of_compute,
        words=lambda _: "channels_last",
        place="call",
        code=lambda k, _: (
            *(LAYOUT_BY_HAND if k.used.layout_by_hand else LAYOUT),
            "images = images.to(memory_format=torch.channels_last)",
        ),
    ),
    Remedy(
        name="compile",
        group="host",
        in_use=lambda k: "torch.compile runs already" if k.used.compiled else "",
        refused=lambda k: "" if k.used.modules else "the loop calls no module that trains",
        variants=lambda k: (
            Settings(compile="default"),
            *((Settings(compile="reduce-overhead"),) if k.used.device == "cuda" else ()),
        ),
        bound=of_host,
        words=lambda s: (
            "torch.compile" if s.compile == "default" else f"torch.compile({s.compile})"
        ),
        place="call",
        code=_compile_code,
    ),
    Remedy(
        name="fused",
        group="host",
        excludes="optimizer",
        in_use=_optimizer_in_use("fused"),
        refused=lambda k: "" if k.used.can_fuse else "its optimizer has no fused implementation",
        variants=_one(Settings(optimizer="fused")),
        bound=of_optimizer,
        words=lambda _: "fused optimizer",
        place="optimizer",
        code=_optimizer_code,
    ),
    Remedy(
        name="foreach",
        group="host",
        excludes="optimizer",
        in_use=_better_in_use,
        refused=lambda k: "" if k.used.can_foreach else "its optimizer has no foreach one",
        variants=_one(Settings(optimizer="foreach")),
        bound=of_optimizer,
        words=lambda _: "foreach optimizer",
        place="optimizer",
        code=_optimizer_code,
    ),
    Remedy(
        name="threads",
        group="host",
        refused=lambda k: (
            ""
            if k.on_cpu and _thread_variants(k)
            else "one core has one thread"
            if k.on_cpu
            else "a GPU trains"
        ),
        variants=_thread_variants,
        bound=of_host,
        words=lambda s: f"{s.threads} thread" + "s" * (s.threads != 1),
        code=_threads_code,
    ),
    Remedy(
        name="allocator",
        group="memory",
        in_use=lambda k: (
            "its allocator is set by variables" if k.allocator.endswith("variables") else ""
        ),
        refused=_without_faults,
        variants=_one(Settings(variables=tuple(KEEPS_MEMORY.items()))),
        # What is counted of the faults is a lower bound: nothing bounds it.
        words=lambda _: "memory kept in the process",
        code=lambda _, __: KEEPING,
    ),
    Remedy(
        name="checkpoint",
        group="memory",
        in_use=lambda k: "activation checkpointing is on" if k.used.checkpoints else "",
        refused=lambda k: (
            ("" if k.memory_limits else "memory does not limit this script, and it costs time")
            if k.used.blocks
            else "its model has no repeated blocks"
        ),
        variants=_one(Settings(checkpoint=True)),
        bound=lambda _, __: Bound(inf, "it saves memory, and costs time"),
        words=lambda _: "checkpointed blocks",
        place="call",
        code=lambda k, _: (
            f"# in the forward pass, for each of the {k.used.blocks}",
            "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        ),
    ),
    Remedy(
        name="accumulation",
        group="memory",
        refused=lambda k: k.accumulates or "no size that was asked for was refused for its memory",
        variants=lambda _: (),
        words=lambda _: "accumulated gradients",
        code=lambda _, __: (),
    ),
    Remedy(
        name="segments",
        group="memory",
        in_use=lambda k: "expandable segments are on" if k.used.expandable else "",
        refused=lambda k: (
            _cuda_only(k) or ("" if k.memory_limits else "memory does not limit this script")
        ),
        variants=_one(
            Settings(variables=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),))
        ),
        bound=lambda _, __: Bound(inf, "it saves memory"),
        words=lambda _: "expandable segments",
        code=lambda _, __: ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
    ),
)
"""All of them. `--try` takes their names."""

PLAUSIBLE: dict[Limit, tuple[str, ...]] = {
    "input": ("workers", PERSISTENT, "prefetch"),
    "host": ("compile", "fused", "foreach"),
    "synchronisation": ("compile", "pin"),
    "copies": ("pin",),
    "small kernels": ("compile", "fused", "foreach"),
    "memory": ("amp", "checkpoint", "segments"),
    "saturated": ("amp", "compile", CHANNELS_LAST),
}
"""Remedies that a verdict makes plausible; of these the answer names the command."""

REMEDY_NAMES: tuple[str, ...] = tuple(remedy.name for remedy in EVERY_REMEDY)
ALL = "all"


def candidates(known: Known, names: Sequence[str]) -> list[Candidate]:
    """What may be tried of these remedies, the most promising first.

    By the bound; where nothing bounds them, those that fit the limit of the step come first.
    """
    order = GROUPS_FIRST.get(known.limit, USUAL_ORDER)
    wanted = [remedy for remedy in EVERY_REMEDY if ALL in names or remedy.name in names]
    found = [
        Candidate(remedy, settings, remedy.bound(known, settings))
        for remedy in wanted
        if not remedy.in_use(known) and not remedy.refused(known)
        for settings in remedy.variants(known)
    ]
    return sorted(found, key=lambda each: (-each.bound.factor, order.index(each.remedy.group)))


def together(gained: Sequence[tuple[Candidate, float]]) -> tuple[Candidate, ...]:
    """The two that gained most and do not exclude each other; fewer where there are not two.

    Workers that persist gain at the start of an epoch, which no window of a comparison shows.

    Args:
        gained: those that surely gained, with their factor.
    """
    shown = [each for each in gained if each[0].remedy.name != PERSISTENT]
    best = sorted(shown, key=lambda each: -each[1])
    for place, (first, _) in enumerate(best):
        for second, _ in best[place + 1 :]:
            if first.remedy.kind != second.remedy.kind:
                return first, second
        break
    return tuple(candidate for candidate, _ in best[:1])


def plausible(limit: Limit, *, convolves: bool) -> str:
    """What `--try` takes after a verdict; empty where no remedy can be tried.

    Args:
        convolves: whether convolutions were seen in a step.
    """
    names = PLAUSIBLE.get(limit, ())
    return ",".join(name for name in names if convolves or name != CHANNELS_LAST)
