"""Counting NumPy code: the counts against loops over the index space, the values against plain NumPy."""

import functools
import itertools
import json
import pickle
import threading
import tracemalloc
from collections import namedtuple

import numpy as np
import pytest
from numpy import array as imported_array
from numpy.lib.stride_tricks import as_strided

from ledger.count import CountedArray, Counts, count, counting, find_array, peak_bytes, unwrap, was_counted, wrap

RNG = np.random.default_rng(20240607)
S, T, H, N, C = 5, 7, 3, 11, 13  # new tokens, cached tokens, heads, nope, latent
Q = RNG.standard_normal((S, N))
W = RNG.standard_normal((N, C))
LATENTS = RNG.standard_normal((T, C))
A = RNG.standard_normal((4, 6))
B = RNG.standard_normal((6, 5))


# The paths of the course, by hand.


def absorb(q_nope, w_k, latents):
    return q_nope @ w_k @ latents.T


def materialize(q_nope, w_k, latents):
    return q_nope @ (latents @ w_k.T).T


def test_absorb_counts_projection_and_scores():
    result, counts = count(absorb, Q, W, LATENTS)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, absorb(Q, W, LATENTS))
    assert (counts.macs, counts.products, counts.elementwise) == (S * C * N + S * T * C, 2, 0)
    assert counts.arrays == (((S, C), "matmul"), ((S, T), "matmul"))
    assert (counts.largest, counts.largest_shape) == (S * C, (S, C))
    values_read = S * N + N * C + S * C + T * C
    assert (counts.bytes_read, counts.bytes_written) == (8 * values_read, 8 * (S * C + S * T))
    assert counts.left == counts.unpriced == []


def test_materialize_builds_the_keys():
    counts = count(materialize, Q, W, LATENTS)[1]
    assert counts.macs == T * C * N + S * T * N
    assert find_array(counts, (T, N)) == ((T, N), "matmul")
    assert find_array(count(absorb, Q, W, LATENTS)[1], (T, N)) is None


@pytest.mark.parametrize(
    ("answer", "products"),
    [
        (lambda q, w: np.einsum("shn,hnc->shc", q, w), 1),
        (lambda q, w: np.matmul(q.transpose(1, 0, 2), w).transpose(1, 0, 2), 1),
        (lambda q, w: np.stack([q[:, h] @ w[h] for h in range(H)], axis=1), H),
        (lambda q, w: (q[:, :, :, None] * w).sum(2), 0),
    ],
)
def test_absorb_heads_by_four_routes(answer, products):
    q, w = RNG.standard_normal((S, H, N)), RNG.standard_normal((H, N, C))
    result, counts = count(answer, q, w)
    np.testing.assert_allclose(result, np.einsum("shn,hnc->shc", q, w))
    assert (counts.macs, counts.products) == (S * H * N * C, products)


def test_a_broadcast_product_shows_its_intermediate():
    result, counts = count(lambda a, b: (a[:, None, :] * b[None]).sum(-1), A, B.T.copy())
    np.testing.assert_allclose(result, A @ B)
    assert (counts.macs, counts.products, counts.elementwise) == (4 * 5 * 6, 0, 4 * 5 * 6)
    assert (counts.largest_shape, counts.largest) == ((4, 5, 6), 120)


# Einsum, against a loop over its index space.


def index_space(subscripts, shapes):
    """Points visited by a nest of loops, one for each label."""
    sizes = {}
    for term, shape in zip(subscripts.split("->")[0].split(","), shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return sum(1 for _ in itertools.product(*(range(size) for size in sizes.values())))


def random_einsum(rng, operands):
    sizes = dict(zip("abcde", rng.permutation([1, 2, 3, 4, 5]).tolist(), strict=True))
    terms = ["".join(rng.permutation(list("abcde"))[: rng.integers(1, 4)]) for _ in range(operands)]
    labels = sorted(set("".join(terms)))
    output = "".join(label for label in labels if rng.random() < 0.6)
    arrays = [rng.standard_normal([sizes[label] for label in term]) for term in terms]
    return f"{','.join(terms)}->{output}", arrays


@pytest.mark.parametrize("operands", [2, 3])
@pytest.mark.parametrize("seed", range(40))
def test_random_einsum_counts_its_whole_index_space(seed, operands):
    subscripts, arrays = random_einsum(np.random.default_rng([seed, operands]), operands)
    result, counts = count(np.einsum, subscripts, *arrays)
    np.testing.assert_array_equal(result, np.einsum(subscripts, *arrays))
    assert counts.macs == index_space(subscripts, [a.shape for a in arrays]) * (operands - 1)
    inputs, output = subscripts.split("->")
    assert counts.products == int(not set(inputs) - {","} <= set(output))
    assert counts.elementwise == 0


@pytest.mark.parametrize("seed", range(20))
def test_optimised_einsum_counts_each_step_of_its_path(seed):
    rng = np.random.default_rng([seed, 99])
    subscripts, arrays = random_einsum(rng, int(rng.integers(3, 5)))
    result, counts = count(np.einsum, subscripts, *arrays, optimize=True)
    np.testing.assert_array_equal(result, np.einsum(subscripts, *arrays, optimize=True))
    inputs, output = subscripts.split("->")
    terms, macs = inputs.split(","), 0
    sizes = {
        label: size for term, a in zip(terms, arrays, strict=True) for label, size in zip(term, a.shape, strict=True)
    }
    for step in np.einsum_path(subscripts, *arrays, optimize=True)[0][1:]:
        picked = [terms[i] for i in step]
        terms = [term for i, term in enumerate(terms) if i not in step]
        labels = set("".join(picked))
        macs += (len(picked) - 1) * int(np.prod([sizes[label] for label in labels]))
        terms.append("".join(labels & set(output + "".join(terms))))
    assert counts.macs == macs


def test_the_order_of_a_chain_decides_its_count():
    chain = ("ij,jk,kl->il", np.ones((2, 30)), np.ones((30, 3)), np.ones((3, 40)))
    assert count(np.einsum, *chain)[1].macs == 2 * (2 * 30 * 3 * 40)
    counts = count(np.einsum, *chain, optimize="optimal")[1]
    assert (counts.macs, counts.products) == (2 * 30 * 3 + 2 * 3 * 40, 2)
    assert ((2, 3), "einsum") in counts.arrays
    other_way = ["einsum_path", (1, 2), (0, 1)]
    assert count(np.einsum, *chain, optimize=other_way)[1].macs == 30 * 3 * 40 + 2 * 30 * 40
    assert count(np.linalg.multi_dot, chain[1:])[1].macs == 2 * 30 * 3 + 2 * 3 * 40


@pytest.mark.parametrize(
    ("call", "macs", "products"),
    [
        (lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]), 4 * 6 * 5, 1),
        (lambda a, b: np.einsum("ij,jk", a, b), 4 * 6 * 5, 1),
        (lambda a, b: np.einsum("...j,jk->...k", a.reshape(2, 2, 6), b), 4 * 6 * 5, 1),
        (lambda a, b: np.einsum("i...,i...->...", a, a), 4 * 6, 1),
        (lambda a, b: np.einsum("...j,jk", a, b), 4 * 6 * 5, 1),
        (lambda a, b: np.einsum("ij,jk->ik", a[:, :1], b), 4 * 6 * 5, 1),
        (lambda a, b: np.einsum("i,j->ij", a[0], b[0]), 6 * 5, 0),
        (lambda a, b: np.einsum("ij,ij->ij", a, a), 4 * 6, 0),
        (lambda a, b: np.einsum("ij->ji", a), 0, 0),
    ],
)
def test_einsum_in_its_other_forms(call, macs, products):
    result, counts = count(call, A, B)
    np.testing.assert_array_equal(result, call(A, B))
    assert (counts.macs, counts.products) == (macs, products)


def test_einsum_of_one_operand_is_a_view_or_a_sum():
    view = count(np.einsum, "ij->ji", A)[1]
    assert (view.arrays, view.bytes_read, view.elementwise) == ((), 0, 0)
    total = count(np.einsum, "ij->i", A)[1]
    assert (total.macs, total.products, total.elementwise) == (0, 0, 24)


# Every other product, by hand.


@pytest.mark.parametrize(
    ("call", "macs", "products"),
    [
        (lambda a, b: a @ b, 120, 1),
        (lambda a, b: a.dot(b), 120, 1),
        (lambda a, b: np.dot(a, b), 120, 1),
        (lambda a, b: np.dot(b=b, a=a), 120, 1),
        (lambda a, b: np.dot(a, b, np.empty((4, 5))), 120, 1),
        (lambda a, b: np.dot(2.0, b), 30, 0),
        (lambda a, b: a.dot(b[:, 0]), 24, 1),
        (lambda a, b: a[0] @ b, 30, 1),
        (lambda a, b: a[0] @ a[1], 6, 1),
        (lambda a, b: np.matmul(a[None], np.stack([b, b, b])), 360, 1),
        (lambda a, b: np.matmul(b, a, axes=[(1, 0), (1, 0), (0, 1)]), 120, 1),
        (lambda a, b: np.vecdot(a, a), 24, 1),
        (lambda a, b: np.vecdot(a, a, axis=0), 24, 1),
        (lambda a, b: np.inner(a, b.T), 120, 1),
        (lambda a, b: np.inner(a, a[0]), 24, 1),
        (lambda a, b: np.vdot(a, a), 24, 1),
        (lambda a, b: np.outer(a, b), 720, 0),
        (lambda a, b: np.multiply.outer(a, b), 720, 0),
        (lambda a, b: np.tensordot(a, b, 1), 120, 1),
        (lambda a, b: np.tensordot(a, b, axes=([1], [0])), 120, 1),
        (lambda a, b: np.tensordot(a, b, axes=(1, 0)), 120, 1),
        (lambda a, b: np.tensordot(a, a, ((0, 1), (0, 1))), 24, 1),
        (lambda a, b: np.tensordot(a, b, 0), 720, 0),
        (lambda a, b: np.kron(a, b), 720, 0),
        (lambda a, b: np.linalg.multi_dot([a, b]), 120, 1),
        (lambda a, b: np.linalg.multi_dot([a, b, b.T]), 240, 2),
        (lambda a, b: np.linalg.multi_dot([a, b, b.T, a.T]), 4 * 6 * 5 + 5 * 6 * 4 + 4 * 5 * 4, 3),
        (lambda a, b: np.linalg.matrix_power(b @ b.T, 2), 6 * 5 * 6 + 6 * 6 * 6, 2),
        (lambda a, b: np.linalg.matmul(a, b), 120, 1),
        (lambda a, b: np.linalg.vecdot(a, a), 24, 1),
        (lambda a, b: np.linalg.tensordot(a, b, axes=1), 120, 1),
        (lambda a, b: np.linalg.norm(a, axis=-1), 24, 0),
        (lambda a, b: np.convolve(a[0], b[0]), 30, 1),
        (lambda a, b: np.cov(a), 4 * 4 * 6 + 4 * 4, None),
        (lambda a, b: np.average(a, weights=a), 24, None),
        (lambda a, b: a * a, 24, 0),
        (lambda a, b: 3 * a, 24, 0),
        (lambda a, b: a[:, None] * a, 96, 0),
        (lambda a, b: np.square(a), 24, 0),
        (lambda a, b: a.prod(axis=0), 24, 0),
        (lambda a, b: np.cumprod(a), 24, 0),
        (lambda a, b: np.multiply.accumulate(a, axis=1), 24, 0),
        (lambda a, b: np.multiply.reduceat(a, [0, 2], axis=1), 24, 0),
        (lambda a, b: np.apply_along_axis(lambda row: row @ b, 1, a), 120, 4),
        (lambda a, b: np.piecewise(a, [a < 9], [lambda part: part * part]), 24, 0),
        (lambda a, b: np.empty((4, 0)) @ np.empty((0, 5)), 0, 1),
    ],
)
def test_products(call, macs, products):
    result, counts = count(call, A, B)
    np.testing.assert_array_equal(result, call(A, B))
    assert counts.macs == macs
    if products is not None:
        assert counts.products == products
    assert counts.unpriced == []


def test_matvec_and_vecmat():
    assert count(np.matvec, A, B[:, 0])[1].macs == 24
    assert count(np.vecmat, A[:, 0], A)[1].macs == 24


@pytest.mark.parametrize(
    ("call", "elements"),
    [
        (lambda a: a + 1, 24),
        (lambda a: np.exp(a), 24),
        (lambda a: a.sum(), 24),
        (lambda a: np.add.reduce(a, axis=1), 24),
        (lambda a: a.max(axis=1, keepdims=True), 24),
        (lambda a: a - a.max(), 48),
        (lambda a: np.divmod(a, 2), 48),
        (lambda a: np.clip(a, -1, 1), 24),
        (lambda a: np.add.at(np.zeros(4), [0, 0, 2], a[0, :3]), 3),
        (lambda a: np.argsort(a), 24),
        (lambda a: a > 0, 24),
    ],
)
def test_other_arithmetic_is_elementwise(call, elements):
    counts = count(call, A)[1]
    assert (counts.macs, counts.elementwise) == (0, elements)


# Data movement: bytes, and which arrays are new.


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.T,
        lambda a: a[1:3, ::2],
        lambda a: a[..., None],
        lambda a: a.reshape(2, 12),
        lambda a: np.transpose(a),
        lambda a: np.split(a, 2),
        lambda a: np.broadcast_to(a, (3, 4, 6)),
        lambda a: np.moveaxis(a, 0, 1),
        lambda a: np.asarray(a),
        lambda a: np.ascontiguousarray(a),
        lambda a: a.view(),
        lambda a: a.ravel(),
        lambda a: a.astype(float, copy=False),
        lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=1),
        lambda a: as_strided(a, (2, 2), (8, 8)),
        lambda a: np.diagonal(a),
        lambda a: a.base,
    ],
)
def test_views_cost_nothing(call):
    counts = count(call, A)[1]
    assert (counts.arrays, counts.bytes_read, counts.bytes_written, counts.largest) == ((), 0, 0, 0)
    assert counts.unpriced == []


@pytest.mark.parametrize(
    ("call", "read", "written", "shape"),
    [
        (lambda a: a.copy(), 24, 24, (4, 6)),
        (lambda a: np.array(a), 24, 24, (4, 6)),
        (lambda a: np.asfortranarray(a), 24, 24, (4, 6)),
        (lambda a: a.T.reshape(-1), 24, 24, (24,)),
        (lambda a: np.concatenate([a, a]), 48, 48, (8, 6)),
        (lambda a: np.stack([a, a]), 48, 48, (2, 4, 6)),
        (lambda a: np.pad(a, 1), 24, 48, (6, 8)),
        (lambda a: np.repeat(a, 3, axis=0), 24, 72, (12, 6)),
        (lambda a: np.tile(a, (2, 1)), 24, 48, (8, 6)),
        (lambda a: a[[0, 2]], 12, 12, (2, 6)),
        (lambda a: a[np.array([0, 2])], 14, 12, (2, 6)),
        (lambda a: a.take([1], axis=0), 6, 6, (1, 6)),
        (lambda a: np.where(True, a, 0.0), 24, 24, (4, 6)),
        (lambda a: np.broadcast_to(a, (3, 4, 6)).copy(), 24, 72, (3, 4, 6)),
    ],
)
def test_copies_move_bytes_and_nothing_else(call, read, written, shape):
    counts = count(call, A)[1]
    assert (counts.macs, counts.elementwise, counts.products) == (0, 0, 0)
    assert counts.largest_shape == shape
    index = 16 if "array" in [op for _, op in counts.arrays] and shape == (2, 6) else 0
    assert (counts.bytes_read, counts.bytes_written) == (8 * read, 8 * written + index)


def test_in_place_and_out_write_without_a_new_array():
    def answer(a, b):
        total = np.zeros((4, 5))
        total += 1
        np.matmul(a, b, out=total)
        np.multiply(total, 2, out=total)
        np.add.reduce(total, axis=0, out=total[0])
        total[1] = total[0]
        return total

    result, counts = count(answer, A, B)
    np.testing.assert_array_equal(result, answer(A, B))
    assert counts.arrays == (((4, 5), "zeros"),)
    assert (counts.macs, counts.products, counts.elementwise) == (120 + 20, 1, 20 + 20)
    assert counts.bytes_written == 8 * (20 + 20 + 20 + 20 + 5 + 5)
    assert counts.bytes_read == 8 * (20 + (24 + 30) + 20 + 20 + 5)


def test_in_place_on_an_argument_reaches_the_caller():
    mine = A.copy()

    def answer(a):
        a *= 2
        a.sort(axis=0)
        a.flat = a + 0
        return a

    result, counts = count(answer, mine)
    assert result is mine
    np.testing.assert_array_equal(mine, np.sort(A * 2, axis=0))
    assert counts.macs == 24


def test_inputs_are_no_intermediates_and_read_only_ones_stay_so():
    fixed = A.copy()
    fixed.flags.writeable = False
    assert count(lambda a: a, fixed)[0] is fixed
    with pytest.raises(ValueError, match="read-only"):
        count(lambda a: a.__setitem__(0, 1.0), fixed)


def test_arrays_the_code_makes_itself_are_counted():
    def answer(n):
        left = np.ones((n, 3))
        right = np.full((3, n), 2.0)
        return left @ right

    assert count(answer, 4)[1].macs == 4 * 3 * 4


# Values are those of a plain run.

ANSWERS = {
    "softmax": lambda a, b: np.exp(a - a.max(-1, keepdims=True)) / np.exp(a).sum(-1, keepdims=True),
    "statistics": lambda a, b: [a.mean(), a.std(axis=0), np.var(a), np.median(a, axis=1), np.percentile(a, 30)],
    "scalars": lambda a, b: (a.sum(), a[0] @ b[:, 0], a.max(), a[1, 2], np.vdot(a, a), len(a), a.argmax()),
    "sorting": lambda a, b: [np.sort(a), np.argsort(a, axis=0), np.unique(a.round()), np.argpartition(a, 2)],
    "fortran": lambda a, b: [np.einsum("ij->ji", a) + 0, a.T.copy(order="K"), np.asfortranarray(b), a.T * 2],
    "integers": lambda a, b: np.arange(6)[a[0] > 0].astype(np.int32) * 2,
    "half": lambda a, b: (a.astype(np.float16) @ b.astype(np.float16)).dtype.name,
    "set": lambda a, b: [a.copy().__setitem__((slice(None), 0), 1), np.nonzero(a > 0), np.meshgrid(a[0], b[0])],
    "linalg": lambda a, b: [np.linalg.svd(a), np.linalg.norm(a, 1), np.linalg.inv(a @ a.T), np.fft.rfft(a)],
    "iteration": lambda a, b: [row @ b for row in a],
    "unknown": lambda a, b: np.block([[a, a], [a, a]]),
    "zero size": lambda a, b: a[:0] @ b,
    "text": lambda a, b: (repr(a), str(b), f"{a[0, 0]:.3f}", np.array2string(a)),
    "copies": lambda a, b: [__import__("copy").deepcopy(a), pickle.loads(pickle.dumps(a))],
    "flat": lambda a, b: [x for x in a.flat],
    "isinstance": lambda a, b: isinstance(a, np.ndarray) and isinstance(np.zeros(2), np.ndarray),
    "dict": lambda a, b: {"x": (a + 1, [b * 2])},
}


def assert_same(counted, plain):
    assert type(counted) is type(plain)
    if isinstance(plain, np.ndarray):
        assert (counted.dtype, counted.shape, counted.strides) == (plain.dtype, plain.shape, plain.strides)
        np.testing.assert_array_equal(counted, plain)
    elif isinstance(plain, list | tuple):
        assert len(counted) == len(plain)
        for left, right in zip(counted, plain, strict=True):
            assert_same(left, right)
    elif isinstance(plain, dict):
        assert_same(list(counted.items()), list(plain.items()))
    else:
        assert counted == plain


@pytest.mark.parametrize("name", ANSWERS)
def test_values_types_and_layout_are_those_of_a_plain_run(name):
    assert_same(count(ANSWERS[name], A, B)[0], ANSWERS[name](A, B))


def test_every_function_that_numpy_lets_us_override_is_known_or_reported():
    """A function that is priced nowhere is named in ``unpriced`` instead of passing as free."""
    for call in (np.linalg.inv, np.linalg.eigvalsh, np.fft.fft, np.linalg.det):
        operand = A @ A.T
        counts = count(call, operand)[1]
        assert counts.unpriced == [call.__name__]
        assert counts.bytes_read >= operand.nbytes
        assert not was_counted(counts, 0)


def test_arguments_and_results_nest():
    Pair = namedtuple("Pair", "left right")

    def answer(pair, table, *, extra):
        assert isinstance(pair.left, CountedArray)
        return {"pair": Pair(pair.left @ table["b"], (extra[0] + 1,)), "same": pair.left}

    result, counts = count(answer, Pair(A, 3), {"b": B}, extra=[A])
    assert counts.macs == 120
    assert type(result["pair"]) is Pair
    assert type(result["pair"].left) is np.ndarray
    assert type(result["pair"].right[0]) is np.ndarray
    assert result["same"] is A


# Ways out: counted all the same, or told as not counted.


def by_python(a, b):
    return np.array([[sum(x * y for x, y in zip(row, column, strict=True)) for column in b] for row in a])


def scalar_loop(a, b):
    out = np.zeros((len(a), b.shape[1]))
    for i in range(len(a)):
        for j in range(b.shape[1]):
            for k in range(len(b)):
                out[i, j] += a[i, k] * b[k, j]
    return out


STILL_COUNTED = {
    "asarray": lambda a, b: np.asarray(a) @ np.asarray(b),
    "array": lambda a, b: np.array(a) @ np.array(b),
    "array of rows": lambda a, b: np.array(list(a)) @ b,
    "ascontiguousarray": lambda a, b: np.ascontiguousarray(a) @ np.ascontiguousarray(b),
    "imported": lambda a, b: imported_array(a) @ imported_array(b),
    "require": lambda a, b: np.require(a, requirements="C") @ np.require(b, requirements="C"),
    "copy": lambda a, b: np.copy(a) @ np.copy(b),
    "view": lambda a, b: a.view(np.ndarray) @ b.view(np.ndarray),
    "base": lambda a, b: a[:].base @ b[:].base,
    "__array__": lambda a, b: a.__array__() @ b.__array__(),
    "tolist and back": lambda a, b: np.array(a.tolist()) @ np.array(b.tolist()),
    "frombuffer": lambda a, b: np.frombuffer(memoryview(a)).reshape(4, 6) @ np.frombuffer(b.data).reshape(6, 5),
    "dlpack": lambda a, b: np.from_dlpack(a) @ np.from_dlpack(b),
    "as_strided": lambda a, b: as_strided(a) @ as_strided(b),
    "out into a plain array": lambda a, b: np.add(a, 0, out=np.ndarray((4, 6))) @ np.add(b, 0, out=np.ndarray((6, 5))),
    "one side plain": lambda a, b: np.ndarray.view(a, np.ndarray) @ b,
    "fromiter": lambda a, b: np.fromiter(a.flat, float).reshape(4, 6) @ b,
    "threads": lambda a, b: in_a_thread(np.matmul, a, b),
    "vectorize": lambda a, b: np.vectorize(lambda x, y: x @ y, signature="(k),(k,n)->(n)")(a, b),
}
NOT_COUNTED = {
    "tolist": (lambda a, b: by_python(a.tolist(), b.T.tolist()), "tolist"),
    "iteration": (lambda a, b: by_python(a, b.T), "iteration over scalars"),
    "scalar indexing": (scalar_loop, "scalar indexing"),
    "item": (lambda a, b: by_python([[a.item(i, k) for k in range(6)] for i in range(4)], b.T.tolist()), "item"),
    "flat": (lambda a, b: by_python(np.split(np.array(a.flat), 4), b.T.tolist()), "flat"),
    "data": (lambda a, b: by_python(a.data.tolist(), b.T.tolist()), "memoryview"),
    "tobytes": (lambda a, b: plain_product(np.ndarray((4, 6), buffer=a.tobytes()), b), "tobytes"),
    "float": (
        lambda a, b: by_python([[float(a[i, k, ...]) for k in range(6)] for i in range(4)], b.T.tolist()),
        "float()",
    ),
    "memoryview": (lambda a, b: by_python(memoryview(a).tolist(), memoryview(b.T.copy()).tolist()), None),
    "unbound view": (lambda a, b: plain_product(np.ndarray.view(a, np.ndarray), b), None),
    "buffer": (lambda a, b: plain_product(np.ndarray((4, 6), buffer=a), b), None),
    "plain buffer": (lambda a, b: plain_product(in_a_plain_buffer(a), b), None),
    "matrix": (lambda a, b: np.asarray(a.view(np.matrix) @ np.ndarray.view(b, np.ndarray)), "matrix"),
    "frompyfunc": (lambda a, b: pairs_multiplied(a, b), "array of objects"),
    "nditer": (lambda a, b: by_python(np.split(np.array([float(x) for x in np.nditer(a)]), 4), b.T.tolist()), "nditer"),
    "pickle": (
        lambda a, b: plain_product(np.ndarray((4, 6), buffer=pickle.dumps(a)[-192 - 3 : -3]), b, False),
        "pickle",
    ),
}


def in_a_thread(fn, *args):
    box = []
    worker = threading.Thread(target=lambda: box.append(fn(*args)))
    worker.start()
    worker.join()
    return box[0]


def in_a_plain_buffer(a):
    buffer = np.ndarray(a.shape)
    buffer[...] = a
    return buffer


def plain_product(left, b, same=True):
    out = np.ndarray((4, 5))
    np.matmul(left, np.ndarray.view(b, np.ndarray), out=out)
    return out if same else A @ B


def pairs_multiplied(a, b):
    times = np.frompyfunc(lambda x, y: x * y, 2, 1)
    return times(a[:, :, None], b[None]).sum(1).astype(float)


@pytest.mark.parametrize("name", STILL_COUNTED)
def test_conversions_stay_counted(name):
    result, counts = count(STILL_COUNTED[name], A, B)
    np.testing.assert_allclose(result, A @ B)
    assert type(result) is np.ndarray
    assert counts.macs == 120
    assert was_counted(counts, 120)


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_what_leaves_is_reported_as_not_counted(name):
    answer, way = NOT_COUNTED[name]
    result, counts = count(answer, A, B)
    np.testing.assert_allclose(result, A @ B)
    assert not was_counted(counts, 120)
    assert way is None or way in counts.left


def test_indices_and_masks_may_leave():
    def answer(a, picks):
        rows = [a[i] for i in picks]
        return np.stack(rows) if bool((picks >= 0).all()) and int(picks[0]) >= 0 else None

    assert count(answer, A, np.array([2, 0]))[1].left == []


# The run itself.


def test_numpy_is_put_back_after_a_run_that_raises():
    before = {name: getattr(np, name) for name in dir(np)}

    def answer(a):
        assert np.asarray is not before["asarray"]
        imported_array(a)
        np.asarray = None
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        count(answer, A)
    assert {name: getattr(np, name) for name in dir(np)} == before
    assert imported_array is before["array"]
    assert type(np.zeros(2)) is np.ndarray


def test_a_counted_array_kept_from_a_run_computes_plain_afterwards():
    kept = []
    count(lambda a: kept.append(a), A)
    assert type(kept[0]) is CountedArray
    assert type(kept[0] + 1) is np.ndarray
    assert type(kept[0][0]) is np.ndarray
    assert unwrap({"x": [kept[0]]})["x"][0] is A


def test_a_run_inside_a_run_adds_to_it():
    def answer(a, b):
        return count(np.matmul, a, b)[0] + 0 * count(np.matmul, a, b)[0]

    counts = count(answer, A, B)[1]
    assert (counts.macs, counts.products) == (2 * 120 + 20, 2)


def test_counting_inline():
    with counting() as counts:
        scores = counts.wrap(A) @ B
        assert counts.macs == 120
    assert type(scores + 1) is np.ndarray
    assert counts.macs == 120


def test_partial_and_callable_objects():
    assert count(functools.partial(np.matmul, A), B)[1].macs == 120

    class Answer:
        def __call__(self, a, b):
            return a @ b

    assert count(Answer(), A, B)[1].macs == 120


def test_wrap_leaves_other_things_alone():
    assert wrap("text") == "text"
    assert wrap(np.float64(2)).__class__ is np.float64
    assert type(wrap(np.ma.array([1.0]))) is np.ma.MaskedArray
    assert np.shares_memory(wrap(A), A)


def test_counts_cross_a_pipe():
    counts = count(ANSWERS["linalg"], A, B)[1]
    assert Counts.from_dict(json.loads(json.dumps(counts.to_dict()))) == counts


@pytest.mark.parametrize(
    "change",
    [
        {"macs": -1},
        {"macs": True},
        {"macs": 1.5},
        {"largest_shape": 3},
        {"arrays": [[[2], 3]]},
        {"arrays": [[2]]},
        {"left": [b"x"]},
        {"left": ["x" * 1000]},
        {"unpriced": None},
        {"macs": 16**6000},
        {"largest_shape": [1] * 3000},
        {"arrays": [[[1] * 3000, "matmul"]]},
    ],
)
def test_forged_counts_are_refused(change):
    data = count(absorb, Q, W, LATENTS)[1].to_dict()
    with pytest.raises(ValueError, match="not the counts"):
        Counts.from_dict({**data, **change})
    with pytest.raises(ValueError, match="not the counts"):
        Counts.from_dict({key: value for key, value in data.items() if key not in change})
    with pytest.raises(ValueError, match="not the counts"):
        Counts.from_dict([])


def test_a_flood_of_shapes_keeps_the_largest():
    counts = Counts()
    for size in range(3000):
        counts.create((size,), "zeros", 0)
    arrays = counts.to_dict()["arrays"]
    assert len(arrays) == 1000
    assert arrays[0] == [[2999], "zeros"]


@pytest.mark.parametrize(
    ("shape", "sizes", "found"),
    [
        ((7, 11), (7, 11), True),
        ((11, 7), (7, 11), True),
        ((3, 7, 11), (7, 11), True),
        ((77,), (7, 11), True),
        ((3, 77), (7, 11), True),
        ((7, 33), (7, 3, 11), True),
        ((231,), (7, 3, 11), True),
        ((7, 1, 11), (7, 11), True),
        ((7, 11), (7, 1, 11), True),
        ((7, 33), (7, 11), False),
        ((7, 13), (7, 11), False),
        ((7,), (7, 7), False),
        ((7, 7), (7, 7), True),
        ((7, 2), (14,), False),
        ((), (7,), False),
        ((0, 7), (0, 7), True),
    ],
)
def test_find_array(shape, sizes, found):
    counts = Counts()
    counts.create((2, 2), "zeros", 32)
    counts.create(shape, "matmul", 0)
    assert find_array(counts, sizes) == ((shape, "matmul") if found else None)


def test_flattened_keys_are_found():
    def answer(q, w, latents):
        keys = np.empty(T * N)
        keys.reshape(T, N)[...] = latents @ w.T
        return q @ keys.reshape(T, N).T

    assert find_array(count(answer, Q, W, LATENTS)[1], (T, N)) is not None


# Memory.


def test_peak_bytes_sees_a_temporary():
    def answer(n):
        return float(np.ones(n).sum())

    result, peak = peak_bytes(answer, 100_000)
    assert result == 100_000.0
    assert 800_000 <= peak < 900_000
    assert not tracemalloc.is_tracing()


def test_peak_bytes_inside_another_keeps_both():
    def outer():
        np.ones(100_000)
        inner = peak_bytes(np.ones, 20_000)[1]
        assert tracemalloc.is_tracing()
        return inner

    inner, peak = peak_bytes(outer)
    assert 160_000 <= inner < 200_000
    assert 800_000 <= peak < 900_000
    inner, peak = peak_bytes(lambda: peak_bytes(np.ones, 100_000)[1])
    assert 800_000 <= inner <= peak < 900_000


def test_peak_bytes_leaves_tracing_on_and_stops_after_an_exception():
    tracemalloc.start()
    try:
        peak_bytes(np.ones, 10)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    with pytest.raises(ZeroDivisionError):
        peak_bytes(lambda: 1 / 0)
    assert not tracemalloc.is_tracing()
