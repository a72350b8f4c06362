"""The WGSL kernels through ``wgpu``, on this machine's GPU or on software in its place, against the float64 oracles.

Where there is neither, the tests fail and say what to install; LEDGER_NO_WEBGPU=1 leaves them out, and reports it.
"""

import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from ledger.kernels import web
from ledger.kernels.web import launch, native
from ledger.reference import mla

LENGTHS = [0, 1, 63, 64, 65, 200]


@pytest.fixture(scope="session")
def gpu() -> str:
    """The adapter's name."""
    if os.environ.get("LEDGER_NO_WEBGPU") == "1":
        pytest.skip("LEDGER_NO_WEBGPU=1: the WebGPU kernels were not run")
    reason = web.available()
    if reason:
        pytest.fail(f"{reason} To leave these tests out: LEDGER_NO_WEBGPU=1 make test", pytrace=False)
    return web.adapter_name()


def poisoned(heads, latent, rope, lengths=LENGTHS, seed=0):
    """Queries, and a cache that is NaN behind each request's length and has a row more than any needs."""
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((len(lengths), heads, latent + rope), dtype=np.float32)
    cache = np.full((len(lengths), max(lengths) + 1, latent + rope), np.nan, np.float32)
    for request, length in enumerate(lengths):
        cache[request, :length] = rng.standard_normal((length, latent + rope), dtype=np.float32)
    return queries, cache, np.array(lengths)


def sloping(first, last, tokens=200):
    """One head whose scores run from ``first`` to ``last``, over random values."""
    cache = np.random.default_rng(1).standard_normal((1, tokens, 6), dtype=np.float32)
    cache[0, :, 5] = np.linspace(first, last, tokens)
    queries = np.zeros((1, 1, 6), np.float32)
    queries[0, 0, 5] = 1
    return queries, cache, np.array([tokens])


def errors(queries, cache, lengths, latent, scale=0.25, wgsl=None):
    """The largest error of the mixed latents and of the lse; infinite where a NaN came out."""
    got = web.mla_decode(queries, cache, lengths, latent, scale, wgsl=wgsl)
    want = mla.decode_absorbed(queries.astype(np.float64), cache.astype(np.float64), lengths, latent, scale)
    assert got.out.dtype == got.lse.dtype == np.float32
    assert got.out.shape == want[0].shape
    assert got.lse.shape == want[1].shape
    assert got.out.flags.writeable
    found = []
    for a, b in zip(got, want, strict=True):
        with np.errstate(invalid="ignore"):
            difference = np.where(a == b, 0, np.abs(a - b))
        found.append(np.nan_to_num(difference, nan=np.inf).max(initial=0))
    return found


@pytest.mark.parametrize("heads", [1, 3, 5, 16, 128])
@pytest.mark.parametrize(("latent", "rope"), [(33, 7), (5, 0), (1, 1), (300, 17)])
def test_decode_is_the_oracles(gpu, heads, latent, rope):
    out, lse = errors(*poisoned(heads, latent, rope), latent)
    assert out < 3e-5
    assert lse < 3e-5


def test_decode_at_a_models_widths(gpu):
    out, lse = errors(*poisoned(128, 512, 64, [1, 65]), 512, scale=192**-0.5)
    assert out < 3e-5
    assert lse < 3e-5


@pytest.mark.parametrize(("first", "last"), [(800, -800), (-800, 800), (-800, -700), (0, 0)])
def test_scores_that_slope(gpu, first, last):
    out, lse = errors(*sloping(first, last), 4, scale=1.0)
    assert out < 1e-5
    assert lse < 2e-4  # a float32 near 800 has steps of 6e-5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("var m_new = m_i[lane];", "var m_new = LOWEST;"),
        ("acc[i][i_column] *= b_rescale[i];", ""),
        ("l_i[lane] * rescale", "l_i[lane]"),
        ("acc[i][i_column] / l_i[i]", "acc[i][i_column]"),
        ("+ log(l_i[lane])", "+ log2(l_i[lane])"),
        ("sizes.scale * dot", "dot"),
    ],
    ids=["maximum of the tile", "acc not rescaled", "sum not rescaled", "not normalised", "lse to base 2", "unscaled"],
)
def test_the_sloping_scores_find_a_wrong_softmax(gpu, old, new):
    text = web.source("mla_decode")
    assert text.count(old) == 1
    inputs = [sloping(800, -800), sloping(-16, 16)]
    assert max(max(errors(*each, 4, scale=0.5)) for each in inputs) < 1e-3
    assert max(max(errors(*each, 4, scale=0.5, wgsl=text.replace(old, new))) for each in inputs) > 1e-2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("      if (o_tile + i_token < length) {\n        value", "      if (true) {\n        value"),
        ("if (m_head && o_tile + i_token < length) {", "if (m_head) {"),
        ("p_out[o_out + i_latent] = mixed;", "if (i_latent != 9u) { p_out[o_out + i_latent] = mixed; }"),
        ("  if (lane < HEADS && o_head + lane", "  if (lane != 2u && lane < HEADS && o_head + lane"),
    ],
    ids=["tail loaded", "tail counted", "one column left out", "one lse left out"],
)
def test_the_poison_finds_a_missing_mask(gpu, old, new):
    text = web.source("mla_decode")
    assert text.count(old) == 1
    assert max(errors(*poisoned(5, 33, 7), 33, wgsl=text.replace(old, new))) > 1e-2


@pytest.mark.parametrize(("new_tokens", "heads", "nope", "latent"), [
    (1, 1, 1, 1), (9, 3, 65, 130), (8, 5, 64, 64), (17, 2, 7, 3), (1, 16, 128, 512), (2, 2, 0, 3), (1, 128, 12, 5),
])  # fmt: skip
def test_heads_absorb_their_own_matrix(gpu, new_tokens, heads, nope, latent):
    rng = np.random.default_rng(2)
    q_nope = rng.standard_normal((new_tokens, heads, nope), dtype=np.float32)
    w_kc = rng.standard_normal((heads, nope, latent), dtype=np.float32)
    want = mla.absorb_heads(q_nope.astype(np.float64), w_kc.astype(np.float64))
    got = web.absorb_heads(q_nope, w_kc)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max(initial=1))


def test_inputs_may_be_strided_read_only_and_of_any_integer_lengths(gpu):
    queries, cache, lengths = poisoned(3, 8, 2, [5, 9])
    before = web.mla_decode(queries, cache, lengths, 8, 0.25)
    strided = [np.ascontiguousarray(array.T).T for array in (queries, cache)]
    for array in strided:
        array.setflags(write=False)
    after = web.mla_decode(*strided, lengths.astype(np.uint8), 8, 0.25)
    np.testing.assert_array_equal(after.out, before.out)
    np.testing.assert_array_equal(after.lse, before.lse)


def test_a_cache_without_room_for_a_token_is_an_empty_one(gpu):
    decoded = web.mla_decode(np.ones((2, 3, 5), "f4"), np.ones((2, 0, 5), "f4"), [0, 0], 4, 1.0)
    assert (decoded.out == 0).all()
    assert (decoded.lse == -np.inf).all()


def test_nothing_to_compute_needs_no_gpu(monkeypatch):
    monkeypatch.setattr(native.Adapter, "find", lambda: pytest.fail("a GPU was asked for"))
    assert web.absorb_heads(np.zeros((0, 2, 3), "f4"), np.zeros((2, 3, 4), "f4")).shape == (0, 2, 4)
    decoded = web.mla_decode(np.zeros((0, 2, 5), "f4"), np.zeros((0, 7, 5), "f4"), np.zeros(0, int), 4, 1.0)
    assert (decoded.out.shape, decoded.lse.shape) == ((0, 2, 4), (0, 2))


@pytest.mark.parametrize(("change", "message"), [
    ({"queries": np.zeros((2, 3, 10))}, "queries is float64; the kernel computes in float32: queries.astype"),
    ({"queries": np.zeros((3, 10), "f4")}, r"queries must be an array \(requests, num_heads, .*\); got \(3, 10\)"),
    ({"cache": [[1.0]]}, "cache must be an array .*; got list"),
    ({"cache": np.zeros((3, 9, 10), "f4")}, r"queries \(2, 3, 10\) are of 2 requests .* of 3 and 10"),
    ({"cache": np.zeros((2, 9, 11), "f4")}, "width 10; .* of 2 and 11"),
    ({"lengths": np.array([1, 10])}, r"lengths lie in 1 … 10; the cache holds 0 … 9 tokens"),
    ({"lengths": np.array([-1, 1])}, r"lengths lie in -1 … 1;"),
    ({"lengths": np.array([1.0, 2.0])}, r"lengths must be 2 integers, one a request; got float64 \(2,\)"),
    ({"lengths": np.array([1])}, r"lengths must be 2 integers, .* \(1,\)"),
    ({"latent_dim": 0}, "latent_dim is 0; it lies in 1 … 10"),
    ({"latent_dim": 11}, "latent_dim is 11; it lies in 1 … 10"),
    ({"scale": np.nan}, "scale is nan; it must be finite"),
    ({"wgsl": "fn main() {}"}, "must say how large its blocks are: const MAX_LATENT"),
    ({"queries": np.zeros((2, 3, 577), "f4"), "cache": np.zeros((2, 9, 577), "f4")}, "577 wide; .* room for 576"),
    ({"queries": np.zeros((2, 3, 520), "f4"), "cache": np.zeros((2, 9, 520), "f4"), "latent_dim": 513}, "1 … 512"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(change, message):
    arguments = {
        "queries": np.zeros((2, 3, 10), np.float32),
        "cache": np.zeros((2, 9, 10), np.float32),
        "lengths": np.array([0, 9]),
        "latent_dim": 8,
        "scale": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        web.mla_decode(**(arguments | change))


def test_matrices_that_do_not_fit_the_queries_are_refused():
    with pytest.raises(ValueError, match=r"q_nope \(1, 2, 3\) has 2 heads of 3; w_kc \(2, 4, 5\) has 2 of 4"):
        web.absorb_heads(np.zeros((1, 2, 3), "f4"), np.zeros((2, 4, 5), "f4"))
    with pytest.raises(ValueError, match="w_kc is float16"):
        web.absorb_heads(np.zeros((1, 2, 3), "f4"), np.zeros((2, 3, 5), "f2"))


def test_an_unknown_kernel_is_refused_with_the_choices():
    assert "fn main(" in web.source("absorb_heads")
    with pytest.raises(ValueError, match="no kernel 'flash'; the choices are: absorb_heads, mla_decode"):
        web.source("flash")


def test_more_than_the_device_takes_is_refused(gpu, monkeypatch):
    monkeypatch.setattr(launch.device(), "most_bytes", 95)
    with pytest.raises(ValueError, match=r"w_kc takes 96 bytes; a buffer of .* holds at most 95"):
        web.absorb_heads(np.zeros((1, 2, 3), "f4"), np.zeros((2, 3, 4), "f4"))
    monkeypatch.setattr(launch, "MOST_GROUPS", 1)
    with pytest.raises(ValueError, match="absorb_heads needs 2 workgroups along y; at most 1 go"):
        web.absorb_heads(np.zeros((1, 2, 3), "f4"), np.zeros((2, 3, 2), "f4"))


def small(**options):
    return web.absorb_heads(np.ones((1, 2, 3), "f4"), np.ones((2, 3, 4), "f4"), **options)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("let weight = p_weights", "let weight = oops + p_weights"),
        ("var value = 0.0;", "var value = 0.0 + 1u;"),
        ("let m_column = i_column < sizes.latent_dim;", "let m_column = i_column < sizes.latent_dim"),
        ("acc[i_token] += b_queries", "p_weights[0] = b_queries"),
    ],
    ids=["unknown name", "types", "syntax", "written input"],
)
def test_wgsl_that_does_not_compile_is_an_exception_with_its_line(gpu, old, new):
    text = web.source("absorb_heads")
    at = next(i for i, line in enumerate(text.splitlines(), 1) if old in line)
    with pytest.raises(web.ShaderError) as caught:
        small(wgsl=text.replace(old, new, 1))
    # what is missing at the end of a line is seen at the start of the next
    assert caught.value.line == at or (";" not in new and caught.value.line == at + 1)
    shown = text.replace(old, new, 1).splitlines()[caught.value.line - 1]
    assert str(caught.value).startswith(f"absorb_heads.wgsl, line {caught.value.line}, column {caught.value.column}: ")
    assert str(caught.value).endswith(f"\n{caught.value.line:>5} | {shown}")
    assert (small() == 3).all()


def test_wgsl_without_a_main_is_an_exception_without_a_line(gpu):
    with pytest.raises(web.ShaderError, match=r"^absorb_heads\.wgsl: .*main") as caught:
        small(wgsl=web.source("absorb_heads").replace("fn main", "fn mine"))
    assert caught.value.line == 0


def test_bindings_that_do_not_fit_are_an_exception(gpu):
    text = web.source("absorb_heads").replace("@binding(3)", "@binding(7)")
    with pytest.raises(web.WebGPUError):
        small(wgsl=text)


def test_a_lost_device_is_an_exception_and_the_next_call_opens_another(gpu):
    assert (small() == 3).all()
    launch.device().close()
    with pytest.raises(web.DeviceLostError, match="The GPU was lost"):
        small()
    assert (small() == 3).all()


def test_a_kernel_is_timed_on_the_device(gpu):
    timing = web.time_kernel(web.absorb_heads, np.ones((1, 2, 3), "f4"), np.ones((2, 3, 4), "f4"), seconds=0.01)
    assert 0 < timing.low <= timing.median <= timing.high
    assert timing.runs >= 3
    with pytest.raises(ValueError, match="nothing to time"):
        web.time_kernel(web.absorb_heads, np.ones((0, 2, 3), "f4"), np.ones((2, 3, 4), "f4"))
    with pytest.raises(ValueError, match="'print' is no kernel; the choices are: absorb_heads, mla_decode"):
        web.time_kernel(print)


def test_without_wgpu_or_an_adapter_it_says_what_to_install(monkeypatch):
    def refuse(**_):
        raise RuntimeError("no adapter fits")

    wgpu = pytest.importorskip("wgpu") if os.environ.get("LEDGER_NO_WEBGPU") == "1" else __import__("wgpu")
    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", refuse)
    assert "mesa-vulkan-drivers" in web.available()
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    assert "python -m pip install wgpu" in web.available()
    monkeypatch.setattr(launch, "_open", {})
    with pytest.raises(web.NoAdapterError, match="wgpu is not installed"):
        small()


def test_an_adapter_that_is_too_small_is_named(gpu, monkeypatch):
    monkeypatch.setattr(launch, "WORKGROUP_BYTES", 1 << 40)
    assert f"{gpu} has " in web.available()


def test_kernels_are_found_where_src_alone_is_on_the_path(root):
    program = (
        f"import sys; sys.path[:] = [{str(root / 'src')!r}, *(p for p in sys.path if p != {str(root / 'src')!r})]; "
        "import ledger.kernels.loops.mla_decode, ledger.kernels.web as web; "
        "assert 'wgpu' not in sys.modules; print(web.__file__); print(len(web.source('mla_decode')))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(root / "kernels" / "web" / "__init__.py")


def test_an_answer_in_the_judges_jail_finds_no_kernel():
    program = (
        "import ledger, pathlib; from ledger.judge.server import hide_course\n"
        "hide_course([pathlib.Path(ledger.__file__).parent])\n"
        "try: import ledger.kernels\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/")
    assert done.stdout == "No module named 'ledger.kernels'\n"


def test_a_wheel_holds_every_package_and_the_wgsl(root, tmp_path):
    course = tmp_path / "course"
    for name in ("src", "kernels"):
        skip = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(root / name, course / name, ignore=skip)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(root / name, course)
    program = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=course, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {f"ledger/{p.relative_to(root / 'src' / 'ledger')}" for p in (root / "src" / "ledger").rglob("*.py")}
    kernels = {f"ledger/kernels/{p.relative_to(root / 'kernels')}" for p in (root / "kernels").rglob("*.py")}
    texts = {f"ledger/kernels/web/{p.name}" for p in (root / "kernels" / "web").glob("*.wgsl")}
    assert len(texts) == 2
    assert modules | kernels | texts <= held
