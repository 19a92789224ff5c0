"""`report.html` as text: the template `page.html` with its places filled.

Names in a report come from logs and from users, and may contain anything. Three things keep them text: all places are filled in one
pass, so what a place is filled with is never searched for places; data is JSON without `<`; and the content security policy lists
the page's own scripts and styles by their hashes, so nothing else runs, loads or is sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

EMPTY_STYLE = ""  # plotly adds an empty <style> and fills it by calls, which a policy does not see


def fill_page(texts: Mapping[str, str], data: Any) -> str:
    """The page with `texts`, which are HTML, and `data` for its script."""
    style, code, plotly = _asset("page.css"), _asset("page.js"), _plotly_js()
    parts = {
        **texts,
        "policy": _security_policy([plotly, code], [style, EMPTY_STYLE]),
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        "style": style,
        "code": code,
        "plotly": plotly,
    }
    return re.sub("@@([a-z]+)@@", lambda place: parts[place[1]], _asset("page.html"))


def _security_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    allowed = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, scripts)),
        "style-src": " ".join(map(_hash, styles)),
        "style-src-attr": "'unsafe-inline'",  # plotly writes style attributes
        "img-src": "data: blob:",
        "font-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in allowed.items())


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return resources.files("queuewise.report").joinpath(name).read_text(encoding="utf-8")


def _plotly_js() -> str:
    """The basic bundle, as scripts/vendor-plotly fetched it."""
    return _asset("vendor/plotly-basic.min.js").replace("</script", "<\\/script")
