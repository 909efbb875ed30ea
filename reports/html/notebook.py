"""A page of blocks in a notebook's cell: without a script or a style sheet."""

from __future__ import annotations

from collections.abc import Sequence

from ..blocks import Document
from ..words.wording import clean
from .page import environment

TEMPLATE = """\
{% from "blocks.html.jinja" import blocks %}
<div class="batchadvisor" style="font-family: sans-serif; max-width: 60em">
<p style="font-weight: bold; margin: 0.4em 0">{{ headline }}</p>
{{ blocks(listed) }}
{% for label, path in files %}<p style="margin: 0.1em 0">{{ label }}: <code>{{ path }}</code></p>
{% endfor %}</div>
"""


def render(document: Document | None, *, files: Sequence[tuple[str, str]]) -> str:
    """The part of a page. Everything that comes from outside is escaped.

    Args:
        document: what was seen until now; `None` before the run.
        files: label and path of what was written.
    """
    said = "batchadvisor: no run was begun." if document is None else document.headline
    return (
        environment()
        .from_string(TEMPLATE)
        .render(
            headline=clean(said),
            listed=() if document is None else document.blocks,
            files=[(label, clean(path, limit=len(path) + 4)) for label, path in files],
        )
    )
