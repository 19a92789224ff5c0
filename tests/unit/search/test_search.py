from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster.cluster_loader import load_cluster
from queuewise.cluster.conditions import PERFECT
from queuewise.errors import InputError
from queuewise.evaluation.energy import energy_kwh
from queuewise.evaluation.measure import Measurement, last_event
from queuewise.evaluation.protocol import SHAKE_S
from queuewise.policies import simulate
from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.policies.window_replays import ReplayOptions
from queuewise.search.beginnings import beginnings, best_beginnings
from queuewise.search.evolution import REFERENCES, Journal, SearchSettings, cost_of, known_references, search
from queuewise.search.heuristics import heuristics
from queuewise.search.objective import parse_objective, total_of
from queuewise.search.stretches import FILLING, LOADS, PARTS, RUNTIMES, Figures, Stretch, Stretches
from queuewise.workload.models import generate
from queuewise.workload.transform import shake, vary

MACHINE = load_cluster("flat:256")
JOBS = generate("lublin", 600, 5)
SETTINGS = SearchSettings({"bsld": 1.0, "wait": 1.0}, population=4, stretch_jobs=120)
FIFO = FoundRule((0.0,) * len(NUMBERS), scheduling="+easy", estimates="oracle")


def stretches(jobs: range = range(400)) -> Stretches:
    return Stretches(JOBS, MACHINE, jobs, ReplayOptions("reorder", "oracle", 0, False, PERFECT))


def test_a_stretch_is_a_replay_of_its_shaken_jobs() -> None:
    stretch = Stretch(50, 350, 7)
    jobs, _ = shake(JOBS.take(slice(50, 350)), SHAKE_S, 7, boundary=int(300 * FILLING))
    schedule = simulate(jobs, MACHINE, "fcfs+easy", estimates="oracle")
    waits = np.array_split((schedule.start - jobs.submit)[int(300 * FILLING) :], PARTS)
    figures = stretches().replay(["sjf+easy", "fcfs+easy"], stretch)
    assert figures.wait[1] == pytest.approx([part.mean() for part in waits])
    assert figures.max_wait[1] == pytest.approx([part.max() for part in waits])
    assert figures.bsld[0].mean() < figures.bsld[1].mean()


def test_stretches_are_drawn_inside_the_range() -> None:
    rng = np.random.default_rng(0)
    drawn = [stretches(range(100, 400)).draw(rng, 60) for _ in range(50)]
    assert min(one.first for one in drawn) >= 100
    assert max(one.stop for one in drawn) <= 400
    assert {one.stop - one.first for one in drawn} == {60}
    assert len({one.shake for one in drawn}) == 50
    whole = stretches(range(100, 400)).draw(rng, 1000)
    assert (whole.first, whole.stop) == (100, 400)


def test_varied_stretches_have_other_runtimes_and_another_load() -> None:
    """The engine replays the jobs that `vary` makes, and their estimates are varied alike."""
    stretch = stretches(range(100, 400)).draw(np.random.default_rng(0), 300, varies=True)
    jobs, _ = shake(JOBS.take(slice(100, 400)), SHAKE_S, stretch.shake, boundary=int(300 * FILLING))
    varied, factors = vary(jobs, RUNTIMES, LOADS, stretch.shake)
    assert np.std(np.log(factors)) == pytest.approx(RUNTIMES, rel=0.2)
    assert LOADS[0] < np.ptp(jobs.submit) / np.ptp(varied.submit) < LOADS[1]
    waits = simulate(varied, MACHINE, "sjf+easy", estimates="oracle").start - varied.submit
    figures = stretches().replay(["sjf+easy", FoundRule((1.0, *[0.0] * (len(NUMBERS) - 1)))], stretch)
    expected = [part.mean() for part in np.array_split(waits[int(300 * FILLING) :], PARTS)]
    assert figures.wait[0] == pytest.approx(expected)
    assert figures.wait[1] == pytest.approx(expected)


def test_cost_is_nothing_for_the_reference_and_below_it_for_better_ones() -> None:
    ones = np.ones((3, 4))
    figures = Figures(bsld=ones * [[2.0], [4.0], [4.0]], wait=ones * 300.0, max_wait=ones * 1e4)
    assert cost_of(figures, {"bsld": 1.0, "wait": 1.0}, 1) == pytest.approx([np.log(0.5), 0.0])


def test_cost_is_relative_to_the_best_reference_of_the_stretch() -> None:
    ones = np.ones((3, 4))
    figures = Figures(bsld=ones * [[2.0], [8.0], [4.0]], wait=ones * 300.0, max_wait=ones * 1e4)
    assert cost_of(figures, {"bsld": 1.0, "wait": 1.0}, 2) == pytest.approx([np.log(0.5)])


def test_a_figure_cannot_be_paid_for_by_another() -> None:
    ones = np.ones((2, 4))
    figures = Figures(bsld=ones * [[2.0], [4.0]], wait=ones * [[4200.0], [1800.0]], max_wait=ones * 1e4)
    assert cost_of(figures, {"bsld": 1.0, "wait": 1.0}, 1) == pytest.approx([np.log(0.5) + 3 * np.log(4800 / 2400)])


def test_waits_that_are_too_long_cost_more() -> None:
    ones, day = np.ones((3, 4)), 86_400.0
    figures = Figures(bsld=ones, wait=ones * 300.0, max_wait=ones * [[8 * day], [80 * day], [4 * day]] - 3600.0)
    assert cost_of(figures, {"bsld": 1.0}, 1) == pytest.approx([0.1 * np.log(2), 0.1 * np.log(20) + np.log(10)])


def test_an_interrupted_search_continues_to_the_same_rule(tmp_path: Path) -> None:
    def run(path: Path, generations: int) -> list[FoundRule]:
        journal = Journal(path, {"a": 1}, SETTINGS.population)
        found = search(stretches(), FIFO, ["fcfs+easy"], SETTINGS, journal, lambda: False)
        return [generation.rule for generation in islice(found, generations)]

    through = run(tmp_path / "through", 3)
    run(tmp_path / "cut", 1)
    with (tmp_path / "cut").open("a") as file:
        file.write("[0.1, 0.")  # killed while it was writing
    assert run(tmp_path / "cut", 3) == through
    assert len((tmp_path / "cut").read_text().splitlines()) == 4


def test_the_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal", {"a": 1}, 4)
    with pytest.raises(InputError, match="another search"):
        Journal(tmp_path / "journal", {"a": 2}, 4)


def test_a_journal_names_the_policy_that_its_costs_are_relative_to(tmp_path: Path) -> None:
    assert known_references(tmp_path / "journal") is None
    Journal(tmp_path / "journal", {REFERENCES: ["fcfs"]}, 2).add([0.5, 1.5])
    assert known_references(tmp_path / "journal") == ["fcfs"]


@pytest.mark.parametrize(
    "line", ["", "[0.1, 0.", "[0.1]", "[0.1, 0.2, 0.3]", '[0.1, "x"]', "[0.1, NaN]", "{}", "null", "[" * 99_999, "\xff"]
)
def test_a_damaged_line_of_a_journal_ends_it(line: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path, {}, 2).add([0.5, 1.5])
    path.write_bytes(path.read_bytes() + line.encode("latin-1") + b"\n[2.0, 3.0]\n")
    again = Journal(path, {}, 2)
    assert again.told == [[0.5, 1.5]]
    again.add([4.0, 5.0])
    assert Journal(path, {}, 2).told == [[0.5, 1.5], [4.0, 5.0]]


@pytest.mark.parametrize(
    ("first", "message"), [("", "is damaged"), ('{"refer', "is damaged"), ("[]", "another search"), ('{"a": 1}', "another search")]
)
def test_a_journal_with_a_damaged_first_line_is_refused(first: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text(f"{first}\n[0.5, 1.5]\n")
    with pytest.raises(InputError, match=f"journal: {message}|journal: is the journal of {message}"):
        Journal(tmp_path / "journal", {}, 2)
    assert "[0.5, 1.5]" in (tmp_path / "journal").read_text()


def test_search_finds_that_short_jobs_should_go_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", {}, 8)
    settings = SearchSettings({"bsld": 1.0}, population=8, stretch_jobs=300)
    *_, last = islice(search(stretches(), FIFO, ["fcfs+easy"], settings, journal, lambda: False), 6)
    first, final = json.loads((tmp_path / "journal").read_text().splitlines()[1]), last
    assert final.cost < min(0.0, max(first))
    assert final.rule.numbers[NUMBERS.index("log_runtime")] > 0
    assert final.rule.numbers[NUMBERS.index("age")] >= 0


def test_the_search_begins_where_it_is_best() -> None:
    rules = beginnings("oracle")
    assert all(rule.order_estimates == "" for rule in rules)
    chosen = best_beginnings(stretches(), [FIFO, *rules], ["fcfs+easy"], SETTINGS, 3)
    assert FIFO not in chosen
    assert len({rule.scheduling for rule in chosen}) == len(chosen) == 3
    assert any(rule.order_estimates == "predicted" for rule in beginnings("requested"))


def test_heuristics_cover_orders_backfills_bounds_and_predictions() -> None:
    names = heuristics("requested")
    assert names[0] == "wise"
    assert len(set(names)) == len(names) > 200
    assert {"saf+conservative~3d", "saf:predicted+easy", "wfp3+greedy", "fcfs+easy"} <= set(names)
    assert not any("predicted" in name for name in heuristics("oracle"))


@pytest.mark.parametrize("text", ["", "bsld +", "bsld + bsld", "energy", "0*bsld", "-1*wait", "nan*wait"])
def test_objectives_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="objective"):
        parse_objective(text)


def test_objectives() -> None:
    assert parse_objective("bsld + 0.5*wait") == {"bsld": 1.0, "wait": 0.5}
    assert parse_objective("wait+0.2*energy + 2*deadlines") == {"wait": 1.0, "energy": 0.2, "deadlines": 2.0}


def test_an_objective_has_waits_or_slowdowns() -> None:
    with pytest.raises(InputError, match="neither bsld nor wait") as error:
        parse_objective("energy")
    assert error.value.hint == 'add one of them, for example "wait + energy"'


def test_totals_are_written_so_that_less_is_better() -> None:
    assert total_of("energy", {"energy_kwh": 3.0}) == 3.0
    assert total_of("fairness", {"jain_index": 0.5}) == 2.0
    assert total_of("utilisation", {"gpu_utilisation": None, "cpu_utilisation": 0.8}) == pytest.approx(1.25)
    assert total_of("deadlines", {"deadline_misses": 0}) == 1.0
    with pytest.raises(InputError, match="the cluster states no watts"):
        total_of("energy", {"energy_kwh": None})


def test_totals_of_a_stretch_are_those_of_its_replay() -> None:
    jobs, machine = generate("hetero", 300, 1), load_cluster("hetero56")
    whole = Stretches(jobs, machine, range(300), ReplayOptions("reorder", "oracle", 0, False, PERFECT), ("energy",))
    stretch = Stretch(0, 300, 7)
    filling = int(300 * FILLING)
    shaken, _ = shake(jobs, SHAKE_S, 7, boundary=filling)
    expected = []
    for policy in ("fcfs+easy", "sjf+greedy"):
        schedule = simulate(shaken, machine, policy, estimates="oracle")
        counted = Measurement(schedule, slice(filling, 300), float(shaken.submit[filling]), last_event(schedule))
        expected.append(energy_kwh(counted))
    assert expected[0] != expected[1]
    assert whole.replay(["fcfs+easy", "sjf+greedy"], stretch).totals["energy"] == pytest.approx(expected)


def test_totals_count_in_the_cost_like_any_figure() -> None:
    ones = np.ones((2, 4))
    figures = Figures(bsld=ones, wait=ones, max_wait=ones * 1e4, totals={"energy": np.array([50.0, 100.0])})
    assert cost_of(figures, {"bsld": 1.0, "energy": 0.2}, 1) == pytest.approx([0.2 * np.log(0.5)])


@pytest.mark.parametrize("seed", [2**32 - 1, 2**32, 2**70])
def test_any_seed_is_one(seed: int, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", {}, SETTINGS.population)
    found = next(search(stretches(), FIFO, ["fcfs+easy"], replace(SETTINGS, seed=seed), journal, lambda: True))
    assert np.isfinite(found.cost)
