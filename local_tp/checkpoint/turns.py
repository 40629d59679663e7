"""Which tokens end an answer.

Knows nothing of files. A model stops at the tokens its files declare, and also at the well-known
ones that files forget to declare: people expect no `<|im_end|>` and no second turn in an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# The end of a turn counts where the chat template writes it: elsewhere it is only a spare token.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>")
# The end of a document never belongs to an answer, whatever the template says.
_DOCUMENT_ENDS = ("<|endoftext|>", "<|end_of_text|>")


def stop_ids(
    declared: Iterable[int | None], special: Mapping[str, int], template: str | None
) -> tuple[int, ...]:
    """The ids that end an answer, declared ones first, each once.

    `special` maps the text of special tokens to ids: ordinary text that reads the same does not
    end anything.
    """
    written = [end for end in _TURN_ENDS if template is not None and end in template]
    known = [special[end] for end in (*written, *_DOCUMENT_ENDS) if end in special]
    return tuple(dict.fromkeys([*(d for d in declared if d is not None), *known]))
