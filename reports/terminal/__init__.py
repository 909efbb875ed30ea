"""What commands print: a run's answer, devices, traces, the end of an epoch; and progress.

The only wing that uses rich. May import the model and `words/`: what is said is worded elsewhere,
here it is laid out for a width, in colour or not. What a script has (`discovery.py`) is shown from
its record.
"""
