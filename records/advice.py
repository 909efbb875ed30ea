"""The conclusions from a run: the choice, its evidence, the tail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from .base import SCHEMA_VERSION, Record, Spread
from .checks import TailCheck
from .distribution import Scaling
from .goal import Goal
from .laws import MemoryLaw, PriorLaw, TimeLaw
from .length_risk import MemoryRisk
from .orders import OrderEstimates
from .script import SizeAxis

Helps = Literal["helps", "does not help", "unknown"]
Limit = Literal[
    "input",  # waiting for the DataLoader
    "host",  # Python, operator dispatch, launches
    "synchronisation",  # the host waits for the device, and the device then for the host
    "communication",  # collectives that no computation covers
    "copies",  # copies that no kernel covers
    "small kernels",  # kernels run all the time, but do not fill the device
    "memory",  # a larger batch would pay and does not fit
    "saturated",  # the device computes all the time
    "cannot tell",
]

Standing = Literal[
    "own",  # it is the script's own size
    "better",  # compared with the own size, and better beyond the noise
    "as good",  # compared, surely no slower than the goal allows, and smaller or cleaner
    "no gain",  # compared, as good and not much smaller, or surely no faster to speak of
    "worse",  # compared, and slower than the goal allows
    "too noisy",  # compared, and the noise does not tell
    "not compared",  # the own size was not timed, or none at all before time was over
    "asked for",  # the best of the sizes that were asked for, the own not among them
    "own unknown",  # nobody knows the size that the script has as it is written
    "own cannot run",  # the own size failed, or takes more memory than it may
]
"""How a size compares with the script's own."""


class Evidence(Record, frozen=True, kw_only=True):
    """One number behind a finding.

    Attributes:
        metric: what it is; its name tells the unit of value and threshold: a `share` is 0..1 (and
            shown in percent), a name with `(%)` at its end is percent, with `_bytes` bytes.
    """

    metric: str
    value: float | str
    threshold: float | str | None = None


class Finding(Record, frozen=True, kw_only=True):
    """Something the user should know, with its evidence and what to do about it.

    Attributes:
        code: lines to paste, where the remedy has some.
    """

    rule: str
    severity: Literal["error", "warning", "info"]
    message: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    code: tuple[str, ...] = ()
    confidence: Literal["measured", "estimate"] = "measured"


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, errors before warnings before the rest; otherwise in their order."""
    severities = ("error", "warning", "info")
    return tuple(sorted(findings, key=lambda finding: severities.index(finding.severity)))


class FlopRate(Record, frozen=True, kw_only=True):
    """Floating point operations of the model at one size.

    Attributes:
        per_step: of the model, without what checkpointing makes again.
        scaled: whether `per_step` is an estimate for the mean batch, by the counted batch's own
            length: batches differ.
        recomputed: over `per_step`, what is computed once more.
        dtype: that most of them multiply.
        tflops_per_s: achieved.
        peak_tflops_per_s: dense peak of the device for these types, `None` where it is not known.
        mfu_pct: the share of the peak, in percent.
    """

    per_step: float
    scaled: bool = False
    recomputed: float = 0.0
    dtype: str
    tflops_per_s: Spread
    peak_tflops_per_s: float | None = None
    peak_source: str = ""
    mfu_pct: float | None = None
    unavailable: dict[str, str] = {}


class Choice(Record, frozen=True, kw_only=True):
    """A size that ran, with what was measured at it.

    Attributes:
        real_tokens_per_s: at this rate of samples, each with the mean number of tokens.
        epoch_padding: share of an epoch's positions that hold padding, 0..1: an estimate from all
            batches, or all lengths, that were counted at any size.
        flops: what a step of it computes, and how fast.
    """

    batch_size: int
    trial: int
    samples_per_s: Spread | None
    step_s: Spread | None
    peak_bytes: int | None
    epoch_s: Spread | None = None
    samples_per_joule: float | None = None
    real_tokens_per_s: Spread | None = None
    epoch_padding: float | None = None
    flops: FlopRate | None = None
    unavailable: dict[str, str] = {}


class CleanSize(Record, frozen=True, kw_only=True):
    """A batch size near the asked one whose epochs end without a harmful short batch.

    Attributes:
        last_samples: samples of its last micro-step if that is short, else 0.
        weight: of a sample in that step against the others.
        predicted_samples_per_s: by the law of step times, where one was fitted.
    """

    batch_size: int
    last_samples: int
    weight: float
    predicted_samples_per_s: float | None = None


class Tail(Record, frozen=True, kw_only=True):
    """The end of an epoch, by arithmetic.

    Attributes:
        num_samples: of the data set, over all ranks where there are several.
        last_batch: samples of the short last batch, 0 without one; of the first rank where ranks
            have a loader each.
        full, last: samples of each rank or replica in a full and in the last micro-step, where
            there are several.
        batches: micro-steps per epoch of each rank, where there are several.
        duplicates: samples that are drawn more than once.
        left_out_by: how the training loop leaves a short batch out, in words; empty where it does
            not.
        steps_known: whether `steps_per_epoch` are optimizer steps; else they are batches.
        harmful: whether a case that harms fires; a finding then tells which.
        nearest_clean: sizes near by without a harmful tail.
        clean_sizes: the same with what the law of step times predicts.
        why_none_clean: where a clean size was looked for and there is none near by.
    """

    num_samples: int
    batch_size: int
    drop_last: bool
    steps_per_epoch: int
    last_batch: int
    dropped: int
    weight: float
    nearest_clean: tuple[int, ...] = ()
    clean_sizes: tuple[CleanSize, ...] = ()
    why_none_clean: str = ""
    num_ranks: int = 1
    full: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    duplicates: int = 0
    left_out_by: str = ""
    steps_known: bool = True
    harmful: bool = False


class LearningRate(Record, frozen=True, kw_only=True):
    """The change of one optimizer's learning rate.

    Attributes:
        optimizer: its class.
        before: as the script sets it first; `None` where nobody knows it.
        suggested: for the new effective batch; `None` where no rule is known.
        rule, rule_source: the rule of the suggestion, and where it comes from.
    """

    optimizer: str
    before: float | None
    suggested: float | None
    rule: str
    rule_source: str


class Training(Record, frozen=True, kw_only=True):
    """How the training changes with the recommended size.

    Attributes:
        effective_before, effective_after: samples per optimizer step, or what else the sizes count.
        steps_before, steps_after: optimizer steps per epoch.
        micro_batches: accumulation that the recommendation uses.
        keep_accumulation: accumulation that would keep the old effective batch, if any does.
        steps_per_batch: optimizer steps on each batch, one after the other; above 1 each may see
            a part of its samples or of their length, and the effective batch is that of the fetch.
        axis: what the sizes count.
        steps_at_most: the steps per epoch are a bound, as the sampler's length is.
        learning_rates: of the optimizers that step, each kind and rate once.
    """

    effective_before: int
    effective_after: int
    steps_before: int | None
    steps_after: int | None
    micro_batches: int
    keep_accumulation: int | None
    learning_rates: tuple[LearningRate, ...]
    steps_per_batch: int = 1
    axis: SizeAxis = "samples"
    steps_at_most: bool = False


class Verdict(Record, frozen=True, kw_only=True):
    """What limits the step at one size.

    Attributes:
        larger_batch: whether a larger batch makes the step more efficient.
        gain_at_most: the factor on samples per second that a larger batch can reach at most.
        contributions: shares of the step that are no computation, 0..1, the largest first.
        confidence: `measured` from times or a trace, `estimate` where it follows from a model.
    """

    limit: Limit
    message: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    larger_batch: Helps = "unknown"
    gain_at_most: float | None = None
    contributions: tuple[Evidence, ...] = ()
    confidence: Literal["measured", "estimate"] = "measured"


class Advice(Record, frozen=True, kw_only=True):
    """The answer. `recommended` is `None` when nothing that ran can be recommended.

    Attributes:
        recommended, fastest, largest, native: chosen among the sizes that ran.
        fastest_is_open: the fresh process put the recommended size, or its rival, before `fastest`,
            which is that of the search, or noise hides whether that beats the script's own: no size
            is shown as the fastest.
        standing: what is known of the size that the goal chose beside the script's own. Where that
            says no more than noise, `recommended` is the script's own.
        considered: the size that the goal chose, where the script's own stays. `None` also
            where it is too noisy to tell whether any size is better than the own.
        against_own: throughput of the chosen size over that of the script's own.
        sizes: every size that ran, smallest first, with the times that the advice rests on: of
            the comparison in rounds where there was one, else of the trial that speaks for it.
        by_tokens: whether sizes were compared by real tokens per second; the rates are then those
            of samples with the mean number of tokens.
        orders: what other orders of the same samples would reach at the recommended size.
        loss_question: the command that plans the end of the epoch under another loss than a mean,
            where the answer hangs on it; nobody measured the loss.
        memory_risk: of one epoch, where samples differ in length and that was measured.
        axis, size_name: what all sizes count, and what the script calls them.
    """

    schema_version: str = SCHEMA_VERSION
    goal: Goal
    headline: str
    reason: str
    sureness: Literal["confirmed", "not confirmed", "measured once", "partial", "none"]
    recommended: Choice | None
    fastest: Choice | None
    largest: Choice | None
    native: Choice | None
    fastest_is_open: bool = False
    standing: Standing = "own"
    considered: int | None = None
    against_own: Spread | None = None
    sizes: tuple[Choice, ...] = ()
    change: str
    change_check: str = ""
    verdict: Verdict
    training: Training | None
    tail: Tail | None
    tail_check: TailCheck | None
    memory_law: MemoryLaw | None
    time_law: TimeLaw | None
    prior_law: PriorLaw | None = None
    findings: tuple[Finding, ...] = ()
    scaling: Scaling | None = None
    loss_question: str = ""
    orders: OrderEstimates | None = None
    by_tokens: bool = False
    memory_risk: MemoryRisk | None = None
    axis: SizeAxis = "samples"
    size_name: str = "batch_size"
    unavailable: dict[str, str] = {}
