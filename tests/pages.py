"""The README and the pages of docs/, and the blocks of code and output that stand in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MARK = re.compile(r"<!-- (.+): begin -->")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: the page's path from the root, such as `docs/run.md`.
        line: where the fence opens, counted from 1.
        language: what stands behind the fence.
        mark: the name in the comment `<!-- name: begin -->` right above it.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def paths() -> list[Path]:
    """Every page, the README first."""
    return [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def texts() -> dict[str, str]:
    """The pages by their paths from the root."""
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths()}


def is_on_a_cluster(command: str) -> bool:
    """Whether it needs a cluster, and is run by the tests of its engine."""
    return command.startswith("batchadvisor run --engine ")


def on_a_cluster(engine: str) -> list[str]:
    """The commands of the pages that an engine runs, without comments."""
    lines = [line for block in all_blocks() for line in block.text.splitlines()]
    mine = [line for line in lines if line.startswith(f"batchadvisor run --engine {engine} ")]
    return [line.partition("  #")[0].strip() for line in mine]


def all_blocks() -> list[Block]:
    return [block for page, text in texts().items() for block in blocks_of(text, page)]


def blocks_of(text: str, page: str) -> list[Block]:
    """The fenced blocks of a page, also those inside lists and those fenced with tildes."""
    blocks = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opened = re.match(r"\s*(?:> *|[-*] +|\d+\. +)?(`{3,}|~{3,})\s*(\S*)", lines[number])
        if opened is None:
            number += 1
            continue
        start = number
        number += 1
        inside = []
        while number < len(lines) and not lines[number].strip(" >").startswith(opened[1]):
            inside.append(lines[number])
            number += 1
        number += 1
        above = MARK.fullmatch(lines[start - 1].strip()) if start else None
        content = "\n".join(inside)
        blocks.append(Block(page, start + 1, opened[2], content, above[1] if above else ""))
    return blocks


def block(mark: str) -> Block:
    """The block under a mark."""
    (marked,) = (shown for shown in all_blocks() if shown.mark == mark)
    return marked


def without_blocks(text: str) -> str:
    """The prose of a page."""
    return re.sub(r"^\s*(```|~~~).*?^\s*\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)


def python_block(start: str) -> str:
    """The block of Python that begins with `start`."""
    (block,) = (
        block
        for block in all_blocks()
        if block.language == "python" and block.text.startswith(start)
    )
    return f"{block.text}\n"


def check_block(page: Path, name: str, content: str) -> None:
    """The page has the content, in a block, between the marks of that name."""
    check_text(page, name, f"```text\n{content}\n```")


def check_text(page: Path, name: str, content: str) -> None:
    """The page has the content between the marks of that name."""
    text = page.read_text()
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, _, tail = text.partition(begin)
    _, closed, tail = tail.partition(end)
    assert closed, f"{page.name} lacks the marks {begin} and {end}"
    wanted = f"{head}{begin}\n{content}\n{end}{tail}"
    if os.environ.get("BATCHADVISOR_UPDATE_GOLDEN") == "1":
        page.write_text(wanted)
    assert page.read_text() == wanted
