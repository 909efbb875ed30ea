"""What there is to say of an epoch's end: the cases, their words, their remedies as code.

Text and figures only; which case a pipeline meets, tails/rules.py and tails/layouts.py work out.
"""
