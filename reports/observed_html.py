"""The same for a cell of a notebook: a small table that needs no script and no style sheet."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Advice, Finding, RunRecord
from .observed import elapsed, problems, rows
from .wording import clean

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
{% for one in problems %}<li><strong>{{ one.severity }}</strong> {{ one.message }}\
{% if one.remedy %} → {{ one.remedy }}{% endif %}</li>
{% endfor %}</ul>
{% endif %}{% for label, path in files %}<p style="margin: 0.1em 0">{{ label }}: \
<code>{{ path }}</code></p>
{% endfor %}</div>
"""


def render(
    record: RunRecord | None, advice: Advice | None, *, files: Sequence[tuple[str, str]]
) -> str:
    """The part of a page. Everything that comes from outside is escaped.

    Args:
        record: as it stands; `None` before the run.
        advice: on that record.
        files: label and path of what was written.
    """
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=False).from_string(TEMPLATE)
    if record is None or advice is None:
        return template.render(headline="batchadvisor: no run was begun.", pairs=(), files=())
    running = record.state == "running"
    headline = f"Running for {elapsed(record)}" if running else advice.headline
    pairs = [(label, clean(text, limit=len(text) + 4)) for label, text in rows(record, advice)]
    return template.render(
        headline=clean(headline),
        pairs=[one for one in pairs if one[1]],
        problems=[] if running else [_cleaned(one) for one in problems(advice)],
        files=[(label, clean(path, limit=len(path) + 4)) for label, path in files],
    )


def _cleaned(finding: Finding) -> dict[str, str]:
    texts = {"message": finding.message, "remedy": finding.remedy}
    cleaned = {name: clean(text, limit=len(text) + 4) for name, text in texts.items()}
    return {"severity": finding.severity, **cleaned}
