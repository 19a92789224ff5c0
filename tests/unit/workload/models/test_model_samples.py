"""Each model draws what its description says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.workload import load_workload
from queuewise.workload.models import generate
from queuewise.workload.models.distributions import ROUND_LIMITS_S, burst_arrivals, lognormal, requested_limits
from queuewise.workload.transform import offered_load


@pytest.mark.parametrize(("name", "gpus"), [("poisson", 32), ("hetero", 56), ("bench", 2000)])
@pytest.mark.parametrize("load", [0.5, 0.95])
def test_gpu_models_offer_the_load_asked_for(name: str, gpus: int, load: float) -> None:
    workload = generate(name, 40_000, seed=1, load=load, gpus=gpus)
    assert offered_load(workload, gpus=gpus) == pytest.approx(load, rel=0.02)


def test_eda_offers_the_load_asked_for() -> None:
    assert offered_load(generate("eda", 20_000, load=0.6, cores=300), cores=300) == pytest.approx(0.6, rel=0.03)


def test_poisson_gaps_are_exponential_and_runtimes_too() -> None:
    workload = generate("poisson", 50_000, seed=2)
    gaps = np.diff(workload.submit)
    for values in (gaps, workload.runtime):
        assert values.std() / values.mean() == pytest.approx(1.0, abs=0.02)
        assert np.median(values) / values.mean() == pytest.approx(np.log(2), abs=0.01)
    sizes, counts = np.unique(workload.num_tasks, return_counts=True)
    assert sizes.tolist() == [1, 2, 4, 8]
    assert counts / len(workload) == pytest.approx([0.6, 0.2, 0.1, 0.1], abs=0.01)


def test_bursty_has_the_published_mix() -> None:
    workload = generate("bursty", 100_000, seed=5)
    d = workload.runtime / 1e4
    assert d.min() >= 0.01
    assert d.max() <= 1.0
    assert (d <= 0.08).mean() == pytest.approx(0.85, abs=0.005)
    long = d[d > 0.08]
    assert np.median(long) == pytest.approx(np.sqrt(0.08 * 1.0), rel=0.03)  # log-uniform: the median is the geometric mean of the ends
    assert np.corrcoef(d, workload.num_tasks)[0, 1] > 0.5
    assert np.corrcoef(d, workload.priority)[0, 1] < -0.5
    assert set(workload.num_tasks) <= set(range(1, 9))
    assert set(workload.priority) <= set(range(1, 11))


def test_bursts_hold_their_share_within_three_sigma() -> None:
    rng = np.random.default_rng(0)
    times = burst_arrivals(rng, 200_000, 1000.0, 1, 0.8, 0.01)
    centre = np.median(times)
    if not 30 < centre < 970:
        pytest.fail("the burst is cut off at the edge of the span; choose another seed")
    inside = (np.abs(times - centre) < 30).mean()
    assert inside == pytest.approx(0.8 * 0.9973 + 0.2 * 0.06, abs=0.005)
    assert times[0] >= 0
    assert times[-1] <= 1000


def test_hetero_published_rate_and_classes() -> None:
    workload = generate("hetero", 50_000, seed=1, arrival_rate=2.5)
    assert len(workload) / workload.submit[-1] == pytest.approx(2.5, rel=0.02)
    assert set(workload.priority) == {0.5, 1.0, 2.5, 5.0}
    assert workload.runtime.min() == 1.0
    assert np.median(workload.runtime) == pytest.approx(3000, rel=0.02)
    assert np.bincount(workload.num_tasks)[1:] / len(workload) == pytest.approx([1 / 8] * 8, abs=0.01)


def test_eda_jobs_come_in_steps() -> None:
    workload = generate("eda", 20_000, seed=1, step_s=1.0, max_arrivals=7)
    steps, counts = np.unique(workload.submit, return_counts=True)
    assert (np.diff(steps) == 1.0).all()
    assert set(counts[:-1]) == set(range(1, 8))
    assert (workload.num_tasks == 1).all()
    assert set(workload.cpu_milli) == {1000, 2000, 3000, 4000}
    assert set(workload.mem_mib) == {512, 1024, 2048, 4096, 8192, 16384}
    assert (workload.gpu_milli == 0).all()


def test_bench_puts_up_to_a_node_in_one_task_and_gangs_above() -> None:
    workload = generate("bench", 50_000, seed=1)
    shapes = set(zip(workload.num_tasks.tolist(), workload.gpu_milli.tolist(), strict=True))
    assert shapes == {(1, 1000), (1, 2000), (1, 4000), (1, 8000), (2, 8000), (4, 8000)}
    shares = [(workload.gpus == size).mean() for size in (1, 2, 4, 8, 16, 32)]
    assert shares == pytest.approx([0.5, 0.15, 0.15, 0.14, 0.04, 0.02], abs=0.01)


def test_bench_queue_is_thousands_deep_in_its_bursts() -> None:
    """A fluid cluster of 2,000 GPUs that serves at full rate is the best any policy can do."""
    workload = generate("bench", 100_000, seed=1)
    work = workload.gpus * workload.runtime
    arrived = np.cumsum(work) - 2000 * workload.submit
    backlog = arrived - np.minimum.accumulate(arrived - work)
    assert (backlog / work.mean()).max() > 5000


def test_lublin_agrees_with_the_published_sample(traces: Path) -> None:
    """lublin_256 was made by the authors' program with the same parameters; a tenth in the quantiles is its sampling error."""
    log = load_workload(traces / "swf" / "lublin_256.swf.gz").workload
    model = generate("lublin", 50_000, seed=1, processors=256)
    assert (model.num_tasks == 1).mean() == pytest.approx((log.num_tasks == 1).mean(), abs=0.01)
    assert (np.log2(model.num_tasks) % 1 == 0).mean() == pytest.approx((np.log2(log.num_tasks) % 1 == 0).mean(), abs=0.02)
    assert model.num_tasks.mean() == pytest.approx(log.num_tasks.mean(), rel=0.05)
    assert model.num_tasks.max() == 256
    for ours, theirs in ((model.runtime, log.runtime), (np.diff(model.submit), np.diff(log.submit))):
        quantiles = (0.1, 0.25, 0.5, 0.75, 0.9)
        assert np.quantile(ours, quantiles) == pytest.approx(np.quantile(theirs, quantiles), rel=0.1)


def test_lublin_larger_jobs_run_longer_and_days_have_a_rhythm() -> None:
    workload = generate("lublin", 50_000, seed=1)
    assert workload.runtime[workload.num_tasks >= 64].mean() > 1.2 * workload.runtime[workload.num_tasks == 1].mean()
    by_hour = np.bincount((workload.submit // 3600 % 24).astype(int), minlength=24)
    assert by_hour[11:17].mean() > 4 * by_hour[2:6].mean()


def test_lognormal_has_the_mean_asked_for() -> None:
    values = lognormal(np.random.default_rng(0), 400_000, 100.0, 1.0)
    assert values.mean() == pytest.approx(100, rel=0.02)
    assert np.log(values).std() == pytest.approx(1.0, rel=0.01)


def test_requests_are_round_and_never_below_the_runtime() -> None:
    rng = np.random.default_rng(0)
    runtime = rng.exponential(3600, 20_000)
    requested = requested_limits(rng, runtime, 2.0)
    assert (requested >= runtime).all()
    assert np.isin(requested, ROUND_LIMITS_S).all()
    assert requested_limits(rng, np.array([1e8]), 2.0)[0] >= 1e8  # beyond the longest round time: the wish itself
    assert 2.0 < np.median(requested / runtime) < 3.0
