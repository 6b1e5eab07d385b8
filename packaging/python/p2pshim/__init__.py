"""p2pshim from Python: what it intercepts, how it is configured, what has been copied.

Run a program under it, from a shell or from Python::

    p2pshim run -- python train.py

    subprocess.run([sys.executable, "train.py"], env=p2pshim.environment(log="info"))

and ask it from inside that program::

    import p2pshim
    if p2pshim.is_active():
        print(p2pshim.pair(0, 1))    # Pair(direct_copies=3, direct_bytes=805306368, staged_copies=1, staged_bytes=262144)
        print(p2pshim.pair_state(0, 1).reason)

CUDA calls are intercepted only in processes into which the library is preloaded. ``p2pshim run`` and ``environment`` do
that for processes that start later; importing this module does not. All functions may be called from any thread. Most are
those of p2pshim.h, which documents them in full; callbacks are available in C only.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _library, _rows, _verdict
from ._library import Error
from ._rows import (
    Activity, Api, By, Finding, Kind, Layer, Library, Option, Pair, PairState, Path, Verification, Route, Rule, Severity, State, Trace,
)  # fmt: skip
from ._verdict import Verdict

__all__ = [
    "Activity", "Api", "By", "Error", "Finding", "Kind", "Layer", "Library", "Option", "Pair", "PairState", "Path", "Verdict", "Verification",
    "Route", "Rule", "Severity", "State", "Trace", "apis", "command_path", "environment", "is_active", "last_finding", "libraries", "library_path",
    "main", "mark", "option", "options", "pair", "pair_state", "pairs", "prepare_pair", "rules",
    "set_option", "start_trace", "state", "stop_trace", "trace", "verdict", "version",
]  # fmt: skip

#: Copies are counted by devices below this.
_DEVICES = 32


def library_path() -> pathlib.Path:
    """The library that was installed with this module, for ``LD_PRELOAD``.

    :raises FileNotFoundError: it is not there.
    """
    return _library.path()


def command_path() -> pathlib.Path:
    """The command ``p2pshim`` that was installed with this module.

    :raises FileNotFoundError: it is not there.
    """
    return _library.installed("bin/p2pshim")


def _variable(name: str) -> str:
    """The environment variable of an option, which may be named without its prefix: ``log`` or ``P2PSHIM_LOG``."""
    if name in ("enabled", "P2PSHIM"):
        return "P2PSHIM"
    return name if name.startswith("P2PSHIM_") else "P2PSHIM_" + name.upper()


def _value(value: Any) -> str:
    """A value as the environment has it: True and False are ``on`` and ``off``."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def environment(base: Optional[Mapping[str, str]] = None, **settings: Any) -> Dict[str, str]:
    """The environment of a process that is to run under p2pshim: ``base``, or this process's own, with the library first
    among what is preloaded, and with the options that are given: ``log="info"`` is ``P2PSHIM_LOG=info``. True and False are
    ``on`` and ``off``, and ``enabled=False`` is ``P2PSHIM=off``.

    :raises TypeError: there is no such option.
    :raises ValueError: the library's path has a space or a colon, which ``LD_PRELOAD`` takes for the end of a path.
    """
    library = str(library_path())
    if any(separator in library for separator in " :\t\n"):
        raise ValueError(f"{library!r} cannot be preloaded: in LD_PRELOAD a space or a colon ends a path")
    result = dict(os.environ if base is None else base)
    before = result.get("LD_PRELOAD", "")
    if library not in before.replace(":", " ").split():
        result["LD_PRELOAD"] = library + (":" + before if before else "")
    known = {option.name for option in options()}
    for name, value in settings.items():
        if _variable(name) not in known:
            raise TypeError(f"p2pshim has no option {name}: there is no {_variable(name)}")
        result[_variable(name)] = _value(value)
    return result


def version() -> str:
    """The version of the library, such as "0.1.0"."""
    text: bytes = _library.call("version")
    return text.decode()


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def state() -> State:
    """What the library does in this process, and what it has intercepted."""
    told: State = _library.ask(State)
    return told


def is_active() -> bool:
    """Whether CUDA calls in this process are intercepted: the library was preloaded or linked before CUDA, and is not off."""
    # Loaded by this module, it would not be in the global scope.
    if _library.in_process() is None or not hasattr(ctypes.CDLL(None), "p2pshim_version"):
        return False
    activity = state().activity
    return activity == Activity.ON or (activity == Activity.NOT_STARTED and option("P2PSHIM") == "on")


def apis() -> List[Api]:
    """The functions that it intercepts, with how often each was called."""
    def counted(row: Dict[str, Any]) -> Api:
        calls, failures = _library.counts("calls_get", row["name"], 2)
        return Api(**row, calls=calls, failures=failures)

    return [counted(row) for row in _rows.table("apis")]


def options() -> List[Option]:
    """The environment variables that it reads."""
    return [Option(**row) for row in _rows.table("options")]


def option(name: str) -> str:
    """The value of an option, by a name such as "log" or "P2PSHIM_LOG", that holds or is going to.

    :raises Error: there is no such option.
    """
    length = ctypes.c_size_t()
    buffer = ctypes.create_string_buffer(256)
    while True:
        arguments = (_variable(name).encode(), buffer, len(buffer), ctypes.byref(length))
        if _library.call("option_value", *arguments) != _library.TOO_SMALL:
            _library.do("option_value", *arguments, detail=": " + _variable(name))
            return buffer.value.decode()
        buffer = ctypes.create_string_buffer(length.value + 1)


def set_option(name: str, value: Any) -> None:
    """Sets an option, by a name such as "log" or "P2PSHIM_LOG", for this process. After the first intercepted call not all of
    them can change any more; p2pshim.h says which can.

    :raises Error: there is no such option, it has no such value, or it is too late.
    """
    variable, text = _variable(name), _value(value)
    _library.do("option_set", variable.encode(), text.encode(), detail=f": {variable}={text}")


def rules() -> List[Rule]:
    """The rules about peer calls, with the number of findings of each."""
    return [Rule(**row, times=_library.counts("findings_get", row["id"], 1)[0]) for row in _rows.table("rules")]


def last_finding() -> Optional[Tuple[Finding, str]]:
    """The last finding of this process, on any thread, and its text as in the log; None if there was none."""
    finding, text = _library.blank(Finding), ctypes.create_string_buffer(8192)
    status = _library.call("finding_last", ctypes.byref(finding), text, len(text))
    if status == _library.NOT_FOUND:
        return None
    if status not in (_library.OK, _library.TOO_SMALL):
        raise Error(status)
    return _library.taken(Finding, finding), text.value.decode(errors="replace")


def libraries() -> List[Library]:
    """The runtimes and drivers that are loaded: by which routes their calls reach p2pshim, and which calls bypass it."""
    return [_library.ask(Library, index) for index in range(_library.call("library_count"))]


def pair(src_device: int, dst_device: int) -> Pair:
    """What has been copied from one device to another.

    :raises IndexError: a device is negative or above 31: such copies are not counted.
    """
    told: Pair = _library.ask(Pair, src_device, dst_device)
    return told


def pairs() -> Dict[Tuple[int, int], Pair]:
    """What has been copied, by (source device, destination device): the pairs with copies."""

    def seen() -> Iterator[Tuple[Tuple[int, int], Pair]]:
        for src in range(_DEVICES):
            for dst in range(_DEVICES):
                counts = pair(src, dst)
                if counts.direct_copies or counts.staged_copies:
                    yield (src, dst), counts

    return dict(seen())


def pair_state(device: int, peer: int) -> PairState:
    """What is known of a device's access to the memory of another, and which path copies take.

    :raises IndexError: a device is negative or above 63.
    """
    told: PairState = _library.ask(PairState, device, peer)
    return told


def verdict() -> Verdict:
    """What ``p2pshim doctor`` or ``p2pshim run`` found out about this machine's GPUs since it was booted. It reads a file or two, and needs
    neither the library nor a CUDA context. Nothing in it says that peer access may be used where CUDA says that it cannot::

        why = p2pshim.verdict().veto("loads", "stores", "flags", "ipc", gpus=uuids)
        if why is not None:
            use_custom_all_reduce = False
    """
    return _verdict.read(_verdict.folders())


def prepare_pair(device: int, peer: int) -> bool:
    """Verifies the path between two devices and enables peer access now, not when they have copied enough. Each device needs a
    context: in PyTorch, allocate a tensor on it first. Returns whether copies between the two are direct from now on; if not,
    ``pair_state(device, peer).reason`` says why.

    :raises Error: it was not tried, and why: a device has no context yet, say.
    :raises IndexError: there are no two such devices.
    """
    try:
        _library.do("pair_prepare", device, peer)
    except Error as error:
        if error.status != _library.STAGED:
            raise
        return False
    return True


def start_trace(folder: Optional[str] = None) -> None:
    """Records calls from now on, in a file in ``folder`` (by default the one that ``P2PSHIM_TRACE`` names), for
    ``p2pshim report``. After ``stop_trace`` it goes on in the same file.

    :raises Error: no folder is named, there is a trace in another one, or the file cannot be made.
    """
    _library.do("trace_start", os.fsencode(folder) if folder is not None else None)


def stop_trace() -> None:
    """Stops recording calls until ``start_trace``.

    :raises Error: there is no trace.
    """
    _library.do("trace_stop")


def mark(text: str) -> None:
    """Writes a mark to the trace, such as "epoch 3 begins".

    :raises Error: calls are not being recorded.
    """
    _library.do("trace_mark", text.encode())


def trace() -> Optional[Trace]:
    """The trace of this process; None if there is none."""
    struct = _library.blank(Trace)
    if _library.call("trace_get", ctypes.byref(struct)) == _library.NOT_FOUND:
        return None
    told: Trace = _library.ask(Trace)
    return told


def main() -> None:
    """The command ``p2pshim``, in place of this process."""
    try:
        command = str(command_path())
        os.execv(command, ["p2pshim", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"p2pshim: the command cannot be started: {error}")
