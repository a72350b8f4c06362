"""A language small enough to be known whole, and a model and its drafter that learn it in a second, in NumPy alone.

Each token depends on the two before it. The model embeds both, mixes them and has one layer; the drafter is an MTP
module with a layer of the same kind. The layer has no attention: the model's state has read all that there is to read.
"""

from collections.abc import Callable, Mapping

import numpy as np

from ledger.reference.layer import softmax

Weights = dict[str, np.ndarray]
EPS = 1e-6


def language(rng: np.random.Generator, vocabulary: int, concentration: float = 0.2, noise: float = 0.03) -> np.ndarray:
    """A random language: the probability of each next token after each two tokens, (vocabulary,) · 3. The smaller the
    ``concentration``, the surer the next token; ``noise`` goes to all tokens alike."""
    drawn = rng.dirichlet(np.full(vocabulary, concentration), (vocabulary, vocabulary))
    return (1 - noise) * drawn + noise / vocabulary


def pick(probs: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """The first token of each row whose cumulative probability exceeds the row's uniform: (…, vocabulary) -> (…)."""
    total = np.cumsum(probs, axis=-1)
    return np.argmax(total > (np.asarray(uniforms) * total[..., -1])[..., None], axis=-1)


def write(source: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """A text of the language: (length,)."""
    text, totals = [0, 0], np.cumsum(source, axis=-1)
    for uniform in rng.random(length - 2).tolist():
        row = totals[text[-2], text[-1]]
        text.append(int(np.searchsorted(row, uniform * row[-1], side="right")))
    return np.array(text[:length])


def entropy(source: np.ndarray, text: np.ndarray) -> float:
    """Mean entropy of the next token over the contexts of ``text``, in nats: the least loss that a model can have."""
    surprise = -(source * np.log(source)).sum(axis=-1)
    return float(surprise[text[:-1], text[1:]].mean())


def rms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """RMSNorm without a weight over the last axis, and the root mean squares."""
    size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS)
    return x / size, size


def layer(x: np.ndarray, weights: Weights) -> tuple[np.ndarray, tuple]:
    """norm(x + tanh(x · up) · down), and what its way back needs: (rows, hidden_dim) -> (rows, hidden_dim)."""
    inside = np.tanh(x @ weights["up"])
    normed, size = rms(x + inside @ weights["down"])
    return normed, (x, inside, normed, size)


def layer_back(grad: np.ndarray, kept: tuple, weights: Weights) -> tuple[np.ndarray, Weights]:
    """The gradients of ``layer``'s input and weights from that of its output."""
    x, inside, normed, size = kept
    grad = (grad - normed * np.mean(grad * normed, axis=-1, keepdims=True)) / size
    within = (grad @ weights["down"].T) * (1 - inside * inside)
    return grad + within @ weights["up"].T, {"up": x.T @ within, "down": inside.T @ grad}


def states(before: np.ndarray, last: np.ndarray, main: Weights) -> tuple[np.ndarray, tuple]:
    """The model's normed state after two tokens (rows,) each -> (rows, hidden_dim), and what the way back needs."""
    both = np.concatenate([main["embed"][before], main["embed"][last]], axis=-1)
    state, kept = layer(both @ main["mix"], main)
    return state, (both, kept)


def drafter_states(state: np.ndarray, token: np.ndarray, main: Weights, drafter: Weights) -> tuple[np.ndarray, tuple]:
    """The MTP module: a state (rows, hidden_dim) and the token after it (rows,) -> its own normed state, which the
    model's head reads, and what the way back needs."""
    both = np.concatenate([rms(main["embed"][token])[0], rms(state)[0]], axis=-1)
    new, kept = layer(both @ drafter["eh_proj"], drafter)
    return new, (both, kept)


def probabilities(state: np.ndarray, main: Weights) -> np.ndarray:
    """What the shared head reads from a state: (…, hidden_dim) -> (…, vocabulary)."""
    return softmax(state @ main["head"])


def _scaled(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) / shape[0] ** 0.5


def _descend(weights: Weights, gradients: Callable[[], Mapping[str, np.ndarray]], steps: int, rate: float) -> None:
    """Adam, with a rate that falls to 0; ``weights`` change in place."""
    first, second = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    for step in range(1, steps + 1):
        for name, grad in gradients().items():
            first[name] += 0.1 * (grad - first[name])
            second[name] += 0.01 * (grad * grad - second[name])
            root = np.sqrt(second[name] / (1 - 0.99**step)) + 1e-8
            weights[name] -= rate * (1 - step / steps) * first[name] / (1 - 0.9**step) / root


def _loss_back(state: np.ndarray, main: Weights, right: np.ndarray) -> np.ndarray:
    """The gradient of the mean cross-entropy in the logits."""
    grad = probabilities(state, main)
    grad[np.arange(len(right)), right] -= 1
    return grad / len(right)


def train_main(
    text: np.ndarray,
    vocabulary: int,
    rng: np.random.Generator,
    hidden_dim: int = 12,
    inner_dim: int = 48,
    steps: int = 600,
    rows: int = 256,
) -> Weights:
    """A model of ``text``: embed (vocabulary, hidden_dim), mix (2 · hidden_dim, hidden_dim), up, down, head."""
    main = {
        "embed": rng.standard_normal((vocabulary, hidden_dim)),
        "mix": _scaled(rng, 2 * hidden_dim, hidden_dim),
        "up": _scaled(rng, hidden_dim, inner_dim),
        "down": _scaled(rng, inner_dim, hidden_dim) / 2,
        "head": _scaled(rng, hidden_dim, vocabulary),
    }

    def gradients() -> Weights:
        at = rng.integers(2, len(text), rows)
        before, last, right = text[at - 2], text[at - 1], text[at]
        state, (both, kept) = states(before, last, main)
        logits = _loss_back(state, main, right)
        grad, found = layer_back(logits @ main["head"].T, kept, main)
        tokens = np.zeros_like(main["embed"])
        from_both = grad @ main["mix"].T
        np.add.at(tokens, before, from_both[:, :hidden_dim])
        np.add.at(tokens, last, from_both[:, hidden_dim:])
        return found | {"head": state.T @ logits, "mix": both.T @ grad, "embed": tokens}

    _descend(main, gradients, steps, 0.02)
    return main


def train_drafter(text: np.ndarray, main: Weights, rng: np.random.Generator, steps: int = 600, rows: int = 256):
    """An MTP module of a finished model, trained on the token after the next alone: eh_proj, up, down."""
    hidden_dim, inner_dim = main["up"].shape
    drafter = {
        "eh_proj": _scaled(rng, 2 * hidden_dim, hidden_dim),
        "up": _scaled(rng, hidden_dim, inner_dim),
        "down": _scaled(rng, inner_dim, hidden_dim) / 2,
    }

    def gradients() -> Weights:
        at = rng.integers(2, len(text) - 1, rows)
        state, _ = states(text[at - 2], text[at - 1], main)
        new, (both, kept) = drafter_states(state, text[at], main, drafter)
        logits = _loss_back(new, main, text[at + 1])
        grad, found = layer_back(logits @ main["head"].T, kept, drafter)
        return found | {"eh_proj": both.T @ grad}

    _descend(drafter, gradients, steps, 0.02)
    return drafter
