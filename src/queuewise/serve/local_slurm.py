"""A real Slurm on this machine, on loopback only: munge, slurmctld and one slurmd per node, in a folder of its own.

It is for tests and for trying things out. The nodes pose as large machines and their GPUs are links to /dev/null, so jobs should do no
more than sleep.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from queuewise.errors import InputError

PROGRAMS = ("slurmctld", "slurmd", "munged", "squeue", "sinfo", "scontrol", "sbatch")
STARTING_S = 120.0  # how long the daemons may take to come up
STOPPING_S = 10.0
CORES_PER_NODE, NODE_MIB = 64, 256_000
LONGEST_SOCKET = 107  # characters in the path of a unix socket
LONGEST_STEP = ".4294967295"  # how the names of the sockets of steps end, after node and job
PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
CGROUP = """CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=no
ConstrainSwapSpace=no
"""


@dataclass(frozen=True)
class NodeKind:
    """`count` equal nodes, called NAME1, NAME2, …"""

    name: str
    count: int
    gpus: int = 0
    gpu_type: str = ""
    cores: int = CORES_PER_NODE
    mib: int = NODE_MIB
    features: tuple[str, ...] = ()

    @property
    def listed(self) -> str:
        return f"{self.name}[1-{self.count}]" if self.count > 1 else f"{self.name}1"


SIX_NODES = (NodeKind("a100n", 2, 8, "a100"), NodeKind("v100n", 2, 4, "v100"), NodeKind("t4n", 2, 2, "t4"))


def missing_programs() -> list[str]:
    """The programs of Slurm and munge that are not installed."""
    return [name for name in PROGRAMS if _found(name) is None]


def _found(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES))


@dataclass
class LocalSlurm:
    """Use as a context manager. `env` is what the commands of this cluster need in their environment."""

    home: Path  # its path may be long: sockets are in a folder of their own
    kinds: Sequence[NodeKind] = SIX_NODES
    partitions: Mapping[str, str] = field(default_factory=lambda: {"main": "ALL"})  # name -> nodes; the first is the default
    settings: Mapping[str, str] = field(default_factory=dict)  # further lines of slurm.conf
    scheduler: str = "bf_interval=1,bf_resolution=1,sched_interval=5,batch_sched_delay=0,sched_min_interval=0"

    def __post_init__(self) -> None:
        if missing := missing_programs():
            raise InputError(f"{', '.join(missing)} not found", hint="apt-get install slurm-wlm slurmctld slurmd slurm-client munge")
        self.home = self.home.resolve()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        self._sockets = Path()  # a folder with a short path
        ports = iter(_free_ports(1 + len(self.nodes)))
        self._port = next(ports)
        self._node_ports = dict(zip(self.nodes, ports, strict=True))

    @property
    def nodes(self) -> list[str]:
        return [f"{kind.name}{number}" for kind in self.kinds for number in range(1, kind.count + 1)]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.home / "slurm.conf"), "LC_ALL": "C"}

    def __enter__(self) -> LocalSlurm:
        self._sockets = _folder_for_sockets(max(map(len, self.nodes)))
        try:
            self._write_files()
            self._start_munge()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self._wait("nodes", lambda: self._idle_nodes() >= len(self.nodes))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *command: str, check: bool = True, stdin: str | None = None) -> str:
        """Run a command of this cluster and return what it prints."""
        done = subprocess.run(command, env=self.env, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise InputError(f"{' '.join(command)} failed: {done.stderr.strip()}", hint=f"the logs are in {self.home}")
        return done.stdout

    def submit(self, seconds: float, *options: str) -> int:
        """Submit a job that sleeps; returns its id."""
        script = f"#!/bin/sh\nexec sleep {seconds}\n"
        quiet = ("--parsable", "--output=/dev/null", "--error=/dev/null", f"--chdir={self.home}")
        return int(self.run("sbatch", *quiet, *options, stdin=script).strip().split(";")[0])

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.home / "slurm.conf"))
        self._wait("slurmctld", lambda: "UP" in self.run("scontrol", "ping", check=False))

    def start_node(self, node: str) -> None:
        self._spawn(node, "slurmd", "-D", "-N", node, "-f", str(self.home / "slurm.conf"))

    def kill(self, name: str) -> None:
        """Kill a daemon (`slurmctld` or a node) as by kill -9."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(STOPPING_S)

    def reconfigure(self) -> None:
        self.run("scontrol", "reconfigure")

    def stop(self) -> None:
        if (self.home / "slurm.conf").exists() and "slurmctld" in self.processes:
            self.run("scancel", "--state=RUNNING", "--quiet", check=False)
            self.run("scancel", "--state=PENDING", "--quiet", check=False)
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(STOPPING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        for log in self._logs:
            log.close()
        self._logs.clear()
        if self._sockets.name:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        log = (self.home / f"{name}.out").open("ab")
        self._logs.append(log)
        path = _found(program) or program
        self.processes[name] = subprocess.Popen([path, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env)

    def _start_munge(self) -> None:
        key = self.home / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = {"key-file": key, "socket": self._socket} | {f"{n}-file": self.home / f"munge.{n}" for n in ("pid", "seed", "log")}
        self._spawn("munge", "munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in files.items()))
        self._wait("munge", self._socket.exists)

    @property
    def _socket(self) -> Path:
        return self._sockets / "munge"

    def _idle_nodes(self) -> int:
        states = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False).split("\n")
        return len({line.split()[0] for line in states if line.strip() and line.split()[1] in ("idle", "mix", "alloc")})

    def _wait(self, what: str, ready: object) -> None:
        deadline = time.monotonic() + STARTING_S
        while time.monotonic() < deadline:
            if callable(ready) and ready():
                return
            time.sleep(0.05)
        raise InputError(f"{what} did not come up within {STARTING_S:.0f} s", hint=f"the logs are in {self.home}")

    def _write_files(self) -> None:
        for name in ("state", "devices"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        (self.home / "cgroup.conf").write_text(CGROUP)
        (self.home / "gres.conf").write_text(self._gres())
        (self.home / "slurm.conf").write_text(self._conf())

    def _gres(self) -> str:
        lines = ["AutoDetect=off"]
        for kind in self.kinds:
            for number in range(kind.gpus):
                link = self.home / "devices" / f"{kind.gpu_type}_{number}"
                if not link.is_symlink():
                    link.symlink_to("/dev/null")
            if kind.gpus:
                last = f"[0-{kind.gpus - 1}]" if kind.gpus > 1 else "0"
                lines.append(f"NodeName={kind.listed} Name=gpu Type={kind.gpu_type} File={self.home}/devices/{kind.gpu_type}_{last}")
        return "\n".join(lines) + "\n"

    def _conf(self) -> str:
        host, user = socket.gethostname(), _user()
        conf = {
            "ClusterName": "local", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmctldPort": str(self._port), "SlurmUser": user,
            "SlurmdUser": user, "AuthType": "auth/munge", "AuthInfo": f"socket={self._socket}", "CredType": "cred/munge",
            "StateSaveLocation": f"{self.home}/state", "SlurmdSpoolDir": f"{self._sockets}/%n",
            "SlurmctldPidFile": f"{self.home}/slurmctld.pid", "SlurmdPidFile": f"{self.home}/%n.pid",
            "SlurmctldLogFile": f"{self.home}/slurmctld.log", "SlurmdLogFile": f"{self.home}/%n.log",
            "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "JobAcctGatherType": "jobacct_gather/none",
            "SwitchType": "switch/none", "MpiDefault": "none", "SlurmdParameters": "config_overrides",
            "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny", "GresTypes": "gpu", "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory", "SchedulerType": "sched/backfill", "SchedulerParameters": self.scheduler,
            "PriorityType": "priority/multifactor", "JobCompType": "jobcomp/filetxt", "JobCompLoc": f"{self.home}/completed.txt",
            "ReturnToService": "2", "SlurmdTimeout": "30", "KillWait": "2", "MinJobAge": "3600", "MaxJobCount": "20000",
            "InactiveLimit": "0",
        }  # fmt: skip
        lines = [f"{name}={value}" for name, value in (conf | dict(self.settings)).items()]
        lines += [line for kind in self.kinds for line in self._node_lines(kind, host)]
        for position, (name, nodes) in enumerate(self.partitions.items()):
            lines.append(f"PartitionName={name} Nodes={nodes} Default={'YES' if position == 0 else 'NO'} MaxTime=INFINITE State=UP")
        return "\n".join(lines) + "\n"

    def _node_lines(self, kind: NodeKind, host: str) -> Iterator[str]:
        gres = f" Gres=gpu:{kind.gpu_type}:{kind.gpus}" if kind.gpus else ""
        features = f" Features={','.join(kind.features)}" if kind.features else ""
        for number in range(1, kind.count + 1):
            name = f"{kind.name}{number}"
            address = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={self._node_ports[name]}"
            yield f"NodeName={name} {address} CPUs={kind.cores} RealMemory={kind.mib}{gres}{features} State=UNKNOWN"


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _folder_for_sockets(name_length: int) -> Path:
    """A new folder for munge's socket and those of steps. If one of the latter had too long a path, Slurm would hold its job for ever."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)  # users other than ours submit, too
    longest = len(str(folder)) + len(f"/{name_length * 'n'}/{name_length * 'n'}_{2**26}{LONGEST_STEP}")
    if longest > LONGEST_SOCKET:
        folder.rmdir()
        raise InputError(
            f"paths of sockets would have {longest} characters, and {LONGEST_SOCKET} are possible",
            where=str(folder.parent),
            hint="set TMPDIR to a folder with a shorter path",
        )
    return folder


def _free_ports(number: int) -> list[int]:
    """Ports that nobody listens on."""
    with _open_sockets(number) as sockets:
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def _open_sockets(number: int) -> Iterator[list[socket.socket]]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        yield sockets
    finally:
        for one in sockets:
            one.close()
