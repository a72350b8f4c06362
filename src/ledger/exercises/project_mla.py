"""Chapter 3: the compression itself, from a hidden state to queries and a cache entry."""

from itertools import product

import numpy as np

from ledger.account.values import compression_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, whole
from ledger.reference import values

EPS = 1e-6


def make(rng, dtype, tokens, hidden_dim, q_lora_dim, latent_dim, num_heads, nope_dim, rope_dim):
    weights = {
        "w_dq": normal(rng, dtype, hidden_dim, q_lora_dim),
        "q_norm": normal(rng, dtype, q_lora_dim),
        "w_uq": normal(rng, dtype, q_lora_dim, num_heads * (nope_dim + rope_dim)),
        "w_dkv": normal(rng, dtype, hidden_dim, latent_dim + rope_dim),
    }
    hidden = normal(rng, dtype, tokens, hidden_dim)
    return {"hidden": hidden, "weights": weights, "num_heads": num_heads, "nope_dim": nope_dim, "eps": EPS}


def make_direct(rng, dtype, tokens, hidden_dim, latent_dim, num_heads, nope_dim, rope_dim):
    """A model without a query latent: two weights are all."""
    weights = {
        "w_uq": whole(rng, dtype, hidden_dim, num_heads * (nope_dim + rope_dim)),
        "w_dkv": whole(rng, dtype, hidden_dim, latent_dim + rope_dim),
    }
    hidden = whole(rng, dtype, tokens, hidden_dim)
    return {"hidden": hidden, "weights": weights, "num_heads": num_heads, "nope_dim": nope_dim, "eps": EPS}


def make_near_zero(rng, dtype, **dims):
    """Hidden states so small that eps is a good part of the mean square."""
    inputs = make(rng, dtype, **dims)
    inputs["hidden"] *= np.asarray(1e-4, dtype)
    return inputs


def make_toy(rng, dtype, num_heads, nope_dim, **dims):
    """A query latent [3, 4], and an eps that makes the root of its mean square a whole number: √(12.5 + 12.5) = 5."""
    weights = {
        "w_dq": ((1, 0), (0, 1)),
        "q_norm": (5, 10),
        "w_uq": ((1, 0, 0, 1), (0, 1, 1, 1)),
        "w_dkv": ((1, 0, 2), (0, 1, 1)),
    }
    weights = {name: np.array(rows, dtype) for name, rows in weights.items()}
    hidden = np.array([(3, 4)], dtype)
    return {"hidden": hidden, "weights": weights, "num_heads": num_heads, "nope_dim": nope_dim, "eps": 12.5}


def least_macs(tokens, hidden_dim, latent_dim, num_heads, nope_dim, rope_dim, q_lora_dim=None):
    """The products, and the norm's two multiplications for each feature of the query latent."""
    products = compression_macs(tokens, hidden_dim, q_lora_dim, latent_dim, num_heads, nope_dim, rope_dim)
    return products.total + 2 * tokens * (q_lora_dim or 0)


def norm_forgotten(hidden, weights, num_heads, nope_dim, eps):
    source = hidden @ weights["w_dq"] if "w_dq" in weights else hidden
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def norm_weight_forgotten(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps)
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def eps_forgotten(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True)) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def eps_outside_the_root(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / (np.sqrt(np.mean(low**2, -1, keepdims=True)) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def sum_in_place_of_mean(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.sum(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def mean_over_the_tokens(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        squares = (low**2).sum(0) / np.asarray(max(len(low), 1), low.dtype)
        source = low / np.sqrt(squares + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def mean_over_everything(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        squares = (low**2).sum() / np.asarray(max(low.size, 1), low.dtype)
        source = low / np.sqrt(squares + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def root_forgotten(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / (np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def layer_norm(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        low = low - low.mean(-1, keepdims=True)
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def latent_normalised_too(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    latent = entry[:, :latent_dim]
    latent = latent / np.sqrt(np.mean(latent**2, -1, keepdims=True) + eps)
    return q[..., :nope_dim], q[..., nope_dim:], latent, entry[:, latent_dim:]


def whole_entry_normalised(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    entry = entry / np.sqrt(np.mean(entry**2, -1, keepdims=True) + eps)
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def rope_before_nope(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    rope_dim = width - nope_dim
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - rope_dim
    entry = hidden @ weights["w_dkv"]
    return q[..., rope_dim:], q[..., :rope_dim], entry[:, :latent_dim], entry[:, latent_dim:]


def all_nopes_first(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    tokens, width = len(hidden), weights["w_uq"].shape[1] // num_heads
    rope_dim = width - nope_dim
    q = source @ weights["w_uq"]
    q_nope = q[:, : num_heads * nope_dim].reshape(tokens, num_heads, nope_dim)
    q_rope = q[:, num_heads * nope_dim :].reshape(tokens, num_heads, rope_dim)
    latent_dim = weights["w_dkv"].shape[1] - rope_dim
    entry = hidden @ weights["w_dkv"]
    return q_nope, q_rope, entry[:, :latent_dim], entry[:, latent_dim:]


def heads_interleaved(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), width, num_heads).swapaxes(1, 2)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def k_rope_before_latent(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    rope_dim = width - nope_dim
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, rope_dim:], entry[:, :rope_dim]


def cut_from_the_right(of_the_end):
    """An answer that cuts by minus the rope width those of its four parts where ``of_the_end`` is true."""

    def cut(hidden, weights, num_heads, nope_dim, eps):
        source = hidden
        if "w_dq" in weights:
            low = hidden @ weights["w_dq"]
            source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
        width = weights["w_uq"].shape[1] // num_heads
        rope_dim = width - nope_dim
        q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
        entry = hidden @ weights["w_dkv"]
        latent_dim = entry.shape[1] - rope_dim
        by_the_end = q[..., :-rope_dim], q[..., -rope_dim:], entry[:, :-rope_dim], entry[:, -rope_dim:]
        right = q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]
        return tuple(b if end else r for end, b, r in zip(of_the_end, by_the_end, right, strict=True))

    return cut


#: Every choice of parts but none.
CUTS_FROM_THE_RIGHT = tuple(cut_from_the_right(ends) for ends in product((False, True), repeat=4) if any(ends))


def cache_entry_cut_from_the_right(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    rope_dim = width - nope_dim
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :-rope_dim], entry[:, -rope_dim:]


def all_parts_cut_from_the_right(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    rope_dim = width - nope_dim
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    entry = hidden @ weights["w_dkv"]
    return q[..., :-rope_dim], q[..., -rope_dim:], entry[:, :-rope_dim], entry[:, -rope_dim:]


def norm_before_the_way_down(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        normed = hidden / np.sqrt(np.mean(hidden**2, -1, keepdims=True) + eps)
        source = normed @ weights["w_dq"] * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def always_a_query_latent(hidden, weights, num_heads, nope_dim, eps):
    low = hidden @ weights["w_dq"]
    source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def direct_queries_normalised(hidden, weights, num_heads, nope_dim, eps):
    low = hidden @ weights["w_dq"] if "w_dq" in weights else hidden
    source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps)
    if "q_norm" in weights:
        source = source * weights["q_norm"]
    width = weights["w_uq"].shape[1] // num_heads
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, width)
    latent_dim = weights["w_dkv"].shape[1] - (width - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


def width_guessed_in_the_reshape(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        source = low / np.sqrt(np.mean(low**2, -1, keepdims=True) + eps) * weights["q_norm"]
    q = (source @ weights["w_uq"]).reshape(len(hidden), num_heads, -1)
    latent_dim = weights["w_dkv"].shape[1] - (q.shape[2] - nope_dim)
    entry = hidden @ weights["w_dkv"]
    return q[..., :nope_dim], q[..., nope_dim:], entry[:, :latent_dim], entry[:, latent_dim:]


EXERCISE = Exercise(
    id="project_mla",
    chapter=3,
    order=1,
    title="the compression itself",
    checks="both parts of every head's query, the latent and the shared rope key, out of the hidden states",
    points=3,
    difficulty=2,
    minutes=15,
    make=make,
    oracle=values.project_mla,
    least_macs=least_macs,
    returns=("q_nope", "q_rope", "latent", "k_rope"),
    cases=(
        Case(
            "square sizes, no query latent",
            {"tokens": 3, "hidden_dim": 3, "latent_dim": 3, "num_heads": 3, "nope_dim": 3, "rope_dim": 3},
            make=make_direct,
        ),
        Case(
            "the toy by hand, two heads",
            {
                "tokens": 1,
                "hidden_dim": 2,
                "q_lora_dim": 2,
                "latent_dim": 2,
                "num_heads": 2,
                "nope_dim": 1,
                "rope_dim": 1,
            },
            make=make_toy,
        ),
        Case(
            "odd sizes",
            {
                "tokens": 5,
                "hidden_dim": 13,
                "q_lora_dim": 11,
                "latent_dim": 9,
                "num_heads": 3,
                "nope_dim": 7,
                "rope_dim": 1,
            },
        ),
        Case(
            "no query latent",
            {"tokens": 4, "hidden_dim": 10, "latent_dim": 6, "num_heads": 3, "nope_dim": 5, "rope_dim": 2},
            make=make_direct,
        ),
        Case(
            "rope wider than nope, one head",
            {
                "tokens": 3,
                "hidden_dim": 8,
                "q_lora_dim": 5,
                "latent_dim": 7,
                "num_heads": 1,
                "nope_dim": 2,
                "rope_dim": 4,
            },
        ),
        Case(
            "hidden states near zero",
            {
                "tokens": 4,
                "hidden_dim": 9,
                "q_lora_dim": 6,
                "latent_dim": 5,
                "num_heads": 2,
                "nope_dim": 3,
                "rope_dim": 8,
            },
            make=make_near_zero,
        ),
        Case(
            "no token, float32",
            {
                "tokens": 0,
                "hidden_dim": 8,
                "q_lora_dim": 6,
                "latent_dim": 5,
                "num_heads": 3,
                "nope_dim": 4,
                "rope_dim": 2,
            },
            dtype="float32",
        ),
        Case(
            "float32, no query latent",
            {"tokens": 5, "hidden_dim": 9, "latent_dim": 7, "num_heads": 2, "nope_dim": 6, "rope_dim": 4},
            dtype="float32",
            make=make_direct,
        ),
        Case(
            "no rope part, no query latent",
            {"tokens": 2, "hidden_dim": 7, "latent_dim": 5, "num_heads": 3, "nope_dim": 4, "rope_dim": 0},
            make=make_direct,
        ),
        Case(
            "strided inputs, float32",
            {
                "tokens": 6,
                "hidden_dim": 10,
                "q_lora_dim": 8,
                "latent_dim": 9,
                "num_heads": 3,
                "nope_dim": 4,
                "rope_dim": 2,
            },
            dtype="float32",
            layout="strided",
        ),
        Case(
            "MiniCPM3 widths, two heads, narrow hidden states",
            {
                "tokens": 3,
                "hidden_dim": 80,
                "q_lora_dim": 768,
                "latent_dim": 256,
                "num_heads": 2,
                "nope_dim": 64,
                "rope_dim": 32,
            },
        ),
    ),
    hints=(
        "Two paths start at the hidden state, and they do not touch. The query's goes down, through a norm, and up. "
        "The other one is a single product whose columns you cut. Where does the width of the rope part come from?",
        "A head of w_uq is nope_dim + rope_dim columns wide, and num_heads of them stand side by side: that gives "
        "rope_dim, and with it the place to cut w_dkv. RMSNorm divides a row by the root of the mean of its squares "
        "(plus eps, under the root) and multiplies by q_norm. Without w_dq in the weights there is no latent and no "
        "norm.",
        "Fill the gaps:\n\n"
        "    width = ____  # of one head's query\n"
        "    source = ____ if 'w_dq' in weights else hidden\n"
        "    q = (source @ weights['w_uq']).reshape(len(hidden), num_heads, ____)\n"
        "    entry = hidden @ ____\n"
        "    return q[..., :nope_dim], ____, ____, ____",
    ),
    mistakes=(
        Mistake(
            "query norm forgotten",
            "the query latent goes up as it came down. RMSNorm stands between w_dq and w_uq",
            norm_forgotten,
        ),
        Mistake(
            "q_norm forgotten",
            "the query latent is normalised, but not multiplied by the weight q_norm",
            norm_weight_forgotten,
        ),
        Mistake("eps forgotten", "eps is missing: it is added to the mean of the squares", eps_forgotten),
        Mistake(
            "eps outside the root",
            "eps is added to the root. It belongs under it, beside the mean of the squares",
            eps_outside_the_root,
        ),
        Mistake(
            "sum in place of mean",
            "the squares are added up. RMSNorm takes their mean over the features",
            sum_in_place_of_mean,
        ),
        Mistake(
            "mean over the tokens",
            "the squares were averaged over the tokens. Each token's latent has a mean of its own, over its features",
            mean_over_the_tokens,
        ),
        Mistake(
            "mean over everything",
            "the squares were averaged over all tokens and features. Each token's latent has a mean of its own, over "
            "its features",
            mean_over_everything,
        ),
        Mistake(
            "root forgotten",
            "the query latent is divided by the mean of its squares. RMSNorm divides by the root of that",
            root_forgotten,
        ),
        Mistake(
            "norm before w_dq",
            "the hidden state was normalised. The norm stands after w_dq, and takes the mean over the query latent",
            norm_before_the_way_down,
        ),
        Mistake(
            "LayerNorm",
            "the mean was subtracted first, as LayerNorm does. RMSNorm only divides",
            layer_norm,
        ),
        Mistake(
            "latent normalised too",
            "the latent went through a norm. It is asked for raw: only the query latent is normalised here",
            latent_normalised_too,
        ),
        Mistake(
            "RMSNorm over the rope part",
            "the whole cache entry went through a norm, its rope part as well. Here neither does, and the rope part "
            "never will",
            whole_entry_normalised,
        ),
        Mistake(
            "rope before nope",
            "each head's columns are cut as [rope | nope]. They stand as [nope | rope]",
            rope_before_nope,
        ),
        Mistake(
            "all nope columns first",
            "the nope columns of all heads are taken from the left. Each head brings its rope columns right after its "
            "own nope columns",
            all_nopes_first,
        ),
        Mistake(
            "heads interleaved",
            "the head is taken to change from column to column. All columns of one head stand together",
            heads_interleaved,
        ),
        Mistake(
            "k_rope before the latent",
            "w_dkv's columns are cut as [k_rope | latent]. They stand as [latent | k_rope]",
            k_rope_before_latent,
        ),
        Mistake(
            "norm without a query latent",
            "without w_dq the queries come straight from the hidden state: no norm stands between",
            direct_queries_normalised,
        ),
        Mistake(
            "a slice by −0",
            "a part was cut by -rope_dim. Where rope_dim is 0 that is no cut from the right: [-0:] takes everything, "
            "and [:-0] nothing. Cut by nope_dim and latent_dim, counted from the left",
            cache_entry_cut_from_the_right,
            also=CUTS_FROM_THE_RIGHT,
        ),
    ),
    mutants=(
        Mutant(norm_forgotten, "query norm forgotten"),
        Mutant(norm_weight_forgotten, "q_norm forgotten"),
        Mutant(eps_forgotten, "eps forgotten"),
        Mutant(eps_outside_the_root, "eps outside the root"),
        Mutant(sum_in_place_of_mean, "sum in place of mean"),
        Mutant(mean_over_the_tokens, "mean over the tokens"),
        Mutant(mean_over_everything, "mean over everything"),
        Mutant(root_forgotten, "root forgotten"),
        Mutant(norm_before_the_way_down, "norm before w_dq"),
        Mutant(layer_norm, "LayerNorm"),
        Mutant(latent_normalised_too, "latent normalised too"),
        Mutant(whole_entry_normalised, "RMSNorm over the rope part"),
        Mutant(rope_before_nope, "rope before nope"),
        Mutant(all_nopes_first, "all nope columns first"),
        Mutant(heads_interleaved, "heads interleaved"),
        Mutant(k_rope_before_latent, "k_rope before the latent"),
        Mutant(direct_queries_normalised, "norm without a query latent"),
        Mutant(cache_entry_cut_from_the_right, "a slice by −0"),
        Mutant(all_parts_cut_from_the_right, "a slice by −0"),
        Mutant(always_a_query_latent, "KeyError", verdict="error"),
        Mutant(width_guessed_in_the_reshape, "ValueError", verdict="error"),
    ),
)
