"""The catalogue holds what the issue asks for, resolves the spellings of real logs, and is documented."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from queuewise.cluster.gpus import CATALOGUE, gpu_kind
from queuewise.errors import InputError

DEMANDED = ("T4", "P4", "P100", "V100-16", "V100-32", "A10", "A100-40", "A100-80", "H100", "H800", "RTX4090", "MI250", "MISC")


@pytest.mark.parametrize("name", DEMANDED)
def test_demanded_kind_is_listed_under_its_own_name(name: str) -> None:
    assert gpu_kind(name).name == name


def test_names_are_unique_and_figures_are_positive() -> None:
    assert len({kind.name for kind in CATALOGUE}) == len(CATALOGUE)
    for kind in CATALOGUE:
        assert min(kind.memory_gib, kind.fp32_tflops, kind.idle_watts) > 0, kind
        assert kind.fp16_tflops >= kind.fp32_tflops, kind
        assert kind.idle_watts < kind.peak_watts, kind
        assert kind.source, kind


def test_every_name_resolves_to_itself_in_any_case() -> None:
    for kind in CATALOGUE:
        assert gpu_kind(kind.name) is kind
        assert gpu_kind(kind.name.lower()) is kind


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("V100", "V100-16"),
        ("V100M16", "V100-16"),
        ("V100M32", "V100-32"),
        ("Tesla V100-SXM2-32GB", "V100-32"),
        ("v100-16gb", "V100-16"),
        ("V100_32", "V100-32"),
        ("4090", "RTX4090"),
        ("RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("A800-SXM4-80GB", "A800-80"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("AMD Instinct MI250", "MI250"),
    ],
)
def test_spellings_of_logs_and_drivers_resolve(spelling: str, name: str) -> None:
    assert gpu_kind(spelling).name == name


def test_unknown_kind_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown GPU kind 'V100-61'.*did you mean 'V100-16'"):
        gpu_kind("V100-61")


@pytest.mark.parametrize(
    ("file", "column"),
    [("openb_node_list_all_node.csv", "model"), ("spot_v2026_nodes.csv", "gpu_model")],
)
def test_every_model_in_a_node_list_resolves(traces: Path, file: str, column: str) -> None:
    with (traces / "alibaba" / file).open(encoding="utf-8") as rows:
        models = {row[column] for row in csv.DictReader(rows)} - {""}
    assert len(models) >= 6
    assert len({gpu_kind(model).name for model in models}) == len(models)


def test_docs_list_exactly_the_catalogue(repository: Path) -> None:
    text = (repository / "docs" / "clusters.md").read_text(encoding="utf-8")
    table = text.split("## GPU catalogue")[1]
    documented = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")][1:]
    actual = [
        [
            kind.name,
            *(f"{value:g}" for value in (kind.memory_gib, kind.fp16_tflops, kind.fp32_tflops, kind.idle_watts, kind.peak_watts)),
            kind.source,
        ]
        for kind in CATALOGUE
    ]
    assert documented == actual
