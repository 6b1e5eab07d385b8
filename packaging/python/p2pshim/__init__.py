"""p2pshim from Python: what it intercepts, how it is configured, what has been copied.

Run a program under it, from a shell or from Python::

    p2pshim run -- python train.py

    subprocess.run([sys.executable, "train.py"], env=p2pshim.environment(log="info"))

and ask it from inside that program::

    import p2pshim
    if p2pshim.is_active():
        print(p2pshim.pair(0, 1))    # Pair(direct_copies=3, direct_bytes=805306368, staged_copies=1, staged_bytes=262144)

It intercepts CUDA's calls only where it was preloaded, which ``p2pshim run`` and ``environment`` bring about for
processes that start later; importing this module does not. All functions may be called from any thread, and none of them
calls CUDA.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
import threading
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

__all__ = [
    "Api", "Option", "Pair", "Rule", "apis", "command_path", "environment", "is_active", "library_path", "main", "options",
    "pair", "pairs", "rules", "version",
]

#: The name that programs know the library by.
_SONAME = "libp2pshim.so.0"

#: Copies are counted by devices below this.
_DEVICES = 32


class Api(NamedTuple):
    """An intercepted function."""

    #: The exported name, such as "cudaMemcpyPeer".
    name: str
    #: "runtime", "driver" and the like.
    layer: str
    #: "traced", "state" (seen, not shown) or "lookup" (hands out functions).
    kind: str
    #: The names of its parameters, separated by ", ".
    parameters: str
    #: The version that introduced it: for CUDA, 1000 times the major plus 10 times the minor.
    since: int


class Option(NamedTuple):
    """An environment variable that the library reads."""

    #: Such as "P2PSHIM_LOG".
    name: str
    #: The accepted values.
    values: str
    #: What holds when it is not set; empty if nothing.
    default_value: str
    #: What it does.
    help: str


class Rule(NamedTuple):
    """A rule about peer calls: what programs get wrong, and what errors mean."""

    #: The stable id, such as "P2P-enable-twice".
    id: str
    #: "error", "hazard" (data may be wrong), "performance" or "note".
    severity: str
    #: The functions that it is about.
    functions: str
    #: What the vendor's documentation says, and where.
    documentation: str
    #: What real hardware does where it is not that; empty if nothing is known.
    hardware: str
    #: Why it matters.
    why: str
    #: What to do.
    remedy: str
    #: The code that the documentation gives for the runtime's functions; 0 for none.
    runtime_code: int
    #: The same for the driver's.
    driver_code: int
    #: The names of these codes; empty for none.
    runtime_code_name: str
    #: The same for the driver's.
    driver_code_name: str
    #: How often the rule has spoken in this process so far.
    times: int


class Pair(NamedTuple):
    """The successful peer copies of this process from one device to another, counted when they are submitted."""

    #: Copies that went directly from device to device, or stayed in one.
    direct_copies: int
    #: Their bytes.
    direct_bytes: int
    #: Copies that went through the host.
    staged_copies: int
    #: Their bytes.
    staged_bytes: int


# The structs of p2pshim.h have the fields of these classes in the same order, after their size. A field that is not a text
# (`str`) is named here with its C type. To add one: write the class, and a row here.
_NUMBERS = {
    Api: {"since": ctypes.c_int},
    Option: {},
    Rule: {"runtime_code": ctypes.c_int, "driver_code": ctypes.c_int, "times": ctypes.c_uint64},
    Pair: dict.fromkeys(Pair._fields, ctypes.c_uint64),
}


def _struct(row: Any) -> Any:
    fields = [(name, _NUMBERS[row].get(name, ctypes.c_char_p)) for name in row._fields]
    return type("p2pshim_%s_t" % row.__name__.lower(), (ctypes.Structure,), {"_fields_": [("size", ctypes.c_size_t), *fields]})


_STRUCTS = {row: _struct(row) for row in _NUMBERS}


def _installed(*places: str) -> pathlib.Path:
    """The first of these paths that exists, seen from this module's folder or one above it."""
    for folder in pathlib.Path(__file__).resolve().parents:
        for place in places:
            if (folder / place).exists():
                return folder / place
    raise FileNotFoundError(
        "%s was not installed with this module in %s" % (" or ".join(places), pathlib.Path(__file__).resolve().parent)
    )


def library_path() -> pathlib.Path:
    """The library that was installed with this module: what ``LD_PRELOAD`` wants.

    :raises FileNotFoundError: it is not there.
    """
    return _installed(*(folder + "/" + _SONAME for folder in ("lib", "lib/x86_64-linux-gnu", "lib64")))


def command_path() -> pathlib.Path:
    """The command ``p2pshim`` that was installed with this module.

    :raises FileNotFoundError: it is not there.
    """
    return _installed("bin/p2pshim")


def environment(base: Optional[Mapping[str, str]] = None, **settings: Any) -> Dict[str, str]:
    """The environment of a process that is to run under p2pshim: ``base``, or this process's own, with the library first
    among what is preloaded, and with the options that are given: ``log="info"`` is ``P2PSHIM_LOG=info``. True and False are
    ``on`` and ``off``, and ``enabled=False`` is ``P2PSHIM=off``.

    :raises TypeError: there is no such option.
    :raises ValueError: the library's path has a space or a colon, which ``LD_PRELOAD`` takes for the end of a path.
    """
    library = str(library_path())
    if any(separator in library for separator in " :\t\n"):
        raise ValueError("%r cannot be preloaded: in LD_PRELOAD a space or a colon ends a path" % library)
    result = dict(os.environ if base is None else base)
    before = result.get("LD_PRELOAD", "")
    if library not in before.replace(":", " ").split():
        result["LD_PRELOAD"] = library + (":" + before if before else "")
    known = {option.name for option in options()}
    for name, value in settings.items():
        variable = "P2PSHIM" if name == "enabled" else "P2PSHIM_" + name.upper()
        if variable not in known:
            raise TypeError("p2pshim has no option %s: there is no %s" % (name, variable))
        result[variable] = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    return result


_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None


def _already_in_process() -> Optional[ctypes.CDLL]:
    """The library if it is in this process already, from whatever file: its counters are the ones that count."""
    try:
        return ctypes.CDLL(_SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _library() -> ctypes.CDLL:
    global _loaded
    with _lock:
        if _loaded is None:
            library = _already_in_process() or ctypes.CDLL(str(library_path()))
            library.p2pshim_version.restype = ctypes.c_char_p
            for name in ("api", "option", "rule"):
                getattr(library, "p2pshim_%s_count" % name).restype = ctypes.c_size_t
                getattr(library, "p2pshim_%s_get" % name).argtypes = [ctypes.c_size_t, ctypes.c_void_p]
            library.p2pshim_pair_get.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
            _loaded = library
        return _loaded


def _ask(row: Any, *arguments: int) -> Any:
    """Has the library fill the struct of ``row``.

    :raises IndexError: there is no such one.
    """
    function = "p2pshim_%s_get" % row.__name__.lower()
    struct = _STRUCTS[row]()
    struct.size = ctypes.sizeof(struct)
    status = getattr(_library(), function)(*arguments, ctypes.byref(struct))
    if status == 2:
        raise IndexError("%s%r: there is no such one" % (function, arguments))
    if status != 0:
        raise RuntimeError("%s%r answered %d: the library is of another version than this module" % (function, arguments, status))
    values = (getattr(struct, name) for name in row._fields)
    return row._make(value.decode() if isinstance(value, bytes) else value for value in values)


def _all(row: Any) -> List[Any]:
    count = getattr(_library(), "p2pshim_%s_count" % row.__name__.lower())()
    return [_ask(row, index) for index in range(count)]


def version() -> str:
    """The version of the library, such as "0.1.0"."""
    text: bytes = _library().p2pshim_version()
    return text.decode()


def is_active() -> bool:
    """Whether this process has the library preloaded, or linked before CUDA, so that its calls are seen."""
    library = _already_in_process()
    if library is None:
        return False
    # Loaded by this module, it is not in the global scope.
    return hasattr(ctypes.CDLL(None), "p2pshim_version")


def apis() -> List[Api]:
    """The functions that it intercepts."""
    return _all(Api)


def options() -> List[Option]:
    """The environment variables that it reads."""
    return _all(Option)


def rules() -> List[Rule]:
    """The rules about peer calls, with how often each has spoken."""
    return _all(Rule)


def pair(src_device: int, dst_device: int) -> Pair:
    """What has been copied from one device to another.

    :raises IndexError: a device is negative or above 31: such copies are not counted.
    """
    result: Pair = _ask(Pair, src_device, dst_device)
    return result


def pairs() -> Dict[Any, Pair]:
    """What has been copied, by (source device, destination device): the pairs with copies."""

    def seen() -> Iterator[Any]:
        for src in range(_DEVICES):
            for dst in range(_DEVICES):
                counts = pair(src, dst)
                if counts.direct_copies or counts.staged_copies:
                    yield (src, dst), counts

    return dict(seen())


def main() -> None:
    """The command ``p2pshim``, in place of this process."""
    try:
        command = str(command_path())
        os.execv(command, ["p2pshim", *sys.argv[1:]])
    except OSError as error:
        sys.exit("p2pshim: the command cannot be started: %s" % error)
