"""Which of the sizes that ran is the best for a goal, and whether it may replace the script's own.

A `Decision` holds both, and the rule that chose.

May import: advisor/measured.
"""
