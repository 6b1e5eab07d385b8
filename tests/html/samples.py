"""Reports to make pages of: what `p2pshim report --json` could print, made up.

`SAMPLES` has a function for each.
"""

import random

START = 1_763_754_600_000_000_000
SECOND = 1_000_000_000
NEVER = "access not enabled"


def host_ns(total, calls):
    mean = total // max(1, calls)
    return {"p50": mean * 8 // 10, "p99": mean * 3, "max": mean * 9, "total": total}


def class_of(path, why):
    """As the report classes the paths of these samples."""
    if path != "staged":
        return path
    reasons = {"blocked": "blocked", "not yet": "start-up", "not enabled": "avoidable", "pool": "avoidable"}
    return next((name for part, name in reasons.items() if part in (why or "")), "staged")


def remedy_of(path, why):
    """Advice, as the report gives it for some of these paths."""
    remedies = {"blocked": "These pairs failed verification: data arrived wrong, or a copy hung. `p2pshim doctor` names the likely cause, such as an IOMMU.",
                "not enabled": "Run without P2PSHIM_ACCESS=app, so that p2pshim enables peer access; or call cudaDeviceEnablePeerAccess on both devices of a pair."}
    return next((remedy for part, remedy in remedies.items() if path == "staged" and part in (why or "")), None)


def path(name, calls, size, gb_per_s, why=None):
    moved = size if gb_per_s else 0
    return {
        "path": name, "why": why, "class": class_of(name, why), "remedy": remedy_of(name, why), "calls": calls, "bytes": size, "device_calls": calls if gb_per_s else 0,
        "device_bytes": moved, "device_ns": int(moved / gb_per_s) if gb_per_s else 0, "gb_per_s": gb_per_s,
    }


def sampled(one, timed):
    """A path of which so many copies were timed."""
    share = timed / one["calls"]
    return dict(one, device_calls=timed, device_bytes=int(one["device_bytes"] * share), device_ns=int(one["device_ns"] * share))


def sizes(*rows):
    return [{"path": path, "why": why, "class": class_of(path, why), "remedy": remedy_of(path, why), "from": low, "to": high, "calls": calls, "bytes": size, "device_calls": timed, "gb_per_s": rate}
            for path, why, low, high, calls, size, timed, rate in rows]


def decision(src, dst, at, text, verified=None, file=0):
    return {"file": file, "time": START + at, "src": src, "dst": dst, "verified": verified, "text": text}


def pair(src, dst, *paths, errors=0, link="NVLink", access=True):
    calls = sum(p["calls"] for p in paths)
    size = sum(p["bytes"] for p in paths)
    host = calls * 4200 + sum(p["calls"] for p in paths if p["path"] == "staged") * 21_000
    moved, took = (sum(p[name] for p in paths) for name in ("device_bytes", "device_ns"))
    return {"src": src, "dst": dst, "calls": calls, "bytes": size, "errors": errors, "paths": list(paths), "gb_per_s": moved / took if took else None,
            "host_ns": host_ns(host, calls), "link": link, "access": access}


def gpu(index, host="node17", ordinal=None, name="NVIDIA H200", several=False):
    ordinal = index if ordinal is None else ordinal
    return {"index": index, "host": host, "ordinals": {"0": ordinal}, "name": name,
            "uuid": f"GPU-4f1c{index:04x}-97a2-11ee-b3a1-0242ac12{index:04x}", "pci": f"0000:{0x18 + 8 * ordinal:02x}:00.0",
            "label": f"{host} GPU {ordinal}" if several else f"GPU {ordinal}"}


def file(index, rank=None, host="node17", calls=6144, gpus=(0, 1), problems=(), dropped=0, program="/opt/solver/bin/halo",
         lasted=9.6, variables=None):
    return {
        "index": index, "path": f"/scratch/run-41/p2pshim.{host}.{4100 + index}.p2ptrace", "host": host,
        "boot_id": "0b6d3c1e-6a39-4d0e-9a55-2f8f9a3f7c11", "process": 4100 + index,
        "program": [program, program.rsplit("/", 1)[-1], "--steps", "400"], "rank": None if rank is None else str(rank),
        "started": START + index * 1_300_000, "ended": START + int(lasted * SECOND), "calls": calls, "dropped": dropped,
        "limit": 268_435_456,
        "threads": [{"id": 4100 + index, "name": "main", "calls": calls - 12}, {"id": 9000 + index, "name": "progress", "calls": 12}],
        "versions": {"p2pshim": "0.1.0", "driver": "13.0", "runtime": "12.9"},
        "variables": {"P2PSHIM_ACCESS": "app"} if variables is None else variables, "gpus": list(gpus), "problems": list(problems),
    }


def function(layer, name, calls, mean, errors=0):
    return {"layer": layer, "name": name, "calls": calls, "errors": errors, "host_ns": host_ns(calls * mean, calls)}


def spread(size, buckets, begin=0.0, end=1.0, seed=1):
    """`size` bytes in bursts between two shares of the time."""
    dice = random.Random(seed)
    weights = [dice.choice((0, 1, 1, 3)) if begin <= i / buckets < end else 0 for i in range(buckets)]
    whole = sum(weights) or 1
    return [size * weight // whole for weight in weights]


FINDINGS = [
    {"rule": "P2P-staged-never-enabled", "severity": "performance", "count": 2800,
     "text": "cudaMemcpyPeerAsync at halo+0x2c41 (exchange_rows): 64 MiB from device 1 to device 0 went through the host, as the program has "
             "never enabled peer access for this direction. A direct copy is several times as fast. Call cudaDeviceEnablePeerAccess(1, 0) "
             "with device 0 current, or run without P2PSHIM_ACCESS=app.",
     "sites": [{"site": "halo+0x2c41 exchange_rows (halo.c:212)", "count": 1600}, {"site": "halo+0x2d10 exchange_columns (halo.c:240)", "count": 1200}],
     "files": [0]},
    {"rule": "P2P-slow-small-copies", "severity": "performance", "count": 640,
     "text": "cudaMemcpyPeerAsync at halo+0x31f8 (send_flags): 640 copies of 8 bytes from device 0 to device 1. Each takes the time of one at "
             "least ten times as large. Gather them in one buffer and copy that.",
     "sites": [{"site": "halo+0x31f8 send_flags (halo.c:301)", "count": 640}], "files": [0]},
    {"rule": "P2P-enable-twice", "severity": "note", "count": 2,
     "text": "cudaDeviceEnablePeerAccess at halo+0x12f4 (main): access of device 0 to device 1 is already enabled; returned "
             "cudaErrorPeerAccessAlreadyEnabled (704). Access is enabled, so this is no failure; a program that ends here, or that goes on without "
             "peer access, is wrong. Treat 704 as success, and call cudaGetLastError() after it to clear the slot.",
     "sites": [{"site": "halo+0x12f4 main (halo.c:77)", "count": 2}], "files": [0]},
]
HAZARD = {
    "rule": "P2P-order-stream-elsewhere", "severity": "hazard", "count": 400,
    "text": "cudaMemcpyPeerAsync at halo+0x2c41 (exchange_rows): stream=0x55d0c0de2000 is of device 2, and the copy is from device 1 to device 0. "
            "Work on these two devices is not ordered by it, so the copy may read data that is not there yet. Give it a stream of one of the two.",
    "sites": [{"site": "halo+0x2c41 exchange_rows (halo.c:212)", "count": 400}], "files": [0]}
FUNCTIONS = [
    function("runtime", "cudaMemcpyPeerAsync", 5632, 6_800),
    function("driver", "cuMemcpyPeerAsync", 5632, 5_900),
    function("runtime", "cudaDeviceCanAccessPeer", 4, 700),
    function("runtime", "cudaDeviceEnablePeerAccess", 3, 310_000, errors=2),
    function("driver", "cuCtxEnablePeerAccess", 3, 290_000, errors=2),
]
ERRORS = [
    {"layer": "runtime", "function": "cudaDeviceEnablePeerAccess", "code": 704, "name": "cudaErrorPeerAccessAlreadyEnabled", "count": 2,
     "sites": [{"site": "halo+0x12f4 main (halo.c:77)", "count": 2}]},
    {"layer": "driver", "function": "cuCtxEnablePeerAccess", "code": 704, "name": "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "count": 2,
     "sites": [{"site": "libcudart.so.12+0x5a2f1", "count": 2}]},
]


def two():
    """One pair direct, the way back staged, with findings: a program that enables access on one side only."""
    there, back = 107_374_182_400, 80_530_636_800
    return {
        "version": 1,
        "files": [file(0)],
        "gpus": [gpu(0), gpu(1)],
        "pairs": [
            pair(0, 1, path("direct", 2816, there, 391.4)),
            pair(1, 0, path("staged", 2800, back, 37.9, NEVER), path("direct", 16, 134_217_728, 388.0), errors=0),
        ],
        "functions": FUNCTIONS, "errors": ERRORS, "findings": FINDINGS,
        "decisions": [
            {"file": 0, "time": START + 210_000_000, "src": 0, "dst": 1, "text": "the program has enabled access from 0 to memory of 1: its copies are direct"},
            {"file": 0, "time": START + 214_000_000, "src": 1, "dst": 0, "text": "left to the program (P2PSHIM_ACCESS=app), which has not enabled it: its copies are staged"},
        ],
        "unfinished": [],
        "lost": {"staged_bytes": back, "could_be_direct_bytes": back, "seconds": 1.92,
                 "basis": "Staged bytes at the 37.9 GB/s they had, against the 391 GB/s of direct copies in the same run."},
        "timeline": {"start": START, "bucket_ns": 40_000_000, "pairs": [
            {"src": 0, "dst": 1, "direct": spread(there, 240, 0.05, 0.97, 1), "staged": [0] * 240},
            {"src": 1, "dst": 0, "direct": spread(134_217_728, 240, 0.05, 0.08, 2), "staged": spread(back, 240, 0.08, 0.97, 3)},
        ]},
    }


def many(gpus_of, links, files, buckets=200, share=1.0, seed=7):
    """All pairs in each of the groups of GPUs, some staged, some partly, a few with errors."""
    dice = random.Random(seed)
    pairs, lanes = [], []
    for group in gpus_of:
        for src in group:
            for dst in group:
                if src == dst or dice.random() > share:
                    continue
                near = links(src, dst)
                size = int(dice.uniform(0.4, 1.0) * (24e9 if abs(src - dst) in (1, len(group) - 1) else 3e9))
                choice = dice.random()
                if not near:
                    paths = [path("staged", size >> 20, size, dice.uniform(10.5, 12.4), "no hardware path")]
                elif choice < 0.08:
                    paths = [path("staged", size >> 20, size, dice.uniform(35, 38), NEVER)]
                elif choice < 0.16:
                    part = int(size * dice.uniform(0.1, 0.5))
                    paths = [path("direct", (size - part) >> 20, size - part, dice.uniform(360, 394)),
                             path("staged", part >> 20, part, dice.uniform(35, 38), "pool without access")]
                else:
                    paths = [path("direct", size >> 20, size, dice.uniform(340, 394) if choice < 0.9 else None)]
                one = pair(src, dst, *paths, errors=3 if dice.random() < 0.02 else 0, link="NVLink" if near else "PCIe", access=near)
                pairs.append(one)
                lane = {"src": src, "dst": dst, "direct": [0] * buckets, "staged": [0] * buckets}
                begin = dice.uniform(0, 0.6)
                for p in paths:
                    lane[p["path"]] = spread(p["bytes"], buckets, begin, begin + dice.uniform(0.1, 0.4), dice.random())
                lanes.append(lane)
    failed = sum(one["errors"] for one in pairs)
    errors = [*ERRORS, {"layer": "runtime", "function": "cudaMemcpyPeerAsync", "code": 1, "name": "cudaErrorInvalidValue", "count": failed,
                        "sites": [{"site": "halo+0x2d10 exchange_columns (halo.c:240)", "count": failed}]}]
    of = lambda why: sum(p["bytes"] for one in pairs for p in one["paths"] if p["path"] == "staged" and p["why"] in why)
    could = of((NEVER, "pool without access"))
    return {
        "version": 1, "files": files, "gpus": [], "pairs": pairs, "functions": FUNCTIONS, "errors": errors, "findings": FINDINGS,
        "decisions": [
            {"file": n % len(files), "time": START + n * 31_000_000, "src": one["src"], "dst": one["dst"],
             "text": "verified in both directions in 4.1 ms, and enabled: copies are direct"}
            for n, one in enumerate(pairs) if one["paths"][0]["path"] == "direct"
        ],
        "unfinished": [],
        "lost": {"staged_bytes": of((NEVER, "pool without access", "no hardware path")), "could_be_direct_bytes": could,
                 "seconds": could / 1e9 * (1 / 37 - 1 / 385),
                 "basis": "Staged bytes at the speed they had, against the median of direct copies in the same run."},
        "timeline": {"start": START, "bucket_ns": 48_000_000, "pairs": lanes},
    }


def eight():
    """Eight GPUs in two groups without a path between them, with a rank each, one of which copied little, and stopped early."""
    files = [file(n, rank=n, gpus=range(8), calls=4096 + 17 * n) for n in range(8)]
    report = many([range(8)], lambda a, b: a // 4 == b // 4, files)
    report["gpus"] = [gpu(n) for n in range(8)]
    each = sum(one["bytes"] for one in report["pairs"]) // 8
    for n, one in enumerate(files):
        size, staged = (each // 3, each // 4) if n == 5 else (each + n * 40_000_000, each // 6)
        one.update(copied_bytes=size, staged_bytes=staged, differs=["copied", "staged", "last copy"] if n == 5 else [], end={"how": "exited", "code": 0, "signal": None}, last_copy={
            "file": n, "thread": 4100 + n, "layer": "runtime", "function": "cudaMemcpyPeerAsync", "age_ns": None, "src": n, "dst": n ^ 1,
            "started": START + int((3.1 if n == 5 else 9.4) * SECOND) + n * 9_000_000, "bytes": 8 << 20, "path": "direct", "why": None,
            "site": "halo+0x2c41 exchange_rows (halo.c:212)"})
        last = 0.35 if n == 5 else 0.97
        report["timeline"]["files"] = [*report["timeline"].get("files", []),
            {"file": n, "direct": spread(size - staged, 200, 0.02, last, n), "staged": spread(staged, 200, 0.02, last, n + 9)}]
    # Each rank decides the same, and one says so twice.
    report["decisions"] = [*report["decisions"][:1], *(dict(report["decisions"][0], file=n) for n in range(8))]
    for finding in report["findings"]:
        finding["times"] = [{"file": n, "time": START + (n + 1) * 1_100_000_000} for n in range(2)]
    for one in report["pairs"]:
        path = one["paths"][0]
        one["sizes"] = sizes(*((path["path"], path["why"], 1 << power, 2 << power, path["calls"] // 4, path["bytes"] * (power - 15) // 18,
                                path["calls"] // 8, path["gb_per_s"] and path["gb_per_s"] * (power - 10) / 16) for power in (18, 20, 22, 24)))
    return report


def killed():
    """The same, with a rank that was killed, one that failed, and a disk that was full."""
    report = eight()
    report["files"][5].update(problems=["it ends in the middle of a block: the process was killed, or its host crashed"],
                              end={"how": "signal", "code": None, "signal": "SIGKILL"})
    report["files"][2]["end"] = {"how": "exited", "code": 3, "signal": None}
    report["files"][1].update(dropped=812)
    report["lower_bounds"] = True
    report["gaps"] = ["rank 1: 812 calls found no room in the file; set `P2PSHIM_TRACE_LIMIT`", "rank 5: the file ends in the middle of a block"]
    return report


LOST = ("data does not arrive: 265204 of 266236 bytes copied from device 2 to device 3 were wrong. Copies between them go through the host. "
        "Likely cause: the IOMMU translates addresses. `p2pshim doctor` shows more")


def blocked():
    """Four GPUs: one pair loses data, and one is staged for want of a path; rates are from samples, and some are tiny."""
    reason = "broken: failed verification"
    report = all_direct()
    report["gpus"] = [gpu(n) for n in range(4)]
    report["files"] = [dict(file(0, gpus=range(4), variables={}), end={"how": "exited", "code": 0, "signal": None}, copied_bytes=44 << 30, staged_bytes=2 << 30)]
    direct = lambda: dict(sampled(path("direct", 142, 8_589_934_592, 391.29999), 26), host_ns=host_ns(600_000, 142))
    report["pairs"] = [
        dict(pair(0, 1, direct()), sizes=sizes(("direct", None, 65_536, 131_072, 100, 6_553_600, 20, 13.29999),
                                               ("direct", None, 67_108_864, 134_217_728, 42, 8_583_380_992, 6, 391.29999),
                                               ("staged", "not yet worth enabling", 65_536, 131_072, 4, 262_144, 4, 0.0004))),
        pair(1, 0, direct(), path("staged", 4, 262_144, 0.0004123, "not yet worth enabling")),
        dict(pair(2, 3, sampled(path("staged", 300, 1 << 30, 11.4, reason), 70)), verified="blocked", is_blocked=True, blocked_bytes=1 << 30),
        dict(pair(3, 2, path("staged", 300, 1 << 30, None, reason)), verified=None, is_blocked=True, blocked_bytes=1 << 30),
        pair(0, 2, path("staged", 9000, 3 << 30, 9.9999, NEVER)),
    ]
    report["decisions"] = [
        decision(0, 1, 210_000_000, "verified: data arrives in both directions", "right"),
        decision(2, 3, 214_000_000, LOST, "avoided"),
        decision(3, 2, 215_000_000, f"copies are staged ({reason})"),
    ]
    report["lost"] = {"staged_bytes": 5 << 30, "could_be_direct_bytes": 3 << 30, "seconds": 0.317, "basis": "measured time on the device, minus the time at 391 GB/s"}
    lane = lambda src, dst, direct, staged, seed: {"src": src, "dst": dst, "direct": spread(direct, 96, seed=seed), "staged": spread(staged, 96, seed=seed + 1)}
    report["timeline"]["pairs"] = [lane(0, 1, 8 << 30, 0, 1), lane(1, 0, 8 << 30, 1 << 18, 2), lane(2, 3, 0, 1 << 30, 3), lane(3, 2, 0, 1 << 30, 4), lane(0, 2, 0, 3 << 30, 5)]
    report["timeline"]["start"] = START + 200_000_000
    report["files"][0]["marks"] = [{"time": START + 4 * SECOND, "thread": 4100, "text": "epoch 2"}]
    return report


def hang():
    """A call that does not return, and data at risk."""
    report = two()
    report["findings"] = [*FINDINGS, HAZARD]
    report["unfinished"] = [
        {"file": 0, "thread": 4100, "layer": "runtime", "function": "cudaMemcpyPeer", "started": START + 7_100_000_000, "src": 1, "dst": 0,
         "bytes": 67_108_864, "path": "staged", "why": "access not enabled", "site": "halo+0x2c41 exchange_rows (halo.c:212)"}]
    return report


def wrong():
    """A program that uses a pair which loses data, and still runs; a call is under way for a moment only."""
    report = all_direct()
    last = {"file": 0, "thread": 4100, "layer": "runtime", "function": "cudaMemcpyPeer", "started": START + 9_000_000_000, "age_ns": 21_500_000_000,
            "src": 0, "dst": 1, "bytes": 1_048_576, "path": "direct", "why": None, "site": "halo+0x2c41 exchange_rows (halo.c:212)"}
    report["files"][0].update(running=True, last_copy=last)
    report["unfinished"] = [dict(last, started=START + 9_400_000_000, age_ns=410_000, progress="under-way"),
                            dict(last, started=START + 9_300_000_000, age_ns=None, progress="cut-off")]
    report["decisions"] = [{"file": 0, "time": START + 210_000_000, "src": 0, "dst": 1, "verified": "in use",
                            "text": "data does not arrive: 265193 of 266236 bytes copied from device 0 to device 1 were wrong"}]
    return report


def all_direct():
    """One pair, and nothing wrong: a program with Python."""
    size = 42_949_672_960
    lines = [{"file": "/home/u/train.py", "line": 88, "function": "Trainer.step", "calls": 9, "bytes": 9_000_000, "host_ns": 12_000,
              "outer": [{"file": "/home/u/main.py", "line": 5, "function": "main"}]},
             {"file": "/home/u/model.py", "line": 12, "function": "forward", "calls": 2, "bytes": 2_000_000, "host_ns": 3_000}]
    return {
        "version": 1, "files": [file(0, variables={})], "gpus": [gpu(0), gpu(1)],
        "pairs": [dict(pair(0, 1, path("direct", 512, size, 393.8)), sites=[{"site": "libtorch_cuda.so+0x1f04c2", "calls": 512, "lines": lines,
                                                                              "callers": [{"caller": "app+0x3021 main (app.c:12)", "calls": 11}]}])],
        "functions": FUNCTIONS[:2], "errors": [], "findings": [], "decisions": [], "unfinished": [],
        "lost": {"staged_bytes": 0, "could_be_direct_bytes": 0, "seconds": 0.0, "basis": "Nothing was staged."},
        "timeline": {"start": START + 3 * SECOND, "bucket_ns": 100_000_000, "pairs": [
            {"src": 0, "dst": 1, "direct": spread(size, 96), "staged": [0] * 96}]},
    }


def carried():
    """One pair, and kernels that moved more over NVLink than the copies did."""
    report = all_direct()
    size, more = 42_949_672_960, 100_000_000_000
    row = lambda gpu, sent, received, copied_from, copied_to: {
        "gpu": gpu, "sent_bytes": sent, "received_bytes": received, "copied_from_bytes": copied_from, "copied_to_bytes": copied_to}
    report["nvlink"] = {
        "carried_bytes": size + more, "copied_bytes": size, "is_explained": False, "is_at_least": False, "other_processes": [],
        "shows_processes": True, "gpus": [row(0, size + more, 0, size, 0), row(1, 0, size + more, 0, size)],
        "text": "NVLink carried 142.9 GB between these GPUs; copies explain 42.9 GB of it.",
        "more": "Something unseen moved the rest: kernels that access a peer's memory (NCCL), for example.",
    }
    return report


def not_known():
    """It is not known whether the GPUs can access each other, and of some copies not which way they went."""
    report = all_direct()
    report["pairs"] = [pair(0, 1, path("staged", 512, 4 << 30, None, NEVER), path("unknown", 8, 1 << 30, None), access=None, link=None)]
    report["lost"] = {"staged_bytes": 4 << 30, "could_be_direct_bytes": 0, "seconds": None,
                      "basis": "it is not known whether the GPUs can access each other"}
    return report


def processes():
    """Two ranks, each with a GPU of its own: one pushes to memory of the other, to memory on its own GPU, and to memory of nobody knows whom."""
    report = all_direct()
    report["files"] = [file(0, rank=0, variables={}), file(1, rank=1, variables={})]
    report["gpus"].append({"index": 2, "host": "node17", "ordinals": {}, "name": None, "uuid": None, "pci": None, "label": "another process", "is_another_process": True})
    across = lambda name, size: dict(path(name, 10, size, None), between_processes=True)
    report["pairs"] = [pair(0, 0, across("same-device", 3_000_000_000)), pair(0, 1, path("direct", 5, 1_000_000_000, 390.0), across("direct", 42_000_000_000)),
                       pair(1, 0, across("direct", 5_000_000_000)), pair(0, 2, across("direct", 7_000_000_000), link=None, access=None)]
    row = lambda does, src, dst, src_file, dst_file, size: {"file": 0, "does": does, "src": src, "dst": dst, "src_file": src_file, "dst_file": dst_file,
                                                            "how": ["ipc"], "calls": 10, "bytes": size}
    report["between_processes"] = [row("push", 0, 0, 0, 1, 3_000_000_000), row("push", 0, 1, 0, 1, 42_000_000_000), row("pull", 1, 0, 1, 0, 5_000_000_000),
                                   row("push", 0, 2, 0, None, 7_000_000_000)]
    return report


def no_better_way():
    """The copies that are staged have no better path."""
    report = all_direct()
    report["pairs"].append(pair(1, 0, path("staged", 512, 4 << 30, 11.8, "no hardware path"), access=False, link="PCIe"))
    return report


def sixty_four():
    """64 GPUs with all 4,032 pairs, and 1,000 files."""
    files = [file(n, rank=n, gpus=(n % 64, (n + 1) % 64), variables={} if n % 5 else {"P2PSHIM_POOLS": "app"},
                  problems=["no room was left in it"] if n in (3, 700) else (), dropped=812 if n == 700 else 0) for n in range(1000)]
    report = many([range(64)], lambda a, b: a // 8 == b // 8 or (a + b) % 3 > 0, files, buckets=400)
    report["gpus"] = [gpu(n) for n in range(64)]
    return report


def hosts():
    """16 hosts with eight GPUs each: pairs stay inside a host."""
    groups = [range(8 * n, 8 * n + 8) for n in range(16)]
    files = [file(n, rank=n, host=f"node{n:02}", gpus=groups[n]) for n in range(16)]
    report = many(groups, lambda a, b: True, files, buckets=60)
    report["gpus"] = [gpu(n, f"node{n // 8:02}", n % 8, several=True) for n in range(128)]
    return report


def empty():
    return {
        "version": 1, "files": [], "gpus": [], "pairs": [], "functions": [], "errors": [], "findings": [], "decisions": [],
        "unfinished": [], "lost": {"staged_bytes": 0, "could_be_direct_bytes": 0, "seconds": None, "basis": ""},
        "timeline": {"start": 0, "bucket_ns": 1, "pairs": []},
    }


# Names that a program could give itself to become markup, to be taken for something else, or to spoil the layout.
EVIL = [
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror=\"window.hit = 1\">",
    "<!-- <script>",
    "{{script}} {{data}}",
    "\u2028\u2029\u202egnp.exe\u0007\u001b[31m",
    "__proto__",
    "constructor",
    "x" * 3000,
    "&lt;b&gt; \\u003c \" ' ` ${1} 𝄞 مرحبا",
]


def nasty():
    """Strings that are no plain text in every place that has one, and null wherever a value may be unknown."""
    report = two()
    evil = lambda n: EVIL[n % len(EVIL)]
    report["files"] = [
        dict(file(n), path=evil(n), host=evil(n + 1), boot_id=evil(n + 2), program=["/bin/" + evil(n), evil(n + 1)], rank=evil(n + 3),
             versions={evil(n): evil(n + 1), "__proto__": "1"}, variables={evil(n + 2): evil(n)}, problems=[evil(n), evil(n + 4)],
             threads=[{"id": 1, "name": evil(n), "calls": 1}], started=None if n == 2 else START, ended=None if n == 3 else START + SECOND)
        for n in range(len(EVIL))]
    report["gpus"] = [{"index": n, "host": evil(n), "ordinals": {}, "name": evil(n), "uuid": evil(n), "pci": None, "label": evil(n)}
                      for n in range(len(EVIL))]
    report["pairs"] = [
        {"src": n, "dst": (n + 1) % len(EVIL), "calls": 2, "bytes": 5, "errors": 1, "link": None, "access": None, "host_ns": None,
         "paths": [dict(path(evil(n), 1, 2, None), why=evil(n)), path("staged", 1, 3, None, evil(n + 1))]} for n in range(len(EVIL))]
    report["pairs"].append({"src": None, "dst": None, "calls": 1, "bytes": 7, "errors": 0, "link": None, "access": None,
                            "host_ns": {"p50": None, "p99": None, "max": None, "total": None}, "paths": [path("host", 1, 7, None)]})
    report["functions"] = [{"layer": evil(n), "name": evil(n), "calls": 1, "errors": 0, "host_ns": host_ns(5, 1)} for n in range(len(EVIL))]
    line = lambda n: {"file": evil(n), "line": n, "function": evil(n + 1)}
    sites = [{"site": text, "python": line(n) if n % 2 else None, "caller": evil(n) if n % 3 else None, "count": 1} for n, text in enumerate(EVIL)]
    report["pairs"][0]["sites"] = [{"site": text, "calls": 7, "lines": [dict(line(n), calls=1)], "callers": [{"caller": evil(n), "calls": 1}]} for n, text in enumerate(EVIL)]
    report["errors"] = [{"layer": evil(n), "function": evil(n), "code": n, "name": evil(n + 1), "count": 1, "sites": sites} for n in range(len(EVIL))]
    report["findings"] = [{"rule": evil(n), "severity": evil(n + 1) if n else "hazard", "count": 1, "text": evil(n), "sites": sites, "files": [n]}
                          for n in range(len(EVIL))]
    report["decisions"] = [{"file": n, "time": START, "src": n, "dst": None, "text": evil(n)} for n in range(len(EVIL))]
    report["unfinished"] = [{"file": n, "thread": 1, "layer": "driver", "function": evil(n), "started": START, "src": None, "dst": None, "bytes": None,
                             "path": evil(n), "why": evil(n + 1), "site": evil(n)} for n in range(len(EVIL))]
    report["lost"] = {"staged_bytes": 3, "could_be_direct_bytes": 3, "seconds": None, "basis": EVIL[0]}
    report["nvlink"] = {"gpus": [{"gpu": EVIL[1], "sent_bytes": EVIL[0]}, {"gpu": 0, "sent_bytes": EVIL[1]}], "text": EVIL[0], "more": EVIL[1]}
    report["timeline"] = {"start": START, "bucket_ns": 1, "pairs": [{"src": 0, "dst": 1, "direct": [5], "staged": []}],
                          "files": [{"file": n, "direct": [n], "staged": [1]} for n in range(len(EVIL))]}
    report["between_processes"] = [{"file": n, "does": evil(n), "src": n, "dst": evil(n), "src_file": evil(n), "dst_file": None, "how": evil(n) if n % 2 else [evil(n)],
                                    "calls": evil(n), "bytes": n} for n in range(len(EVIL))]
    report["gaps"] = list(EVIL)
    for n, one in enumerate(report["files"]):
        one["end"] = {"how": "signal", "code": None, "signal": evil(n)} if n % 2 else {"how": evil(n), "code": evil(n), "signal": None}
        one["marks"] = [{"time": START, "thread": 1, "text": evil(n)}]
    report["decisions"][0]["verified"] = "avoided"
    report["findings"][0]["times"] = [{"time": START, "file": 0}, {"time": None, "file": EVIL[0]}]
    report["pairs"][0]["sizes"] = sizes(*((evil(n), evil(n + 1), n, None, 1, 1, 0, None) for n in range(len(EVIL))))
    return report


def said(level, word, text, more=None, section="pairs"):
    """A sentence of the verdict, as `cli/src/report/verdict.rs` makes them."""
    return {"level": level, "word": word, "text": text, "more": more, "section": section}


FINE = [said("good", "Fine", "42.9 GB of copies were direct; nothing was staged.")]
STAGED = said("warn", "Staged", "{direct} GB of copies were direct; {could} GB were staged though CUDA offers a direct path; that took about {took:.2f} s longer.",
              "Staged because: access not enabled. `P2PSHIM_ACCESS=auto`, the default, would have enabled it.")
SLOW = said("warn", "Slow calls", "Calls take longer than necessary: P2P-staged-never-enabled in at least 2 800 calls.", "The findings name the place and the remedy.", "findings")
FAILED = said("note", "Failed calls", "2 calls of cudaDeviceEnablePeerAccess failed with cudaErrorPeerAccessAlreadyEnabled.", "Many programs expect this one.", "errors")
VERDICTS = {
    "two": [STAGED, SLOW, FAILED],
    "eight": [STAGED, SLOW, FAILED],
    "killed": [said("warn", "Incomplete", "The report is incomplete: rank 1 …. Counts and bytes are lower bounds.", None, "processes"),
               said("bad", "Ended", "halo was ended by SIGKILL.", None, "processes"), STAGED, SLOW, FAILED],
    "blocked": [said("bad", "Broken path", "2.1 GB were staged: peer access between GPU 2 and GPU 3 failed verification.",
                     "See Decisions for what happened and the likely cause; `p2pshim doctor` shows more."), STAGED],
    "hang": [said("bad", "Never returned", "A call never returned: cudaMemcpyPeer, GPU 1 > GPU 0, 67.1 MB, staged: access not enabled.", None, "unfinished"),
             said("bad", "Data at risk", "Data may be wrong although the calls succeed: P2P-copy-overlap in 1 call.", "See Findings for where, and what to do.", "findings"),
             STAGED, SLOW, FAILED],
    "wrong": [said("bad", "Data wrong", "Data may be WRONG: 1.0 GB of copies were direct between GPU 0 and GPU 1, where peer access failed verification.",
                   "Run it with P2PSHIM_ACCESS=off.", "decisions")],
    "carried": [*FINE, said("note", "NVLink", "NVLink carried 142.9 GB between these GPUs; copies explain 42.9 GB of it.",
                            "Something unseen moved the rest: kernels that access a peer's memory (NCCL), for example.", "environment")],
    "processes": [*FINE, said("note", "Processes", "57.0 GB of copies were between processes, 3.0 GB of them on one GPU: rank 0 pushed 42.0 GB to memory of rank 1, GPU 0 > GPU 1.",
                              "Of 7.0 GB it is not known on which GPU the other memory lies.", "between-processes")],
    "empty": [],
    "nasty": [said("bad", "Data at risk", " ".join(EVIL), EVIL[0], "findings")],
}


def with_verdict(make):
    def whole():
        report = make()
        direct = sum(p["bytes"] for one in report["pairs"] for p in one["paths"] if p["path"] == "direct")
        lost = {"direct": f"{direct / 1e9:.1f}", "could": f"{report['lost']['could_be_direct_bytes'] / 1e9:.1f}", "took": report["lost"]["seconds"]}
        said = [dict(one, text=one["text"].format(**lost)) if one is STAGED else one for one in VERDICTS.get(make.__name__, FINE)]
        return {**report, "verdict": said}
    return whole


SAMPLES = {make.__name__: with_verdict(make) for make in (two, eight, killed, blocked, hang, wrong, all_direct, carried, not_known, processes, no_better_way, sixty_four, hosts, empty, nasty)}
