"""A process sends tensors on GPU 1 through a queue of torch.multiprocessing; another one copies them to GPU 0. Prints what arrived, and the
bytes that were copied from GPU to GPU."""
import torch
import torch.multiprocessing as mp

ROUNDS, NUMBERS = 20, 1 << 20


def consume(tensors, done):
    total = moved = 0
    for _ in range(ROUNDS):
        theirs = tensors.get()
        ours = theirs.to("cuda:0")
        torch.cuda.synchronize(0)
        moved += ours.numel() * ours.element_size()
        total += int(ours.sum())
        del theirs
        done.put(True)
    print(f"sum {total} pulled {moved}", flush=True)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    tensors, done = mp.Queue(), mp.Queue()
    child = mp.Process(target=consume, args=(tensors, done))
    child.start()
    for number in range(ROUNDS):
        tensor = torch.full((NUMBERS,), number, device="cuda:1", dtype=torch.int64)
        torch.cuda.synchronize(1)
        tensors.put(tensor)
        done.get()
    child.join()
    raise SystemExit(child.exitcode)
