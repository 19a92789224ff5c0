"""What Slurm needs before its jobs can be started by an agent: a submit plugin that gives new jobs a begin time, and lines of slurm.conf.

The plugin sets the begin time to now + a grace, and never a priority: a job that nobody looks at becomes eligible by itself. All changes
stand between marks, and lines that they replace are kept as comments, so that they can be undone to the last byte.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from queuewise.errors import InputError
from queuewise.regular_files import check_regular
from queuewise.runs import write_text
from queuewise.serve.holding import LONGEST_GRACE_S
from queuewise.serve.slurm_control import GRACE, GRACE_S
from queuewise.serve.slurm_records import MARK

CONF_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
KEPT = f"#{MARK}# "  # before a line that is replaced
LUA_KEPT = f"--{MARK}-- "
BEGIN, END = f"{MARK}: begin", f"{MARK}: end"
PLUGIN = "job_submit.lua"
_RETURN = re.compile(r"^return\b[^\n]*\s*\Z", re.MULTILINE)  # the last statement: one within a function is followed by its end
_BLOCK = """-- {begin}
do
   local theirs = slurm_job_submit
   local partitions = {partitions}
   local function steered(job_desc, part_list)
      if next(partitions) == nil then return true end
      local name = job_desc.partition
      if name == nil then
         for candidate, part in pairs(part_list) do
            if part.flag_default == 1 then name = candidate end
         end
      end
      return name ~= nil and partitions[name] == true
   end
   function slurm_job_submit(job_desc, part_list, submit_uid)
      if theirs ~= nil then
         local result = theirs(job_desc, part_list, submit_uid)
         if result ~= slurm.SUCCESS then return result end
      end
      local unset = job_desc.begin_time == nil or job_desc.begin_time == 0
      if unset and job_desc.reservation == nil and steered(job_desc, part_list) then
         local begin = os.time() + {grace}
         job_desc.begin_time = begin
         job_desc.admin_comment = "{mark} {grace} until " .. begin
      end
      return slurm.SUCCESS
   end
   if slurm_job_modify == nil then
      function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
         return slurm.SUCCESS
      end
   end
end
-- {end}
"""


@dataclass(frozen=True)
class FileChange:
    path: Path
    before: str | None  # None: there is no such file
    after: str | None  # None: remove it

    @property
    def diff(self) -> str:
        name = str(self.path)
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            name if self.before is not None else os.devnull,
            name if self.after is not None else os.devnull,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write it. A file that was there keeps its owner and permissions."""
        if self.after is None:
            self.path.unlink(missing_ok=True)
            return
        before = self.path.stat() if self.before is not None else None
        write_text(self.path, self.after)
        if before is None:
            return
        after = self.path.stat()
        if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
            os.chown(self.path, before.st_uid, before.st_gid)
        os.chmod(self.path, before.st_mode & 0o7777)


def find_conf(given: str | None = None) -> Path:
    """The slurm.conf that is meant."""
    named = given or os.environ.get("SLURM_CONF")
    places = [Path(named)] if named else [Path(place) for place in CONF_PLACES]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError("there is no slurm.conf", where=str(places[0]), hint="give its path: --conf FILE")
    return found


def installation(conf: Path, *, grace_s: int = GRACE_S, partitions: Sequence[str] = ()) -> list[FileChange]:
    """The changes that install the plugin; none for files that need none."""
    if not 1 <= grace_s <= LONGEST_GRACE_S:
        raise InputError(f"a grace of {grace_s} s", hint=f"give 1 to {LONGEST_GRACE_S:,} s: jobs wait so long if there is no agent")
    for name in partitions:  # they become text of a program that slurmctld runs
        if not re.fullmatch(r"[\w.+-]+", name):
            raise InputError(f"{name!r} cannot be the name of a partition", hint="give names as sinfo shows them")
    changes = [_with_plugin(conf.parent / PLUGIN, grace_s, partitions), _with_lines(conf)]
    return [change for change in changes if change.before != change.after]


def removal(conf: Path) -> list[FileChange]:
    """The changes that undo `installation`."""
    changes = []
    for path, comment in ((conf.parent / PLUGIN, "--"), (conf, "#")):
        before = _text(path)
        if before is not None and f"{comment} {BEGIN}" in before:
            after = _without_block(before, comment)
            ours_alone = path.name == PLUGIN and after.strip() in ("", "return slurm.SUCCESS")
            changes.append(FileChange(path, before, None if ours_alone else after))
    return changes


def _text(path: Path) -> str | None:
    check_regular(path)
    try:
        return path.read_bytes().decode("utf-8")  # line ends stay as they are
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        hint = "convert it, for example with iconv -f latin1 -t utf8: what is not understood is not edited"
        raise InputError(f"is not UTF-8 text (byte {error.start})", where=str(path), hint=hint) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="run it as the administrator of Slurm") from None


def _with_plugin(path: Path, grace_s: int, partitions: Sequence[str]) -> FileChange:
    before = _text(path)
    table = "{" + ", ".join(f'["{name}"] = true' for name in partitions) + "}"
    block = _BLOCK.format(begin=BEGIN, end=END, grace=grace_s, mark=GRACE, partitions=table)
    if before is None:
        return FileChange(path, None, f"{block}return slurm.SUCCESS\n")
    plain = _without_block(before, "--")
    found = _RETURN.search(plain)
    at = len(plain) if found is None else found.start()
    gap = "" if not plain[:at] or plain[:at].endswith("\n") else f"\n{LUA_KEPT}no newline\n"
    return FileChange(path, before, plain[:at] + gap + block + plain[at:])


def _with_lines(conf: Path) -> FileChange:
    before = _text(conf)
    if before is None:
        raise InputError("there is no such file", where=str(conf), hint="give the path of slurm.conf: --conf FILE")
    plain = _without_block(before, "#")
    plugins, priority = (_value(plain, name) for name in ("JobSubmitPlugins", "PriorityType"))
    wanted = {}
    if "lua" not in (plugins or "").split(","):
        wanted["JobSubmitPlugins"] = ",".join(filter(None, (plugins, "lua")))
    if (priority or "priority/basic").lower() == "priority/basic":
        wanted["PriorityType"] = "priority/multifactor"
    if not wanted:
        return FileChange(conf, before, plain)
    kept = [f"{KEPT}{line}" if _names(line) in {name.lower() for name in wanted} else line for line in plain.splitlines(keepends=True)]
    text = "".join(kept)
    gap = "" if text.endswith("\n") else f"\n{KEPT}no newline\n"
    block = [f"# {BEGIN}\n", *(f"{name}={value}\n" for name, value in wanted.items()), f"# {END}\n"]
    return FileChange(conf, before, text + gap + "".join(block))


def _names(line: str) -> str:
    return line.partition("=")[0].strip().lower() if "=" in line and not line.lstrip().startswith("#") else ""


def _value(text: str, name: str) -> str | None:
    return next((line.partition("=")[2].split("#")[0].strip() for line in text.splitlines() if _names(line) == name.lower()), None)


def _without_block(text: str, comment: str) -> str:
    """The text as it was before."""
    block = re.compile(rf"^{re.escape(comment)} {re.escape(BEGIN)}\n.*?^{re.escape(comment)} {re.escape(END)}\n", re.MULTILINE | re.DOTALL)
    plain = block.sub("", text)
    plain = plain.replace(f"\n{LUA_KEPT if comment == '--' else KEPT}no newline\n", "")
    return "".join(line.removeprefix(KEPT) for line in plain.splitlines(keepends=True))
