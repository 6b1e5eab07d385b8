"""JAX moves an array from one GPU to another."""
import jax
import jax.numpy as jnp

first, second = jax.devices("gpu")[:2]
array = jax.device_put(jnp.arange(1 << 20, dtype=jnp.int32), first)
moved = jax.device_put(array, second)
print("JAX", int(moved.max()), "on", moved.devices() == {second})
