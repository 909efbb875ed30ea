"""The code of the pages, one entry a fix, for the tests that execute it."""

import batchadvisor
from batchadvisor.advisor.tails.cases import CASES

from .said import case_of


def page_fixes(*setups):
    """(id of the case, position, fix, pipeline of the example) of every page with such a setup."""
    pages = []
    for case in CASES:
        example = case.example
        if example.setup in setups:
            met = case_of(batchadvisor.tails(example), case.id)
            pages += [(case.id, position, fix, example) for position, fix in enumerate(met.fixes)]
    return pages


def name_of(page):
    """For parametrize and for the names of jobs."""
    return f"{page[0]}-{page[1]}"


def layout_after(fix, example):
    """What the engine says of the example with the fix."""
    return batchadvisor.tails(example, **fix.changes).layout


def as_loader(code):
    """`loader = DataLoader(...)` where a snippet is the bare call."""
    return f"loader = {code}" if code.startswith("DataLoader(") else code
