"""What the library tells, as Python has it, and how p2pshim.h has it: one class a struct. And the rows of tables.json, which
``make header`` writes, with counts.

To add a struct: write its class, with the fields of the struct in their order (but for its size), and a row in FIELDS. The
test ``test_structs_are_those_of_the_header`` compares both with the header.
"""

from __future__ import annotations

import ctypes
import enum
import json
import pathlib
from typing import Any, Callable, Dict, List, NamedTuple, Tuple


class Activity(enum.IntEnum):
    """What the library does with calls."""

    #: Nothing yet: no function was called. Options can be set.
    NOT_STARTED = 0
    #: It sees the calls that reach it.
    ON = 1
    #: It only forwards calls: ``P2PSHIM=off``.
    OFF = 2
    #: It only forwards calls: the process is a forked child.
    FORKED = 3
    #: It forwards and counts calls, and does nothing else: it has run out of memory.
    EXHAUSTED = 4


class Layer(enum.IntEnum):
    """The kind of a library."""

    #: CUDA's runtime, its driver, AMD's runtime, NVIDIA's library for management.
    RUNTIME = 1
    DRIVER = 2
    HIP = 3
    NVML = 4


class Kind(enum.IntEnum):
    """The treatment of an intercepted function."""

    #: Its calls are counted, traced and shown.
    TRACED = 1
    #: Its calls are watched, and not shown.
    STATE = 2
    #: It looks functions up.
    LOOKUP = 3


class Severity(enum.IntEnum):
    """The severity of a rule's findings."""

    #: The call fails, or would fail if CUDA checked its arguments.
    ERROR = 1
    #: Data may be wrong.
    HAZARD = 2
    #: It costs time.
    PERFORMANCE = 3
    #: It is worth knowing.
    NOTE = 4


class Path(enum.IntEnum):
    """The path of copies."""

    #: None: there are no copies.
    NONE = 0
    #: From device to device, or through the host.
    DIRECT = 1
    STAGED = 2
    #: Inside one device.
    SAME_DEVICE = 3
    #: From or to memory of the host.
    HOST = 4
    #: Not known: managed memory, or memory of another process.
    UNKNOWN = 5
    #: None yet: the copy became part of a graph.
    CAPTURED = 6
    #: From device to device: HIP maps the memory on first use.
    MAPPED_ON_USE = 7


class Verification(enum.IntEnum):
    """What has been found out about the path between two devices."""

    #: Nothing yet: nothing is verified before a pair has copied enough.
    NONE = 0
    #: Data arrives, both ways.
    PASSED = 1
    #: The driver says that there is no path.
    NO_PATH = 2
    #: Data is lost, or copies hang: the pair is blocked.
    FAILED = 3
    #: Data arrives, but later than by way of the host.
    SLOWER = 4


class Route(enum.IntFlag):
    """How the calls of a runtime or driver reach the library."""

    #: What is linked with it calls p2pshim, which was preloaded, or linked first.
    LINKED = 1
    #: Functions that were looked up by name were handed out as p2pshim's.
    LOOKED_UP = 2
    #: Linked calls have gone through p2pshim.
    CALLED = 4


class By(enum.IntFlag):
    """Who has enabled peer access."""

    #: The program, between any contexts of the two devices.
    PROGRAM = 1
    #: p2pshim.
    SHIM = 2


class Api(NamedTuple):
    """An intercepted function."""

    #: The exported name, such as "cudaMemcpyPeer".
    name: str
    #: The kind of library that it belongs to.
    layer: Layer
    #: Its treatment.
    kind: Kind
    #: The names of its parameters, separated by ", ".
    parameters: str
    #: The CUDA version that introduced it: 1000 times the major plus 10 times the minor.
    since: int
    #: How often it was called so far in this process; counted of ``Kind.TRACED`` only.
    calls: int
    #: How many of these calls returned an error.
    failures: int


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
    #: How bad its findings are.
    severity: Severity
    #: The functions that it is about.
    functions: str
    #: What the documentation of CUDA says, and where.
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


class Finding(NamedTuple):
    """Something that was found wrong with a call."""

    #: The id of the rule, such as "P2P-enable-twice".
    rule: str
    #: The function that was called.
    function: str
    #: How many findings this process had by then; tells two of them apart.
    number: int
    #: What the function returned; also 0 for a finding before the call.
    result: int
    #: The thread that called, as the kernel numbers it.
    thread: int


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


class State(NamedTuple):
    """The library in this process."""

    #: What it does with calls.
    activity: Activity
    #: Whether calls are being recorded.
    recording: bool
    #: The version of the driver that is loaded, 1000 times the major plus 10 times the minor; 0 for none.
    driver_version: int
    #: How many devices the process sees; 0 if there is no driver, or nobody has initialised it yet.
    device_count: int
    #: How many calls of functions whose kind is ``Kind.TRACED`` were intercepted.
    calls: int
    #: How many of them returned an error.
    failures: int


class Library(NamedTuple):
    """A runtime or driver that is loaded."""

    #: Its file.
    path: str
    #: Its kind.
    layer: Layer
    #: By which routes its calls reach p2pshim.
    routes: Route
    #: Which of its calls go past p2pshim, and what to do about it; empty if none do that are known of.
    bypass: str


class PairState(NamedTuple):
    """A device's access to the memory of another."""

    #: Whether the hardware allows it, as the driver says: 1, 0, or -1 if it does not say.
    possible: int
    #: Who has enabled it.
    enabled_by: By
    #: Whether ``P2PSHIM_ACCESS`` or ``P2PSHIM_DENY`` hides it from the program.
    denied: bool
    #: What is known of the path between the two.
    verification: Verification
    #: The same for memory of pools.
    pool_verification: Verification
    #: The path of copies between them, as things stand.
    path: Path
    #: Why it is that one; empty if there is nothing to say.
    reason: str


class Trace(NamedTuple):
    """The trace of this process."""

    #: The file.
    path: str
    #: How many calls have found no room in it, and were only counted.
    dropped: int
    #: Whether calls are being recorded.
    recording: bool


#: The type in C, and what makes of it what Python gets.
Field = Tuple[Any, Callable[[Any], Any]]


def _text(value: Any) -> str:
    return (value or b"").decode()


TEXT: Field = (ctypes.c_char_p, _text)
INT: Field = (ctypes.c_int, int)
YES_NO: Field = (ctypes.c_int, bool)
COUNT: Field = (ctypes.c_uint64, int)

#: The fields that are no texts.
FIELDS: Dict[Any, Dict[str, Field]] = {
    Finding: {"number": COUNT, "result": INT, "thread": INT},
    Pair: dict.fromkeys(Pair._fields, COUNT),
    State: {
        "activity": (ctypes.c_int, Activity), "recording": YES_NO, "driver_version": INT, "device_count": INT,
        "calls": COUNT, "failures": COUNT,
    },
    Library: {"layer": (ctypes.c_int, Layer), "routes": (ctypes.c_uint, Route)},
    PairState: {
        "possible": INT, "enabled_by": (ctypes.c_uint, By), "denied": YES_NO, "verification": (ctypes.c_int, Verification),
        "pool_verification": (ctypes.c_int, Verification), "path": (ctypes.c_int, Path),
    },
    Trace: {"dropped": COUNT, "recording": YES_NO},
}  # fmt: skip


def field(row: Any, name: str) -> Field:
    """How a field of a class is had."""
    return FIELDS[row].get(name, TEXT)


def noun(row: Any) -> str:
    """What p2pshim.h calls the struct of a class: ``pair_state`` for PairState."""
    name: str = row.__name__
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def _struct(row: Any) -> Any:
    fields = [("size", ctypes.c_size_t), *((name, field(row, name)[0]) for name in row._fields)]
    return type(f"p2pshim_{noun(row)}_t", (ctypes.Structure,), {"_fields_": fields})


#: The structs by class.
STRUCTS: Dict[Any, Any] = {row: _struct(row) for row in FIELDS}

_TABLES = pathlib.Path(__file__).with_name("tables.json")
_ENUMS: Dict[str, Any] = {"layer": Layer, "kind": Kind, "severity": Severity}


def table(name: str) -> List[Dict[str, Any]]:
    """The rows of a table: "apis", "options" or "rules"."""
    rows = json.loads(_TABLES.read_text(encoding="utf-8"))[name]
    return [{key: _ENUMS[key][value.upper()] if key in _ENUMS else value for key, value in row.items()} for row in rows]
