"""Programs that follow public reports of slow second calls and of functions that compile again.

Each is written for this repository, and as small as its report allows. Each runs as it was
reported, or as the explanation advises.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.pjit
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Report(NamedTuple):
    """A program, and the explanation of its misses."""

    number: str  # on GitHub
    program: Callable[[bool], None]  # takes whether to follow the advice
    path: str
    cause: str
    advice: str
    needs: str = "jax"  # the library that it needs


def mesh(*shape: int, names: tuple[str, ...] = ("data", "model")) -> Mesh:
    return Mesh(np.array(jax.devices()[:4]).reshape(shape), names[: len(shape)])


def new_optimizer_each_epoch(is_advised: bool) -> None:
    import optax
    from flax import nnx

    tx = optax.sgd(0.1)

    @nnx.jit
    def epoch(model: Any, opt: Any, x: Any) -> None:
        opt.update(model, nnx.grad(lambda m: m(x).sum())(model))

    for _ in range(2):
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        chain = tx if is_advised else optax.sgd(0.1)
        epoch(model, nnx.Optimizer(model, chain, wrt=nnx.Param), jnp.ones((1, 2)))


def relu(x: Any) -> Any:
    return jnp.maximum(x, 0)


def activation_made_in_a_module(is_advised: bool) -> None:
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self) -> None:
            self.act = relu if is_advised else lambda x: jnp.maximum(x, 0)

    @nnx.jit
    def forward(model: Any, x: Any) -> Any:
        return model.act(x)

    for _ in range(2):
        forward(Layer(), jnp.ones(3))


def counter_in_an_nnx_module(is_advised: bool) -> None:
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
            self.epoch = nnx.Variable(jnp.asarray(0)) if is_advised else 0

    @nnx.jit
    def forward(model: Any, x: Any) -> Any:
        return model.linear(x)

    model = Model()
    for epoch in range(2):
        model.epoch = nnx.Variable(jnp.asarray(epoch)) if is_advised else epoch
        forward(model, jnp.ones((1, 2)))


def counter_in_an_equinox_module(is_advised: bool) -> None:
    import equinox as eqx

    class Source(eqx.Module):
        flux: jax.Array
        step: Any

    @eqx.filter_jit
    def fit(source: Any) -> Any:
        return source.flux * 2

    for step in range(2):
        fit(Source(jnp.ones(3), jnp.asarray(step) if is_advised else step))


def function_jitted_in_an_equinox_module(is_advised: bool) -> None:
    import equinox as eqx

    class Trajectory(eqx.Module):
        scale: jax.Array
        forward: Callable

        def __init__(self, forward: Callable) -> None:
            self.scale = jnp.ones(3)
            self.forward = forward

    kinematics = lambda x: x * 2  # noqa: E731
    once = jax.jit(kinematics)

    @eqx.filter_jit
    def step(model: Any, x: Any) -> Any:
        return model.forward(model.scale * x)

    for _ in range(2):
        step(Trajectory(once if is_advised else jax.jit(lambda x: x * 2)), jnp.ones(3))


def smaller_last_batch(is_advised: bool) -> None:
    import equinox as eqx

    @eqx.filter_jit
    def make_step(model: Any, batch: Any) -> Any:
        return jax.vmap(model)(batch).sum()

    model = eqx.nn.Linear(3, 1, key=jax.random.key(0))
    for size in (4, 3):
        batch = np.ones((size, 3), np.float32)
        if is_advised:
            batch = jnp.pad(batch, [(0, 4 - size), (0, 0)])
        make_step(model, batch)


def longer_prompt(is_advised: bool) -> None:
    prefill = jax.jit(lambda tokens: tokens.sum())
    for length in (5, 8):
        tokens = np.ones((1, length), np.int32)
        prefill(jnp.pad(tokens, [(0, 0), (0, 8 - length)]) if is_advised else tokens)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["tokens"], meta_fields=["return_logprob"]
)
@dataclasses.dataclass
class Batch:
    tokens: Any
    return_logprob: bool


def first_request_for_log_probabilities(is_advised: bool) -> None:
    forward = jax.jit(lambda batch: batch.tokens * 2)
    batches = [Batch(np.ones(4, np.int32), flag) for flag in (False, True)]
    if is_advised:  # before the loop, and not explained
        for batch in batches:
            jaxlib.pjit.set_explaining(False)
            forward(batch)
            jaxlib.pjit.set_explaining(True)
    for batch in batches:
        forward(batch)


class Warmup(NamedTuple):
    mean: Any
    count: Any


def weakly_typed_adaptation_state(is_advised: bool) -> None:
    def scalar(x: Any) -> Any:
        return jnp.asarray(x, "float32") if is_advised else jnp.asarray(x)

    @jax.jit
    def sample(state: Any, x: Any) -> Any:
        return Warmup(state.mean + (x - state.mean) / 2, state.count)

    state = Warmup(scalar(0.0), jnp.zeros((), jnp.int32))
    for _ in range(2):
        state = sample(state, np.float32(1))


def weakly_typed_simulation_time(is_advised: bool) -> None:
    timestep = jnp.asarray(0.002, jnp.float32)
    time = jnp.asarray(0.0, "float32") if is_advised else jnp.asarray(0.0)
    step = jax.jit(lambda data: {"qpos": data["qpos"] * 2, "time": data["time"] + timestep})
    data = {"qpos": jnp.zeros(3), "time": time}
    for _ in range(3):
        data = step(data)


def a_float_and_then_its_result(is_advised: bool) -> None:
    step = jax.jit(lambda x: x + np.float32(0))
    x = jnp.asarray(0.0, "float32") if is_advised else 0.0
    for _ in range(2):
        x = step(x)


def learning_rate_by_schedule(is_advised: bool) -> None:
    import optax

    schedule = optax.linear_schedule(0.1, 0.0, 10)
    step = jax.jit(lambda w, lr: w * lr)
    w = jnp.ones(3)
    for lr in (0.1, schedule(np.int32(1))):
        step(w, jnp.asarray(lr, "float32") if is_advised else lr)


def parameters_that_were_loaded(is_advised: bool) -> None:
    train_step = jax.jit(lambda params: params * 2)
    made = jnp.zeros(1)
    loaded = jax.device_put(np.zeros(1, np.float32), made.sharding)
    for params in (made, loaded):
        train_step(jax.device_put(params, jax.devices()[0]) if is_advised else params)


def solver_state_that_comes_back_committed(is_advised: bool) -> None:
    grid = jax.device_put(np.ones(3, np.float32), jax.devices()[0])
    advance = jax.jit(lambda grid, state: state + grid)
    state = jnp.zeros(3)
    if is_advised:
        state = jax.device_put(state, jax.devices()[0])
    for _ in range(2):
        state = advance(grid, state)


def counter_off_the_training_mesh(is_advised: bool) -> None:
    on = mesh(4)
    train_step = jax.jit(lambda s: {"step": s["step"] + 1, "params": s["params"] * 0.9})
    state = {
        "step": jnp.zeros((), jnp.int32),
        "params": jax.device_put(np.ones((8, 8), np.float32), NamedSharding(on, P("data"))),
    }
    if is_advised:
        state["step"] = jax.device_put(state["step"], NamedSharding(on, P()))
    for _ in range(2):
        state = train_step(state)


def count_of_adam_off_the_mesh(is_advised: bool) -> None:
    import optax

    on = mesh(4)
    tx = optax.adam(0.1)
    params = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(on, P("data")))
    state = tx.init(params)
    if is_advised:
        count = jax.device_put(state[0].count, NamedSharding(on, P()))
        state = (state[0]._replace(count=count), *state[1:])

    @jax.jit
    def train_step(params: Any, state: Any) -> Any:
        updates, state = tx.update(params, state)
        return optax.apply_updates(params, updates), state

    for _ in range(2):
        params, state = train_step(params, state)


def length_one_axis(is_advised: bool) -> None:
    on = mesh(1, 4)
    decode = jax.jit(lambda w, cache: cache + w.sum())
    w = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(on, P(None, "model")))
    spec = P(None, "model") if is_advised else P("data", "model")
    cache = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(on, spec))
    for _ in range(2):
        cache = decode(w, cache)


def trailing_none_left_out(is_advised: bool) -> None:
    on = mesh(4)
    step = jax.jit(lambda x: x.sum())
    for spec in (P("data"), P("data", None)):
        x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(on, spec))
        step(jax.device_put(x, NamedSharding(on, P("data"))) if is_advised else x)


def partial_made_in_each_call(is_advised: bool) -> None:
    once = functools.partial(jnp.add, 1)

    @functools.partial(jax.jit, static_argnames="f")
    def apply(x: Any, f: Any) -> Any:
        return f(x)

    for _ in range(2):
        apply(jnp.ones(3), f=once if is_advised else functools.partial(jnp.add, 1))


class Hashed:
    """An object with a hash, but without an equality."""

    def __hash__(self) -> int:
        return 0


class HashedAndEqual(Hashed):
    __hash__ = Hashed.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is HashedAndEqual


def equal_hash_without_equality(is_advised: bool) -> None:
    kind = HashedAndEqual if is_advised else Hashed
    step = jax.jit(lambda x, static: x, static_argnums=1)
    for _ in range(2):
        step(jnp.ones(3), kind())


def learning_rate_as_a_static_argument(is_advised: bool) -> None:
    import optax

    def train_step(w: Any, lr: Any) -> Any:
        return optax.apply_updates(w, optax.sgd(lr).update(w, optax.sgd(lr).init(w))[0])

    step = jax.jit(train_step, static_argnums=() if is_advised else 1)
    for lr in (0.1, 0.2):
        step(jnp.ones(3), jnp.asarray(lr) if is_advised else lr)


def mesh_entered_after_the_first_call(is_advised: bool) -> None:
    on = mesh(4)
    train_step = jax.jit(lambda x: x * 2)
    x = np.ones(3, np.float32)
    if not is_advised:
        train_step(x)
    with jax.set_mesh(on):
        train_step(x)
        train_step(x)


def precision_for_one_call(is_advised: bool) -> None:
    step = jax.jit(lambda x: x @ x)
    x = jnp.ones((2, 2))
    had = jax.config.jax_default_matmul_precision
    if is_advised:
        jax.config.update("jax_default_matmul_precision", "highest")
    try:
        step(x)
        with jax.default_matmul_precision("highest"):
            step(x)
    finally:
        jax.config.update("jax_default_matmul_precision", had)


def caches_cleared_between_fits(is_advised: bool) -> None:
    fit = jax.jit(lambda x: x * 2)
    for _ in range(2):
        fit(1.0)
        if not is_advised:
            jax.clear_caches()


def column_major_weights(is_advised: bool) -> None:
    from jax.experimental.layout import Format, Layout
    from jax.sharding import SingleDeviceSharding

    one = SingleDeviceSharding(jax.devices()[0])
    step = jax.jit(lambda w: w * 2)
    for order in ((0, 1), (1, 0)):
        w = jax.device_put(np.ones((4, 3), np.float32), Format(Layout(order), one))
        step(jax.device_put(w, Format(Layout((0, 1)), one)) if is_advised else w)


def smallest_integer_type(is_advised: bool) -> None:
    generate = jax.jit(lambda parents: parents.sum())
    for parents in (np.ones(3, np.int32), np.ones(3, np.uint8)):
        generate(jnp.asarray(parents, "int32") if is_advised else parents)


def callback_in_a_step(is_advised: bool) -> None:
    def step(x: Any) -> Any:
        if not is_advised:
            jax.debug.callback(lambda _: None, x.sum())
        return x * 2

    step = jax.jit(step)
    for _ in range(2):
        step(jnp.ones(3))


def _normal(y: Any) -> None:
    import numpyro
    from numpyro import distributions

    mean = numpyro.sample("mean", distributions.Normal(0, 1))
    numpyro.sample("y", distributions.Normal(mean, 1), obs=y)


def numpyro_on_other_data(is_advised: bool) -> None:
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(_normal, AutoNormal(_normal), numpyro.optim.Adam(0.1), Trace_ELBO())
    state = svi.init(jax.random.key(0), np.ones(4, np.float32))
    update = jax.jit(lambda state, y: svi.update(state, y)[0])
    for size in (4, 3):
        y = np.ones(size, np.float32)
        state = update(state, jnp.pad(y, [(0, 4 - size)]) if is_advised else y)


ONCE = "make it once, outside the loop"
ANEW = "each value is compiled again: unless it sets a shape, "
EACH = "each has an entry of its own: call it once with each before the loop"
BEFORE = "place it before the loop as it is returned: "
DTYPE_BEFORE = "start with a dtype of its own, before the loop: "
REPORTS = (
    Report("google/flax/issues/5548", new_optimizer_each_epoch,
           "opt.tx", "pytree structure", ONCE, "flax.nnx"),
    Report("google/flax/issues/4329", activation_made_in_a_module,
           "model.act", "pytree structure", ONCE, "flax.nnx"),
    Report("patrick-kidger/equinox/issues/1062", counter_in_an_equinox_module,
           "source.step", "static argument", f"{ANEW}make it an array: jnp.asarray(1)", "equinox"),
    Report("pmelchior/scarlet2/issues/120", counter_in_an_nnx_module,
           "model.epoch", "pytree structure",
           f"{ANEW}have it a leaf of the pytree, as an array: jnp.asarray(1)", "flax.nnx"),
    Report("patrick-kidger/equinox/issues/686", function_jitted_in_an_equinox_module,
           "model.forward", "static argument", ONCE, "equinox"),
    Report("jax-ml/jax/issues/14183", partial_made_in_each_call,
           "f", "static argument", ONCE),
    Report("jax-ml/jax/issues/14743", equal_hash_without_equality,
           "static", "static argument", f"{ONCE}, or give Hashed `__eq__` and `__hash__`"),
    Report("google-deepmind/optax/issues/577", learning_rate_as_a_static_argument,
           "lr", "static argument",
           f"{ANEW}pass it as an argument that is not static: jnp.asarray(0.2)", "optax"),
    Report("sgl-project/sglang-jax/issues/609", first_request_for_log_probabilities,
           "batch.return_logprob", "pytree structure", EACH),
    Report("patrick-kidger/diffrax/issues/111", smaller_last_batch,
           "batch", "shape or dtype",
           "pad it to (4, 3) in every call, as here where it is (3, 3): "
           "jnp.pad(batch, [(0, 1), (0, 0)])", "equinox"),
    Report("vllm-project/vllm/pull/16726", longer_prompt,
           "tokens", "shape or dtype",
           "pad it to (1, 8) in every call, as here where it is (1, 5): "
           "jnp.pad(tokens, [(0, 0), (0, 3)])"),
    Report("pyro-ppl/numpyro/issues/441", numpyro_on_other_data,
           "y", "shape or dtype",
           "pad it to (4,) in every call, as here where it is (3,): jnp.pad(y, [(0, 1)])",
           "numpyro"),
    Report("ryan112358/mbi/pull/193", smallest_integer_type,
           "parents", "shape or dtype",
           "give it one dtype in every call: jnp.asarray(parents, 'int32')"),
    Report("jax-ml/jax/issues/4274", a_float_and_then_its_result,
           "x", "type of the argument",
           "pass an array in every call: jnp.asarray(x, 'float32')"),
    Report("raven-ml/raven/pull/218", learning_rate_by_schedule,
           "lr", "type of the argument",
           "pass an array in every call: jnp.asarray(lr, 'float32')", "optax"),
    Report("pyro-ppl/numpyro/issues/463", weakly_typed_adaptation_state,
           "state.mean", "weak type", f"{DTYPE_BEFORE}jnp.asarray(state.mean, 'float32')"),
    Report("google-deepmind/mujoco/issues/2306", weakly_typed_simulation_time,
           "data['time']", "weak type", f"{DTYPE_BEFORE}jnp.asarray(data['time'], 'float32')"),
    Report("jax-ml/jax/issues/15924", parameters_that_were_loaded,
           "params", "committed or not",
           "commit it in every call: jax.device_put(params, jax.devices()[0])"),
    Report("uwplasma/vmex/pull/321", solver_state_that_comes_back_committed,
           "state", "committed or not",
           "commit it before the loop: jax.device_put(state, jax.devices()[0])"),
    Report("marin-community/marin/pull/8911", counter_off_the_training_mesh,
           "s['step']", "sharding, different placement",
           f"{BEFORE}jax.device_put(s['step'], NamedSharding(mesh, P()))"),
    Report("jax-ml/jax/issues/14519", count_of_adam_off_the_mesh,
           "state[0].count", "sharding, different placement",
           f"{BEFORE}jax.device_put(state[0].count, NamedSharding(mesh, P()))", "optax"),
    Report("jax-ml/jax/issues/15782", length_one_axis,
           "cache", "sharding, same placement, spelled differently",
           f"{BEFORE}jax.device_put(cache, NamedSharding(mesh, P(None, 'model')))"),
    Report("flatironinstitute/jaxmg/pull/28", trailing_none_left_out,
           "x", "sharding, same placement, spelled differently",
           "place it as in the earlier call: jax.device_put(x, NamedSharding(mesh, P('data',)))"),
    Report("jax-ml/jax/issues/23100", column_major_weights,
           "w", "layout",
           "give it one layout in every call: jax.device_put(w, "
           "Format(Layout((0, 1)), SingleDeviceSharding(jax.devices()[0])))"),
    Report("AI-Hypercomputer/maxtext/pull/4934", mesh_entered_after_the_first_call,
           "abstract_mesh_context_manager", "jit configuration",
           "enter the mesh once, before the first call"),
    Report("jax-ml/jax/pull/6143", precision_for_one_call,
           "jax_default_matmul_precision", "jit configuration",
           "set it before the first call: "
           "jax.config.update('jax_default_matmul_precision', 'highest')"),
    Report("svenguenther/OLE/issues/6", caches_cleared_between_fits,
           "", "the same signature as an earlier call, whose entry is gone",
           "do not call clear_cache() or jax.clear_caches() between calls"),
    Report("jax-ml/jax/issues/39289", callback_in_a_step,
           "", "it has host callbacks or other effects",
           "leave the callback out of the step where speed matters"),
)  # fmt: skip
