"""A few steps of gradient descent in JAX."""

import jax
import jax.numpy as jnp


def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2)


key = jax.random.PRNGKey(0)
x, w = jax.random.normal(key, (512, 128)), jnp.zeros((128, 8))
y = jnp.tanh(x[:, :8])
step = jax.jit(jax.value_and_grad(loss))
for i in range(1, 11):
    value, grad = step(w, x, y)
    w -= 0.5 * grad
    print(f"global_step: {i} loss: {float(value):.6f}", flush=True)
