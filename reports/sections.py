"""The sections of the terminal report that explain the answer. Each appends to a page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..records import (
    Advice,
    Choice,
    FileTouched,
    Finding,
    LearningRate,
    LossCheck,
    RunRecord,
    Tail,
    TailCheck,
    Training,
)
from ..units import format_bytes, format_count, format_runs, format_seconds
from .larger import larger_text
from .layout import Page
from .wording import (
    NOT_ACCURACY,
    ONLY_MEMORY,
    bytes_per_sample,
    evidence_text,
    measured_seconds,
    number,
    pad_digits,
    plural,
    share_of,
)

MAX_FILES = 10
LISTED = "By the script's databases or child processes, or by another program."
SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
STEP = "optimizer step"
FIXED_SHARE = 0.02
"""A fixed cost per step below this share of the step is not worth a line."""


def add_training(page: Page, advice: Advice) -> None:
    """What the recommended size does to the training."""
    training = advice.training
    if training is None:
        if advice.recommended is not None:
            page.heading("What it does to the training")
            page.entry(f"not known: {_why(advice, 'training')}")
        return
    page.heading("What it does to the training")
    page.pairs(training_rows(advice, training))
    page.entry(not_compared(advice))


def not_compared(advice: Advice) -> str:
    """What was measured, and that no accuracy was."""
    choices = (advice.recommended, advice.fastest, advice.native, *advice.sizes)
    timed = any(one is not None and one.step_s is not None for one in choices)
    return NOT_ACCURACY if timed else ONLY_MEMORY


def training_rows(advice: Advice, training: Training) -> list[tuple[str, str]]:
    """Label and text of what changes."""
    rows = [
        ("effective batch", _effective(training)),
        ("steps per epoch", _steps(training)),
        ("epoch time", _epoch(advice)),
        ("accumulation", _accumulation(training)),
        *(("learning rate", one) for one in _learning_rates(training)),
    ]
    return [(label, value) for label, value in rows if value]


def _effective(training: Training) -> str:
    before, after = training.effective_before, training.effective_after
    each = training.steps_per_batch
    # Each of several steps may see a part of the samples: what it sees nobody can tell.
    per, rest = ("batch", f"; {each} optimizer steps on each") if each > 1 else (STEP, "")
    if before == after:
        return f"{before} samples per {per}, unchanged{rest}"
    return f"{before} → {after} samples per {per}{rest}"


def _steps(training: Training) -> str:
    before, after = training.steps_before, training.steps_after
    if before is None or after is None:
        return "not known: nothing says how long an epoch is"
    told = format_count(before)
    return f"{told}, unchanged" if before == after else f"{told} → {format_count(after)}"


def _epoch(advice: Advice) -> str:
    before, after = _epoch_of(advice.native), _epoch_of(advice.recommended)
    if after is None:
        return f"not known: {_why(advice, 'epoch_s', 'no epoch length or no timed step')}"
    same = advice.native is not None and advice.native == advice.recommended
    if same:
        return f"{after}, training steps only"
    if before is None:
        return f"{after}, training steps only; the script's own size was not timed"
    return f"{before} → {after}, training steps only"


def _epoch_of(choice: Choice | None) -> str | None:
    return measured_seconds(choice.epoch_s) if choice is not None and choice.epoch_s else None


def _accumulation(training: Training) -> str:
    micro, keep = training.micro_batches, training.keep_accumulation
    now = "" if micro == 1 else f"{micro} micro-batches per optimizer step"
    if training.effective_before == training.effective_after:
        return now
    batch = training.effective_after // micro
    if batch > training.effective_before:
        kept = (
            f"one batch of {batch} exceeds the old effective batch of {training.effective_before}"
        )
    elif keep is not None:
        wanted = plural(keep, "micro-batch", "micro-batches")
        kept = f"{wanted} would keep the effective batch of {training.effective_before}"
    else:
        kept = (
            f"no number of micro-batches keeps the effective batch of {training.effective_before}"
        )
    return f"{now}; {kept}" if now else kept


def _learning_rates(training: Training) -> list[str]:
    rates = training.learning_rates
    if not rates:
        return ["not known: no optimizer was seen"]
    if len(rates) == 1:
        return [_learning_rate(rates[0])]
    return [f"{one.optimizer}: {_learning_rate(one)}" for one in rates]


def _learning_rate(rate: LearningRate) -> str:
    before, after = rate.before, rate.suggested
    source = f" ({rate.rule_source})" if rate.rule_source else ""
    if before is None:
        return f"not known; {rate.rule}{source}"
    if after is None or after == before:
        return f"{number(before)}; {rate.rule}{source}"
    return f"{number(before)} → {after:.2g} as a suggestion: {rate.rule}{source}"


def add_verdict(page: Page, advice: Advice) -> None:
    """What limits the step at the recommended size."""
    if advice.recommended is None:
        return
    verdict = advice.verdict
    page.heading("What limits the step")
    page.entry(verdict.message, label=f"{verdict.limit}: ", label_style="bold")
    if evidence_text(verdict.evidence, verdict.message):
        page.entry(evidence_text(verdict.evidence, verdict.message), style="dim", indent=4)
    if verdict.larger_batch != "unknown" or verdict.gain_at_most is not None:
        page.entry(larger_text(verdict), indent=4)
    if verdict.remedy:
        page.entry(verdict.remedy, label="→ ", indent=4)


def add_tail(page: Page, advice: Advice) -> None:
    """What the last batch of the epoch will be, and what a step of that length did."""
    if advice.recommended is None:
        return
    page.heading("Last batch of the epoch")
    for text, bad in tail_texts(advice):
        page.entry(text, style="red" if bad else "")


def tail_texts(advice: Advice) -> list[tuple[str, bool]]:
    """Sentences about the last batch, and whether each is bad news.

    What a harmful one does is told by its finding and not here again; of a harmless one only what
    was seen is told.
    """
    tail, check = advice.tail, advice.tail_check
    if check is not None and any(one.rule == "tail.crash" for one in advice.findings):
        check = msgspec.structs.replace(check, detail="see Findings")  # there it stands in full
    failed = check is not None and (
        check.outcome != "ok" or bool(check.num_non_finite) or bool(check.num_non_finite_norms)
    )
    if tail is None:
        texts = [(f"not known: {_why(advice, 'tail')}", False)]
        if check is not None:
            texts.append((_check(check, check.num_samples), failed))
        return texts
    texts = [(_layout(tail), False)]
    if tail.last_batch and (check is not None or tail.harmful):
        texts.append((_check(check, tail.last_batch), failed))
    if advice.loss_check is not None:
        texts.append((_loss(advice.loss_check), False))
    told = any(one.rule.startswith("tails.") for one in advice.findings)
    if (failed or tail.harmful) and not told:
        texts += [(text, False) for text in _near_by(tail)]
    return texts


def _loss(check: LossCheck) -> str:
    """How the loss reduces a batch, and how that was seen."""
    if check.reduction is None:
        return f"Whether the loss is a mean or a sum is not known, a mean is taken: {check.reason}."
    if check.reduction == "contrastive":
        return (
            f"The loss compares the samples of a batch (measured: {share_of(check.apart or 0, 1)}% "
            f"of the gradient of {check.num_samples} samples is not made by those of its halves)."
        )
    what = {
        "mean": "The loss is a mean over the batch",
        "sum": "The loss is a sum over the batch, so that a short one weighs no sample more",
    }[check.reduction]
    return (
        f"{what} (measured: the gradient of {check.num_samples} samples is {check.ratio:.2f} times "
        "a mean of those of its halves)."
    )


def _near_by(tail: Tail) -> list[str]:
    """Clean sizes with the throughput that the law of step times predicts for them.

    Where there is none, that; nothing where none was looked for.
    """
    if not tail.nearest_clean:
        return [f"{tail.why_none_clean.capitalize()}."] if tail.why_none_clean else []
    sizes = []
    for one in tail.clean_sizes:
        rate = one.predicted_samples_per_s
        shown = "" if rate is None else f" ({pad_digits(rate, 0.01)}/s)"
        sizes.append(f"{one.batch_size}{shown}")
    listed = ", ".join(sizes or map(str, tail.nearest_clean))
    if any(one.predicted_samples_per_s is not None for one in tail.clean_sizes):
        by_law = "with the samples per second that the law of step times predicts (not measured)"
        return [f"Nearby, without a harmful tail, {by_law}: {listed}."]
    return [f"Nearby, without a harmful tail, by arithmetic only: {listed}."]


def _steps_of(tail: Tail) -> str:
    if not tail.steps_known:
        return plural(tail.steps_per_epoch, "batch", "batches")
    return plural(tail.steps_per_epoch, STEP)


def _ranks(tail: Tail) -> str:
    """The end of an epoch of several ranks or replicas."""
    text = (
        f"{plural(tail.num_samples, 'sample')} on {tail.num_ranks} ranks in batches of "
        f"{format_count(tail.batch_size)}: {_steps_of(tail)} per epoch, "
    )
    if len(set(tail.batches)) > 1:
        text += f"by rank {format_runs(tail.batches)} batches; "
    if not tail.steps_per_epoch or tail.last == tail.full:
        text += "no short batch"
    else:
        whole = format_count(sum(tail.last))
        text += f"the last step has {whole} samples ({format_runs(tail.last)} by rank)"
    for count, what in ((tail.duplicates, "drawn again"), (tail.dropped, "dropped")):
        if count:
            text += f"; {plural(count, 'sample')} {what} per epoch"
    return f"{text}."


def _layout(tail: Tail) -> str:
    if tail.num_ranks > 1:
        return _ranks(tail)
    start = (
        f"{plural(tail.num_samples, 'sample')} in batches of {format_count(tail.batch_size)}: "
        f"{_steps_of(tail)} per epoch, "
    )
    if tail.drop_last:
        if not tail.dropped:
            return f"{start}no short batch."
        share = share_of(tail.dropped, tail.num_samples)
        always = "without shuffling always the same ones"
        return f"{start}{plural(tail.dropped, 'sample')} dropped per epoch ({share}%; {always})."
    if not tail.last_batch:
        return f"{start}no short batch."
    return (
        f"{start}the last batch holds {format_count(tail.last_batch)} "
        f"({share_of(tail.last_batch, tail.batch_size)}% of a full one)."
    )


def _check(check: TailCheck | None, num_samples: int) -> str:
    samples = plural(num_samples, "sample")
    if check is None:
        return f"A step of {samples} was not executed here."
    if check.outcome == "ok" and check.num_non_finite is None:
        return f"A step of {samples} was executed: it ran; the parameters were not looked at."
    if check.outcome == "ok" and not check.num_non_finite:
        said = f"it ran, all parameters stayed finite{_norms(check)}"
        return f"A step of {samples} was executed: {said}."
    if check.outcome == "ok":
        tensors = plural(check.num_non_finite or 0, "parameter tensor")
        return f"A step of {samples} was executed: {tensors} not finite afterwards{_norms(check)}."
    detail = f": {check.detail}" if check.detail else ""
    return f"A step of {samples} was executed and failed, {spoken(check.outcome)}{detail}"


def _norms(check: TailCheck) -> str:
    """What became of BatchNorm's running statistics."""
    if check.num_non_finite_norms:
        return f"; the running statistics of {plural(check.num_non_finite_norms, 'layer')} were not"
    before, after = check.running_var_before, check.running_var_after
    if before is None or after is None:
        return ""
    steps = "it" if check.num_steps == 1 else plural(check.num_steps or 0, "such step")
    return f"; {steps} moved a running variance from {before:.4g} to {after:.4g}"


def spoken(word: str) -> str:
    """An outcome in words."""
    return word.replace("_", " ")


def add_findings(page: Page, record: RunRecord, advice: Advice) -> None:
    """What else the user should know, worst first, and failures outside the trials."""
    findings = worst_first(advice)
    if findings:
        page.heading("Findings")
    for one in findings:
        said = evidence_text(one.evidence, one.message)
        guess = " (estimate)" if one.confidence == "estimate" else ""
        style = SEVERITY_STYLES[one.severity]
        page.entry(f"{one.message}{guess}", label=one.severity.ljust(9), label_style=style)
        inner = 4 if page.narrow else 11
        if said:
            page.entry(said, style="dim", indent=inner)
        if one.remedy:
            page.entry(one.remedy, label="→ ", indent=inner)
    if record.faults:
        page.heading("Failures outside the trials")
    for fault in record.faults:
        log = f" (log: {fault.log})" if fault.log else ""
        page.entry(f"{fault.detail}{log}", label=f"{spoken(fault.outcome)}: ", label_style="red")


def worst_first(advice: Advice) -> list[Finding]:
    """The findings, errors before warnings before the rest."""
    rank = {name: position for position, name in enumerate(SEVERITY_STYLES)}
    return sorted(advice.findings, key=lambda one: rank[one.severity])


def add_estimates(page: Page, advice: Advice) -> None:
    """What the fitted laws say; none of it ran."""
    rows = estimate_rows(advice)
    if rows:
        page.heading("Estimates")
        page.pairs(rows)


def estimate_rows(advice: Advice) -> list[tuple[str, str]]:
    """Label and text of each law."""
    rows = [("largest that fits", _memory_law(advice)), ("step time", _time_law(advice))]
    return [(label, text) for label, text in rows if text]


def _memory_law(advice: Advice) -> str:
    law = advice.memory_law
    if law is not None:
        return (
            f"about {law.largest_estimate} (estimate, did not run); peak memory = "
            f"{format_bytes(law.fixed_bytes)} + {bytes_per_sample(law.slope_bytes)} x batch, "
            f"{_fit(law.sizes, law.residual)}"
        )
    reason = advice.unavailable.get("memory_law")
    return f"no estimate: {reason}" if reason and advice.recommended is not None else ""


def _time_law(advice: Advice) -> str:
    """The law of step time, where the batch leaves a part of the step alone."""
    law, choice = advice.time_law, advice.recommended
    if law is None or choice is None:
        return ""
    share = law.fixed_share(choice.batch_size)
    if share < FIXED_SHARE:
        return ""
    return (
        f"{format_seconds(law.fixed_s)} + {format_seconds(law.slope_s)} x batch, "
        f"{_fit(law.sizes, law.residual)}; {share:.0%} of the step at {choice.batch_size} "
        "does not depend on the batch"
    )


def _fit(sizes: tuple[int, ...], residual: float) -> str:
    return f"fitted to {plural(len(sizes), 'size')}, off by {residual:.1%} at most"


def add_touched(page: Page, files: Sequence[FileTouched]) -> None:
    """Files that the script itself touched while it was probed, and what else changed meanwhile."""
    told = [one for one in files if not one.listed]
    touched = [one for one in told if one.action != "save (not written)"]
    saves = [one for one in told if one.action == "save (not written)"]
    if told:
        page.heading("What the script itself did to files")
    _add_files(page, touched)
    if saves:
        names = ", ".join(one.path for one in saves[:3])
        more = f" and {len(saves) - 3} more" if len(saves) > 3 else ""
        page.entry(f"Saves not written: {names}{more}.")
    listed = [one for one in files if one.listed]
    if listed:
        page.heading("What else changed in the working folder")
        _add_files(page, listed)
        page.entry(LISTED)


def _add_files(page: Page, files: Sequence[FileTouched]) -> None:
    width = max((len(one.action) for one in files), default=0) + 2
    for one in files[:MAX_FILES]:
        page.whole(one.path, label=one.action.ljust(width), label_style="dim")
    if len(files) > MAX_FILES:
        page.entry(f"and {len(files) - MAX_FILES} more, see the record")


def add_ending(
    page: Page, files: Sequence[tuple[str, str]], next_command: str, others: Sequence[str] = ()
) -> None:
    """The files that were written, what to type next, and what else could be."""
    page.blank()
    width = max((len(label) for label, _ in files), default=0)
    for label, path in files:
        page.whole(path, label=f"Wrote {label.ljust(width)}  ", label_style="dim", indent=0)
    if next_command:
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    for one in others:
        page.whole(one, label="  or  ", label_style="bold", indent=0)


def _why(advice: Advice, field: str, otherwise: str = "the record does not say why") -> str:
    return advice.unavailable.get(field, otherwise)
