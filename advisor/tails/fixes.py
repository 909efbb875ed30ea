"""Fixes that are offered: each went through the engine, and its case is gone with steps left."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from ...errors import UsageError
from ...records import Fix, Pipeline, SweepRow
from ...units import format_count
from .case import RemedyName
from .cases import BY_ID
from .conditions import HARMFUL_SHARE, made
from .layouts import layout_of
from .pipeline import GLOBAL, check, own_size
from .remedies import REMEDIES, Snippet
from .sweeps import row_of

SEVERITIES = ("error", "nan", "bias", "waste", "slow")
"""The worst first."""
INDIVISIBLE = "jax.indivisible"
"""Nothing is placed, so that no other remedy is one while it stands."""
AVOIDING: tuple[RemedyName, ...] = ("drop", "size")
"""Remedies of a step that fails: it is not made, or has another length."""
MAX_TRIED = 300
"""Changes of one remedy that go through the engine before it is given up."""


def fixes(pipeline: Pipeline, name: str, *, harmful: bool = True) -> tuple[Fix, ...]:
    """The remedies of a case that remove it from a pipeline, in the order of its page.

    A remedy is offered if its case is gone afterwards (where it did harm: does none any more), the
    epoch makes steps, and every harm that is new is of a milder kind than the one that is gone.

    Args:
        name: id of the case.
        harmful: whether the case does harm to this pipeline, or is only said.
    """
    before = row_of(pipeline)
    offered: list[Fix] = []
    for remedy in BY_ID[name].remedies:
        fix = _first(pipeline, before, name, remedy, harmful=harmful)
        if fix is not None and fix.snippet not in {other.snippet for other in offered}:
            offered.append(fix)
    return tuple(offered)


def fixes_without(pipeline: Pipeline, samples: int) -> tuple[Fix, ...]:
    """Remedies after which no rank makes a step of so many samples, and no new harm is met.

    For a step that was executed and failed, whatever the reason.
    """
    before = set(row_of(pipeline).ids)
    offered = []
    for remedy in AVOIDING:
        for snippet, changes in islice(REMEDIES[remedy](pipeline), MAX_TRIED):
            changed = msgspec.structs.replace(pipeline, **changes)
            if (
                _is_possible(changed)
                and before.issuperset(row_of(changed).ids)
                and not makes_step_of(changed, samples)
            ):
                offered.append(_with_its_end(_fix(changed, snippet, changes), changed))
                break
    return tuple(offered)


def _with_its_end(fix: Fix, changed: Pipeline) -> Fix:
    """A short last step that the fix itself leaves has another length, and nobody executed it."""
    layout = layout_of(changed)
    if isinstance(layout, str) or not layout.is_short:
        return fix
    title = f"{fix.title}; its last step, of {format_count(layout.last_samples)}, was not executed"
    return msgspec.structs.replace(fix, title=title)


def makes_step_of(pipeline: Pipeline, samples: int) -> bool:
    """Whether a step of an epoch gives a rank so many samples; also where none is made at all."""
    layout = layout_of(pipeline)
    if isinstance(layout, str) or not layout.steps:
        return True
    return any(samples in sizes for sizes in made(layout))


def _first(
    pipeline: Pipeline, before: SweepRow, name: str, remedy: RemedyName, *, harmful: bool
) -> Fix | None:
    for tried, (snippet, changes) in enumerate(REMEDIES[remedy](pipeline)):
        if tried >= MAX_TRIED:
            break
        changed = msgspec.structs.replace(pipeline, **changes)
        if _removes(before, changed, name, harmful=harmful) and _is_worth(pipeline, changed, name):
            return _fix(changed, snippet, changes)
    return None


def _removes(before: SweepRow, changed: Pipeline, name: str, *, harmful: bool) -> bool:
    if not _is_possible(changed):
        return False
    after = row_of(changed)
    if INDIVISIBLE in after.ids:
        return False
    if not after.steps or name in after.ids or (not harmful and name in after.also):
        return False
    mildest = SEVERITIES.index(BY_ID[name].severity)
    new = set(after.ids) - set(before.ids)
    return all(SEVERITIES.index(BY_ID[other].severity) > mildest for other in new)


def _is_possible(changed: Pipeline) -> bool:
    try:
        check(changed)
    except UsageError:
        return False
    return True


def _is_worth(pipeline: Pipeline, changed: Pipeline, name: str) -> bool:
    """Repeating samples is itself a waste, and no remedy for another."""
    if BY_ID[name].severity not in ("waste", "slow"):
        return True
    samples = pipeline.num_samples or 0
    return (changed.num_samples or 0) - samples <= HARMFUL_SHARE * samples


def _fix(changed: Pipeline, snippet: Snippet, changes: dict[str, Any]) -> Fix:
    """A snippet with the numbers of the pipeline that it makes."""
    title, code = snippet
    size, ranks = own_size(changed), changed.num_ranks
    step = changed.batch_size if changed.rank_batch_sizes else size * ranks
    values = {
        "samples": str(changed.num_samples),
        "size": str(size),
        "batch": str(size if changed.setup in GLOBAL else changed.batch_size),
        "keeps": ", drop_last=True" if changed.drop_last else "",
        "step": str(step),
        "ranks": str(ranks),
        "rank_sizes": str(changed.rank_batch_sizes),
        "micro": str(changed.micro_batches),
        "stage": changed.stage,
    }
    for key, value in values.items():
        code = code.replace("{" + key + "}", value)
    return Fix(title=title, snippet=code, changes=changes)
