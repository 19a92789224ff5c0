"""Models fitted to logs: near the log, exact in what they promise, and the same after a trip through TOML."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.workload import ReadOptions, Workload, load_workload
from queuewise.workload.fitting import compare_fit, fit, quantile_table
from queuewise.workload.jobs import constant
from queuewise.workload.models import generate
from queuewise.workload.models.fitted import FittedModel, QuantileTable

LOGS = {
    "philly": "philly/philly_jobs_2017-09_to_10.csv.gz",
    "venus": "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz",
    "pai": "alibaba/pai_v2020_tasks_sample.csv.gz",
}


@pytest.fixture(scope="module")
def campaign() -> Workload:
    """Four weeks of a made-up centre: busy days, calm nights, two partitions, users who repeat named jobs and ask for round times."""
    rng = np.random.default_rng(11)
    hours = np.arange(28 * 24)
    rate = np.where((hours % 24 >= 8) & (hours % 24 < 20), 18.0, 2.0)
    counts = rng.poisson(rate)
    submit = np.sort(np.floor((np.repeat(hours, counts) + rng.random(counts.sum())) * 3600))
    num = len(submit)
    user = rng.choice(4, num, p=[0.5, 0.3, 0.15, 0.05]).astype(np.int32)
    size = np.where(user == 0, 1, 4).astype(np.int32)
    runtime = np.floor(np.exp(rng.normal(5 + user, 0.7))) + 1
    return Workload(
        submit=submit,
        runtime=runtime,
        num_tasks=size,
        gpu_milli=constant(1000, num, np.int32),
        requested=np.where(user == 3, np.nan, np.ceil(runtime / 3600) * 3600),
        partition=(user >= 2).astype(np.int32),
        partitions=("batch", "long"),
        user=user,
        users=("ann", "bo", "cy", "di"),
        job_name=(user * 3 + rng.integers(0, 3, num)).astype(np.int32),
        epoch=1_600_000_000.0 // 86400 * 86400,
        name="campaign",
    )


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_shipped_models_are_within_a_tenth_of_their_logs(traces: Path, name: str, seed: int) -> None:
    log = load_workload(traces / LOGS[name]).workload
    report = compare_fit(log, generate(name, seed=seed))
    assert {(row.quantity, row.probability) for row in report.quantiles} == {
        (q, p) for q in ("size", "runtime_s", "gap_s") for p in (0.1, 0.5, 0.9, 0.99)
    }
    assert report.worst_error < 0.1, [row for row in report.quantiles if row.error >= 0.1]
    assert max(report.kolmogorov_smirnov.values()) < 0.03
    assert report.work_ratio == pytest.approx(1.0, abs=0.2)
    one_hour = report.autocorrelation[1]
    assert one_hour[1] > 0.25  # arrivals that come in bursts; a Poisson process has about its rhythm only
    assert one_hour[1] == pytest.approx(one_hour[0], abs=0.35)


@pytest.mark.parametrize("name", LOGS)
def test_shipped_parameters_are_those_the_script_fits(traces: Path, name: str) -> None:
    shipped = FittedModel.load(Path(generate.__code__.co_filename).parent / f"{name}.toml")
    assert fit(load_workload(traces / LOGS[name]).workload, name, shipped.source) == shipped


def test_model_survives_toml(campaign: Workload, tmp_path: Path) -> None:
    model = fit(campaign)
    model.save(tmp_path / "campaign.toml")
    assert FittedModel.load(tmp_path / "campaign.toml") == model
    by_path = generate(str(tmp_path / "campaign.toml"), 50, seed=2)
    direct = model.sample(np.random.default_rng(2), 50)
    assert np.array_equal(by_path.submit, direct.submit)
    assert np.array_equal(by_path.runtime, direct.runtime)


def test_any_log_quantiles_are_met_by_every_sample(campaign: Workload) -> None:
    model = fit(campaign)
    for seed in range(3):
        report = compare_fit(campaign, model.sample(np.random.default_rng(seed)))
        assert report.worst_error < 0.1, report.quantiles


def test_days_are_busy_and_nights_calm_as_in_the_log(campaign: Workload) -> None:
    sample = fit(campaign).sample(np.random.default_rng(1))
    shares = []
    for workload in (campaign, sample):
        hour = (workload.epoch + workload.submit) // 3600 % 24
        shares.append(((hour >= 8) & (hour < 20)).mean())
    assert shares[1] == pytest.approx(shares[0], abs=0.06)


def test_runtimes_depend_on_the_size_as_in_the_log(campaign: Workload) -> None:
    sample = fit(campaign).sample(np.random.default_rng(1))
    for size in (1, 4):
        ours, theirs = sample.runtime[sample.gpus == size], campaign.runtime[campaign.gpus == size]
        assert np.median(ours) == pytest.approx(np.median(theirs), rel=0.05)


def test_demands_partitions_and_users_keep_their_shares(campaign: Workload) -> None:
    sample = fit(campaign).sample(np.random.default_rng(1))
    assert (sample.num_tasks == 4).mean() == pytest.approx((campaign.num_tasks == 4).mean(), abs=0.001)
    assert sample.partitions == ("batch", "long")
    assert (sample.partition == 1).mean() == pytest.approx((campaign.partition == 1).mean(), abs=0.001)
    ours, theirs = (np.sort(np.bincount(w.user) / len(w)) for w in (sample, campaign))
    assert ours == pytest.approx(theirs, abs=0.05)
    assert not set(sample.users) & set(campaign.users)  # the log's users stay with the log
    names_per_user = len(np.unique(np.stack([sample.user, sample.job_name]), axis=1)[0]) / len(np.unique(sample.user))
    assert names_per_user == pytest.approx(3, abs=0.5)


def test_requests_follow_the_runtimes_and_stay_round(campaign: Workload) -> None:
    sample = fit(campaign).sample(np.random.default_rng(1))
    known = ~np.isnan(sample.requested)
    assert known.mean() == pytest.approx((~np.isnan(campaign.requested)).mean(), abs=0.03)
    assert (sample.requested[known] % 3600 == 0).all()
    assert (sample.requested[known] >= sample.runtime[known]).mean() > 0.99  # as in the log, where nobody runs longer
    ours, theirs = (np.nanmean(w.requested[w.runtime > 3600]) for w in (sample, campaign))
    assert ours == pytest.approx(theirs, rel=0.1)
    assert np.nanmax(sample.requested[sample.runtime < 1000]) == 3600


def test_bursts_of_the_log_are_bursts_of_the_model() -> None:
    """Spells of a few hundred jobs with short gaps between calm spells: shuffled gaps would even the hours out, the model must not."""
    rng = np.random.default_rng(4)
    gaps = np.floor(rng.exponential(np.repeat(rng.choice([20.0, 400.0], 100), 200)))
    num = len(gaps)
    log = Workload(
        submit=np.cumsum(gaps), runtime=np.full(num, 60.0), num_tasks=np.ones(num, np.int32), cpu_milli=constant(1000, num, np.int32)
    )

    def unevenness(submit: np.ndarray) -> float:
        counts = np.bincount(((submit - submit[0]) // 3600).astype(int))
        return float(counts.var() / counts.mean())

    sample = fit(log).sample(np.random.default_rng(0))
    assert compare_fit(log, sample).worst_error < 0.1
    assert unevenness(sample.submit) > 3 * unevenness(np.cumsum(rng.permutation(gaps)))
    assert unevenness(sample.submit) > 0.4 * unevenness(log.submit)


def test_more_jobs_than_the_log_and_fewer(campaign: Workload) -> None:
    model = fit(campaign)
    assert len(model.sample(np.random.default_rng(0), 3)) == 3
    longer = model.sample(np.random.default_rng(0), 3 * len(campaign) + 1)
    assert len(longer) == 3 * len(campaign) + 1
    assert longer.submit[-1] > 2.5 * np.ptp(campaign.submit)


def test_many_kinds_of_jobs_are_merged_into_the_commonest() -> None:
    rng = np.random.default_rng(0)
    num = 3000
    log = Workload(
        submit=np.arange(num, dtype=np.float64) * 60,
        runtime=rng.exponential(100, num),
        num_tasks=np.ones(num, np.int32),
        cpu_milli=rng.integers(1, 2000, num).astype(np.int32),
    )
    model = fit(log)
    assert len(model.kinds.num_tasks) == 500
    sample = model.sample(np.random.default_rng(0))
    assert np.median(sample.cpu_milli) == pytest.approx(np.median(log.cpu_milli), rel=0.1)


@pytest.mark.parametrize(
    ("submit", "runtime"),
    [
        (np.zeros(300), np.arange(300.0)),
        (np.arange(300.0) * 10, np.zeros(300)),
        (np.arange(300.0) * 1000 - 1e6, np.ones(300)),
        (np.append(np.arange(299.0) * 10, 3e8), np.ones(300)),
        (np.cumsum(np.random.default_rng(0).random(300) * 1e-3), np.random.default_rng(1).random(300)),
    ],
    ids=["all at once", "no runtime", "negative times", "one gap of years", "parts of seconds"],
)
def test_odd_logs_are_fitted_all_the_same(submit: np.ndarray, runtime: np.ndarray) -> None:
    log = Workload(submit=submit, runtime=runtime, num_tasks=np.ones(300, np.int32), cpu_milli=constant(1000, 300, np.int32))
    model = fit(log)
    assert len(model.sample(np.random.default_rng(0), 1000)) == 1000
    assert compare_fit(log, model.sample(np.random.default_rng(0))).worst_error < 0.1


def test_too_few_jobs_are_refused(campaign: Workload) -> None:
    with pytest.raises(InputError, match="99 jobs are too few"):
        fit(campaign.take(slice(0, 99)))


@pytest.mark.parametrize(
    "damage",
    [
        ("jobs = ", "jbos = "),
        ("probabilities = [0.0", "probabilities = [0.5"),
        ("tier_of_hour = [", "tier_of_hour = [77, "),
        ("whole_seconds = true", ""),
    ],
)
def test_a_damaged_model_file_is_refused_by_name(campaign: Workload, tmp_path: Path, damage: tuple[str, str]) -> None:
    path = tmp_path / "damaged.toml"
    fit(campaign).save(path)
    text = path.read_text()
    assert damage[0] in text
    path.write_text(text.replace(*damage))
    with pytest.raises(InputError, match=r"damaged\.toml"):
        generate(str(path))


def test_quantile_table_meets_its_quantiles_and_ends() -> None:
    values = np.random.default_rng(0).lognormal(3, 2, 5000)
    table = quantile_table(values)
    assert table.at(np.array([0.0, 1.0])) == pytest.approx([values.min(), values.max()], rel=1e-6)
    assert table.at(np.array([0.25, 0.9])) == pytest.approx(np.quantile(values, [0.25, 0.9], method="hazen"), rel=1e-3)
    with pytest.raises(ValueError, match="ascending"):
        QuantileTable(probabilities=(0.0, 0.5, 1.0), seconds=(1.0, 3.0, 2.0))


def test_comparison_sees_a_difference(campaign: Workload) -> None:
    same = compare_fit(campaign, campaign)
    assert same.worst_error == 0
    assert same.work_ratio == 1
    assert set(same.kolmogorov_smirnov.values()) == {0.0}
    slower = compare_fit(campaign, campaign.replace(runtime=campaign.runtime * 2))
    assert slower.worst_error == pytest.approx(1.0)
    assert slower.work_ratio == pytest.approx(2.0)
    assert slower.kolmogorov_smirnov["runtime_s"] > 0.1
    assert slower.kolmogorov_smirnov["gap_s"] == 0


def test_a_model_brings_as_much_work_per_second_as_its_log(traces: Path) -> None:
    """Samples of KTH's tables have 93 % of its work per second. The pace mends that."""
    log = load_workload(traces / "swf" / "KTH-SP2-1996-2.swf.gz", options=ReadOptions(processors="requested", clean=True)).workload
    model = fit(log)
    assert 0.94 < model.pace < 0.97
    ratios = [compare_fit(log, model.sample(np.random.default_rng(seed))).work_ratio for seed in (10, 11, 12)]
    assert max(abs(ratio - 1.0) for ratio in ratios) < 0.05
    plain = model.model_copy(update={"pace": 1.0})
    assert compare_fit(log, plain.sample(np.random.default_rng(10))).work_ratio < 0.96
