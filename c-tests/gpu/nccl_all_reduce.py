"""PyTorch adds up tensors of two processes by NCCL, one GPU each."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    tensor = torch.full((1 << 22,), rank + 1, device=f"cuda:{rank}", dtype=torch.int64)
    dist.all_reduce(tensor)
    if rank == 0:
        print("NCCL", int(tensor.sum()), "expected", 3 << 22, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(port,), nprocs=2)
