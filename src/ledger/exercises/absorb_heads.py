"""Chapter 2: fold each head's own matrix into that head's query."""

import numpy as np

from ledger.account.attention import absorb_heads_macs
from ledger.exercises.base import Budget, Case, Exercise, Mistake, Mutant
from ledger.exercises.making import TOY_HEAD_1, TOY_Q_NOPE, TOY_W_K, cancel, normal, whole
from ledger.reference import mla


def make(rng, dtype, new_tokens, num_heads, nope_dim, latent_dim):
    return {
        "q_nope": normal(rng, dtype, new_tokens, num_heads, nope_dim),
        "w_kc": normal(rng, dtype, num_heads, nope_dim, latent_dim),
    }


def make_whole(rng, dtype, new_tokens, num_heads, nope_dim, latent_dim):
    return {
        "q_nope": whole(rng, dtype, new_tokens, num_heads, nope_dim),
        "w_kc": whole(rng, dtype, num_heads, nope_dim, latent_dim),
    }


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["q_nope"], inputs["w_kc"], axis=1)
    return inputs


def make_toy(rng, dtype, **dims):
    """Head 0 is the toy of one head; head 1 has a query and a matrix of its own."""
    q_nope = np.array([[*TOY_Q_NOPE, (1, 1)]], dtype)
    w_kc = np.array([np.transpose(TOY_W_K), TOY_HEAD_1], dtype)
    return {"q_nope": q_nope, "w_kc": w_kc}


def most_macs(new_tokens, num_heads, nope_dim, latent_dim):
    """Every head's own product, and one elementwise step over the result."""
    sizes = new_tokens, num_heads, nope_dim, latent_dim
    return absorb_heads_macs(*sizes) + new_tokens * num_heads * latent_dim


def largest(new_tokens, num_heads, nope_dim, latent_dim):
    """A copy of either input, or the result."""
    return num_heads * max(nope_dim * latent_dim, new_tokens * latent_dim, new_tokens * nope_dim)


def peak_values(new_tokens, num_heads, nope_dim, latent_dim):
    """The queries in another order of axes, the result and a copy of it, and a copy of w_kc."""
    return new_tokens * num_heads * (nope_dim + 2 * latent_dim) + num_heads * nope_dim * latent_dim


def heads_flattened(q_nope, w_kc):
    new_tokens, num_heads, nope_dim = q_nope.shape
    flat = q_nope.reshape(new_tokens, num_heads * nope_dim)
    return flat @ w_kc.reshape(num_heads * nope_dim, w_kc.shape[2])


def heads_flattened_and_handed_to_every_head(q_nope, w_kc):
    new_tokens, num_heads, nope_dim = q_nope.shape
    summed = q_nope.reshape(new_tokens, num_heads * nope_dim) @ w_kc.reshape(num_heads * nope_dim, w_kc.shape[2])
    return np.repeat(summed[:, None], num_heads, axis=1)


def first_head_for_all(q_nope, w_kc):
    return q_nope @ w_kc[0]


def queries_reshaped(q_nope, w_kc):
    new_tokens, num_heads, nope_dim = q_nope.shape
    by_head = q_nope.reshape(num_heads, new_tokens, nope_dim) @ w_kc
    return by_head.reshape(new_tokens, num_heads, w_kc.shape[2])


def token_picks_the_matrix(q_nope, w_kc):
    return q_nope @ w_kc


def result_reshaped(q_nope, w_kc):
    by_head = q_nope.swapaxes(0, 1) @ w_kc
    return by_head.reshape(len(q_nope), len(w_kc), -1)


def queries_reshaped_result_swapped(q_nope, w_kc):
    num_heads, nope_dim, _ = w_kc.shape
    return (q_nope.reshape(num_heads, -1, nope_dim) @ w_kc).swapaxes(0, 1)


def matrices_added_up(q_nope, w_kc):
    return np.einsum("shn,gnc->shc", q_nope, w_kc)


def matrix_reshaped(q_nope, w_kc):
    num_heads, nope_dim, latent_dim = w_kc.shape
    transposed = w_kc.reshape(num_heads, latent_dim, nope_dim).swapaxes(1, 2)
    return (q_nope.swapaxes(0, 1) @ transposed).swapaxes(0, 1)


def scaled_queries(q_nope, w_kc):
    return np.einsum("shn,hnc->shc", q_nope, w_kc) / np.sqrt(q_nope.shape[2])


def heads_first(q_nope, w_kc):
    return q_nope.swapaxes(0, 1) @ w_kc


def loop_over_heads(q_nope, w_kc):
    absorbed = [q_nope[:, head] @ w_kc[head] for head in range(len(w_kc))]
    return np.stack(absorbed, axis=1)


def block_diagonal(q_nope, w_kc):
    new_tokens, num_heads, nope_dim = q_nope.shape
    latent_dim = w_kc.shape[2]
    blocks = np.zeros((num_heads, nope_dim, num_heads, latent_dim), w_kc.dtype)
    blocks[np.arange(num_heads), :, np.arange(num_heads)] = w_kc
    wide = blocks.reshape(num_heads * nope_dim, num_heads * latent_dim)
    flat = q_nope.reshape(new_tokens, num_heads * nope_dim)
    return (flat @ wide).reshape(new_tokens, num_heads, latent_dim)


EXERCISE = Exercise(
    id="absorb_heads",
    chapter=2,
    order=2,
    title="a matrix of its own for every head",
    checks="every head's query times that head's own matrix",
    points=3,
    difficulty=3,
    minutes=12,
    make=make,
    oracle=mla.absorb_heads,
    least_macs=absorb_heads_macs,
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "num_heads": 3, "nope_dim": 3, "latent_dim": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand, two heads",
            {"new_tokens": 1, "num_heads": 2, "nope_dim": 2, "latent_dim": 3},
            make=make_toy,
        ),
        Case("odd sizes", {"new_tokens": 5, "num_heads": 3, "nope_dim": 7, "latent_dim": 9}),
        Case("one new token, one head", {"new_tokens": 1, "num_heads": 1, "nope_dim": 4, "latent_dim": 6}),
        Case(
            "no new token, float32", {"new_tokens": 0, "num_heads": 3, "nope_dim": 4, "latent_dim": 6}, dtype="float32"
        ),
        Case(
            "huge parts that cancel",
            {"new_tokens": 2, "num_heads": 3, "nope_dim": 4, "latent_dim": 10},
            make=make_cancelling,
        ),
        Case("float32", {"new_tokens": 5, "num_heads": 2, "nope_dim": 6, "latent_dim": 12}, dtype="float32"),
        Case("strided inputs", {"new_tokens": 3, "num_heads": 4, "nope_dim": 6, "latent_dim": 10}, layout="strided"),
        Case("DeepSeek-V3 widths, three heads", {"new_tokens": 5, "num_heads": 3, "nope_dim": 128, "latent_dim": 512}),
    ),
    hints=(
        "For one head this is absorb_query again, with a matrix whose nope_dim axis already stands first. Which axis "
        "goes through the whole computation untouched, on both inputs and in the result?",
        "`@` takes leading axes as a batch and multiplies the last two. w_kc has its head axis in front; q_nope has it "
        "in the middle. Move it to the front, multiply once, and move it back. (einsum can name the axes instead: the "
        "head is a letter that all three terms have.)",
        "Fill the gaps:\n\n"
        "    q_by_head = ____  # (num_heads, new_tokens, nope_dim), a transpose and not a reshape\n"
        "    absorbed = q_by_head @ ____  # (num_heads, new_tokens, latent_dim)\n"
        "    return ____  # (new_tokens, num_heads, latent_dim)",
    ),
    budget=Budget(
        text="At most two products in all, whatever num_heads is, and no more multiply-adds than one matrix of "
        "nope_dim × latent_dim for each head needs.",
        case="DeepSeek-V3 widths, three heads",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the values are right, but one matrix of nope_dim × latent_dim for each head is enough. A wide matrix of "
        "all heads multiplies mostly zeros",
        products=2,
        says_products="the values are right, but one product (or two) must serve all heads and tokens. A Python loop "
        "makes a product at every turn",
    ),
    mistakes=(
        Mistake(
            "heads flattened before projecting",
            "one vector of num_heads · nope_dim numbers was projected, which adds the heads together. Every head keeps "
            "its own query, and meets its own matrix",
            heads_flattened,
        ),
        Mistake(
            "heads flattened, then handed to all",
            "every head got the sum over all heads. The head axis must never be summed over",
            heads_flattened_and_handed_to_every_head,
        ),
        Mistake(
            "one matrix for all heads",
            "every head met the matrix of head 0. Head h meets w_kc[h]",
            first_head_for_all,
        ),
        Mistake(
            "tokens taken for heads",
            "the token's place picks the matrix: q_nope was reshaped, and the result back, where the token and head "
            "axes must be swapped",
            queries_reshaped,
        ),
        Mistake(
            "queries taken as they lie",
            "the token's place picks the matrix: the batch axis of q_nope is its tokens. Swap its token and head axes "
            "first",
            token_picks_the_matrix,
        ),
        Mistake(
            "queries reshaped",
            "q_nope was reshaped to put the heads first. A reshape moves no axis, it cuts the numbers anew: swap the "
            "axes",
            queries_reshaped_result_swapped,
        ),
        Mistake(
            "result reshaped",
            "the result has its heads first and was reshaped. A reshape moves no axis, it cuts the numbers anew: swap "
            "the axes",
            result_reshaped,
        ),
        Mistake(
            "matrices added up",
            "every head met the sum of all matrices: the head is one letter in both inputs, and in the result",
            matrices_added_up,
        ),
        Mistake(
            "transposed weight",
            "w_kc[h] is (nope_dim, latent_dim), and here it is read as (latent_dim, nope_dim). The sum runs over "
            "nope_dim",
            matrix_reshaped,
        ),
        Mistake(
            "scaled queries",
            "the result is divided by √nope_dim. The softmax scale comes later",
            scaled_queries,
        ),
        Mistake(
            "heads first",
            "the axes are (num_heads, new_tokens, latent_dim). Move the head axis back behind the tokens",
            heads_first,
        ),
    ),
    mutants=(
        Mutant(heads_flattened, "heads flattened before projecting"),
        Mutant(heads_flattened_and_handed_to_every_head, "heads flattened, then handed to all"),
        Mutant(first_head_for_all, "one matrix for all heads"),
        Mutant(queries_reshaped, "tokens taken for heads"),
        Mutant(token_picks_the_matrix, "queries taken as they lie"),
        Mutant(queries_reshaped_result_swapped, "queries reshaped"),
        Mutant(result_reshaped, "result reshaped"),
        Mutant(matrices_added_up, "matrices added up"),
        Mutant(matrix_reshaped, "transposed weight"),
        Mutant(scaled_queries, "scaled queries"),
        Mutant(heads_first, "heads first"),
        Mutant(loop_over_heads, "too many products"),
        Mutant(block_diagonal, "too large an array"),
    ),
)
