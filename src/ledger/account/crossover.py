"""What a layer's attention costs by either route, and at how many new tokens the two cost the same.

Materialize rebuilds every cached token's keys and values; absorb moves the projections to the new tokens and attends
to the latents themselves. One rule prices both: a (rows, inner) @ (inner, cols) product takes rows·inner·cols
multiply-adds. Counted are the content path and the attention after it, rope scores included; ``shared_macs`` has what
is the same on both routes. In the formulas C is for cached and S for new tokens; L, n, r, v are the widths of latent,
nope, rope and value; P = L·(n + v) projects one token for one head, and d = 2L − n − v is what absorb pays more for a
pair of a new and a cached token.
"""

import math
from operator import index
from typing import NamedTuple

from ledger.account.attention import matmul_macs
from ledger.checks import check_counts
from ledger.machines import Machine
from ledger.models import Model


class Step(NamedTuple):
    """One product of a route, made once in each head: (rows, inner) @ (inner, cols).

    ``part`` is ``"projection"`` or ``"attention"``.
    """

    name: str
    part: str
    heads: int
    rows: int
    inner: int
    cols: int

    @property
    def macs(self) -> int:
        """Multiply-adds of all heads."""
        return index(self.heads) * matmul_macs(self.rows, self.inner, self.cols)


def materialize_steps(
    new_tokens: int,
    cached_tokens: int,
    latent_dim: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    num_heads: int,
) -> tuple[Step, ...]:
    """The products of the route that rebuilds keys and values, in the order in which they run."""
    key_dim = nope_dim + rope_dim
    return (
        Step("latents · W_K", "projection", num_heads, cached_tokens, latent_dim, nope_dim),
        Step("latents · W_V", "projection", num_heads, cached_tokens, latent_dim, value_dim),
        Step("queries · keysᵀ", "attention", num_heads, new_tokens, key_dim, cached_tokens),
        Step("weights · values", "attention", num_heads, new_tokens, cached_tokens, value_dim),
    )


def absorb_steps(
    new_tokens: int,
    cached_tokens: int,
    latent_dim: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    num_heads: int,
) -> tuple[Step, ...]:
    """The products of the route that absorbs both projections, in the order in which they run."""
    entry_dim = latent_dim + rope_dim
    return (
        Step("q_nope · W_Kᵀ", "projection", num_heads, new_tokens, nope_dim, latent_dim),
        Step("queries · entriesᵀ", "attention", num_heads, new_tokens, entry_dim, cached_tokens),
        Step("weights · latents", "attention", num_heads, new_tokens, cached_tokens, latent_dim),
        Step("mixed latents · W_V", "projection", num_heads, new_tokens, latent_dim, value_dim),
    )


def materialize_macs(
    new_tokens: int,
    cached_tokens: int,
    latent_dim: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    num_heads: int,
) -> dict[str, int]:
    """Multiply-adds of one layer that rebuilds keys and values: ``projection``, ``attention`` and their ``total``.

    A head takes C·L·(n + v) + S·C·(n + r + v).
    """
    return _parts(materialize_steps(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads))


def absorb_macs(
    new_tokens: int,
    cached_tokens: int,
    latent_dim: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    num_heads: int,
) -> dict[str, int]:
    """Multiply-adds of one layer that absorbs: ``projection``, ``attention`` and their ``total``.

    A head takes S·L·(n + v) + S·C·(L + r + L).
    """
    return _parts(absorb_steps(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads))


def _parts(steps: tuple[Step, ...]) -> dict[str, int]:
    parts = {part: sum(step.macs for step in steps if step.part == part) for part in ("projection", "attention")}
    return parts | {"total": sum(parts.values())}


def widths(model: Model) -> dict[str, int]:
    """The five sizes of ``model`` that ``materialize_macs`` and ``absorb_macs`` take, by name."""
    names = ("latent_dim", "nope_dim", "rope_dim", "value_dim", "num_heads")
    return {name: getattr(model, name) for name in names}


def shared_macs(new_tokens: int, cached_tokens: int, model: Model) -> dict[str, int]:
    """Multiply-adds of one layer that both routes spend alike, by name: the rope scores, which the attention terms
    contain, and what stands before and after the two routes: the new tokens' queries and cache entries, and the output
    projection back to the hidden width."""
    heads, hidden = model.num_heads, model.hidden_dim
    if model.q_lora_dim is None:
        queries = matmul_macs(new_tokens, hidden, heads * model.qk_dim)
    else:
        queries = matmul_macs(new_tokens, hidden, model.q_lora_dim)
        queries += matmul_macs(new_tokens, model.q_lora_dim, heads * model.qk_dim)
    return {
        "queries": queries,
        "cache entries": matmul_macs(new_tokens, hidden, model.cache_dim),
        "rope scores": index(heads) * matmul_macs(new_tokens, model.rope_dim, cached_tokens),
        "output projection": matmul_macs(new_tokens, heads * model.value_dim, hidden),
    }


def crossover_new_tokens(cached_tokens: int, latent_dim: int, nope_dim: int, value_dim: int) -> float:
    """The number of new tokens at which both routes take the same multiply-adds: C·P / (P + C·d).

    Heads and rope cancel. ``math.inf`` where the denominator is not positive: absorb then never loses. A ValueError,
    here and in the two functions below, for a size that is negative or no whole number.
    """
    check_counts(cached_tokens=cached_tokens)
    projection, extra = _projection_and_extra(latent_dim, nope_dim, value_dim)
    denominator = projection + index(cached_tokens) * extra
    return index(cached_tokens) * projection / denominator if denominator > 0 else math.inf


def crossover_limit(latent_dim: int, nope_dim: int, value_dim: int) -> float:
    """What ``crossover_new_tokens`` tends to in a long context: P / d; ``math.inf`` where 2L ≤ n + v."""
    projection, extra = _projection_and_extra(latent_dim, nope_dim, value_dim)
    return projection / extra if extra > 0 else math.inf


def crossover_causal(cached_tokens: int, latent_dim: int, nope_dim: int, value_dim: int) -> float:
    """The crossing where the new tokens are keys too and each sees only those up to itself: −C + √(C² + 2C·P/d).

    Both routes then project the new tokens' latents, so C·P = (S·C + S²/2)·d remains; the triangle is taken as S²/2.
    0.0 without cached tokens; ``math.inf`` where 2L ≤ n + v, whatever the cache.
    """
    check_counts(cached_tokens=cached_tokens)
    projection, extra = _projection_and_extra(latent_dim, nope_dim, value_dim)
    if extra <= 0:
        return math.inf
    if cached_tokens == 0:
        return 0.0
    # C·(√(1 + 2P/(C·d)) − 1) times its conjugate: nothing large is subtracted from something nearly as large.
    root = math.sqrt(1 + 2 * projection / (index(cached_tokens) * extra))
    return 2 * projection / extra / (1 + root)


def pick_path(new_tokens: int, cached_tokens: int, model: Model) -> str:
    """``"absorb"`` or ``"materialize"``: the route with fewer multiply-adds, without a causal mask. A tie is absorb."""
    sizes = widths(model)
    absorb = absorb_macs(new_tokens, cached_tokens, **sizes)["total"]
    return "absorb" if absorb <= materialize_macs(new_tokens, cached_tokens, **sizes)["total"] else "materialize"


def log_slopes(new_tokens: int, cached_tokens: int, **sizes: int) -> tuple[float, float]:
    """Percent by which each total grows for one percent more new tokens: materialize's, then absorb's.

    These are the slopes of both lines on paper with two logarithmic scales. ``sizes`` are those of ``widths``. All of
    absorb's work is proportional to the new tokens; of materialize's only the attention is. NaN where a total is 0.
    """
    narrow = materialize_macs(new_tokens, cached_tokens, **sizes)
    wide = absorb_macs(new_tokens, cached_tokens, **sizes)
    grows = (narrow["attention"], narrow["total"]), (wide["projection"] + wide["attention"], wide["total"])
    materialize, absorb = (growing / total if total else math.nan for growing, total in grows)
    return materialize, absorb


def causal_pairs(new_tokens: int, cached_tokens: int) -> int:
    """Pairs of a new token and a token that it may attend to: all cached ones and the new ones up to itself."""
    new_tokens = index(new_tokens)
    return new_tokens * index(cached_tokens) + new_tokens * (new_tokens + 1) // 2


def expanded_bytes(cached_tokens: int, model: Model, itemsize: int = 2) -> int:
    """Bytes of all heads' keys, nope and rope side by side, and values of ``cached_tokens``, in one layer."""
    return index(cached_tokens) * model.num_heads * (model.qk_dim + model.value_dim) * itemsize


def time_crossover_limit(
    model: Model, machine: Machine, write_hidden: bool, read_hidden: bool, dtype: str = "bf16"
) -> float:
    """The new tokens at which both routes take the same *time* in a long context, by ``machine``'s datasheet.

    The expanded keys and values of a layer are written after the projection and read by the attention, 2 bytes a value.
    A pass that is hidden overlaps with the arithmetic of its product, so that the longer of the two counts; one that is
    not is added to it. The absorbed route waits for arithmetic alone: its cache is small. A ValueError names the
    formats that ``machine`` has a rate for.
    """
    flop = 2 * model.num_heads / machine.rate(dtype)
    project = flop * _projection_and_extra(model.latent_dim, model.nope_dim, model.value_dim)[0]
    narrow = flop * (model.qk_dim + model.value_dim)  # a pair of a new and a cached token
    wide = flop * (model.cache_dim + model.latent_dim)
    one_pass = expanded_bytes(1, model) / machine.bandwidth
    build = max(project, one_pass) if write_hidden else project + one_pass
    if wide <= narrow:
        return math.inf
    if not read_hidden:
        return (build + one_pass) / (wide - narrow)
    # wide·S = build + max(narrow·S, one_pass)
    return max(build / (wide - narrow), (build + one_pass) / wide)


def _projection_and_extra(latent_dim: int, nope_dim: int, value_dim: int) -> tuple[int, int]:
    """P and d of the formulas, by the widths of one head."""
    check_counts(latent_dim=latent_dim, nope_dim=nope_dim, value_dim=value_dim)
    latent, both = index(latent_dim), index(nope_dim) + index(value_dim)
    return latent * both, 2 * latent - both
