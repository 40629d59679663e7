"""Reads what other people paste about their machines: one module for each kind of output.

Knows nothing of the machine it runs on. Whatever the bytes, the answer is a `Rig` and a list of
what was not understood.
"""

from local_tp.hardware.paste.read import Pasted, read_pasted

__all__ = ["Pasted", "read_pasted"]
