"""CuPy copies arrays between two GPUs: by `.copy` and by assignment."""
import cupy

COUNT, ROUNDS = 1 << 20, 20

with cupy.cuda.Device(0):
    near = cupy.arange(COUNT, dtype=cupy.float32)
    back = cupy.empty_like(near)
    cupy.cuda.Device(0).synchronize()
with cupy.cuda.Device(1):
    for _ in range(ROUNDS):
        far = near.copy()
    cupy.cuda.Device(1).synchronize()
with cupy.cuda.Device(0):
    for _ in range(ROUNDS):
        back[...] = cupy.asarray(far)
    cupy.cuda.Device(0).synchronize()
    assert bool((back == near).all())
print(f"forward {ROUNDS * near.nbytes} backward {ROUNDS * far.nbytes}")
