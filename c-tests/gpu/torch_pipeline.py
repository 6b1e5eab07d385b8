"""A pipeline of two stages, one on each GPU: activations go forward, gradients back. Prints what it computed, and the bytes
that it moved from GPU to GPU in each direction, as it knows them itself."""
import torch

STEPS, BATCH, WIDTH = 50, 512, 1024

torch.manual_seed(1)
first = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()).to("cuda:0")
second = torch.nn.Linear(WIDTH, 1).to("cuda:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-3)
inputs = [torch.randn(BATCH, WIDTH, device="cuda:0") for _ in range(4)]
forward = backward = 0
for step in range(STEPS):
    hidden = first(inputs[step % 4])
    moved = hidden.to("cuda:1")
    forward += hidden.numel() * hidden.element_size()
    loss = second(moved).square().mean()
    optimizer.zero_grad()
    loss.backward()
    backward += hidden.numel() * hidden.element_size()
    optimizer.step()
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
digest = sum(parameter.double().sum().item() for parameter in [*first.parameters(), *second.parameters()])
print(f"loss {loss.item()!r} parameters {digest!r} forward {forward} backward {backward}")
