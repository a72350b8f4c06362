# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 0 Start here
#
# Latent attention is said to be cheap, multi-token prediction to be free, sparse attention to be fast. Each of these
# claims rests on a number, and often nobody says which one.
#
# **The question:** when you say that one way to compute something costs less than another, what did you compare? And
# how would you notice that you are wrong?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these four. If you get them right and know how to start the judge, go on to
# [lesson 1](../ch01_keys/keys.ipynb).
#
# 1. A matrix of 1 × 4,096 meets one of 4,096 × 4,096. How many multiply-adds, and how many FLOP?
# 2. The same product in float32: how many bytes have to move at least?
# 3. A machine does 100 GFLOP/s and moves 10 GB/s. Which of the two decides how long this product takes?
# 4. A check cell in a notebook says *passed*. What has it proved to somebody who does not trust you?
#
# <details><summary>Answers</summary>
#
# 1. 1 · 4,096 · 4,096 = 16,777,216 multiply-adds, and twice as many FLOP: a multiply-add is one multiplication and
#    one addition.
# 2. Both operands once and the result once: 4 · (4,096 + 16,777,216 + 4,096) = 67,141,632 bytes.
# 3. The bytes: 6.7 ms to move them, 0.34 ms to compute on them. The product does half a FLOP a byte, and this machine's
#    ridge is ten.
# 4. Nothing. The check ran in your own kernel, where you can change whatever you like. It is there to teach you.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## What are the three numbers?
#
# Every step of this course is described three times, by three sources that do not know of each other.
#
# * You **predict** with a formula, from shapes alone, before anything runs.
# * The machine **counts** while your own code runs: its multiply-adds, its bytes, its largest array.
# * The hardware **measures**: seconds.

# %%
from ledger.widgets.base import COLORS
from ledger.widgets.flow import Arrow, Box, Lane, flow

shapes, code = Box("shapes", "on paper"), Box("your code", "NumPy or torch")
machine = Box("this machine", "its clock")
exact, median = Box("multiply-adds, bytes", "exact"), Box("seconds", "a median")
lanes = [
    Lane("predict", [shapes, Arrow("formula"), exact], COLORS["predict"]),
    Lane("count", [code, Arrow("run, watched"), exact], COLORS["count"]),
    Lane("measure", [machine, Arrow("run, timed"), median], COLORS["measure"]),
]
flow("Three sources for one step", lanes)

# %% [markdown]
# The first two must agree **exactly**. If they do not, your formula describes another program than the one you wrote,
# and you have found a mistake in one of them.
#
# The third is in another unit, so it cannot agree. It has to be *explained* by the first two and by what the machine
# can do. The rest of this page does that once, for one matrix product.

# %% [markdown]
# ## How do you predict a product?
#
# One rule carries the whole course. A product of (rows × inner) and (inner × cols) makes rows · cols results, and each
# result takes `inner` multiply-adds:
#
# $$\text{multiply-adds} = \text{rows}\cdot\text{inner}\cdot\text{cols}$$
#
# The bytes follow from the shapes too. Both operands have to be read, and the result has to be written:
#
# $$\text{bytes} = \text{itemsize}\cdot(\text{rows}\cdot\text{inner} + \text{inner}\cdot\text{cols} +
# \text{rows}\cdot\text{cols})$$
#
# The example is one token's vector that meets one weight matrix, the most frequent thing that happens while a model
# writes text.

# %%
from ledger.account.attention import matmul_bytes, matmul_macs

rows, inner, cols = 1, 4096, 4096
macs = matmul_macs(rows, inner, cols)
moved = matmul_bytes(rows, inner, cols, itemsize=4)
print(f"predicted: {macs:,} multiply-adds = {2 * macs:,} FLOP")
print(f"predicted: {moved.read:,} bytes read, {moved.written:,} bytes written")
print(f"           {2 * macs / moved.total:.2f} FLOP a byte")

# %% [markdown]
# The last line is called the **arithmetic intensity**. It says how much work you get for each byte that you move, and
# it depends on nothing but the shapes.

# %% [markdown]
# ## Does the code do what the formula says?
#
# `count` runs a function once. It hands your arrays over in a thin wrapper that writes down each operation, and gives
# you the result and the ledger. The values do not change, and your code needs no edit.

# %%
import numpy as np
from ledger.count import count

rng = np.random.default_rng(0)
vector = rng.standard_normal((rows, inner), dtype=np.float32)
weight = rng.standard_normal((inner, cols), dtype=np.float32)

result, counts = count(np.matmul, vector, weight)
assert counts.macs == macs
assert (counts.bytes_read, counts.bytes_written) == (moved.read, moved.written)
print(f"counted:   {counts.macs:,} multiply-adds in {counts.products} product")
print(f"counted:   {counts.bytes_read:,} bytes read, {counts.bytes_written:,} bytes written")

# %% [markdown]
# The two `assert` lines are the point of the cell. The page would stop here if the formula and the code disagreed by a
# single multiply-add.
#
# These bytes are what the operation asks for. Whether they come from memory or from a cache is the machine's affair,
# and no count of a program can see it.

# %% [markdown]
# ## Why do the pages use one core?
#
# A product that is spread over all cores waits for the slowest of them. Its time then depends on what else runs on your
# machine. So each lesson that measures keeps NumPy's products to one core, in its first cell.

# %% [markdown]
# ## How long does it take?
#
# `time_call` repeats the call for a moment and gives the median.

# %%
from ledger.measure import time_call

timing = time_call(np.matmul, vector, weight)
print(f"measured:  {timing.median * 1e3:.2f} ms, the middle half of {timing.runs} runs took")
print(f"           {timing.low * 1e3:.2f} to {timing.high * 1e3:.2f} ms")

# %% [markdown]
# Is this fast? You cannot say yet. A duration means something only beside what the machine could have done.

# %% [markdown]
# ## What could this machine have done?
#
# Two ceilings matter: how many bytes a second move through memory, and how many FLOP a second a large product
# reaches. The course measures both where you are, and does not look them up.
#
# It times a large copy, a large read and a large product in turn, a few times over, and keeps the fastest of each. What
# another program takes from the machine for a moment then lowers no ceiling.

# %%
from ledger.measure import ceilings

ceiling = ceilings("float32", device="cpu")
ridge = ceiling.flops / ceiling.bandwidth
print(f"{ceiling.device}: {ceiling.bandwidth / 1e9:.1f} GB/s and {ceiling.flops / 1e9:.0f} GFLOP/s")
print(f"ridge: {ridge:.1f} FLOP a byte")

# %% [markdown]
# Their ratio is the **ridge**. A step with less intensity than the ridge waits for its bytes and is *bandwidth-bound*.
# A step with more waits for its arithmetic and is *compute-bound*.
#
# Together, the formula and the ceilings give a time that the step should not beat:
#
# $$t \ge \max\left(\frac{\text{FLOP}}{\text{FLOP/s}},\ \frac{\text{bytes}}{\text{bytes/s}}\right)$$


# %%
def least_seconds(rows, inner, cols):
    by_flops = 2 * matmul_macs(rows, inner, cols) / ceiling.flops
    by_bytes = matmul_bytes(rows, inner, cols, itemsize=4).total / ceiling.bandwidth
    return by_flops, by_bytes


by_flops, by_bytes = least_seconds(rows, inner, cols)
print(f"arithmetic alone: {by_flops * 1e3:6.2f} ms")
print(f"bytes alone:      {by_bytes * 1e3:6.2f} ms")
ratio = timing.median / max(by_flops, by_bytes)
print(f"measured:         {timing.median * 1e3:6.2f} ms, {ratio:.2f} × the larger")

# %% [markdown]
# The arithmetic is a small part of this. The bytes alone would fill most of the time. The intensity of this product lies
# far below the ridge, so the machine fetches the weight and multiplies in passing. (A browser's NumPy multiplies slowly,
# so its ridge is very low: there arithmetic may decide even for one row.)
#
# A factor somewhat above 1 is ordinary: a library's product does not read quite as fast as the best plain read. A factor
# below 1 says that a part of the matrix was still in a cache, or that the ceilings were measured while the machine was
# busy. Then run the cells again.

# %% [markdown]
# ## What happens with more rows?
#
# More rows means more multiply-adds on the same weight. The bytes hardly grow, so the intensity does. Predict what the
# time does, then look. (From here on the pages keep the lower quartile of the runs: what the machine does while nothing
# else wants its cores.)

# %%
from ledger.browser import IN_BROWSER

many = [1, 2, 4] if IN_BROWSER else [1, 4, 16, 64, 256]  # a browser's NumPy has no BLAS
bounds, times = [], []
for rows_now in many:
    block = rng.standard_normal((rows_now, inner), dtype=np.float32)
    times.append(time_call(np.matmul, block, weight, seconds=0.1).low)
    bounds.append(least_seconds(rows_now, inner, cols))
    total = matmul_bytes(rows_now, inner, cols, itemsize=4).total
    intensity = 2 * matmul_macs(rows_now, inner, cols) / total
    side, least = "bytes" if intensity < ridge else "arithmetic", max(bounds[-1])
    print(f"{rows_now:4} rows: {intensity:6.2f} FLOP a byte, bound by {side:10}", end=" ")
    print(
        f"{least * 1e3:7.2f} ms; measured {times[-1] * 1e3:7.2f} ms = {times[-1] / least:.2f} × the bound"
    )

# %%
from ledger.widgets.base import new_figure, plain_ticks

fig = new_figure(
    7.5, 3.8, alt="Time of a product over its rows: two predicted bounds and the measured times"
)
ax = fig.subplots()
ax.plot(
    many, [1e3 * f for f, _ in bounds], "--", color=COLORS["predict"], label="predicted: arithmetic alone"
)
ax.plot(many, [1e3 * b for _, b in bounds], ":", color=COLORS["predict"], label="predicted: bytes alone")
ax.plot(many, [1e3 * t for t in times], "D-", color=COLORS["measure"], label="measured")
ax.set(xscale="log", yscale="log", xlabel="rows", ylabel="ms")
ax.set_title(f"(rows × {inner:,}) · ({inner:,} × {cols:,})")
plain_ticks(ax.xaxis)
ax.legend()
fig

# %% [markdown]
# Read the two ends first. On the left the bound is flat, because the bytes of the weight are paid whether one row uses
# them or four. On the right it rises, because each further row costs its arithmetic. The measured points lie near it at
# both ends. (Where they jump up and down, something else is using the machine: run the cells again. In a browser, with
# its low ridge, the line may rise from the start.)

# %%
took, bound = times[-1] / times[0], max(bounds[-1]) / max(bounds[0])
print(f"{many[-1]} × the multiply-adds took {took:.0f} × the time; the bound says {bound:.0f} ×")

# %% [markdown]
# By the bound, further rows are free up to the ridge, and on a CPU's core that is a handful of rows. A GPU's ridge lies
# at hundreds of FLOP a byte, and there the free part is long.
#
# You will meet this picture in every chapter. Decode lives on its left as a rule, prefill on its right, and much of what
# serving engines do moves a step between them.
#
# In the middle the points lie above both bounds. A library multiplies a handful of rows less well than one row or many,
# for reasons inside of it. No formula of shapes knows that, and this is why you measure.

# %% [markdown]
# ## How do you work with the judge?
#
# Each lesson ends with exercises. You solve them in `practice/`, and you ask in two places whether you are right.

# %%
answer = Box("your answer", "practice/ch01_keys/keys.ipynb")
message, verdict = Box("a message", "in the notebook"), Box("a verdict", "in the terminal")
ways = [
    Lane("while you write", [answer, Arrow("check cell"), message], COLORS["count"]),
    Lane("when you are done", [answer, Arrow("python judge.py 1"), verdict], COLORS["predict"]),
]
flow("Two places to ask, one judgement", ways)

# %% [markdown]
# Both run the same cases through the same comparison. The inputs come from a seed that changes with every run, so an
# answer has to be right for all inputs, not for yesterday's.
#
# | You type in a terminal | or in a cell | and get |
# |---|---|---|
# | `python judge.py` | `%judge` | how far you are; what you changed is graded |
# | `python judge.py watch` | | each answer graded as soon as you save it |
# | `python judge.py 1` | `%judge 1` | a verdict for every exercise of chapter 1; an id works too |
# | `python judge.py hint absorb_query 2` | `%judge hint absorb_query 2` | the second of three hints |
# | `python judge.py list` | `%judge list` | the exercises, with what you have passed |
# | `python judge.py reset absorb_query` | `%judge reset absorb_query` | the empty answer back; yours is kept in a backup |
# | `python judge.py doctor` | | what this machine can run, and which protections hold |
# | `python judge.py answers save FILE` | `download_answers()`, in a browser | your answers and your own cells as one file |
# | `python judge.py answers load FILE` | `load_answers()`, in a browser | what such a file holds, put back into the notebooks |
#
# `%judge` works once a cell has imported `ledger`. In a browser, `%judge` alone also shows a link and a button that do
# what the last two do. (To call the two functions, import them: `from ledger import download_answers, load_answers`.) A
# browser keeps the notebooks that you have saved. When the site has a newer version of one, the first cell that imports
# `ledger` says so, and `from ledger import update; update()` brings your answers into it.
#
# A check cell looks like the last line below. The answer above it returns zeros of the right shape, so you see what a
# failure looks like.

# %%
from ledger import check


def absorb_query(q_nope, w_k):
    return np.zeros((q_nope.shape[0], w_k.shape[0]), dtype=np.result_type(q_nope, w_k))


check("absorb_query", absorb_query)

# %% [markdown]
# Read such a message from the top: the verdict, what was checked, the sizes and the seed, then how far off the values
# are. With the seed, `case("absorb_query", name, seed)` gives you the very inputs that failed.

# %% [markdown]
# ## What does a verdict mean?
#
# | Verdict | It means |
# |---|---|
# | `passed` | every case is right, and within the budget where the exercise has one |
# | `wrong` | a case came out different, or right by a route that costs more than the budget allows |
# | `error` | your code raised an exception |
# | `timeout`, `memory`, `output`, `crash` | your code ran too long, took too much memory, printed too much, or died |
# | `todo` | you have not started: the cell still says where to write |
# | `missing` | the answer's cell or function is gone |
# | `skipped` | this machine cannot run it, for want of torch or a GPU |
# | `judge_error` | the judge failed, not you |
#
# The points of an answer are its exercise's points times the share of its cases that are right, and only `passed` counts
# as solved. `wrong` includes right values by the wrong route, since what a route costs is the subject of this course: the
# judge counts your code while it runs, as `count` did above.

# %% [markdown]
# ## What does a check protect?
#
# A check in a notebook protects nothing. It runs in your kernel, beside your variables, and you could overwrite it. Use
# it as you would use a compiler's message.
#
# `python judge.py` runs your answer in a process of its own. The right values stay outside of it, and the comparison is
# done where your code cannot reach. Time, memory and output are limited, and on systems that offer it, files and the
# network are closed as well. `python judge.py doctor` prints which of these layers hold on your machine. On a computer
# `%judge` starts the same program. In a browser there is no other process: there it grades in your kernel, and protects
# as little as a check.
#
# So a verdict from the command line says more than one from a cell, and neither says that you understood. For that,
# each lesson ends with *how to explain it*.

# %% [markdown]
# ## What can this machine run?

# %%
from IPython.display import Markdown
from ledger.measure import describe_machine

lines = [f"| {what} | {state} |" for what, state in describe_machine()]
Markdown("\n".join(["| part | state |", "|---|---|", *lines]))

# %% [markdown]
# Where a cell needs what is missing here, it says so in a sentence and the page goes on. An exercise that needs it is
# `skipped`, never failed.

# %% [markdown]
# ## What do the three numbers do as the sizes change?
#
# Move the sliders. The predicted point slides along the ceiling, the measured one hangs below it. Find a shape that
# is bandwidth-bound and one that is compute-bound. Then make the product tiny, and see what the formula does not know:
# the cost of a call that does hardly anything.

# %%
from ledger.widgets.start import ThreeNumbers

ThreeNumbers(ceilings=ceiling).show()

# %% [markdown]
# The figure counts and times each product when you move a slider. A measured point above the line means that the
# operands fit in a cache, which is faster than the memory whose bandwidth was measured.

# %% [markdown]
# ## What do engines do with these numbers?
#
# They choose kernels and batch sizes by them. An engine gathers requests into a batch because they share the weights:
# further rows are nearly free on the left of the picture.
#
# Requests do not share a cache, so for attention a batch brings no such gift. There only heads that share a key help.
#
# An engine cuts prompts into chunks so that one step is not all arithmetic, and runs decodes beside them in the same
# step.
#
# A GPU has the same two ceilings with other values. These come from datasheets, so they are limits that no kernel
# quite reaches.

# %%
from ledger.machines import MACHINES

machines = [("here", ceiling.bandwidth, ceiling.flops)]
machines += [(gpu.name, gpu.bandwidth, gpu.flops["bf16"]) for gpu in MACHINES.values()]
print("        TB/s    TFLOP/s   ridge, FLOP a byte")
for name, bandwidth, flops in machines:
    print(f"{name:5} {bandwidth / 1e12:6.2f} {flops / 1e12:10.2f} {flops / bandwidth:20.1f}")

# %% [markdown]
# Look at the last column. With a weight in bf16, a product of few rows does about one FLOP a byte for each of
# its rows. So on such a GPU it takes well over a hundred rows before the arithmetic is what you wait for.
#
# The matrix here is a weight. A cache is read in the same way, and how often each of its bytes is used depends on how
# many heads share a key:

# %%
from ledger.account.attention import family
from ledger.models import model

h200 = MACHINES["H200"]
for scheme in family(model("DeepSeek-V3")):
    side = "bytes" if scheme.intensity < h200.ridge() else "arithmetic"
    print(f"{scheme.name}: {scheme.intensity:6.1f} FLOP a cached byte, bound by {side} on an {h200.name}")

# %% [markdown]
# MHA keeps a key for every head, GQA one for a group of heads, MQA one for all. MLA keeps one latent, from which every
# head makes a key of its own. Lesson 1 starts there.

# %% [markdown]
# ## Where does the course go?
#
# | Chapter | Its question |
# |---|---|
# | 0 start here | what does it mean that something costs less? |
# | 1 [keys](../ch01_keys/keys.ipynb) | how can you score a cached token without rebuilding its key? |
# | 2 [many heads, one latent](../ch02_heads/heads.ipynb) | how does that go for all heads at once? |
# | 3 [values](../ch03_values/values.ipynb) | why is the same trick right after the softmax? |
# | 4 [RoPE does not absorb](../ch04_rope/rope.ipynb) | which part of a key refuses, and why? |
# | 5 [cost and crossover](../ch05_crossover/crossover.ipynb) | from how many new tokens on is rebuilding cheaper? |
# | 6 [cache and capacity](../ch06_cache/cache.ipynb) | how many requests fit? |
# | 7 [a decode kernel](../ch07_decode_kernel/decode_kernel.ipynb) | how does one pass over the cache do all of it? |
# | 8 [multi-token prediction](../ch08_mtp/drafts.ipynb) | when do drafts pay? |
# | 9 [expert parallelism](../ch09_experts/experts.ipynb) | what does it cost to send tokens to experts? |
# | 10 [sparse attention: DSA](../ch10_dsa/indexer.ipynb) | what does it cost to find the tokens worth reading? |
# | 11 [sparse attention: NSA](../ch11_nsa/nsa.ipynb) | how do three branches share one context? |
# | 12 the engine | how does all of it share one GPU? |
#
# Chapters that have a link are in this version. Each one builds on those before it.

# %% [markdown]
# ## How to explain it
#
# *"I predict a step's cost from its shapes, I count it in the running code, and these two must be equal. Then I time
# it. The time is at least the FLOP over the machine's FLOP/s and at least the bytes over its bytes/s. Which of the two
# is larger tells me what to improve, and what is left over is what I have not understood yet."*

# %% [markdown]
# ## Summary
#
# * A product costs rows · inner · cols multiply-adds, twice as many FLOP, and at least its operands and its result in
#   bytes.
# * Predicted and counted are equal to the last digit, or one of them is wrong.
# * Measured time is explained by two ceilings. The arithmetic intensity, against the ridge, says by which.
# * A check cell teaches. The command line judges.

# %% [markdown]
# ## Exercises to do next
#
# Go through [lesson 1](../ch01_keys/keys.ipynb), then open its
# [practice notebook](../../practice/ch01_keys/keys.ipynb). If you want to see the judge at work now, run
#
# ```
# python judge.py list
# python judge.py 1
# ```
#
# in the course's folder, or `%judge 1` in a cell. Everything will be `todo`, and that is the right verdict for today.
