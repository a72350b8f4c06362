# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 8, first part: drafts and their verification
#
# You write what an MTP module does first, and the two rules by which a model takes or refuses drafts. Three exercises,
# about 40 minutes. The lesson that goes with them is
# [8 multi-token prediction: drafts](../../notebooks/ch08_mtp/drafts.ipynb).
#
# `hint("verify_greedy")` shows the first of three hints, and `case("verify_greedy", "drafts drawn at random", 123456)`
# the inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## mtp_forward
#
# *10 minutes · difficulty 1 of 3 · 2 points*
#
# An MTP module is given what the model knows after token $i$ and the token $i + 1$ itself. Make of the two what goes into
# the module's decoder layer. (The layer and the head behind it are not part of this exercise.)
#
# | | shape |
# |---|---|
# | `hidden`: the main model's last hidden state | (tokens, hidden_dim) |
# | `next_embedding`: the embedding of each state's next token | (tokens, hidden_dim) |
# | `weights["enorm"]`, `weights["hnorm"]`: weights of the two norms | (hidden_dim,) |
# | `weights["eh_proj"]`: features on the left, the embedding's first | (2 · hidden_dim, hidden_dim) |
# | result | (tokens, hidden_dim) |
#
# Each input has an RMSNorm of its own, `enorm` for the embedding and `hnorm` for the hidden state. It divides a row by
# its root mean square and multiplies by its weight $g$, feature by feature:
#
# $$\text{norm}(x) = \frac{x}{\sqrt{\text{mean}(x^2) + \text{eps}}} \odot g$$
#
# Join both along the features, **the embedding first**, and multiply by `eh_proj`. Nothing is added back. The result has
# the dtype of the inputs, and inputs are not changed. No token gives an empty result.
#
# By hand, with eps 0: the embedding $[5, -5]$ and enorm $[1, 2]$ give $[1, -2]$; the state $[7, 1]$ and hnorm $[5, 5]$
# give $[7, 1]$. With the rows $[1, 0], [0, 1], [1, 1], [0, 10]$ of `eh_proj` the result is $[8, 15]$.


# %% exercise="mtp_forward"
def mtp_forward(
    hidden: np.ndarray, next_embedding: np.ndarray, weights: dict[str, np.ndarray], eps: float
) -> np.ndarray:
    """Input of an MTP module's decoder layer.

    hidden: (tokens, hidden_dim)
    next_embedding: (tokens, hidden_dim)
    weights: enorm (hidden_dim,), hnorm (hidden_dim,), eh_proj (2 * hidden_dim, hidden_dim)
    eps: added to each mean of squares
    returns (tokens, hidden_dim)
    """
    ### BEGIN SOLUTION
    parts = []
    for x, weight in ((next_embedding, weights["enorm"]), (hidden, weights["hnorm"])):
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        parts.append(x / np.sqrt(mean_square + eps) * weight)
    return np.concatenate(parts, axis=-1) @ weights["eh_proj"]
    ### END SOLUTION


# %% check="mtp_forward"
check("mtp_forward", mtp_forward)

# %% [markdown] hints="mtp_forward"
# The hints of mtp_forward.

# %% [markdown]
# ## verify_greedy
#
# *6 minutes · difficulty 1 of 3 · 1 point*
#
# A request has $k$ drafts. The model read them all in one forward and named its best token in each place:
#
# * `draft_tokens`: $k$ tokens;
# * `target_tokens`: $k + 1$ tokens. Entry $i$ is the model's best token after the first $i$ drafts: its own choice for the
#   place of draft $i$. The last entry follows the last draft.
#
# Return a pair: the accepted drafts in order, and the **bonus**, all of them ints. Drafts are accepted up to the first
# that is not the model's choice. The bonus is the model's choice in the place right after the accepted ones.
#
# $k$ may be 0: then nothing is accepted and the bonus is the only entry. Both arguments are lists of ints or arrays.
#
# By hand: drafts 5, 9, 2 against 5, 7, 2, 4 give `([5], 7)`. That the third one agrees again does not count.


# %% exercise="verify_greedy"
def verify_greedy(draft_tokens: list[int], target_tokens: list[int]) -> tuple[list[int], int]:
    """Accepted drafts and the bonus, by the target's best tokens.

    draft_tokens: k tokens
    target_tokens: k + 1 tokens, entry i after the first i drafts
    returns (accepted drafts as a list of ints, bonus as an int)
    """
    ### BEGIN SOLUTION
    count = 0
    while count < len(draft_tokens) and draft_tokens[count] == target_tokens[count]:
        count += 1
    return [int(token) for token in draft_tokens[:count]], int(target_tokens[count])
    ### END SOLUTION


# %% check="verify_greedy"
check("verify_greedy", verify_greedy)

# %% [markdown] hints="verify_greedy"
# The hints of verify_greedy.

# %% [markdown]
# ## verify_sampling
#
# *25 minutes · difficulty 3 of 3 · 4 points*
#
# Now the model samples, and what comes out must be distributed as if it had drawn every token itself.
#
# | | shape |
# |---|---|
# | `draft_tokens`: int64 | (k,) |
# | `draft_probs`: row $i$ is the distribution $q_i$ from which draft $i$ was drawn | (k, vocabulary) |
# | `target_probs`: row $i$ is the model's distribution $p_i$ after the first $i$ drafts | (k + 1, vocabulary) |
# | `uniforms`: numbers from 0 to below 1 | (k + 1,) |
#
# Write $x_i$ for draft $i$ and $u_i$ for uniform $i$, and begin with draft 0.
#
# * **Accept** draft $i$ if $u_i \cdot q_i(x_i) < p_i(x_i)$.
# * At the **first rejection**, at draft $i$, draw one token from $\max(p_i - q_i, 0)$, divided by its sum, and stop.
# * If **no draft is rejected**, draw one token from the last row of `target_probs`.
#
# Either draw uses the **last** uniform, `uniforms[-1]`: take the first token whose cumulative probability exceeds it.
# (The cases leave room for rounding in that sum. One of them has ties of numbers without rounding.)
#
# Return a pair: the accepted drafts in order, and the drawn token, all of them ints. Each row of probabilities sums to
# 1, and each draft has a positive probability in its row. $k$ may be 0. Greedy drafts come as rows with a single 1.
#
# **How it is graded.** On single rounds with given uniforms, in float64 and float32. And on its distribution: in the last
# case, `draft_tokens` is (rounds, 1) and `uniforms` (rounds, 2). The judge calls your function for each round, counts
# which token comes out first and which second, and compares the counts. Drafts and uniforms of those rounds lie on a grid,
# on which the right rule gives each token first exactly as often as the model's distribution says.
#
# By hand: drafts 0 and 0, $q_0 = [\frac12, \frac14, \frac14]$, $p_0 = [\frac14, \frac12, \frac14]$,
# $q_1 = [\frac34, \frac14, 0]$, $p_1 = [\frac14, \frac12, \frac14]$, uniforms $\frac14, \frac12, \frac34$. First
# $\frac14\cdot\frac12 < \frac14$: accepted. Then $\frac12\cdot\frac34 > \frac14$: rejected. $\max(p_1 - q_1, 0)$ is
# $[0, \frac14, \frac14]$, its cumulative shares $0, \frac12, 1$. The first that exceeds $\frac34$ belongs to token 2:
# `([0], 2)`.


# %% exercise="verify_sampling"
def verify_sampling(
    draft_tokens: np.ndarray, draft_probs: np.ndarray, target_probs: np.ndarray, uniforms: np.ndarray
) -> tuple[list[int], int]:
    """Accepted drafts and one token more, by rejection sampling.

    draft_tokens: (k,) drafts of one request
    draft_probs: (k, vocabulary), what each draft was drawn from
    target_probs: (k + 1, vocabulary), what the model gives in each place
    uniforms: (k + 1,) from [0, 1): one for each draft, the last for the token that is drawn
    returns (accepted drafts as a list of ints, the token as an int)
    """
    ### BEGIN SOLUTION
    accepted, weights = [], target_probs[-1]
    for i, token in enumerate(draft_tokens):
        if not uniforms[i] * draft_probs[i, token] < target_probs[i, token]:
            weights = np.clip(target_probs[i] - draft_probs[i], 0, None)
            break
        accepted.append(int(token))
    cumulative = np.cumsum(weights / weights.sum())
    return accepted, int(np.argmax(cumulative > uniforms[-1]))
    ### END SOLUTION


# %% check="verify_sampling"
check("verify_sampling", verify_sampling)

# %% [markdown] hints="verify_sampling"
# The hints of verify_sampling.

# %% [markdown]
# ## What you can now explain
#
# * What an MTP module reads, and why each half is normed by itself.
# * Why a wrong draft costs nothing but the work: the model's own token takes its place.
# * Why sampling with drafts changes no probability, although the drafts come from another model.
#
# The [second part](speed.ipynb) asks what all of it costs, and when it pays.
