"""Chapter 8, drafts: the module's input, the two verifications, the tiny language and the pictures."""

import itertools
from collections import Counter

import numpy as np
import pytest

from ledger import exercises
from ledger.judge.launchers import drafts as rounds
from ledger.models import model
from ledger.reference import mtp, tiny
from ledger.widgets import drafts as pictures

RNG = np.random.default_rng(8)


def some_weights(hidden_dim):
    return {
        "enorm": 0.5 + RNG.random(hidden_dim),
        "hnorm": 0.5 + RNG.random(hidden_dim),
        "eh_proj": RNG.standard_normal((2 * hidden_dim, hidden_dim)),
    }


# The module's input


def test_the_module_s_input_is_torch_s():
    torch = pytest.importorskip("torch")
    hidden, embedding, weights = 5 * RNG.standard_normal((7, 12)), RNG.standard_normal((7, 12)) / 9, some_weights(12)
    e, h = (torch.nn.RMSNorm(12, eps=1e-3, dtype=torch.float64) for _ in range(2))
    e.weight.data, h.weight.data = (torch.from_numpy(weights[name]) for name in ("enorm", "hnorm"))
    project = torch.nn.Linear(24, 12, bias=False, dtype=torch.float64)
    project.weight.data = torch.from_numpy(weights["eh_proj"].T.copy())
    with torch.no_grad():
        wanted = project(torch.cat([e(torch.from_numpy(embedding)), h(torch.from_numpy(hidden))], dim=-1))
    np.testing.assert_allclose(mtp.mtp_forward(hidden, embedding, weights, 1e-3), wanted.numpy(), rtol=1e-13)


def test_the_module_s_toy_by_hand():
    exercise = exercises.get("mtp_forward")
    args = exercise.inputs(exercise.case("the toy by hand"), 0)
    assert mtp.mtp_forward(**args).tolist() == [[8, 15]]


def test_the_module_s_input_keeps_float32():
    exercise = exercises.get("mtp_forward")
    assert mtp.mtp_forward(**exercise.inputs(exercise.case("float32"), 0)).dtype == np.float32


def test_published_sizes_of_the_module():
    """102.8 and 926.7 million, as the weights of DeepSeek-V3 have them."""
    v3 = model("DeepSeek-V3")
    assert 2 * v3.hidden_dim**2 == 102_760_448
    assert v3.hidden_dim * v3.vocab_size == 926_679_040
    assert v3.num_mtp_layers == 1


# Greedy verification


@pytest.mark.parametrize(
    ("draft", "target", "wanted"),
    [
        ([5, 9, 2], [5, 7, 2, 4], ([5], 7)),
        ([], [3], ([], 3)),
        ([1, 2], [1, 2, 9], ([1, 2], 9)),
        ([4], [5, 6], ([], 5)),
    ],
)
def test_greedy_verification_by_hand(draft, target, wanted):
    assert mtp.verify_greedy(draft, target) == wanted


def test_greedy_verification_writes_what_the_target_writes_alone():
    """Every draft of length 3 over 3 tokens against a target that answers by what it has read."""

    def best(seen):
        return (sum(seen) * 2 + len(seen)) % 3

    for draft in itertools.product(range(3), repeat=3):
        accepted, bonus = mtp.verify_greedy(draft, [best(draft[:i]) for i in range(4)])
        alone = []
        while len(alone) <= len(accepted):
            alone.append(best(tuple(alone)))
        assert [*accepted, bonus] == alone
        assert len(accepted) == 3 or draft[len(accepted)] != bonus


# Verification by sampling


def by_the_last_token(rows):
    """A distribution of the next token that depends on the last one; row 0 is for nothing read."""
    return lambda seen: rows[1 + seen[-1] if seen else 0]


@pytest.mark.parametrize(("vocabulary", "drafts"), [(2, 1), (3, 1), (5, 1), (2, 2)])
def test_what_comes_out_has_the_target_s_distribution_exactly(vocabulary, drafts):
    for _ in range(3):
        q, p = (RNG.dirichlet(np.ones(vocabulary), vocabulary + 1) for _ in range(2))
        found = mtp.exact_distribution(mtp.verify_sampling, by_the_last_token(q), by_the_last_token(p), drafts)
        for tokens in itertools.product(range(vocabulary), repeat=drafts + 1):
            wanted = np.prod([by_the_last_token(p)(tokens[:i])[token] for i, token in enumerate(tokens)])
            assert found[tokens] == pytest.approx(wanted, abs=1e-12)


def test_greedy_drafts_leave_the_target_s_distribution_too():
    p = RNG.dirichlet(np.ones(4), 5)
    one_hot = np.eye(4)[[2, 0, 1, 3, 3]]
    found = mtp.exact_distribution(mtp.verify_sampling, by_the_last_token(one_hot), by_the_last_token(p), 1)
    np.testing.assert_allclose(found, p[0][:, None] * p[1:], atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "accept_everything",
        "reject_everything",
        "residual_from_the_target",
        "uniform_used_twice",
        "bonus_from_the_draft",
    ],
)
def test_the_exact_distribution_tells_wrong_rules(name):
    [wrong] = [m.answer for m in exercises.get("verify_sampling").mutants if m.answer.__name__ == name]
    q = np.array([(0.5, 0.3, 0.1, 0.1), *RNG.dirichlet(np.ones(4), 4)])
    p = np.array([(0.2, 0.2, 0.25, 0.35), *RNG.dirichlet(np.ones(4), 4)])
    found = mtp.exact_distribution(wrong, by_the_last_token(q), by_the_last_token(p), 1)
    assert found.sum() == pytest.approx(1)
    assert np.abs(found - p[0][:, None] * p[1:]).sum() / 2 > 0.02


def test_the_exact_distribution_agrees_with_counting():
    """A wrong rule's distribution, so that nothing but its own draws can be compared with."""
    [wrong] = [m.answer for m in exercises.get("verify_sampling").mutants if m.answer.__name__ == "uniform_used_twice"]
    q, p = np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.2, 0.2, 0.25, 0.35])
    found = mtp.exact_distribution(wrong, lambda seen: q, lambda seen: p, 1).sum(axis=1)
    rng, draws, counts = np.random.default_rng(1), 20000, Counter()
    for x, u in zip(rng.choice(4, draws, p=q), rng.random((draws, 2)), strict=True):
        accepted, token = wrong(np.array([x]), q[None], np.array([p, p]), u)
        counts[[*accepted, token][0]] += 1
    for token in range(4):
        assert counts[token] / draws == pytest.approx(found[token], abs=0.015)


def test_acceptance_is_the_shared_mass_and_the_chance_to_pass():
    q, p = RNG.dirichlet(np.ones(6), 2)
    share = mtp.acceptance(q, p)
    assert share == pytest.approx(1 - np.abs(q - p).sum() / 2)
    assert share == pytest.approx(sum(q[x] * min(1, p[x] / q[x]) for x in range(6)))
    accepted = sum(
        q[x] * volume
        for x in range(6)
        for volume, u in mtp.boxes(q[None], np.array([p, p]))
        if mtp.verify_sampling(np.array([x]), q[None], np.array([p, p]), u)[0]
    )
    assert accepted == pytest.approx(share)


def test_the_residual_and_the_shared_part_add_up_to_the_target():
    q, p = RNG.dirichlet(np.ones(6), (2, 3))
    share = mtp.acceptance(q, p)
    np.testing.assert_allclose(np.minimum(q, p) + (1 - share)[:, None] * mtp.residual(q, p), p, atol=1e-15)
    np.testing.assert_array_equal(mtp.residual(p, p), p)


def test_ties_by_hand():
    exercise = exercises.get("verify_sampling")
    args = exercise.inputs(exercise.case("ties"), 0).values()
    # 0.5 · 1 is not below 0.5; the residual is [0, ½, ½, 0], and its cumulative ½ does not exceed ½.
    assert mtp.verify_sampling(*args) == ([1], 2)


def test_the_toy_of_the_statement():
    exercise = exercises.get("verify_sampling")
    assert mtp.verify_sampling(*exercise.inputs(exercise.case("the toy by hand"), 0).values()) == ([0], 2)


def test_a_draw_survives_rounding_at_the_end():
    assert mtp.inverse_cdf(np.array([0.5, 0.5 - 1e-16, 0.0]), np.nextafter(1.0, 0)) == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_rounds_of_the_exercise_give_the_target_s_counts_exactly(seed):
    """Of R rounds R · p(x) begin with x; the bonus of the accepted ones comes as often as its own row says."""
    exercise = exercises.get("verify_sampling")
    args = exercise.inputs(exercise.case("hundreds of rounds, counted"), seed)
    q, p, played = args["draft_probs"][0], args["target_probs"], len(args["uniforms"])
    first, second = exercise.oracle(**args)
    np.testing.assert_allclose(first, played * p[0], atol=1e-9)
    np.testing.assert_allclose(second, played * np.minimum(q, p[0]).sum() * p[1], atol=1e-9)
    np.testing.assert_allclose(np.bincount(args["draft_tokens"][:, 0], minlength=len(q)), played * q, atol=1e-9)


@pytest.mark.parametrize("name", ["uniform_used_twice", "bonus_from_the_draft", "residual_from_the_target"])
def test_the_rounds_alone_reject_what_single_rounds_may_miss(name):
    exercise = exercises.get("verify_sampling")
    [wrong] = [m.answer for m in exercise.mutants if m.answer.__name__ == name]
    missed = 0
    for seed in range(20):
        args = exercise.inputs(exercise.case("hundreds of rounds, counted"), seed).values()
        got, want = rounds.verify_sampling(wrong, *args), exercise.oracle(*args)
        missed += all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))
    assert missed == 0


def test_cases_reject_where_they_say():
    exercise = exercises.get("verify_sampling")
    for case in exercise.cases:
        if "accepted" in case.dims:
            for seed in range(4):
                accepted, _ = exercise.oracle(*exercise.inputs(case, seed).values())
                assert len(accepted) == case.dims["accepted"]


# The tiny language


def test_the_ways_back_are_the_gradients():
    rng = np.random.default_rng(4)
    weights = {"up": rng.standard_normal((5, 7)), "down": rng.standard_normal((7, 5))}
    x, toward = rng.standard_normal((3, 5)), rng.standard_normal((3, 5))
    state, kept = tiny.layer(x, weights)
    grad, found = tiny.layer_back(toward, kept, weights)
    for array, wanted in ((x, grad), (weights["up"], found["up"]), (weights["down"], found["down"])):
        for at in [(0, 0), (2, 4), (1, 3)]:
            value, sides = array[at], []
            for shift in (1e-6, -1e-6):
                array[at] = value + shift
                sides.append(float((tiny.layer(x, weights)[0] * toward).sum()))
            array[at] = value
            assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(wanted[at], rel=1e-6, abs=1e-8)
    np.testing.assert_allclose((state**2).mean(axis=1), 1, rtol=1e-4)


def test_a_model_and_a_drafter_learn_the_language():
    rng = np.random.default_rng(8)
    source = tiny.language(rng, 6)
    np.testing.assert_allclose(source.sum(axis=-1), 1)
    text = tiny.write(source, 8000, rng)
    main = tiny.train_main(text, 6, rng, steps=300)
    drafter = tiny.train_drafter(text, main, rng, steps=300)
    before, last, new, after = text[:-3], text[1:-2], text[2:-1], text[3:]
    state, _ = tiny.states(before, last, main)
    guess, _ = tiny.drafter_states(state, new, main, drafter)

    def loss(state, right):
        return -np.log(tiny.probabilities(state, main)[np.arange(len(right)), right]).mean()

    least = tiny.entropy(source, text)
    assert least - 0.05 < loss(state, new) < least + 0.15
    assert loss(state, new) < loss(guess, after) < 0.8 * np.log(6)


def test_a_text_follows_its_source():
    source = np.zeros((3, 3, 3))
    for a, b in itertools.product(range(3), repeat=2):
        source[a, b, (a + b + 1) % 3] = 1
    text = tiny.write(source, 20, np.random.default_rng(0))
    assert all(c == (a + b + 1) % 3 for a, b, c in zip(text, text[1:], text[2:], strict=False))


def test_pick_takes_the_first_that_exceeds():
    assert tiny.pick(np.array([[0.25, 0.25, 0.5]] * 3), np.array([0.0, 0.25, 0.99])).tolist() == [0, 1, 2]


# The pictures


@pytest.mark.parametrize("apart", [0, 40, 100])
@pytest.mark.parametrize("drafting", [pictures.DRAWN, pictures.BEST])
def test_the_explorer_draws_what_it_says(apart, drafting):
    q, p = pictures.distributions(apart, 1.0, drafting)
    fig = pictures.DraftsExplorer().figure(apart=apart, drafting=drafting, num_drafts=2)
    share = sum(min(pair) for pair in zip(q, p, strict=True))
    assert f"{share:.3f}" in fig.axes[0].get_title(loc="left")
    kept, owed, wasted = (np.array([bar.get_height() for bar in bars]) for bars in fig.axes[0].containers)
    np.testing.assert_allclose(kept + owed, p, atol=1e-12)
    np.testing.assert_allclose(kept + wasted, q, atol=1e-12)
    lines = {line.get_gid(): line for line in fig.axes[2].lines}
    assert lines["expected"].get_ydata()[3] == pytest.approx(1 + share + share**2 + share**3)
    assert list(lines["chosen"].get_ydata()) == [pytest.approx(1 + share + share**2)]
    after = np.array([bar.get_height() for bar in fig.axes[1].containers[0]])
    assert after.sum() == pytest.approx(1)
    if share < 1 - 1e-9:
        np.testing.assert_allclose((1 - share) * after + kept, p, atol=1e-12)


@pytest.mark.parametrize(("num_drafts", "words"), [(1, "1 draft:"), (2, "2 drafts:")])
def test_the_explorer_counts_its_drafts(num_drafts, words):
    assert pictures.DraftsExplorer().figure(num_drafts=num_drafts).axes[2].get_title(loc="left").startswith(words)


def test_a_draft_that_is_the_target_is_never_rejected():
    q, p = pictures.distributions(0, 0.5, pictures.DRAWN)
    assert mtp.acceptance(q, p) == pytest.approx(1)


def test_the_overlap_picture_says_what_it_shows():
    q, p = pictures.distributions(50, 1.0, pictures.DRAWN)
    fig = pictures.overlap_picture(q, p, "abcdefghij")
    assert f"shared by both: {np.minimum(q, p).sum():.3f}" in fig.get_label()
    kept, owed, wasted = (np.array([bar.get_height() for bar in bars]) for bars in fig.axes[0].containers)
    np.testing.assert_allclose(kept + owed, p, atol=1e-12)
    np.testing.assert_allclose(kept + np.nan_to_num(wasted), q, atol=1e-12)
    assert [label.get_text() for label in fig.axes[0].get_xticklabels()] == list("abcdefghij")
