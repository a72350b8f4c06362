"""Counting torch code, against torch's own FlopCounterMode and against the NumPy count of the same code."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from ledger.count import count, counting, find_array, was_counted  # noqa: E402

GENERATOR = torch.Generator().manual_seed(20240607)


def tensor(*shape):
    return torch.randn(*shape, generator=GENERATOR)


S, T, H, N, C = 5, 7, 3, 11, 13  # new tokens, cached tokens, heads, nope, latent


def absorb_heads(q_nope, w_kc):
    return torch.bmm(q_nope.transpose(0, 1), w_kc).transpose(0, 1)


PRODUCTS = {
    "mm": (lambda a, b: a @ b, [(S, N), (N, C)]),
    "absorb": (lambda q, w, c: q @ w @ c.T, [(S, N), (N, C), (T, C)]),
    "materialize": (lambda q, w, c: q @ (c @ w.T).T, [(S, N), (N, C), (T, C)]),
    "absorb_heads": (absorb_heads, [(S, H, N), (H, N, C)]),
    "einsum": (lambda q, w: torch.einsum("shn,hnc->shc", q, w), [(S, H, N), (H, N, C)]),
    "einsum of three": (lambda q, w, c: torch.einsum("shn,hnc,tc->hst", q, w, c), [(S, H, N), (H, N, C), (T, C)]),
    "batched": (lambda a, b: a @ b, [(2, 1, S, N), (4, N, C)]),
    "folded": (lambda a, b: a @ b, [(2, S, N), (N, C)]),
    "addmm": (torch.addmm, [(S, C), (S, N), (N, C)]),
    "baddbmm": (torch.baddbmm, [(H, S, C), (H, S, N), (H, N, C)]),
    "linear": (functional.linear, [(2, S, N), (C, N), (C,)]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), [(S, H, N), (N, C)]),
    "chain": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), [(S, N), (N, C), (C, T)]),
    "out": (lambda a, b: torch.mm(a, b, out=torch.empty(S, C)), [(S, N), (N, C)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_equal_half_of_torchs_own_flops(name):
    answer, shapes = PRODUCTS[name]
    args = [tensor(*shape) for shape in shapes]
    with FlopCounterMode(display=False) as flops:
        plain = answer(*args)
    result, counts = count(answer, *args)
    assert torch.equal(result, plain)
    assert flops.get_total_flops() > 0
    assert counts.macs == flops.get_total_flops() / 2
    assert counts.products > 0
    assert counts.unpriced == []


def test_fused_attention_counts_what_its_two_products_do():
    args = tensor(2, H, S, 8), tensor(2, H, T, 8), tensor(2, H, T, 8)
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as flops:
            functional.scaled_dot_product_attention(*args)
        apart = count(functional.scaled_dot_product_attention, *args)[1]
    fused = count(functional.scaled_dot_product_attention, *args)[1]
    assert flops.get_total_flops() == 2 * 2 * (2 * H * S * T * 8)
    for counts in (apart, fused):
        assert counts.products == 2
        assert counts.unpriced == []
    assert fused.macs == flops.get_total_flops() / 2
    assert apart.macs >= fused.macs
    assert find_array(fused, (S, T)) is None
    assert find_array(apart, (S, T)) is not None


@pytest.mark.parametrize(
    ("call", "macs"),
    [
        (lambda a, b: torch.mv(a, b[:, 0]), S * N),
        (lambda a, b: a @ b[:, 0], S * N),
        (lambda a, b: torch.dot(a[0], a[1]), N),
        (lambda a, b: torch.vdot(a[0], a[1]), N),
        (lambda a, b: torch.addmv(a[:, 0], a, b[:, 0]), S * N),
        (lambda a, b: (a[:, None, :] * b.T).sum(-1), S * C * N),
        (lambda a, b: torch.outer(a[0], b[0]), N * C),
        (lambda a, b: a * 2, S * N),
        (lambda a, b: a.clone().mul_(2), S * N),
        (lambda a, b: torch.linalg.vector_norm(a), S * N),
    ],
)
def test_what_the_flop_counter_leaves_out(call, macs):
    counts = count(call, tensor(S, N), tensor(N, C))[1]
    assert counts.macs == macs
    assert counts.unpriced == []


@pytest.mark.parametrize("name", ["absorb", "materialize", "folded"])
def test_numpy_and_torch_count_alike(name):
    answer, shapes = PRODUCTS[name]
    args = [tensor(*shape) for shape in shapes]
    in_torch = count(answer, *args)[1]
    in_numpy = count(answer, *(a.numpy() for a in args))[1]
    assert in_torch.macs == in_numpy.macs
    assert in_torch.largest == in_numpy.largest


def test_a_broadcast_matmul_shows_the_copies_that_torch_makes():
    answer, shapes = PRODUCTS["batched"]
    args = [tensor(*shape) for shape in shapes]
    assert find_array(count(answer, *args)[1], (2, 4, N, C)) is not None
    assert find_array(count(answer, *(a.numpy() for a in args))[1], (2, 4, N, C)) is None


def test_bytes_and_arrays():
    counts = count(PRODUCTS["materialize"][0], tensor(S, N), tensor(N, C), tensor(T, C))[1]
    assert counts.arrays == (((T, N), "mm"), ((S, T), "mm"))
    assert find_array(counts, (T, N)) == ((T, N), "mm")
    assert (counts.largest, counts.largest_shape) == (T * N, (T, N))
    assert counts.bytes_written == 4 * (T * N + S * T)
    assert counts.bytes_read == 4 * (T * C + N * C + S * N + T * N)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.T,
        lambda a: a.view(-1),
        lambda a: a[1:3, ::2],
        lambda a: a[0][None],
        lambda a: a.expand(3, S, N),
        lambda a: a.unfold(0, 2, 1),
        lambda a: a.split(2),
        lambda a: a.detach(),
        lambda a: a.contiguous(),
        lambda a: a.chunk(2, dim=1),
    ],
)
def test_views_cost_nothing(call):
    counts = count(call, tensor(S, N))[1]
    assert (counts.arrays, counts.bytes_read, counts.bytes_written) == ((), 0, 0)
    assert (counts.macs, counts.elementwise, counts.unpriced) == (0, 0, [])


@pytest.mark.parametrize(
    ("call", "read", "written"),
    [
        (lambda a: a.clone(), S * N, S * N),
        (lambda a: torch.cat([a, a]), 2 * S * N, 2 * S * N),
        (lambda a: a.T.contiguous(), S * N, S * N),
        (lambda a: a.expand(3, S, N).clone(), S * N, 3 * S * N),
        (lambda a: functional.pad(a, (0, 1)), S * N, S * (N + 1)),
    ],
)
def test_copies_move_bytes(call, read, written):
    counts = count(call, tensor(S, N))[1]
    assert (counts.bytes_read, counts.bytes_written) == (4 * read, 4 * written)
    assert (counts.macs, counts.products, counts.elementwise, counts.unpriced) == (0, 0, 0, [])


def test_picking_reads_what_it_picks():
    counts = count(lambda a: a[torch.tensor([0, 2])], tensor(1000, N))[1]
    assert counts.bytes_read < 4 * 10 * N
    assert counts.largest_shape == (2, N)


def test_in_place_makes_no_new_array():
    mine = tensor(S, N)

    def answer(a):
        a.mul_(2).add_(1)
        return a

    result, counts = count(answer, mine)
    assert result is mine
    assert (counts.arrays, counts.macs, counts.elementwise) == ((), S * N, S * N)
    assert (counts.bytes_read, counts.bytes_written) == (8 * S * N, 8 * S * N)


def test_out_makes_no_new_array():
    place = torch.empty(S, C)
    counts = count(lambda a, b: torch.mm(a, b, out=place), tensor(S, N), tensor(N, C))[1]
    assert counts.arrays == ()
    assert (counts.bytes_read, counts.bytes_written) == (4 * (S * N + N * C), 4 * S * C)


def test_softmax_and_masks_are_elementwise():
    counts = count(lambda a: torch.softmax(a.masked_fill(a > 0, 0.0), -1), tensor(S, T))[1]
    assert (counts.macs, counts.elementwise, counts.unpriced) == (0, 2 * S * T, [])


def test_an_unknown_operator_is_reported():
    counts = count(torch.linalg.inv, tensor(4, 4) + 9 * torch.eye(4))[1]
    assert counts.unpriced
    assert not was_counted(counts, 0)


def test_gradients_are_counted_too():
    weight = tensor(N, C).requires_grad_()
    counts = count(lambda a: (a @ weight).sum().backward(), tensor(S, N))[1]
    assert counts.macs == 2 * S * N * C


def by_python(a, b):
    columns = b.T.tolist()
    return torch.tensor([[sum(x * y for x, y in zip(row, col, strict=True)) for col in columns] for row in a.tolist()])


def by_item(a, b):
    out = torch.zeros(S, C)
    for i in range(S):
        for j in range(C):
            out[i, j] = sum(a[i, k].item() * b[k, j].item() for k in range(N))
    return out


@pytest.mark.parametrize(("answer", "way"), [(by_python, "tolist"), (by_item, "item")])
def test_what_leaves_is_reported_as_not_counted(answer, way):
    a, b = tensor(S, N), tensor(N, C)
    result, counts = count(answer, a, b)
    torch.testing.assert_close(result, a @ b)
    assert way in counts.left
    assert not was_counted(counts, S * N * C)


@pytest.mark.parametrize(
    "answer",
    [
        lambda a, b: torch.from_numpy(a.numpy() @ b.numpy()),
        lambda a, b: torch.from_numpy(np.asarray(a) @ np.asarray(b)),
    ],
)
def test_going_through_numpy_stays_counted(answer):
    a, b = tensor(S, N), tensor(N, C)
    result, counts = count(answer, a, b)
    torch.testing.assert_close(result, a @ b)
    assert counts.macs == S * N * C


def test_going_from_numpy_through_torch_stays_counted():
    count(lambda a: a, tensor(1))
    a, b = tensor(S, N).numpy(), tensor(N, C).numpy()
    result, counts = count(lambda a, b: (torch.as_tensor(a) @ torch.from_numpy(b)).numpy(), a, b)
    np.testing.assert_allclose(result, a @ b, rtol=1e-5, atol=1e-6)
    assert type(result) is np.ndarray
    assert counts.macs == S * N * C


def test_runs_nest_and_torch_is_put_back():
    a, b = tensor(S, N), tensor(N, C)
    counts = count(lambda a, b: count(torch.mm, a, b)[0] * 2, a, b)[1]
    assert (counts.macs, counts.products) == (S * N * C + S * C, 1)
    assert "numpy" not in vars(torch.Tensor)
    with pytest.raises(KeyError):
        count(lambda a: {}[0], a)
    assert "tolist" not in vars(torch.Tensor)
    assert type(a.numpy()) is np.ndarray
    with counting() as inline:
        _ = a @ b
    _ = a @ b
    assert inline.macs == S * N * C


def test_tensors_in_containers_are_found():
    assert count(lambda table: table["x"][0] @ table["x"][1], {"x": (tensor(S, N), tensor(N, C))})[1].macs == S * N * C


def test_torch_is_not_imported_for_numpy():
    code = (
        "import sys, numpy as np; from ledger.count import count, counting; count(np.dot, np.ones(3), np.ones(3));"
        "loaded = {'torch', 'matplotlib', 'ipywidgets', 'ledger.exercises'} & set(sys.modules);"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
