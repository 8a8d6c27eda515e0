"""XLA cannot allocate."""

import jax
import jax.numpy as jnp

print(jax.devices(), flush=True)
x = jnp.ones((200, 1024, 1024, 1024), dtype=jnp.float32)
print(x.sum())
