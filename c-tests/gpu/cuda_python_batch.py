"""cuda-python copies between two GPUs by batches, some of whose copies stay on one device."""
from cuda.bindings import runtime

SIZE, PARTS, ROUNDS = 1 << 20, 4, 25


def check(answer):
    code, *values = answer
    assert code == runtime.cudaError_t.cudaSuccess, code
    return values[0] if values else None


def memory(device):
    check(runtime.cudaSetDevice(device))
    return [check(runtime.cudaMalloc(SIZE)) for _ in range(PARTS)]


near, far, beside = memory(0), memory(1), memory(0)
check(runtime.cudaSetDevice(0))
stream = check(runtime.cudaStreamCreate())
attributes = runtime.cudaMemcpyAttributes()
attributes.srcAccessOrder = runtime.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream


def batch(dsts, srcs):
    check(runtime.cudaMemcpyBatchAsync(dsts, srcs, [SIZE] * len(dsts), len(dsts), (attributes,), [0], 1, stream))


for value, part in enumerate(near):
    check(runtime.cudaMemset(part, value + 1, SIZE))
check(runtime.cudaDeviceSynchronize())
for _ in range(ROUNDS):
    batch(far + beside[:1], near + near[:1])
    batch(beside[1:], far[1:])
check(runtime.cudaStreamSynchronize(stream))
host = bytearray(SIZE)
sums = []
for part in beside:
    check(runtime.cudaMemcpy(host, part, SIZE, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost))
    sums.append(sum(host) // SIZE)
assert sums == [1, 2, 3, 4], sums
print(f"forward {ROUNDS * PARTS * SIZE} backward {ROUNDS * (PARTS - 1) * SIZE}")
