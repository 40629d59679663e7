"""PCI device ids of graphics cards, for tools that print nothing else, and what they are called.

Knows nothing of any tool. The ids are those of the PCI ID database; one that is not here is no
error, the card then has no name. Ids that several models share name all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NVIDIA_DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "102d": "NVIDIA Tesla K80",
        "15f8": "NVIDIA Tesla P100 PCIe 16GB",
        "17fd": "NVIDIA Tesla M40",
        "1b06": "NVIDIA GeForce GTX 1080 Ti",
        "1b38": "NVIDIA Tesla P40",
        "1db4": "NVIDIA Tesla V100 PCIe 16GB",
        "1db6": "NVIDIA Tesla V100 PCIe 32GB",
        "1e04": "NVIDIA GeForce RTX 2080 Ti",
        "1e07": "NVIDIA GeForce RTX 2080 Ti",
        "1eb8": "NVIDIA Tesla T4",
        "2203": "NVIDIA GeForce RTX 3090 Ti",
        "2204": "NVIDIA GeForce RTX 3090",
        "2206": "NVIDIA GeForce RTX 3080",
        "2208": "NVIDIA GeForce RTX 3080 Ti",
        "2216": "NVIDIA GeForce RTX 3080",
        "2230": "NVIDIA RTX A6000",
        "2231": "NVIDIA RTX A5000",
        "2232": "NVIDIA RTX A4500",
        "2235": "NVIDIA A40",
        "24b0": "NVIDIA RTX A4000",
        "2503": "NVIDIA GeForce RTX 3060",
        "2504": "NVIDIA GeForce RTX 3060",
        "2684": "NVIDIA GeForce RTX 4090",
        "2685": "NVIDIA GeForce RTX 4090 D",
        "26b1": "NVIDIA RTX 6000 Ada Generation",
        "26b5": "NVIDIA L40",
        "26b9": "NVIDIA L40S",
        "2702": "NVIDIA GeForce RTX 4080 SUPER",
        "2704": "NVIDIA GeForce RTX 4080",
        "2705": "NVIDIA GeForce RTX 4070 Ti SUPER",
        "2782": "NVIDIA GeForce RTX 4070 Ti",
        "2783": "NVIDIA GeForce RTX 4070 SUPER",
        "2786": "NVIDIA GeForce RTX 4070",
        "27b8": "NVIDIA L4",
        "2803": "NVIDIA GeForce RTX 4060 Ti",
        "2805": "NVIDIA GeForce RTX 4060 Ti 16GB",
        "2882": "NVIDIA GeForce RTX 4060",
        "2b85": "NVIDIA GeForce RTX 5090",
        "2b87": "NVIDIA GeForce RTX 5090 D",
        "2bb1": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "2bb4": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "2bb5": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "2c02": "NVIDIA GeForce RTX 5080",
        "2c05": "NVIDIA GeForce RTX 5070 Ti",
        "2d04": "NVIDIA GeForce RTX 5060 Ti",
        "2d05": "NVIDIA GeForce RTX 5060",
        "2e12": "NVIDIA GB10",
        "2f04": "NVIDIA GeForce RTX 5070",
    }
)
AMD_DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "66a0": "AMD Instinct MI50/MI60",
        "66a1": "AMD Instinct MI50/MI60",
        "66af": "AMD Radeon VII",
        "67df": "AMD Radeon RX 470/480/570/580",
        "67ef": "AMD Radeon RX 460/560",
        "6860": "AMD Instinct MI25",
        "687f": "AMD Radeon RX Vega 56/64",
        "731f": "AMD Radeon RX 5600/5700",
        "7340": "AMD Radeon RX 5500",
        "738c": "AMD Instinct MI100",
        "738e": "AMD Instinct MI100",
        "7408": "AMD Instinct MI250X",
        "740c": "AMD Instinct MI250X",
        "740f": "AMD Instinct MI210",
        "73a3": "AMD Radeon PRO W6800",
        "73af": "AMD Radeon RX 6900 XT",
        "73bf": "AMD Radeon RX 6800/6800 XT/6900 XT",
        "73a5": "AMD Radeon RX 6950 XT",
        "73df": "AMD Radeon RX 6700/6700 XT/6750 XT",
        "73ff": "AMD Radeon RX 6600/6600 XT",
        "7448": "AMD Radeon PRO W7900",
        "744c": "AMD Radeon RX 7900 XT/7900 XTX",
        "745e": "AMD Radeon PRO W7800",
        "747e": "AMD Radeon RX 7700 XT/7800 XT",
        "7480": "AMD Radeon RX 7600",
        "7550": "AMD Radeon RX 9070/9070 XT",
        "7551": "AMD Radeon AI PRO R9700",
        "7590": "AMD Radeon RX 9060 XT",
        "74a1": "AMD Instinct MI300X",
    }
)
INTEL_DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "56a0": "Intel Arc A770",
        "56a1": "Intel Arc A750",
        "56a2": "Intel Arc A580",
        "56a5": "Intel Arc A380",
        "56a6": "Intel Arc A310",
        "e20b": "Intel Arc B580",
        "e20c": "Intel Arc B570",
        "e211": "Intel Arc Pro B60",
        "e212": "Intel Arc Pro B50",
    }
)
AMD_INTEGRATED = frozenset(
    {
        "1114", "13c0", "1435", "150e", "1506", "1586", "15bf", "15c8", "15d8", "15dd", "15e7",
        "1636", "1638", "163f", "164c", "164d", "164e", "1681", "1900", "1901", "9874", "98e4",
    }
)  # fmt: skip
INTEL_INTEGRATED = frozenset(
    {
        "0102", "0112", "0122", "0152", "0162", "0402", "0412", "0416", "041a", "1902", "1912",
        "191b", "3e90", "3e91", "3e92", "3e98", "3e9b", "4680", "4690", "4692", "46a6", "46d1",
        "4c8a", "5902", "5912", "5917", "591b", "64a0", "7d55", "7d67", "9a49", "9a60", "9bc4",
        "9bc5", "9bc8", "a780", "a782", "a788", "a7a0",
    }
)  # fmt: skip
