"""The verdict of ``p2pshim doctor`` and ``p2pshim run``, read from files: no library, no driver and no context is needed.

A file is believed if it is root's or the user's own, nobody else can have written it, and it is of this boot, kernel module, BAR1 and
IOMMU mode. docs/VERDICT.md describes it.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

#: Files of this version are read.
VERSION = 1
#: The parts that are tested. A file of a later version may have others.
PARTS = (
    "copies", "pools", "graphs", "loads", "stores", "atomics", "flags", "pull", "ll", "ll128", "ipc", "vmm", "ipc-kernels", "all-memory",
    "all-pairs", "all-to-all", "all-reduce",
)  # fmt: skip
#: No file of a real machine is larger, in bytes.
LARGEST = 16 << 20


class Part(NamedTuple):
    """How a part of a pair came out."""

    #: "right", "wrong", "hung" or "untested".
    result: str
    #: The error, or the reason why it could not be tested; None if all is right.
    detail: Optional[str]

    @property
    def is_wrong(self) -> bool:
        """Whether data was wrong, or the test did not end."""
        return self.result in ("wrong", "hung")


class Verdict:
    """The parts of each pair that were tested, by (UUID of the GPU that accesses, UUID of the GPU whose memory it is). It is false
    if nothing is known."""

    def __init__(self, pairs: Dict[Tuple[str, str], Dict[str, Part]]) -> None:
        self.pairs = pairs

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __repr__(self) -> str:
        return f"Verdict({self.pairs!r})"

    def veto(self, *parts: str, gpus: Optional[Iterable[Any]] = None) -> Optional[str]:
        """Why a program that relies on these parts must not use peer access: a sentence; None if nothing speaks against it.

        :param parts: some of :data:`PARTS`; all if none is named. What is wrong in all of the memory or while all pairs copy is wrong
            for each.
        :param gpus: UUIDs of the GPUs that the program uses, with or without ``GPU-``; all if it is None.
        :raises ValueError: there is no such part.
        """
        unknown = [part for part in parts if part not in PARTS]
        if unknown:
            raise ValueError(f"no part of the verdict: {unknown}; the parts are {', '.join(PARTS)}")
        meant = None if gpus is None else {_bare(gpu) for gpu in gpus}
        for (source, target), found in self.pairs.items():
            if meant is not None and not {_bare(source), _bare(target)} <= meant:
                continue
            for name, part in found.items():
                if part.is_wrong and (not parts or name in parts or name.startswith("all-")):
                    return f"{name} from {source} to {target}: {part.detail or part.result} (p2pshim doctor)"
        return None


def _bare(uuid: Any) -> str:
    text = str(uuid).lower()
    return text[4:] if text.startswith("gpu-") else text


def _line(*path: str) -> Optional[str]:
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _is_safe(found: os.stat_result) -> bool:
    """Whether only root or this user can have written it."""
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def _content(folder: str, name: str) -> Optional[bytes]:
    """The content of a file that nobody else can have written."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        at = os.open(folder, flags | os.O_DIRECTORY)
        try:
            if not _is_safe(os.fstat(at)):
                return None
            file = os.open(name, flags | os.O_NONBLOCK, dir_fd=at)
        finally:
            os.close(at)
        with open(file, "rb") as opened:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or not _is_safe(found) or found.st_size > LARGEST:
                return None
            return opened.read(LARGEST)
    except OSError:
        return None


def _bar1(bus_id: str) -> Optional[str]:
    """The size of the second region of a PCI device, in hexadecimal."""
    lines = (_line("/sys/bus/pci/devices", bus_id, "resource") or "").splitlines()
    try:
        start, end = (int(number, 16) for number in lines[1].split()[:2])
    except (IndexError, ValueError):
        return None
    return hex(end - start + 1) if end > start else None


def _is_as_it_was(gpu: Dict[str, Any]) -> bool:
    iommu = _line("/sys/bus/pci/devices", gpu["bus_id"], "iommu_group/type")
    return bool((gpu["bar1"], gpu["iommu"]) == (_bar1(gpu["bus_id"]), iommu))


def _pairs(content: bytes, boot: str) -> Iterable[Tuple[Tuple[str, str], Dict[str, Part]]]:
    """The pairs of a file about which it says something now."""
    told = json.loads(content)
    if told["version"] != VERSION or told["boot"] != boot or told["kernel_module"] != _line("/sys/module/nvidia/version"):
        return
    same = {gpu["uuid"] for gpu in told["gpus"] if _is_as_it_was(gpu)}
    faults = f"{os.environ.get('P2PSIM_FAULT', '')};{os.environ.get('P2PSIM_NO_P2P', '')}"
    for pair in told["pairs"]:
        if {pair["from"], pair["to"]} <= same and pair["simulated"] in (None, faults):
            parts = {name: Part(part["result"], part["detail"]) for name, part in pair["parts"].items()}
            yield (pair["from"], pair["to"]), parts


def folders() -> List[str]:
    """Where verdicts lie: the user's, and root's."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        home = os.environ.get("HOME", "")
        cache = os.path.join(home, ".cache") if os.path.isabs(home) else ""
    return ([os.path.join(cache, "p2pshim")] if cache else []) + ["/run/p2pshim"]


def read(places: Iterable[str]) -> Verdict:
    """The verdict out of these folders. A failure in any of them stays."""
    pairs: Dict[Tuple[str, str], Dict[str, Part]] = {}
    boot = _line("/proc/sys/kernel/random/boot_id")
    for folder in places if boot else ():
        content = _content(folder, f"verdict-{boot}.json")
        try:
            told = list(_pairs(content, boot)) if content and boot else []
        except (ValueError, KeyError, TypeError, AttributeError):
            # It is not what p2pshim writes.
            continue
        for ends, parts in told:
            known = pairs.setdefault(ends, {})
            for name, part in parts.items():
                if name not in known or part.is_wrong or known[name].result == "untested":
                    known[name] = part
    return Verdict(pairs)
