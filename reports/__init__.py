"""Renders: a record and its advice become a report, and the report text or one file.

Nothing here measures, decides or reads a file. On this floor stands the model, what reports are
made of as data: `report.py` (the public report), `chart.py`, `text.py` (what a window of text says
in its own way), `sizes.py` (a size that was tried), `tab.py` (pages of the tab in TensorBoard).
`builder/` makes it; every other wing shows it in one format, and knows neither `builder/` nor
another wing. All of them use `words/`.
"""
