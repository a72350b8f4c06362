"""The WGSL kernels from Python in a real browser, under SwiftShader, and what a browser without an adapter says."""

import json

import chromium
import pytest
from conftest import fresh_context
from lab import errors, execute, open_notebook, said

pytestmark = pytest.mark.browser
NOTEBOOK = "notebooks/ch02_heads/heads.ipynb"
MORE_FLAGS = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
WITHOUT_WEBGPU = ["--no-sandbox", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]

COMPARE = """
import json
import numpy as np
from ledger.kernels import web
from ledger.reference import mla

def error(got, want):
    with np.errstate(invalid="ignore"):
        return float(np.nan_to_num(np.where(got == want, 0, np.abs(got - want)), nan=np.inf).max(initial=0))

def decode(heads, latent, rope, lengths):
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((len(lengths), heads, latent + rope), dtype=np.float32)
    cache = rng.standard_normal((len(lengths), max(lengths) + 1, latent + rope), dtype=np.float32)
    for request, length in enumerate(lengths):
        cache[request, length:] = np.nan
    got = web.mla_decode(queries, cache, np.array(lengths), latent, scale=0.1)
    want = mla.decode_absorbed(queries.astype(float), cache.astype(float), lengths, latent, scale=0.1)
    empty = bool((got.out[0] == 0).all() and (got.lse[0] == -np.inf).all())
    return [error(*pair) for pair in zip(got, want)] + [empty]

def absorb(new_tokens, heads, nope, latent):
    rng = np.random.default_rng(0)
    q_nope = rng.standard_normal((new_tokens, heads, nope), dtype=np.float32)
    w_kc = rng.standard_normal((heads, nope, latent), dtype=np.float32)
    return error(web.absorb_heads(q_nope, w_kc), mla.absorb_heads(q_nope.astype(float), w_kc.astype(float)))

def small(**options):
    return web.absorb_heads(np.ones((1, 2, 3), "f4"), np.ones((2, 3, 4), "f4"), **options)
"""


def python_in(page, address):
    """What runs code in a kernel of the site and reads what it printed as JSON."""
    open_notebook(page, address, NOTEBOOK)

    def run(code):
        outputs = execute(page, code)
        assert not errors(outputs), said(outputs)
        return json.loads(said(outputs) or "null")

    run(COMPARE)
    return run


@pytest.fixture(scope="module")
def python(context, address):
    return python_in(context.new_page(), address)


@pytest.fixture
def python_without_adapter(browser, address):
    bare = browser.browser_type.launch(executable_path=chromium.find(), args=WITHOUT_WEBGPU)
    with fresh_context(bare) as context:
        yield python_in(context.new_page(), address)
    bare.close()


def test_the_adapter_is_swiftshader(python):
    assert python("print(json.dumps([web.available(), web.adapter_name()]))") == [None, "google swiftshader"]


@pytest.mark.parametrize("heads", [3, 128])
@pytest.mark.parametrize(("latent", "rope"), [(33, 7), (512, 64), (1, 0)])
def test_decode_is_the_oracles(python, heads, latent, rope):
    out, lse, empty = python(f"print(json.dumps(decode({heads}, {latent}, {rope}, [0, 1, 65])))")
    assert out < 3e-5
    assert lse < 3e-5
    assert empty


@pytest.mark.parametrize("sizes", [(9, 3, 65, 130), (1, 128, 7, 5), (1, 1, 1, 1)])
def test_heads_absorb_their_own_matrix(python, sizes):
    assert python(f"print(json.dumps(absorb{sizes}))") < 3e-5


def test_wgsl_that_does_not_compile_is_an_exception_with_its_line(python):
    line, right, said, after = python("""
text = web.source("absorb_heads")
try:
    small(wgsl=text.replace("let weight = ", "let weight = oops + "))
except web.ShaderError as error:
    at = next(i for i, line in enumerate(text.splitlines(), 1) if "let weight = " in line)
    print(json.dumps([error.line, at, str(error), small().min().item()]))
""")
    assert line == right
    assert said.startswith(f"absorb_heads.wgsl, line {line}, column ")
    assert "oops" in said.splitlines()[0]
    assert said.splitlines()[1].startswith(f"{line:>5} |         let weight = oops + p_weights[")
    assert after == 3


def test_bindings_that_do_not_fit_are_an_exception(python):
    said = python("""
try:
    small(wgsl=web.source("absorb_heads").replace("@binding(3)", "@binding(7)"))
except web.WebGPUError as error:
    print(json.dumps(str(error)))
""")
    assert "binding index 3 not present" in said


def test_a_lost_device_is_an_exception_and_the_next_call_opens_another(python):
    said, after = python("""
from ledger.kernels.web import launch
small()
launch.device().close()
try:
    small()
except web.DeviceLostError as error:
    print(json.dumps([str(error), small().min().item()]))
""")
    assert said.startswith("The GPU was lost (destroyed).")
    assert after == 3


def test_a_kernel_is_timed_on_the_device(python):
    low, median, high, runs = python("""
arrays = np.ones((1, 2, 3), "f4"), np.ones((2, 3, 4), "f4")
timing = web.time_kernel(web.absorb_heads, *arrays, seconds=0.01)
print(json.dumps([timing.low, timing.median, timing.high, timing.runs]))
""")
    assert 0 < low <= median <= high
    assert runs >= 3


def test_a_browser_that_cannot_wait_says_what_it_lacks(python):
    said = python("""
from unittest import mock
from ledger.kernels.web import browser
with mock.patch.object(browser, "can_run_sync", lambda: False):
    print(json.dumps(web.available()))
""")
    assert "JavaScript Promise Integration" in said


def test_without_an_adapter_it_says_how_to_get_one(python_without_adapter):
    said, raised = python_without_adapter("""
try:
    small()
except web.NoAdapterError as error:
    print(json.dumps([web.available(), str(error)]))
""")
    assert said == raised
    assert "chrome://gpu" in said
    assert "--enable-unsafe-webgpu --use-webgpu-adapter=swiftshader" in said
