"""Scripts to look through."""

import textwrap

import pytest
from batchadvisor.probes.source.batch_size_source import find_batch_size_source
from batchadvisor.records import SourceLine


@pytest.fixture
def find(tmp_path):
    """Finds the size in a script; the line of `# here` makes the loader."""

    def _find(text, size=16, arguments=()):
        script = tmp_path / "train.py"
        source = textwrap.dedent(text)
        script.write_text(source, encoding="utf-8")
        lines = source.splitlines()
        line = next(number for number, one in enumerate(lines, 1) if "# here" in one)
        return find_batch_size_source(SourceLine(file=str(script), line=line), size, arguments)

    return _find
