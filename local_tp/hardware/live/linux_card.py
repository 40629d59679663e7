"""Power and temperature sensors of a graphics card, as Linux's hwmon files show them.

Knows nothing of vendors: amdgpu, i915 and xe name these files alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from local_tp.hardware.live.pci import read_number


class Sensors(NamedTuple):
    """Watts and degrees Celsius."""

    draw: float | None = None
    limit: float | None = None
    default: float | None = None
    most: float | None = None
    temperature: int | None = None
    critical: int | None = None


def read_sensors(card: Path) -> Sensors:
    """The sensors below a card's folder; a card in deep sleep may have none."""
    for folder in sorted(card.glob("hwmon/hwmon*")):
        draw = _scaled(folder / "power1_average", 1e6)
        temperature = _scaled(folder / "temp1_input", 1e3)
        critical = _scaled(folder / "temp1_crit", 1e3)
        return Sensors(
            draw=_scaled(folder / "power1_input", 1e6) if draw is None else draw,
            limit=_scaled(folder / "power1_cap", 1e6),
            default=_scaled(folder / "power1_cap_default", 1e6),
            most=_scaled(folder / "power1_cap_max", 1e6),
            temperature=None if temperature is None else round(temperature),
            critical=None if critical is None else round(critical),
        )
    return Sensors()


def _scaled(path: Path, unit: float) -> float | None:
    value = read_number(path)
    return None if value is None else value / unit
