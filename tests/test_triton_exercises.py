"""The exercises in Triton: how an answer is launched, what is seen of it, and what the jail and the GPU add.

That references pass, stubs are ``todo`` and each mutant is rejected for its reason, in the jail and in a notebook, is
in ``test_gate.py``, ``test_check.py`` and ``test_exercises.py``, for these as for all exercises.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from need import need

from ledger import exercises
from ledger.browser import ladder
from ledger.build import fresh_practice, fresh_solutions
from ledger.exercises import absorb_heads_kernel, making, mla_decode_kernel
from ledger.judge import cuda, report, session
from ledger.judge.cli import main
from ledger.judge.collect import Submission, collect
from ledger.judge.gate import notebooks_of
from ledger.judge.launchers import launched
from ledger.judge.notebook import run_here
from ledger.judge.outcome import Call, Cell, Job
from ledger.judge.run import Runner
from ledger.judge.session import grade_one

MODULES = {"absorb_heads_kernel": absorb_heads_kernel, "mla_decode_kernel": mla_decode_kernel}
IDS = list(MODULES)
ABOVE = Cell("cell 2", "import os\nimport triton\nimport triton.language as tl\n")
NOTEBOOK = "practice/ch07_decode_kernel/triton_kernels.ipynb"


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    need(exercises.get(IDS[0]))


@pytest.fixture(scope="module")
def runner():
    with Runner() as made:
        yield made


def source(id, changes=()):
    """The kernel of an exercise as a cell, with each text of ``changes`` replaced."""
    text = MODULES[id].KERNEL
    for old, new in dict(changes).items():
        assert old in text
        text = text.replace(old, new)
    return f"@triton.jit\n{text}"


def graded(runner, id, changes=(), above=()):
    """The result of a changed kernel in the jail."""
    cells = (ABOVE, *above, Cell("cell 4", source(id, changes)))
    return grade_one(Submission(exercises.get(id), cells), runner, 7)


def plain(id, changes=()):
    """A changed kernel as a function without decorator, in a module that knows neither ``tl`` nor ``triton``."""
    return making.rewritten(MODULES[id].KERNEL, "undecorated", dict(changes))


# The launch


@pytest.mark.parametrize("id", IDS)
def test_the_reference_in_the_jail_and_what_it_loads(runner, root, id):
    """By the formula of the statement: each byte once for each block of 16 tokens, or of 16 heads."""
    submission = collect(exercises.get(id), notebooks_of(fresh_solutions(root)), [])
    result = grade_one(submission, runner, 3)
    assert result.verdict == "passed", result.message
    if id == "absorb_heads_kernel":
        loaded = [1 * 16 * 16 * 4, 2 * 32 * 64 * 4, 3 * 21 * 37 * 4, 2 * (2 * 1 * 70 * 4), 4 * 40 * 96 * 2]
        loaded.append(2 * 128 * 512 * 4)
    else:
        loaded = [
            18 * 4,
            32 * 18 * 4,
            58 * 36 * 4,
            73 * 45 * 4,
            2 * (53 * 27 * 4),
            155 * 18 * 4,
            30 * 18 * 4,
            79 * 72 * 2,
        ]
        loaded.append(70 * 576 * 4)
    cases = exercises.get(id).cases
    assert [exercises.get(id).oracle(*exercises.get(id).inputs(case, 3).values())[-1] for case in cases] == loaded


@pytest.mark.parametrize("id", IDS)
def test_a_function_without_decorator_is_a_kernel_too(id):
    assert run_here(exercises.get(id), plain(id), 5).verdict == "passed"


@pytest.mark.parametrize(("id", "pointer"), [("absorb_heads_kernel", "p_w_kc"), ("mla_decode_kernel", "p_pages")])
def test_a_pointer_of_another_name_is_counted_all_the_same(runner, id, pointer):
    result = graded(runner, id, {pointer: "p_mine"})
    assert result.verdict == "passed", result.message


def test_a_kernel_may_call_a_function_of_a_cell_above(runner):
    helper = Cell("cell 3", "@triton.jit\ndef rescale(old, new):\n    return tl.exp(old - new)\n")
    result = graded(runner, "mla_decode_kernel", {"tl.exp(m_i - m_new)": "rescale(m_i, m_new)"}, above=[helper])
    assert result.verdict == "passed", result.message


def test_one_grading_takes_the_libraries_from_the_exercise(runner):
    """A cell that imports neither torch nor triton still meets the server that has them."""
    text = "from __future__ import annotations\n" + MODULES["absorb_heads_kernel"].KERNEL
    undecorated = Cell("cell 4", text)
    result = grade_one(Submission(exercises.get("absorb_heads_kernel"), (undecorated,)), runner, 7)
    assert result.verdict == "passed", result.message


@pytest.mark.parametrize("id", IDS)
def test_the_inputs_of_each_case_are_as_its_sizes_say(id):
    for case in exercises.get(id).cases:
        inputs = exercises.get(id).inputs(case, 1)
        arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
        assert {array.dtype.name for array in arrays if array.dtype.kind == "f"} == {case.dtype}
    if id == "mla_decode_kernel":
        assert np.isnan(inputs["pages"]).any(), "no token's memory holds NaN"
        assert inputs["block_table"].max() >= len(inputs["pages"]), "the table goes on with pages that are not there"


def test_results_of_float16_are_float16_and_lse_is_not():
    exercise = exercises.get("mla_decode_kernel")
    out, lse, _ = launched(exercise.launcher, plain(exercise.id))(
        *exercise.inputs(exercise.case("float16"), 2).values()
    )
    assert (out.dtype, lse.dtype) == (np.float16, np.float32)


# What is seen of a wrong kernel


def test_an_access_outside_names_the_tensor_the_offsets_and_the_line(runner):
    """Page 2**20 of a cache without: the tensor whose pointer led there, not the one that lies nearest."""
    changes = {
        "tl.load(p_entry, mask=m_token, other=0)": "tl.load(p_entry)",
        "m_latents = m_token[:, None] & m_latent[None, :]": "m_latents = m_latent[None, :]",
    }
    result = graded(runner, "mla_decode_kernel", changes)
    assert result.verdict == "error"
    # one token in pages of 8 entries, each slot 18 + 3 wide, each page 9 slots; the tile's other 8 tokens go astray
    stride = (18 + 3) * 9
    assert (
        f"read 128 elements outside of its tensors, the first at offset {2**20 * stride} of p_pages" in result.message
    )
    assert f"mask the access (then {2**20 * stride + 1}, {2**20 * stride + 2}" in result.message
    lines = [text for label, text in result.failure.rows if label == "your line"]
    number = (
        source("mla_decode_kernel", changes)
        .splitlines()
        .index("        b_latent = tl.load(p_pages + o_entry + i_latent[None, :], mask=m_latents, other=0.0).to(DOT)")
    )
    assert len(lines) == 1
    assert lines[0].startswith("b_latent = tl.load(p_pages + o_entry + i_latent[None, :]")
    assert lines[0].endswith(f"[cell 4, line {number + 1}]")


def test_a_notebook_shows_the_same_line(runner):
    result = run_here(exercises.get("mla_decode_kernel"), plain("mla_decode_kernel", {"scale * b": "scal * b"}), 7)
    assert result.message == "NameError: name 'scal' is not defined"
    assert any("scal * b_scores" in text for label, text in result.failure.rows if label == "your line")


def test_an_exception_of_a_function_that_the_kernel_calls_is_told_as_it_is(runner):
    helper = Cell("cell 3", "@triton.jit\ndef rescale(old, new):\n    return tl.exp(old - newer)\n")
    result = graded(runner, "mla_decode_kernel", {"tl.exp(m_i - m_new)": "rescale(m_i, m_new)"}, above=[helper])
    assert result.message == "NameError: name 'newer' is not defined"
    lines = [text for label, text in result.failure.rows if label == "your line"]
    assert "cell 4" in lines[0]
    assert "return tl.exp(old - newer)   [cell 3, line 3]" in lines[1]


@pytest.mark.parametrize("id", IDS)
def test_the_stub_is_todo_though_triton_wraps_its_error(runner, root, id):
    submission = collect(exercises.get(id), notebooks_of(fresh_practice(root)), [])
    result = grade_one(submission, runner, 3)
    assert (result.verdict, result.points) == ("todo", 0)


@pytest.mark.parametrize(
    ("id", "changes", "part"),
    [
        ("absorb_heads_kernel", {"tl.store(p_queries + o_out, acc": "tl.store(p_queries + o_out + 1, acc"}, "queries"),
        (
            "absorb_heads_kernel",
            {", mask=m_token[:, None] & m_column[None, :])\n": ", mask=(m_token & (i_token < 1))[:, None])\n"},
            "queries",
        ),
        ("mla_decode_kernel", {"tl.store(p_out + o_out, acc / total[:, None], mask=m_query)": "pass"}, "out"),
        ("mla_decode_kernel", {"lse, mask=m_head)": "lse, mask=m_head & (i_head > 0))"}, "lse"),
    ],
)
def test_what_is_stored_elsewhere_or_not_at_all_is_seen(runner, id, changes, part):
    result = graded(runner, id, changes)
    assert result.verdict in ("wrong", "error")
    assert part in result.message


def test_a_kernel_that_never_ends_is_stopped(runner):
    result = graded(runner, "absorb_heads_kernel", {"range(0, NOPE, BLOCK_N)": "range(0, 1000000 * NOPE, BLOCK_N)"})
    assert result.verdict == "timeout"


def test_the_sizes_of_a_failed_case_are_told(runner):
    result = graded(runner, "mla_decode_kernel", {"scale * b_scores": "b_scores"})
    told = dict(result.failure.rows)["case"]
    assert told.startswith('"one token"; num_heads=16, width=18, page=8, lengths=(1,), scale=0.2357')
    assert told.endswith("float32; seed 7")


# What an answer can reach


def test_the_jail_of_a_kernel_holds_no_kernel_of_the_course(runner, root):
    """The launchers are there, and what they need; the course's own kernels, oracles and exercises are not."""
    attempts = "\n".join(
        f"    try:\n        {statement}\n        got.append({name!r})\n    except (ImportError, OSError):\n        pass"
        for name, statement in {
            "gpu": "import ledger.kernels.gpu",
            "loops": "from ledger.kernels import loops",
            "exercises": "import ledger.exercises",
            "reference": "import ledger.reference.values",
            "text": f"open({str(root / 'kernels/gpu/mla_decode.py')!r}).read()",
            "master": f"open({str(root / 'course/practice/ch07_decode_kernel/triton_kernels.py')!r}).read()",
        }.items()
    )
    probe = f"import sys\ndef probe(x):\n    got = []\n{attempts}\n"
    probe += "    return got, sorted(name for name in sys.modules if name.startswith('ledger.'))\n"
    run = runner.run(Job("probe", (Cell("c", probe),), (Call({"x": 1}),), needs=("torch", "triton")))
    got, modules = run.outcomes[0].value
    assert got == ([] if "landlock" in run.layers else ["text", "master"])
    assert {name for name in modules if name.startswith("ledger.kernels")} == {
        "ledger.kernels",
        "ledger.kernels.interpret",
        "ledger.kernels.interpret.mode",
        "ledger.kernels.interpret.watched",
    }
    assert not [name for name in modules if name.split(".")[1] in ("exercises", "reference", "account")]


def test_values_cannot_be_forged_from_inside_the_jail(runner):
    """An answer that takes the launcher over can say what it loaded, but it does not know the right values."""
    forger = Cell(
        "cell 3",
        "import sys\nimport numpy as np\n"
        "kernels = sys.modules['ledger.judge.launchers.kernels']\n"
        "kernels.launch = lambda answer, grid, *arguments, counted, **blocks: [0, 18 * 4]\n",
    )
    result = graded(runner, "mla_decode_kernel", above=[forger])
    assert result.verdict == "wrong"
    assert "NaN" in result.message


# Where the libraries are missing


def test_without_triton_an_exercise_is_skipped_and_says_why(runner, monkeypatch, root):
    monkeypatch.setattr(session, "installed", lambda name: name != "triton")
    exercise = exercises.get("mla_decode_kernel")
    submission = collect(exercise, notebooks_of(fresh_solutions(root)), [])
    for result in (grade_one(submission, runner, 1), run_here(exercise, plain(exercise.id), 1)):
        assert (result.verdict, result.points, result.message) == ("skipped", 0, "this needs triton")
        assert report.one_exercise(result) == "· mla_decode_kernel: skipped: this needs triton"
        assert report.one_line(result, report.Style()).endswith("skipped  this needs triton")
    missing = grade_one(Submission(exercise, problem="no cell"), runner, 1)
    assert missing.verdict == "skipped", "what cannot be run here need not be there, as in a browser"


@pytest.mark.parametrize("there", [True, False])
def test_a_browsers_ladder_skips_it_and_says_why(tmp_path, root, monkeypatch, there):
    monkeypatch.setattr(session, "IN_BROWSER", True)
    monkeypatch.setattr(session, "installed", lambda name: False)
    (tmp_path / NOTEBOOK).parent.mkdir(parents=True)
    if there:
        (tmp_path / NOTEBOOK).write_text(json.dumps(fresh_practice(root)[NOTEBOOK]))
    with (tmp_path / "said").open("w+") as out:
        ladder.run_here(["7"], tmp_path, out)
        out.seek(0)
        [line] = [line for line in out if "- mla_decode_kernel" in line]
    assert "skipped  this needs torch and triton, which no browser has: open the course on a computer" in line


# On a GPU, with a stand-in for one: the same processes and the same launch, interpreted all the same


@pytest.fixture
def stand_in(monkeypatch):
    """A GPU that is none: what is compiled there is interpreted here."""
    real = cuda.variables
    monkeypatch.setattr(cuda, "find_gpu", lambda: "a stand-in")
    monkeypatch.setattr(cuda, "variables", lambda cache: real(cache) | {"TRITON_INTERPRET": "1"})


@pytest.fixture
def course(tmp_path, root, monkeypatch):
    """A folder that looks like the course, with the answers of the two kernels in its practice/."""
    (tmp_path / "judge.py").touch()
    path = tmp_path / NOTEBOOK
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(fresh_solutions(root)[NOTEBOOK.replace("practice", "solutions", 1)]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(*arguments):
    """The exit status and the JSON of ``judge.py IDS --cuda``."""
    status = main([*arguments, "--cuda", "--json", "result.json", "--seed", "4"])
    return status, json.loads(Path("result.json").read_text())


def test_kernels_run_on_cuda_as_well_and_it_is_said(course, stand_in, capsys):
    status, result = judged(*IDS)
    assert status == 0
    for found, exercise in zip(result["exercises"], map(exercises.get, IDS), strict=True):
        names = [case.name for case in exercise.cases]
        assert [case["name"] for case in found["cases"]] == names + [f"{name}, on CUDA" for name in names]
        assert (found["verdict"], found["points"]) == ("passed", exercise.points)
        assert (
            f"on a stand-in, in a process of its own, no jail: {len(names)} of {len(names)} cases pass"
            in found["notes"]
        )
    assert result["isolation"].endswith("; on CUDA a process of its own, no jail")
    assert "on a stand-in, in a process of its own, no jail" in capsys.readouterr().out


def test_a_kernel_that_is_wrong_on_the_gpu_alone_is_wrong(course, stand_in, capsys):
    cells = json.loads((course / NOTEBOOK).read_text())
    [answer] = [cell for cell in cells["cells"] if cell["id"] == "absorb_heads_kernel"]
    text = "".join(answer["source"]).replace(
        "tl.store(p_queries + o_out, acc", "tl.store(p_queries + o_out, FACTOR * acc"
    )
    answer["source"] = f'import os\n\nFACTOR = 2.0 if "TRITON_CACHE_DIR" in os.environ else 1.0\n\n{text}'
    (course / NOTEBOOK).write_text(json.dumps(cells))
    status, result = judged("absorb_heads_kernel")
    [found] = result["exercises"]
    assert (status, found["verdict"], found["points"]) == (1, "wrong", 2)
    assert {case["verdict"] for case in found["cases"] if not case["name"].endswith("on CUDA")} == {"passed"}
    said = capsys.readouterr().out
    assert "ran        compiled, on a stand-in" in said
    assert "0 of 6 cases pass" in " ".join(said.split())


def test_what_fails_in_the_interpreter_does_not_go_to_the_gpu(course, stand_in, monkeypatch, root):
    (course / NOTEBOOK).write_text(json.dumps(fresh_practice(root)[NOTEBOOK]))
    status, result = judged(*IDS)
    assert status == 1
    assert [(found["verdict"], found["notes"]) for found in result["exercises"]] == [("todo", [])] * 2
    (course / "mine.py").write_text("def mla_decode_kernel(p_out):\n    pass\n")
    status, result = judged("--source", "mine.py", "mla_decode_kernel")
    assert result["exercises"][0]["verdict"] == "error"
    assert any("not run on CUDA" in note for note in result["exercises"][0]["notes"])


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["mla_decode_kernel"], 3, "--cuda: torch finds no GPU here; without --cuda, kernels are graded in Triton's"),
        (
            ["absorb_query"],
            2,
            "nothing that was selected is a kernel; there are absorb_heads_kernel, mla_decode_kernel",
        ),
        (["mla_decode_kernel", "--require-isolation"], 2, "--require-isolation forbids that"),
    ],
)
def test_a_call_that_cannot_be_met_is_one_line(course, capsys, monkeypatch, arguments, status, said):
    monkeypatch.setattr(cuda, "find_gpu", lambda: "")
    if "--require-isolation" in arguments:
        monkeypatch.setattr(Runner, "isolation", type("Holds", (), {"holds": True, "allowed": (), "layers": ()})())
    assert main([*arguments, "--cuda"]) == status
    caught = capsys.readouterr()
    assert caught.out == ""
    assert said in caught.err
    assert len(caught.err.splitlines()) == 1


def test_no_gpu_is_found_where_a_library_is_missing(monkeypatch):
    monkeypatch.setattr(cuda, "installed", lambda name: name != "triton")
    assert cuda.find_gpu() == ""


def test_a_process_on_the_gpu_is_told_to_compile_and_where_to_keep_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    made = cuda.variables("/kept")
    assert made == {
        "PATH": os.environ["PATH"],
        "CUDA_VISIBLE_DEVICES": "1",
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": "/kept",
    } | ({"CUDA_HOME": os.environ["CUDA_HOME"]} if "CUDA_HOME" in os.environ else {})


def test_no_interpreted_kernel_passes_for_a_compiled_one(monkeypatch):
    """A cell may set TRITON_INTERPRET before it decorates; what is launched on a GPU is compiled all the same."""
    from ledger.judge.launchers import kernels
    from ledger.kernels.interpret.mode import triton

    decorated = triton.jit(plain("absorb_heads_kernel"))
    assert not isinstance(decorated, triton.runtime.JITFunction)
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    compiled = kernels._kernel(decorated)
    assert isinstance(compiled, triton.runtime.JITFunction)
    assert compiled.arg_names == decorated.arg_names
    assert "tl.dot(b_query, b_weight" in compiled.src


def test_where_kernels_are_compiled_a_check_asks_for_the_interpreter(monkeypatch):
    monkeypatch.setattr("ledger.kernels.interpret.watched.INTERPRETED", False)
    result = run_here(exercises.get("absorb_heads_kernel"), plain("absorb_heads_kernel"), 7)
    assert result.verdict == "error"
    assert "set TRITON_INTERPRET=1" in result.message
