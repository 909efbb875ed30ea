"""The tab's routes, over HTTP, in a real TensorBoard."""

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.features.board.tensorboard_plugin import BatchAdvisorPlugin
from batchadvisor.session.recording.store import read_record
from msgspec.structs import replace
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from ..reports.test_html import bare_tables
from . import zoo
from .zoo import PLUGIN


class Tags(HTMLParser):
    """Collects start tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def target_of(descriptor):
    """What an open descriptor leads to; empty where it is closed already."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


class TestTab:
    def test_any_tensorboard_has_it(self, server):
        listing = json.loads(server.get("data/plugins_listing"))
        tab = listing["batch_advisor"]
        assert (tab["enabled"], tab["tab_name"]) == (True, "Batch Advisor")
        module = tab["loading_mechanism"]["module_path"]
        assert b"export function render" in server.get(module.lstrip("/"))
        entry = server.get("data/plugin_entry.html?name=batch_advisor")
        assert b'import("./index.js")' in entry

    def test_page_asks_only_this_server(self, server):
        status, headers, body = server.ask(f"{PLUGIN}/page")
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        sources = [
            value
            for _, attributes in Tags(body.decode()).tags
            for name, value in attributes.items()
            if name in ("src", "href")
        ]
        assert len(sources) >= 6
        for source in sources:
            assert source.startswith(("assets/", "data:,")), source
            if source.startswith("assets/"):
                status, headers, data = server.ask(f"{PLUGIN}/{source}")
                assert status == 200
                assert len(data) > 300
                assert headers["X-Content-Type-Options"] == "nosniff"

    def test_licence_of_what_is_shipped_is_served(self, server):
        assert b"MIT" in server.get(f"{PLUGIN}/assets/uplot/LICENSE")


class TestEntries:
    def test_all_are_listed_newest_first(self, server):
        entries = server.entries()
        kinds = {entry["name"]: entry["kind"] for entry in entries}
        hostile = zoo.HOSTILE.replace("\x1b", "\ufffd").rstrip("/")
        runs = {name for name, kind in kinds.items() if kind == "run"}
        assert runs == {
            "char_gpt", "gpu", "nothing_fits", "interrupted", "running", "damaged", "newer",
            hostile, "devices/cuda-0", "devices/cuda-1",
        }  # fmt: skip
        traces = {name for name, kind in kinds.items() if kind == "traces"}
        assert traces == {"foreign", "broken traces"}
        assert kinds["devices"] == "devices"
        assert len(kinds) == len(runs) + len(traces) + 1
        times = [entry["modified_s"] for entry in entries]
        assert times == sorted(times, reverse=True)

    def test_headlines_come_apart(self, server):
        keys = "&".join(f"key={server.key(name)}" for name in ("char_gpt", "newer"))
        lines = json.loads(server.get(f"{PLUGIN}/lines?{keys}&key=0000000000000000"))
        assert len(lines) == 2
        record = read_record(zoo.CHAR_GPT)
        assert lines[server.key("char_gpt")] == advise(record).headline
        assert "schema 9.0" in lines[server.key("newer")]


class TestRun:
    def test_the_records_values_are_shown(self, server):
        record = read_record(zoo.CHAR_GPT)
        text = Tags(server.show("char_gpt")).text
        advice = advise(record)
        assert advice.headline in text
        assert advice.verdict.message in text
        for finding in advice.findings:
            assert finding.message in text
        assert "CPU summary, by batch size" in text
        assert advice.tail is not None
        assert str(advice.tail.num_samples) in text

    def test_charts_carry_the_records_numbers(self, server):
        text = server.show("gpu")
        data = re.search(r'<script type="application/json" class="data">(.+?)</script>', text)
        charts = json.loads(data.group(1))
        record, _ = zoo.samples.gpu()
        chart = next(chart for key, chart in charts.items() if key.endswith("-throughput"))
        drawn = dict(zip(chart["x"], chart["series"][0]["values"], strict=True))
        measured = {
            trial.batch_size: trial.samples_per_s.median
            for trial in record.trials
            if trial.purpose == "search" and trial.samples_per_s is not None
        }
        assert measured
        for size in set(measured) - {trial.batch_size for trial in record.trials
                                     if trial.purpose == "confirm"}:  # fmt: skip
            assert drawn[size] == pytest.approx(measured[size], rel=1e-5)

    def test_gpu_summary_has_every_profiled_size(self, server):
        record, _ = zoo.samples.gpu()
        text = Tags(server.show("gpu")).text
        summary = text[text.index("GPU summary, by batch size") :]
        for trial in record.trials:
            if trial.profile is not None and trial.profile.busy_pct is not None:
                assert f"{trial.profile.busy_pct:.0f}%" in summary

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("nothing_fits", "No batch size can be recommended"),
            ("interrupted", "interrupted"),
            ("running", "has not finished"),
            ("damaged", "is not a record"),
            ("newer", "has schema 9.0"),
        ],
    )
    def test_what_there_is_is_shown(self, server, name, words):
        assert words in Tags(server.show(name)).text

    def test_several_devices_are_one_page(self, server):
        text = Tags(server.show("devices")).text
        assert "cuda-0" in text
        assert "cuda-1" in text
        assert "Side by side" in text
        key = server.key("devices")
        lines = json.loads(server.get(f"{PLUGIN}/lines?key={key}"))
        assert "cuda-1" in lines[key]

    def test_a_change_is_seen(self, server, logdir):
        name = "grows"
        record, _ = zoo.samples.gpu()
        path = zoo.put_record(logdir / name, replace(record, state="running",
                                                                         trials=()))  # fmt: skip
        _until(lambda: name in [entry["name"] for entry in server.entries()])
        before = next(entry for entry in server.entries() if entry["name"] == name)
        assert "has not finished" in Tags(server.show(name)).text
        zoo.put_record(logdir / name, record)
        _until(
            lambda: (
                next(entry for entry in server.entries() if entry["name"] == name)["version"]
                != before["version"]
            )
        )
        assert "Use batch size 256" in Tags(server.show(name)).text
        path.unlink()
        _until(lambda: name not in [entry["name"] for entry in server.entries()])
        status, _, body = server.ask(f"{PLUGIN}/show?key={before['key']}")
        assert status == 404
        assert b"there is no such run" in body


class TestTraces:
    def test_foreign_ones_are_summarised(self, server):
        text = Tags(server.show("foreign")).text
        assert "60% of its time for the DataLoader" in text
        assert "aten::mm<b>" in text
        assert "ProfilerStep#" not in text
        assert "CPU summary" in text

    def test_broken_ones_say_so(self, server):
        text = Tags(server.show("broken traces")).text
        assert "This cannot be shown" in text
        assert "cut.pt.trace.json" in text

    def test_files_come_back_as_they_are(self, server, logdir):
        links = re.findall(r'href="(trace/[^"]+)"', server.show("foreign"))
        assert len(links) == 2
        bodies = []
        for link in links:
            status, headers, body = server.ask(f"{PLUGIN}/{link}")
            assert status == 200
            assert headers["Content-Disposition"].startswith("attachment")
            assert "Content-Encoding" not in headers
            bodies.append(body)
        on_disk = [path.read_bytes() for path in (logdir / "foreign").glob("*.json*")]
        assert sorted(bodies) == sorted(on_disk)
        assert any(
            b"traceEvents" in gzip.decompress(body) for body in bodies if body[:1] == b"\x1f"
        )

    def test_a_trace_that_nobody_reads_is_closed(self, logdir):
        """HEAD: the headers alone, and no file of it stays open."""
        plugin = BatchAdvisorPlugin(TBContext(logdir=str(logdir)))
        apps = plugin.get_plugin_apps()
        (entry,) = (entry for entry in plugin._board.entries() if entry.name == "foreign")
        app = Client(apps["/trace/*"])
        for trace in entry.traces:
            answer = app.head(f"/data/plugin/batch_advisor/trace/{entry.key}/{trace.key}/x")
            assert int(answer.headers["Content-Length"]) == trace.num_bytes
            assert answer.data == b""
            answer.close()
            held = map(target_of, Path("/proc/self/fd").iterdir())
            assert [value for value in held if "foreign" in value] == []


def test_two_and_more_are_compared_and_tables_have_captions_and_heads_with_a_scope(server):
    names = ("gpu", "char_gpt", "interrupted", "newer")
    keys = [f"key={server.key(name)}" for name in names]
    two, more = (server.get(f"{PLUGIN}/compare?{'&'.join(keys[:end])}").decode() for end in (2, 4))
    assert "Size by size" in Tags(two).text
    for words in ("comparison of 3 runs", "newer is left out", "Different devices"):
        assert words in Tags(more).text
    for text in (*map(server.show, ("char_gpt", "gpu", "devices", "foreign")), two, more):
        assert bare_tables(text) == []


class TestHostile:
    def test_names_are_escaped(self, server):
        name = zoo.HOSTILE.replace("\x1b", "\ufffd").rstrip("/")
        text = server.show(name)
        tags = Tags(text).tags
        assert not [tag for tag in tags if tag[0] == "img"]
        scripts = [attributes for tag, attributes in tags if tag == "script"]
        assert scripts == [{"type": "application/json", "class": "data"}]
        assert not [value for _, value in tags if any(name.startswith("on") for name in value)]
        assert "<script>alert(1)<script>.pt.trace.json" in Tags(text).text
        assert "\x1b" not in text
        keys = f"key={server.key(name)}&key={server.key('gpu')}&key={server.key('char_gpt')}"
        compared = Tags(server.get(f"{PLUGIN}/compare?{keys}").decode())
        assert not [tag for tag in compared.tags if tag[0] == "img"]
        assert "<img src=x" in compared.text

    @pytest.mark.parametrize(
        "path",
        [
            "show?key=../../secret.txt",
            "show?key=%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "show?key=",
            "show",
            "show?key=<script>alert(1)</script>",
            "compare?key=nothing",
            "assets/../../../../records/run.py",
            "assets/%2e%2e/%2e%2e/__init__.py",
            "assets/../pages.py",
            "assets//etc/passwd",
            "trace/../../secret.txt",
            "trace/%2e%2e/secret.txt/x",
            "trace/0/0/secret.txt",
            "viewer/../../../etc/passwd",
            "viewer/%2e%2e/__init__.py",
            "viewer/service_worker.js",
            "viewer/trace_processor",
        ],
    )
    def test_nothing_else_is_served(self, server, path):
        status, headers, body = server.ask(f"{PLUGIN}/{path}")
        assert status == 404
        assert b"secret" not in body
        assert b"root:" not in body
        assert headers["Content-Type"].startswith("text/plain")

    def test_a_trace_needs_its_own_run(self, server):
        link = re.search(r'href="trace/([^/]+)/([^/]+)/', server.show("foreign"))
        other = server.key("gpu")
        assert server.ask(f"{PLUGIN}/trace/{other}/{link.group(2)}/x")[0] == 404
        assert server.ask(f"{PLUGIN}/trace/{link.group(1)}/{link.group(2)}/x")[0] == 200

    def test_nothing_is_written(self, server):
        assert server.ask(f"{PLUGIN}/entries", method="POST")[0] == 405
        assert server.ask(f"{PLUGIN}/entries", method="DELETE")[0] == 405

    def test_every_page_has_a_policy_of_its_own(self, server):
        key = server.key("gpu")
        for path in ("page", f"show?key={key}", f"compare?key={key}&key={server.key('char_gpt')}"):
            _, headers, _ = server.ask(f"{PLUGIN}/{path}")
            assert headers["Content-Type"].startswith("text/html")
            policies = headers.get_all("Content-Security-Policy")
            assert len(policies) == 1
            assert policies[0].startswith("default-src 'none'")


def test_tensorboards_log_has_no_warning(server):
    """Runs last in this file: after every kind of page was served."""
    for address in ("page", "entries", f"show?key={server.key('gpu')}"):
        server.get(f"{PLUGIN}/{address}")
    assert server.complaints() == []


def _until(true, limit_s=20):
    end = zoo.time.monotonic() + limit_s
    while not true():
        assert zoo.time.monotonic() < end
        zoo.time.sleep(0.2)
