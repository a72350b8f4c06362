# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4 RoPE does not absorb
#
# Keys were absorbed into the query and values into the output. One part of every score is left: the 64 numbers beside
# the latent that say *where* a token stands. No engine absorbs them.
#
# **The question:** what is different about position, why is it kept apart from the content, and what do the tensors of
# a whole decode step look like in the end?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these five. If all of them match, go to the exercises at the end.
#
# 1. A key at position $n$ is rotated by $R_n$. Why can no fixed matrix on the query do the same job?
# 2. Query and key are both rotated. Which single rotation does their score hold?
# 3. Suppose that the content key were rotated too. What would stand between query and latent, and what would that cost
#    in a decode step?
# 4. Write down the query, the key and the value of an absorbed decode step at DeepSeek-V3's widths, with shapes. Which
#    part has been through the RMSNorm?
# 5. The absorbed query is 576 wide. Is the softmax scale $576^{-1/2}$?
#
# <details><summary>Answers</summary>
#
# 1. $R_n$ changes with $n$. A matrix that is right at one position is wrong at the next one.
# 2. $R_m^\top R_n = R_{n-m}$: the score knows how far apart the two stand, and nothing else about positions.
# 3. $R_{n-m}$ would stand between the query and $W_K$. There would be another absorbed query for each distance, which
#    costs as much as rebuilding the keys.
# 4. $Q = [\,q_\text{nope} W_K^\top \mid R\,q_\text{rope}\,]$, (128, 512 + 64). $K = [\,\text{RMSNorm}(c) \mid
#    R\,k_\text{rope}\,]$, (1, 512 + 64), and $V = \text{RMSNorm}(c)$, (1, 512), both shared by all heads. The norm
#    sees the latent only.
# 5. No. The score is that of a query and a key of 128 + 64, so it is $192^{-1/2}$, times YaRN's factor: 0.1352.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## What does RoPE do to a vector?
#
# It takes features in pairs and turns each pair by an angle that grows with the token's position:
#
# $$\begin{pmatrix} a \\ b \end{pmatrix} \;\to\; \begin{pmatrix} \cos\varphi & -\sin\varphi \\ \sin\varphi & \cos\varphi
# \end{pmatrix} \begin{pmatrix} a \\ b \end{pmatrix} \qquad \varphi = n\,\theta^{-2i/r}$$
#
# Here $n$ is the position, $i$ the number of the pair, $r$ the width, and $\theta$ a number that the model chooses
# once. At width 2 there is one pair, $i = 0$, and it turns by one radian a token. Turn the key (1, 0) by hand before
# you run the cell: you need the cosine and the sine of 0, 1, 2 and 3.

# %%
import numpy as np


def R(n):
    return np.array([[np.cos(n), -np.sin(n)], [np.sin(n), np.cos(n)]])


q_rope, k_rope = np.array([1.0, 0.0]), np.array([1.0, 0.0])
for n in range(4):
    print(
        f"position {n}: key {np.round(R(n) @ k_rope, 4)}   score with (1, 0): {q_rope @ R(n) @ k_rope:7.4f}"
    )

# %% [markdown]
# One key, four scores. (The query is left alone for the moment. It stands at one position and is turned once; what
# varies in a cache is the key's position.)
#
# A real rope part has many pairs, and each is slower than the one before. The cell shows how many tokens a pair takes
# for a whole turn.

# %%
from ledger.models import MODELS, model
from ledger.widgets.base import COLORS, new_figure, plain_ticks

v3 = model("DeepSeek-V3")
pair = np.arange(v3.rope_dim // 2)
fig = new_figure(7.5, 3.0, alt="Tokens for a whole turn of each pair, for three models, on a log scale")
ax = fig.subplots()
for name, color in zip(("DeepSeek-V3", "Kimi-K2.5", "GLM-5.2"), ("value", "rope", "latent"), strict=True):
    base = model(name).rope_theta
    tokens = 2 * np.pi * base ** (2 * pair / v3.rope_dim)
    ax.semilogy(pair, tokens, "o-", color=COLORS[color], markersize=3, label=f"{name}, θ = {base:,.0f}")
    print(f"{name:12} a whole turn takes {tokens[0]:.2f} tokens in pair 0, {tokens[-1]:,.0f} in the last")
ax.set(xlabel=f"pair, of {len(pair)}", ylabel="tokens for a whole turn")
ax.legend()
fig

# %% [markdown]
# The fast pairs tell neighbours apart, the slow ones tell the beginning of a long document from its end. A larger
# $\theta$ slows the later pairs down for longer contexts. YaRN does so afterwards, to a model that is trained: it makes
# the slow pairs slower still, up to a factor $f$, and leaves the fast ones alone. DeepSeek-V3 and Kimi-K2.5 are served
# with it. The angles on this page are the plain ones, without YaRN, except where it is named.

# %% [markdown]
# ## First way to see it: is there one matrix, by hand?
#
# Absorbing worked because one and the same matrix stood between the query and *every* cached latent:
#
# $$q\,(c_t W_K)^\top = (q\,W_K^\top)\,c_t^\top \qquad\text{the same } W_K \text{ for all } t$$
#
# For the rope part the score is $q \cdot (R_n k)$. To move the matrix to the query you need one $M$ with
# $q \cdot (R_n k) = q \cdot (M k)$ for every position in the cache, whatever $q$ and $k$ are. Position 0 says that $M$
# is the identity, because $R_0$ is. Position 1 says that it is not.

# %%
for n in (0, 1):
    wanted, got = q_rope @ R(n) @ k_rope, q_rope @ np.eye(2) @ k_rope
    print(f"position {n}: score {wanted:.4f}, with M = identity {got:.4f}", end="   ")
    print("right" if np.isclose(wanted, got) else "wrong")

# %% [markdown]
# Two positions are enough, and the argument is finished: $M$ cannot be two matrices.
#
# You could object that being wrong a little may not matter. So how wrong is the best $M$?

# %% [markdown]
# ## Second way: how good is the best single matrix?
#
# Let $M$ be any matrix, not only a rotation, and let it come as near as it can to all rotations of the cache at once,
# in least squares. What is left over, relative to the rotations themselves, is
#
# $$\rho = \min_M \sqrt{\frac{\sum_p \lVert R_p - M \rVert^2}{\sum_p \lVert R_p\rVert^2}}$$
#
# Every element of $M$ can be chosen by itself, so each is the mean of the same element of all $R_p$. **The best $M$ is
# the mean of the rotations.** At width 2, with positions 0 and 1, work out what is left: two unit arrows one radian
# apart, and their mean halfway between them.

# %%
turns = np.stack([R(p).ravel() for p in (0, 1)])  # one row a position, one column an element
equations = np.ones((len(turns), 1))  # "one M for all": the same unknown in each row
best, *_ = np.linalg.lstsq(equations, turns, rcond=None)
left = np.sqrt(np.sum((turns - best) ** 2) / np.sum(turns**2))
print("least squares:   ", np.round(best[0], 4))
print("mean of R_0, R_1:", np.round(turns.mean(0), 4))
print(f"left over {left:.4f}, and sin(½) is {np.sin(0.5):.4f}")
assert np.allclose(best[0], turns.mean(0))

# %% [markdown]
# Now at the real width, with the plain angles, without YaRN. Predict before you run: does the residual fall when more
# positions are in the cache, or does it rise?

# %%
from ledger.reference.rope import rotation, single_matrix_residual
from ledger.widgets import rope as pictures

r, theta = v3.rope_dim, v3.rope_theta
for tokens in (1, 2, 8):
    print(f"{tokens:7,} positions: {single_matrix_residual(range(tokens), r, theta):.6f} left over")
for tokens in (4096, 131072):  # the same by a sum in closed form, without building the matrices
    print(f"{tokens:7,} positions: {pictures.residual_over(r, theta, [tokens])[0]:.6f} left over")
unrotated = pictures.residual_over(r, None, [4096])[0]
print(f"without any rotation (NoPE), 4,096 positions: {unrotated:.6f} left over")

# %%
shown = [pictures.blocks(np.exp(1j * p * theta ** (-2 * pair / r))[::4]) for p in (0, 1, 7)]
mean = pictures.blocks(pictures.mean_turn(r, theta, 4096)[::4])
titles = ["R at n = 0", "R at n = 1", "R at n = 7", "best M, 4,096 positions"]
pictures.matrix_panels(
    [*shown, mean], titles, "Rotations at positions 0, 1 and 7, and their mean over 4,096"
)

# %% [markdown]
# Every fourth pair is shown, from the fastest (top left) to the slowest. The mean of many turns of a fast pair is
# nothing at all: its arrows point everywhere. What survives of $M$ are the slow pairs, which have hardly moved.
#
# So the residual rises. In a short cache one matrix may pass for a poor approximation. In a long one almost nothing of
# the rotation is left in it. And without rotation it is zero at any length: then one matrix *is* right for all.
#
# YaRN's slower pairs delay this, but they do not stop it. Here are the angles with which DeepSeek-V3 is served:

# %%
from ledger.reference.rope import frequencies, yarn_frequencies

speeds = {"plain": frequencies(r, theta), "YaRN": yarn_frequencies(r, theta, v3.yarn_factor)}
for name, steps in speeds.items():  # radians a token, one a pair
    print(f"{name:5} last pair: {2 * np.pi / steps[-1]:9,.0f} tokens for a whole turn; left over:", end="")
    for tokens in (4096, 131072):
        means = np.array([np.exp(1j * step * np.arange(tokens)).mean() for step in steps])
        rho = np.sqrt(1 - np.mean(np.abs(means) ** 2))
        print(f"   {rho:.4f} at {tokens:,} positions", end="")
    print()

# %% [markdown]
# What does this do to scores? If queries and keys have no preferred direction, the error of a score comes out as
# exactly $\rho$, relative to the size of a score. That is a **prediction**; here is the **measured** error.

# %%
rng = np.random.default_rng(4)
C = 4096
turn = np.exp(1j * np.outer(np.arange(C), theta ** (-2 * pair / r)))  # [t, pair], each one complex number
q, k = (rng.standard_normal((rows, r)).view(complex) for rows in (200, C))
exact = (q.conj() @ (k * turn).T).real  # [query, t]
single = (q.conj() @ (k * turn.mean(0)).T).real
error = np.sqrt(np.mean((exact - single) ** 2) / np.mean(exact**2))
rho = pictures.residual_over(r, theta, [C])[0]
print(f"{C:,} positions, predicted {rho:.3f}, measured {error:.3f}")
print(f"of the scores' variance M keeps 1 − ρ² = {1 - rho**2:.0%}")

# %%
fig = new_figure(7.5, 3.4, alt="Residual of the best single matrix, and rope scores made with it")
lines, cloud = fig.subplots(1, 2, width_ratios=[1.5, 1])
lengths, most = 2 ** np.arange(18), 36
for name, color in (("DeepSeek-V3", "value"), ("GLM-5.2", "latent"), ("Kimi-K3", "neutral")):
    curve = pictures.residual_over(r, model(name).rope_theta, lengths)
    lines.semilogx(lengths, curve, color=COLORS[color], label=name)
lines.set(xlabel="cached tokens", ylabel="left over by the best M", ylim=(-0.04, 1.04))
lines.legend()
plain_ticks(lines.xaxis)
cloud.plot(exact.ravel()[::400], single.ravel()[::400], ".", color=COLORS["rope"], markersize=3)
cloud.axline((0, 0), slope=1, color=COLORS["neutral"], linewidth=1)
cloud.set(xlim=(-most, most), ylim=(-most, most), aspect="equal", title=f"{C:,} cached tokens")
cloud.set(xlabel="rope score", ylabel="with the best single M")
fig

# %% [markdown]
# On the right a useful $M$ would put the points on the grey diagonal. They make a flat cloud: the scores that $M$
# gives are too small, and know little of the true ones.
#
# On the left the grey line is a model that rotates nothing, and it lies on the axis. Kimi-K3 keeps its 64 extra
# features and leaves them unrotated. The order of its tokens comes from the other layers, which have linear attention.
# There the whole argument of this lesson falls away.

# %% [markdown]
# ## Third way: what does a score hold?
#
# In truth both sides are rotated, the query at its position $m$ and the key at its position $n$. Put the transpose
# where it belongs:
#
# $$(R_m q) \cdot (R_n k) = q^\top R_m^\top R_n\, k = q^\top R_{n-m}\, k$$
#
# A transposed rotation turns back. Turning back by $m$ and forward by $n$ is turning by $n - m$. Check that at the
# model's width, where each pair turns at its own speed:

# %%
for m, n in ((0, 3), (10, 13), (4093, 4096), (13, 10)):
    between = rotation(m, r, theta).T @ rotation(n, r, theta)
    print(
        f"m {m:5,}, n {n:5,}: R_mᵀR_n is R_{n - m:<3}",
        np.allclose(between, rotation(n - m, r, theta)),
        end="   ",
    )
    print(f"its first row starts {between[0, 0]:7.4f} {between[0, 1]:7.4f}")

# %% [markdown]
# The first three rows are one matrix, because their distance is one. The last one turns the other way.
#
# That is what makes RoPE useful, and it is what forbids absorbing: **the matrix between query and key is a function of
# their distance.** One query meets a cache of $C$ tokens at $C$ different distances, so through $C$ different
# matrices.

# %%
q, k = rng.standard_normal((2, r))
distance = np.arange(-200, 1)
fig = new_figure(
    7.5, 2.7, alt="The rope score of one query and one key over their distance, from two positions"
)
ax = fig.subplots()
for m, style, color in ((200, "-", "latent"), (90_000, ":", "value")):
    turned = np.array([q @ rotation(m, r, theta).T @ rotation(m + d, r, theta) @ k for d in distance])
    ax.plot(distance, turned, style, color=COLORS[color], label=f"query at {m:,}", linewidth=2.5)
ax.set(xlabel="distance n − m, tokens", ylabel="rope score")
ax.legend()
fig

# %% [markdown]
# The two curves lie on each other, at position 200 as at 90,000. A single matrix would have to make this a horizontal
# line.

# %% [markdown]
# ## Then why not rotate the content key as well?
#
# Models without latent attention rotate their whole keys. Why does latent attention keep 64 features apart for it?
# Suppose it did not: no rope part, and the content key $c_n W_K$ turned by its position. With the query at $m$ and the
# token at $n$, the score would be
#
# $$(R_m\, q) \cdot (R_n\, W_K^\top c_n) = q^\top R_{n-m}\, W_K^\top c_n = \big(\underbrace{q^\top R_{n-m}\,W_K^\top}_{
# \text{another one for each } n-m}\big)\, c_n$$
#
# (Here $q$ and $c$ are columns, and $W_K^\top$ is (nope, latent).) The rotation stands *between* query and $W_K$. Here
# is the toy of lesson 1 with that rotation: three cached tokens at positions 0, 1, 2, and the query at position 2.

# %%
toy_q = np.array([1.0, 0.0])
toy_w_k = np.array([[1.0, 0], [0, 2], [1, 1]])  # [c, n]
for t, c in enumerate(np.eye(3)):
    absorbed = R(t - 2).T @ toy_q @ toy_w_k.T  # the query that meets token t
    score = (R(2) @ toy_q) @ (R(t) @ (c @ toy_w_k))
    print(f"token {t}, distance {t - 2:2}: absorbed query {np.round(absorbed, 3)}, score {score:6.3f}")
    assert np.isclose(absorbed @ c, score)
print(f"without rotation, all tokens:  absorbed query {toy_q @ toy_w_k.T}")

# %% [markdown]
# The absorb is still right, but every cached token needs an absorbed query of its own. What made absorbing cheap is
# gone: the query went through $W_K$ once.
#
# Here are the ways out, for one head, one new token and $C$ cached ones. **Predict** the multiply-adds of each, with
# $d_n$ for the content key's width (nope), $L$ for the latent's and $r$ for the decoupled part's.
#
# | | what happens | multiply-adds | cached values |
# |---|---|---|---|
# | absorb for each distance | turn the query $C$ times, absorb it $C$ times | $2C d_n + C d_n L + C L$ | $L$ |
# | rebuild and turn keys | all keys from latents, turn them | $C L d_n + 2C d_n + C d_n$ | $L$ |
# | cache turned keys | as MHA does | $C d_n$ | $d_n$ a head |
# | **decouple** | absorb once; $r$ features beside the latent | $d_n L + C (L + r)$ | $L + r$ |
#
# (Turning takes two multiplications a feature. A token's own rotations are left out in the last two rows.)

# %%
nope, L, heads = v3.nope_dim, v3.latent_dim, v3.num_heads
options = {
    "absorb for each distance": (2 * C * nope + C * nope * L + C * L, L),
    "rebuild and turn keys": (C * L * nope + 2 * C * nope + C * nope, L),
    "cache turned keys": (C * nope, heads * nope),
    "decouple": (nope * L + C * (L + r), L + r),
}
dear, cheap = (options[way][0] for way in ("absorb for each distance", "decouple"))
print(f"rotating the content key would cost {dear / cheap:.0f} times the multiply-adds of decoupling")

# %%
fig = new_figure(8.4, 2.6, alt="Four ways to use RoPE: multiply-adds of the scores, and cached values")
axes = fig.subplots(1, 2, sharey=True)
names = list(options)[::-1]
work = f"M multiply-adds, {heads} heads, {C:,} cached"
panels = [(work, lambda way: heads * options[way][0] / 1e6, (20, 3e5))]
panels += [("values a token for keys", lambda way: options[way][1], (200, 1e5))]
for ax, (label, amount, limits) in zip(axes, panels, strict=True):
    for place, name in enumerate(names):
        color = COLORS["absorb" if name == "decouple" else "neutral"]
        ax.plot(amount(name), place, "o", color=color, markersize=9)
        ax.annotate(f"{amount(name):,.0f}", (amount(name), place), (8, -3), textcoords="offset points")
    ax.set(xscale="log", xlabel=label, xlim=limits, ylim=(-0.5, len(names) - 0.5))
    plain_ticks(ax.xaxis)
axes[0].set_yticks(range(len(names)), names)
fig

# %% [markdown]
# The first two rows cost the same but for small change: absorbing once for each token is rebuilding. The third is
# fast, and is the cache that latent attention set out to avoid. Only the last is small in both columns, for $r$ more
# cached values and $r$ more multiply-adds a score.
#
# So **decoupled** means: position gets features of its own, made from the hidden state and not from the latent, one
# rope key for all heads. Content stays free of position, and absorbs.
#
# Does real code cost what the table says? **Count** all rows but the third for two heads, with tables of cosines made
# beforehand, as engines do.

# %%
from ledger.browser import IN_BROWSER
from ledger.count import count

few, short_cache = 2, 128 if IN_BROWSER else C
some_w_kc = rng.standard_normal((few, nope, L), dtype=np.float32)  # [h, n, c]
some_entries = rng.standard_normal((short_cache, L + r), dtype=np.float32)  # [t, c + r], ready to meet
some_q = rng.standard_normal((few, nope + r), dtype=np.float32)  # [h, n + r], a token's, ready rotated
distances = np.arange(short_cache) - (short_cache - 1)
angles = np.outer(distances, theta ** (-np.arange(0, nope, 2) / nope))
cos, sin = np.cos(angles).astype("f4"), np.sin(angles).astype("f4")


def rotate(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(*a.shape[:-1], -1)


# %%
def absorb_for_each_distance(q_nope, w_kc, latents, cos, sin):
    back = rotate(np.repeat(q_nope[:, None], len(latents), axis=1), cos, -sin)  # [h, t, n]
    return np.einsum("htc,tc->ht", back @ w_kc, latents)


def decouple(q, w_kc, entries):
    content = (q[:, None, : w_kc.shape[1]] @ w_kc)[:, 0]  # [h, c]
    return np.concatenate([content, q[:, w_kc.shape[1] :]], axis=-1) @ entries.T


def rebuild_and_turn(q_nope, w_kc, latents, cos, sin):
    keys = rotate(latents @ w_kc.swapaxes(1, 2), cos, sin)  # [h, t, n]
    return (keys @ q_nope[:, :, None])[:, :, 0]


# %%
turned = (some_q[:, :nope], some_w_kc, some_entries[:, :L], cos, sin)
ways = {absorb_for_each_distance: turned, rebuild_and_turn: turned}
ways[decouple] = (some_q, some_w_kc, some_entries)
t = short_cache
formulas = {absorb_for_each_distance: 2 * t * nope + t * nope * L + t * L}
formulas |= {rebuild_and_turn: t * L * nope + 2 * t * nope + t * nope, decouple: nope * L + t * (L + r)}
results = {}
for way, args in ways.items():
    results[way], counts = count(way, *args)
    print(f"{way.__name__:25} predicted {few * formulas[way]:12,}   counted {counts.macs:12,}")
    assert counts.macs == few * formulas[way]
assert np.allclose(results[absorb_for_each_distance], results[rebuild_and_turn], atol=0.1)

# %%
from functools import partial

from ledger.measure import time_pairs

timings = time_pairs({way.__name__: partial(way, *args) for way, args in ways.items()}, seconds=0.3)
for way in ways:
    more, took = formulas[way] / formulas[decouple], timings[way.__name__].low
    print(f"{way.__name__:25} {took * 1e3:8.3f} ms   {more:6.0f} × the multiply-adds,", end="")
    print(f" {took / timings['decouple'].low:6.0f} × the time")

# %% [markdown]
# Predicted and counted agree to the last multiply-add. The **measured** ratio is usually the smaller one, since the
# cheap way waits for the entries to come in and the dear ones keep the multipliers busy (lesson 1). It is the same
# verdict all the same: rotating what is absorbed takes back what absorbing gave.

# %% [markdown]
# ## How do MHA, GQA and MQA do it?
#
# They have no such problem. They cache keys, so they rotate each key once, when it is written, and nothing ever has to
# pass through the rotation again. What they cache a token at DeepSeek-V3's widths, if a key had the same two parts:

# %%
from ledger.account.attention import family

print("       key heads   rotated values cached   other values cached")
for scheme in family(v3)[:-1]:
    rotated = scheme.kv_heads * v3.rope_dim
    print(f"{scheme.name:5} {scheme.kv_heads:10} {rotated:23,} {scheme.cache_values - rotated:21,}")
print(f"{'MLA':5} {1:10} {v3.rope_dim:23,} {v3.latent_dim:21,}")
print(f"\nshare of MLA's entry that holds position: {v3.rope_dim / v3.cache_dim:.1%}")

# %% [markdown]
# In its rope part MLA *is* MQA: one rotary key for all heads. In its content part each head sees a key of its own.

# %% [markdown]
# ## What do engines store, and what meets it?
#
# A cache entry has two parts that are made ready in two ways:
#
# $$K = [\ \text{RMSNorm}(c)\ |\ R_n\,k_\text{rope}\ ] \qquad Q_h = [\ q_{\text{nope},h}\, W_{K,h}^\top\ |\ R_m\,
# q_{\text{rope},h}\ ] \qquad V = \text{RMSNorm}(c)$$
#
# The norm sees the latent alone. The rope key is rotated before it is stored and never touched again: no norm, no
# up-projection. One dot product over the whole width then adds content and position, because a dot product over two
# parts side by side is the sum of both. And the value *is* the first part of the key.

# %%
from ledger.widgets.flow import Arrow, Box, Lane, flow
from ledger.widgets.keys import short

v, wide = v3.value_dim, f"({L} + {r})"
query = [Box("query", f"{heads} × ({nope} + {r})"), Arrow("absorb |\nrotate", short(heads * nope * L))]
query += [Box("Q", f"{heads} × {wide}"), Arrow("· Kᵀ,\nsoftmax", short(heads * C * (L + r)))]
query += [Box("weights", (heads, C)), Arrow("· V", short(heads * C * L)), Box("mixed", (heads, L))]
query += [Arrow("· W_V", short(heads * L * v)), Box("output", (heads, v))]
entry = [Box("c | k_rope", f"1 × {wide}"), Arrow("RMSNorm |\nrotate", f"{2 * (L + r):,} bytes")]
entry += [Box("K", f"1 × {wide}"), Arrow("its first\npart"), Box("V", (1, L))]
lanes = [Lane("a new token", query, COLORS["absorb"]), Lane("a cached token", entry, COLORS["latent"])]
flow(f"One decode step, {v3.name}, {C:,} cached (numbers: multiply-adds)", lanes)

# %% [markdown]
# Here is all of it in four short functions. The widths are the model's own, with all heads (fewer in a browser).

# %%
H, S, T = 8 if IN_BROWSER else heads, 3, 12 if IN_BROWSER else 32  # heads, new tokens, cached tokens
made = dict(q_nope=(S, H, nope), q_rope=(S, H, r), latent=(T, L), k_rope=(T, r))
x = {name: rng.standard_normal(shape) for name, shape in made.items()}
x["latent"] *= 3  # raw latents have no particular size: the norm gives them one
w_kc, w_vc = rng.standard_normal((H, nope, L)) / nope**0.5, rng.standard_normal((H, L, v)) / L**0.5
norm_weight, eps = 1 + 0.2 * rng.standard_normal(L), 1e-6
keys_at = np.arange(T)
queries_at = keys_at[-S:]  # the new tokens are the last of the cached ones


def tables(positions):
    angles = np.outer(positions, theta ** (-np.arange(0, r, 2) / r))
    return np.cos(angles), np.sin(angles)


# %%
def rms_norm(c):
    return c / np.sqrt(np.mean(c * c, axis=-1, keepdims=True) + eps) * norm_weight


def entries(latent, k_rope):
    return np.concatenate([rms_norm(latent), rotate(k_rope, *tables(keys_at))], axis=-1)


def queries(q_nope, q_rope):
    content = np.einsum("shn,hnc->shc", q_nope, w_kc)
    cos, sin = tables(queries_at)
    return np.concatenate([content, rotate(q_rope, cos[:, None], sin[:, None])], axis=-1)


# %%
def attend(Q, K, scale, visible=True):
    scores = scale * np.einsum("shf,tf->hst", Q, K)
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("hst,tc->hsc", weights, K[:, :L])  # V is the first part of K
    return np.einsum("hsc,hcv->shv", mixed, w_vc)


Q, K = queries(x["q_nope"], x["q_rope"]), entries(x["latent"], x["k_rope"])
print(f"Q {Q.shape}   K {K.shape}   V {K[:, :L].shape}   output {attend(Q, K, 0.1).shape}")

# %% [markdown]
# Is it right? Hold it against a route that shares no step with it: keys and values built for every head, *unrotated*
# rope parts, and between them the rotation of the distance. Queries and keys keep a causal mask, as in a prefill.

# %%
from ledger.reference.layer import attend_materialized
from ledger.reference.rope import softmax_scale

scale = softmax_scale(nope, r, v3.yarn_factor, v3.mscale_all_dim)
causal = keys_at <= queries_at[:, None]  # [s, t]
raw_parts = x["q_nope"], x["q_rope"], rms_norm(x["latent"]), x["k_rope"]
expected = attend_materialized(*raw_parts, w_kc, w_vc, scale, causal=True, theta=theta)
error = np.abs(attend(Q, K, scale, causal) - expected).max() / np.abs(expected).max()
print(f"{H} heads, {S} new tokens, {T} cached: largest difference {error:.1e} of the largest output")
assert error < 1e-10

# %% [markdown]
# In float64 nothing is left but rounding. The prefill with its mask and a decode token by token are also the same
# computation: a token that is not in the cache yet is one that the mask hides.

# %%
for s in range(S):
    step = attend(Q[s : s + 1], K[: queries_at[s] + 1], scale)  # the cache as it was at that time
    assert np.allclose(step[0], expected[s], rtol=0, atol=1e-10 * np.abs(expected).max())
print(f"{S} decode steps give the {S} rows of the causal prefill")

# %% [markdown]
# An engine steps many requests at once, each with its own number of new and of cached tokens, in arrays as long as the
# longest. Behind a length the arrays may hold anything; here it is NaN.

# %%
from ledger.reference.layer import decode_absorbed_batch

new = np.array([3, 1, 2, 0])
cached = T - S + new  # a request's new tokens are the last of its cached ones
batch_q, batch_k = (np.full((len(new), *a.shape), np.nan) for a in (Q, K))
for b in range(len(new)):
    batch_q[b, : new[b]], batch_k[b, : cached[b]] = Q[: new[b]], K[: cached[b]]
outputs = decode_absorbed_batch(batch_q, batch_k, new, cached, w_vc, L, scale)
for output, rows in zip(outputs, new, strict=True):
    assert np.allclose(output[:rows], expected[:rows], rtol=0, atol=1e-10 * np.abs(expected).max())
    assert not output[rows:].any()
print(f"new {new.tolist()} of cached {cached.tolist()}: each request's rows as by itself, padding gives 0")

# %% [markdown]
# ## What happens when one detail is wrong?
#
# None of the usual slips raises an error, because all shapes fit. Each of these changes one thing. Guess which is
# worst.


# %%
def mixed_layouts(x, cos, sin):  # half-split on interleaved features
    a, b = x[..., : r // 2], x[..., r // 2 :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def norm_over_all(K):
    whole = np.concatenate([x["latent"], K[:, L:]], axis=-1)
    whole = whole / np.sqrt(np.mean(whole * whole, axis=-1, keepdims=True) + eps)
    return np.concatenate([whole[:, :L] * norm_weight, whole[:, L:]], axis=-1)


raw = np.concatenate([x["latent"], K[:, L:]], axis=-1)
unturned = np.concatenate([K[:, :L], x["k_rope"]], axis=-1)
halves = np.concatenate([K[:, :L], mixed_layouts(x["k_rope"], *tables(keys_at))], axis=-1)

# %%
slips = {
    "RMSNorm over the rope half too": attend(Q, norm_over_all(K), scale, causal),
    "latent stored without its norm": attend(Q, raw, scale, causal),
    "rope key stored unrotated": attend(Q, unturned, scale, causal),
    "key rotated in the other layout": attend(Q, halves, scale, causal),
    "rope part left out": attend(Q[..., :L], K[:, :L], scale, causal),
    f"scale {v3.cache_dim}$^{{-1/2}}$": attend(Q, K, v3.cache_dim**-0.5, causal),
}
errors = [np.sqrt(np.mean((out - expected) ** 2) / np.mean(expected**2)) for out in slips.values()]

# %%
fig = new_figure(7.8, 2.7, alt="Error of the output for six slips")
ax = fig.subplots()
ax.barh(list(slips), errors, color=COLORS["measure"])
ax.set(xlabel="error of the output, relative to its size (root mean square)")
ax.grid(False, axis="y")
ax.invert_yaxis()
fig

# %% [markdown]
# The latent without its norm is the worst, mostly because of its size: it is three times too large here, and as the
# value it makes the output itself as much too large. Of the others the wrong scale is the worst, since it bends every
# score, content and position alike.
#
# On random inputs each of them is plain to see, if you have something right to compare with. A server has not: text
# still comes out, only worse. So test a layer against a route that shares no step with it, as above.

# %% [markdown]
# ## Why is the rope key stored rotated?
#
# A key's position never changes, so its rotation can be paid once, when it is written. Rotating while reading would
# pay it again at every step, for all cached tokens. **Predict**: two multiplications a feature, so $2\,r$ a token, or
# $2\,r\,C$ a step. **Count** it:

# %%
all_keys, turn_tables = rng.standard_normal((C, r), dtype=np.float32), tables(np.arange(C))
_, each_step = count(rotate, all_keys, *turn_tables)
_, one_token = count(rotate, all_keys[-1:], *(table[-1:] for table in turn_tables))
print(f"rotated on writing:  {one_token.macs:9,} multiply-adds a step, predicted {2 * r:,}")
print(f"rotated on reading:  {each_step.macs:9,} multiply-adds a step, predicted {2 * r * C:,}")
print(f"and a rope key for each of {heads} heads would be {heads * r:,} values a token, not {r}")
assert (one_token.macs, each_step.macs) == (2 * r, 2 * r * C)

# %% [markdown]
# ## What does the rope part cost in a decode step?
#
# Scores are as wide as an entry, mixing is as wide as the latent. The rope part adds $H\,C\,r$ multiply-adds to
# $H\,C\,(2L)$. **Predict** the share, **count** the step, **measure** it with the rope part and without.

# %%
from ledger.account.attention import absorb_heads_macs, decode_absorbed_macs

rows, tokens = (8, 256) if IN_BROWSER else (heads, 2048)
step_q = rng.standard_normal((rows, L + r), dtype=np.float32)
step_k = rng.standard_normal((tokens, L + r), dtype=np.float32)
step_w_v = rng.standard_normal((rows, L, v), dtype=np.float32)


def decode(q, k, w_v):
    scores = (q * np.float32(scale)) @ k.T  # [h, t]
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights @ k[:, :L] / weights.sum(-1, keepdims=True)
    return (mixed[:, None] @ w_v)[:, 0]


# %%
predicted, calls = {}, {}
for name, width in (("with rope", r), ("without", 0)):
    step = decode_absorbed_macs(tokens, rows, L, width).total + absorb_heads_macs(1, rows, L, v)
    predicted[name] = step + rows * (L + width)  # the last term is the scale on the queries
    calls[name] = partial(
        decode, *(np.ascontiguousarray(a[:, : L + width]) for a in (step_q, step_k)), step_w_v
    )
    _, counts = count(calls[name])
    print(f"{name:10} predicted {predicted[name]:13,}   counted {counts.macs:13,}")
    assert counts.macs == predicted[name]
share = rows * tokens * r / decode_absorbed_macs(tokens, rows, L, r).total
print(f"the rope part's share of the work on the cache: r / (2L + r) = {share:.1%}")

# %%
times = time_pairs(calls, seconds=0.4)
for name, timing in times.items():
    print(f"{name:10} {timing.low * 1e3:7.2f} ms, {2 * predicted[name] / timing.low / 1e9:6.1f} GFLOP/s")
ratio = times["with rope"].low / times["without"].low
print(f"ratio predicted {predicted['with rope'] / predicted['without']:.3f}, measured {ratio:.3f}")

# %% [markdown]
# The predicted difference is a few percent. A clock on a shared machine has no such precision, so the measured ratio
# may stand on either side of it. Where it is larger, one reason is that $V$ is a part of wider rows. On a GPU that
# waits for bytes the entry's size decides, and that grows by $r/L$, an eighth.

# %% [markdown]
# ## Interleaved or half-split?
#
# The pairs may stand next to each other, or each half of the vector may hold one member of every pair. Both layouts
# turn the same pairs by the same angles. They only store them at other places:

# %%
pictures.layout_picture(8)

# %% [markdown]
# *Interleaved*: features (0, 1), (2, 3), … are pairs. *Half-split*: feature $i$ and feature $i + r/2$ are. Converting
# is one permutation of the features. It can be done once, on the rows of the weights that make `q_rope` and `k_rope`,
# when a checkpoint is loaded. A dot product does not care about an order that both sides share.

# %%
from ledger.reference.rope import apply_rope, half_split_order

order = half_split_order(r)
print(f"half-split takes features {order[:4].tolist()} … {order[r // 2 : r // 2 + 4].tolist()} …")
five_q, five_k = rng.standard_normal((2, 5, r))
at = np.array([3, 50, 51, 900, 4000])
scores = apply_rope(five_q, at, theta, interleaved=True) @ apply_rope(five_k, at, theta, interleaved=True).T
converted = apply_rope(five_q[:, order], at, theta, interleaved=False)
both = converted @ apply_rope(five_k[:, order], at, theta, interleaved=False).T
assert np.allclose(scores, both)
assert np.allclose(converted[:, np.argsort(order)], apply_rope(five_q, at, theta, interleaved=True))
print("converted on both sides: the same scores, and argsort of the order goes back")

# %% [markdown]
# Rotate both sides in the wrong layout, and nothing fails either. How wrong are the scores as the distance grows? And if
# only the key's side is wrong, how wrong is the score of a token with itself, at distance 0?

# %%
many_q, many_k = rng.standard_normal((2, 2000, r))


def rope_scores(q_at, k_at, q_layout, k_layout):  # a layout: interleaved or not
    turned_k = many_k @ rotation(k_at, r, theta, k_layout).T
    return (many_q @ rotation(q_at, r, theta, q_layout).T * turned_k).sum(-1)


spots = [0, *(2**k for k in range(14))]
apart = {"both sides, over their distance": [], "one side, at distance 0, over the position": []}
for p in spots:
    for mixed_up, given in zip(apart.values(), ((p, 0, False, False), (p, p, True, False)), strict=True):
        true = rope_scores(*given[:2], True, True)
        mixed_up.append(np.sqrt(np.mean((true - rope_scores(*given)) ** 2) / np.mean(true**2)))

# %%
fig = new_figure(7.5, 3.0, alt="Error of rope scores with both sides or one side in the wrong layout")
ax = fig.subplots()
for (name, curve), look, color in zip(apart.items(), ("o-", "s--"), ("rope", "value"), strict=True):
    ax.plot(spots, curve, look, color=COLORS[color], label=name)
ax.set_xscale("symlog", linthresh=1)
ax.set_xticks([0, 1, 10, 100, 1000, 10000], ["0", "1", "10", "100", "1,000", "10,000"])
ax.set(xlabel="tokens (distance, or position)", ylabel="error, relative to a score", ylim=(0, None))
ax.legend(loc="lower right")
fig

# %% [markdown]
# It is the same curve twice, over different things. With both sides wrong there is no error at distance 0, so a test with
# a single token passes at any position. With one side wrong only position 0 passes. Far out either error nears √2, which
# is how far apart two numbers are that have nothing to do with each other.
#
# The first really happened: the first published code of DeepSeek-V3.2 rotated both sides of its indexer (the small
# network that selects which tokens to attend to, chapter 10) in the interleaved layout where the weights were
# half-split, and a later notice corrected it. The model uses the interleaved layout in its attention and the half-split
# one in its indexer.
#
# With torch the interleaved layout needs no slicing: a pair is a complex number, and rotating it is one
# multiplication.

# %% tags=["no-browser"]
try:
    import torch
except ImportError:
    torch = None
    print("torch is not installed here. Nothing below needs it.")
if torch is not None:
    by = torch.from_numpy(np.outer(at, theta ** (-2 * pair / r)))
    pairs = torch.view_as_complex(torch.from_numpy(five_q).view(len(at), -1, 2))
    by_torch = torch.view_as_real(pairs * torch.polar(torch.ones_like(by), by)).flatten(1).numpy()
    same = np.allclose(by_torch, apply_rope(five_q, at, theta, interleaved=True))
    print("view_as_complex, times e^(i·angle), view_as_real: the same rotation:", same)

# %% [markdown]
# ## Which scale comes before the softmax?
#
# A score is divided by the root of the width of query and key, so that random ones come out at size 1. The width is
# that of the key *that the model was trained with*, nope + rope, $d_n + r$. YaRN stretches a trained context by slowing
# pairs, by up to a factor $f$. To make up for it, it also multiplies query and key by a number $y$ each. It has a
# setting of the model in it, `mscale_all_dim`, here $a$:
#
# $$\text{scale} = \frac{y^2}{\sqrt{d_n + r}} \qquad y = 0.1\, a \ln f + 1$$

# %%
print("                    nope rope   factor  mscale    plain      scale    (L + r)^−½")
scales, seen = {}, set()
for shape in MODELS.values():
    yarn = (shape.nope_dim, shape.rope_dim, shape.yarn_factor, shape.mscale_all_dim)
    if (yarn, shape.latent_dim) in seen:
        continue  # the same numbers as a model above
    seen.add((yarn, shape.latent_dim))
    scales[shape.name] = softmax_scale(*yarn), softmax_scale(*yarn[:2], None, None), shape.cache_dim**-0.5
    factor, mscale = (f"{number:g}" if number else "–" for number in yarn[2:])
    print(f"{shape.name:20} {yarn[0]:4} {yarn[1]:4} {factor:>8} {mscale:>7}", end=" ")
    print(f"{scales[shape.name][1]:8.6f}   {scales[shape.name][0]:8.6f}   {scales[shape.name][2]:8.6f}")

# %% [markdown]
# The last column is the trap. The absorbed query is as wide as the entry, so a kernel that knows nothing of the model
# takes $576^{-1/2}$ for its default, as several do. But absorbing does not change the score. It is still the number
# that a query and a key of width 192 gave:

# %%
many, c = rng.standard_normal((400, nope)), rng.standard_normal((400, L)) / L**0.5
one_head = rng.standard_normal((nope, L))
with_keys = np.einsum("sn,sn->s", many, c @ one_head.T)  # nope wide
absorbed = np.einsum("sc,sc->s", many @ one_head, c)  # L wide
assert np.allclose(with_keys, absorbed)
print(f"content scores, size {with_keys.std():.2f} with keys, {absorbed.std():.2f} absorbed;", end=" ")
print(f"√{nope} = {nope**0.5:.2f}")

# %% [markdown]
# What does a wrong scale do? It divides every score by the same number, like a higher temperature. **Predict** with
# scores that are normal of standard deviation $\sigma$: the weights' entropy is about $\ln C - \sigma^2/2$, so that a
# query attends to about $C\,e^{-\sigma^2/2}$ tokens. With unit features, $\sigma$ is scale $\cdot \sqrt{d_n + r}$.

# %%
random_scores = rng.standard_normal((256, C)) * (nope + r) ** 0.5
curves = {}
for name, by in zip(("right", "plain", "trap"), scales["DeepSeek-V3"], strict=True):
    weights = np.exp(by * random_scores - (by * random_scores).max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    spread = np.exp(-(weights * np.log(weights)).sum(-1)).mean()
    guess = C * np.exp(-((by * (nope + r) ** 0.5) ** 2) / 2)
    curves[name] = np.cumsum(np.sort(weights, -1)[:, ::-1], -1).mean(0)
    print(f"{name:6} scale {by:.4f}: attends to {spread:6,.0f} tokens, predicted {guess:6,.0f}", end="   ")
    print(f"the heaviest has {weights.max(-1).mean():.2%}")

# %%
fig = new_figure(7.0, 2.8, alt="Share of the weight on the heaviest tokens, for three softmax scales")
ax = fig.subplots()
for (name, curve), color in zip(curves.items(), ("latent", "neutral", "measure"), strict=True):
    ax.semilogx(np.arange(1, C + 1), curve, color=COLORS[color], label=name)
ax.set(xlabel=f"heaviest tokens, of {C:,}", ylabel="share of the weight", ylim=(0, 1.02))
ax.legend(loc="upper left")
plain_ticks(ax.xaxis)
fig

# %% [markdown]
# (The estimate is that of an endless cache. The larger $\sigma$ is, the more depends on the few largest scores, and a
# finite cache has too few of them.)
#
# With the trap's scale a query spreads over most of the cache. No score is out of order and nothing fails: the answers
# only get vague. How far off it is depends on the model. Without YaRN it is the ratio of the two roots alone.

# %%
for name in ("DeepSeek-V3", "GLM-5", "MiniCPM3-4B"):
    print(f"{name:12} right scale / trap = {scales[name][0] / scales[name][2]:.2f}")

# %% [markdown]
# ## Can you turn it yourself?
#
# Turn the position $n$ and watch the hands: four of the 32 pairs. In the middle stands the rotation's matrix, every
# fourth pair of it. To the right stands the best single matrix for the whole cache, and below what it leaves over.
# Three things to try:
#
# * Turn $n$ from 0 to 8. Which hand goes round first, and which does not move at all?
# * Pull the cache up to 131,072. Which blocks of $M$ fade first?
# * Change to GLM-5.2, then to Kimi-K3. Say before you look what happens to the residual.

# %%
pictures.RopeDial().show()

# %% [markdown]
# A larger $\theta$ makes the slow pairs slower, so the residual rises later; it rises all the same. Kimi-K3's stays on
# the axis at every length: its best matrix is the identity, and exact.

# %% [markdown]
# ## What do engines do?
#
# **vLLM.** `model_executor/layers/mla.py` norms the latent (`kv_a_layernorm`), leaves `k_pe` out of the norm, and
# applies `rotary_emb` to the rope parts of query and key. The op `concat_and_cache_mla` writes both parts side by side
# into one cache row, for all heads. In `model_executor/models/deepseek_v2.py` stands the scale: `qk_head_dim ** -0.5`,
# multiplied twice by YaRN's `mscale`. The layout is said there, too: `is_neox_style=False` is interleaved, `True` is
# half-split.
#
# **SGLang.** `models/deepseek_common/attention_forward_methods/forward_mla.py` splits query and entry in the same two
# parts. `models/minicpm3.py` shows the shapes in a few lines: an attention with one KV head, as wide as latent plus
# rope, whose value is as wide as the latent, and whose scale is that of nope plus rope.
#
# **transformers.** Its DeepSeek-V3 file converts: `apply_rotary_pos_emb_interleave` brings interleaved features into
# the half-split order and then rotates halves. It does so for query and key alike, so the scores stay the same.
#
# **Kernels** take one query tensor and one cache of width 576, and the scale as an argument. Pass it.

# %% [markdown]
# ## How to explain it
#
# *"Absorbing needs the same matrix between the query and every cached token. Content has one, $W_K$. Position has
# another one for every distance, so it cannot be absorbed, and if you rotated the content key, neither could that. So
# latent attention keeps position apart: 64 features beside the latent, one rope key for all heads, rotated once when
# it is written. Query and entry are each two parts side by side, and one dot product adds both scores. The value is
# the normed latent. And the scale is the one of the 192-wide key, which nobody builds any more."*

# %% [markdown]
# ## Summary
#
# * RoPE turns pair $i$ at position $n$ by $n\,\theta^{-2i/r}$. A score holds $R_m^\top R_n = R_{n-m}$.
# * No single matrix replaces the rotations: the best one is their mean, and its residual goes to 1 with the length of
#   the cache. Without rotation it is 0.
# * A rotated content key would need $R_{n-m} W_K^\top$ between query and latent: an absorb for each cached token,
#   which is as dear as rebuilding keys. Hence the decoupled part.
# * Entry [RMSNorm(c) | rotated k_rope], query [absorbed | rotated], value RMSNorm(c). The norm never sees the rope
#   part.
# * Interleaved and half-split hold the same pairs at other places. Convert both sides once, or neither.
# * The scale is $y^2/\sqrt{d_n+r}$, with $y$ from YaRN. The width of the absorbed query has no part in it.

# %% [markdown]
# ## Exercises to do next
#
# 1. [rope_tables](../../practice/ch04_rope/rope.ipynb#cell-id=rope_tables-statement): the angles.
# 2. [apply_rope](../../practice/ch04_rope/rope.ipynb#cell-id=apply_rope-statement): the rotation, in both layouts.
# 3. [relative_rotation](../../practice/ch04_rope/rope.ipynb#cell-id=relative_rotation-statement): what a score holds.
# 4. [single_matrix_residual](../../practice/ch04_rope/rope.ipynb#cell-id=single_matrix_residual-statement): how good
#    one matrix can be.
# 5. [cache_entry](../../practice/ch04_rope/rope.ipynb#cell-id=cache_entry-statement): what is stored.
# 6. [absorbed_queries](../../practice/ch04_rope/rope.ipynb#cell-id=absorbed_queries-statement): what meets it.
# 7. [decode_absorbed](../../practice/ch04_rope/rope.ipynb#cell-id=decode_absorbed-statement): the whole step. The
#    judge counts.
# 8. [softmax_scale](../../practice/ch04_rope/rope.ipynb#cell-id=softmax_scale-statement): the scale of a model that
#    you have not seen.
#
# ```
# python judge.py 4
# ```
#
# Then go on to [lesson 5](../ch05_crossover/crossover.ipynb): both routes are complete, and it asks where they cross.
