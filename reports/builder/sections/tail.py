"""The last batch of the epoch in words, and the batches of an epoch as blocks."""

from __future__ import annotations

import msgspec

from ....records import Advice, Tail, TailCheck
from ....units import format_count, format_runs
from ...report import Block, RankBlocks
from ...words.outcomes import spoken
from ...words.wording import pad_digits, plural, share_of, why_unknown
from .training import STEP

SHOWN_BATCHES = 2
"""Full batches drawn at each end of an epoch; those between stand in one block."""
MAX_RANKS = 16
"""Ranks that are drawn; the sentences tell of all."""


def tail_texts(advice: Advice) -> list[tuple[str, bool]]:
    """Sentences about the last batch, and whether each is bad news.

    What a harmful one does is told by its finding and not here again; of a harmless one only what
    was seen is told.
    """
    tail, check = advice.tail, advice.tail_check
    if check is not None and any(finding.rule == "tail.crash" for finding in advice.findings):
        check = msgspec.structs.replace(check, detail="see Findings")  # there it stands in full
    failed = check is not None and (
        check.outcome != "ok" or bool(check.num_non_finite) or bool(check.num_non_finite_norms)
    )
    if tail is None:
        texts = [(f"not known: {why_unknown(advice, 'tail')}", False)]
        if check is not None:
            texts.append((_check(check, check.num_samples), failed))
        return texts
    texts = [(_layout(tail), False)]
    if tail.last_batch and (check is not None or tail.harmful):
        texts.append((_check(check, tail.last_batch), failed))
    if advice.loss_question:
        asked = (
            "The loss is taken as a mean over the batch. If it is a sum, or compares samples "
            f"(contrastive), ask: {advice.loss_question}"
        )
        texts.append((asked, False))
    told = any(finding.rule.startswith("tails.") for finding in advice.findings)
    if (failed or tail.harmful) and not told:
        texts += [(text, False) for text in _near_by(tail)]
    return texts


def _near_by(tail: Tail) -> list[str]:
    """Clean sizes with the throughput that the law of step times predicts for them.

    Where there is none, that; nothing where none was looked for.
    """
    if not tail.nearest_clean:
        return [f"{tail.why_none_clean.capitalize()}."] if tail.why_none_clean else []
    sizes = []
    for near in tail.clean_sizes:
        rate = near.predicted_samples_per_s
        shown = "" if rate is None else f" ({pad_digits(rate, 0.01)}/s)"
        sizes.append(f"{near.batch_size}{shown}")
    listed = ", ".join(sizes or map(str, tail.nearest_clean))
    if any(near.predicted_samples_per_s is not None for near in tail.clean_sizes):
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
        if tail.left_out_by:
            last = f"the last batch of {plural(tail.dropped, 'sample')} ({share}%)"
            return f"{start}the loop leaves out {last}: {tail.left_out_by}."
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
    """Words the change of BatchNorm's running statistics."""
    if check.num_non_finite_norms:
        return f"; the running statistics of {plural(check.num_non_finite_norms, 'layer')} were not"
    before, after = check.running_var_before, check.running_var_after
    if before is None or after is None:
        return ""
    steps = "it" if check.num_steps == 1 else plural(check.num_steps or 0, "such step")
    return f"; {steps} moved a running variance from {before:.4g} to {after:.4g}"


def rank_blocks(tail: Tail) -> tuple[RankBlocks, ...]:
    """One row for each rank, every micro-step in the same column."""
    if tail.num_ranks < 2 or len(tail.full) < 2:
        return (RankBlocks(rank=0, blocks=_single(tail)),)
    most = max(tail.batches, default=0)
    ranks = range(min(len(tail.full), MAX_RANKS))
    return tuple(RankBlocks(rank=rank, blocks=_of_rank(tail, rank, most)) for rank in ranks)


def _single(tail: Tail) -> tuple[Block, ...]:
    blocks = _full(tail.batch_size, tail.num_samples // tail.batch_size)
    if tail.last_batch:
        blocks.append(Block(samples=tail.last_batch, kind="short"))
    elif tail.dropped:
        blocks.append(Block(samples=tail.dropped, kind="dropped"))
    return tuple(blocks)


def _of_rank(tail: Tail, rank: int, most: int) -> tuple[Block, ...]:
    full = tail.full[rank]
    own = tail.batches[rank] if rank < len(tail.batches) else most
    last = tail.last[rank] if rank < len(tail.last) else full
    # The last micro-step of the job is the one that the rank with the most batches makes last.
    before = min(own, most - 1)
    blocks = _full(full, before)
    if own < most or last == 0:
        blocks.append(Block(samples=0, kind="empty"))
    else:
        blocks.append(Block(samples=last, kind="full" if last == full else "short"))
    return tuple(blocks)


def _full(size: int, count: int) -> list[Block]:
    block = Block(samples=size, kind="full")
    if count <= 2 * SHOWN_BATCHES + 1:
        return [block] * count
    middle = Block(samples=size, kind="full", count=count - 2 * SHOWN_BATCHES)
    return [*[block] * SHOWN_BATCHES, middle, *[block] * SHOWN_BATCHES]
