"""What ends an answer."""

from __future__ import annotations

import pytest

from local_tp.checkpoint.turns import stop_ids

SPECIAL = {"<|endoftext|>": 0, "<|im_end|>": 2, "<|eot_id|>": 9}


@pytest.mark.parametrize(
    ("declared", "special", "template", "expected"),
    [
        ([2], SPECIAL, "…<|im_end|>", (2, 0)),  # each once, declared first
        ([0], SPECIAL, "…<|im_end|>", (0, 2)),  # an undeclared turn end of the template
        ([0], SPECIAL, None, (0,)),  # without a template its turn ends are spare tokens
        ([5, None, 6], {}, "<|im_end|>", (5, 6)),  # ordinary text that reads the same
        ([None], SPECIAL, "<|eot_id|> and <|im_end|>", (2, 9, 0)),
        ([None], {}, None, ()),
    ],
)
def test_stop_ids(
    declared: list[int | None],
    special: dict[str, int],
    template: str | None,
    expected: tuple[int, ...],
) -> None:
    assert stop_ids(declared, special, template) == expected
