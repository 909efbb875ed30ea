"""The reader on synthetic files: every shape that tools write, and every kind of damage."""

import gzip
import json
import os
import time

import numpy as np
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.trace import chunks
from batchadvisor.probes.trace.reader import read_trace


def event(**fields):
    plain = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    return plain | fields


def kernel(**args):
    return event(cat="kernel", name="k", pid=0, tid=7, args={"device": 0, "stream": 7} | args)


def lines(texts, head='{"traceEvents": [', tail="]}"):
    """A document of events given as text, which need not be valid."""
    return head + ",\n  ".join(texts) + tail


OP = json.dumps(event())


class TestShapes:
    @pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
    @pytest.mark.parametrize("name", ["a.json", "a.json.gz", "gzip content under a plain.json"])
    def test_layouts(self, write, indent, name):
        events = [event(), {"ph": "M", "name": "x"}, kernel(correlation=3), event(ph="s")]
        path = write(events, "a.json.gz" if "gzip" in name else name, indent, other=[{"a": 1}])
        path = path.rename(path.parent / name)
        trace = read_trace(path)
        assert (trace.num_events, trace.num_complete) == (4, 2)
        assert trace.gpu.correlation.tolist() == [3]
        assert not trace.losses.any

    @pytest.mark.parametrize("key_order", [1, -1])
    def test_any_order_of_keys(self, write, key_order):
        events = [dict(list(event(args={"a": [{"ph": 1}, {"name": 2}]}).items())[::key_order])] * 9
        assert len(read_trace(write(events)).operators) == 9

    def test_metadata_after_the_events(self, write):
        properties = [{"id": 0, "name": "A", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]
        document = {
            "traceEvents": [kernel()],
            "deviceProperties": properties,
            "distributedInfo": {"rank": 3, "world_size": 8, "pg_config": []},
        }
        trace = read_trace(write(json.dumps(document)))
        assert trace.devices[0].compute_capability == (9, 0)
        assert trace.distributed == {"rank": 3, "world_size": 8}

    def test_other_documents(self, write):
        """A list alone, no events, a byte order mark, several gzip members and padding."""
        text = b"\xef\xbb\xbf" + json.dumps({"traceEvents": [event()] * 3}).encode()
        packed = gzip.compress(text[:30]) + gzip.compress(text[30:]) + b"\0" * 8
        for content, count in ((json.dumps([event(), event()]), 2), ([], 0), (packed, 3)):
            trace = read_trace(write(content))
            assert len(trace.operators) == trace.num_events == count
            assert not trace.losses.any

    def test_cuts_inside_nested_lists_are_noticed(self, write, monkeypatch):
        """Arguments may hold what looks like events; a cut there must not lose anything."""
        monkeypatch.setattr(chunks, "PIECE", 700)
        monkeypatch.setattr(chunks, "_CHUNK", 1000)
        nested = [{"name": "x", "pid": 1}] * 12
        events = [event(name=f"op{i}", args={"list": nested}) for i in range(60)]
        trace = read_trace(write(events))
        assert [trace.names[i] for i in trace.operators.name] == [f"op{i}" for i in range(60)]
        assert not trace.losses.any

    @pytest.mark.parametrize("place", ["after a comma", "before a comma", "in an event", "header"])
    def test_spaces_between_events_are_read_in_linear_time(self, write, place):
        """A valid file may hold any number of them, and each is to be looked at once or twice."""
        first, second, third = (json.dumps(event(name=f"op{i}")) for i in range(3))
        places = ("header", "in an event", "before a comma", "after a comma")
        at = [" " * 40_000_000 if place == own else "" for own in places]
        second = second.replace(', "pid"', f', {at[1]} "pid"')
        text = f'{{{at[0]}"traceEvents": [{first}, {second}{at[2]},{at[3]}{third}]}}'
        path = write(text)
        begin = time.process_time()
        trace = read_trace(path)
        assert time.process_time() - begin < 3
        assert (len(trace.operators), trace.losses.any) == (3, False)

    def test_damage_behind_spaces_is_found_where_it_is(self, write):
        blank = " " * 9_000_000
        good = ", ".join(json.dumps(event(name=f"op{i}")) for i in range(40_000))
        text = f'{{"traceEvents": [{blank}{good}, {blank}'
        path = write(text + json.dumps(event(name="an op")).replace("an op", 'an "op\\n') + "]}")
        losses = read_trace(path).losses
        assert losses.num_mended == 1
        assert 9_000_000 + len(good) - (2 << 20) < losses.first_damage_byte <= len(text)

    def test_small_chunks_give_the_same_columns(self, recorded, monkeypatch):
        path = recorded / "small" / "a100_alexnet_cuda_sync_no_steps.json.gz"
        whole = read_trace(path)
        monkeypatch.setattr(chunks, "PIECE", 1000)
        monkeypatch.setattr(chunks, "_CHUNK", 3000)
        parts = read_trace(path)
        assert sorted(parts.names) == sorted(whole.names)
        for field in whole.gpu.__struct_fields__:
            if field != "name":
                np.testing.assert_array_equal(getattr(parts.gpu, field), getattr(whole.gpu, field))
        assert [parts.names[i] for i in parts.gpu.name] == [whole.names[i] for i in whole.gpu.name]

    def test_what_no_metric_needs_is_skipped(self, write):
        skipped = [
            event(cat=cat, ph=ph)
            for cat, ph in (
                ("python_function", "X"), ("ac2g", "s"), ("fwdbwd", "f"), ("Trace", "X"),
                ("gpu_user_annotation", "X"), ("overhead", "X"), ("cuda_sync", "X"),
                ("hardware_counters", "C"), ("cpu_instant_event", "i"), ("mtia_runtime", "X"),
            )
        ]  # fmt: skip
        trace = read_trace(write(skipped))
        assert trace.num_events == len(skipped)
        columns = (trace.gpu, trace.launches, trace.operators, trace.annotations)
        assert not any(map(len, columns))

    def test_old_annotations_are_no_operators(self, write):
        names = ("ProfilerStep#3", "enumerate(DataLoader)#X.__next__", "aten::mm")
        trace = read_trace(write([event(cat="Operator", name=name) for name in names]))
        assert (len(trace.annotations), len(trace.operators)) == (2, 1)


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "nanoseconds"),
        [
            ("1712195495502094.565", 1712195495502094565),
            ("4458676522690.655", 4458676522690655),
            ("1623142623460111", 1623142623460111000),
            ("0.001", 1),
            ("12.5", 12500),
            ("12.50", 12500),
            ("12.123999", 12123),
            ("1e3", 1000000),
            ("1.5E-2", 15),
            ('"42.125"', 42125),
        ],
    )
    def test_exact(self, write, text, nanoseconds):
        op = OP.replace('"ts": 5', f'"ts": {text}')
        assert read_trace(write(lines([op]))).operators.start_ns.tolist() == [nanoseconds]

    def test_mixed_precision(self, write):
        texts = ["1", "2.5", "3.25", "4.125", "1712195495502094.565"]
        trace = read_trace(write(lines([OP.replace('"ts": 5', f'"ts": {t}') for t in texts])))
        assert trace.operators.start_ns.tolist() == [1000, 2500, 3250, 4125, 1712195495502094565]

    @pytest.mark.parametrize("text", ["null", "{}", '"soon"', "1e99", "9" * 30, "true"])
    def test_unusable_times_are_counted(self, write, text):
        trace = read_trace(write(lines([OP, OP.replace('"ts": 5', f'"ts": {text}')])))
        assert len(trace.operators) == 1
        assert trace.losses.num_lost == 1

    def test_negative_duration_is_none_at_all(self, write):
        trace = read_trace(write([event(dur=-3)]))
        assert (trace.operators.end_ns - trace.operators.start_ns).tolist() == [0]


class TestOddValues:
    def test_large_integers_and_odd_identifiers(self, write):
        events = [
            kernel(correlation=10159970886766084423),
            event(pid="Spans", tid="Traces", args={"Comms Id": 2**64 - 1}),
            event(pid=2**70, tid=[1], args=None),
            event(cat="kernel", name="ncclKernel", pid=2, tid="stream 7"),
        ]
        trace = read_trace(write(events))
        assert len(trace.operators) == 2
        assert trace.gpu.correlation.tolist() == [-1, -1]
        assert trace.gpu.device.tolist() == [0, 2]
        assert trace.gpu.stream.tolist() == [7, 7]
        assert not trace.losses.any

    def test_arguments_of_the_wrong_type(self, write):
        odd = kernel(
            grid="?", block=[1, 2], device="1", correlation="8", **{"blocks per SM": "2.5"}
        )
        trace = read_trace(write([odd, kernel(grid=[4, 2, 1], block=[32, 1, 1])]))
        assert trace.gpu.num_blocks.tolist() == [-1, 8]
        assert trace.gpu.device.tolist() == [1, 0]
        assert trace.gpu.correlation.tolist() == [8, -1]
        assert trace.gpu.blocks_per_sm[0] == 2.5

    def test_not_a_number(self, write):
        text = json.dumps(kernel(**{"blocks per SM": float("inf"), "x": float("nan")}))
        assert "Infinity" in text
        trace = read_trace(write(lines([text, OP])))
        assert np.isnan(trace.gpu.blocks_per_sm).all()
        assert trace.losses.num_mended == 1
        assert trace.losses.num_lost == 0

    def test_an_event_whose_name_is_no_text_is_lost(self, write):
        trace = read_trace(write(lines([OP.replace('"op"', "7"), OP])))
        assert len(trace.operators) == 1
        assert trace.losses.num_lost == 1

    def test_deep_nesting(self, write):
        deep = OP[:-1] + ', "args": ' + "[" * 100_000 + "]" * 100_000 + "}"
        trace = read_trace(write(lines([OP, deep, OP])))
        assert len(trace.operators) >= 2


class TestDamage:
    UNESCAPED = '{"ph": "X", "cat": "cpu_op", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'

    @pytest.mark.parametrize(
        "name",
        [
            '{"device": "cpu", "dtype": "float32"}(1): run',
            'f("a", "b")',
            r"C:\Users\me\train.py(3): <module>",
            '"',
        ],
    )
    def test_unescaped_names(self, write, name):
        trace = read_trace(write(lines([OP, self.UNESCAPED % name, OP])))
        assert len(trace.operators) == 3
        assert trace.losses.num_mended == 1
        assert trace.names[trace.operators.name[1]] == name

    def test_an_event_beyond_repair_costs_only_itself(self, write):
        trace = read_trace(write(lines([OP, '{"ph": "X", "name": {{{', OP, OP])))
        assert len(trace.operators) == 3
        assert trace.losses.num_lost == 1
        assert "1 event could not be read" in str(trace.losses)

    def test_every_cut_is_survived(self, write):
        """A file cut anywhere gives the events before the cut, or one clear error."""
        text = json.dumps({"a": 1, "traceEvents": [event(name=f"op{i}") for i in range(4)], "b": 2})
        whole = [text.index(f'"op{i}"') for i in range(4)]
        for stop in range(1, len(text)):
            path = write(text[:stop])
            if stop < whole[1]:
                try:
                    assert len(read_trace(path).operators) <= 1
                except UsageError as error:
                    assert str(path) in str(error)  # noqa: PT017
                continue
            trace = read_trace(path)
            assert len(trace.operators) >= sum(stop > start for start in whole) - 1
            assert trace.losses.truncated == (stop <= text.index('], "b"'))

    @pytest.fixture
    def packed(self):
        """2,000 events, gzipped."""
        events = [event(name=f"op{i * 7919 % 1000}", ts=i * 31 % 977) for i in range(2000)]
        return gzip.compress(json.dumps({"traceEvents": events}).encode())

    def test_cut_gzip_streams(self, write, packed):
        for stop in range(len(packed) // 12, len(packed) - 8, len(packed) // 12):
            trace = read_trace(write(packed[:stop], "cut.gz.json"))
            assert 0 < len(trace.operators) <= 2000
            assert trace.losses.damage == "the gzip stream is cut"
        trace = read_trace(write(packed[:-4], "cut.gz.json"))
        assert len(trace.operators) == 2000
        assert trace.losses.damage

    def test_damaged_gzip_stream(self, write, packed):
        damaged = bytearray(packed)
        damaged[len(packed) // 2] ^= 0xFF
        trace = read_trace(write(bytes(damaged), "broken.gz.json"))
        assert len(trace.operators) > 100
        assert trace.losses.any

    @pytest.mark.parametrize(
        ("name", "events", "lost", "mended"),
        [
            ("malformed_torch213_unescaped_quotes.json", 49, 0, 1),
            ("malformed_truncated_gzip.json.gz", 875, 1, 0),
            ("malformed_truncated_json.json.gz", 853, 1, 0),
        ],
    )
    def test_recorded_damage(self, recorded, expected, name, events, lost, mended):
        trace = read_trace(recorded / "small" / name)
        wanted = expected["traces"][f"small/{name}"]["recoverable"]
        assert trace.num_events == events >= wanted["events_recovered"]
        assert (trace.losses.num_lost, trace.losses.num_mended) == (lost, mended)
        assert trace.losses.truncated == (not wanted["array_closed"])
        assert bool(trace.losses.damage) == (not wanted["gzip_complete"])
        assert trace.losses.first_damage_byte


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


def test_half_a_character_in_the_name_of_a_device(write):
    document = '{"deviceProperties": [{"id": 0, "name": "A\\ud800"}], "traceEvents": [' + OP + "]}"
    assert read_trace(write(document)).devices[0].name == "A?"
