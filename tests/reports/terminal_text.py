"""The terminal report of a run, as text."""

from batchadvisor.reports.builder.text import build_text
from batchadvisor.reports.terminal.answer import render

from . import samples

FILES = [("record", "runs/train-1/record.json"), ("report", "runs/train-1/report.html")]
NEXT = "batchadvisor view runs/train-1"
OTHERS = ["batchadvisor report runs/train-1 -o report.html"]
EVERY = [samples.cpu, samples.gpu, samples.nothing_fits, samples.interrupted]


def shown(sample, width=100, color=False, **rest):
    record, advice = sample
    return render(
        build_text(record, advice),
        files=FILES,
        next_command=NEXT,
        others=OTHERS,
        width=width,
        color=color,
        **rest,
    )


def strip_codes(text):
    position = 0
    while position < len(text):
        if text.startswith("\x1b[", position):
            position = text.index("m", position)
        else:
            yield text[position]
        position += 1
