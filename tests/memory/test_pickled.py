"""Files that are no snapshots, or want to be more: one error each, and nothing runs."""

import gzip
import os
import pickle
import random
import struct
import tracemalloc

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.memory.pickled import load
from batchadvisor.probes.memory.snapshot import read_snapshot
from batchadvisor.session.memory import analyze_memory

from .allocator import Allocator, train


@pytest.fixture
def file(tmp_path):
    def write(data):
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(data)
        return path

    return write


class Runs:
    """Runs a command when it is unpickled by Python."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class Plain:
    pass


class TestPlain:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_it_reads_what_pickle_reads(self, file, protocol):
        device = Allocator()
        train(device, 3)
        content = device.snapshot()
        content["more"] = [None, True, -5, 2**40, 2**62, -(2**62), 1.5, "ü" * 300]
        if protocol > 2:  # protocol 2 has no bytes: it calls a function that makes them
            content["more"].append(b"x")
        assert load(file(pickle.dumps(content, protocol)))[0] == content

    def test_shared_lists_stay_shared(self, file):
        frames = [{"filename": "a.py", "line": 1, "name": "f"}] * 2
        content = load(file(pickle.dumps([frames] * 300) + b"\0\0"))[
            0
        ]  # what follows is left alone
        assert content == [frames] * 300
        assert content[0] is content[299]

    def test_a_frame_may_begin_anywhere(self, file):
        """Python's pickler begins one every 64 KiB, also between the two numbers of a pair."""
        for shift in range(20):
            content = ["x" * shift, [{"pool": (n, 0), "size": n << 20} for n in range(4000)]]
            assert load(file(pickle.dumps(content, 4)))[0] == content


class TestCode:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_a_command_is_not_run(self, file, tmp_path, protocol):
        trap = tmp_path / "trap"
        data = pickle.dumps({"segments": Runs(f"touch {trap}")}, protocol)
        with pytest.raises(UsageError, match=r"wants to run code \((os|posix|nt)\.system\)"):
            load(file(data))
        assert not trap.exists()
        pickle.loads(data)  # the trap is one
        assert trap.exists()

    @pytest.mark.parametrize(
        ("data", "part"),
        [
            (b"\x80\x02cos\nsystem\n(U\x01ltR.", "os.system"),
            (b"\x80\x02(U\x01lios\nsystem\n.", "os.system"),
            (b"\x80\x02NNR.", "calls a function"),
            (b"\x80\x02(NNo.", "makes an object"),
            (b"\x80\x02NN\x81.", "makes an object"),
            (b"\x80\x02}}b.", "object's state"),
            (b"\x80\x02NQ.", "outside the file"),
            (b"\x80\x02\x82\x01.", "outside the file"),
            (b"\x80\x04\x97.", "no snapshot holds"),
            (pickle.dumps(Plain()), "Plain"),
        ],
    )
    def test_opcodes_that_call(self, file, data, part):
        with pytest.raises(UsageError, match=part):
            load(file(data))


class TestSize:
    """Memory in proportion to the file, whatever it declares."""

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x04Nr\xff\xff\xff\x7f.",  # a number of the memo that takes 34 GB
            b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x",
            b"\x80\x04B\xff\xff\xff\xffx.",
            b"\x80\x04\x96" + struct.pack("<Q", 2**40) + b"x.",
            b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
            b"\x80\x04\x8b\xff\xff\xff\x7f.",
            b"\x80\x04" + b"N" + b"\x85" * 2_000_000 + b".",  # its hash would descend the C stack
            b"\x80\x04" + b"}" * 500_000 + b".",
            b"\x80\x04" + b"K\x01" * 3 + b"\x87.",
        ],
    )
    def test_it_is_refused_cheaply(self, file, data):
        path = file(data)
        tracemalloc.start()
        try:
            with pytest.raises(UsageError):
                read_snapshot(path)
            assert tracemalloc.get_traced_memory()[1] < 20 * len(data) + 2 * 1024**2
        finally:
            tracemalloc.stop()

    def test_deep_lists_are_refused_or_read(self, file):
        depth = 200_000
        data = b"\x80\x04" + b"]N" * depth + b"0" + b"a" * depth + b"."
        with pytest.raises(UsageError):
            read_snapshot(file(data))

    def test_lists_of_lists_of_lists_by_reference(self, file):
        """As many blocks as the product of the references: they are not walked."""
        blocks = [{"size": 0, "state": "inactive"}] * 30_000
        segments = [{"address": 0, "total_size": 0, "blocks": blocks}] * 30_000
        with pytest.raises(UsageError, match="over and over"):
            read_snapshot(file(pickle.dumps({"segments": segments})))


class TestOthers:
    @pytest.mark.parametrize(
        ("data", "part"),
        [
            (b"", "empty"),
            (gzip.compress(b"x", mtime=0), "compressed"),
            (b"PK\x03\x04x", "torch.save"),
            (b"hello", "no pickle"),
            (pickle.dumps({"segments": []}, 0), "no pickle"),
        ],
    )
    def test_other_files(self, file, data, part):
        with pytest.raises(UsageError, match=part):
            read_snapshot(file(data))

    @pytest.mark.parametrize(
        ("content", "part"),
        [
            ([1], "a list without `segments`"),
            ({"a": 1}, "without `segments`"),
            ({"segments": 3}, "`segments` is no list"),
            ({"segments": [3]}, "a segment is no dict"),
            ({"segments": [{}]}, "`address` is missing"),
            ({"segments": [], "device_traces": [[{}]]}, "no action"),
            ({"segments": [{"address": 0, "total_size": 5, "blocks": []}]}, "do not add up"),
        ],
    )
    def test_other_contents(self, file, content, part):
        with pytest.raises(UsageError, match=part):
            read_snapshot(file(pickle.dumps(content)))

    def test_missing_file_and_folder(self, tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            load(tmp_path / "none")
        with pytest.raises(UsageError, match="is a folder"):
            load(tmp_path)

    def test_every_cut_is_seen(self, file):
        data = pickle.dumps({"segments": [{"a": 2**40, "b": (0, 1), "c": "text", "d": 1.5}]})
        for end in range(1, len(data)):
            with pytest.raises(UsageError, match=r"cut short|damaged|no pickle"):
                load(file(data[:end]))


def test_changed_bytes_never_crash(file):
    """2,000 files with changed bytes are read, or refused with an error of ours."""
    device = Allocator()
    train(device, 1)
    data = pickle.dumps(device.snapshot())
    random_ = random.Random(7)
    errors = []
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(random_.choice((1, 1, 2, 8))):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        try:
            analyze_memory(file(changed))
        except UsageError as error:
            errors.append(str(error))
    assert 200 < len(errors) < 2000
    assert not [error for error in errors if "\n" in error]
