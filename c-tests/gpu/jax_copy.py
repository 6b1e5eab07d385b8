"""JAX copies arrays between two GPUs by `device_put`."""
import jax
import jax.numpy as jnp

COUNT, ROUNDS = 1 << 20, 20

first, second = jax.devices()[:2]
near = jax.device_put(jnp.arange(COUNT, dtype=jnp.float32), first).block_until_ready()
for _ in range(ROUNDS):
    far = jax.device_put(near, second).block_until_ready()
for _ in range(ROUNDS):
    back = jax.device_put(far, first).block_until_ready()
assert bool((back == near).all())
print(f"forward {ROUNDS * near.nbytes} backward {ROUNDS * far.nbytes}")
