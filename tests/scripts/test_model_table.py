"""docs/models.md is what the table of families says."""

from __future__ import annotations

import model_table

from local_tp.checkpoint.families import FAMILIES


def test_the_page_is_that_of_the_table() -> None:
    """After a change of a row: python scripts/model_table.py"""
    assert model_table.PAGE.read_text(encoding="utf-8") == model_table.page()


def test_every_family_has_a_row_with_its_names() -> None:
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in model_table.rows()}
    assert rows.keys() == {family.name for family in FAMILIES}
    assert rows["gemma2"] == "| gemma2 | `gemma2` | every split | `gemma2` | some splits |"
    assert rows["olmo2"].startswith("| olmo2 | `olmo2`, `olmo3` |")
    assert rows["mistral"].endswith("| - | - |")
