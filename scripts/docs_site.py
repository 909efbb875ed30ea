"""What MkDocs cannot do alone: pages and files of the repository that lie outside docs/.

The README is the site's first page and CONTRIBUTING.md one of the others. Links are written as they
work in the repository (`../bench/results/verdicts.txt`); a file that is linked becomes part of the
site, as text, so that the site needs nothing but itself.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages outside docs/, by their names in the repository and in the site."""
LINK = re.compile(r"(\]\()([^)#\s:]+)(?=[)#])")
FENCE = re.compile(r"^(```.*?^```$)", flags=re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages outside docs/, and every file of the repository that a page links."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text("utf-8")))
    for page in list(files.documentation_pages()):
        for target in _linked(page.content_string, page.src_uri):
            uri = _uri_of(target)
            if files.get_file_from_path(uri) is None and (ROOT / target).is_file():
                content = (ROOT / target).read_bytes()
                files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the repository's links into the site's."""
    del config, files
    folder = _folder_of(page.file.src_uri)

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] + (_uri_of(target) if (ROOT / target).is_file() else match[2])

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in parts)


def _linked(markdown: str, uri: str) -> list[str]:
    """The files that a page links, as paths from the repository's root."""
    text = FENCE.sub("", markdown)
    folder = _folder_of(uri)
    return [posixpath.normpath(posixpath.join(folder, link[2])) for link in LINK.finditer(text)]


def _folder_of(uri: str) -> str:
    return "" if uri in PAGES.values() else posixpath.join("docs", posixpath.dirname(uri))


def _uri_of(target: str) -> str:
    """Where a file of the repository is in the site; browsers show `.txt`, and download `.py`."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"source/{target}" + ("" if target.endswith(".txt") else ".txt")
