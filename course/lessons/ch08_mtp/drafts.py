# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8 Multi-token prediction: drafts
#
# A decode step reads all the weights and the whole cache to make one token for each request. If somebody guessed the next
# tokens, the same reading could check all the guesses. DeepSeek-V3 brings its own guesser, a single layer that was
# trained with it.
#
# **The question:** how does the module make a draft, how does the model check it, and why is the text that comes out
# exactly as likely as without any drafts?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercises at the end.
#
# 1. What does DeepSeek-V3's MTP module look like, and how does it serve as a draft model?
# 2. Which of its weights belong to the main model too?
# 3. Three drafts are verified. How many forwards of the main model does that take, of how many rows, and how many tokens
#    can come out?
# 4. A draft was drawn from $q$, the model wants $p$. With which probability is the draft accepted, averaged over all drafts?
# 5. A draft is rejected. From which distribution is the token drawn that takes its place, and why not from $p$?
# 6. Why is the second draft accepted less often than the first?
#
# <details><summary>Answers</summary>
#
# 1. It has one decoder layer. Its input is made of two vectors: the main model's last hidden state at token $i$ and the
#    embedding of token $i + 1$, each with a norm of its own, joined and projected back to the hidden width. Behind the
#    layer, a norm and the main model's head give the token $i + 2$. So when the model has made a token, the module
#    guesses the one after it, and the model's next forward checks the guess while it makes its own next token.
# 2. The embedding and the head. Norms, `eh_proj` and the decoder layer are its own.
# 3. One forward of four rows. One to four tokens come out: the accepted drafts, and one of the model's own.
# 4. $\sum_x \min(p(x), q(x))$.
# 5. From $\max(p - q, 0)$, normalised. Accepted drafts have brought $\min(p, q)$ already; only the rest is owed.
# 6. The module was trained on the main model's hidden states. For the second draft it must read its own.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## What is in the module?
#
# Token $i$ has been read, and the model has just made token $i + 1$ from its hidden state $h_i$. What comes after that?
# The module looks at both: the state, which has read everything up to $i$, and the token that was made of it.
#
# $$m = W\,[\,\text{norm}_e(\text{Emb}(t_{i+1}))\;;\;\text{norm}_h(h_i)\,] \qquad
# h'_i = \text{norm}(\text{layer}(m)) \qquad q = \text{softmax}(\text{head}(h'_i))$$
#
# $W$ is called `eh_proj` in the checkpoint: e for embedding, h for hidden. **The order matters:** DeepSeek-V3's report
# writes the hidden state first, the published weights, and with them the engines, put the embedding first.

# %%
from ledger.models import MODELS, model
from ledger.widgets.base import COLORS
from ledger.widgets.flow import Arrow, Box, Lane, flow

v3 = model("DeepSeek-V3")
d, words = v3.hidden_dim, v3.vocab_size
head, eh_proj = f"{d * words / 1e6:.1f} M", f"{2 * d * d / 1e6:.1f} M"
answer = [Box("token i", (1, d)), Arrow(f"{v3.num_layers} layers"), Box("state h", (1, d))]
answer += [Arrow("head", head), Box("token i + 1")]
guess = [Box("h, token i + 1", (2, d)), Arrow("2 norms,\njoin, eh_proj", eh_proj), Box("input", (1, d))]
guess += [Arrow("1 layer"), Box("h'", (1, d)), Arrow("same head", head), Box("token i + 2?")]
lanes = [Lane("main model", answer), Lane("MTP module", guess, COLORS["predict"])]
flow("One token, one draft (multiply-adds of eh_proj and the head below their arrows)", lanes)

# %% [markdown]
# **By hand.** Hidden width 2, eps 0. The embedding is $[5, -5]$ and the state $[7, 1]$. Both have a root mean square of
# 5, so the norms divide by 5. With $g_e = [1, 2]$ and $g_h = [5, 5]$ you get $[1, -2]$ and $[7, 1]$, joined
# $[1, -2, 7, 1]$. Multiply by the matrix below before you run the cell.

# %%
import numpy as np
from ledger.reference.mtp import mtp_forward

weights = {"enorm": np.array([1.0, 2]), "hnorm": np.array([5.0, 5])}
weights["eh_proj"] = np.array([[1.0, 0], [0, 1], [1, 1], [0, 10]])
embedding, state = np.array([[5.0, -5]]), np.array([[7.0, 1]])
print("embedding first:", mtp_forward(state, embedding, weights, eps=0.0)[0])
swapped = weights | {"eh_proj": np.roll(weights["eh_proj"], 2, axis=0)}
print("state first:    ", mtp_forward(state, embedding, swapped, eps=0.0)[0])

# %% [markdown]
# Why two norms? A state grows from layer to layer, an embedding is small. Without norms of their own the state would
# drown the token, and the token is what the module could not know otherwise.
#
# The decoder layer attends to earlier tokens like any other, so it keeps a cache of its own: one layer more of it.

# %% [markdown]
# ## Can you build and run it?
#
# Here is the whole module at toy width, with a decoder layer of one attention head and an MLP. (DeepSeek-V3's layer has
# latent attention and 256 experts; what stands around it is the same.)

# %%
S, D, M, WORDS, EPS = 6, 16, 40, 11, 1e-6
rng = np.random.default_rng(80)
shapes = {"eh_proj": (2 * D, D), "up": (D, M), "down": (M, D), "head": (D, WORDS)}
shapes |= dict.fromkeys("qkvo", (D, D))
w = {name: rng.standard_normal(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}
w |= {name: 0.5 + rng.random(D) for name in ("enorm", "hnorm", "before", "middle", "final")}
hidden, following = 4 * rng.standard_normal((S, D)), rng.standard_normal((S, D)) / 5


def norm(x, g):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS) * g


# %%
def decoder_layer(x, w):
    seen = norm(x, w["before"])
    scores = (seen @ w["q"]) @ (seen @ w["k"]).T / D**0.5
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)  # nobody looks ahead
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = weights / weights.sum(axis=1, keepdims=True)
    x = x + (weights @ (seen @ w["v"])) @ w["o"]
    return x + np.maximum(norm(x, w["middle"]) @ w["up"], 0) @ w["down"]


def module(hidden, following, w):
    from_token = norm(following, w["enorm"]) @ w["eh_proj"][:D]
    from_state = norm(hidden, w["hnorm"]) @ w["eh_proj"][D:]
    state = norm(decoder_layer(from_token + from_state, w), w["final"])
    return state, state @ w["head"]


# %% [markdown]
# The same in torch, as engines write it: join, then one product. Do both agree?

# %% tags=["no-browser"]
import torch
import torch.nn.functional as F

t = {name: torch.from_numpy(value) for name, value in w.items()}
both = [(torch.from_numpy(following), "enorm"), (torch.from_numpy(hidden), "hnorm")]
x = torch.cat([F.rms_norm(part, (D,), t[g], EPS) for part, g in both], dim=-1) @ t["eh_proj"]
seen = F.rms_norm(x, (D,), t["before"], EPS)
q, k, v = (seen @ t[name] for name in "qkv")
x = x + F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0] @ t["o"]
x = x + F.relu(F.rms_norm(x, (D,), t["middle"], EPS) @ t["up"]) @ t["down"]
logits = F.rms_norm(x, (D,), t["final"], EPS) @ t["head"]
apart = np.abs(logits.numpy() - module(hidden, following, w)[1]).max()
print(f"logits of torch and of NumPy: apart by {apart:.0e}")
assert apart < 1e-12

# %% [markdown]
# ## What does a draft cost? Predict, then count
#
# For $s$ tokens: `eh_proj` takes $s \cdot 2d \cdot d$ multiply-adds, the four matrices of attention $4sd^2$, scores and
# mixing $2s^2d$, the MLP $2sdm$, the head $sd \cdot \text{words}$. Each of the five norms multiplies twice, $2sd$.

# %%
from ledger.count import count

predicted = {"eh_proj": 2 * S * D * D, "attention": 4 * S * D * D + 2 * S * S * D, "MLP": 2 * S * D * M}
predicted |= {"head": S * D * WORDS, "five norms": 5 * 2 * S * D}
_, counts = count(module, hidden, following, w)
print("predicted:", " + ".join(f"{macs:,} ({name})" for name, macs in predicted.items()))
print(f"together {sum(predicted.values()):,}, counted {counts.macs:,}")
assert counts.macs == sum(predicted.values())

# %% [markdown]
# And at DeepSeek-V3's shapes? Predict two numbers first: `eh_proj` is 14,336 × 7,168, the head 7,168 × 129,280.

# %%
from ledger.account.experts import attention_params, expert_params

expert, active = expert_params(v3), v3.experts_per_token + v3.num_shared_experts
router = d * v3.num_experts
parts = {"eh_proj": (2 * d * d, 2 * d * d), "attention's projections": (attention_params(v3),) * 2}
parts["experts and router"] = ((v3.num_experts + 1) * expert + router, active * expert + router)
parts["head (the main model's)"] = (d * words, d * words)
print("millions                      weights    used by a token")
for name, (stored, used) in parts.items():
    print(f"{name:26}{stored / 1e6:11,.1f} {used / 1e6:18,.1f}")
mine, copies = sum(stored for stored, _ in parts.values()) - d * words, 2 * d * words
share = d * words / sum(used for _, used in parts.values())
print(f"\nits own: {mine / 1e9:.2f} billion weights")
print(f"with a copy of embedding and head: {(mine + copies) / 1e9:.2f} billion")
print(f"the head's share of what a draft uses: {share:.0%}")

# %% [markdown]
# The head is more than half of a draft: one layer is small, a vocabulary is not. (The published account of the weights gives
# the module 11.5 billion of its own, and 2.4 used by a token with embedding and head. That is what you get without `eh_proj`.
# The checkpoint stores copies of embedding and head. The model card's 14 billion are 685 − 671, both rounded: not the sum
# above.)
#
# Which models come with such a module?

# %%
print("                     MTP layers   eh_proj, M   head, M   layers of the model")
for m in MODELS.values():
    if m.num_mtp_layers:
        eh_proj, head = 2 * m.hidden_dim**2 / 1e6, m.hidden_dim * m.vocab_size / 1e6
        print(f"{m.name:21}{m.num_mtp_layers:11}{eh_proj:13.1f}{head:10.1f}{m.num_layers:17}")
unsaid = [m.name for m in MODELS.values() if m.num_mtp_layers is None]
print("\ntheir configurations do not say:", ", ".join(unsaid))

# %% [markdown]
# ## A language that we know whole
#
# Are drafts any good? To see it, train a model and its module, here, in about a second. The language has eight tokens.
# Each depends on the two before it, by a random table that we keep. So we know the best loss that any model can have:
# the entropy of the table.
#
# The model embeds two tokens, mixes them and has one layer. The module is built as above, but for attention: the state
# has read both tokens, there is nothing else to look at. It is trained on the token after next, with the model frozen.
# (DeepSeek-V3 trains both at once, and the module's loss makes the model better too.)

# %%
from ledger.reference import tiny

V, rng = 8, np.random.default_rng(8)
source = tiny.language(rng, V)
text = tiny.write(source, 30000, rng)
main = tiny.train_main(text, V, rng)
drafter = tiny.train_drafter(text, main, rng)
print("main:  ", {name: array.shape for name, array in main.items()})
print("module:", {name: array.shape for name, array in drafter.items()})

# %%
last, new, after = text[1:-2], text[2:-1], text[3:]
states, _ = tiny.states(text[:-3], last, main)
drafts_from, _ = tiny.drafter_states(states, new, main, drafter)


def loss(state, right):
    return -np.log(tiny.probabilities(state, main)[np.arange(len(right)), right]).mean()


print(f"entropy of the language            {tiny.entropy(source, text):.3f} nats a token")
print(f"loss of the model                  {loss(states, new):.3f}")
print(f"loss of the module, a token later  {loss(drafts_from, after):.3f}")
print(f"loss of guessing evenly            {np.log(V):.3f}")

# %% [markdown]
# The model is almost as good as can be. The module is worse, and that is its nature: of the token before last it knows
# only what the state still tells, and the state was made to name the next token, not to remember.

# %% [markdown]
# ## How does the model check drafts?
#
# A model that reads $k$ drafts at once gives $k + 1$ answers, one behind each of them and one before the first. That is
# what a prefill does: **verification is one forward of $k + 1$ rows**. The rows are causal, so the answer behind draft 1
# holds whatever draft 2 says.

# %%
guess = [Box("state, token", (2, d)), Arrow("module"), Box("its own state, draft 1", (2, d))]
guess += [Arrow("module again"), Box("draft 2")]
verify = [Box("token, draft 1, draft 2", (3, d)), Arrow("one forward", "weights read once")]
verify += [Box("3 distributions", (3, words)), Arrow("compare"), Box("1 to 3 tokens")]
lanes = [Lane("two drafts, one after the other", guess, COLORS["predict"])]
lanes += [Lane("verification, all rows at once", verify, COLORS["latent"])]
flow("One step with two drafts", lanes)

# %% [markdown]
# With greedy decoding a draft is right where it is the model's best token. Take drafts up to the first wrong one. The
# model's own token for that place is there already: it is the **bonus**. So at least one token comes out of each forward,
# and the text is the one without drafts, token by token.


# %%
def draft(state, token, k, choose):
    """k drafts after `token`, each from the module's own last state."""
    tokens, probs = [], []
    for _ in range(k):
        state, _ = tiny.drafter_states(state, np.array([token]), main, drafter)
        probs.append(tiny.probabilities(state, main)[0])
        token = choose(probs[-1])
        tokens.append(token)
    return np.array(tokens, int), np.array(probs).reshape(k, V)


def forward(tokens):
    """One forward: the state and the distribution behind each token but the first."""
    state, _ = tiny.states(np.array(tokens[:-1]), np.array(tokens[1:]), main)
    return state, tiny.probabilities(state, main)


# %% [markdown]
# The state for the first draft comes out of the verification: it is the row behind the last accepted token. Then the
# module **recycles its own**: its state behind the final norm stands in for the model's.


# %%
def generate(length, k, choose, verify, start=(0, 0)):
    """A text of `length` tokens and the number of the main model's forwards."""
    state, p = forward(start)
    out, forwards = [*start, choose(p[0])], 1
    while len(out) < length:
        tokens, q = draft(state, out[-1], k, choose)
        states, p = forward([*out[-2:], *tokens])  # k + 2 tokens, k + 1 rows: two make one state here
        accepted, token = verify(tokens, q, p)
        out += [*accepted, token]
        state, forwards = states[len(accepted)][None], forwards + 1
    return out[:length], forwards


# %% [markdown]
# Nothing here is cached. In an engine rejected drafts leave entries in the model's cache and in the module's own; both are
# cut back to the accepted tokens, and the next step writes over the rest. Entries that the module made from its own states
# are made anew from the model's.

# %%
from ledger.reference.mtp import verify_greedy

best = {"choose": np.argmax, "verify": lambda tokens, q, p: verify_greedy(tokens, p.argmax(axis=1))}
starts = [(a, b) for a in range(V) for b in range(V)]
plain = [generate(32, 0, start=pair, **best) for pair in starts]
for k in range(4):
    drafted = [generate(32, k, start=pair, **best) for pair in starts]
    same = sum(a == b for (a, _), (b, _) in zip(plain, drafted, strict=True))
    steps = sum(n for _, n in drafted)
    print(
        f"{k} draft{'s' * (k != 1)}: {same} of {len(starts)} texts are the same, {steps:,} forwards,",
        end=" ",
    )
    print(f"{len(starts) * 30 / steps:.2f} tokens each")
    assert same == len(starts)

# %% [markdown]
# Not one token differs, and the forwards shrink. (Greedy text of so small a language
# repeats itself: believe the sampled numbers below.)

# %% [markdown]
# ## How is a sampled draft checked?
#
# With sampling there is no right token, only a right distribution $p$. The draft was drawn from another one, $q$. What
# can be done with it?
#
# * Accept draft $x$ with probability $\min(1, p(x)/q(x))$: draw $u$ evenly from 0 to 1, accept if $u \cdot q(x) < p(x)$.
# * At the first rejection draw from what is **owed**: $\max(p - q, 0)$, divided by its sum.
# * If all were accepted, draw the bonus from $p$ behind the last draft.
#
# Let $\rho = 1 - \sum_y \min(p(y), q(y))$ be the probability of a rejection. Token $x$ then comes out with
#
# $$q(x)\,\min\!\Big(1, \frac{p(x)}{q(x)}\Big) \;+\; \rho\,\frac{\max(p(x) - q(x), 0)}{\rho}
# \;=\; \min(p(x), q(x)) + \max(p(x) - q(x), 0) \;=\; p(x)$$
#
# because what is owed sums to $\rho$ as well: both distributions sum to 1.

# %%
from ledger.reference.mtp import acceptance
from ledger.widgets import drafts as pictures

names = list("abcdefgh")
pairs = tiny.probabilities(drafts_from, main)  # q behind each place of the text
wanted = tiny.probabilities(tiny.states(last, new, main)[0], main)
place = int(np.argmin(np.abs(acceptance(pairs, wanted) - 0.6)))
q, p = pairs[place], wanted[place]
pictures.overlap_picture(q, p, names)

# %% [markdown]
# (A place of the text where module and model disagree.) Green is accepted. The hatched mass is what the draft gives too
# much and loses; the same mass is owed where the draft gives too little.
#
# ### Is it exact?
#
# The rule is a function of drafts and **uniforms**, even random numbers from 0 to 1: a $u$ for each draft, and one more
# for the token that is drawn. Its decisions change at finitely many of them: at ratios $p/q$ and at cumulative sums. Cut
# the unit square there, call the rule once in each box, and add up areas. That is no estimate: it is the distribution of
# what comes out. Put the exercise's wrong answers through it as well.

# %%
from ledger import exercises
from ledger.reference.mtp import exact_distribution, verify_sampling

after = np.random.default_rng(3).dirichlet(np.ones(4), (2, 4))  # q and p behind each first token
q_first, p_first = np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.2, 0.2, 0.25, 0.35])


def q_of(seen):
    return after[0, seen[-1]] if seen else q_first


def p_of(seen):
    return after[1, seen[-1]] if seen else p_first


right = np.array([p_of(()) * row for row in np.eye(4)]) @ after[1]
wrong = ("everything accepted", "everything rejected", "residual drawn from the target")
wrong += ("a uniform used twice", "bonus from the draft")
answers = {m.because: m.answer for m in exercises.get("verify_sampling").mutants}
rules = {"the rule": verify_sampling} | {name: answers[name] for name in wrong}

# %%
for name, rule in rules.items():
    found = exact_distribution(rule, q_of, p_of, num_draft_tokens=1)
    first = abs(found.sum(axis=1) - p_of(())).sum() / 2
    print(f"{name:34} first token {first:6.4f}   two tokens {abs(found - right).sum() / 2:6.4f}")
assert abs(exact_distribution(verify_sampling, q_of, p_of, 1) - right).max() < 1e-12

# %% [markdown]
# The numbers are **total variation**, half the sum of all differences: how much probability is in the wrong place. The
# rule is exact. Each of the others writes another text than the model would. (The bonus from the draft spoils the second
# token alone.)
#
# ### And by drawing?
#
# Drawn frequencies must come closer, up to luck, at the pace of honest draws from $p$.

# %%
from ledger.browser import IN_BROWSER

draws = 4000 if IN_BROWSER else 40000
tokens, u = tiny.pick(np.broadcast_to(q, (draws, V)), rng.random(draws)), rng.random((draws, 2))
rows = np.array([p, p])
first = []
for x, drawn in zip(tokens, u, strict=True):
    accepted, token = verify_sampling(np.array([x]), q[None], rows, drawn)
    first.append([*accepted, token][0])
honest = tiny.pick(np.broadcast_to(p, (draws, V)), rng.random(draws))

# %%
from ledger.widgets.base import new_figure, plain_ticks

about = "Total variation from p over draws: of drafts, verified and honest"
fig = new_figure(8.2, 3.0, alt=about)
ax = fig.subplots()
counts = np.unique(np.geomspace(50, draws, 25).astype(int))
looks = (("drafts as they are", tokens, "materialize", "--"), ("after verification", first, "latent", "o-"))
for name, who, color, mark in (*looks, ("drawn from p", honest, "neutral", ":")):
    off = [abs(np.bincount(who[:n], minlength=V) / n - p).sum() / 2 for n in counts]
    ax.plot([float(n) for n in counts], off, mark, color=COLORS[color], label=name, markersize=4)
ax.set(xscale="log", yscale="log", xlabel="draws", ylabel="total variation from p", ylim=(1e-3, 3))
plain_ticks(ax.xaxis)
ax.legend(loc="upper right", ncols=3)
fig

# %% [markdown]
# Verified drafts and honest draws fall together, as one over the root of their number. Drafts as they are do not fall. The
# usual test of that is $\chi^2 = \sum_x (n_x - n p_x)^2 / (n p_x)$. For honest draws it stays near the number of tokens less
# one, however many you draw; for others it grows with them.

# %%
for n in (draws // 10, draws):
    found = {}
    for name, who in (("drafts", tokens), ("verified", first), ("drawn from p", honest)):
        found[name] = ((np.bincount(who[:n], minlength=V) - n * p) ** 2 / (n * p)).sum()
    print(f"{n:6,} draws, χ² of", ", ".join(f"{name} {value:,.1f}" for name, value in found.items()))
print(f"expected of honest draws: {V - 1} ± {(2 * (V - 1)) ** 0.5:.1f}")

# %% [markdown]
# ## Why are later drafts accepted less often?
#
# A draft from $q$ is accepted with probability $\sum_x q(x)\min(1, p(x)/q(x))$, so
#
# $$\text{acceptance} = \sum_x \min(p(x), q(x)) = 1 - \text{total variation of } p \text{ and } q$$
#
# Measure it for four drafts in a row, always given that the drafts before were accepted. Predict the shape: the module was
# trained for draft 1 alone. Three ways: the module on its own states; the module on states that the main model would have
# made (which nobody has at that time); and drafts that are the module's *best* token instead of a drawn one.


# %%
def chain(start, drawn, recycled, count=4):
    before, last, token = (text[start + i] for i in range(3))
    state, alive, found = tiny.states(before, last, main)[0], np.ones(len(start), bool), []
    for _ in range(count):
        if not recycled:
            state, _ = tiny.states(before, last, main)
        state, _ = tiny.drafter_states(state, token, main, drafter)
        q = tiny.probabilities(state, main)
        p = tiny.probabilities(tiny.states(last, token, main)[0], main)
        q = q if drawn else np.eye(V)[q.argmax(axis=1)]
        found.append(acceptance(q, p)[alive].mean())
        x, row = tiny.pick(q, rng.random(len(q))), np.arange(len(q))
        alive &= rng.random(len(q)) * q[row, x] < p[row, x]
        before, last, token = last, token, x
    return found


# %%
start = rng.integers(0, len(text) - 8, 5000 if IN_BROWSER else 80000)
lines = {"drawn, on its own states": chain(start, drawn=True, recycled=True)}
lines["drawn, on the model's states"] = chain(start, drawn=True, recycled=False)
lines["its best token"] = chain(start, drawn=False, recycled=True)
pictures.acceptance_picture(lines)

# %% [markdown]
# * **The first draft** is accepted about as often as DeepSeek reports for its own module, which is luck: the language is
#   ours.
# * **Later ones fall** because the module reads its own state in place of the model's. Its state was trained to be read
#   by the head, never by the module. Given the model's states, the curve does not fall.
# * **The best token** is a distribution too, with a single 1: $q$ is **one-hot**, and the acceptance is $p(x)$ itself.
#   Here that loses against a drawn draft. Where the model is surer than the module, it wins: $p = [0.9, 0.1]$ accepts
#   0.9 of the best tokens and, with $q = [0.6, 0.4]$, 0.7 of the drawn ones. And no $q$ need be kept, so engines often
#   draft greedily and verify with a one-hot $q$.
#
# The expected tokens of a step are $1 + p_1 + p_1p_2 + \ldots$ with these conditional acceptances. Does generation agree,
# up to luck?

# %%
from ledger.account.mtp import expected_advance


def by_chance(tokens, q, p):
    return verify_sampling(tokens, q, p, rng.random(len(tokens) + 1))


drawing = {"choose": lambda p: int(tiny.pick(p, rng.random())), "verify": by_chance}
length = 1000 if IN_BROWSER else 15000
for k in (1, 2, 3):
    written, forwards = generate(length, k, **drawing)
    wanted = expected_advance(lines["drawn, on its own states"][:k])
    print(f"{k} draft{'s' * (k > 1)}: {length / forwards:.2f} tokens a forward, {wanted:.2f} expected")

# %% [markdown]
# ## Is one forward of k + 1 rows cheaper than k + 1 forwards?
#
# In a decode step the weights are read once, whatever the rows. As long as reading is what takes the time, $k + 1$
# rows should take as long as one. Predict the last column, then measure a product with a matrix that is too large for
# this processor's caches. (In a browser the matrix is small, and arithmetic alone decides.)

# %%
from functools import partial

from ledger.measure import time_pairs

width = 512 if IN_BROWSER else 4096
matrix = rng.standard_normal((width, width), dtype=np.float32)
inputs = {k: rng.standard_normal((k + 1, width), dtype=np.float32) for k in (0, 1, 3, 7, 15)}
times = time_pairs({k: partial(np.matmul, x, matrix) for k, x in inputs.items()}, seconds=0.3)
print(f"a matrix of {matrix.nbytes / 1e6:.1f} MB")
print("drafts   rows      together    one by one   together ÷ one row")
for k, timing in times.items():
    ms, single = 1e3 * timing.low, 1e3 * times[0].low
    print(f"{k:6} {k + 1:6} {ms:10.2f} ms {(k + 1) * single:10.2f} ms {ms / single:20.2f}")
print(f"\nfrom 2 rows to 16: {times[15].low / times[1].low - 1:+.0%} time, {16 / 2 - 1:+.0%} rows")

# %% [markdown]
# You predicted 1.00? It failed at **two rows**: this library multiplies one row straight from memory, but for several it
# first copies the matrix into blocks, and the copy takes longer than reading. **From two rows to sixteen** the time grows,
# but far less than the rows. So sixteen rows beat sixteen forwards, and two need not beat two.
#
# A GPU has room for a few hundred rows before arithmetic takes longer than reading, and its batch fills a part of
# that room. When it is used up, drafts cost what they are: more rows. That account is the
# [second lesson of this chapter](speed.ipynb).

# %% [markdown]
# ## What if the draft were better, or the temperature higher?
#
# Ten tokens, a target $p$ and a draft $q$. Green is accepted, the lower picture is drawn from after a rejection, the
# right one shows what a step then brings if every draft is accepted so often.
#
# * Set the distance to 0. What is left to reject, for a drawn draft and for the best token?
# * Lower the temperature with the best token as draft. Where does its acceptance go, and why?
# * At which acceptance does the eighth draft still add a tenth of a token?

# %%
pictures.DraftsExplorer().show()

# %% [markdown]
# ## What else makes drafts?
#
# | | reads | makes | trained |
# |---|---|---|---|
# | **separate draft model** | the text alone | one draft a pass, its own layers and cache | by itself; needs the same vocabulary |
# | **Medusa** | the model's last state | draft $j$ from head $j$, none knows the others' tokens | heads on a finished model |
# | **EAGLE** | the model's state and the next token's embedding, joined | one draft a pass, recycles its own state | a layer on a finished model |
# | **MTP** | the same | the same | with the model, from the start |
#
# So MTP is built like EAGLE's drafter, and engines run both with the same code. What differs is the training: one
# came with the model and shaped it, the other was added.
#
# Drafters may also offer several tokens in a place, a **tree**, verified in the same forward under a mask.

# %% [markdown]
# ## What is reported, and what do engines do?
#
# DeepSeek-V3's report (section 5.4.3) gives 85 % to 90 % for the acceptance of the second token (the first draft, in our
# words), across topics, and 1.8 times the tokens a second. How much longer than a step without a draft did each take?

# %%
for p1 in (0.85, 0.9):
    gain = expected_advance([p1])
    print(f"acceptance {p1:.0%}: {gain:.2f} tokens a step, which took {gain / 1.8 - 1:.0%} longer")

# %% [markdown]
# That is close to nothing for one pass of the module and one row more. The next lesson asks when it holds.
#
# * **vLLM**: `model_executor/models/deepseek_mtp.py` is the module, `v1/spec_decode/eagle.py` runs it (and EAGLE),
#   `v1/sample/rejection_sampler.py` verifies. `--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'`.
# * **SGLang**: `srt/models/deepseek_nextn.py` is the module, `srt/speculative/` has its worker and verification.
#   `--speculative-algorithm NEXTN --speculative-num-steps k --speculative-eagle-topk 1
#   --speculative-num-draft-tokens k+1`: the verified rows are counted, so one more than the drafts.
# * Both join the embedding first. For a second draft SGLang hands on the state behind the head's norm, vLLM has handed on
#   the one before it; `hnorm` divides by the size again, so little changes.

# %% [markdown]
# ## How to explain it
#
# *"DeepSeek-V3 was trained with one layer more, which guesses the token after next from the model's last state and the token
# just made; the head is shared. In decode we let it guess, and the model's next forward reads the guess as one more
# row: it makes its own token and checks the guess in one reading of weights and cache. Greedy, we keep guesses until the
# first that differs. Sampling, we accept with probability p over q and repair a rejection by drawing from what q gave
# too little of, so the text is distributed as if there were no guesses. The first guess is right 85 to 90 % of the time,
# later ones less, because then the layer reads its own state."*

# %% [markdown]
# ## Summary
#
# * Module: $W\,[\text{norm}(\text{Emb}(t_{i+1})); \text{norm}(h_i)]$, embedding first, one decoder layer, norm, shared head.
#   At DeepSeek-V3's shapes the head is more than half of what a draft multiplies.
# * Verification is one forward of $k + 1$ rows. It adds the accepted drafts and one token of the model's own.
# * Sampling: accept if $u\,q < p$, after a rejection draw from $\max(p - q, 0)$, normalised. What comes out has the
#   model's distribution, exactly.
# * Acceptance is $\sum\min(p, q)$. A greedy draft has a one-hot $q$ and is accepted with $p(x)$.
# * Later drafts are accepted less often: the module then reads its own state.

# %% [markdown]
# ## Exercises to do next
#
# 1. [mtp_forward](../../practice/ch08_mtp/drafts.ipynb#cell-id=mtp_forward-statement): what the module's layer is given.
# 2. [verify_greedy](../../practice/ch08_mtp/drafts.ipynb#cell-id=verify_greedy-statement): drafts against the best tokens.
# 3. [verify_sampling](../../practice/ch08_mtp/drafts.ipynb#cell-id=verify_sampling-statement): the rule, graded on single rounds
#    and on what comes out of hundreds.
#
# ```
# python judge.py 8
# ```
#
# Then go on to [what it gains](speed.ipynb): when a draft pays, and when it costs.
