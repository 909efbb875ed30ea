"""What commands print: a run's answer, devices, traces, the end of an epoch; and progress.

The only wing that uses rich. May import the model and `words/`: what is said is worded elsewhere,
here it is laid out for a width, in colour or not. What no report holds (an analysis of traces, a
plan of an epoch's end, what a script has) is shown from its record.
"""
