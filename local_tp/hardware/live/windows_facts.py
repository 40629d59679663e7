"""What Windows says of the machine around the cards, from its registry and kernel calls.

Knows nothing of other systems; elsewhere every function answers None. A value that Windows does
not keep is None too.
"""

from __future__ import annotations

import ctypes
import sys

_FEATURES = (("avx", 39), ("avx2", 40), ("avx512f", 41))  # numbers of IsProcessorFeaturePresent
_NO_BATTERY, _UNKNOWN = 128, 255
_HYPERVISORS = (
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("qemu", "KVM"),
    ("virtual machine", "Hyper-V"),
)


def instructions() -> tuple[str, ...]:
    """The vector instruction sets that Windows can be asked for."""
    if sys.platform == "win32":
        present = ctypes.windll.kernel32.IsProcessorFeaturePresent
        return tuple(name for name, number in _FEATURES if present(number))
    return ()


def is_laptop() -> bool | None:
    """Whether there is a battery."""
    if sys.platform == "win32":
        status = (ctypes.c_ubyte * 12)()  # SYSTEM_POWER_STATUS; the second byte is the battery's
        if ctypes.windll.kernel32.GetSystemPowerStatus(status) and status[1] != _UNKNOWN:
            return not status[1] & _NO_BATTERY
    return None


def secure_boot() -> bool | None:
    value = _registry(r"SYSTEM\CurrentControlSet\Control\SecureBoot\State", "UEFISecureBootEnabled")
    return None if value is None else value == "1"


def virtual_machine() -> str | None:
    """The hypervisor whose guest this is, by the name of the machine's model."""
    place = r"SYSTEM\CurrentControlSet\Control\SystemInformation"
    names = ("SystemManufacturer", "SystemProductName")
    said = " ".join(_registry(place, name) or "" for name in names).lower()
    return next((name for word, name in _HYPERVISORS if word in said), None)


def _registry(place: str, name: str) -> str | None:
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
                return str(winreg.QueryValueEx(key, name)[0])
        except OSError:
            return None
    return None
