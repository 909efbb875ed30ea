"""Words: reasons, findings, verdicts. Decides nothing: the reasons word a `Decision`.

May import: advisor/measured, advisor/choose, advisor/tails.
"""
