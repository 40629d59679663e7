"""The NVLink ports of one NVIDIA card.

Knows nothing of whether the far end is a card of this machine. Most cards have no port, which is
no error; a port that is there and down is a fact.
"""

from __future__ import annotations

from typing import Any

import pynvml

from local_tp.facts import NvLink
from local_tp.hardware.devices import bus_id
from local_tp.hardware.live.nvidia_reader import GONE, Reader
from local_tp.hardware.live.nvidia_words import NVLINK_GENERATIONS, error_words

SWITCH = "switch"  # an NVSwitch, which joins every card on it with every other


def read_nvlinks(handle: Any, reader: Reader) -> tuple[NvLink, ...]:
    """Every port that the card has, up or down."""
    ports = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            up = bool(pynvml.nvmlDeviceGetNvLinkState(handle, number))
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue  # the card has no port of that number
        except pynvml.NVMLError_FunctionNotFound:
            break
        except GONE:
            raise
        except pynvml.NVMLError as error:
            reader.miss(f"NVLink from port {number} on", error_words(error.value))
            break
        ports.append(_port(number, up, handle, reader))
    return tuple(ports)


def _port(number: int, up: bool, handle: Any, reader: Reader) -> NvLink:
    what = f"NVLink {number}"
    version = reader.optional(f"{what} version", pynvml.nvmlDeviceGetNvLinkVersion, handle, number)
    return NvLink(
        index=number,
        up=up,
        generation=None if version is None else NVLINK_GENERATIONS.get(version),
        peer=_peer(number, handle, reader) if up else None,
        bandwidth=reader.optional(f"{what} speed", _speed, handle, number) if up else None,
    )


def _peer(number: int, handle: Any, reader: Reader) -> str | None:
    kind = reader.optional(
        f"NVLink {number} device type", pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number
    )
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return SWITCH
    far_end = pynvml.nvmlDeviceGetNvLinkRemotePciInfo
    place = reader.ask(f"NVLink {number} peer", far_end, handle, number)
    return None if place is None else bus_id(place.busId)


def _speed(handle: Any, number: int) -> float | None:
    """Bytes a second one way; NVML counts megabytes."""
    fields = [(pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, number)]
    fields.append((pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0))  # drivers before 515
    for value in pynvml.nvmlDeviceGetFieldValues(handle, fields):
        if value.nvmlReturn == pynvml.NVML_SUCCESS and value.value.uiVal:
            return float(value.value.uiVal) * 1e6
    return None
