"""A training watched by a callback, in words."""

from __future__ import annotations

from ...records import Advice, Finding, Observed, Profile, RunRecord, Trial
from ...units import format_bytes, format_seconds
from ..blocks import Document, Facts
from ..report import Fact
from ..report import Finding as Problem
from ..words.wording import beside_value, clean, measured, measured_seconds, percent, plural
from .sections.held_memory import held_sentence

SHOWN_SEVERITIES = ("error", "warning")
CALLBACK = "callback."


def build_watched(record: RunRecord, advice: Advice) -> Document:
    """The page of a watched training; while it runs, how far it is and what was seen."""
    running = record.state == "running"
    seen = tuple(
        Fact(label=label, text=_whole(text)) for label, text in rows(record, advice) if text
    )
    worth = () if running else tuple(map(_finding, problems(advice)))
    return Document(
        title="a watched training",
        headline=f"Running for {format_seconds(record.elapsed_s)}" if running else advice.headline,
        blocks=(Facts(facts=seen), *worth),
    )


def _finding(finding: Finding) -> Problem:
    return Problem(
        severity=finding.severity,
        message=_whole(finding.message),
        remedy=_whole(finding.remedy),
        code=tuple(map(_whole, finding.code)),
    )


def _whole(text: str) -> str:
    """The text in one line, however long."""
    return clean(text, limit=len(text) + 4)


def rows(record: RunRecord, advice: Advice) -> list[tuple[str, str]]:
    """Label and text, in order; an empty text is left out."""
    observed = record.observed
    chosen = advice.recommended
    trial = record.trials[chosen.trial] if chosen is not None else record.usual_trial
    said = {
        finding.rule: finding for finding in advice.findings if finding.rule.startswith(CALLBACK)
    }
    doubts = [*record.doubts, *(trial.doubts if trial else ())]
    warned = {problem.message for problem in problems(advice)}
    return [
        ("seen", _seen(observed) if observed is not None else ""),
        ("sizes", _sizes(record)),
        ("ended", record.stop_reason if record.state != "finished" else ""),
        ("step", _step(record, trial)),
        ("tokens", _tokens(trial)),
        ("utilisation", _utilisation(trial)),
        ("limit", _limit(advice)),
        ("memory", _memory(record, trial, said.get("callback.headroom"))),
        ("kept", _kept(record)),
        ("last batch", _tail(advice)),
        ("to try", _labelled(said.get("callback.try"))),
        ("noise scale", _noise(observed, said.get("callback.noise_scale"))),
        ("doubts", "; ".join(doubt for doubt in doubts if doubt not in warned)),
    ]


def problems(advice: Advice) -> list[Finding]:
    """Errors and warnings, worst first."""
    return [finding for finding in advice.findings if finding.severity in SHOWN_SEVERITIES]


def _seen(observed: Observed) -> str:
    text = plural(observed.num_steps, "optimizer step")
    if observed.num_skipped_steps:
        text += f" ({observed.num_skipped_steps} more were skipped by the gradient scaler)"
    if observed.num_micro_batches != observed.num_steps:
        text += f", {plural(observed.num_micro_batches, 'micro-batch', 'micro-batches')}"
    if observed.num_samples is not None:
        text += f", {plural(observed.num_samples, 'sample')}"
    if observed.num_tokens is not None:
        text += f", {plural(observed.num_tokens, 'token')}"
    if observed.world_size > 1:
        text += f" on rank {observed.rank} of {observed.world_size}; all numbers are this rank's"
    version = f" {observed.framework_version}" if observed.framework_version else ""
    whose = "" if observed.framework == "plain" else f" ({observed.framework}{version})"
    return f"{text}{whose}"


def _sizes(record: RunRecord) -> str:
    """Each size of a schedule: how often it came, how fast it was, what its epochs' ends did."""
    if record.observed is None or len({trial.batch_size for trial in record.trials}) < 2:
        return ""
    counts = {size.batch_size: size.num_micro_batches for size in record.observed.sizes}
    refused = {trial.batch_size for trial in record.trials if trial.outcome == "out_of_memory"}
    ran = {trial.batch_size: trial for trial in reversed(record.trials) if trial.ran}
    texts = []
    for size in sorted(ran.keys() | refused):
        parts = _of_size(ran.get(size), counts.get(size, 0))
        if size in refused:
            parts.append("memory was refused")
        texts.append(f"{size}: {', '.join(parts)}")
    return "; ".join(texts)


def _of_size(trial: Trial | None, count: int) -> list[str]:
    parts = [plural(count, "micro-batch", "micro-batches")] if count else []
    if trial is None:
        return parts
    if trial.samples_per_s is not None:
        parts.append(f"{beside_value(*measured(trial.samples_per_s))} samples/s")
    if trial.tail is not None:
        how = "ran" if trial.tail.outcome == "ok" else "failed"
        parts.append(f"a last batch of {trial.tail.num_samples} {how}")
    return parts


def _step(record: RunRecord, trial: Trial | None) -> str:
    if trial is None or trial.step_s is None:
        reasons = (
            timed.unavailable.get("step_s", "") for timed in (trial, *record.trials) if timed
        )
        return f"not timed: {next(filter(None, reasons), 'too few steps of one size')}"
    text = f"{measured_seconds(trial.step_s)} by {_clock(record.observed, trial.batch_size)}"
    if trial.input_wait_s is not None and trial.step_s.median > 0:
        share = 100 * trial.input_wait_s.median / trial.step_s.median
        text += f", {percent(min(share, 100.0))}% of it waiting for data"
    return text


def _clock(observed: Observed | None, batch_size: int) -> str:
    """Whose clock timed the steps, and over how many at once."""
    for stretch in observed.stretches if observed is not None else ():
        if stretch.batch_size == batch_size:
            many = plural(stretch.num_stretches, "stretch", "stretches")
            return f"{stretch.clock}, in {many} of {plural(stretch.num_steps, 'step')}"
    return "the host's clock"


def _tokens(trial: Trial | None) -> str:
    """Words the contents of the counted batches, and the part that is no padding."""
    tokens = trial.tokens if trial is not None else None
    if trial is None or tokens is None:
        return ""
    rate, unit = tokens.per_s, tokens.unit
    kind = f"real {unit}" if tokens.real_per_s is not None else unit
    parts = [] if rate is None else [f"{beside_value(*measured(rate))} {kind}/s"]
    if tokens.padding_share is not None:
        parts.append(f"{percent(100 * tokens.padding_share)}% padding ({tokens.evidence})")
    else:
        why = tokens.unavailable.get("padding_share", "nothing tells it")
        parts.append(f"padding not known: {why}")
    lengths = tokens.lengths
    if lengths is not None:
        parts.append(
            f"sequences of {lengths.shortest} to {lengths.longest}, half of them above "
            f"{lengths.median:.4g}"
        )
    counted = plural(tokens.num_batches, "batch", "batches")
    return f"{', '.join(parts)}; counted in {counted} of {trial.batch_size}"


def _utilisation(trial: Trial | None) -> str:
    parts: list[str] = []
    counters = trial.counters if trial is not None else None
    if counters is not None and counters.utilization_pct is not None:
        parts.append(f"NVML {percent(counters.utilization_pct)}%")
    profile = trial.profile if trial is not None else None
    if profile is not None:
        parts += _of_profile(profile)
    if not parts:
        why = ""
        if profile is not None:
            why = profile.unavailable.get("*", profile.unavailable.get("trace", ""))
        elif trial is not None:
            why = trial.unavailable.get("profile", "")
        return f"not measured{': ' + why if why else ''}"
    return ", ".join(parts)


def _of_profile(profile: Profile) -> list[str]:
    shares = [
        ("GPU busy", profile.busy_pct),
        ("computing", profile.compute_pct),
        ("SM efficiency at most", profile.sm_efficiency_pct),
        ("CPU inside operators", profile.operators_pct if profile.busy_pct is None else None),
    ]
    parts = [f"{label} {percent(value)}%" for label, value in shares if value is not None]
    if parts:
        parts[-1] += f" (of {plural(profile.num_steps, 'profiled step')})"
    return parts


def _limit(advice: Advice) -> str:
    verdict = advice.verdict
    if advice.recommended is None:
        return ""
    text = f"{verdict.limit}: {verdict.message}"
    return f"{text}; {verdict.remedy}" if verdict.remedy else text


def _memory(record: RunRecord, trial: Trial | None, room: Finding | None) -> str:
    memory = trial.memory if trial is not None else None
    if memory is None or record.device is None:
        return ""
    text = f"peak {format_bytes(memory.peak_bytes)} of {format_bytes(record.device.capacity_bytes)}"
    return f"{text}; {_labelled(room)}" if room is not None else text


def _kept(record: RunRecord) -> str:
    """Which tensors the training holds between two steps, or held as memory was refused."""
    explained = record.explained
    return held_sentence(explained.held[-1]).rstrip(".") if explained and explained.held else ""


def _tail(advice: Advice) -> str:
    tail = advice.tail
    if tail is None:
        reason = advice.unavailable.get("tail")
        return f"not known: {reason}" if reason else ""
    if not tail.last_batch:
        dropped = f"{plural(tail.dropped, 'sample')} dropped an epoch"
        return dropped if tail.dropped else "no short batch"
    text = f"{plural(tail.last_batch, 'sample')} instead of {tail.batch_size}"
    check = advice.tail_check
    if check is None:
        return f"{text}; none was seen yet"
    return f"{text}; {'it ran' if check.outcome == 'ok' else 'it failed: ' + check.detail}"


def _labelled(finding: Finding | None) -> str:
    """A finding's text; an estimate says that it is one."""
    if finding is None:
        return ""
    mark = "estimate: " if finding.confidence == "estimate" else ""
    tail = f" {finding.remedy}" if finding.rule == "callback.try" else ""
    return f"{mark}{finding.message}.{tail}"


def _noise(observed: Observed | None, finding: Finding | None) -> str:
    if finding is not None:
        return f"estimate: {finding.message}; {finding.remedy}"
    why = observed.unavailable.get("noise_scale", "") if observed is not None else ""
    return "" if why in ("", "noise_scale=False") else f"not known: {why}"
