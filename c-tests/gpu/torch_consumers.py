"""Two processes add up a small tensor as PyTorch does it by default, and in symmetric memory; prints the kernels that did so, sums, and
whether symmetric memory has a multicast address.
"""
import socket

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import torch.multiprocessing as mp

COUNT = 4096


def work(rank, address):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", address, rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    tensor = torch.full((COUNT,), rank + 1, device=f"cuda:{rank}", dtype=torch.bfloat16)
    dist.all_reduce(tensor.clone())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    kernels = [event.name for event in profile.events() if "reduce" in event.name.lower()]
    shared = symmetric.empty(COUNT, device=f"cuda:{rank}", dtype=torch.bfloat16).fill_(rank + 1)
    handle = symmetric.rendezvous(shared, dist.group.WORLD.group_name)
    added = torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", dist.group.WORLD.group_name)
    if rank == 0:
        print("kernels", *sorted(set(kernels)), flush=True)
        print("sums", int(tensor.sum()), int(added.sum()), "multicast", int(handle.multicast_ptr != 0), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    mp.spawn(work, args=(address,), nprocs=2)
