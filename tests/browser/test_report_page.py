"""The report in a real Chromium: no console error, nothing leaves the page, figures drawn, zoom works, 100,000 jobs stay responsive."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile import LINK, hostile_report
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.results import flatten
from queuewise.report.charts import make_charts
from queuewise.report.html import render
from queuewise.report.text_tables import metric_table
from stand_in import busy_days, line_up, small_cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


def page_of(folder: Path, num_jobs: int, num_nodes: int, policies: list[str]) -> Path:
    jobs = busy_days(num_jobs, num_gpus=8 * num_nodes)
    replays = [measure(line_up(jobs, small_cluster(num_nodes), policy)) for policy in policies]
    charts, reasons = make_charts(replays)
    rows = [{"policy": m.schedule.policy, **flatten(all_metrics(m))} for m in replays]
    path = folder / "report.html"
    path.write_text(render(replays, charts, reasons, {"metrics": metric_table(rows)}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Opened:
    """A page from disk, with what it said and what it asked for."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1400, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.address = path.as_uri()
        self.page.goto(self.address)
        self.page.wait_for_selector("body[data-ready=yes]", state="attached", timeout=60_000)

    def zoom(self, share: float) -> float:
        """Drag over `share` of the Gantt's width and height from its upper left; seconds until it is drawn again."""
        plot = self.page.locator("#gantt .nsewdrag").first
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        self.page.mouse.move(box["x"] + 5, box["y"] + 5)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + 5 + box["width"] * share, box["y"] + 5 + box["height"] * share, steps=4)
        before = self.page.evaluate("document.querySelector('#gantt .plot').layout.xaxis.range[1]")
        began = time.perf_counter()
        self.page.mouse.up()
        self.page.wait_for_function("(before) => document.querySelector('#gantt .plot').layout.xaxis.range[1] < before", arg=before)
        self.page.wait_for_timeout(60)  # longer than the page waits before it redraws
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
        return time.perf_counter() - began


@pytest.fixture(
    scope="module", params=[(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")], ids=lambda view: f"{view[1]}-{view[0]}"
)
def themed(browser: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Opened:
    width, scheme = request.param
    page = page_of(tmp_path_factory.mktemp("themed"), 300, 2, ["line", "line-600"])
    return Opened(browser, page, width=width, scheme=scheme)


def brightness(colour: str) -> float:
    """Between 0 and 255, of rgb(…)."""
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3


def test_a_page_of_any_width_and_theme_is_drawn_and_never_scrolls_sideways(themed: Opened) -> None:
    page = themed.page
    assert themed.problems == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator("#charts figure .main-svg").count() >= 13
    outside = """() => [...document.querySelectorAll("main *")]
        .filter((one) => !one.closest(".wide") && one.getBoundingClientRect().width > 0)
        .filter((one) => one.getBoundingClientRect().right > window.innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []


def test_ink_and_page_differ_in_both_themes(themed: Opened) -> None:
    style = "(name) => getComputedStyle(document.querySelector(name))"
    dark = themed.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    for name, ground in (("#answer", "body"), ("h2", "section"), ("td", "section"), ("figcaption", "figure"), ("#facts, header p", "body")):
        ink = brightness(themed.page.evaluate(f"({style})('{name}').color"))
        paper = brightness(themed.page.evaluate(f"({style})('{ground}').backgroundColor"))
        assert (paper < 60) == dark
        assert abs(ink - paper) > 90, name
    lines = themed.page.locator("#queue .scatterlayer .js-line").evaluate_all("(lines) => lines.map((line) => line.style.stroke)")
    card = brightness(themed.page.evaluate(f"({style})('figure').backgroundColor"))
    assert all(abs(brightness(line) - card) > 70 for line in lines), lines


def test_a_wide_table_says_that_it_scrolls(themed: Opened) -> None:
    for table in themed.page.locator(".wide").all():
        wider = table.evaluate("(table) => table.scrollWidth > table.clientWidth")
        assert table.locator("xpath=following-sibling::p[1]").is_visible() == wider
    assert themed.page.evaluate("innerWidth") == 1400 or themed.page.locator(".scrolls:visible").count() > 0


@pytest.fixture(scope="module")
def small(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return Opened(browser, page_of(tmp_path_factory.mktemp("small"), 1500, 2, ["line", "line-600"]))


def test_no_error_and_no_request_leaves_the_page(small: Opened) -> None:
    assert small.problems == []
    assert [url for url in small.requests if url != small.address and not url.startswith(("data:", "blob:"))] == []


def test_every_figure_is_drawn(small: Opened) -> None:
    figures = small.page.locator("#charts figure")
    assert figures.count() == 13
    for index in range(figures.count()):
        figure = figures.nth(index)
        marks = figure.locator(".scatterlayer .js-line, .scatterlayer .point, .barlayer .point").count()
        assert marks > 0, figure.get_attribute("id")
        assert figure.locator(".main-svg").first.bounding_box()["width"] > 300


def test_axis_titles_and_legend_do_not_overlap(small: Opened) -> None:
    for key in ("wait-cdf", "size", "queue"):
        title = small.page.locator(f"#{key} .xtitle").bounding_box()
        legend = small.page.locator(f"#{key} .legend").bounding_box()
        assert title["y"] + title["height"] <= legend["y"] + 1, key


def test_gantt_shows_bars_from_near_and_everything_again_on_double_click(small: Opened) -> None:
    gantt = small.page.locator("#gantt")
    whole = small.page.evaluate("document.querySelector('#gantt .plot').layout.xaxis.range[1]")
    small.zoom(0.3)
    assert gantt.get_attribute("data-detail") == "bars"
    assert 0 < gantt.locator(".barlayer .point").count() < 4000
    box = gantt.locator(".nsewdrag").first.bounding_box()
    small.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    small.page.wait_for_function("(whole) => document.querySelector('#gantt .plot').layout.xaxis.range[1] === whole", arg=whole)


def test_another_policy_can_be_chosen(small: Opened) -> None:
    small.page.select_option("#gantt-policy", "1")
    assert small.page.locator("#gantt-policy option:checked").text_content() == "line-600"
    assert small.page.locator("#gantt .main-svg").count() > 0
    assert small.problems == []


def test_a_chart_zooms(small: Opened) -> None:
    plot = small.page.locator("#queue .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    before = small.page.evaluate("document.querySelector('#queue .plot').layout.xaxis.range")
    small.page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
    small.page.mouse.down()
    small.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 120, steps=4)
    small.page.mouse.up()
    small.page.wait_for_function("(before) => document.querySelector('#queue .plot').layout.xaxis.range[1] < before[1]", arg=before)


def test_hostile_names_stay_names(browser: Any, tmp_path: Path) -> None:
    """Nothing runs, loads or links; every figure is drawn, and the names are shown as they are."""
    opened = Opened(browser, hostile_report(tmp_path) / "report.html")
    page = opened.page
    assert opened.problems == []
    assert [url for url in opened.requests if url != opened.address and not url.startswith(("data:", "blob:"))] == []
    assert page.title().startswith("@@data@@ on @@data@@<img")
    assert page.locator("a[href], img, iframe, form, [onerror]").count() == 0
    assert page.locator("a").evaluate_all("(links) => links.filter((link) => link.getAttribute('xlink:href')).length") == 0
    figures = page.locator("#charts figure")
    assert figures.count() > 8
    assert all(figures.nth(index).locator(".main-svg").count() > 0 for index in range(figures.count()))
    assert any(LINK in name for name in page.locator("#wait-cdf .legendtext").all_text_contents())
    assert any(LINK in label for label in page.locator("#gantt .ytick text").all_text_contents())
    opened.zoom(0.3)
    page.evaluate("Plotly.Fx.hover(document.querySelector('#gantt .plot'), [{ curveNumber: 0, pointNumber: 0 }])")
    page.wait_for_selector("#gantt .hoverlayer .hovertext")
    assert "GPU" in page.locator("#gantt .hoverlayer").text_content()
    assert page.locator("#gantt .hoverlayer a").count() == 0
    assert page.title().startswith("@@data@@ on")
    assert opened.problems == []


def test_a_script_that_is_not_the_pages_own_does_not_run(browser: Any, tmp_path: Path) -> None:
    """What the policy of the page is for, should a name become markup in spite of everything."""
    path = page_of(tmp_path, 200, 1, ["line"])
    text = path.read_text(encoding="utf-8")
    planted = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\"><base href='https://example.org/'>"
    path.write_text(text.replace("<main>", f"<main>{planted}"), encoding="utf-8")
    opened = Opened(browser, path)
    assert opened.page.title() == "busy-days on 1-nodes"
    assert opened.page.evaluate("document.baseURI") == opened.address
    assert len([problem for problem in opened.problems if "Content Security Policy" in problem]) == 4


def test_a_hundred_thousand_jobs_stay_responsive(browser: Any, tmp_path: Path) -> None:
    """The first look is the grid made at write time; two zooms reach the bars, each drawn in well under a second on an idle machine."""
    opened = Opened(browser, page_of(tmp_path, 100_000, 25, ["line"]))
    gantt = opened.page.locator("#gantt")
    assert gantt.get_attribute("data-detail") == "grid"
    assert gantt.locator(".imagelayer image, .layer-above image").count() == 1
    seconds = [opened.zoom(0.25), opened.zoom(0.15)]
    assert max(seconds) < 3.0, seconds
    opened.zoom(0.3)
    assert gantt.get_attribute("data-detail") == "bars"
    assert gantt.locator(".barlayer .point").count() > 0
    assert opened.problems == []
