"""A source line, as the advice shows it."""


def shown(source, size=32):
    """(line, text before, text after), as advice shows it."""
    return source.place.line, source.before, source.template.format(size)


def changed(line, text, own=16, size=32):
    """What is shown of a line that holds this text, `{}` where the number stands."""
    return line, text.format(own), text.format(size)
