"""A training loader that gave no batch: no samples, or fewer than one batch and drop_last=True."""

from __future__ import annotations

from typing import TypeGuard

from ...advisor.explain.known_failures import EMPTY_DATASET
from ...advisor.tails import tails
from ...records import LoaderInfo, TailFinding, TailReport

CASE = "loader.no-steps"


def is_empty(loader: LoaderInfo | None) -> TypeGuard[LoaderInfo]:
    """Whether its samples, or the arithmetic of its last batch, say why it gave none."""
    return loader is not None and (loader.num_samples == 0 or _finding(loader) is not None)


def no_batches(loader: LoaderInfo) -> tuple[str, str]:
    """Says what happened, without a full stop, and what to do.

    Args:
        loader: one of which `is_empty` holds.
    """
    where = "" if loader.place is None else f" at {loader.place}"
    if loader.num_samples == 0:
        return f"the dataset of the DataLoader{where} is empty", EMPTY_DATASET
    finding = _finding(loader)
    assert finding is not None
    sizes = [fix.snippet for fix in finding.fixes]
    take = f"Take {sizes[0]}" if sizes else "Take a smaller batch"
    return (
        f"the DataLoader{where} gives no batch, as {finding.message} ({CASE})",
        f"{take}, or leave drop_last out (batchadvisor tails --explain {CASE}).",
    )


def _finding(loader: LoaderInfo) -> TailFinding | None:
    report = _report(loader)
    if report is None:
        return None
    return next((finding for finding in report.findings if finding.id == CASE), None)


def _report(loader: LoaderInfo) -> TailReport | None:
    """The end of an epoch of its own samples: those of one rank."""
    if not loader.num_samples or not loader.batch_size:
        return None
    return tails(
        num_samples=loader.num_samples,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        iterable=loader.iterable,
        num_workers=loader.num_workers,
    )
