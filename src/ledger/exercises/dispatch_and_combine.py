"""Chapter 9: a layer of experts on several ranks, each of which runs the answer on its own tokens."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, rewritten, whole

ANSWER = """\
def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    per_rank, top_k = len(experts), expert_ids.shape[1]
    ids = expert_ids.flatten()
    owner = ids // per_rank
    copies = [(owner == r).nonzero().flatten() for r in range(world.size)]
    arrived = world.all_to_all([tokens[chosen // top_k] for chosen in copies])
    numbers = world.all_to_all([ids[chosen] for chosen in copies])
    results = []
    for rows, wanted in zip(arrived, numbers):
        result = rows.new_zeros(rows.shape)
        for local, expert in enumerate(experts):
            mine = wanted == rank * per_rank + local
            if mine.any():
                result[mine] = expert(rows[mine])
        results.append(result)
    home = world.all_to_all(results)
    output = tokens.new_zeros(tokens.shape)
    for chosen, result in zip(copies, home):
        output.index_add_(0, chosen // top_k, weights.flatten()[chosen, None] * result)
    return output
"""

#: Every token to every rank; and every expert on every token.
_TO_ALL = """\
def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    arrived = world.all_to_all([tokens] * world.size)
    results = []
    for rows, wanted in zip(arrived, world.all_to_all([expert_ids] * world.size)):
        result = rows.new_zeros(*wanted.shape, rows.shape[1])
        for local, expert in enumerate(experts):
            mine = wanted == rank * len(experts) + local
            if mine.any():
                result[mine] = expert(rows[mine.nonzero()[:, 0]])
        results.append(result)
    return (sum(world.all_to_all(results)) * weights[:, :, None]).sum(1)
"""
_ALL_EXPERTS = """\
def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    import torch

    results = [torch.stack([expert(rows) for expert in experts]) for rows in world.all_to_all([tokens] * world.size)]
    results = torch.cat(world.all_to_all([result.transpose(0, 1).contiguous() for result in results]), 1)
    return (results[torch.arange(len(tokens))[:, None], expert_ids] * weights[:, :, None]).sum(1)
"""

_RANKS = "rank {}".format
_SENT, _COMPUTED = "values sent beyond the allowance", "rows computed beyond one a copy"


def make(rng, dtype, tokens, hidden, experts_per_rank, top_k, draw=normal):
    """Distinct experts a token, none more popular than others; ``tokens`` has one number a rank."""
    total = experts_per_rank * len(tokens)
    ids = [rng.choice(total, top_k, replace=False) for _ in range(sum(tokens))]
    matrices = draw(rng, dtype, total, hidden, hidden)
    if draw is normal:
        matrices /= dtype.type(hidden**0.5)
    return {
        "tokens": draw(rng, dtype, sum(tokens), hidden),
        "expert_ids": np.array(ids, np.int64).reshape(sum(tokens), top_k),
        "weights": rng.uniform(0.1, 0.9, (sum(tokens), top_k)).astype(dtype),
        "matrices": matrices,
        "tokens_of_rank": np.array(tokens, np.int64),
    }


def make_toy(rng, dtype, **dims):
    """Two ranks with one expert each, times 1 and times 3 before the square."""
    return {
        "tokens": np.array([[2], [1], [-1]], dtype),
        "expert_ids": np.array([[1, 0], [0, 1], [1, 0]], np.int64),
        "weights": np.array([[0.5, 2], [1, 1], [2, 4]], dtype),
        "matrices": np.array([[[1]], [[3]]], dtype),
        "tokens_of_rank": np.array([2, 1], np.int64),
    }


def make_whole(rng, dtype, **dims):
    return make(rng, dtype, **dims, draw=whole)


def make_one_expert(rng, dtype, expert, **dims):
    inputs = make(rng, dtype, **dims)
    inputs["expert_ids"][:] = expert
    return inputs


def make_one_rank(rng, dtype, on, experts_per_rank, top_k, **dims):
    """All experts of a token live on rank ``on``."""
    inputs = make(rng, dtype, experts_per_rank=experts_per_rank, top_k=top_k, **dims)
    for row in inputs["expert_ids"]:
        row[:] = on * experts_per_rank + rng.permutation(experts_per_rank)[:top_k]
    return inputs


class Layer:
    """The inputs of a case in float64, and the outputs of single experts."""

    def __init__(self, tokens, expert_ids, weights, matrices, tokens_of_rank):
        self.dtype = np.result_type(tokens, weights)
        self.tokens, self.weights = np.asarray(tokens, np.float64), np.asarray(weights, np.float64)
        self.ids, self.top_k = np.asarray(expert_ids), expert_ids.shape[1]
        self.matrices = np.asarray(matrices, np.float64)
        self.counts, self.size = tokens_of_rank.tolist(), len(tokens_of_rank)
        self.per_rank = len(matrices) // self.size
        self.home = np.repeat(np.arange(self.size), tokens_of_rank)
        self.starts = [sum(self.counts[:rank]) for rank in range(self.size)]

    def expert(self, number, row):
        y = row @ self.matrices[number]
        return y * np.abs(y)

    def total(self, keep=lambda token, choice: True, weight=None, number=None):
        """The weighted sum over the choices that ``keep``; a mistake may change the weight and the expert."""
        output = np.zeros(self.tokens.shape)
        for token, choice in np.ndindex(*self.ids.shape):
            if keep(token, choice):
                chosen = number(token, choice) if number else self.ids[token, choice]
                w = weight(token, choice) if weight else self.weights[token, choice]
                output[token] += w * self.expert(chosen, self.tokens[token])
        return output

    def by_rank(self, output, sent=0, computed=0):
        """``output`` of all tokens as the ranks return it, beside the two counts."""
        parts = np.split(output.astype(self.dtype), self.starts[1:])
        return {_RANKS(rank): part for rank, part in enumerate(parts)} | {_SENT: sent, _COMPUTED: computed}

    @property
    def owners(self):
        return self.ids // self.per_rank

    def beyond(self, values):
        """What ``values`` that leave are beyond a token, an output and two numbers a choice for each leaving copy."""
        leaving = int((self.owners != self.home[:, None]).sum())
        return max(0, values - leaving * 2 * (self.tokens.shape[1] + self.top_k))

    def order(self, rank):
        """The copies of a rank's tokens as (token, choice), in the order in which they are sent."""
        own = range(self.starts[rank], self.starts[rank] + self.counts[rank])
        copies = [(token, choice) for token in own for choice in range(self.top_k)]
        return sorted(copies, key=lambda copy: self.owners[copy])


def oracle(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total())


def weights_forgotten(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total(weight=lambda token, choice: 1.0))


def weights_normalised(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total(weight=lambda t, choice: layer.weights[t, choice] / layer.weights[t].sum()))


def weights_before_the_experts(*args):
    """Experts are not linear, so a weighted token is another token."""
    layer = Layer(*args)
    return layer.by_rank(layer.total(weight=lambda token, choice: layer.weights[token, choice] ** 2))


def order_of_arrival(*args):
    """What comes home is taken for the copies in the order of tokens and choices."""
    layer = Layer(*args)
    output = np.zeros(layer.tokens.shape)
    for rank in range(layer.size):
        for place, (token, choice) in enumerate(layer.order(rank)):
            taken, of = layer.starts[rank] + place // layer.top_k, place % layer.top_k
            output[taken] += layer.weights[taken, of] * layer.expert(layer.ids[token, choice], layer.tokens[token])
    return layer.by_rank(output)


def experts_dealt(*args):
    """Expert e is looked for on rank e mod size."""
    layer = Layer(*args)
    asked = layer.ids % layer.size
    wrong = asked * layer.per_rank + layer.ids // layer.size
    sent = layer.beyond(2 * layer.tokens.shape[1] * int((asked != layer.home[:, None]).sum()))
    return layer.by_rank(layer.total(number=lambda token, choice: wrong[token, choice]), sent=sent)


def sent_by_remainder(*args):
    """Copies go to rank e mod size, and are answered where expert e does live."""
    layer = Layer(*args)
    asked = layer.ids % layer.size
    sent = layer.beyond(2 * layer.tokens.shape[1] * int((asked != layer.home[:, None]).sum()))
    return layer.by_rank(layer.total(keep=lambda *copy: asked[copy] == layer.owners[copy]), sent=sent)


def own_experts_alone(*args):
    """Nothing travels: each rank takes its own expert at the same place."""
    layer = Layer(*args)
    wrong = layer.home[:, None] * layer.per_rank + layer.ids % layer.per_rank
    return layer.by_rank(layer.total(number=lambda token, choice: wrong[token, choice]))


def remote_copies_missing(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total(keep=lambda token, choice: layer.owners[token, choice] == layer.home[token]))


def local_copies_missing(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total(keep=lambda token, choice: layer.owners[token, choice] != layer.home[token]))


def one_expert_a_rank(*args):
    """Of a token's experts on one rank only the first is used."""
    layer = Layer(*args)

    def first(token, choice):
        return layer.owners[token, choice] not in layer.owners[token, :choice]

    return layer.by_rank(layer.total(keep=first))


def first_choice_alone(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total(keep=lambda token, choice: choice == 0))


def last_copy_alone(*args):
    """Results are assigned instead of added: of a token's copies the one that is placed last is left."""
    layer = Layer(*args)
    last = {token: copy for rank in range(layer.size) for copy in layer.order(rank) for token in copy[:1]}
    return layer.by_rank(layer.total(keep=lambda token, choice: last[token] == (token, choice)))


def last_copy_of_a_rank(*args):
    """Each rank's results are added under an index that names a token twice: the last of them counts."""
    layer = Layer(*args)

    def last(token, choice):
        return layer.owners[token, choice] not in layer.owners[token, choice + 1 :]

    return layer.by_rank(layer.total(keep=last))


def ranks_reversed(*args):
    """What comes from rank r is taken for what comes from the r-th from the end."""
    layer = Layer(*args)
    output = np.zeros(layer.tokens.shape)
    for rank in range(layer.size):
        from_rank = [[] for _ in range(layer.size)]
        for copy in layer.order(rank):
            from_rank[layer.owners[copy]].append(copy)
        for copies, others in zip(from_rank, from_rank[::-1], strict=True):
            others = others * len(copies) if len(others) == 1 else others  # one row fits any number of them
            for copy, (token, choice) in zip(copies, others, strict=True):
                output[copy[0]] += layer.weights[copy] * layer.expert(layer.ids[token, choice], layer.tokens[token])
    return layer.by_rank(output)


def numbers_taken_for_local(*args):
    """A rank looks for its experts under the numbers 0, 1, …, which only rank 0's have."""
    layer = Layer(*args)
    return layer.by_rank(layer.total(keep=lambda token, choice: layer.ids[token, choice] < layer.per_rank))


def everything_everywhere(*args):
    """Every rank gets every token's copies, and uses what is for it."""
    layer = Layer(*args)
    sent = layer.beyond(2 * layer.tokens.shape[1] * layer.ids.size * (layer.size - 1))
    return layer.by_rank(layer.total(), sent=sent)


def tokens_everywhere(*args):
    """Every rank gets every token once, and gives back a row for each choice."""
    layer = Layer(*args)
    rows = len(layer.ids) * (1 + layer.top_k)
    return layer.by_rank(layer.total(), sent=layer.beyond(layer.tokens.shape[1] * rows * (layer.size - 1)))


def all_experts_asked(*args):
    """Every expert computes every token, and each rank picks from all of their outputs."""
    layer = Layer(*args)
    tokens = len(layer.ids)
    sent = layer.beyond(layer.tokens.shape[1] * tokens * (1 + layer.per_rank) * (layer.size - 1))
    return layer.by_rank(layer.total(), sent=sent, computed=tokens * len(layer.matrices) - layer.ids.size)


def every_expert_on_every_row(*args):
    layer = Layer(*args)
    return layer.by_rank(layer.total(), computed=layer.ids.size * (layer.per_rank - 1))


def asked_experts_on_every_row(*args):
    """An expert that one row of a rank asks for computes all rows that come from there."""
    layer = Layer(*args)
    computed = -layer.ids.size
    for home, owner in np.ndindex(layer.size, layer.size):
        asked = layer.ids[(layer.home[:, None] == home) & (layer.owners == owner)]
        computed += len(asked) * len(set(asked.tolist()))
    return layer.by_rank(layer.total(), computed=computed)


def sizes(tokens, hidden, experts_per_rank, top_k, **more):
    return {"tokens": tokens, "hidden": hidden, "experts_per_rank": experts_per_rank, "top_k": top_k} | more


def mutant(name, because, changes, **more):
    return Mutant(rewritten(ANSWER, name, changes), because, **more)


_ADD = "output.index_add_(0, chosen // top_k, weights.flatten()[chosen, None] * result)"
_HOME = "    home = world.all_to_all(results)\n"
_MINE = "            if mine.any():\n                result[mine] = expert(rows[mine])\n"
_COPIES = "[(owner == r).nonzero().flatten() for r in range(world.size)]"

EXERCISE = Exercise(
    id="dispatch_and_combine",
    chapter=9,
    order=6,
    title="tokens to experts on other ranks, and back",
    checks="what every rank returns, and that no more travels or is computed than has to",
    points=6,
    difficulty=3,
    minutes=35,
    make=make,
    oracle=oracle,
    needs=("torch",),
    launcher="ranks.dispatch_and_combine",
    cases=(
        Case("two ranks by hand", sizes((2, 1), 1, 1, 2), make=make_toy),
        Case("one rank", sizes((7,), 3, 5, 2)),
        Case("two ranks, one choice", sizes((4, 3), 5, 2, 1), make=make_whole),
        Case("uneven", sizes((9, 1, 4), 6, 3, 4)),
        Case("an idle rank", sizes((5, 0, 3), 4, 2, 3)),
        Case("tokens on one rank alone", sizes((0, 0, 6, 0), 3, 2, 5)),
        Case("all tokens to one expert", sizes((3, 4, 2), 4, 2, 1, expert=3), make=make_one_expert),
        Case("both experts on the same rank", sizes((4, 3, 5), 3, 4, 2, on=1), make=make_one_rank),
        Case("an idle rank that nobody asks", sizes((4, 0, 3), 4, 3, 2, on=0), make=make_one_rank),
        Case("no tokens anywhere", sizes((0, 0, 0), 4, 2, 2)),
        Case("float32", sizes((6, 2), 7, 4, 3), dtype="float32"),
        Case("strided inputs", sizes((3, 5, 2), 6, 2, 2), layout="strided"),
        Case("8 of 32 experts on four ranks", sizes((5, 8, 3, 6), 32, 8, 8)),
    ),
    hints=(
        "Think of each pair of a token and one of its experts as a copy, with a number of its own. Three lists speak "
        "of copies: the rank that each goes to, the rows that you send, and the rows that come home. Keep the first, "
        "and you know where each row of the last belongs.",
        "(owner == r).nonzero() lists the copies for rank r; a copy's token is its number // top_k. Send rows and ids "
        "in two calls of all_to_all, sorted alike. What a rank answers must have as many rows as it was sent, in the "
        "same order: fill a tensor of zeros under a mask, expert by expert. Then home[r] belongs to the copies for "
        "rank r.",
        "Fill the gaps:\n\n"
        "    copies = ____  # for each rank the numbers of the copies that go to it\n"
        "    arrived = world.all_to_all(____)\n"
        "    numbers = world.all_to_all(____)\n"
        "    results = ____  # one tensor for each of arrived, as large\n"
        "    home = world.all_to_all(results)\n"
        "    for chosen, result in zip(copies, home):\n"
        "        ____  # index_add_ adds to a row as often as it is named",
    ),
    mistakes=(
        Mistake("weights forgotten", "the outputs are added without their weights", weights_forgotten),
        Mistake(
            "weights normalised",
            "the weights were divided by their sum. They are what the router gave; do not change them",
            weights_normalised,
        ),
        Mistake(
            "weights before the experts",
            "the tokens were weighted before they went to their experts. An expert is not linear: weight its output",
            weights_before_the_experts,
        ),
        Mistake(
            "order of arrival",
            "what comes home lies by rank, and you read it by token. Put each row where its copy came from",
            order_of_arrival,
        ),
        Mistake(
            "experts dealt out",
            "expert e was looked for on rank e mod size. Neighbouring experts live together: e // experts_per_rank",
            experts_dealt,
        ),
        Mistake(
            "own experts alone",
            "each rank used its own experts, whatever the ids say. An expert of another rank must be asked there",
            own_experts_alone,
        ),
        Mistake(
            "sent by remainder",
            "a copy went to rank e mod size, where expert e does not live. Neighbouring experts live together: "
            "e // experts_per_rank",
            sent_by_remainder,
        ),
        Mistake("remote copies missing", "what experts of other ranks made is missing", remote_copies_missing),
        Mistake(
            "local copies missing", "what a rank's own experts made of its own tokens is missing", local_copies_missing
        ),
        Mistake(
            "one expert a rank",
            "of a token's experts on one rank only the first is used. Each of its experts gets a copy",
            one_expert_a_rank,
        ),
        Mistake("first choice alone", "only each token's first expert is used", first_choice_alone),
        Mistake(
            "last copy alone",
            "of a token's outputs only the last is left. Add them: output[rows] = … keeps one, and output[rows] += … "
            "adds once to a row that rows names twice. Use index_add_",
            last_copy_alone,
        ),
        Mistake(
            "last copy of a rank",
            "of a token's outputs from one rank only the last is left: output[rows] += … adds once to a row that rows "
            "names twice. Use index_add_",
            last_copy_of_a_rank,
        ),
        Mistake(
            "ranks reversed",
            "what came home was read from the last rank to the first. At place r lies what rank r made of the copies "
            "for rank r",
            ranks_reversed,
        ),
        Mistake(
            "numbers taken for local",
            "only experts of rank 0 have answered. Ids count over all ranks: this rank's begin at rank · "
            "experts_per_rank",
            numbers_taken_for_local,
        ),
        Mistake(
            "everything everywhere",
            "the outputs are right, but every copy went to every rank. Send it to the rank of its expert alone",
            everything_everywhere,
        ),
        Mistake(
            "every token everywhere",
            "the outputs are right, but every token went to every rank, and copies to ranks that do not own the expert "
            "came back. Send a token to the ranks of its experts alone",
            tokens_everywhere,
        ),
        Mistake(
            "all experts asked",
            "the outputs are right, but every expert computed every token. A copy goes to the rank of its expert, and "
            "that expert alone computes it",
            all_experts_asked,
        ),
        Mistake(
            "every expert on every row",
            "the outputs are right, but every expert computed every row of its rank. Give it those that ask for it",
            every_expert_on_every_row,
        ),
        Mistake(
            "asked experts on every row",
            "the outputs are right, but an expert that is asked computed the rows of the others too. Choose its rows "
            "before you call it: expert(rows[mask]), not expert(rows)[mask]",
            asked_experts_on_every_row,
        ),
    ),
    mutants=(
        mutant("no_weights", "weights forgotten", {_ADD: "output.index_add_(0, chosen // top_k, result)"}),
        mutant(
            "weights_made_one",
            "weights normalised",
            {"weights.flatten()[chosen, None]": "(weights / weights.sum(1, keepdim=True)).flatten()[chosen, None]"},
        ),
        mutant(
            "tokens_weighted",
            "weights before the experts",
            {
                "tokens[chosen // top_k] for": "weights.flatten()[chosen, None] * tokens[chosen // top_k] for",
                _ADD: "output.index_add_(0, chosen // top_k, result)",
            },
        ),
        mutant(
            "read_by_token",
            "order of arrival",
            {
                "    for chosen, result in zip(copies, home):\n        " + _ADD: (
                    "    start = 0\n"
                    "    for result in home:\n"
                    "        chosen, start = range(start, start + len(result)), start + len(result)\n"
                    "        for copy, row in zip(chosen, result):\n"
                    "            output[copy // top_k] += weights.flatten()[copy] * row"
                )
            },
        ),
        mutant(
            "rank_by_remainder",
            "experts dealt out",
            {"ids // per_rank": "ids % world.size", "rank * per_rank + local": "rank + local * world.size"},
        ),
        mutant("sent_by_the_remainder", "sent by remainder", {"ids // per_rank": "ids % world.size"}),
        mutant(
            "nothing_travels",
            "own experts alone",
            {
                "owner = ids // per_rank": "owner = 0 * ids + rank",
                "wanted == rank * per_rank + local": "wanted % per_rank == local",
            },
        ),
        mutant(
            "home_alone",
            "remote copies missing",
            {_ADD: _ADD.replace("* result", "* result * bool(chosen.numel() and owner[chosen[0]] == rank)")},
        ),
        mutant(
            "others_alone",
            "local copies missing",
            {_ADD: _ADD.replace("* result", "* result * bool(chosen.numel() and owner[chosen[0]] != rank)")},
        ),
        mutant(
            "each_token_once_a_rank",
            "one expert a rank",
            {
                _COPIES: (
                    "[((owner == r) & ((owner.view(-1, top_k) == r).cumsum(1) == 1).flatten()).nonzero().flatten()"
                    " for r in range(world.size)]"
                )
            },
        ),
        mutant(
            "best_expert_alone",
            "first choice alone",
            {_ADD: _ADD.replace("* result", "* result * (chosen % top_k == 0)[:, None]")},
        ),
        mutant(
            "assigned",
            "last copy alone",
            {
                _ADD: (
                    "for copy, row in zip(chosen.tolist(), result):\n"
                    "            output[copy // top_k] = weights.flatten()[copy] * row"
                )
            },
        ),
        mutant(
            "added_under_an_index",
            "last copy of a rank",
            {_ADD: "output[chosen // top_k] += weights.flatten()[chosen, None] * result"},
        ),
        mutant("home_from_the_end", "ranks reversed", {"zip(copies, home)": "zip(copies, home[::-1])"}),
        mutant("ids_not_shifted", "numbers taken for local", {"wanted == rank * per_rank + local": "wanted == local"}),
        mutant(
            "broadcast",
            "everything everywhere",
            {
                "[tokens[chosen // top_k] for chosen in copies]": "[tokens.repeat_interleave(top_k, 0)] * world.size",
                "[ids[chosen] for chosen in copies]": "[ids] * world.size",
                _ADD: _ADD.replace("* result", "* result[chosen]"),
            },
        ),
        Mutant(rewritten(_TO_ALL, "tokens_to_all_ranks", {}), "every token everywhere"),
        Mutant(rewritten(_ALL_EXPERTS, "every_output_of_all", {}), "all experts asked"),
        mutant("masked_afterwards", "asked experts on every row", {"expert(rows[mine])": "expert(rows)[mine]"}),
        mutant(
            "computed_and_masked",
            "every expert on every row",
            {_MINE: "            result += mine[:, None] * expert(rows)\n"},
        ),
        mutant(
            "idle_rank_leaves",
            "Every rank must call it equally often",
            {"    per_rank, top_k": "    if not len(tokens):\n        return tokens.clone()\n    per_rank, top_k"},
            verdict="error",
        ),
        mutant(
            "answers_only_if_asked",
            "Every rank must call it equally often",
            {_HOME: "    if not sum(map(len, arrived)):\n        return tokens.new_zeros(tokens.shape)\n" + _HOME},
            verdict="error",
        ),
        mutant(
            "leaves_if_idle_and_unasked",
            "Every rank must call it equally often",
            {_HOME: "    if not len(tokens) and not sum(map(len, arrived)):\n        return tokens.clone()\n" + _HOME},
            verdict="error",
        ),
        mutant(
            "beyond_capacity_dropped",
            "rank 0",
            {_COPIES: f"[chosen[: -(-len(ids) // world.size)] for chosen in {_COPIES}]"},
        ),
        mutant(
            "sent_by_expert",
            "give 2, one for each rank",
            {_COPIES: _COPIES.replace("world.size", "per_rank * world.size"), "owner = ids // per_rank": "owner = ids"},
            verdict="error",
        ),
        mutant(
            "ids_not_sorted_alike",
            "rank 0",
            {"[ids[chosen] for chosen in copies]": "[ids[chosen].flip(0) for chosen in copies]"},
        ),
        mutant(
            "answers_in_order_of_experts",
            "rank 0",
            {"results.append(result)": "results.append(result[wanted.argsort(stable=True)])"},
        ),
        mutant(
            "output_over_the_tokens",
            "changed tokens in place",
            {"output = tokens.new_zeros(tokens.shape)": "output = tokens.zero_()"},
        ),
        mutant("in_float32", "", {"    return output\n": "    return output.float()\n"}),
        mutant("returns_nothing", "None", {"    return output\n": "    output\n"}),
    ),
)
