"""The library: where it is, its functions, and what they answer."""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import Any, List, Optional

from . import _rows

#: The name that programs know the library by.
SONAME = "libp2pshim.so.0"

#: What functions answer.
OK, OUT_OF_RANGE, TOO_SMALL, NOT_FOUND, STAGED = 0, 2, 6, 8, 10

_TEXT, _SIZE, _INT, _ANY = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p

#: The functions of p2pshim.h: what each takes, and what it answers if that is no status.
FUNCTIONS: Any = {
    "version": ([], _TEXT),
    "status_name": ([_INT], _TEXT),
    "status_text": ([_INT], _TEXT),
    "calls_get": ([_TEXT, _ANY, _ANY],),
    "findings_get": ([_TEXT, _ANY],),
    "option_set": ([_TEXT, _TEXT],),
    "option_value": ([_TEXT, _ANY, _SIZE, _ANY],),
    "library_count": ([], _SIZE),
    "library_get": ([_SIZE, _ANY],),
    "pair_get": ([_INT, _INT, _ANY],),
    "pair_prepare": ([_INT, _INT],),
    "pair_state_get": ([_INT, _INT, _ANY],),
    "state_get": ([_ANY],),
    "finding_last": ([_ANY, _ANY, _SIZE],),
    "trace_get": ([_ANY],),
    "trace_start": ([_TEXT],),
    "trace_stop": ([],),
    "trace_mark": ([_TEXT],),
}


class Error(RuntimeError):
    """A function of the library failed."""

    #: Its status, such as 5, and the status's name, such as "P2PSHIM_TOO_LATE".
    status: int
    name: str

    def __init__(self, status: int, detail: str = "") -> None:
        self.status = status
        self.name = call("status_name", status).decode()
        super().__init__(f"{self.name}: {call('status_text', status).decode()}{detail}")


def installed(*places: str) -> pathlib.Path:
    """The first of these paths that exists, seen from this module's folder or one above it."""
    folders = pathlib.Path(__file__).resolve().parents
    for folder in folders:
        for place in places:
            if (folder / place).exists():
                return folder / place
    raise FileNotFoundError(f"{' or '.join(places)} was not installed with this module in {folders[0]}")


def path() -> pathlib.Path:
    """The library that was installed with this module."""
    return installed(*(folder + "/" + SONAME for folder in ("lib", f"lib/{os.uname().machine}-linux-gnu", "lib64")))


def in_process() -> Optional[ctypes.CDLL]:
    """The library if it is in this process already, from whatever file: what counts is what that has counted."""
    try:
        return ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None


def _library() -> ctypes.CDLL:
    global _loaded
    with _lock:
        if _loaded is None:
            library = in_process() or ctypes.CDLL(str(path()))
            for name, (parameters, *answer) in FUNCTIONS.items():
                try:
                    function = getattr(library, "p2pshim_" + name)
                except AttributeError:
                    # An older library, perhaps: the others may do.
                    continue
                function.argtypes, function.restype = parameters, answer[0] if answer else _INT
            _loaded = library
        return _loaded


def call(name: str, *arguments: Any) -> Any:
    """What a function answers."""
    try:
        function = getattr(_library(), "p2pshim_" + name)
    except AttributeError:
        raise NotImplementedError(f"the library in this process is of another version: it has no p2pshim_{name}") from None
    return function(*arguments)


def do(name: str, *arguments: Any, detail: str = "") -> None:
    """Calls a function that answers a status.

    :raises Error: it failed. (IndexError, if an index or device is out of range.)
    """
    status = call(name, *arguments)
    if status == OUT_OF_RANGE:
        raise IndexError(f"p2pshim_{name}: there is no such one{detail}")
    if status != OK:
        raise Error(status, detail)


def blank(row: Any) -> Any:
    """An empty struct for what is told of ``row``."""
    struct = _rows.STRUCTS[row]()
    struct.size = ctypes.sizeof(struct)
    return struct


def taken(row: Any, struct: Any) -> Any:
    """What a struct tells."""
    return row._make(_rows.field(row, name)[1](getattr(struct, name)) for name in row._fields)


def ask(row: Any, *arguments: int) -> Any:
    """Has the library tell a ``row``."""
    struct = blank(row)
    do(_rows.noun(row) + "_get", *arguments, ctypes.byref(struct), detail=f" of {arguments!r}" if arguments else "")
    return taken(row, struct)


def counts(name: str, of: str, number: int) -> List[int]:
    """So many numbers that a function tells of something by its name."""
    numbers = [ctypes.c_uint64() for _ in range(number)]
    do(name, of.encode(), *map(ctypes.byref, numbers), detail=": " + of)
    return [number.value for number in numbers]
