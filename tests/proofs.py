"""How the cases of `batchadvisor tails` are known: made from what the tests really did.

A test that provokes a case says so:

    @pytest.mark.case("loader.short", "what was provoked", "torch")

and its outcome makes the entry: passed is `ran` (with `read=True` `read in source`), skipped for
want of a GPU is `needs a GPU`. `advisor/tails/proofs.json` holds the entries. With
BATCHADVISOR_UPDATE_GOLDEN=1 a run writes those of the tests that it ran; otherwise a run in which
a marked test comes out differently from what is stored fails.
"""

import ast
import json
import os
from importlib import metadata
from pathlib import Path

TESTS = Path(__file__).parent
STORED = TESTS.parent / "advisor/tails/proofs.json"
UPDATE = os.environ.get("BATCHADVISOR_UPDATE_GOLDEN") == "1"


def stored():
    """The entries by case."""
    return json.loads(STORED.read_text())


def declared():
    """(id, what, test) of every mark in the test files, read from their source."""
    marks = set()
    files = [*TESTS.glob("tails/test_*.py"), *TESTS.glob("frameworks/test_tails_*.py")]
    for file in sorted(files):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.case":
                    name, what = (argument.value for argument in mark.args[:2])
                    marks.add((name, what, f"{file.relative_to(TESTS.parent)}::{node.name}"))
    return marks


class Watch:
    """Collects the outcomes of marked tests in one session."""

    def __init__(self):
        self.seen = {}

    def saw(self, item, report):
        """Called for every phase of every test; the last one that decides counts."""
        marks = list(item.iter_markers("case"))
        if not marks or (report.when != "call" and report.outcome == "passed"):
            return
        for mark in marks:
            key = (mark.args[0], mark.args[1], test_name(item))
            how = self._how(item, report, read=mark.kwargs.get("read", False))
            if how is not None:
                self._note(key, how, versions(mark.args[2:]))

    def told(self):
        """All that was seen, for the process that started this one."""
        return [
            [list(key), outcome["how"], outcome["versions"]] for key, outcome in self.seen.items()
        ]

    def take(self, told):
        """Adds what another process saw."""
        for key, how, packages in told:
            self._note(tuple(key), how, packages)

    def _note(self, key, how, packages):
        if self.seen.get(key, {}).get("how") != "failed":
            self.seen[key] = {"how": how, "versions": packages}

    @staticmethod
    def _how(item, report, *, read):
        if report.outcome == "failed":
            return "failed"
        if report.outcome == "skipped":
            return "needs a GPU" if item.get_closest_marker("gpu") else None
        return "read in source" if read else "ran"

    def finish(self):
        """Stores the entries, or says what differs from the stored ones."""
        seen = {key: outcome for key, outcome in self.seen.items() if outcome["how"] != "failed"}
        if not seen:
            return []
        if UPDATE:
            write(seen)
            return []
        known = {
            (name, entry["what"], entry["test"]): entry["how"]
            for name, entries in stored().items()
            for entry in entries
        }
        return [
            f"{key[0]}: {outcome['how']!r} here, {known.get(key)!r} in {STORED.name} ({key[2]})"
            for key, outcome in seen.items()
            if known.get(key) != outcome["how"] and known.get(key) != "needs a GPU"
        ]


def test_name(item):
    """`tests/tails/test_x.py::test_y`, or the class where the class carries the mark."""
    path = Path(str(item.path)).resolve().relative_to(TESTS.parent.resolve())
    owner = item.cls
    marked = owner is not None and any(
        mark.name == "case" for mark in getattr(owner, "pytestmark", [])
    )
    return f"{path}::{owner.__name__ if marked else item.originalname}"


def versions(packages):
    """Of the packages that are installed, without local parts such as +cpu."""
    by_package = {}
    for name in packages:
        try:
            by_package[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return by_package


def write(seen):
    """Puts the entries of this run in place of the stored ones of the same tests."""
    from batchadvisor.advisor.tails.cases import CASES

    alive = declared()
    entries = {
        (name, entry["what"], entry["test"]): entry
        for name, own in stored().items()
        for entry in own
        if (name, entry["what"], entry["test"]) in alive
    }
    for key, outcome in seen.items():
        entries[key] = {"how": outcome["how"], "what": key[1], "test": key[2], **_rest(outcome)}
    order = {"ran": 0, "read in source": 1, "needs a GPU": 2}
    sorted_entries = {
        case.id: sorted(
            (entry for key, entry in entries.items() if key[0] == case.id),
            key=lambda entry: (order[entry["how"]], entry["test"], entry["what"]),
        )
        for case in CASES
    }
    STORED.write_text(json.dumps(sorted_entries, indent=1) + "\n")


def _rest(outcome):
    """Versions say with what it ran; a test that waits ran with nothing."""
    ran = outcome["how"] != "needs a GPU"
    return {"versions": outcome["versions"]} if ran and outcome["versions"] else {}
