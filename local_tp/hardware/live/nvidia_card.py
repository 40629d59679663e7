"""One NVIDIA card as NVML tells of it: a `Device` with all its facts.

Knows nothing of other cards or processes' lifetimes. Reading makes no CUDA context and takes no
graphics memory. Nothing is guessed: a card whose memory is not known has none to plan with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

import psutil
import pynvml

from local_tp.core import Device, Pcie
from local_tp.facts import CardFacts, PcieReading, Process
from local_tp.hardware.devices import RESERVE, RESERVE_WITH_DISPLAY
from local_tp.hardware.live.nvidia_nvlink import read_nvlinks
from local_tp.hardware.live.nvidia_reader import Reader
from local_tp.hardware.live.nvidia_words import (
    ARCHITECTURES,
    COMPUTE_MODES,
    DRIVER_MODELS,
    clock_reasons,
)
from local_tp.hardware.live.ram import Ram, read_ram

T = TypeVar("T")

_NOT_AVAILABLE = (2**32 - 1, 2**64 - 1)


class CardReading:
    """The questions to one card, or to a slice of it. Raises only NVML's errors of a lost card."""

    def __init__(self, slot: str, handle: Any, reader: Reader, root: Path = Path("/")) -> None:
        self._slot, self._handle, self._reader, self._root = slot, handle, reader, root
        self.name: str | None = None  # known even where the card is lost later on

    def device(self) -> Device | None:
        """The card, or None where its memory cannot be read."""
        self.name = self._ask("name", "Name")
        name = self.name or "NVIDIA card"
        memory = self.memory()
        ram = None if memory else self._processors_memory()
        if memory is not None:
            total, free, used, hidden = memory
        elif ram is not None:
            total, free, used, hidden = ram.total, ram.free, None, None
        else:
            return None
        # New drivers no longer say whether a monitor is attached, only whether one is in use.
        active = self._ask("display", "DisplayActive")
        attached = self._optional("display attached", "DisplayMode")
        display = None if attached is None and active is None else bool(attached or active)
        now = self._link("generation now", "Curr"), self._link("width now", "Curr")
        most = self._link("generation at most", "Max"), self._link("width at most", "Max")
        return Device(
            id=self._slot,
            kind="cuda",
            name=name,
            total=total,
            free=free,
            # A desktop may come to any card that is not known to have none.
            reserve=RESERVE if display is False else RESERVE_WITH_DISPLAY,
            capability=self._ask("compute capability", "CudaComputeCapability"),
            pcie=Pcie(*now, *most),
            display=display,
            uuid=self._ask("UUID", "UUID"),
            facts=self._facts(used, hidden, shared=ram is not None),
        )

    def memory(self) -> tuple[int, int, int | None, int | None] | None:
        """Total, free, used and reserved bytes."""
        # The second version tells apart what the driver holds back, which the first counts as used.
        detailed = self._optional("memory", "MemoryInfo", pynvml.nvmlMemory_v2)
        if detailed is not None:
            return detailed.total, detailed.free, detailed.used, detailed.reserved
        plain = self._optional("memory", "MemoryInfo")
        return plain and (plain.total, plain.free, plain.used, None)

    def _processors_memory(self) -> Ram | None:
        """The PC's memory for a card that has none of its own, as NVML says it: not supported."""
        if self._reader.lacks(_call("MemoryInfo"), self._handle):
            return read_ram(self._root)
        return None

    def _facts(self, used: int | None, hidden: int | None, *, shared: bool) -> CardFacts:
        bar1 = self._optional("BAR1", "BAR1MemoryInfo")
        utilization = self._optional("utilization", "UtilizationRates")
        virtual = self._optional("virtualization mode", "VirtualizationMode")
        state = self._optional("performance state", "PerformanceState")
        persistent = self._optional("persistence mode", "PersistenceMode")
        ecc = self._optional("ECC", "CurrentEccMode")
        remapped = self._optional("remapped memory rows", "RemappedRows")
        mig = self._optional("MIG mode", "MigMode")
        fastest = _known(self._optional("the card's PCIe generation", "GpuMaxPcieLinkGeneration"))
        limits = self._optional("power limits", "PowerManagementLimitConstraints")
        return CardFacts(
            vendor="nvidia",
            index=self._optional("index", "Index"),
            architecture=self._word("architecture", "Architecture", ARCHITECTURES),
            used=used,
            hidden=hidden,
            processes=self.processes(),
            bar1_total=bar1 and bar1.bar1Total,
            bar1_used=bar1 and bar1.bar1Used,
            pcie_card=None if fastest is None else PcieReading(generation=fastest),
            replays=_known(self._optional("PCIe replays", "PcieReplayCounter")),
            power_draw=_thousandth(self._optional("power draw", "PowerUsage")),
            power_limit=_thousandth(self._optional("power limit", "PowerManagementLimit")),
            power_default=_thousandth(
                self._optional("default power limit", "PowerManagementDefaultLimit")
            ),
            power_max=_thousandth(limits and limits[1]),
            **self._clocks(),
            **self._temperatures(),
            utilization=utilization and utilization.gpu,
            ecc=None if ecc is None else bool(ecc),
            ecc_uncorrected=self._uncorrected() if ecc else None,
            remap_pending=None if remapped is None else bool(remapped[2]),
            mig=None if mig is None else bool(mig[0]),
            compute_mode=self._word("compute mode", "ComputeMode", COMPUTE_MODES),
            persistence=None if persistent is None else bool(persistent),
            driver_model=self._word("driver model", "CurrentDriverModel", DRIVER_MODELS),
            performance_state=None if state is None or state > 15 else f"P{state}",
            nvlinks=read_nvlinks(self._handle, self._reader),
            numa=_known(self._optional("NUMA node", "NumaNodeId")),
            integrated=shared,
            virtual=None
            if virtual is None
            else virtual == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
        )

    def _link(self, what: str, when: str) -> int | None:
        measure = what.split()[0].capitalize()
        return _known(self._ask(f"PCIe {what}", f"{when}PcieLink{measure}"))

    def _clocks(self) -> dict[str, Any]:
        reasons = self._optional("clock reasons", "CurrentClocksEventReasons")
        if reasons is None:  # the name of the call in drivers before 535
            reasons = self._optional("clock reasons", "CurrentClocksThrottleReasons")
        graphics, memory = pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_MEM
        return {
            "clock": self._optional("clock", "ClockInfo", graphics),
            "clock_max": self._optional("clock at most", "MaxClockInfo", graphics),
            "memory_clock": self._optional("memory clock", "ClockInfo", memory),
            "memory_clock_max": self._optional("memory clock at most", "MaxClockInfo", memory),
            "throttle": () if reasons is None else clock_reasons(reasons),
        }

    def _temperatures(self) -> dict[str, Any]:
        now = self._optional("temperature", "TemperatureV", pynvml.NVML_TEMPERATURE_GPU)
        if now is None:  # drivers before 560
            now = self._optional("temperature", "Temperature", pynvml.NVML_TEMPERATURE_GPU)
        slowdown = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        limit = self._optional("slowdown temperature", "TemperatureThreshold", slowdown)
        return {"temperature": now, "temperature_limit": limit}

    def _uncorrected(self) -> int | None:
        kind, since = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC
        found: int | None = self._optional("uncorrected errors", "TotalEccErrors", kind, since)
        return found

    def processes(self) -> tuple[Process, ...]:
        """Who holds the card's memory; a program that computes and draws is listed once."""
        found: dict[int, Process] = {}
        for what in ("Compute", "Graphics"):
            call = f"{what}RunningProcesses_v3"
            listed = self._optional("processes", call)
            if listed is None:  # drivers before 510
                listed = self._optional("processes", f"{what}RunningProcesses_v2")
            for process in listed or ():
                used = process.usedGpuMemory
                found[process.pid] = Process(
                    process.pid, self._program(process.pid), None if used is None else int(used)
                )
        return tuple(sorted(found.values(), key=lambda process: -(process.used or 0)))

    def _program(self, pid: int) -> str | None:
        """A bare program name: paths and arguments may hold a person's name or secrets."""
        try:
            return str(psutil.Process(pid).name())
        except psutil.Error:  # of another user, or outside this container
            try:
                text = str(pynvml.nvmlSystemGetProcessName(pid))
            except (pynvml.NVMLError, UnicodeDecodeError):
                return None
        return bare_program(text)

    def _ask(self, what: str, name: str, *arguments: object) -> Any:
        return self._reader.ask(what, _call(name), self._handle, *arguments)

    def _optional(self, what: str, name: str, *arguments: object) -> Any:
        return self._reader.optional(what, _call(name), self._handle, *arguments)

    def _word(self, what: str, name: str, words: Mapping[int, T]) -> T | None:
        number = self._optional(what, name)
        return None if number is None else words.get(number)


def bare_program(command: str) -> str | None:
    """The program's name in a command line, without folders and arguments."""
    path = PureWindowsPath(command) if "\\" in command else PurePosixPath(command.split(" -")[0])
    return path.name.strip() or None


def _call(name: str) -> Callable[..., Any]:
    call: Callable[..., Any] = getattr(pynvml, f"nvmlDeviceGet{name}")
    return call


def _known(value: Any) -> int | None:
    """NVML says "not available" with the largest number of the field."""
    return None if value is None or value in _NOT_AVAILABLE or value < 0 else int(value)


def _thousandth(value: Any) -> float | None:
    return None if (known := _known(value)) is None else known / 1000
