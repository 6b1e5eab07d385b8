"""The median time of a step of 1,000 small operations on one GPU, in milliseconds: a quarter of them copies within the device, which
p2pshim passes on. Prints one number a line, so that runs in turn can be compared."""
import sys
import time

import torch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100

torch.manual_seed(0)
x, y = (torch.randn(64, 64, device="cuda:0") for _ in range(2))
z = torch.empty_like(x)


def step():
    for _ in range(250):
        z.copy_(x)
        torch.add(z, y, out=z)
        z.mul_(0.5)
        torch.relu_(z)


for _ in range(20):
    step()
torch.cuda.synchronize()
times = []
for _ in range(STEPS):
    begun = time.perf_counter()
    step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begun)
print(f"{sorted(times)[STEPS // 2] * 1e3:.4f}\t{min(times) * 1e3:.4f}")
