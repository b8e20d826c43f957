#===- route.py - moe.route against double precision -----------------------------------------------===#
#
# Two programs: `Oracle` in float64, to which ids must be equal wherever its gaps exceed what f32 can blur, and weights close; and
# `weights_f32`, which restates in f32 the order of operations that the op promises, to which weights must be equal to the bit.
#
#===----------------------------------------------------------------------------------------------===#
import itertools

import numpy as np

from moert import decode, encode, expect_error, run_ranks, typed

DEFAULTS = dict(score='softmax', order='score_then_top_k', renormalize=0, routed_scaling_factor=1.0, n_group=1, topk_group=1)
ID_POISON, WEIGHT_POISON = -77, np.float32(-7.5)


class Case:
    """The operands and parameters of a call, logits by value."""

    def __init__(self, logits, top_k, dtype='f32', bias=None, **parameters):
        self.bits = encode(logits, dtype)
        self.logits = decode(self.bits, dtype)
        self.dtype, self.top_k = dtype, top_k
        self.bias = None if bias is None else np.asarray(bias, np.float32)
        self.parameters = {**DEFAULTS, **parameters}
        self.__dict__.update(self.parameters)

    def run(self, rank):
        tokens, experts = self.logits.shape
        ids = np.full((tokens, self.top_k), ID_POISON, np.int32)
        weights = np.full((tokens, self.top_k), WEIGHT_POISON, np.float32)
        rank.op('moe.route', logits=typed(self.bits, self.dtype), bias=self.bias, ids=ids, weights=weights,
                top_k=self.top_k, n_experts=experts, **self.parameters)
        return ids, weights


# --- in float64 ---------------------------------------------------------------------------------------

def softmax(logits):
    """Over the numbers of each row, in its limit where they are infinite."""
    numbers = np.where(np.isnan(logits), -np.inf, logits)
    maximum = numbers.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid='ignore'):
        terms = np.where(logits == maximum, 1.0, np.where(np.isnan(logits) | (numbers == -np.inf), 0.0, np.exp(numbers - maximum)))
    total = terms.sum(axis=1, keepdims=True)
    return np.where(np.isnan(logits), np.nan, terms / np.where(total == 0, 1, total))


def scores_of(case, logits):
    if case.score == 'softmax':
        return softmax(logits)
    with np.errstate(over='ignore'):
        return 1 / (1 + np.exp(-logits))


def ranking(values):
    """Columns by descending value, ties to the lower, NaN last."""
    absent = np.isnan(values)
    return np.lexsort((np.where(absent, 0, -values), absent), axis=1)


class Oracle:
    def __init__(self, case):
        tokens, experts = case.logits.shape
        score_first = case.order == 'score_then_top_k'
        basis = scores_of(case, case.logits) if score_first else case.logits
        bias = 0.0 if case.bias is None else case.bias.astype(np.float64)
        with np.errstate(invalid='ignore'):
            self.values = basis + bias
        # What f32 can make of a value: rounding, and the error of the difference under an exponential.
        with np.errstate(invalid='ignore'):
            self.blur = 3e-6 * (np.abs(basis) + np.abs(bias)) + 1e-37
        if not score_first and case.bias is None:
            self.blur = np.zeros_like(self.values)
        self.decided = np.ones(tokens, bool)
        if case.n_group > 1:
            self.limit_groups(case, experts // case.n_group)
        self.order = ranking(self.values)
        self.note_gaps(self.values, self.blur, self.order, case.top_k)
        chosen = self.order[:, :case.top_k]
        self.ids = np.where(np.isnan(np.take_along_axis(self.values, chosen, 1)), -1, chosen)

    def note_gaps(self, values, blur, order, taken):
        """Rows are decided only where neighbours among the first `taken` + 1 in `order` are equal or apart."""
        first = order[:, :taken + 1]
        v, b = np.take_along_axis(values, first, 1), np.take_along_axis(blur, first, 1)
        with np.errstate(invalid='ignore'):
            gap, least = v[:, :-1] - v[:, 1:], b[:, :-1] + b[:, 1:]
            clear = np.isnan(v[:, 1:]) | (v[:, :-1] == v[:, 1:]) | (gap > least) | np.isinf(gap)
        self.decided &= clear.all(axis=1)

    def limit_groups(self, case, size):
        tokens = len(self.values)
        grouped = self.values.reshape(tokens, case.n_group, size)
        best = -np.sort(np.where(np.isnan(grouped), np.inf, -grouped), axis=2)[:, :, :2]
        present = ~np.isnan(grouped)
        count = present.sum(axis=2)
        with np.errstate(invalid='ignore'):
            values = np.where(count >= 2, best[:, :, 0] + best[:, :, 1], np.where(count == 1, best[:, :, 0], np.nan))
        order = ranking(values)
        self.note_gaps(values, 2 * self.blur.reshape(tokens, case.n_group, size).max(axis=2), order, case.topk_group)
        eligible = np.zeros_like(values, bool)
        np.put_along_axis(eligible, order[:, :case.topk_group], True, 1)
        eligible &= ~np.isnan(values)
        self.values = np.where(np.repeat(eligible, size, axis=1), self.values, np.nan)

    @staticmethod
    def weights(case, ids):
        """For these ids."""
        valid = ids >= 0
        picked = np.maximum(ids, 0)
        logits = case.logits
        if case.order == 'top_k_then_score':
            chosen = np.zeros_like(logits, bool)
            rows = np.repeat(np.arange(len(ids)), valid.sum(axis=1))
            chosen[rows, ids[valid]] = True
            logits = np.where(chosen, logits, np.nan)
        weights = np.where(valid, np.take_along_axis(scores_of(case, logits), picked, 1), 0.0)
        if case.renormalize:
            total = weights.sum(axis=1, keepdims=True)
            weights = np.where(total == 0, 0.0, weights / np.where(total == 0, 1, total))
        return weights * case.routed_scaling_factor


# --- in f32, in the promised order --------------------------------------------------------------------

def fma(a, b, c):
    """Of f32, rounded once but for one case in 2^40: the product fits a long double, and the sum nearly always."""
    return (a.astype(np.longdouble) * b + c).astype(np.float32)


def f32(literal):
    return np.float32(float.fromhex(literal))


def exp_f32(x):
    """The polynomial of exp that all backends share."""
    clamped = np.clip(x, f32('-0x1.ap6'), f32('0x1.64p6'))
    whole = fma(clamped, f32('0x1.715476p+0'), f32('0x1.8p23')) - f32('0x1.8p23')
    upper, lower = fma(-whole, f32('0x1.62e4p-1'), clamped), -whole * f32('0x1.7f7d1cp-20')
    r = upper + lower
    q = fma(f32('0x1.6a23dp-10'), r, f32('0x1.123a2p-7'))
    for coefficient in ('0x1.5558f2p-5', '0x1.555492p-3', '0x1.fffffcp-2'):
        q = fma(q, r, f32(coefficient))
    with np.errstate(over='ignore', under='ignore'):
        power = np.float32(1) + (upper + fma(r * r, q, lower))
        return np.ldexp(power.astype(np.float64), np.nan_to_num(whole).astype(int)).astype(np.float32)


def sigmoid_f32(x):
    tail = exp_f32(-np.abs(x))
    return np.where(x < 0, tail, np.float32(1)) / (np.float32(1) + tail)


def softmax_f32(logits):
    """NaN counts nothing."""
    absent = np.isnan(logits)
    numbers = np.where(absent, np.float32(-np.inf), logits)
    maximum = numbers.max(axis=1, keepdims=True)
    with np.errstate(invalid='ignore', over='ignore'):
        difference = np.where(numbers == maximum, np.float32(0), numbers - maximum)
    terms = np.where(absent, np.float32(0), exp_f32(difference))
    pad = -terms.shape[1] % 32
    chunks = np.pad(terms, ((0, 0), (0, pad))).reshape(len(terms), -1, 32)
    while chunks.shape[2] > 1:
        chunks = chunks[:, :, 0::2] + chunks[:, :, 1::2]
    total = chunks[:, 0, 0]
    for c in range(1, chunks.shape[1]):
        total = total + chunks[:, c, 0]
    with np.errstate(invalid='ignore'):
        return terms / total[:, None]


def weights_f32(case, ids):
    valid = ids >= 0
    logits = case.logits.astype(np.float32)
    if case.order == 'top_k_then_score':
        kept = np.full_like(logits, np.nan)
        for token, expert in zip(*np.nonzero(valid)):
            kept[token, ids[token, expert]] = logits[token, ids[token, expert]]
        logits = kept
    scores = softmax_f32(logits) if case.score == 'softmax' else sigmoid_f32(logits)
    weights = np.where(valid, np.take_along_axis(scores, np.maximum(ids, 0), 1), np.float32(0))
    if case.renormalize:
        total = np.zeros(len(ids), np.float32)
        for k in range(case.top_k):
            total = total + weights[:, k]
        total = total[:, None]
        weights = np.where(total == 0, np.float32(0), weights / np.where(total == 0, np.float32(1), total))
    return np.where(valid, weights * np.float32(case.routed_scaling_factor), np.float32(0))


# --- comparison ---------------------------------------------------------------------------------------

def check(rank, case):
    """Run a case and compare. Returns how many rows were decided."""
    ids, weights = case.run(rank)
    oracle = Oracle(case)
    np.testing.assert_array_equal(ids[oracle.decided], oracle.ids[oracle.decided])
    check_choice(case, oracle, ids)
    expected = oracle.weights(case, ids)
    if case.logits.size:
        finite = np.where(np.isfinite(case.logits), np.abs(case.logits), 0).max(axis=1, keepdims=True)
        tolerance = (2e-6 + 2.0 ** -22 * finite) * np.abs(expected) + 1e-37
        assert (np.abs(weights - expected) <= tolerance).all(), np.abs(weights - expected).max()
        np.testing.assert_array_equal(weights.view(np.uint32), weights_f32(case, ids).view(np.uint32))
    return oracle.decided.sum()


def check_choice(case, oracle, ids):
    """Also of rows that are not decided: distinct ids whose values are the best but for what f32 blurs."""
    experts = case.logits.shape[1]
    assert ((ids >= -1) & (ids < experts)).all()
    for row, taken in enumerate(ids):
        valid = taken[taken >= 0]
        assert len(set(valid)) == len(valid), taken
        assert (taken[len(valid):] == -1).all(), taken
    if case.n_group > 1:
        return  # a group that is blurred changes everything after it
    best = np.take_along_axis(oracle.values, oracle.order[:, :case.top_k], 1)
    got = np.where(ids >= 0, np.take_along_axis(oracle.values, np.maximum(ids, 0), 1), np.nan)
    blur = 2 * np.take_along_axis(oracle.blur, np.maximum(ids, 0), 1)
    with np.errstate(invalid='ignore'):
        assert ((got == best) | (np.abs(got - best) <= blur) | (np.isnan(got) & np.isnan(best))).all()


# --- cases --------------------------------------------------------------------------------------------

VARIANTS = list(itertools.product(('softmax', 'sigmoid'), ('score_then_top_k', 'top_k_then_score'), (0, 1), (False, True)))


def test_shapes(rank):
    rng = np.random.default_rng(1)
    rows = decided = 0
    turn = itertools.count()
    for experts in (1, 8, 33, 64, 256, 4096):
        for top_k in range(1, min(experts, 32) + 1) if experts in (33, 64) else [k for k in (1, 2, 6, 8, 31, 32) if k <= experts]:
            for tokens in (0, 1, 7) if experts > 256 or experts in (33, 64) else (0, 1, 7, 300):
                i = next(turn)
                score, order, renormalize, biased = VARIANTS[i % len(VARIANTS)]
                case = Case(rng.normal(size=(tokens, experts)) * 3, top_k, ('f32', 'bf16', 'f16')[i % 3], score=score, order=order,
                            renormalize=renormalize, routed_scaling_factor=(1.0, 2.5, -0.125)[i // 3 % 3],
                            bias=rng.normal(size=experts) * 0.1 if biased else None)
                decided += check(rank, case)
                rows += tokens
    assert decided >= 0.95 * rows, (decided, rows)


def test_variants(rank):
    rng = np.random.default_rng(2)
    for (score, order, renormalize, biased), dtype in itertools.product(VARIANTS, ('f32', 'bf16', 'f16')):
        bias = rng.normal(size=64) * 0.2 if biased else None
        case = Case(rng.normal(size=(300, 64)) * 2, 6, dtype, bias=bias, score=score, order=order, renormalize=renormalize)
        assert check(rank, case) >= 290


def test_groups(rank):
    rng = np.random.default_rng(3)
    for (experts, groups, best), (score, order, renormalize, biased) in itertools.product(
            ((64, 8, 3), (256, 8, 4), (16, 8, 8), (32, 2, 1), (4096, 2048, 40)), VARIANTS):
        bias = rng.normal(size=experts) * 0.3 if biased else None
        case = Case(rng.normal(size=(25, experts)), 8, bias=bias, score=score, order=order, renormalize=renormalize,
                    n_group=groups, topk_group=best)
        decided = check(rank, case)
        assert decided >= 15 or experts == 4096, decided


def test_group_rules(rank):
    nan = np.nan
    # Two best of each group: 1.5, 1.0, 1.0, 0.9. Ties go to the lower group, and expert 6, the best of all, is in the group that loses.
    logits = [[1.0, .5, .6, .4, .5, .5, 2.0, -1.1]]
    for best, expected in ((1, [0, 1]), (2, [0, 2, 1, 3]), (3, [0, 2, 1, 4]), (4, [6, 0, 2, 1])):
        ids, _ = Case(logits, len(expected), order='top_k_then_score', n_group=4, topk_group=best).run(rank)
        assert ids.tolist() == [expected], ids
    # A group of one number counts that number; one without numbers is not eligible, whatever topk_group says; nor is inf - inf.
    rows = [[nan, 3, 1, 1, nan, nan], [nan, nan, nan, nan, nan, 1], [np.inf, -np.inf, nan, 0, nan, nan]]
    ids, weights = Case(rows, 2, order='top_k_then_score', n_group=3, topk_group=2).run(rank)
    assert ids.tolist() == [[1, 2], [5, -1], [3, -1]], ids
    assert weights[1:].tolist() == [[1, 0], [1, 0]], weights
    ids, _ = Case([[nan, nan, -np.inf, -np.inf]], 2, order='top_k_then_score', n_group=2, topk_group=1).run(rank)
    assert ids.tolist() == [[2, 3]], ids


def test_ties(rank):
    for score, order, dtype in itertools.product(('softmax', 'sigmoid'), ('score_then_top_k', 'top_k_then_score'), ('f32', 'bf16', 'f16')):
        equal = Case(np.full((3, 40), 0.75), 8, dtype, score=score, order=order)
        check(rank, equal)
        assert equal.run(rank)[0].tolist() == [list(range(8))] * 3
        some = Case([[1, 5, 2, 5, 5, 2, 0, 2]], 6, dtype, score=score, order=order)
        check(rank, some)
        assert some.run(rank)[0].tolist() == [[1, 3, 4, 2, 5, 7]]
    zeros = Case([[-0.0, 0.0, -0.0, 0.0]], 4, order='top_k_then_score')
    assert zeros.run(rank)[0].tolist() == [[0, 1, 2, 3]]
    saturated = Case([[40.0, 90.0, 60.0, 89.0]], 3, score='sigmoid')  # all are 1 in f32
    assert saturated.run(rank)[0].tolist() == [[0, 1, 2]]
    biased = Case([[0.0, 0.0, 0.0, 0.0]], 3, score='sigmoid', bias=[0, .25, 0, .25])
    ids, weights = biased.run(rank)
    assert ids.tolist() == [[1, 3, 0]] and weights.tolist() == [[.5, .5, .5]]  # the bias is not in the weights


def test_nan_and_infinity(rank):
    nan, inf = np.nan, np.inf
    rows = np.array([
        [nan] * 8,
        [nan, 1, 2, 3, 4, 5, 6, 7],
        [nan, 1, nan, nan, 2, nan, nan, nan],
        [-inf] * 8,
        [-inf, nan, -inf, nan, nan, nan, nan, nan],
        [0, inf, 1, 2, 3, 4, 5, 6],
        [0, inf, 1, 2, inf, 4, -inf, nan],
        [inf] * 8,
        [-inf, 0, 0, 0, 0, 0, 0, -inf],
        [3.4e38, -3.4e38, 0, 1, 2, 3, 4, 5],
        [-3.4e38] * 4 + [3.4e38] * 4,
        [1e-45, -1e-45, 0, 0, 0, 0, 0, 0]])
    for score, order, renormalize, biased in VARIANTS:
        check(rank, Case(rows, 4, score=score, order=order, renormalize=renormalize, bias=np.arange(8) * 0.01 if biased else None))
        check(rank, Case(np.tile(rows, (1, 8)), 32, score=score, order=order, renormalize=renormalize))
    ids, weights = Case(rows, 4).run(rank)
    assert ids[0].tolist() == [-1] * 4 and weights[0].tolist() == [0] * 4
    assert ids[2].tolist() == [4, 1, -1, -1] and weights[2, 2:].tolist() == [0, 0]
    assert ids[3].tolist() == [0, 1, 2, 3] and weights[3].tolist() == [1 / 8] * 4
    assert ids[4].tolist() == [0, 2, -1, -1] and weights[4].tolist() == [.5, .5, 0, 0]
    assert ids[5].tolist() == [1, 0, 2, 3] and weights[5].tolist() == [1, 0, 0, 0]
    assert ids[6].tolist() == [1, 4, 0, 2] and weights[6].tolist() == [.5, .5, 0, 0]
    assert weights[7].tolist() == [1 / 8] * 4
    nothing = Case(np.full((2, 8), -inf), 3, score='sigmoid', renormalize=1)  # a sum of 0
    assert nothing.run(rank)[1].tolist() == [[0, 0, 0]] * 2
    negative = Case(rows[:1], 4, routed_scaling_factor=-2.0)
    assert not np.signbit(negative.run(rank)[1]).any()


def test_bias_that_is_no_number(rank):
    nan, inf = np.nan, np.inf
    for order, score in itertools.product(('score_then_top_k', 'top_k_then_score'), ('softmax', 'sigmoid')):
        case = Case([[3, 2, 1, 0], [0, 1, 2, 3]], 3, order=order, score=score, bias=[nan, -inf, inf, 0])
        check(rank, case)
        assert case.run(rank)[0].tolist() == [[2, 3, 1]] * 2  # -inf is last, and a number
    opposite = Case([[inf, 0, 1]], 3, order='top_k_then_score', bias=[-inf, 0, 0])
    assert opposite.run(rank)[0].tolist() == [[2, 1, -1]]


def test_repeated_calls(rank):
    case = Case(np.random.default_rng(5).normal(size=(7, 64)), 8, renormalize=1)
    first = case.run(rank)
    for _ in range(3):
        again = case.run(rank)
        assert (first[0] == again[0]).all() and (first[1].view(np.uint32) == again[1].view(np.uint32)).all()


def test_errors(rank):
    def refuse(name, text, **changes):
        operands = dict(logits=np.zeros((3, 16), np.float32), ids=np.full((3, 4), ID_POISON, np.int32),
                        weights=np.full((3, 4), WEIGHT_POISON, np.float32), top_k=4, n_experts=16)
        operands.update(changes)
        expect_error('MOERT_ERROR_' + name, 'moe.route: ' + text, rank.op, 'moe.route', **operands)
        assert (operands['ids'] == ID_POISON).all() and (operands['weights'] == WEIGHT_POISON).all()

    def ids(*shape):
        return np.full(shape, ID_POISON, np.int32)

    def weights(*shape):
        return np.full(shape, WEIGHT_POISON, np.float32)

    refuse('INVALID_SHAPE', "operand 'logits' dimension 1 is 16, must equal n_experts = 17", n_experts=17)  # C1
    refuse('INVALID_SHAPE', "operand 'bias' dimension 0 is 15, must equal n_experts = 16", bias=np.zeros(15, np.float32))  # C2
    refuse('INVALID_SHAPE', "operand 'ids' dimension 0 is 2, must equal dimension 0 of 'logits' = 3", ids=ids(2, 4))  # C3
    refuse('INVALID_SHAPE', "operand 'ids' dimension 1 is 4, must equal top_k = 8", top_k=8)
    refuse('INVALID_SHAPE', "operand 'weights' dimension 0 is 4, must equal dimension 0 of 'logits' = 3", weights=weights(4, 4))
    refuse('INVALID_SHAPE', "operand 'weights' dimension 1 is 5, must equal top_k = 4", weights=weights(3, 5))
    refuse('INVALID_ARGUMENT', "parameter 'top_k' is 4, must be at most n_experts = 3", n_experts=3)  # C4
    refuse('INVALID_ARGUMENT', "parameter 'n_experts' is 16, must be a multiple of n_group = 3", n_group=3)  # C5
    refuse('INVALID_ARGUMENT', "parameter 'topk_group' is 5, must be at most n_group = 4", n_group=4, topk_group=5)  # C6
    refuse('INVALID_ARGUMENT', "parameter 'topk_group' is 1: so many groups of n_experts / n_group = 2 experts hold 2, must hold at least top_k = 4",
           n_group=8)  # C7
    refuse('INVALID_ARGUMENT', "parameter 'n_group' is 16, must be 1 or at most n_experts / 2 = 8: a group is judged by its two best experts",
           n_group=16, topk_group=16)  # C8
    refuse('INVALID_ARGUMENT', "parameter 'routed_scaling_factor' is 1e+39, beyond the largest f32, 3.40282e+38", routed_scaling_factor=1e39)


def main(rank):
    for test in (test_shapes, test_variants, test_groups, test_group_rules, test_ties, test_nan_and_infinity, test_bias_that_is_no_number,
                 test_repeated_calls, test_errors):
        test(rank)


if __name__ == '__main__':
    run_ranks(1, main)
