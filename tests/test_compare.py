"""Comparison says where two values part, structure before values, and never lets a strange value agree."""

import numpy as np
import pytest

from ledger.judge.compare import difference
from ledger.judge.outcome import Unsupported

WANT = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def said(got, want=WANT) -> str:
    """The message of a difference that must be there."""
    found = difference(got, want)
    assert found is not None
    return found.message


@pytest.mark.parametrize(
    ("got", "text"),
    [
        (None, "return statement missing"),
        (WANT.tolist(), "a list of 2 parts"),
        (WANT.T, "shape (3, 2); wanted (2, 3)"),
        (WANT[0], "shape (3,)"),
        (WANT.astype(np.float32), "dtype float32; wanted float64"),
        (WANT.astype(int), "dtype int64"),
        (np.where(WANT == 5, np.nan, WANT), "NaN or infinity in 1 of 6"),
        (np.where(WANT == 5, np.inf, WANT), "NaN or infinity in 1 of 6"),
        (WANT + (WANT == 4) * 1e-6, "wrong in 1 of 6 elements; [1, 0] is 4.000001, wanted 4"),
        (Unsupported("generator"), "of type generator"),
        (3.0, "a float"),
        ("text", "a string"),
    ],
)
def test_an_array_that_differs(got, text):
    assert text in said(got)


def test_an_array_that_agrees():
    assert difference(WANT.copy(), WANT) is None
    assert difference(WANT * (1 + 1e-13), WANT) is None
    assert difference(np.asfortranarray(WANT), WANT) is None
    assert difference(WANT.astype(np.float32) * np.float32(1 + 1e-6), WANT.astype(np.float32)) is None


def test_nan_agrees_only_where_nan_is_wanted():
    hole = np.where(WANT == 5, np.nan, WANT)
    assert difference(hole, hole) is None
    assert difference(WANT, hole) is not None
    assert difference(np.full((2, 3), np.nan), WANT) is not None


def test_an_empty_array_still_has_a_shape_and_a_dtype():
    assert difference(np.zeros((2, 0)), np.zeros((2, 0))) is None
    assert "shape" in said(np.zeros((0, 2)), np.zeros((2, 0)))
    assert "dtype" in said(np.zeros((2, 0), np.float32), np.zeros((2, 0)))


def test_one_wrong_element_among_large_ones_is_seen():
    want = np.array([1e8, 1.0])
    assert difference(np.array([1e8, 1.5]), want) is not None


def test_integers_must_be_equal():
    assert difference(np.array([1, 2]), np.array([1, 2])) is None
    assert "[1] is 3, wanted 2" in said(np.array([1, 3]), np.array([1, 2]))


@pytest.mark.parametrize("got", [7, np.int64(7), np.array(7)])
def test_an_int_may_come_from_numpy(got):
    assert difference(got, 7) is None


@pytest.mark.parametrize(
    ("got", "want", "text"),
    [
        (7.0, 7, "wanted an int"),
        (8, 7, "is 8; wanted 7"),
        (True, 1, "a bool"),
        ("7", 7, "a string"),
        (float("nan"), 7.0, "is nan"),
        (1.0, float("inf"), "wanted inf"),
    ],
)
def test_a_number_that_differs(got, want, text):
    assert text in said(got, want)


def test_a_float_may_be_any_real_number():
    assert difference(3, 3.0) is None
    assert difference(np.float32(0.5), 0.5) is None
    assert difference(float("inf"), float("inf")) is None


def test_tuples_and_lists_part_by_part():
    assert difference([1, 2.0], (1, 2.0)) is None
    assert said((WANT, 2), (WANT, 1, 0)) == "the result has 2 parts; wanted 3"
    assert said([WANT], (1, 2)) == "the result has 1 part; wanted 2"
    assert "result[1] is 3; wanted 2" in said((1, 3), (1, 2))
    assert "result[0] has shape" in said((WANT.T, 1), (WANT, 1))


@pytest.mark.parametrize(
    ("got", "want", "text"),
    [
        ((5, 2), [5], "is [5, 2]; wanted [5]"),
        ([np.int64(5000)], [], "is [5000]; wanted []"),
        ([0.1 + 0.2, "a", None, True], (1,), "is [0.3, 'a', None, True]; wanted [1]"),
        ([], list(range(8)), "is []; wanted [0, 1, 2, 3, 4, 5, 6, 7]"),
        ([], list(range(9)), "has 0 parts; wanted 9"),
        (["a" * 60], [], "has 1 part; wanted 0"),
        ([10**70], [1, 2], "is [a number of about 71 digits]; wanted [1, 2]"),
        ([[1]], [1, 2], "has 1 part; wanted 2"),
    ],
)
def test_short_lists_of_other_lengths_are_shown_whole(got, want, text):
    assert difference((got, 0), (want, 0), names=("accepted", "token")).message == f"accepted {text}"


def test_a_dtype_that_the_statement_fixes_is_not_said_to_follow_the_inputs():
    """The first part is fixed, the second follows the inputs."""
    wide, narrow = WANT, WANT.astype(np.float32)
    names = {"names": ("scales", "means"), "fixed": ("scales",)}
    first = difference((wide, narrow), (narrow, narrow), **names)
    assert first.message == "scales has dtype float64; wanted float32"
    assert first.rows[-1] == ("dtype", "scales: float64; wanted float32")
    second = difference((narrow, wide), (narrow, narrow), **names)
    assert "means has dtype float64; wanted float32, the dtype of the floating inputs" in second.message


def test_mappings_by_key():
    assert difference({"b": 2, "a": 1}, {"a": 1, "b": 2}) is None
    assert "keys ['a']" in said({"a": 1}, {"a": 1, "b": 2})
    assert "result['b'] is 3" in said({"a": 1, "b": 3}, {"a": 1, "b": 2})


@pytest.mark.parametrize("want", [{"a": 1}, WANT, 2, (1, 2)], ids=["mapping", "array", "number", "tuple"])
def test_a_mapping_may_have_keys_of_any_kind(want):
    assert "keys ['b', (2, None), 1, None" in said({1: 1, "b": 2, (2, None): 3, None: 4}, want)


def test_many_keys_are_cut_short():
    assert len(said({f"key {number}": number for number in range(1000)}, {"a": 1})) < 400


@pytest.mark.parametrize("want", ["absorb", True, None, {"a": 1}], ids=["text", "bool", "none", "mapping"])
def test_a_number_with_more_digits_than_python_writes_is_wrong_within_any_value(want):
    assert "a tuple of 1 part;" in said((1 << 100_000,), want)
    assert "wanted" in said({(1 << 100_000,): 1}, want)


def test_strings_bools_and_none():
    assert difference("absorb", "absorb") is None
    assert difference(True, True) is None
    assert difference(None, None) is None
    assert "wanted 'absorb'" in said("materialize", "absorb")
    assert difference(1, True) is not None


@pytest.mark.parametrize("got", [0.0, -1e30, 1e308, np.inf, np.nan])
def test_nothing_is_near_an_infinity(got):
    want = np.array([3.0, -np.inf])
    assert said(np.array([3.0, got]), want)
    assert difference(np.array([3.0, -np.inf]), want) is None


def test_a_numpy_string_is_a_string():
    assert difference(np.str_("absorb"), "absorb") is None
    assert "wanted 'absorb'" in said(np.str_("materialize"), "absorb")
