"""PyTorch moves a tensor from one GPU to the other and back."""
import torch

source = torch.arange(1 << 22, device="cuda:0", dtype=torch.int64)
for _ in range(10):
    moved = source.to("cuda:1")
    back = moved.to("cuda:0")
print("PyTorch", int(moved.sum()), int(back.sum()), bool(torch.equal(source, back)))
