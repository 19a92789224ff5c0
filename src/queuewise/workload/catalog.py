"""Public traces: address, size, licence, citation and reader of each.

A checksum is given if the publisher states one or the original file was available. Otherwise it is None, and `unverified` has the reason.
Compressed files need no unpacking: readers handle gzip and tar.
"""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.errors import unknown_name

_ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload"
_ALIBABA_GIT = "https://raw.githubusercontent.com/alibaba/clusterdata/master"
_PAI = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
_GOOGLE = "https://storage.googleapis.com/clusterdata-2011-2"
_ARCHIVE_TERMS = "free for research; acknowledge the archive and the log's owner"
_FEITELSON = "D. Feitelson, D. Tsafrir, D. Krakov: Experience with using the Parallel Workloads Archive, JPDC 74(10), 2014"
_WENG_2022 = "Q. Weng et al.: MLaaS in the Wild, NSDI 2022"
_WENG_2023 = "Q. Weng et al.: Beware of Fragmentation, USENIX ATC 2023"
_REISS = "C. Reiss, J. Wilkes, J. Hellerstein: Google cluster-usage traces: format + schema, 2011"
_NO_SUM = "the publisher states no checksum"


@dataclass(frozen=True)
class TraceFile:
    address: str
    sha256: str | None
    size_bytes: int | None  # None if unknown

    @property
    def name(self) -> str:
        return self.address.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class PublicTrace:
    name: str
    title: str
    format: str  # the reader
    files: tuple[TraceFile, ...]  # the table of jobs first
    licence: str
    citation: str
    cluster: str = ""  # for --cluster, with the size that the literature uses; empty if none is included
    unverified: str = ""  # why a checksum is missing
    then: str = ""  # next step for archives with several files


def _archive(name: str, title: str, processors: int, path: str, sha256: str | None, size: int | None) -> PublicTrace:
    file = TraceFile(f"{_ARCHIVE}/{path}", sha256, size)
    title = f"{title} on {processors} processors"
    return PublicTrace(name, title, "swf", (file,), _ARCHIVE_TERMS, _FEITELSON, f"flat:{processors}", "" if sha256 else _NO_SUM)


TRACES: tuple[PublicTrace, ...] = (
    _archive("hpc2n", "HPC2N Seth, 2002-2006, 202,871 jobs", 240, "l_hpc2n/HPC2N-2002-2.2-cln.swf.gz",
             "3c534857d6065cfd9cc35aac8d064c9c17172be7acf336de835006f43a626e64", 2_997_773),
    _archive("ctc-sp2", "CTC IBM SP2, 1996-1997, 77,222 jobs", 338, "l_ctc_sp2/CTC-SP2-1996-3.1-cln.swf.gz",
             "9fa28ac16c4386fb81b72a91d8bd8888281df2948a9d912769d387c5ee285bb4", 1_487_336),
    _archive("kth-sp2", "KTH IBM SP2, 1996-1997, 28,489 jobs", 100, "l_kth_sp2/KTH-SP2-1996-2.swf.gz", None, None),
    _archive("sdsc-sp2", "SDSC IBM SP2, 1998-2000", 128, "l_sdsc_sp2/SDSC-SP2-1998-4.2-cln.swf.gz", None, None),
    PublicTrace("philly", "Microsoft Philly, 2017: 117,325 jobs with attempts, and the machine list", "philly",
                (TraceFile("https://github.com/msr-fiddle/philly-traces/raw/master/trace-data.tar.gz", None, None),),
                "CC-BY-4.0", "M. Jeon et al.: Analysis of Large-Scale Multi-Tenant GPU Clusters, USENIX ATC 2019", "philly", _NO_SUM,
                "unpack it; read cluster_job_log with --tables cluster_machine_list"),
    PublicTrace("helios", "SenseTime Helios, 2020: Venus, Earth, Saturn, Uranus", "helios",
                (TraceFile("https://github.com/S-Lab-System-Group/HeliosData/raw/master/data.zip", None, None),),
                "CC-BY-4.0", "Q. Hu et al.: Characterization and Prediction of Deep Learning Workloads, SC 2021", "venus", _NO_SUM,
                "unpack it; read one cluster's cluster_log.csv; the cluster is that of Venus"),
    PublicTrace("pai", "Alibaba PAI, 2020: tasks, jobs, tags and machines of 1,800 machines", "pai",
                (TraceFile(f"{_PAI}/pai_task_table.tar.gz", "cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5", None),
                 TraceFile(f"{_PAI}/pai_job_table.tar.gz", "5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0", None),
                 TraceFile(f"{_PAI}/pai_group_tag_table.tar.gz", "722fef30b7fb7aa50dabd79155614b5423a9d65cf45a9b26c590d57725423a14", None),
                 TraceFile(f"{_PAI}/pai_machine_spec.tar.gz", "cc0d38a4045af1b1af8179de8b1b54b1ddd995e6160d6d061a6b1000f1276c2d", None)),
                "CC-BY-4.0", _WENG_2022, "pai"),
    PublicTrace("openb", "Alibaba openb, 2023: 8,152 pods, 1,523 nodes", "openb",
                (TraceFile(f"{_ALIBABA_GIT}/cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv",
                           "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8", 575_468),
                 TraceFile(f"{_ALIBABA_GIT}/cluster-trace-gpu-v2023/csv/openb_node_list_all_node.csv",
                           "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15", 52_287)),
                "Apache-2.0", _WENG_2023, "openb"),
    PublicTrace("spot", "Alibaba spot GPU, 2026: 466,867 jobs, 4,278 nodes", "spot",
                (TraceFile(f"{_ALIBABA_GIT}/cluster-trace-v2026-spot-gpu/job_info_df.csv", None, None),
                 TraceFile(f"{_ALIBABA_GIT}/cluster-trace-v2026-spot-gpu/node_info_df.csv", None, None)),
                "not stated", "Alibaba: traces for AI jobs leveraging spot GPU resources, ASPLOS 2026", unverified=_NO_SUM),
    PublicTrace("alibaba2018", "Alibaba 2018: batch tasks of 4,000 machines in 8 days", "alibaba2018",
                (TraceFile("https://clusterdata2018pubcn.oss-cn-beijing.aliyuncs.com/batch_task.tar.gz", None, None),),
                "free for research; cite Alibaba's cluster trace program", "Alibaba Open Cluster Trace Program, v2018", unverified=_NO_SUM),
    PublicTrace("google2011", "Google ClusterData2011-2: the first part of job and task events (of 500)", "google2011",
                (TraceFile(f"{_GOOGLE}/task_events/part-00000-of-00500.csv.gz", None, None),
                 TraceFile(f"{_GOOGLE}/job_events/part-00000-of-00500.csv.gz", None, None)),
                "CC-BY-4.0", _REISS, unverified="the checksums of all parts are in SHA256SUM in the same bucket"),
    PublicTrace("acme", "Acme, 2023: Seren and Kalos", "acme",
                (TraceFile("https://github.com/InternLM/AcmeTrace/raw/main/data/job_trace/trace_seren.csv", None, None),),
                "CC-BY-4.0", "Q. Hu et al.: Characterization of Large Language Model Development in the Datacenter, NSDI 2024",
                unverified=_NO_SUM),
)  # fmt: skip


def find_trace(name: str) -> PublicTrace:
    for trace in TRACES:
        if trace.name == name:
            return trace
    raise unknown_name("trace", name, [trace.name for trace in TRACES])
