"""The engine: a pipeline in, what its epochs end in out. Pure arithmetic; nothing runs."""

from __future__ import annotations

from ...records import Layout, Pipeline, TailFinding, TailReport
from .cases import BY_ID, cases_for
from .conditions import HARM
from .fixes import SEVERITIES, fixes
from .layouts import layout_of
from .pipeline import check, refuse
from .sweeps import nearest_clean, why_none_clean


def report_of(pipeline: Pipeline) -> TailReport:
    """Reports the end of an epoch with findings, the worst first, and clean sizes near by.

    Raises:
        UsageError: the description contradicts itself.
    """
    check(pipeline)
    refused = refuse(pipeline)
    if refused:
        case = BY_ID[refused]
        assert case.refuses is not None
        message, evidence = case.refuses(pipeline)
        finding = TailFinding(
            id=refused,
            severity=case.severity,
            harmful=True,
            message=message,
            evidence=evidence,
            fixes=fixes(pipeline, refused),
        )
        return TailReport(
            pipeline=pipeline,
            layout=None,
            findings=(finding,),
            unavailable={"layout": "this setup does not train"},
        )
    layout = layout_of(pipeline)
    if isinstance(layout, str):
        return TailReport(pipeline=pipeline, layout=None, unavailable={"layout": layout})
    clean = nearest_clean(pipeline)
    why = "" if clean else why_none_clean(pipeline)
    return TailReport(
        pipeline=pipeline,
        layout=layout,
        findings=findings(pipeline, layout),
        nearest_clean=clean,
        unavailable={"nearest_clean": why} if why else {},
    )


def findings(pipeline: Pipeline, layout: Layout) -> tuple[TailFinding, ...]:
    """The cases that a layout meets: harmful ones first, then by severity."""
    tail_findings = []
    for case in cases_for(pipeline):
        degree = case.fires(pipeline, layout)
        if not degree:
            continue
        message, evidence = case.says(pipeline, layout)
        tail_findings.append(
            TailFinding(
                id=case.id,
                severity=case.severity,
                harmful=degree == HARM,
                message=message,
                evidence=evidence,
                fixes=fixes(pipeline, case.id, harmful=degree == HARM),
            )
        )
    return tuple(
        sorted(
            tail_findings,
            key=lambda finding: (not finding.harmful, SEVERITIES.index(finding.severity)),
        )
    )
