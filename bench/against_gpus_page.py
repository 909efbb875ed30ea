"""Makes a table and docs/estimate-against-gpus.md of what estimate_against_gpus.py recorded."""

from __future__ import annotations

import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from typing import Any

from common import HERE, header, table

PAGE = HERE.parent / "docs" / "estimate-against-gpus.md"
_WIDTH = 118
NEAR_PEAK = 0.05
"""A peak that is off by less is called near."""
Row = Mapping[str, Any]


def ran(data: Row) -> list[Row]:
    """Rows that were estimated, and have a lower end."""
    return [row for row in data["rows"].values() if not row.get("problem") and row["low"]]


def problems(data: Row) -> list[tuple[str, str]]:
    """Rows that were not, and why."""
    rows = data["rows"].values()
    without = [(row["id"], "no lower end") for row in rows if row.get("low", 1) in (None, 0)]
    return [(row["id"], row["problem"]) for row in rows if row.get("problem")] + without


def low_fails(row: Row) -> bool:
    """Whether even the lower end is a size that failed."""
    return row["fail"] is not None and row["low"] >= row["fail"]


def high_fails(row: Row) -> bool:
    """Whether the upper end reaches a size that failed, and the lower one does not."""
    return row["fail"] is not None and row["high"] >= row["fail"] > row["low"]


def below(row: Row) -> bool:
    """Whether the lower end is below a size that ran."""
    return bool(row["low"] < row["fit"])


def inside(row: Row) -> bool:
    """Whether the whole range lies between what ran and what failed."""
    return not (low_fails(row) or high_fails(row) or below(row))


def contradicts(row: Row) -> bool:
    """Whether no size of the range lies between what ran and what failed."""
    return low_fails(row) or bool(row["high"] < row["fit"])


GAP = log(1.5 * 4 / 3) / 2
"""Mean logarithm of the ratio of neighbours among the published sizes (512, 384, 256, ...)."""


def chance(row: Row) -> float:
    """That a range so wide, if it is right, has one of the published sizes inside it, 0..1."""
    return min(1.0, log(row["high"] / row["low"]) / GAP)


def width(row: Row) -> float:
    """Of the range, as a share of its middle."""
    return 2 * (row["high"] - row["low"]) / (row["high"] + row["low"])


def distance(row: Row) -> float | None:
    """How far its middle is from that of what is published; `None` where nothing failed."""
    if row["fail"] is None:
        return None
    return (row["low"] + row["high"]) / (row["fit"] + row["fail"] - 1) - 1


LAYOUTS = ("contiguous", "channels_last")
HEADINGS = (
    *("rows", "bracketed", "inside", "low fails", "high fails", "low below", "width"),
    *("middle: min", "median", "max"),
)


def cells(rows: Sequence[Row]) -> list[str]:
    """One line of a table, of some rows."""
    bracketed = [row for row in rows if row["fail"] is not None]
    middles = [each for row in rows if (each := distance(row)) is not None]
    ends = (min, statistics.median, max)
    return [
        str(len(rows)),
        str(len(bracketed)),
        f"{_share(rows, inside)} %",
        str(sum(map(low_fails, rows))),
        str(sum(map(high_fails, rows))),
        str(sum(map(below, rows))),
        f"{100 * statistics.median(map(width, rows)):.1f} %",
        *(f"{100 * end(middles):+.0f} %" if middles else "-" for end in ends),
    ]


def _share(rows: Sequence[Row], of: Callable[[Row], bool]) -> str:
    return f"{100 * sum(map(of, rows)) / len(rows):.0f}"


def _num(of: Callable[[Row], bool], rows: Sequence[Row]) -> str:
    num = sum(map(of, rows))
    return f"{num} row{'s' * (num != 1)}"


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """By family and memory layout, the largest families first."""
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        families[row["family"]].append(row)
    groups: dict[tuple[str, str], list[Row]] = {}
    for family, own in sorted(families.items(), key=lambda item: (-len(item[1]), item[0])):
        for layout in LAYOUTS:
            some = [row for row in own if row["layout"] == layout]
            if some:
                groups[family, layout] = some
    return groups


def report(data: Row) -> str:
    """The printed table."""
    rows = ran(data)
    lines = header(data, "Ranges against published largest batches on real GPUs")
    lines += [f"timm {data['timm']}, models of {_sample(data)}", ""]
    if rows:
        parts = [("all", "", cells(rows))]
        parts += [(*key, cells(some)) for key, some in grouped(rows).items()]
        headings = ("family", "layout", *HEADINGS)
        lines += [table(headings, [(a, b, *rest) for a, b, rest in parts]), ""]
        lines += [f"low end failed: {text}" for text in _failed(rows)]
    lines += [f"not estimated: {name}: {why}" for name, why in problems(data)]
    lines += [f"not reproduced: {num} rows of {name}: {why}" for name, num, why in data["left_out"]]
    return "\n".join(lines)


def _failed(rows: Sequence[Row]) -> list[str]:
    return [
        f"{row['model']} at {row['size']}, {row['layout'].replace('_', ' ')}: "
        f"{row['low']} to {row['high']}, where {row['fail']} failed{_in_the_other(row, rows)}"
        for row in rows
        if low_fails(row)
    ]


def _in_the_other(failed: Row, rows: Sequence[Row]) -> str:
    """Where the table has the size that failed as one that ran, in the other layout."""
    for row in rows:
        same = all(row[key] == failed[key] for key in ("model", "size", "gpu"))
        if same and row["layout"] != failed["layout"] and row["fit"] >= failed["fail"]:
            layout = row["layout"].replace("_", " ")
            ends = f"{row['low']} to {row['high']}"
            return f"; {layout} it ran with {row['fit']}, where the range is {ends}"
    return ""


def _sample(data: Row) -> str:
    if data["share"] is None:
        return "a list"
    if data["state"] != "finished":
        return "the smallest sha256 of the name, modulo 100; the rest is left"
    if data["share"] >= 100:
        return "all rows"
    return f"which sha256 of the name, modulo 100, is below {data['share']}"


# the page ---------------------------------------------------------------------------------------


def page(
    data: Row, name: str, again: Row | None = None, peaks: tuple[str, Row] | None = None
) -> str:
    """docs/estimate-against-gpus.md, of the raw results of that name.

    Args:
        again: results of newer code, for some of the rows.
        peaks: name and data of what peaks_against_gpus.py recorded.
    """
    rows = ran(data)
    versions = data["environment"]["versions"]
    parts = [
        "# Estimates against real GPUs",
        _paragraph(
            "The sizes on this page were **published by others**, of torch 1.12 to 2.13. Nobody "
            "ran "
            "them for this project, and no largest batch that it estimates was tried on a GPU. "
            "[`bench/estimate_against_gpus.py`](../bench/estimate_against_gpus.py) sets beside "
            "them "
            "what `batchadvisor estimate` says; it has made this page too, of its [raw "
            f"results](../bench/results/{name})."
        ),
        _paragraph(
            "The reference is the training table of pytorch-image-models for an RTX 3090 (July "
            "2022, torch 1.12, CUDA 11.3): fp16 autocast without a scaler, SGD with Nesterov "
            "momentum, `cudnn.benchmark`, gradients kept and set to zero, attention written out. "
            "Its script begins at 512 and goes on to 384, 256, 192, 128 and so on after any error. "
            "So the size of the table ran and the next larger one failed, mostly for want of "
            "memory."
        ),
        _paragraph(
            f"Estimated were {len(rows)} of {data['num_able']} such rows: the models of "
            f"{_sample(data)}. timm is {data['timm']}, torch {versions['torch']}, whose operations "
            "stand for those of torch 1.12."
        ),
        _code(data, again),
        "\n".join(_summary(rows)),
        "## By family and memory layout",
        _paragraph(
            "*Inside*: the whole range lies between the size that ran and the one that failed; "
            "where 512 ran, the range is not below it. *Low fails*: even the lower end is a size "
            "that failed. *High fails*: only the upper end reaches one. *Low below*: the lower end "
            "is below a size that ran. *Width*: of the range over its middle, the median. "
            "*Middle*: "
            "how far the middle of the range is from that of the published bracket, which is "
            "itself "
            "33 to 50 % wide."
        ),
        "\n".join(_markdown(("family", "layout", *HEADINGS), _lines(rows))),
        "## What the ranges take into account",
        "\n".join(_item(text) for text in CAUSES),
        "## Where the lower end failed",
        _failures(rows),
        "## Where else a range is outside",
        _outside(rows),
        *(_peaks(*peaks) if peaks else ()),
        "## What was not reproduced",
        "\n".join(
            _markdown(
                ("rows", "of", "why"), [(str(num), of, why) for of, num, why in data["left_out"]]
            )
        ),
        *(
            ["\n".join(f"- `{name}`: {why}." for name, why in problems(data))]
            if problems(data)
            else []
        ),
        "## How long it takes",
        _paragraph(_times(rows, data)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


CAUSES = (
    (
        "**The context.** CUDA 11.3 loads every kernel of torch, cuDNN and cuBLAS at its start. "
        "The script says so (`CUDA_MODULE_LOADING=EAGER`), and both ends leave 1600 MiB more to "
        "the context. This one number was chosen by about 390 rows of the table, those of this "
        "page among them: they do not test it. It was seen on one kind of GPU. Since CUDA 11.7 "
        "kernels are loaded as they run."
    ),
    (
        "**Gradients that are kept** (`set_to_none=False`), the copies of weights that autocast "
        "keeps, and the scores of attention are tensors of the step, and counted as such."
    ),
    (
        "**Fragments.** The lower end replays three steps on a replica of torch's allocator, whose "
        "cache torch empties in the first of them whenever cuDNN has tried all kernels."
    ),
    (
        "**Grouped convolutions.** Where cuDNN tries all kernels, a convolution in half precision "
        "with several channels in each of its groups is taken to need a workspace of 8 times its "
        "input, or of 4 times with channels last. It moves the lower end only. Both numbers were "
        "chosen by rows of ResNeXt and RegNet; what cuDNN took is not known."
    ),
)


def _code(data: Row, again: Row | None) -> str:
    """Which code made the ranges, and what newer code says of some of them."""
    date = data["environment"]["date"][:10]
    text = f"Measured on {date}, with code that did not name its state yet."
    if "code" in data:
        text = f"Measured on {date}, with the code whose state is `{data['code']}`."
    if again is not None:
        rows = [row for row in ran(again) if row["id"] in data["rows"]]
        same = sum(_ends(row) == _ends(data["rows"][row["id"]]) for row in rows)
        text += (
            f" Of {len(rows)} of its rows, estimated anew on {again['environment']['date'][:10]} "
            f"with the state `{again['code']}`, {same} have the same range."
        )
    return _paragraph(
        f"{text} A state is `code_state()` of the bench: sha256 of "
        "`features/estimate/fit`, `advisor/gpu_memory`, `probes/fake_step` and `bench/published`."
    )


def _ends(row: Row) -> tuple[int | None, int | None]:
    return row.get("low"), row.get("high")


def _paragraph(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.indent(_paragraph(text), "  ").replace("  ", "- ", 1)


def _summary(rows: Sequence[Row]) -> list[str]:
    bracketed = [row for row in rows if row["fail"] is not None]
    middles = [each for row in rows if (each := distance(row)) is not None]
    widths = [width(row) for row in rows]
    texts = (
        (
            f"{_share(rows, inside)} % of the ranges lie inside what is published; of the "
            f"{len(bracketed)} rows where a size failed, {_share(bracketed, inside)} %."
        ),
        (
            f"The lower end is a size that failed in {_num(low_fails, rows)}, the upper end alone "
            f"in {_num(high_fails, rows)}. The lower end is below a size that ran in "
            f"{_num(below, rows)}."
        ),
        (
            f"What is published contradicts the range in {_num(contradicts, rows)}: no size of it "
            "lies between the one that ran and the one that failed. The others that are not "
            "inside have a published size within the range, so that what is published does not "
            "tell. Of ranges that are right and so wide, chance alone lets that happen to "
            f"{100 * statistics.mean(map(chance, bracketed)):.0f} %."
        ),
        (
            f"The median width is {100 * statistics.median(widths):.1f} %, the largest "
            f"{100 * max(widths):.0f} %."
        ),
        (
            f"The middle of the range is {100 * statistics.median(middles):+.0f} % from that of "
            f"the "
            f"bracket in the median, {100 * min(middles):+.0f} % at the least and "
            f"{100 * max(middles):+.0f} % at the most."
        ),
    )
    return [_item(text) for text in texts]


def _lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    lines = [("**all**", "", *cells(rows))]
    for layout in LAYOUTS:
        some = [row for row in rows if row["layout"] == layout]
        if some:
            lines.append(("**all**", layout.replace("_", " "), *cells(some)))
    lines += [
        (family, layout.replace("_", " "), *cells(some))
        for (family, layout), some in grouped(rows).items()
    ]
    return lines


BEYOND = (
    "While the numbers were chosen, by the steps of about 390 rows alone, the lower end failed for "
    "`resnetv2_101x1_bitm` in both layouts, `resnetv2_50x1_bitm` with channels last, and "
    "`resnetv2_50d_evos`, `cs3sedarknet_xdw`, `pit_s_224`, `pit_s_distilled_224` and "
    "`seresnet200d` with channels first. The tensors of the sizes that failed there take 65 to 98 "
    "% of what was left to them; no cause is known."
)


def _failures(rows: Sequence[Row]) -> str:
    failed = _failed(rows)
    if not failed:
        return f"Nowhere.\n\n{_paragraph(BEYOND)}"
    known = _paragraph(
        "What else took memory there is not known; the table does not tell errors that are none of "
        "memory. One architecture under several names counts each time."
    )
    listed = "\n".join(_item(f"{text}.") for text in failed)
    return "\n\n".join((known, listed, _paragraph(BEYOND)))


def _outside(rows: Sequence[Row]) -> str:
    """Every range that is, by which end."""
    listed = [
        f"- {row['model']}, {row['layout'].replace('_', ' ')}: {row['low']} to {row['high']}; "
        f"{row['fit']} ran, {row['fail'] or 'none'} failed."
        for row in rows
        if (high_fails(row) or below(row)) and not low_fails(row)
    ]
    known = (
        "An upper end counts the tensors alone, and the least that CUDA takes. A lower end that is "
        "too low is one of pieces: the replica of the allocator loses more memory than torch's "
        "did, and why is not known."
    )
    return "\n\n".join(("\n".join(listed), _paragraph(known))) if listed else "Nowhere."


def _peaks(name: str, data: Row) -> list[str]:
    """The section of peaks at given sizes."""
    made = [each for each in data["peaks"] if each.get("estimated")]
    shares = [each["estimated"] / each["published"] - 1 for each in made]
    near = sum(abs(share) <= NEAR_PEAK for share in shares)
    lines = [
        (
            f"`{' '.join(each['words'])}`",
            str(each["size"]),
            "reserved" if each["reserved"] else "allocated",
            f"{each['published'] / 1e9:.2f}",
            f"{each['estimated'] / 1e9:.2f}",
            f"{share:+.1%}".replace("%", " %"),
        )
        for each, share in zip(made, shares, strict=True)
    ]
    failed = [each for each in data["peaks"] if not each.get("estimated")]
    return [
        "## Peaks of language models",
        _paragraph(
            "Others published what a step took at one size: transformers' page on one GPU of "
            "BERT-large on a V100 (2022; bytes of the driver without the context that the page "
            "states, so what torch reserved), and LitGPT of its adapters on an A100 (October 2023, "
            "torch 2.1; what torch allocated at most). Steps on fake tensors of the same shapes "
            f"stand beside them ([raw results](../bench/results/{name}), "
            "[`bench/peaks_against_gpus.py`](../bench/peaks_against_gpus.py)): "
            f"{near} of {len(made)} within {NEAR_PEAK:.0%}, off by {min(shares):+.1%} to "
            f"{max(shares):+.1%}, {statistics.median(shares):+.1%} in the median. The versions of "
            "transformers, LitGPT and torch are not those of the tables.".replace("%", " %")
        ),
        "\n".join(
            _markdown(("script", "size", "kind", "published GB", "estimated GB", "off by"), lines)
        ),
        *(f"- `{' '.join(each['words'])}`: {each['problem']}" for each in failed),
        _paragraph(
            "Torch before 1.11 kept the input of each softmax beside its output, 1.6 GB of "
            "BERT-large at size 4. With that its three rows of this size would be off by -2 to "
            "+2 %; which torch made them is not published."
        ),
    ]


def _times(rows: Sequence[Row], data: Row) -> str:
    took = [row["seconds"] for row in rows]
    text = (
        "Building the model, the steps as written and the range took "
        f"{statistics.median(took):.0f} s in the median and {max(took):.0f} s at most, on "
        f"{data['environment']['num_cores']} cores that other work shared."
    )
    commands = [row for row in rows if "low" in row.get("command", {})]
    if commands:
        ends = [(row["low"], row["high"]) for row in commands]
        same = sum(
            end == (row["command"]["low"], row["command"]["high"])
            for end, row in zip(ends, commands, strict=True)
        )
        walls = [row["command"]["wall_s"] for row in commands]
        text += (
            f" The whole command, with its other variants and changes, was run for {len(commands)} "
            f"of them: {same} have the same range; it took {statistics.median(walls):.0f} s in the "
            f"median, {min(walls):.0f} to {max(walls):.0f} s."
        )
    return text


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(headings) + " |",
        "|" + "---|" * len(headings),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
