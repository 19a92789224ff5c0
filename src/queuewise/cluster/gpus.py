"""The catalogue of GPU kinds: memory, speed and power of each kind, and the source of these values.

A kind has one name here and may have several spellings in logs; `gpu_kind` resolves all of them. Values are per GPU as seen by a scheduler
(a K80 board counts as two, an MI250 module as one). `fp16_tflops` is the dense half-precision peak with fp32 accumulation on matrix units,
or the fp32 peak if half precision is not faster. To add a kind, add one line to `CATALOGUE` and one to docs/clusters.md (a test compares
them).
"""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.errors import unknown_name


@dataclass(frozen=True)
class GpuKind:
    name: str
    memory_gib: float
    fp16_tflops: float
    fp32_tflops: float
    idle_watts: float
    peak_watts: float
    source: str


def _kind(name: str, memory_gib: float, fp16_tflops: float, fp32_tflops: float, peak_watts: float, source: str) -> GpuKind:
    """Data sheets state only the peak power. The idle power is assumed to be a tenth of it."""
    return GpuKind(name, memory_gib, fp16_tflops, fp32_tflops, round(peak_watts / 10, 1), peak_watts, source)


CATALOGUE: tuple[GpuKind, ...] = (
    _kind("K80", 12, 4.4, 4.4, 150, "NVIDIA Tesla K80 board specification BD-07317, half a board of 8.74 TFLOPS with boost"),
    _kind("P4", 8, 5.5, 5.5, 75, "NVIDIA Tesla P4 data sheet"),
    _kind("P40", 24, 12.0, 12.0, 250, "NVIDIA Tesla P40 data sheet, which rounds 3,840 cores at 1,531 MHz (11.76) to 12"),
    _kind("P100", 16, 18.7, 9.3, 250, "NVIDIA Tesla P100 data sheet, PCIe"),
    _kind("T4", 16, 65.0, 8.1, 70, "NVIDIA T4 data sheet"),
    _kind("V100-16", 16, 125.0, 15.7, 300, "NVIDIA V100 data sheet, SXM2"),
    _kind("V100-32", 32, 125.0, 15.7, 300, "NVIDIA V100 data sheet, SXM2"),
    _kind("A10", 24, 125.0, 31.2, 150, "NVIDIA A10 data sheet"),
    _kind("A30", 24, 165.0, 10.3, 165, "NVIDIA A30 data sheet"),
    _kind("A40", 48, 149.7, 37.4, 300, "NVIDIA A40 data sheet"),
    _kind("A100-40", 40, 312.0, 19.5, 400, "NVIDIA A100 data sheet, SXM4"),
    _kind("A100-80", 80, 312.0, 19.5, 400, "NVIDIA A100 data sheet, SXM4"),
    _kind("A800-80", 80, 312.0, 19.5, 400, "NVIDIA A100 data sheet, SXM4: an A800 is an A100 whose NVLink goes 400 instead of 600 GB/s"),
    _kind("L4", 24, 121.0, 30.3, 72, "NVIDIA L4 data sheet, half of what it gives with sparsity (242)"),
    _kind("L40S", 48, 362.0, 91.6, 350, "NVIDIA L40S data sheet"),
    _kind("H100", 80, 989.4, 66.9, 700, "NVIDIA H100 data sheet and Hopper architecture paper, SXM5"),
    _kind("H800", 80, 989.4, 66.9, 700, "NVIDIA H100 data sheet, SXM5: an H800 is an H100 with NVLink cut to 400 GB/s, and fp64"),
    _kind("H200", 141, 989.4, 66.9, 700, "NVIDIA H200 data sheet, SXM, half of what it gives with sparsity (1,979)"),
    _kind("RTX3090", 24, 71.0, 35.6, 350, "NVIDIA Ampere GA102 architecture paper"),
    _kind("RTX4090", 24, 165.2, 82.6, 450, "NVIDIA Ada architecture paper"),
    _kind("MI250", 128, 362.1, 45.3, 500, "AMD Instinct MI250 data sheet, the whole module, whose two chips may appear as two GPUs"),
    _kind("MISC", 12, 4.4, 4.4, 150, "PAI's name for its older GPUs (K40m, K80, M60); figures of K80"),
    _kind("G2", 24, 125.0, 31.2, 150, "openb hides the model; our guess: figures of A10"),
    _kind("G3", 40, 312.0, 19.5, 400, "openb hides the model; our guess: figures of A100-40"),
    _kind("GPU-series-1", 24, 125.0, 31.2, 150, "the Alibaba spot trace hides the model; our guess: figures of A10"),
    _kind("GPU-series-2", 80, 312.0, 19.5, 400, "the Alibaba spot trace hides the model; our guess: figures of A100-80"),
    _kind("PHILLY-12", 12, 18.7, 9.3, 250, "Philly publishes only the memory; our guess: figures of P100"),
    _kind("PHILLY-24", 24, 12.0, 12.0, 250, "Philly publishes only the memory; our guess: figures of P40"),
)

# Spellings found in logs and in nvidia-smi, after `_squash`: lower case without vendor, blanks, "-", "_" or "gb".
_ALIASES: dict[str, str] = {
    "v100": "V100-16", "v100m16": "V100-16", "v100m32": "V100-32",
    "v10016": "V100-16", "v100sxm216": "V100-16", "v100pcie16": "V100-16", "v100sxm232": "V100-32", "v100pcie32": "V100-32",
    "v100sxm2": "V100-16", "p100pcie16": "P100", "p100sxm216": "P100", "p10016": "P100",
    "a100": "A100-40", "a100sxm4": "A100-40", "a100sxm440": "A100-40", "a100pcie40": "A100-40",
    "a100sxm480": "A100-80", "a100pcie80": "A100-80", "a10080pcie": "A100-80",
    "a800": "A800-80", "a800sxm480": "A800-80", "a800sxm4": "A800-80",
    "h100sxm5": "H100", "h100sxm580": "H100", "h10080hbm3": "H100", "h10080": "H100", "h100pcie": "H100",
    "h80080": "H800", "h800sxm5": "H800",
    "4090": "RTX4090", "3090": "RTX3090", "other": "MISC",
}  # fmt: skip


def gpu_kind(name: str) -> GpuKind:
    """The kind with this name, in any spelling used in logs."""
    found = _BY_SPELLING.get(_squash(name))
    if found is None:
        raise unknown_name("GPU kind", name, (kind.name for kind in CATALOGUE))
    return found


def _squash(name: str) -> str:
    text = name.lower()
    for noise in ("nvidia", "geforce", "tesla", "amd", "instinct", "gb", " ", "-", "_"):
        text = text.replace(noise, "")
    return text


_BY_NAME = {kind.name: kind for kind in CATALOGUE}
_BY_SPELLING = {_squash(kind.name): kind for kind in CATALOGUE} | {alias: _BY_NAME[name] for alias, name in _ALIASES.items()}
