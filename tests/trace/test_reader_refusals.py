"""Files that the trace reader refuses."""

from __future__ import annotations

import gzip
import os

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.trace.reader import read_trace


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "is empty"),
            (b" \n ", "is empty"),
            (b"hello", "not a profiler trace"),
            (b"{}", "no list `traceEvents`"),
            (b'{"schemaVersion": 1}', "no list `traceEvents`"),
            (b"PK\x03\x04....", "no JSON"),
            (gzip.compress(b"hello", mtime=0), "no JSON"),
            (b"\x1f\x8b", "cannot be read"),
            (b'{"traceEvents": [{"ph": "X", "na', "no readable event"),
        ],
    )
    def test_no_trace(self, write, content, words):
        with pytest.raises(UsageError, match=words) as error:
            read_trace(write(content, "a.json"))
        assert error.value.remedy

    def test_no_file(self, tmp_path):
        with pytest.raises(UsageError, match="no trace file"):
            read_trace(tmp_path / "absent.json")
        with pytest.raises(UsageError, match="folder"):
            read_trace(tmp_path)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.json")
        with pytest.raises(UsageError, match="pipe or a device") as error:
            read_trace(tmp_path / "pipe.json")
        assert error.value.remedy
