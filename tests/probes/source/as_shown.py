"""A source line, as the advice shows it."""


def shown(source, size=32):
    """(line, text before, text after), as advice shows it."""
    return source.place.line, source.before, source.template.format(size)
