"""A watched training in a notebook's cell: a small table without a script or a style sheet."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import WatchedText
from ..words.wording import clean

TEMPLATE = """\
<div class="batchadvisor" style="font-family: sans-serif; max-width: 60em">
<p style="font-weight: bold; margin: 0.4em 0">{{ headline }}</p>
{% if pairs %}<table style="border-collapse: collapse">
<caption style="text-align: left; opacity: 0.7">What the callback saw</caption>
{% for label, text in pairs %}<tr>
<th scope="row" style="text-align: left; vertical-align: top; padding: 0.1em 1em 0.1em 0">\
{{ label }}</th>
<td style="text-align: left; padding: 0.1em 0">{{ text }}</td>
</tr>
{% endfor %}</table>
{% endif %}{% if problems %}<ul style="margin: 0.4em 0">
{% for problem in problems %}<li><strong>{{ problem.severity }}</strong> {{ problem.message }}\
{% if problem.remedy %} → {{ problem.remedy }}{% endif %}\
{% if problem.code %}<pre>{{ problem.code }}</pre>{% endif %}</li>
{% endfor %}</ul>
{% endif %}{% for label, path in files %}<p style="margin: 0.1em 0">{{ label }}: \
<code>{{ path }}</code></p>
{% endfor %}</div>
"""


def render(text: WatchedText | None, *, files: Sequence[tuple[str, str]]) -> str:
    """The part of a page. Everything that comes from outside is escaped.

    Args:
        text: what was seen until now; `None` before the run.
        files: label and path of what was written.
    """
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=False).from_string(TEMPLATE)
    if text is None:
        return template.render(headline="batchadvisor: no run was begun.", pairs=(), files=())
    pairs = [(label, _cleaned(seen)) for label, seen in text.seen]
    problems = [
        {
            "severity": problem.severity,
            "message": _cleaned(problem.message),
            "remedy": _cleaned(problem.remedy),
            "code": "\n".join(map(_cleaned, problem.code)),
        }
        for problem in text.problems
    ]
    return template.render(
        headline=clean(text.running or text.headline),
        pairs=[pair for pair in pairs if pair[1]],
        problems=[] if text.running else problems,
        files=[(label, _cleaned(path)) for label, path in files],
    )


def _cleaned(text: str) -> str:
    """The text in one line, however long."""
    return clean(text, limit=len(text) + 4)
