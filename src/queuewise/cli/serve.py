"""`queuewise serve`: the decision service."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Serve:
    """Answer decisions over HTTP and JSON: POST /v1/decide with a snapshot; /healthz, /readyz, /metrics and /v1/openapi.json.
    SIGHUP loads the policy again, SIGTERM stops after the last answer."""

    policy: str
    """Policy to decide by (queuewise policies lists the parts of names)."""
    socket: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """Unix socket to listen on. Default: loopback, at --port."""
    mode: str = "0600"
    """Permissions of the socket: who may connect."""
    host: str = "127.0.0.1"
    """Loopback address."""
    port: int = 8753
    """Port on loopback."""
    token_file: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A file with the token that requests must carry. Needed on loopback, where everybody on the machine can connect."""
    fallback: str | None = None
    """Policy that decides if the other is late, fails, or answers what cannot be carried out. Default: wise where all jobs have
    predictions, else fcfs+easy."""
    deadline: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 1.0
    """How long a decision may take, before the fallback answers."""
    audit: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Record every decision with its snapshot there, written through to the disk: queuewise live replay decides them again."""
    max_wait: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Bound on waits under policies whose names have none, such as 3d."""

    def run(self) -> int | None:
        from queuewise.errors import InputError, optional_imports

        with optional_imports():
            from queuewise.serve.server import bound_socket, serve_until_stopped
            from queuewise.serve.service import DecisionService
        from queuewise.cli.console import check_policies
        from queuewise.policies.names import parse_bound
        from queuewise.serve.audit_log import AuditLog
        from queuewise.serve.guarded_policy import GuardedPolicy
        from queuewise.serve.kill_switch import live_home

        if self.max_wait is not None:
            parse_bound(self.max_wait, "--max-wait")
        check_policies([self.policy, *([] if self.fallback is None else [self.fallback])], self.max_wait)
        if not 0 < self.deadline <= 60:
            raise InputError(f"--deadline {self.deadline:g}", hint="give seconds above 0 and up to 60")
        token = self._token()
        path = Path(self.socket) if self.socket is not None else None
        if path is None and not token:
            raise InputError("on loopback everybody on this machine can connect", hint="give a --token-file, or listen on a --socket")

        def make() -> GuardedPolicy:
            return GuardedPolicy(self.policy, fallback=self.fallback, deadline_s=self.deadline, max_wait=self.max_wait)

        audit = None if self.audit is None else AuditLog(Path(self.audit))
        if audit is not None:
            audit.check()
        service = DecisionService(make, token=token, home=live_home(), audit=audit)
        served = serve_until_stopped(service, bound_socket(path, self.host, self.port, self._permissions()), path)
        return None if served else 2

    def _permissions(self) -> int:
        from queuewise.errors import InputError

        try:
            mode = int(self.mode, 8)
        except ValueError:
            mode = -1
        if not 0 <= mode <= 0o777:
            raise InputError(f"--mode {self.mode} are no permissions", hint="for example 0660")
        return mode

    def _token(self) -> str:
        from queuewise.errors import InputError
        from queuewise.regular_files import check_regular

        if self.token_file is None:
            return ""
        file = Path(self.token_file)
        check_regular(file)
        try:
            if file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise InputError("can be read or written by everybody on this machine", where=self.token_file, hint=f"chmod 600 {file}")
            token = file.read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            raise InputError("is not ASCII text", where=self.token_file, hint="for example openssl rand -hex 32 > FILE") from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=self.token_file, hint="check the path") from None
        if not token:
            raise InputError("holds no token", where=self.token_file, hint="for example openssl rand -hex 32 > FILE")
        return token
