#===- allreduce_fusion.py - moe.allreduce_fusion against NumPy ------------------------------------===#
#
# Bits are compared: those of the model, of all ranks, and of repeated calls. Sums are computed in wider types and rounded where the op's contract
# (ops/moe/moe.td) says so. A second, plain evaluation in float64 bounds how far the contract itself is from the exact result.
#
#===----------------------------------------------------------------------------------------------===#
import itertools
from typing import NamedTuple

import numpy as np

import formats_model as formats
from all_to_all import HIDDEN, Inputs, Round, Workspace, combine, dispatch, poisoned, random_values, same_bits
from moert import decode, encode, expect_error, run_ranks, run_tests, typed

OUTPUTS = ('moe_allreduce_out', 'residual_out', 'norm_out')
FACTORED = ('nvfp4', 'fp8_tensor')  # what scale_factor goes with
EPSILON = {'bf16': 2.0**-8, 'f16': 2.0**-11, 'f32': 2.0**-24}


class Case(NamedTuple):
    """One call on all ranks."""
    ranks: int
    tokens: int
    hidden: int
    dtype: str = 'bf16'
    scale_dtype: str = 'f32'
    room: int = 4  # experts that there is room for
    experts: tuple = ()  # that count, of each rank; (): all, without a device-side number
    rms_eps: float = 1e-5
    weight_bias: float = 0.0
    fp32_acc: bool = False
    outputs: tuple = OUTPUTS
    in_place: bool = False
    special: str = ''
    quant_format: str = 'none'
    layout: str = 'linear'
    factor: float = 1.0
    strategy: str = 'auto'

    @property
    def rule(self):
        """Of the codes; None: there are none."""
        return None if self.quant_format == 'none' else formats.Rule(self.quant_format, self.factor if self.quant_format in FACTORED else None)

    def written(self):
        """The names of all outputs."""
        return self.outputs + (() if self.rule is None else ('quant_out', 'scale_out') if self.rule.scaled else ('quant_out',))

    def counted(self, rank):
        return self.experts[rank] if self.experts else self.room

    def row_bytes(self):
        return self.hidden * (4 if self.fp32_acc or self.dtype == 'f32' else 2)


# --- the model ----------------------------------------------------------------------------------------

def f32(values):
    """Rounded to f32, as float64."""
    with np.errstate(over='ignore', invalid='ignore'):
        return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)


def fma(a, b, c):
    """Of f32 values. The product is exact in float64; the sum, which may not be, is rounded to odd there, so that rounding it to f32 is the only rounding."""
    with np.errstate(over='ignore', invalid='ignore'):
        product = a * b
        total = product + c
        rest = total - product
        error = (product - (total - rest)) + (c - rest)
        bits = np.ascontiguousarray(total).view(np.int64)
        inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & (bits & 1 == 0)
        away = np.where((error > 0) == (total > 0), 1, -1)  # the neighbour on the error's side is odd
        return f32(np.where(inexact, (bits + away), bits).view(np.float64))


def rounded(values, dtype):
    return decode(encode(values, dtype), dtype)


def part_of(case, inputs, rank):
    x, s, shared = inputs.values(rank)
    part = np.zeros((case.tokens, case.hidden))
    with np.errstate(invalid='ignore', over='ignore'):
        for e in range(case.counted(rank)):
            scale = s[e][:, None]
            if case.fp32_acc:
                part = fma(x[e], scale, part)
            else:
                part = rounded(f32(part + rounded(f32(x[e] * scale), case.dtype)), case.dtype)
        total = f32(part + shared)
    return total if case.fp32_acc else rounded(total, case.dtype)


def add_ranks(case, parts):
    total = parts[0]
    with np.errstate(invalid='ignore', over='ignore'):
        for part in parts[1:]:
            total = f32(total + part)
            if not case.fp32_acc:
                total = rounded(total, case.dtype)
    total = rounded(total, case.dtype)
    return np.where(total == 0, 0.0, total)


def halves(sums):
    """The last axis, of 32, by halves."""
    while sums.shape[-1] > 1:
        width = sums.shape[-1] // 2
        sums = f32(sums[..., :width] + sums[..., width:])
    return sums[..., 0]


def sum_of_squares(z):
    tokens, hidden = z.shape
    blocks = -(-hidden // 8192)
    padded = np.zeros((tokens, blocks * 8192))
    padded[:, :hidden] = z
    columns = padded.reshape(tokens, blocks, 32, 32, 8)
    sums = np.zeros(columns.shape[:-1])
    with np.errstate(invalid='ignore', over='ignore'):
        for i in range(8):
            sums = fma(columns[..., i], columns[..., i], sums)
        by_block = halves(halves(sums))
        total = np.zeros(tokens)
        for block in range(blocks):
            total = f32(total + by_block[:, block])
    return total


def finish(case, y, residual, gamma):
    """The outputs, each [tokens, hidden] as an array of the element type, and codes and scales, from the sum y of all ranks."""
    with np.errstate(invalid='ignore', over='ignore', divide='ignore'):
        z = rounded(f32(y + residual), case.dtype)
        mean = f32(sum_of_squares(z) / np.float64(np.float32(case.hidden)))
        inverse = f32(1 / f32(np.sqrt(f32(mean + f32(case.rms_eps)))))
        weight = f32(f32(case.weight_bias) + gamma)
        norm = f32(f32(z * inverse[:, None]) * weight)
    outputs = {name: encode(values, case.dtype) for name, values in zip(OUTPUTS, (y, z, norm))}
    if case.rule is not None:
        codes, scales = formats.quantize(case.rule, decode(outputs['norm_out'], case.dtype).astype(np.float32))
        outputs['quant_out'] = formats.pack(codes, 'low_first') if case.rule.numbers.packed else codes
        outputs['scale_out'] = formats.lay_out(scales, case.layout) if case.rule.scaled else None
    return outputs


def model(case, inputs):
    """They are the same on all ranks but for the residual."""
    y = add_ranks(case, [part_of(case, inputs, rank) for rank in range(case.ranks)])
    return finish(case, y, inputs.residual_values(), inputs.gamma_values())


# --- inputs -------------------------------------------------------------------------------------------

class AllInputs:
    def __init__(self, case, seed):
        rng = np.random.default_rng(seed)
        self.case = case
        shape = (case.tokens, case.hidden)
        special = case.special == 'numbers'
        self.x = [random_values(rng, (case.room,) + shape, case.dtype, special) for _ in range(case.ranks)]
        self.s = [encode(rng.standard_normal((case.room, case.tokens)), case.scale_dtype) for _ in range(case.ranks)]
        self.shared = [random_values(rng, shape, case.dtype, special) for _ in range(case.ranks)]
        self.residual = random_values(rng, shape, case.dtype, special)
        self.gamma = encode(rng.standard_normal(case.hidden), case.dtype)
        for rank in range(case.ranks):  # what does not count must not be read
            self.x[rank][case.counted(rank):] = encode(np.nan, case.dtype)
            self.s[rank][case.counted(rank):] = encode(np.nan, case.scale_dtype)
        if case.special == 'negative zero':
            for array in self.x + self.shared + [self.residual]:
                array[:] = encode(-0.0, case.dtype)

    def values(self, rank):
        return decode(self.x[rank], self.case.dtype), decode(self.s[rank], self.case.scale_dtype), decode(self.shared[rank], self.case.dtype)

    def residual_values(self):
        return decode(self.residual, self.case.dtype)

    def gamma_values(self):
        return decode(self.gamma, self.case.dtype)


# --- calls --------------------------------------------------------------------------------------------

def typed_output(case, name, array):
    if name == 'scale_out':
        return typed(array, 'f32' if case.rule.numbers.scales is None else 'ui8')
    return typed(array, 'ui8' if name == 'quant_out' else case.dtype)


def code_buffers(case):
    """Poisoned memory for codes and scales."""
    rule = case.rule
    if rule is None:
        return {}
    buffers = {'quant_out': np.full((case.tokens, case.hidden // 2 if rule.numbers.packed else case.hidden), 0xa5, np.uint8)}
    if rule.scaled:
        shape = formats.buffer_shape(case.layout, case.tokens, formats.columns_of(rule, case.hidden))
        buffers['scale_out'] = np.full(shape, np.float32(-7.0)) if rule.numbers.scales is None else np.full(shape, 0xa5, np.uint8)
    return buffers


def call(workspace, case, inputs, **changed):
    """One call; the arrays of its outputs by name."""
    rank = workspace.rank.rank
    dtype = case.dtype
    residual = inputs.residual.copy()
    outputs = {name: poisoned((case.tokens, case.hidden), dtype) for name in case.outputs}
    if case.in_place:
        outputs['residual_out'] = residual
    outputs.update(code_buffers(case))
    named = dict(residual_in=typed(residual, dtype), rms_gamma=typed(inputs.gamma, dtype),
                 moe_reduction_active_experts_token_input=typed(inputs.x[rank], dtype),
                 moe_reduction_scale_input=typed(inputs.s[rank], case.scale_dtype), moe_reduction_token_input=typed(inputs.shared[rank], dtype),
                 hidden_size=case.hidden, rms_eps=case.rms_eps, weight_bias=case.weight_bias, fp32_acc=case.fp32_acc,
                 quant_format=case.quant_format, layout_code=case.layout, scale_factor=case.factor, strategy=case.strategy,
                 **{name: typed_output(case, name, array) for name, array in outputs.items()}, **workspace.operands())
    if case.experts:
        named['moe_reduction_device_num_experts'] = np.array([case.experts[rank]], np.int32)
    workspace.rank.op('moe.allreduce_fusion', **{**named, **changed})
    return outputs


def check_bits(case, got, want):
    for name in case.outputs:
        assert same_bits(got[name], want[name], case.dtype), (case, name, decode(got[name], case.dtype), decode(want[name], case.dtype))
    for name in case.written()[len(case.outputs):]:
        assert np.array_equal(got[name].view(np.uint8), want[name].view(np.uint8)), (case, name, got[name], want[name])


def play(cases, seed=0, repeats=2):
    """Calls on one workspace that is large enough for all of them; by all ranks the same bits, each time."""
    prepared = [(case, AllInputs(case, seed + i)) for i, case in enumerate(cases)]
    wanted = [model(case, inputs) for case, inputs in prepared]
    most, width = max(case.tokens for case in cases), max(case.row_bytes() for case in cases)

    def rank_main(rank):
        workspace = Workspace(rank, max(most, 1), width, 1)
        bits = []
        for _ in range(repeats):
            for (case, inputs), want in zip(prepared, wanted):
                got = call(workspace, case, inputs)
                check_bits(case, got, want)
                bits.append([got[name].tobytes() for name in case.written()])
        assert bits[:len(cases)] * repeats == bits
        assert workspace.region('FLAG_VAL', (1,))[0] == len(cases) * repeats
        return bits

    everywhere = run_ranks(cases[0].ranks, rank_main, timeout_ms=20000)
    assert all(bits == everywhere[0] for bits in everywhere)


def test_ranks():
    for ranks, fp32_acc in itertools.product(range(1, 17), (False, True)):
        play([Case(ranks, tokens, 64, fp32_acc=fp32_acc) for tokens in (0, 1, 5)], seed=ranks)
    play([Case(64, 2, 16)], seed=64)


def test_dtypes():
    for dtype, scale_dtype, fp32_acc, special in itertools.product(EPSILON, EPSILON, (False, True), ('', 'numbers', 'negative zero')):
        play([Case(3, 7, 72, dtype, scale_dtype, fp32_acc=fp32_acc, special=special)], seed=1)


def test_hidden_sizes():
    """On both sides of every level of the tree of squares."""
    for hidden in (8, 16, 248, 256, 264, 1000, 2880, 4096, 7168, 8184, 8192, 8200, 16384, 24584):
        play([Case(2, 3, hidden, 'f32', rms_eps=1e-3), Case(2, 3, hidden, 'bf16', weight_bias=1.0)], seed=hidden, repeats=1)


def test_experts():
    """Fewer than there is room for, other ones on each rank, none; the number changes from call to call."""
    for fp32_acc in (False, True):
        play([Case(3, 4, 40, experts=experts, fp32_acc=fp32_acc) for experts in ((4, 4, 4), (0, 3, 1), (0, 0, 0), (2, 0, 4))], seed=2)
        play([Case(3, 4, 40, room=0, fp32_acc=fp32_acc), Case(3, 4, 40, room=0, experts=(0, 0, 0), fp32_acc=fp32_acc)], seed=3)
        play([Case(2, 2, 24, room=65, fp32_acc=fp32_acc)], seed=4)


def test_outputs():
    for count in (1, 2, 3):
        for outputs in itertools.combinations(OUTPUTS, count):
            play([Case(2, 5, 264, outputs=outputs, in_place=in_place) for in_place in ((False, True) if 'residual_out' in outputs else (False,))])


def test_codes():
    """Every format, layout and type, of blocks that are whole and of a last one that is not; with the norm and without."""
    for quant_format, numbers in formats.FORMATS.items():
        layouts = [layout for layout in numbers.layouts if layout != 'transposed']
        for layout, dtype, special in itertools.product(layouts, EPSILON, ('', 'numbers')):
            factor = 3.75 if quant_format in FACTORED else 1.0
            play([Case(2, tokens, hidden, dtype, special=special, quant_format=quant_format, layout=layout, factor=factor, outputs=outputs)
                  for tokens, hidden, outputs in ((0, 32, OUTPUTS), (1, 96, ()), (131, 32, ('residual_out',)), (3, 416, OUTPUTS))], seed=8, repeats=1)


def test_strategies():
    """They change nothing but the way."""
    for strategy in ('one_shot', 'two_shot'):
        play([Case(ranks, 7, 72, strategy=strategy) for ranks in (3,) for _ in range(3)], seed=9)


def test_norm():
    for eps, bias in itertools.product((0.0, 1e-6, 1e-3, 1e30), (0.0, 1.0, -0.5, 1e-40)):
        play([Case(2, 3, 32, dtype, rms_eps=eps, weight_bias=bias) for dtype in EPSILON])
    for eps in (0.0, 1e-6):  # 0 * inf, and 0
        play([Case(2, 3, 32, dtype, rms_eps=eps, special='negative zero') for dtype in EPSILON])


def test_negative_zero():
    """A sum of -0.0 leaves as +0.0, also where it is the rounding that makes it."""
    case = Case(2, 1, 8, 'bf16', fp32_acc=True, room=1, special='negative zero')
    inputs = AllInputs(case, 0)
    for rank in range(2):
        inputs.x[rank][:] = encode(-2.0**-100, 'bf16')
        inputs.s[rank][:] = 2.0**-40

    def rank_main(rank):
        return call(Workspace(rank, 1, 32, 1), case, inputs)

    for outputs in run_ranks(2, rank_main):
        assert not outputs['moe_allreduce_out'].any() and not outputs['residual_out'].any()


def test_changing_calls():
    """Sizes, types and rounding change from call to call on one workspace."""
    rng = np.random.default_rng(5)
    cases = []
    for _ in range(30):
        room = int(rng.integers(0, 6))
        cases.append(Case(3, int(rng.integers(0, 20)), 8 * int(rng.integers(1, 60)), str(rng.choice(list(EPSILON))), str(rng.choice(list(EPSILON))), room,
                          tuple(int(e) for e in rng.integers(0, room + 1, 3)), fp32_acc=bool(rng.integers(2)), in_place=bool(rng.integers(2)),
                          special=str(rng.choice(['', 'numbers']))))
    play(cases, seed=50)


def test_between_rounds():
    """All-to-all and all-reduce take turns on one workspace; they share its receive areas."""
    rnd = Round((6, 1, 9), 8, 2, (HIDDEN,), (24,))
    routed, case = Inputs(rnd, 6), Case(3, 9, 24)
    reduced = AllInputs(case, 7)
    want = model(case, reduced)

    def rank_main(rank):
        workspace = Workspace(rank, 9, 48, 48)
        for i in range(60):
            offset = dispatch(workspace, routed)
            expect_error('MOERT_ERROR_INVALID_STATE',
                         'moe.allreduce_fusion: the dispatch before on this workspace waits for its combine: call moe.combine first',
                         call, workspace, case, reduced)
            combine(workspace, routed, offset)
            for _ in range(i % 3):
                check_bits(case, call(workspace, case, reduced), want)

    run_ranks(3, rank_main, timeout_ms=20000)


def test_behind_masked_rounds():
    """All ranks reduce: behind a round that one was left out of, only when they have begun anew."""
    rnd = Round((6, 1, 9), 8, 2, (HIDDEN,), (24,), mask=0b101)
    routed, case = Inputs(rnd, 6), Case(3, 9, 24)
    reduced = AllInputs(case, 7)
    want = model(case, reduced)

    def rank_main(rank):
        workspace = Workspace(rank, 9, 48, 48)
        if rank.rank != 1:
            combine(workspace, routed, dispatch(workspace, routed))
            expect_error('MOERT_ERROR_INVALID_STATE',
                         "moe.allreduce_fusion: rank 1 was left out of the dispatch before by its 'active_rank_mask' 0x5: call "
                         "moe.initialize on all ranks before it takes part again", call, workspace, case, reduced)
        workspace.initialize()
        check_bits(case, call(workspace, case, reduced), want)

    run_ranks(3, rank_main, timeout_ms=20000)


def exact(case, inputs):
    """Everything in float64, rounded nowhere."""
    y = np.zeros((case.tokens, case.hidden))
    size = np.zeros_like(y)  # of what is added
    for rank in range(case.ranks):
        x, s, shared = inputs.values(rank)
        terms = x[:case.counted(rank)] * s[:case.counted(rank), :, None]
        y += terms.sum(axis=0) + shared
        size += np.abs(terms).sum(axis=0) + np.abs(shared)
    z = y + inputs.residual_values()
    norm = z / np.sqrt((z * z).mean(axis=1, keepdims=True) + case.rms_eps) * (case.weight_bias + inputs.gamma_values())
    return (y, z, norm), size


def test_accuracy():
    """fp32_acc has one rounding; the default has one for each step."""
    for dtype, fp32_acc in itertools.product(EPSILON, (False, True)):
        case = Case(4, 16, 512, dtype, fp32_acc=fp32_acc, room=8)
        inputs = AllInputs(case, 8)
        (y, _, norm), size = exact(case, inputs)
        got = {name: decode(array, dtype) for name, array in model(case, inputs).items()}
        steps = case.ranks + 2 * case.room + 1
        bound = EPSILON[dtype] * np.abs(y) + 2 * steps * EPSILON['f32'] * size if fp32_acc else steps * EPSILON[dtype] * size
        assert np.all(np.abs(got['moe_allreduce_out'] - y) <= bound), (dtype, fp32_acc)
        error = np.sqrt(np.mean((got['norm_out'] - norm)**2) / np.mean(norm**2))
        assert error < (4 if fp32_acc else 64) * EPSILON[dtype], (dtype, fp32_acc, error)


def test_largest():
    play([Case(8, 64, 7168, 'bf16', room=2)], seed=9, repeats=1)


if __name__ == '__main__':
    run_tests(globals())
