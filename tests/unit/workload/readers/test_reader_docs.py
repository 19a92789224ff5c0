"""docs/formats.md describes every reader."""

from __future__ import annotations

from pathlib import Path

from queuewise.workload.readers import READERS
from queuewise.workload.readers.generic import FIELDS


def test_every_format_has_a_section_and_a_row(repository: Path) -> None:
    text = (repository / "docs/formats.md").read_text()
    table = text[text.index("## Formats") : text.index("### swf")]
    for name in READERS:
        assert f"\n### {name}\n" in text, name
        assert f"`{name}`" in table, name


def test_every_generic_field_is_described(repository: Path) -> None:
    text = (repository / "docs/formats.md").read_text()
    section = text[text.index("\n### csv\n") : text.index("\n### parquet\n")]
    assert [field for field in FIELDS if f"`{field}`" not in section] == []
