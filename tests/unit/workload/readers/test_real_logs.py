"""The published logs: counts as their README says, recorded waits exactly as recorded."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from queuewise.workload import load_workload
from queuewise.workload.readers.lsf import parse_record

# file, format, jobs; all rows of these files become jobs
WHOLE = [
    ("helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "helios", 77_574),
    ("helios/venus_sample_cluster_log.csv", "helios", 1_034),
    ("philly/philly_jobs_2017-09_to_10.csv.gz", "philly", 52_849),
    ("alibaba/openb_pod_list_default.csv", "openb", 8_152),
    ("alibaba/openb_pod_list_gpuspec33.csv", "openb", 8_152),
    ("alibaba/spot_v2026_jobs_1.csv.gz", "spot", 116_717),
    ("alibaba/pai_v2020_tasks_sample.csv.gz", "pai", 60_105),
    ("swf/HPC2N-2002-2.2-cln.swf.gz", "swf", 202_871),
    ("swf/CTC-SP2-1996-3.1-cln.swf.gz", "swf", 77_222),
    ("swf/KTH-SP2-1996-2.swf.gz", "swf", 28_489),
    ("swf/lublin_256.swf.gz", "swf", 10_000),
    ("swf/lublin_256_new2.swf.gz", "swf", 10_000),
    ("swf/SDSC-SP2_reconstructed.swf.gz", "swf", 54_006),
    ("slurm/xdmod_phillips_sacct.log.gz", "slurm", 4_285),
    ("slurm/nrel_eagle_sample.csv", "eagle", 1_000),
    ("lsf/lsb.acct.xdmod", "lsf", 2),  # the file and its expected JSON hold two records
    ("rltune/synthetic_trace.csv", "rltune", 960),  # 959 line ends: the last line has none
]


@pytest.mark.parametrize(("name", "format", "jobs"), WHOLE)
def test_all_rows_become_jobs(traces: Path, name: str, format: str, jobs: int) -> None:
    loaded = load_workload(traces / name)
    assert loaded.format == format
    assert (len(loaded.workload), loaded.tally.rows_read, loaded.tally.kept, loaded.tally.skipped) == (jobs, jobs, jobs, {})


@pytest.mark.parametrize(
    ("name", "jobs"), [("job_events-part-00000-of-00500.csv.gz", 4_900), ("task_events-part-00001-of-00500.csv.gz", 1_324)]
)
def test_google_parts_account_for_every_job(traces: Path, name: str, jobs: int) -> None:
    loaded = load_workload(traces / "google" / name)
    assert loaded.format == "google2011"
    assert loaded.tally.rows_read == loaded.tally.kept + sum(loaded.tally.skipped.values()) == jobs
    assert (loaded.workload.submit > 600).all()  # the trace begins at 600 s; what came before has no submission


def test_venus_waits_and_runtimes_are_the_recorded_ones(traces: Path) -> None:
    path = traces / "helios/venus_sample_cluster_log.csv"
    with path.open() as stream:
        recorded = {int(row["job_id"]): (int(row["queue"]), int(row["duration"]), int(row["gpu_num"])) for row in csv.DictReader(stream)}
    workload = load_workload(path).workload
    found = zip(workload.job_id.tolist(), workload.recorded_wait, workload.runtime, workload.gpus, strict=True)
    assert {job: (wait, run, gpus) for job, wait, run, gpus in found} == recorded


def test_xdmod_waits_and_limits_are_the_recorded_ones(traces: Path) -> None:
    path = traces / "slurm/xdmod_phillips_sacct.log.gz"
    expected = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        fields = line.rstrip("\n").split("|")
        submit, start, end = (datetime.fromisoformat(fields[index]) for index in (10, 12, 13))
        expected[int(fields[0])] = (max(0.0, (start - submit).total_seconds()), (end - start).total_seconds(), float(fields[18]))
    workload = load_workload(path).workload
    found = zip(workload.job_id.tolist(), workload.recorded_wait, workload.runtime, workload.cores, strict=True)
    assert {job: (wait, run, cores) for job, wait, run, cores in found} == expected
    assert workload.gpus.sum() > 0
    assert workload.requested.max() == (37 * 24 + 14) * 3600


def test_xdmod_memory_flag_means_megabytes_a_core(traces: Path) -> None:
    """2147486648Mn is 2^31 + 3000: 3000 MB for each of 8 cores, as the allocation says as well."""
    workload = load_workload(traces / "slurm/xdmod_phillips_sacct.log.gz").workload
    job = int(np.flatnonzero(workload.job_id == 167758)[0])
    assert (workload.num_tasks[job], workload.cpu_milli[job], workload.mem_mib[job]) == (1, 8000, 24_000)


def test_lsf_records_are_as_expected(traces: Path) -> None:
    lines = (traces / "lsf/lsb.acct.xdmod").read_text().splitlines()
    expected = json.loads((traces / "lsf/lsb.acct.xdmod.expected.json").read_text())
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        record = parse_record(line)
        names = list(wanted)
        common = names[: names.index("submit_ext_num") + 1]
        assert {name: record[name] for name in common} == {name: wanted[name] for name in common}
        beyond = [value for name, value in wanted.items() if name not in common and name not in {"walltime", "resource_name", "node_list"}]
        assert record["rest"] == beyond
        assert record["run_limit"] == 12 * 3600  # BSUB -W 12:00


@pytest.mark.parametrize(
    ("jobs", "table", "nodes", "gpus"),
    [
        ("alibaba/openb_pod_list_default.csv", "alibaba/openb_node_list_all_node.csv", 1_523, 6_212),
        ("alibaba/spot_v2026_jobs_1.csv.gz", "alibaba/spot_v2026_nodes.csv", 4_278, 10_412),
        ("alibaba/pai_v2020_tasks_sample.csv.gz", "alibaba/pai_machine_spec.csv", 1_897, 6_742),
    ],
)
def test_machine_lists_give_the_cluster(traces: Path, jobs: str, table: str, nodes: int, gpus: int) -> None:
    cluster = load_workload(traces / jobs, tables=[traces / table]).cluster
    assert cluster is not None
    assert sum(group.count for group in cluster.nodes) == nodes
    assert sum(group.count * group.gpus for group in cluster.nodes) == gpus


def test_virtual_clusters_of_venus_give_the_cluster(traces: Path) -> None:
    cluster = load_workload(traces / "helios/venus_sample_cluster_log.csv", tables=[traces / "helios/Venus_vc_config.csv"]).cluster
    assert cluster is not None
    assert sum(node.count for node in cluster.nodes) == 135
    assert sum(node.count * node.gpus for node in cluster.nodes) == 1_080  # the last day of Venus_cluster_gpu_number.csv
    assert {node.partition: node.count for node in cluster.nodes}["vcJsw"] == 32


def test_swf_headers_give_processors_and_epoch(traces: Path) -> None:
    loaded = load_workload(traces / "swf/HPC2N-2002-2.2-cln.swf.gz")
    assert loaded.cluster is not None
    assert (loaded.cluster.nodes[0].cpus, loaded.workload.epoch) == (240, 1_027_839_845)
    assert loaded.workload.submit[0] == 342_072  # not rebased
    assert (loaded.workload.runtime[0], loaded.workload.num_tasks[0], loaded.workload.requested[0]) == (43_306, 32, 43_200)
    assert loaded.workload.recorded_wait[0] == 32


def test_cut_durations_of_venus_are_counted(traces: Path) -> None:
    loaded = load_workload(traces / "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz")
    with gzip.open(traces / "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "rt") as stream:
        flagged = sum(row["duration_clamped_48h"] == "True" for row in csv.DictReader(stream))
    assert loaded.tally.filled == {"runtime": flagged}
    assert flagged > 1_000


def test_openb_pods_that_never_ran_are_counted(traces: Path) -> None:
    loaded = load_workload(traces / "alibaba/openb_pod_list_gpuspec33.csv")
    assert loaded.tally.filled == {"runtime": 897}
    assert ("V100-16", "V100-32") in loaded.workload.kind_sets


@pytest.mark.parametrize("name", ["KTH-SP2-1996-2", "CTC-SP2-1996-3.1-cln", "SDSC-SP2_reconstructed"])
def test_swf_numbers_are_those_of_a_plain_parser(traces: Path, name: str) -> None:
    """Line by line in plain Python, as the oracle of the fast path."""
    text = gzip.decompress((traces / "swf" / f"{name}.swf.gz").read_bytes()).decode()
    rows = [[float(field) for field in line.split()] for line in text.splitlines() if line.strip() and not line.startswith(";")]
    rows.sort(key=lambda row: row[1])
    job, submit, wait, run, procs, _, _, asked, limit = (np.array(column) for column in list(zip(*rows, strict=True))[:9])
    workload = load_workload(traces / "swf" / f"{name}.swf.gz").workload
    np.testing.assert_array_equal(workload.job_id, job)
    np.testing.assert_array_equal(workload.submit, submit)
    np.testing.assert_array_equal(workload.runtime, run)
    np.testing.assert_array_equal(workload.num_tasks, np.where(procs > 0, procs, asked))
    np.testing.assert_array_equal(workload.recorded_wait, np.where(wait < 0, np.nan, wait))
    np.testing.assert_array_equal(workload.requested, np.where(limit < 0, np.nan, limit))
