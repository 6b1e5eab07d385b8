"""JAX moves an array from one GPU to another and back."""
import jax
import jax.numpy as jnp
import numpy

first, second = jax.devices("gpu")[:2]
array = jax.device_put(jnp.arange(1 << 22, dtype=jnp.int32), first)
for _ in range(10):
    moved = jax.device_put(array, second)
    array = jax.device_put(moved, first)
print("JAX", int(numpy.asarray(moved).astype(numpy.int64).sum()), int(numpy.asarray(array).astype(numpy.int64).sum()),
      "on", moved.devices() == {second})
