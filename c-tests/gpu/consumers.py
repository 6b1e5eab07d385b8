"""Programs that use peer access obey the variables that `doctor --env` prints: their own logs say so. The variables are those of simulated
GPUs of which a part is broken, as make-bundle has them written."""

import importlib.util
import json
import re
import sys

import ucx
from harness import HERE, Failed, Run, check, judge, report


def vetoes(fault):
    """The variables that are set, and those that are removed."""
    said = json.loads((HERE / f"env-{fault}.json").read_text())
    return said["set"], said["unset"]


def torch_run(script, variables, unset=()):
    if not importlib.util.find_spec("torch"):
        return report("skipped", f"consumers, {script}", "the Python module torch is not installed")
    drop = [word for name in unset for word in ("-u", name)]
    run = Run(["env", *drop, sys.executable, HERE / script], trace=False, **variables)
    if run.status != 0:
        raise Failed(run.ended())
    return run


def nccl():
    found = {}
    for name, variables in (("free", {}), ("vetoed", vetoes("ipc")[0])):
        run = torch_run("nccl_all_reduce.py", {"NCCL_DEBUG": "INFO", "NCCL_NVLS_ENABLE": "0", **variables})
        if run is None:
            return
        found[name] = set(re.findall(r" via (P2P|SHM|NET)", run.out + run.err))
        if not re.search(r"NCCL (\d+) expected \1\b", run.out):
            raise Failed(run.ended())
    judge(found == {"free": {"P2P"}, "vetoed": {"SHM"}}, "consumers, NCCL", f"its channels go via {found}")


def pytorch():
    """PyTorch's own all-reduce within a node does not start in every version: it is only looked at whether it is off."""
    variables, unset = vetoes("lost")
    # Multicast is no part of this, and not every machine may use it.
    own = {"ENABLE_INTRA_NODE_COMM": "1", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
    run = torch_run("torch_consumers.py", own | variables, unset)
    if run is None:
        return
    kernels, sums = run.out.splitlines()
    judge("nccl" in kernels.lower() and sums == f"sums {3 * 4096} {3 * 4096} multicast 0", "consumers, PyTorch", f"{kernels}; {sums}")


def ucx_ipc():
    if not ucx.UCX.exists():
        return report("skipped", "consumers, UCX", "it is not in the bundle")
    transports = vetoes("ipc")[0]["UCX_TLS"]
    found = {}
    for port, (name, variables) in enumerate((("free", {}), ("vetoed", {"UCX_TLS": transports})), 23550):
        time, said = ucx.message(port, {"UCX_PROTO_INFO": "y", **variables})
        if time is None:
            raise Failed(said[-500:])
        found[name] = sorted(set(re.findall(r"\b(cuda_ipc|cuda_copy)/", said))), round(time)
    is_obeyed = "cuda_ipc" in found["free"][0] and "cuda_ipc" not in found["vetoed"][0]
    judge(is_obeyed, "consumers, UCX", f"transports, us for 64 MiB: {found}")


def check_all():
    check("consumers_nccl", nccl)
    check("consumers_torch", pytorch)
    check("consumers_ucx", ucx_ipc)
