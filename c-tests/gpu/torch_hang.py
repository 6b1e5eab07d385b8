"""A PyTorch job of two processes, of which one does not come to the second collective until FOLDER/go is there.

    python3 torch_hang.py FOLDER                                     starts them itself; no variable says their ranks
    python3 -m torch.distributed.run --nproc-per-node 2 torch_hang.py FOLDER
"""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, address, folder):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", address, rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    tensor = torch.ones(1 << 20, device=f"cuda:{rank}")
    dist.all_reduce(tensor)
    tensor.to(f"cuda:{1 - rank}")
    torch.cuda.synchronize()
    while rank == 1 and not os.path.exists(f"{folder}/go"): time.sleep(0.01)  # sleeps
    dist.all_reduce(tensor)
    torch.cuda.synchronize()  # waits
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), "env://", sys.argv[1])
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.spawn(work, args=(f"tcp://127.0.0.1:{port}", sys.argv[1]), nprocs=2)
