"""Where the numbers of a model lie in its files, and how: frozen values, a part of `ModelSpec`.

Knows nothing of bytes. `checkpoint` finds the places, `load` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Packing:
    """How the `parts` of a tensor in a quantized repository make up its numbers.

    `layout` is a row of `load.layouts`; `block` the rows and columns that share a scale; `first`
    the row of the parts where the tensor begins. Columns that are `ordered` belong to the groups
    that the part `g_idx` names, in no order; otherwise to one group after another.
    """

    layout: str
    block: tuple[int, int]
    first: int = 0
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one stored tensor lies, and how.

    `shape` is (rows, columns), or (n,) for a vector; `format` a row of `checkpoint.formats`;
    `offset` is absolute in `file`. In every head of `head` rows, `paired` elements behind the first
    `unpaired` are stored in the order of interleaved rotary pairs rather than in two halves. With
    `run`, the rows lie in runs of so many, one run every `step` rows from `offset` on: the gate in
    a stored gate and up. Where rows are stored as columns, `columns_of` are the matrices of these,
    one above the other. `stack` are the tensors that it is made of, one above the other, where a
    file keeps them apart; its own place is then that of the first. `shifted` numbers are stored
    less one. A tensor of a quantized repository is in the `parts` that `packing` tells of; its
    `format` is the one that loading makes of them, its place that of the codes.
    """

    shape: tuple[int, ...]
    format: str
    nbytes: int
    file: str
    offset: int
    paired: int = 0
    unpaired: int = 0
    head: int = 0
    run: int = 0
    step: int = 0
    shifted: bool = False
    columns_of: TensorInfo | None = None
    stack: tuple[TensorInfo, ...] = ()
    parts: dict[str, TensorInfo] = field(default_factory=dict)
    packing: Packing | None = None

    @property
    def ordered(self) -> bool:
        """Whether columns belong to groups in an order of their own, here or in the stack."""
        own = self.packing is not None and self.packing.ordered
        return own or any(member.ordered for member in self.stack)
