"""Reports: figures, tables, traces and report.html for run folders.

`queuewise.report(RUN)` writes a report: the package stands for the function of that name (`queuewise.api.calls.report`), because a package
and a function of `queuewise` cannot both be found under one name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _ReportPackage(ModuleType):
    """A package that can be called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("queuewise.api.calls").report(*arguments, **options)


sys.modules[__name__].__class__ = _ReportPackage
