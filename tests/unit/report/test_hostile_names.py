"""Names of workloads, clusters, users, jobs and policies stay text in every file of a report."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hostile import LINK, NAMES, POLICIES, SCRIPT, hostile_report
from queuewise.plain_text import figure_text, printable, table_cell
from queuewise.runs import file_name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_report(tmp_path_factory.mktemp("hostile"))


class Elements(HTMLParser):
    """What a browser would find: elements with their attributes, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open, data))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@pytest.fixture(scope="module")
def page(run: Path) -> Elements:
    found = Elements()
    found.feed((run / "report.html").read_text(encoding="utf-8"))
    return found


def test_names_add_no_element_to_the_page(page: Elements) -> None:
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    tags = [tag for tag, _ in page.found]
    assert tags.count("script") == 3
    assert not {"img", "a", "iframe", "form", "base", "object", "b"} & set(tags)
    assert not [attributes for _, attributes in page.found if any(name.startswith("on") or name == "style" for name in attributes)]


def test_places_of_the_template_are_filled_once(run: Path, page: Elements) -> None:
    assert ("title", "@@data@@ on @@data@@" + SCRIPT) in page.texts
    ids = set()
    for tag, text in page.texts:
        if tag == "script" and text.startswith('{"charts"'):
            assert "<" not in text
            ids |= {job for gantt in json.loads(text)["gantts"] for job in gantt["jobs"]["id"]}
    assert any(job.startswith("<!--<script>") for job in ids)


def test_the_policy_of_the_page_allows_its_own_scripts_alone(run: Path, page: Elements) -> None:
    (policy,) = [attributes["content"] for _, attributes in page.found if attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert [name for name, sources in directives.items() if "unsafe" in sources] == ["style-src-attr"]  # for plotly
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    text = (run / "report.html").read_text(encoding="utf-8")
    for tag in ("script", "style"):
        own = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(own) == {"script": 2, "style": 1}[tag]
        hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in own}
        assert hashes <= set(directives[f"{tag}-src"].split())


def test_tables_have_as_many_cells_as_columns_and_no_markup(run: Path) -> None:
    for path in (run / "tables").glob("*.md"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        assert "<" not in "".join(lines)
        assert "](" not in "".join(lines)
    for path in (run / "tables").glob("*.tex"):
        text = path.read_text(encoding="utf-8")
        assert r"\input" not in text
        assert r"\textbackslash{}input\{y\}" in text
        assert r"\frac" not in text


def test_figures_are_drawn_and_valid(run: Path) -> None:
    drawn = list((run / "figures").glob("*.svg"))
    assert len(drawn) > 8
    assert {ET.parse(path).getroot().tag for path in drawn} == {"{http://www.w3.org/2000/svg}svg"}


def test_spreadsheets_do_not_compute_names(run: Path) -> None:
    with (run / "summary.csv").open(encoding="utf-8", newline="") as file:
        assert sorted(row["policy"] for row in csv.DictReader(file)) == sorted(map(table_cell, POLICIES))
    with (run / file_name("line") / "batsim_jobs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["workload_name"] for row in rows} == {"'@@data@@"}
    assert not [row["job_id"] for row in rows if row["job_id"].startswith(("=", "@"))]


def test_the_trace_is_json_with_the_names_as_they_are(run: Path) -> None:
    with gzip.open(run / file_name(POLICIES[1]) / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == {POLICIES[1]}
    assert all(event["args"]["name"].startswith((SCRIPT, LINK)) for event in events if event["name"] == "process_name")


@pytest.mark.parametrize(
    ("text", "cell"), [("=1+1", "'=1+1"), ("@SUM(A1)", "'@SUM(A1)"), ("-1", "-1"), ("+5e3", "+5e3"), ("sjf+easy", "sjf+easy"), ("", "")]
)
def test_cells_that_a_spreadsheet_would_compute_are_quoted(text: str, cell: str) -> None:
    assert table_cell(text) == cell


def test_terminals_and_figures_get_no_codes() -> None:
    assert printable("\x1b]0;stolen\x07 a\nb \udcff") == "?]0;stolen? a?b ?"
    assert figure_text("$x$\x00") == r"\$x\$?"
    assert all(printable(name).isprintable() for name in NAMES)
