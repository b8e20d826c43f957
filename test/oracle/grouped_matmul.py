#===- grouped_matmul.py - moe.grouped_matmul against double precision -----------------------------===#
#
# Every output is held against float64 within the bound of the op; small products against exact fractions, and activations against their
# restatement in f32, to the bit. Every output is poisoned before the call, and what belongs to no group must still hold the poison.
#
#===----------------------------------------------------------------------------------------------===#
import itertools
from fractions import Fraction

import numpy as np

from formats_model import FORMATS
from moert import MoertError, call, decode, encode, expect_error, run_ranks, typed
from route import sigmoid_f32

DTYPES = ('bf16', 'f16', 'f32')
ROUNDING = {'bf16': 2.0 ** -8, 'f16': 2.0 ** -11, 'f32': 2.0 ** -24}  # of one rounding, relative
SMALLEST = {'bf16': 2.0 ** -133, 'f16': 2.0 ** -24, 'f32': 2.0 ** -149}
POISON = {'bf16': 0xc2f7, 'f16': 0xd7a7, 'f32': 0xc2f6e979}


def bits_of(array):
    return array.view(np.uint32 if array.itemsize == 4 else np.uint16)


class CodedWeights:
    """Weights of 4 bits. `values` holds a code for each weight, `scales` one for each block; `factors` are the encoder's, of the groups."""

    def __init__(self, format, values, scales, factors=None, value_type='i8', scale_type='i8'):
        numbers = FORMATS[format]
        self.format, self.factors = format, factors
        self.bytes = typed((values[..., 0::2] | values[..., 1::2] << 4).astype(np.uint8).view(np.int8), value_type)
        self.scales = typed(scales.astype(np.uint8).view(np.int8), scale_type)
        elements = np.array([float(m) for m in numbers.elements.magnitudes])
        signed = np.where(values & 8, -1, 1) * elements[values & 7]
        magnitudes = np.array([float(m) for m in numbers.scales.magnitudes] + [np.nan])
        steps = magnitudes[scales & 0x7f] * np.where(scales & 0x80, -1, 1) if numbers.scales.sign else magnitudes[scales]
        self.numbers = signed * np.repeat(steps, numbers.block, axis=-1)

    @staticmethod
    def random(rng, format, groups, columns, depth, scale_codes, **options):
        block = FORMATS[format].block
        return CodedWeights(format, rng.integers(0, 16, (groups, columns, depth)), rng.choice(scale_codes, (groups, columns, depth // block)), **options)


class Case:
    """The operands and parameters of a call, by value; `offsets` may begin after and end before the rows."""

    def __init__(self, rows, weights, offsets, dtype='f32', out_dtype='f32', bias=None, bias_dtype='f32', row_ids=None, row_weights=None,
                 activation='none', alpha=1.0, limit=0.0):
        self.dtype, self.out_dtype, self.bias_dtype = dtype, out_dtype, bias_dtype
        self.coded = weights if isinstance(weights, CodedWeights) else None
        self.row_bits = encode(rows, dtype)
        self.weight_bits = None if self.coded else encode(weights, dtype)
        self.rows, self.weights = decode(self.row_bits, dtype), self.coded.numbers if self.coded else decode(self.weight_bits, dtype)
        self.bias_bits = None if bias is None else encode(bias, bias_dtype)
        self.bias = None if bias is None else decode(self.bias_bits, bias_dtype)
        self.offsets, self.row_ids = np.asarray(offsets), row_ids
        self.row_weights = None if row_weights is None else np.asarray(row_weights, np.float32)
        self.activation, self.alpha, self.limit = activation, alpha, limit
        self.count = len(rows if row_ids is None else row_ids)
        self.columns = self.weights.shape[1] // (2 if activation == 'swiglu' else 1)

    def run(self, rank, **changes):
        """The output's bits. `changes` replace operands and parameters."""
        out_dtype = changes.pop('out_dtype', self.out_dtype)
        out = np.empty((self.count, changes.pop('columns', self.columns)), np.float32 if out_dtype == 'f32' else np.uint16)
        bits_of(out)[:] = POISON[out_dtype]
        weights = self.coded.bytes if self.coded else typed(self.weight_bits, self.dtype)
        operands = dict(rows=typed(self.row_bits, self.dtype), weights=weights, offsets=self.offsets,
                        bias=None if self.bias is None else typed(self.bias_bits, self.bias_dtype), row_ids=self.row_ids,
                        row_weights=self.row_weights, activation=self.activation, alpha=self.alpha, limit=self.limit)
        if self.coded:
            operands.update(weight_format=self.coded.format, weight_scales=self.coded.scales, weight_global_scale=self.coded.factors)
        operands.update(changes)
        rank.op('moe.grouped_matmul', out=typed(out, out_dtype), **operands)
        return bits_of(out)

    def of_groups(self):
        """(group, row of out, row of rows) of every row that has a group."""
        for group in range(len(self.offsets) - 1):
            for r in range(int(self.offsets[group]), int(self.offsets[group + 1])):
                yield group, r, r if self.row_ids is None else int(self.row_ids[r])


def value_of(bits, dtype):
    return decode(bits.view({'bf16': np.uint16, 'f16': np.float16, 'f32': np.float32}[dtype]), dtype)


# --- in float64 ---------------------------------------------------------------------------------------

def clamp(gate, up, limit):
    return np.minimum(gate, limit), np.clip(up, -limit, limit)


def activate(case, gate, up):
    if case.limit > 0:
        gate, up = clamp(gate, up, case.limit)
        return gate / (1 + np.exp(-case.alpha * gate)) * (up + 1)
    return gate / (1 + np.exp(-gate)) * up


def activation_bound(case, gate, up, gate_bound, up_bound):
    """What errors of gate and up become: the slope of x sigmoid(x) is below 1.1; and a few roundings."""
    size = np.abs(activate(case, gate, up))
    if case.limit > 0:
        gate, up = clamp(gate, up, case.limit)
        size, up = size + np.abs(gate) * 2.0 ** -24, up + 1
    return 1.1 * gate_bound * (np.abs(up) + up_bound) + np.abs(gate) * up_bound + (8 + np.abs(case.alpha * gate)) * 2.0 ** -23 * size


def expected_row(case, group, r, source):
    """The row in float64, and the bound of its error before the last rounding."""
    products = case.weights[group] * case.rows[source]
    depth = products.shape[1]
    value = products.sum(axis=1)
    bound = depth * (2.0 ** -23 * np.abs(products).sum(axis=1) + 2.0 ** -150)  # the last where sums are subnormal
    if case.coded and case.coded.factors is not None:
        factor = float(case.coded.factors[group])
        value, bound = value / factor, bound / factor + 2.0 ** -22 * np.abs(value / factor)
    if case.bias is not None:
        value = value + case.bias[group]
        bound = bound + 2.0 ** -24 * np.abs(value)
    if case.activation == 'swiglu':
        half = case.columns
        bound = activation_bound(case, value[:half], value[half:], bound[:half], bound[half:])
        value = activate(case, value[:half], value[half:])
    if case.row_weights is not None:
        weight = float(case.row_weights[r])
        value, bound = value * weight, bound * abs(weight) + 2.0 ** -24 * np.abs(value * weight)
    return value, bound


def check(rank, case):
    got = case.run(rank)
    values = value_of(got, case.out_dtype)
    untouched = np.ones(case.count, bool)
    for group, r, source in case.of_groups():
        expected, bound = expected_row(case, group, r, source)
        error = np.abs(values[r] - expected)
        # The bound's rounding is relative to what was rounded, which is off by `bound` itself.
        allowed = bound + ROUNDING[case.out_dtype] * (np.abs(expected) + bound) + SMALLEST[case.out_dtype]
        assert (error <= allowed).all(), (group, r, (error / allowed).max())
        untouched[r] = False
    assert (got[untouched] == POISON[case.out_dtype]).all()
    return got


# --- to the bit ---------------------------------------------------------------------------------------

def round_f32(value):
    """A fraction as the nearest f32, ties to even; in the range of f32."""
    if value == 0:
        return 0.0
    exponent = np.frexp(float(abs(value)))[1] - 1
    exponent += (abs(value) >= Fraction(2) ** (int(exponent) + 1)) - (abs(value) < Fraction(2) ** int(exponent))
    quantum = Fraction(2) ** (max(int(exponent), -126) - 23)
    return float(round(value / quantum) * quantum)


def exact_sum(row, column):
    total = 0.0
    for a, b in zip(row, column):
        total = round_f32(Fraction(float(a)) * Fraction(float(b)) + Fraction(total))
    return total


def test_fractions(rank):
    rng = np.random.default_rng(11)
    for dtype, biased in itertools.product(DTYPES, (False, True)):
        for depth in (8, 24):
            scale = 2.0 ** rng.integers(-6, 7, depth)
            case = Case(rng.normal(size=(19, depth)) * scale, rng.normal(size=(2, 8, depth)) / scale, np.array([0, 1, 19], np.int32), dtype,
                        bias=rng.normal(size=(2, 8)) if biased else None)
            got = value_of(check(rank, case), 'f32')
            for group, r, source in case.of_groups():
                exact = np.array([exact_sum(case.rows[source], w) for w in case.weights[group]])
                if biased:
                    exact = np.array([round_f32(Fraction(s) + Fraction(b)) for s, b in zip(exact, case.bias[group])])
                np.testing.assert_array_equal(got[r], exact)
            for out_dtype in ('bf16', 'f16'):  # one rounding
                narrow = case.run(rank, out_dtype=out_dtype)
                np.testing.assert_array_equal(narrow, bits_of(encode(got, out_dtype)))


def test_subnormal_products(rank):
    rng = np.random.default_rng(12)
    rows, weights = rng.normal(size=(3, 8)) * 2.0 ** -70, rng.normal(size=(1, 8, 8)) * 2.0 ** -70
    case = Case(rows, weights, np.array([0, 3], np.int32))
    got = value_of(check(rank, case), 'f32')
    assert (got != 0).any() and (np.abs(got) < 2.0 ** -126).all()
    for _, r, source in case.of_groups():
        np.testing.assert_array_equal(got[r], [exact_sum(case.rows[source], w) for w in case.weights[0]])


def test_activation_bits(rank):
    """swiglu of the sums that the op itself gives without activation."""
    rng = np.random.default_rng(13)
    for out_dtype, (alpha, limit), weighted in itertools.product(DTYPES, ((1.0, 0.0), (1.702, 7.0), (-0.5, 0.25)), (False, True)):
        case = Case(rng.normal(size=(37, 64)) * 4, rng.normal(size=(3, 32, 64)) * 2, np.array([0, 20, 20, 37], np.int32), 'bf16', out_dtype,
                    bias=rng.normal(size=(3, 32)), activation='swiglu', alpha=alpha, limit=limit,
                    row_weights=rng.normal(size=37) if weighted else None)
        got = check(rank, case)
        sums = case.run(rank, out_dtype='f32', columns=32, activation='none', alpha=1.0, limit=0.0, row_weights=None).view(np.float32)
        gate, up = sums[:, :16], sums[:, 16:]
        if limit > 0:
            gate, up = clamp(gate, up, np.float32(limit))
            value = gate * sigmoid_f32(np.float32(alpha) * gate) * (up + np.float32(1))
        else:
            value = gate * sigmoid_f32(gate) * up
        if weighted:
            value = value * case.row_weights[:, None]
        np.testing.assert_array_equal(got, bits_of(encode(value, out_dtype)))


def test_place_does_not_matter(rank):
    """A row has the same bits wherever it stands in its group and whatever stands beside it."""
    rng = np.random.default_rng(14)
    rows, weights = rng.normal(size=(1, 72)), rng.normal(size=(1, 24, 72))
    alone = Case(rows, weights, np.array([0, 1], np.int32), 'bf16').run(rank)
    for count in (2, 15, 16, 17, 33):
        many = Case(rng.normal(size=(count, 72)), weights, np.array([0, count], np.int32), 'bf16')
        for place in (0, count // 2, count - 1):
            many.row_bits[place] = encode(rows[0], 'bf16')
            np.testing.assert_array_equal(many.run(rank)[place], alone[0])


# --- breadth ------------------------------------------------------------------------------------------

def random_offsets(rng, count, groups, index):
    cuts = np.sort(rng.integers(0, count + 1, groups + 1))
    if rng.integers(2):
        cuts[0], cuts[-1] = 0, count
    return cuts.astype(index)


def test_combinations(rank):
    rng = np.random.default_rng(15)
    activations = (('none', 1.0, 0.0), ('swiglu', 1.0, 0.0), ('swiglu', 1.702, 7.0))
    for dtype, out_dtype, (activation, alpha, limit), options in itertools.product(DTYPES, DTYPES, activations, range(8)):
        biased, gathered, weighted = options & 1, options & 2, options & 4
        count, depth, groups = int(rng.choice([1, 7, 40])), int(rng.choice([8, 40, 136])), int(rng.choice([1, 5, 9]))
        columns = int(rng.choice([16, 48]))
        sources = int(rng.choice([1, 3, 50])) if gathered else count
        index = (np.int32, np.uint32)[int(rng.integers(2))]
        check(rank, Case(rng.normal(size=(sources, depth)), rng.normal(size=(groups, columns, depth)), random_offsets(rng, count, groups, index),
                         dtype, out_dtype, bias=rng.normal(size=(groups, columns)) if biased else None, bias_dtype=str(rng.choice(DTYPES)),
                         row_ids=rng.integers(0, sources, count).astype(np.int32) if gathered else None,
                         row_weights=rng.normal(size=count) if weighted else None, activation=activation, alpha=alpha, limit=limit))


def test_sizes(rank):
    rng = np.random.default_rng(16)
    for count, depth, columns, groups in ((0, 8, 8, 3), (0, 0, 8, 1), (1, 8, 8, 1), (7, 8, 8, 64), (300, 64, 32, 8), (300, 8, 16, 1), (5, 0, 8, 2),
                                          (5, 16, 0, 2), (40, 2048, 256, 3)):
        offsets = random_offsets(rng, count, groups, np.int32)
        for activation, biased in itertools.product(('none', 'swiglu') if columns % 16 == 0 else ('none',), (False, True)):
            check(rank, Case(rng.normal(size=(count, depth)), rng.normal(size=(groups, columns, depth)), offsets, 'bf16', 'bf16',
                             activation=activation, bias=rng.normal(size=(groups, columns)) if biased else None))
    no_groups = Case(np.ones((4, 8)), np.ones((0, 8, 8)), np.array([2], np.int32))
    check(rank, no_groups)


def test_offsets(rank):
    rng = np.random.default_rng(17)
    rows, weights = rng.normal(size=(20, 16)), rng.normal(size=(4, 8, 16))
    for offsets in ([0, 20, 20, 20, 20], [0, 0, 0, 0, 20], [0, 0, 0, 0, 0], [20] * 5, [3, 3, 9, 9, 17], [0, 5, 10, 15, 20]):
        for index in (np.int32, np.uint32):
            check(rank, Case(rows, weights, np.array(offsets, index)))


def test_row_ids(rank):
    rng = np.random.default_rng(18)
    ids = np.array([-1, 99, 4, 4, 0, 4, 2147483647, -5], np.int32)  # what is outside of the groups is not looked at
    case = Case(rng.normal(size=(5, 16)), rng.normal(size=(2, 8, 16)), np.array([2, 4, 6], np.int32), row_ids=ids)
    check(rank, case)
    unsigned = Case(case.rows, case.weights, case.offsets, row_ids=ids.view(np.uint32))
    np.testing.assert_array_equal(case.run(rank), unsigned.run(rank))


def test_nan_and_infinity(rank):
    rng = np.random.default_rng(19)
    for dtype, out_dtype, activation in itertools.product(DTYPES, DTYPES, ('none', 'swiglu')):
        rows, weights = rng.normal(size=(18, 16)), rng.normal(size=(1, 32, 16))
        rows[3, 5], rows[4, 0], rows[5, 1] = np.nan, np.inf, -np.inf
        case = Case(rows, weights, np.array([0, 18], np.int32), dtype, out_dtype, activation=activation)
        values = value_of(case.run(rank), out_dtype)
        assert np.isnan(values[3]).all()
        assert np.isfinite(np.delete(values, (3, 4, 5), axis=0)).all()
        with np.errstate(invalid='ignore'):
            sums = weights[0] @ case.rows[[4, 5]].T  # infinities alone: their signs are the weights'
            expected = (sums if activation == 'none' else sums[:16] / (1 + np.exp(-sums[:16])) * sums[16:]).T
        np.testing.assert_array_equal(values[4:6], expected)
    large = Case(np.full((1, 8), 200.0), np.full((1, 8, 8), 200.0), np.array([0, 1], np.int32), 'bf16', 'f16')
    assert (value_of(large.run(rank), 'f16') == np.inf).all()  # 320000 is beyond f16
    clamped = Case([[np.nan] + [0.0] * 7], np.ones((1, 16, 8)), np.array([0, 1], np.int32), activation='swiglu', limit=1.0)
    assert np.isnan(value_of(clamped.run(rank), 'f32')).all()  # a clamp does not hide NaN


def test_repeated_calls(rank):
    rng = np.random.default_rng(20)
    case = Case(rng.normal(size=(40, 64)), rng.normal(size=(3, 16, 64)), np.array([0, 9, 30, 40], np.int32), 'f16', 'f16', activation='swiglu')
    first = case.run(rank)
    for _ in range(3):
        np.testing.assert_array_equal(case.run(rank), first)


# --- weights of 4 bits ----------------------------------------------------------------------------------

SCALE_CODES = {'nvfp4': (0, 1, 7, 8, *range(0x28, 0x40), 0xb8), 'mxfp4': tuple(range(119, 132))}
SCALE_TYPES = {'nvfp4': 'f8E4M3FN', 'mxfp4': 'f8E8M0FNU'}


def test_codes(rank):
    rng = np.random.default_rng(21)
    activations = (('none', 1.0, 0.0), ('swiglu', 1.0, 0.0), ('swiglu', 1.702, 7.0))
    for format, out_dtype, (activation, alpha, limit), options in itertools.product(('nvfp4', 'mxfp4'), DTYPES, activations, range(8)):
        biased, gathered, weighted = options & 1, options & 2, options & 4
        block = FORMATS[format].block
        count, depth, groups = int(rng.choice([1, 7, 40])), block * int(rng.choice([0, 1, 2, 5])), int(rng.choice([1, 5, 9]))
        columns, sources = int(rng.choice([16, 48])), int(rng.choice([1, 3, 50])) if gathered else count
        weights = CodedWeights.random(rng, format, groups, columns, depth, SCALE_CODES[format], value_type=str(rng.choice(['i8', 'ui8'])),
                                      scale_type=str(rng.choice(['i8', 'ui8', SCALE_TYPES[format]])),
                                      factors=rng.uniform(0.5, 20, groups).astype(np.float32) if format == 'nvfp4' and weighted else None)
        check(rank, Case(rng.normal(size=(sources, depth)) / 16, weights, random_offsets(rng, count, groups, np.int32), 'bf16', out_dtype,
                         bias=rng.normal(size=(groups, columns)) if biased else None, bias_dtype=str(rng.choice(DTYPES)),
                         row_ids=rng.integers(0, sources, count).astype(np.int32) if gathered else None,
                         row_weights=rng.normal(size=count) if weighted else None, activation=activation, alpha=alpha, limit=limit))


def test_code_bits(rank):
    """Every code with every scale that is a number, to the bit: sums, then the decoder's factor."""
    rng = np.random.default_rng(22)
    for format, scale_codes in (('nvfp4', range(0x7f)), ('nvfp4', range(0x80, 0xff)), ('mxfp4', range(2, 250))):
        scale_codes, block = np.array(scale_codes), FORMATS[format].block
        columns = len(scale_codes) // 8 * 8 + 8
        scales = np.resize(scale_codes, (1, columns, 1))
        values = np.stack([rng.permutation(np.arange(block) % 16) for _ in range(columns)])[None]
        factors = np.array([3.7], np.float32) if format == 'nvfp4' else None
        case = Case(rng.normal(size=(2, block)), CodedWeights(format, values, scales, factors), np.array([0, 2], np.int32), 'bf16')
        got = value_of(case.run(rank), 'f32')
        for r in range(2):
            exact = [exact_sum(case.rows[r], w) for w in case.weights[0]]
            if factors is not None:
                inverse = round_f32(1 / Fraction(float(factors[0])))
                exact = [round_f32(Fraction(e) * Fraction(inverse)) for e in exact]
            np.testing.assert_array_equal(got[r], exact)


def test_codes_are_numbers(rank):
    """The same bits as with the weights in bf16, which holds them."""
    rng = np.random.default_rng(23)
    for format, activation in itertools.product(('nvfp4', 'mxfp4'), ('none', 'swiglu')):
        coded = CodedWeights.random(rng, format, 3, 32, 96, SCALE_CODES[format])
        rows, offsets = rng.normal(size=(20, 96)), np.array([0, 9, 9, 20], np.int32)
        np.testing.assert_array_equal(Case(rows, coded, offsets, 'bf16', activation=activation).run(rank),
                                      Case(rows, coded.numbers, offsets, 'bf16', activation=activation).run(rank))


def test_scales_without_number(rank):
    """A scale that is NaN makes its weight rows NaN, codes of zero too; no other."""
    for format, nans in (('nvfp4', (0x7f, 0xff)), ('mxfp4', (0xff,))):
        for nan in nans:
            scales = np.full((1, 8, 2), 0x38 if format == 'nvfp4' else 127)
            scales[0, 3, 1] = nan
            weights = CodedWeights(format, np.zeros((1, 8, 2 * FORMATS[format].block), int), scales)
            got = value_of(Case(np.ones((1, weights.numbers.shape[2])), weights, np.array([0, 1], np.int32), 'bf16').run(rank), 'f32')
            np.testing.assert_array_equal(np.isnan(got[0]), np.arange(8) == 3)


# --- errors -------------------------------------------------------------------------------------------

def refuser(rank, shared):
    def refuse(name, text, **changes):
        operands = {**shared, **changes}
        operands.setdefault('out', np.full((6, 16), -7.5, np.float32))
        expect_error('MOERT_ERROR_' + name, 'moe.grouped_matmul: ' + text, rank.op, 'moe.grouped_matmul', **operands)
        assert (operands['out'] == -7.5).all()
    return refuse


def zeros(*shape):
    return np.zeros(shape, np.float32)


def poisoned(*shape):
    return np.full(shape, -7.5, np.float32)


def test_shape_errors(rank):
    refuse = refuser(rank, dict(rows=zeros(6, 8), weights=zeros(3, 16, 8), offsets=np.zeros(4, np.int32)))
    refuse('INVALID_SHAPE', "operand 'rows' dimension 1 is 12, must be a multiple of 8", rows=zeros(6, 12))  # C1
    refuse('INVALID_DTYPE', "operand 'weights': element type f16, must be f32 as that of 'rows'", weights=np.zeros((3, 16, 8), np.float16))  # C2
    refuse('INVALID_SHAPE', "operand 'weights' dimension 2 is 16, must equal dimension 1 of 'rows' = 8", weights=zeros(3, 16, 16))
    refuse('INVALID_SHAPE', "operand 'weights' dimension 1 is 12, must be a multiple of 8", weights=zeros(3, 12, 8))
    refuse('INVALID_SHAPE', "operand 'weights' dimension 1 is 24, must be a multiple of 16", weights=zeros(3, 24, 8), activation='swiglu')
    refuse('INVALID_SHAPE', "operand 'offsets' dimension 0 is 3, must equal one more than dimension 0 of 'weights' = 4",
           offsets=np.zeros(3, np.int32))  # C3
    refuse('INVALID_SHAPE', "operand 'out' dimension 0 is 5, must equal dimension 0 of 'rows' = 6", out=poisoned(5, 16))  # C4
    refuse('INVALID_SHAPE', "operand 'out' dimension 0 is 6, must equal dimension 0 of 'row_ids' = 4", row_ids=np.zeros(4, np.int32))
    refuse('INVALID_SHAPE', "operand 'out' dimension 1 is 8, must equal dimension 1 of 'weights' = 16", out=poisoned(6, 8))
    refuse('INVALID_SHAPE', "operand 'out' dimension 1 is 16, must equal half of dimension 1 of 'weights' = 8", activation='swiglu')
    refuse('INVALID_SHAPE', "operand 'bias' dimension 0 is 2, must equal dimension 0 of 'weights' = 3", bias=zeros(2, 16))  # C5
    refuse('INVALID_SHAPE', "operand 'bias' dimension 1 is 8, must equal dimension 1 of 'weights' = 16", bias=zeros(3, 8))
    refuse('INVALID_SHAPE', "operand 'row_weights' dimension 0 is 7, must equal dimension 0 of 'rows' = 6", row_weights=zeros(7))  # C6


def test_parameter_errors(rank):  # C7
    refuse = refuser(rank, dict(rows=zeros(6, 8), weights=zeros(3, 16, 8), offsets=np.zeros(4, np.int32)))
    refuse('INVALID_ARGUMENT', "parameter 'limit' is -1, must not be negative; 0 means no clamp", limit=-1.0)
    refuse('INVALID_ARGUMENT', "parameter 'limit' is 2, must be 0 without activation swiglu", limit=2.0)
    refuse('INVALID_ARGUMENT', "parameter 'alpha' is 1.5, must be 1 where limit is 0", alpha=1.5, activation='swiglu')
    refuse('INVALID_ARGUMENT', "parameter 'alpha' is -1e+40, beyond the largest f32, 3.40282e+38", alpha=-1e40, limit=1.0, activation='swiglu')
    refuse('INVALID_ARGUMENT', "parameter 'limit' is 1e+40, beyond the largest f32, 3.40282e+38", limit=1e40, activation='swiglu')


def test_code_errors(rank):
    rows, codes = typed(np.zeros((6, 32), np.uint16), 'bf16'), np.zeros((3, 16, 16), np.int8)
    scales = typed(np.zeros((3, 16, 2), np.int8), 'f8E4M3FN')
    refuse = refuser(rank, dict(rows=rows, weights=codes, weight_scales=scales, weight_format='nvfp4', offsets=np.zeros(4, np.int32)))
    refuse('INVALID_DTYPE', "operand 'rows': element type f16, must be bf16 with a weight_format", rows=np.zeros((6, 32), np.float16))  # C2
    refuse('INVALID_DTYPE', "operand 'weights': element type f32, must be i8 or ui8 with a weight_format", weights=zeros(3, 16, 16))
    refuse('INVALID_SHAPE', "operand 'weights' dimension 2 is 32, must equal half of dimension 1 of 'rows' = 16", weights=np.zeros((3, 16, 32), np.int8))
    refuse('INVALID_SHAPE', "operand 'rows' dimension 1 is 24, must be a multiple of 16", rows=typed(np.zeros((6, 24), np.uint16), 'bf16'))  # C8
    refuse('INVALID_SHAPE', "operand 'rows' dimension 1 is 48, must be a multiple of 32", rows=typed(np.zeros((6, 48), np.uint16), 'bf16'),
           weight_format='mxfp4')
    refuse('NULL_POINTER', "operand 'weight_scales' is NULL, must be set with a weight_format", weight_scales=None)  # C9
    refuse('INVALID_ARGUMENT', "operand 'weight_scales' is set, must be NULL where weight_format is none", weight_format='none')
    refuse('INVALID_DTYPE', "operand 'weight_scales': element type f8E8M0FNU, must be f8E4M3FN, i8 or ui8 for weight_format nvfp4",
           weight_scales=typed(np.zeros((3, 16, 2), np.int8), 'f8E8M0FNU'))
    refuse('INVALID_DTYPE', "operand 'weight_scales': element type f8E4M3FN, must be f8E8M0FNU, i8 or ui8 for weight_format mxfp4", weight_format='mxfp4')
    for shape, text in (((2, 16, 2), "0 is 2, must equal dimension 0 of 'weights' = 3"), ((3, 8, 2), "1 is 8, must equal dimension 1 of 'weights' = 16"),
                        ((3, 16, 1), "2 is 1, must equal a sixteenth of dimension 1 of 'rows' = 2")):
        refuse('INVALID_SHAPE', "operand 'weight_scales' dimension " + text, weight_scales=np.zeros(shape, np.int8))
    refuse('INVALID_SHAPE', "operand 'weight_scales' dimension 2 is 2, must equal a thirty-second of dimension 1 of 'rows' = 1", weight_format='mxfp4',
           weight_scales=np.zeros((3, 16, 2), np.int8))
    refuse('INVALID_SHAPE', "operand 'weight_global_scale' dimension 0 is 1, must equal dimension 0 of 'weights' = 3", weight_global_scale=zeros(1))  # C10
    refuse('INVALID_ARGUMENT', "operand 'weight_global_scale' is set, must be NULL where weight_format is mxfp4", weight_format='mxfp4',
           weight_scales=np.zeros((3, 16, 1), np.int8), weight_global_scale=zeros(3))
    refuse('INVALID_ARGUMENT', "operand 'weight_global_scale' is set, must be NULL where weight_format is none", weight_format='none',
           weight_scales=None, weight_global_scale=zeros(3))


def test_data_errors(rank):
    refuse = refuser(rank, dict(rows=zeros(6, 8), weights=zeros(3, 16, 8)))
    for offsets, index, text in (
            ([0, 4, 3, 6], np.int32, 'offsets[2] is 3, less than offsets[1] = 4: must not descend'),
            ([0, 4, 3, 6], np.uint32, 'offsets[2] is 3, less than offsets[1] = 4: must not descend'),
            ([-1, 0, 0, 6], np.int32, 'offsets[0] is -1, must not be negative'),
            ([0, 2, 4, 7], np.int32, "offsets[3] is 7, exceeds the 6 rows of 'out'"),
            ([0, 7, 5, 6], np.int32, "offsets[1] is 7, exceeds the 6 rows of 'out'"),
            ([0, 0, 4294967295, 6], np.uint32, "offsets[2] is 4294967295, exceeds the 6 rows of 'out'")):
        refuse('DATA', text, offsets=np.array(offsets, index))
    offsets = np.array([1, 2, 4, 5], np.int32)
    for place, value in ((1, -1), (4, 6), (2, 2147483647)):
        ids = np.zeros(6, np.int32)
        ids[place] = value
        refuse('DATA', "row_ids[%d] is %d, must be at least 0 and less than the 6 rows of 'rows'" % (place, value), offsets=offsets, row_ids=ids)
    refuse('DATA', "row_ids[1] is 0, must be at least 0 and less than the 0 rows of 'rows'", offsets=offsets, rows=zeros(0, 8),
           row_ids=np.zeros(6, np.int32))


def test_no_memory(rank):
    context = rank.new_context(arena_limit=1024)
    out = poisoned(3, 8)
    try:
        call(context, 'moe.grouped_matmul', rows=zeros(3, 64), weights=zeros(1, 8, 64), offsets=np.array([0, 3], np.int32), out=out)
    except MoertError as error:
        assert error.name == 'MOERT_ERROR_OUT_OF_MEMORY', error
    else:
        raise AssertionError('no error')
    assert (out == -7.5).all()


def main(rank):
    for test in (test_fractions, test_subnormal_products, test_activation_bits, test_place_does_not_matter, test_combinations, test_sizes,
                 test_offsets, test_row_ids, test_nan_and_infinity, test_repeated_calls, test_codes, test_code_bits, test_codes_are_numbers,
                 test_scales_without_number, test_shape_errors, test_parameter_errors, test_code_errors, test_data_errors, test_no_memory):
        test(rank)


if __name__ == '__main__':
    run_ranks(1, main)
