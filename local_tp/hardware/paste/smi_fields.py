"""One card's values in any of `nvidia-smi`'s dialects: `-q`, `-q -x` or `--query-gpu`.

Knows nothing of how they were laid out. Each is looked up by the names that it has had over the
years, the most telling first; a name is `section.entry` or, where only one entry has it, `entry`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from local_tp.core import Pcie
from local_tp.facts import CardFacts, DriverModel, HostFacts, PcieReading, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.live.nvidia_words import clock_reasons
from local_tp.hardware.paste.sighting import Card
from local_tp.hardware.paste.values import answer, capability, gone, known, number, size, whole

_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "idle": "Idle",
        "gpu_idle": "Idle",
        "applications_clocks_setting": "Applications Clocks Setting",
        "sw_power_cap": "SW Power Cap",
        "hw_slowdown": "HW Slowdown",
        "sync_boost": "Sync Boost",
        "sw_thermal_slowdown": "SW Thermal Slowdown",
        "hw_thermal_slowdown": "HW Thermal Slowdown",
        "hw_power_brake_slowdown": "HW Power Brake Slowdown",
        "hw_power_brake": "HW Power Brake Slowdown",
        "display_clocks_setting": "Display Clock Setting",
        "display_clock_setting": "Display Clock Setting",
    }
)
_REASON_PREFIX = re.compile(r"(?:clocks_)?(?:event|throttle)_reasons?_?\.?")
_MASK = re.compile(r"0x([0-9a-fA-F]{1,16})")
_ARCHITECTURES = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper")
_UNCORRECTED = ("uncorrectable", "double_bit")
_DRIVER_MODELS: Mapping[str, DriverModel] = MappingProxyType(
    {"WDDM": "WDDM", "TCC": "TCC", "MCDM": "MCDM"}
)
Values = Mapping[str, str]


def key(text: str) -> str:
    """A name as printed (`Bus Id`, `memory.total [MiB]`, `pci_bus_id`) in one spelling."""
    name = re.sub(r"\s*\[[^\]]{0,20}\]\s*$", "", text.strip().lower())
    return re.sub(r"[^a-z0-9.]+", "_", name).strip("_")


def card(values: Values) -> Card:
    """The card that `values`, by `key`, are about."""
    total = size(_first(values, "fb_memory_usage.total", "memory.total"))
    used = size(_first(values, "fb_memory_usage.used", "memory.used"))
    free = size(_first(values, "fb_memory_usage.free", "memory.free"))
    active = answer(_first(values, "display_active"))
    attached = answer(_first(values, "display_attached"))
    name = _first(values, "product_name", "name", "gpu_name")
    uuid = _first(values, "gpu_uuid", "uuid")
    return Card(
        slot=bus_id(_first(values, "pci.bus_id", "pci.pci_bus_id", "gpu_bus_id", "slot") or ""),
        number=whole(_first(values, "index")),
        name=name,
        total=total,
        free=total - used if free is None and total is not None and used is not None else free,
        capability=capability(_first(values, "compute_cap", "compute_capability")),
        pcie=_pcie(values),
        # Cards in servers say "attached" though nothing is; what is active counts where told.
        display=attached if active is None else active,
        uuid=uuid if uuid and re.search("[1-9a-f]", uuid[4:]) else None,
        facts=replace(_facts(values, used), lost=_is_lost(values)),
    )


def software(values: Values) -> SoftwareFacts:
    """The versions that stand beside the cards."""
    return SoftwareFacts(
        driver=_first(values, "driver_version", "kmd_version"),
        cuda_driver=_first(values, "cuda_version", "cuda_umd_version"),
    )


def host(values: Values) -> HostFacts:
    """What the card knows of a virtual machine around it."""
    mode = (_first(values, "gpu_virtualization_mode.virtualization_mode") or "").lower()
    inside = mode.replace("-", "") in ("passthrough", "vgpu")
    return HostFacts(virtual_machine="of an unknown kind" if inside else None)


def _first(values: Values, *names: str) -> str | None:
    return next((text for name in names if (text := known(values.get(name)))), None)


def _is_lost(values: Values) -> bool:
    """Whether the driver no longer reaches the card, by what stands in its values' places."""
    lost = any("gpu is lost" in text[:40].lower() for text in values.values())
    unknown = {
        name.rpartition(".")[2]
        for name, text in values.items()
        if gone(text) and "power" not in name and "fan" not in name
    }
    return lost or len(unknown) > 1


def _pcie(values: Values) -> Pcie:
    generations = "pcie_generation", "pcie_gen"
    widths = "link_width", "link_widths"
    return Pcie(
        generation=whole(
            _first(
                values,
                f"{generations[0]}.current",
                f"{generations[1]}.current_link_gen",
                "pcie.link.gen.current",
                "pcie.link.gen.gpucurrent",
            )
        ),
        width=whole(
            _first(
                values,
                f"{widths[0]}.current",
                f"{widths[1]}.current_link_width",
                "pcie.link.width.current",
            )
        ),
        max_generation=whole(
            _first(
                values,
                f"{generations[0]}.max",
                f"{generations[1]}.max_link_gen",
                "pcie.link.gen.max",
            )
        ),
        max_width=whole(
            _first(
                values,
                f"{widths[0]}.max",
                f"{widths[1]}.max_link_width",
                "pcie.link.width.max",
            )
        ),
    )


def _facts(values: Values, used: int | None) -> CardFacts:
    power = ("gpu_power_readings", "power_readings")
    virtual = (_first(values, "gpu_virtualization_mode.virtualization_mode") or "").upper()
    return CardFacts(
        vendor="nvidia",
        architecture=_architecture(_first(values, "product_architecture")),
        used=used,
        hidden=size(_first(values, "fb_memory_usage.reserved", "memory.reserved")),
        bar1_total=size(_first(values, "bar1_memory_usage.total")),
        bar1_used=size(_first(values, "bar1_memory_usage.used")),
        pcie_card=_reading(
            values, "pcie_generation.device_max", "pcie_gen.max_device_link_gen", "gpumax"
        ),
        pcie_slot=_reading(
            values, "pcie_generation.host_max", "pcie_gen.max_host_link_gen", "hostmax"
        ),
        replays=whole(_first(values, "replays_since_reset", "replay_counter")),
        power_draw=number(
            _first(
                values,
                *(f"{p}.{n}" for p in power for n in _DRAWS),
                "power.draw",
                "power.draw.instant",
            )
        ),
        power_limit=number(
            _first(
                values,
                *(f"{p}.{n}" for p in power for n in _LIMITS),
                "power.limit",
                "enforced.power.limit",
            )
        ),
        power_default=number(
            _first(values, *(f"{p}.default_power_limit" for p in power), "power.default_limit")
        ),
        power_max=number(
            _first(values, *(f"{p}.max_power_limit" for p in power), "power.max_limit")
        ),
        clock=whole(_first(values, "clocks.graphics", "clocks.graphics_clock", *_CLOCKS)),
        clock_max=whole(
            _first(
                values, "max_clocks.graphics", "max_clocks.graphics_clock", "clocks.max.graphics"
            )
        ),
        memory_clock=whole(
            _first(
                values, "clocks.memory", "clocks.mem_clock", "clocks.current.memory", "clocks.mem"
            )
        ),
        memory_clock_max=whole(
            _first(values, "max_clocks.memory", "max_clocks.mem_clock", "clocks.max.memory")
        ),
        throttle=_reasons(values),
        temperature=whole(
            _first(
                values, "temperature.gpu_current_temp", "temperature.gpu_temp", "temperature.gpu"
            )
        ),
        temperature_limit=whole(
            _first(values, "temperature.gpu_slowdown_temp", "temperature.gpu_temp_slow_threshold")
        ),
        utilization=whole(
            _first(values, "utilization.gpu", "utilization.gpu_util", "gpu_utilization")
        ),
        ecc=answer(_first(values, "ecc_mode.current", "ecc_mode.current_ecc", "ecc.mode.current")),
        ecc_uncorrected=_uncorrected(values),
        remap_pending=answer(
            _first(
                values,
                "remapped_rows.pending",
                "remapped_rows.remapped_row_pending",
                "remapped_row_pending",
            )
        ),
        mig=answer(_first(values, "mig_mode.current", "mig_mode.current_mig", "mig.mode.current")),
        compute_mode=_first(values, "compute_mode"),
        persistence=answer(_first(values, "persistence_mode")),
        driver_model=_DRIVER_MODELS.get(
            _first(values, "driver_model.current", "driver_model.current_dm") or ""
        ),
        performance_state=_first(values, "performance_state", "pstate"),
        virtual=virtual == "VGPU" if virtual else None,
    )


_DRAWS = ("average_power_draw", "power_draw", "instantaneous_power_draw", "instant_power_draw")
_LIMITS = ("current_power_limit", "power_limit", "enforced_power_limit")
_CLOCKS = ("clocks.current.graphics", "clocks.gr", "clocks.current.sm", "clocks.sm")


def _architecture(text: str | None) -> str | None:
    word = (text or "").lower()
    return next((name for name in (*_ARCHITECTURES, "blackwell") if name in word), None)


def _reading(values: Values, *names: str) -> PcieReading | None:
    *long, short = names
    found = whole(_first(values, *long, f"pcie.link.gen.{short}"))
    return None if found is None else PcieReading(generation=found)


def _reasons(values: Values) -> tuple[str, ...]:
    """Why the clocks are what they are, in the words of `nvidia-smi -q`."""
    active = []
    for name, text in values.items():
        section, _, entry = name.rpartition(".")
        if "reasons" not in section or "counters" in section or "supported" in entry:
            continue
        if entry == "active" and (bits := _MASK.fullmatch(text.strip())):
            active += [word for word in clock_reasons(int(bits[1], 16)) if word not in active]
        elif answer(text):
            word = _REASONS.get(_REASON_PREFIX.sub("", entry))
            if word and word not in active:
                active.append(word)
    return tuple(active)


def _uncorrected(values: Values) -> int | None:
    """Uncorrected memory errors over the card's life, where it keeps count."""
    for name in (
        "ecc.errors.uncorrected.aggregate.total",
        "ecc.errors.uncorrected.volatile.total",
        "aggregate.double_bit.total",
        "volatile.double_bit.total",
    ):
        if (found := whole(values.get(name))) is not None:
            return found
    for era in ("aggregate", "volatile"):
        counts = [
            count
            for name, text in values.items()
            if name.startswith(f"{era}.")
            and any(word in name for word in _UNCORRECTED)
            and (count := whole(text)) is not None
        ]
        if counts:
            return sum(counts)
    return None
