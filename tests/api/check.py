#!/usr/bin/env python3
"""Accounts for every function of CUDA and HIP, for tests/it/api.rs.

    check.py functions    each has a row in src/api/functions.txt, or a line in not-intercepted.txt that says why it has none
    check.py types        the arguments of each row are those of the vendor's declaration
    check.py codes        each code that a function can return has its names in host/src/codes.rs

The declarations are those of cuda.h and cuda_runtime_api.h of four releases, with all earlier forms and those for the per-thread default
stream, and those of HIP's Python bindings. The headers of 13.5 and the bindings are those of c-tests/api.txt; the others are those that
`make c-tests` fetches.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LINES = HERE / "not-intercepted.txt"
FETCHED = ROOT / "target" / "api"
NVIDIA = ROOT / "target" / "nvidia"
BINDINGS = "rocm/bindings/cyhip.pxd"
# Release, and where its headers are. Those of crt/ are a package of their own, which other releases take as it is.
RELEASES = {
    "11.8": [NVIDIA / "cu11/include"],
    "12.9": [NVIDIA / "cu12/include"],
    "13.0": [NVIDIA / "cu13/include"],
    "13.5": [FETCHED / "nvidia/cu13/include", NVIDIA / "cu13/include"],
}
HEADERS = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cuda_runtime_api.h>\n"
# The runtime's batch functions have lost an argument with 13.0, and kept their names (src/api/mod.rs, FAIL_INDEX).
LOST_IN_13 = {"cudaMemcpyBatchAsync", "cudaMemcpyBatchAsync_ptsz", "cudaMemcpy3DBatchAsync", "cudaMemcpy3DBatchAsync_ptsz"}
# Enumerators of the codes' range that are none.
NO_CODES = {"cudaErrorApiFailureBase"}

# For each type of src/api/abi.rs the condition on the vendor's type, in C.
CONDITIONS = {
    "Pointer": "IS_POINTER(T)",
    "DevicePointer": "IS(T, unsigned long long)",
    "Array": "IS(T, CUarray)",
    "Context": "IS(T, CUcontext)",
    "Stream": "IS(T, CUstream)",
    "Ordinal": "IS(T, int)",
    "Size": "IS(T, size_t)",
    "Int": "(IS(T, int) || IS_ENUM(T))",
    "UChar": "IS(T, unsigned char)",
    "UShort": "IS(T, unsigned short)",
    "UInt": "IS(T, unsigned int)",
    "UInt64": "(IS(T, unsigned long long) || IS(T, cuuint64_t))",
    "P2pAttribute": "(IS(T, CUdevice_P2PAttribute) || IS(T, enum cudaDeviceP2PAttr))",
    "MemcpyKind": "IS(T, enum cudaMemcpyKind)",
    "OutInt": "IS(T, int *)",
    "IpcMemHandle": "IS(T, CUipcMemHandle)",
    "IpcEventHandle": "IS(T, CUipcEventHandle)",
    "Text": "IS(T, const char *)",
    "RuntimePeer3D": "IS(T, const struct cudaMemcpy3DPeerParms *)",
    "DriverPeer3D": "IS(T, const CUDA_MEMCPY3D_PEER *)",
    "Runtime3D": "IS(T, const struct cudaMemcpy3DParms *)",
    "Driver2D": "IS(T, const CUDA_MEMCPY2D_v2 *)",
    "Driver3D": "IS(T, const CUDA_MEMCPY3D_v2 *)",
}
MACROS = """
#define IS(T, U) __builtin_types_compatible_p(T, U)
#define IS_POINTER(T) (__builtin_classify_type((T)0) == 5)
// To gcc each enumeration is an unsigned int.
#define IS_ENUM(T) (IS(T, unsigned int) && __builtin_strcmp(#T, "unsigned int") != 0)
"""
# Conditions for HIP, whose bindings are no C: expressions on a type without spaces.
HIP_TYPES = {
    "Pointer": r".*\*|hipGraph_t|hipGraphExec_t|hipMemPool_t|hipArray_t|hipEvent_t|hipFunction_t|hipHostFn_t|hipStreamCallback_t",
    "Dim3": "dim3",
    "Context": "hipCtx_t",
    "Stream": "hipStream_t",
    "Ordinal": "int",
    "Size": "size_t",
    "Int": "int|hipStreamCaptureMode",
    "UInt": "unsignedint",
    "UInt64": "unsignedlonglong|uint64_t",
    "P2pAttribute": "hipDeviceP2PAttr",
    "MemcpyKind": "hipMemcpyKind",
    "OutInt": r"int\*",
    "Text": r"constchar\*",
    "RuntimePeer3D": r"(const)?hipMemcpy3DPeerParms\*",
    "Runtime3D": r"(const)?(struct)?hipMemcpy3DParms\*",
}


def rows():
    """The rows of the table: layer, name, arguments as name and type."""
    found = []
    for line in (ROOT / "src/api/functions.txt").read_text().splitlines():
        row = re.match(r"[a-z_]+(?:\([a-z0-9_, ]*\))? +(runtime|driver|hip|nvml) +\d+ (\w+)\((.*)\)$", line)
        if row:
            arguments = [part.split(": ") for part in row[3].split(", ") if part]
            found.append((row[1], row[2], arguments))
    return found


def gcc(release, source, *options):
    folders = [option for folder in RELEASES[release] for option in ("-isystem", str(folder))]
    command = ["gcc", "-std=gnu11", "-x", "c", *folders, *options, "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True)


def prototypes(release):
    """The declarations in the headers of a release: for each name its arguments, each as in the source."""
    result = gcc(release, HEADERS, "-E", "-P")
    if result.returncode != 0:
        sys.exit(f"api: headers of CUDA {release}: {result.stderr}")
    found = {}
    for name, arguments in re.findall(r"\b(?:CUresult|cudaError_t|const char ?\*|struct \w+)\s+(cu[A-Z]\w*|cuda[A-Z]\w*)\s*\(([^;{}]*)\)\s*;", result.stdout):
        parts = re.split(r",(?![^(]*\))", arguments)
        found[name] = [] if arguments.strip() in ("", "void") else [" ".join(part.split()) for part in parts]
    return found


def declared_by_hip():
    """The declarations in HIP's bindings."""
    text = (FETCHED / BINDINGS).read_text()
    found = {}
    for name, arguments in re.findall(r"^cdef [^(\n]*?\b(hip[A-Z]\w*)\(([^)\n]*)\) except", text, re.M):
        found[name] = [part for part in arguments.split(",") if part]
    return found


def type_of(argument):
    """An argument's type: what stands before its name."""
    return re.sub(r"(?<=[\s*])\w+$", "", argument).strip() or argument


def less_per_thread(name):
    """A name without what says that it is for the per-thread default stream."""
    return re.sub(r"_(ptds|ptsz|spt)$", "", name)


def lines():
    """The reasons of not-intercepted.txt, by name."""
    reasons, reason, is_names = {}, "", False
    for number, line in enumerate(LINES.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if not line.startswith("    "):
            reason = line if is_names else f"{reason} {line}".strip()
            is_names = False
            continue
        is_names = True
        for name in line.split():
            if name in reasons:
                yield f"{LINES.name}:{number}: {name} stands there twice", None
            reasons[name] = reason
    yield None, reasons


def functions():
    declared = {name for release in RELEASES for name in prototypes(release)}
    hip = set(declared_by_hip())
    if len(declared) < 1100 or len(hip) < 500:
        yield f"only {len(declared)} functions of CUDA and {len(hip)} of HIP were found: they are declared otherwise now"
    with_row = {name for _, name, _ in rows()}
    reasons = {}
    for wrong, found in lines():
        if wrong:
            yield wrong
        reasons = found or reasons
    for name in sorted(declared | hip):
        if name not in with_row and less_per_thread(name) not in reasons:
            yield f"{name} has neither a row in src/api/functions.txt nor a line in {LINES.name} that says why"
    forms = {}
    for name in declared | hip:
        forms.setdefault(less_per_thread(name), set()).add(name)
    for name, reason in reasons.items():
        if name not in forms:
            yield f"{LINES.name}: {name} is declared nowhere"
        elif forms[name] <= with_row:
            yield f"{LINES.name}: {name} has a row"
        if not reason.endswith("."):
            yield f"{LINES.name}: no reason stands above {name}"


def types():
    table = [row for row in rows() if row[0] in ("runtime", "driver")]
    unseen = {name for _, name, _ in table}
    for release in RELEASES:
        declared = prototypes(release)
        asserts = []
        for layer, name, arguments in table:
            if name not in declared:
                continue
            unseen.discard(name)
            if name in LOST_IN_13 and release >= "13":
                arguments = [argument for argument in arguments if argument[0] != "failIdx"]
            vendors = [type_of(argument) for argument in declared[name]]
            if len(vendors) != len(arguments):
                yield f"{name} has {len(arguments)} arguments in its row, and {len(vendors)} in CUDA {release}"
                continue
            result = "CUresult" if layer == "driver" else "cudaError_t"
            whole = f"{result} (*)({', '.join(vendors) or 'void'})"
            asserts.append(f'_Static_assert(IS(__typeof__(&{name}), {whole}), "{name} is no {whole}");')
            for (argument, kind), vendor in zip(arguments, vendors):
                condition = re.sub(r"\bT\b", vendor, CONDITIONS[kind])
                asserts.append(f'_Static_assert({condition}, "{name}: {argument} is a {kind} in its row, and `{vendor}` in CUDA {release}");')
        result = gcc(release, HEADERS + MACROS + "\n".join(asserts), "-fsyntax-only")
        yield from re.findall(r"error: (.*)", result.stderr)
    # If no header has a function of the table, it is for the oldest drivers, or a mistake.
    for name in sorted(unseen):
        yield f"{name} has a row, and no header declares it"
    hip = declared_by_hip()
    for layer, name, arguments in rows():
        if layer != "hip":
            continue
        if name not in hip:
            yield f"{name} has a row, and HIP's bindings do not declare it"
            continue
        vendors = [type_of(argument).replace(" ", "") for argument in hip[name]]
        if len(vendors) != len(arguments):
            yield f"{name} has {len(arguments)} arguments in its row, and {len(vendors)} in HIP: {hip[name]}"
            continue
        for (argument, kind), vendor in zip(arguments, vendors):
            if not re.fullmatch(HIP_TYPES.get(kind, "none"), vendor):
                yield f"{name}: {argument} is a {kind} in its row, and `{vendor}` in HIP"


def codes():
    known = {}
    for line in (ROOT / "host/src/codes.rs").read_text().splitlines():
        row = re.fullmatch(r"(\d+) (\S+) (\S+) (\S+)", line)
        if row:
            known[int(row[1])] = set(row.groups()[1:])
    for release in RELEASES:
        text = gcc(release, HEADERS, "-E", "-P").stdout
        named = re.findall(r"\b(CUDA_SUCCESS|CUDA_ERROR_\w+|cudaSuccess|cudaError[A-Z]\w+)\s*=\s*(\d+)", text)
        if len(named) < 200:
            yield f"only {len(named)} codes of CUDA {release} were found: they are declared otherwise now"
        for name, number in named:
            if name not in NO_CODES and name not in known.get(int(number), ()):
                yield f"{name} of CUDA {release}, {number}, is not in host/src/codes.rs"


def main():
    checks = {"functions": functions, "types": types, "codes": codes}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    if subprocess.run([ROOT / "c-tests/fetch-wheels", "api"]).returncode != 0:
        sys.exit(1)
    wrong = list(dict.fromkeys(checks[sys.argv[1]]()))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
