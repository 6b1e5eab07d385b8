"""A PyTorch job of two processes, of which one does not come to the second collective until FOLDER/go is there.

    python3 torch_hang.py FOLDER
"""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    tensor = torch.ones(1 << 20, device=f"cuda:{rank}")
    dist.all_reduce(tensor)
    tensor.to(f"cuda:{1 - rank}")
    torch.cuda.synchronize()
    while rank == 1 and not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()  # waits
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(port, sys.argv[1]), nprocs=2)
