"""Makes what reports show, from records and advice: sections, tables, columns, charts, in words.

May import the model and `words/`. It knows no renderer: nothing here
has a width, a colour or a tag.
"""
