#===- nvfp4_routed.py - moe.nvfp4_routed against NumPy --------------------------------------------===#
#
# Two oracles. One has every rounding in its place, sums in ascending k included, and is met to the bit, the plan with it. The other is float64
# from the codes of the call to the sums, and so without the step through NVFP4 between the two products: the relative L2 error is what four bits
# leave, of random numbers about 0.1. Every destination is poisoned before the call.
#
#===----------------------------------------------------------------------------------------------===#
import copy
import itertools

import numpy as np

from all_to_all import same_bits
from allreduce_fusion import fma
from formats_model import E2M1, E4M3, Arrays
from moert import MoertError, call, decode, encode, expect_error, run_ranks, typed
from route import sigmoid_f32

POISON = -1515870811  # of the plan's destinations
FOUR_BITS = 0.15  # bound of the relative L2 error of random h in NVFP4, and so of the sums
USUAL = np.arange(0x28, 0x48)  # scales from 0.25 to 4
WEIGHTS = ('gemm1_weights', 'gemm1_weights_scale', 'gemm2_weights', 'gemm2_weights_scale')
PLAN = ('sorted_token_ids', 'expert_ids', 'num_tokens_post_padded', 'cumsum_buffer')


def pack(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


class Rows:
    """Rows of codes and the scales of their blocks: `codes` and `scales` as they are passed, `numbers` what they stand for."""

    def __init__(self, rng, shape, scale_codes=USUAL):
        codes = rng.integers(0, 16, shape).astype(np.uint8)
        self.set(codes, rng.choice(scale_codes, (*shape[:-1], shape[-1] // 16)).astype(np.uint8))

    def set(self, codes, scales):
        self.codes, self.scales = pack(codes), scales
        with np.errstate(invalid='ignore'):
            self.numbers = Arrays.decode(E2M1, codes) * np.repeat(Arrays.decode(E4M3, scales), 16, axis=-1)


class Layer:
    """Weights and factors of the experts. The factors keep the numbers near 1, whatever the sizes."""

    def __init__(self, rng, experts, hidden, columns, scale_codes=USUAL):
        self.experts, self.hidden, self.inner = experts, hidden, columns // 2
        self.first, self.second = Rows(rng, (experts, columns, hidden), scale_codes), Rows(rng, (experts, hidden, self.inner), scale_codes)
        size = lambda rows: np.sqrt(np.mean(np.square(rows.numbers.astype(np.float64)))) or 1.0
        factor = lambda base: (base * rng.uniform(0.5, 2, experts)).astype(np.float32)
        usual = size(Rows(np.random.default_rng(0), (1, 4096)))
        self.gate = factor(1 / (usual * size(self.first) * np.sqrt(hidden)))
        self.up = factor(4 / (usual * size(self.first) * np.sqrt(hidden)))
        self.down = factor(1 / (2 * size(self.second) * np.sqrt(self.inner)))


class Case:
    """The layer's weights are those of the experts from `first` on, of `all_experts`; 0: they are all."""

    def __init__(self, rng, layer, tokens, top_k=2, ids=None, block_m=8, factor=1.0, accumulate=True, state_scales=USUAL, blocks=None, first=0, all_experts=0):
        self.layer, self.tokens, self.top_k, self.block_m, self.factor, self.accumulate = layer, tokens, top_k, block_m, factor, accumulate
        self.first, self.all_experts = first, all_experts
        self.states = Rows(rng, (tokens, layer.hidden), state_scales)
        drawn = rng.integers(-1, all_experts or layer.experts, (tokens, top_k)) if ids is None else np.array(ids)
        self.ids = drawn.astype(np.int32).reshape(tokens, top_k)
        self.weights = rng.normal(size=(tokens, top_k)).astype(np.float32)
        self.seed = encode(rng.normal(size=(tokens, layer.hidden)), 'bf16')
        self.pairs = tokens * top_k
        self.blocks = sum(-(-len(entries) // block_m) for entries in self.bins()) + 2 if blocks is None else blocks

    def bins(self):
        """The pairs of nobody, and of each expert."""
        flat = self.ids.reshape(-1).astype(np.int64) - self.first
        experts = np.where((flat >= 0) & (flat < self.layer.experts), flat, -1)
        return [np.flatnonzero(experts == expert) for expert in range(-1, self.layer.experts)]

    def operands(self):
        layer = self.layer
        out = self.seed.copy()
        plan = [np.full(count, POISON, np.int32) for count in (self.blocks * self.block_m + 3, self.blocks, 1, layer.experts + 5)]
        return dict(hidden_states=self.states.codes, hidden_states_scale=typed(self.states.scales, 'f8E4M3FN'), gemm1_weights=layer.first.codes,
                    gemm1_weights_scale=layer.first.scales, gemm2_weights=layer.second.codes.view(np.int8),
                    gemm2_weights_scale=typed(layer.second.scales, 'f8E4M3FN'), output1_scale_gate_scalar=layer.gate, output1_scale_scalar=layer.up,
                    output2_scale_scalar=layer.down, topk_ids=self.ids, topk_weights=self.weights, out=typed(out, 'bf16'), top_k=self.top_k,
                    block_m=self.block_m, routed_scaling_factor=self.factor, accumulate=self.accumulate, first_expert=self.first, num_experts=self.all_experts,
                    **dict(zip(PLAN, plan)))

    def run(self, rank, **changes):
        """The plan, and the bits of the output."""
        operands = {**self.operands(), **changes}
        rank.op('moe.nvfp4_routed', **operands)
        return [operands[name] for name in PLAN], operands['out'].array


# --- the plan --------------------------------------------------------------------------------------------

def plan_of(case):
    expected = [np.full(case.blocks * case.block_m + 3, case.pairs), np.full(case.blocks, POISON), np.zeros(1), np.full(case.layer.experts + 5, POISON)]
    entries, experts, padded, sums = (array.astype(np.int32) for array in expected)
    start = 0
    for bin, pairs in enumerate(case.bins()):
        entries[start:start + len(pairs)] = pairs
        sums[bin] = start + len(pairs)
        blocks = -(-len(pairs) // case.block_m)
        experts[start // case.block_m:start // case.block_m + blocks] = bin - 1
        start += blocks * case.block_m
    padded[0] = sums[case.layer.experts + 1] = start
    return entries, experts, padded, sums


# --- with every rounding ---------------------------------------------------------------------------------

def ordered_sums(rows, weights):
    """Rows by weight rows, by fused multiply-add in ascending k. A product is an f32; of two f32 float64 rounds the sum so that rounding it again
    is as if there had been one rounding."""
    rows, weights = rows.astype(np.float64), weights.astype(np.float64)
    total = np.zeros((len(rows), len(weights)))
    for k in range(rows.shape[1]):
        total = (total + rows[:, k, None] * weights[None, :, k]).astype(np.float32).astype(np.float64)
    return total.astype(np.float32)


def through_four_bits(h):
    blocks = h.reshape(len(h), h.shape[1] // 16, 16)
    scale = np.abs(blocks).max(axis=2) / np.float32(6)
    scale = np.where(scale < np.float32(1e-8), np.float32(1e-8), scale)
    stored = Arrays.encode(E4M3, scale)
    steps = Arrays.decode(E4M3, stored)[..., None]
    codes = Arrays.encode(E2M1, blocks / np.where(stored[..., None] == 0, np.float32(1), steps))
    return (Arrays.decode(E2M1, codes) * steps).reshape(h.shape)


def results_of(case, activations, sums):
    """y of each pair that has an expert, by `sums` of products."""
    layer = case.layer
    y = np.zeros((case.pairs, layer.hidden), layer.gate.dtype if sums is ordered_sums else np.float64)
    for expert, pairs in enumerate(case.bins()[1:]):
        if len(pairs):
            first = sums(case.states.numbers[pairs // case.top_k], layer.first.numbers[expert])
            h = activations(first[:, :layer.inner] * layer.gate[expert], first[:, layer.inner:] * layer.up[expert])
            y[pairs] = sums(h, layer.second.numbers[expert]) * layer.down[expert]
    return y.reshape(case.tokens, case.top_k, layer.hidden)


def has_expert(case):
    return (case.ids >= case.first) & (case.ids.astype(np.int64) < case.first + case.layer.experts)


def modelled(case):
    with np.errstate(all='ignore'):
        y = results_of(case, lambda gate, up: through_four_bits(gate * sigmoid_f32(gate) * up), ordered_sums).astype(np.float64)
        total = decode(case.seed, 'bf16') if case.accumulate else np.zeros(case.seed.shape)
        factor = float(np.float32(case.factor))
        for slot in range(case.top_k):
            weight = np.broadcast_to(case.weights[:, slot, None].astype(np.float64), total.shape)
            weighted = (y[:, slot] * weight).astype(np.float32).astype(np.float64)
            more = fma(y[:, slot], weight, total) if factor == 1 else fma(weighted, np.full(total.shape, factor), total)
            total = np.where(has_expert(case)[:, slot, None], more, total)
    return encode(total, 'bf16')


# --- in float64 ------------------------------------------------------------------------------------------

def exact(case):
    silu = lambda gate: gate / (1 + np.exp(-gate))
    y = results_of(case, lambda gate, up: silu(gate) * up, lambda rows, weights: rows.astype(np.float64) @ weights.astype(np.float64).T)
    total = decode(case.seed, 'bf16') if case.accumulate else np.zeros(case.seed.shape)
    return total, total + (y * np.where(has_expert(case), case.weights, 0)[..., None]).sum(axis=1) * case.factor


def check_exact(case, out):
    """What was added, against float64."""
    before, after = exact(case)
    size = np.linalg.norm(after - before)
    error = np.linalg.norm(decode(out, 'bf16') - after)
    assert error <= FOUR_BITS * size + 2.0 ** -8 * np.linalg.norm(after), (error, size)


def check(rank, case, numbers=True, **changes):
    plan, out = case.run(rank, **changes)
    for name, got, expected in zip(PLAN, plan, plan_of(case)):
        np.testing.assert_array_equal(got, expected, name)
    assert same_bits(out, modelled(case), 'bf16')
    if numbers:
        check_exact(case, out)
    return out


# --- tests -----------------------------------------------------------------------------------------------

def test_sizes(rank):
    """Tokens, columns, N, experts, choices, block_m."""
    for index, (tokens, hidden, columns, experts, top_k, block_m) in enumerate((
            (8, 256, 256, 4, 2, 8), (8, 512, 256, 4, 2, 16), (8, 1024, 256, 4, 2, 8), (17, 256, 512, 8, 3, 24), (1, 256, 256, 1, 1, 8),
            (100, 256, 768, 3, 2, 8), (40, 256, 256, 32, 32, 16), (2, 256, 256, 1024, 32, 8), (3, 7168, 256, 5, 2, 8))):
        rng = np.random.default_rng([21, index])
        layer = Layer(rng, experts, hidden, columns)
        check(rank, Case(rng, layer, tokens, top_k, block_m=block_m, factor=(1.0, 2.5)[index % 2], accumulate=index % 3 != 0))


def test_options(rank):
    rng = np.random.default_rng(22)
    layer = Layer(rng, 6, 256, 512)
    for block_m, factor, accumulate in itertools.product((8, 16, 24, 65536), (1.0, 2.5, -1.0, 0.1, 0.0), (False, True)):
        check(rank, Case(rng, layer, 9, 3, block_m=block_m, factor=factor, accumulate=accumulate))


def test_choices(rank):
    """Nobody, one expert for all, ids that are none, an expert more than once, whole blocks and one more."""
    rng = np.random.default_rng(23)
    layer = Layer(rng, 5, 256, 256)
    for tokens, ids in ((6, -1), (6, 3), (8, 0), (9, 4), (33, 2), (4, [[5, -2], [2147483647, 1], [-2147483648, 0], [1, 1]]), (3, [[2, 2], [0, 4], [4, 0]])):
        ids = np.full((tokens, 2), ids) if np.isscalar(ids) else ids
        for accumulate in (False, True):
            case = Case(rng, layer, tokens, ids=ids, accumulate=accumulate)
            out = check(rank, case)
            if not has_expert(case).any():
                np.testing.assert_array_equal(out, case.seed if accumulate else 0)


def test_parts(rank):
    """Some experts of a layer: fewer than a token chooses, the first, the last, with ids as large as there are, and all that are at hand."""
    rng = np.random.default_rng(34)
    most = 2 ** 31 - 1
    for experts, first, all_experts, top_k in ((4, 8, 16, 8), (1, 0, 40, 32), (3, 37, 40, 2), (2, most - 2, most, 3), (5, 0, 5, 5), (2, 0, most, 2)):
        layer = Layer(rng, experts, 256, 256)
        near = rng.choice([first - 1, first, first + experts - 1, first + experts, 0, -1, -2 ** 31, most], (9, top_k)).clip(-2 ** 31, most)
        for ids in (near, rng.integers(max(first - 9, -1), min(first + 9, all_experts), (12, top_k))):
            check(rank, Case(rng, layer, len(ids), top_k, ids, factor=2.5, first=first, all_experts=all_experts))


def part_of(layer, first, experts):
    part, chosen = copy.copy(layer), slice(first, first + experts)
    part.experts, part.gate, part.up, part.down = experts, layer.gate[chosen], layer.up[chosen], layer.down[chosen]
    for name in ('first', 'second'):
        rows = copy.copy(getattr(layer, name))
        rows.codes, rows.scales, rows.numbers = rows.codes[chosen], rows.scales[chosen], rows.numbers[chosen]
        setattr(part, name, rows)
    return part


def test_halves(rank):
    """Each adds to what the other has left; together they are the layer, but for the rounding in between."""
    rng = np.random.default_rng(35)
    whole = Case(rng, Layer(rng, 8, 256, 256), 20, 6, ids=rng.integers(0, 8, (20, 6)))
    out = whole.seed
    for first in (0, 4):
        half = copy.copy(whole)
        half.layer, half.first, half.all_experts, half.seed = part_of(whole.layer, first, 4), first, 8, out
        half.blocks = 32
        out = check(rank, half)
    check_exact(whole, out)


def test_no_tokens(rank):
    rng = np.random.default_rng(24)
    for accumulate in (False, True):
        check(rank, Case(rng, Layer(rng, 3, 256, 256), 0, accumulate=accumulate, blocks=1))


def test_accumulate(rank):
    """On a zero output as without one, to the bit."""
    rng = np.random.default_rng(25)
    layer = Layer(rng, 4, 256, 256)
    for factor in (1.0, 2.5):
        case = Case(rng, layer, 12, 4, factor=factor)
        case.seed[:] = 0
        _, added = case.run(rank)
        case.seed[:] = 0x7fc1  # is not read
        _, alone = case.run(rank, accumulate=False)
        np.testing.assert_array_equal(added, alone)


def test_scales(rank):
    """Every scale of E4M3 that is a number, in states and weights; activations of no size, and beyond the largest."""
    rng = np.random.default_rng(26)
    everything = np.arange(0x7f)
    check(rank, Case(rng, Layer(rng, 3, 256, 256, everything), 24, 2, state_scales=everything), numbers=False)
    for scale in (0, 1, 0x7e):
        check(rank, Case(rng, Layer(rng, 2, 256, 256), 5, 2, state_scales=[scale]), numbers=False)
    layer = Layer(rng, 2, 256, 256)
    for factor in (0.0, 1e-30, 1e-4, 2.0 ** -9, 3e3, 1e30):  # from blocks without a scale to blocks that saturate
        layer.up = np.full(2, factor, np.float32)
        check(rank, Case(rng, layer, 5, 2), numbers=False)


def test_ties(rank):
    """Activations on the middles between codes, and of blocks whose scale is one between those of E4M3. Gates are so large that sigmoid is 1; an up is
    the sum of a code and half a code, the first of a block is 6."""
    rng = np.random.default_rng(27)
    layer = Layer(rng, 2, 256, 256)
    states, first = np.zeros((4, 256), np.uint8), np.zeros((2, 256, 256), np.uint8)
    scales = np.full((2, 256, 16), 0x38, np.uint8)  # 1
    scales[..., 1] = 0x30  # 1/2
    states[:, [0, 1, 16]] = 2  # 1
    first[:, :128, 0] = 2  # of the gates
    first[:, 128:, 1] = rng.choice([0, 1, 2, 3, 4, 9, 10, 11, 12], (2, 128))
    first[:, 128:, 16] = rng.integers(0, 16, (2, 128))
    first[:, 128::16, 1], first[:, 128::16, 16] = 7, 0
    layer.first.set(first, scales)
    layer.gate = np.full(2, 128, np.float32)
    for numerator in range(1, 33):
        layer.up = np.full(2, numerator / 16 / 128, np.float32)
        case = Case(rng, layer, 4)
        case.states.set(states, np.full((4, 16), 0x38, np.uint8))
        check(rank, case)


def test_no_numbers(rank):
    """NaN and infinities go where arithmetic brings them, and no further: other tokens have their bits."""
    rng = np.random.default_rng(28)
    layer = Layer(rng, 4, 256, 256)
    case = Case(rng, layer, 10, 2, ids=rng.integers(0, 4, (10, 2)))
    usual = check(rank, case)
    case.states.scales[3, 5] = 0x7f
    case.states.numbers[3, 80:96] = np.nan
    out = check(rank, case, numbers=False)
    assert np.isnan(decode(out, 'bf16')[3]).all()
    np.testing.assert_array_equal(np.delete(out, 3, axis=0), np.delete(usual, 3, axis=0))
    for value in (np.nan, np.inf, -np.inf):
        case = Case(rng, layer, 10, 3, factor=2.5)
        case.weights[2, 1] = value
        case.seed[:3, 7] = encode(value, 'bf16')
        check(rank, case, numbers=False)
        layer.up = np.array([1, value, 1, 1], np.float32)
        check(rank, Case(rng, layer, 10, 3), numbers=False)
        layer.up = np.ones(4, np.float32)


def test_same_bits(rank):
    """Of a token, whoever stands beside it and however the plan is padded; call after call."""
    rng = np.random.default_rng(29)
    layer = Layer(rng, 4, 512, 256)
    many = Case(rng, layer, 50, 3)
    _, together = many.run(rank)
    for _ in range(2):
        np.testing.assert_array_equal(many.run(rank, block_m=16, sorted_token_ids=np.zeros(16 * many.blocks, np.int32))[1], together)
    for token in (0, 20, 49):
        alone = Case(rng, layer, 1, 3, ids=many.ids[token])
        alone.states.codes, alone.states.scales = many.states.codes[token:token + 1], many.states.scales[token:token + 1]
        alone.weights, alone.seed = many.weights[token:token + 1], many.seed[token:token + 1]
        np.testing.assert_array_equal(alone.run(rank)[1][0], together[token])


def test_rows_apart(rank):
    rng = np.random.default_rng(30)
    case = Case(rng, Layer(rng, 3, 256, 256), 7)
    wide = np.full((7, 160), 0x77, np.uint8)
    wide[:, :128] = case.states.codes
    check(rank, case, hidden_states=wide[:, :128])


def test_prepared(rank):
    """They may hold anything: a result that depends on what they hold is not this backend's."""
    rng = np.random.default_rng(31)
    case = Case(rng, Layer(rng, 2, 512, 512), 7)
    shapes = dict(w1_data_prepared=(16, 128, 128), w1_scale_prepared=(16, 16, 128), w1_scale_prepared_interleaved=(16, 16, 128),
                  w1_gate_up_data_prepared=(8, 256, 128), w1_gate_up_scale_prepared=(8, 32, 128), w2_data_prepared=(16, 128, 64),
                  w2_scale_prepared=(16, 8, 128), w2_data_prepared_k256=(8, 128, 128), w2_scale_prepared_k256=(8, 16, 128),
                  w1_fragments_prepared=(64, 36, 128), w2_fragments_prepared=(32, 36, 128))
    prepared = {name: rng.integers(0, 256, shape).astype(np.uint8) for name, shape in shapes.items()}
    check(rank, case, **prepared)
    for name in shapes:
        if 'gate_up' not in name:
            check(rank, case, **{name: prepared[name]})


def fragments_of(rank, layer):
    """Of the layer's weights, as moe.prepare_nvfp4 makes them."""
    made = {}
    for name, rows in (('w1_fragments', layer.first), ('w2_fragments', layer.second)):
        experts, height, row_bytes = rows.codes.shape
        made[name + '_prepared'] = np.zeros((experts * (height // 64) * (row_bytes // 64), 36, 128), np.uint8)
        rank.op('moe.prepare_nvfp4', source=rows.codes, scales=rows.scales, prepared=made[name + '_prepared'], layout=name)
    return made


def test_fragments(rank):
    """The same bits with them as without: of both weights or one, of all experts or some."""
    rng = np.random.default_rng(36)
    for experts, hidden, columns, first, all_experts in ((3, 256, 256, 0, 0), (2, 512, 768, 5, 9)):
        layer = Layer(rng, experts, hidden, columns, np.arange(256)[np.arange(256) & 0x7f != 0x7f])
        case = Case(rng, layer, 9, 2, first=first, all_experts=all_experts)
        plain, made = check(rank, case, numbers=False), fragments_of(rank, layer)
        np.testing.assert_array_equal(check(rank, case, numbers=False, **made), plain)
        for name, panels in made.items():
            np.testing.assert_array_equal(check(rank, case, numbers=False, **{name: panels}), plain)


# --- errors ----------------------------------------------------------------------------------------------

def refuser(rank, case):
    def refuse(status, text, **changes):
        operands = {**case.operands(), **changes}
        destinations = [operands[name] for name in PLAN] + [operands['out'].array]
        before = [array.copy() for array in destinations]
        expect_error('MOERT_ERROR_' + status, 'moe.nvfp4_routed: ' + text, rank.op, 'moe.nvfp4_routed', **operands)
        for array, old in zip(destinations, before):
            np.testing.assert_array_equal(array, old)
    return refuse


def small_case(**options):
    rng = np.random.default_rng(32)
    return Case(rng, Layer(rng, 4, 256, 512), 5, **options)


def test_shape_errors(rank):
    case = small_case()
    byte = lambda *shape: np.zeros(shape, np.uint8)
    refuse = refuser(rank, case)
    wrong = lambda name, dimension, shape, text, dtype=np.uint8: refuse(
        'INVALID_SHAPE', "operand '%s' dimension %d is %d, must %s" % (name, dimension, shape[dimension], text), **{name: np.zeros(shape, dtype)})
    wrong('hidden_states', 1, (5, 0), 'be at least 128')  # C1
    wrong('hidden_states', 1, (5, 192), 'be a multiple of 128')
    wrong('hidden_states_scale', 0, (4, 16), "equal dimension 0 of 'hidden_states' = 5")  # C2
    wrong('hidden_states_scale', 1, (5, 8), "equal an eighth of dimension 1 of 'hidden_states' = 16")
    wrong('gemm1_weights', 1, (4, 384, 128), 'be a multiple of 256')  # C3
    wrong('gemm1_weights', 1, (4, 0, 128), 'be at least 256')
    wrong('gemm1_weights', 0, (0, 512, 128), 'be at least 1')
    wrong('gemm1_weights', 0, (1025, 256, 128), 'be at most 1024')
    wrong('gemm1_weights', 2, (4, 512, 64), "equal dimension 1 of 'hidden_states' = 128")
    for dimension, shape, text in ((0, (3, 512, 16), "dimension 0 of 'gemm1_weights' = 4"), (1, (4, 256, 16), "dimension 1 of 'gemm1_weights' = 512"),
                                   (2, (4, 512, 8), "an eighth of dimension 1 of 'hidden_states' = 16")):
        wrong('gemm1_weights_scale', dimension, shape, 'equal ' + text)
    for dimension, shape, text in ((0, (5, 256, 128), "dimension 0 of 'gemm1_weights' = 4"), (1, (4, 512, 128), "twice dimension 1 of 'hidden_states' = 256"),
                                   (2, (4, 256, 256), "a quarter of dimension 1 of 'gemm1_weights' = 128")):  # C4
        wrong('gemm2_weights', dimension, shape, 'equal ' + text)
    for dimension, shape, text in ((0, (5, 256, 16), "dimension 0 of 'gemm1_weights' = 4"), (1, (4, 512, 16), "twice dimension 1 of 'hidden_states' = 256"),
                                   (2, (4, 256, 32), "a thirty-second of dimension 1 of 'gemm1_weights' = 16")):
        wrong('gemm2_weights_scale', dimension, shape, 'equal ' + text)
    for name in ('output1_scale_gate_scalar', 'output1_scale_scalar', 'output2_scale_scalar'):  # C5
        wrong(name, 0, (3,), "equal dimension 0 of 'gemm1_weights' = 4", np.float32)
    for name, dtype in (('topk_ids', np.int32), ('topk_weights', np.float32)):  # C6
        wrong(name, 0, (6, 2), "equal dimension 0 of 'hidden_states' = 5", dtype)
        wrong(name, 1, (5, 1), 'equal top_k = 2', dtype)
    refuse('INVALID_ARGUMENT', "parameter 'top_k' is 5, must be at most 4, dimension 0 of 'gemm1_weights'", top_k=5)
    refuse('INVALID_ARGUMENT', "parameter 'top_k' is 6, must be at most 5, 'num_experts'", top_k=6, num_experts=5)
    for shape, text in (((6, 256), "0 is 6, must equal dimension 0 of 'hidden_states' = 5"), ((5, 128), "1 is 128, must equal twice dimension 1 of 'hidden_states' = 256")):
        refuse('INVALID_SHAPE', "operand 'out' dimension " + text, out=typed(np.zeros(shape, np.uint16), 'bf16'))  # C7
    refuse('INVALID_DTYPE', "operand 'out': element type f32, must be bf16", out=typed(np.zeros((5, 256), np.float32), 'f32'))
    refuse('INVALID_DTYPE', "operand 'topk_ids': element type ui32, must be i32", topk_ids=np.zeros((5, 2), np.uint32))
    refuse('INVALID_DTYPE', "operand 'hidden_states_scale': element type f8E8M0FNU, must be i8, ui8 or f8E4M3FN",
           hidden_states_scale=typed(byte(5, 16), 'f8E8M0FNU'))


def test_part_errors(rank):
    refuse = refuser(rank, small_case())
    refuse('INVALID_ARGUMENT', "parameter 'first_expert' is 4, must be 0 unless 'num_experts' says how many experts there are", first_expert=4)  # C14
    for first, all_experts in ((0, 3), (5, 8), (2 ** 31 - 1, 2 ** 31 - 1), (2 ** 31 - 4, 2 ** 31 - 1)):
        refuse('INVALID_ARGUMENT', "parameter 'num_experts' is %d, must be at least %d, 'first_expert' plus dimension 0 of 'gemm1_weights'"
               % (all_experts, first + 4), first_expert=first, num_experts=all_experts)
    for name in ('first_expert', 'num_experts'):
        for value in (-1, 2 ** 31):
            refuse('INVALID_ARGUMENT', "parameter '%s' is %d, must be in [0, 2147483647]" % (name, value), **{name: value})


def test_plan_errors(rank):
    case = small_case(blocks=7)
    refuse = refuser(rank, case)
    integers = lambda count: np.full(count, POISON, np.int32)
    refuse('INVALID_ARGUMENT', "parameter 'block_m' is 12, must be a multiple of 8", block_m=12)  # C8
    refuse('INVALID_ARGUMENT', "parameter 'block_m' is 0, must be in [8, 65536]", block_m=0)
    refuse('INVALID_SHAPE', "operand 'expert_ids' dimension 0 is 0, must be at least 1", expert_ids=integers(0))  # C9
    refuse('INVALID_SHAPE', "operand 'sorted_token_ids' dimension 0 is 55, must be at least block_m times dimension 0 of 'expert_ids' = 56",
           sorted_token_ids=integers(55))
    refuse('INVALID_SHAPE', "operand 'num_tokens_post_padded' dimension 0 is 2, must equal the number of its elements = 1",
           num_tokens_post_padded=integers(2))  # C10
    refuse('INVALID_SHAPE', "operand 'cumsum_buffer' dimension 0 is 5, must be at least two more than dimension 0 of 'gemm1_weights' = 6",
           cumsum_buffer=integers(5))
    refuse('INVALID_ARGUMENT', "parameter 'routed_scaling_factor' is inf, must be finite", routed_scaling_factor=float('inf'))
    refuse('INVALID_ARGUMENT', "parameter 'routed_scaling_factor' is 1e+40, beyond the largest f32, 3.40282e+38", routed_scaling_factor=1e40)


def test_plans_without_room(rank):
    ids = [[0, 1], [2, 3], [-1, 0], [1, 1], [3, 3]]
    for blocks in (1, 4):
        case = small_case(ids=ids, blocks=blocks)
        refuser(rank, case)('CAPACITY', "operand 'expert_ids' has room for %d blocks, must have room for the 5 of the plan, and 'sorted_token_ids' for 8 "
                            'entries each' % blocks)
    check(rank, small_case(ids=ids, blocks=5))


def test_prepared_errors(rank):
    case = small_case()
    refuse = refuser(rank, case)
    good = dict(w1_scale_prepared=(16, 16, 128), w2_scale_prepared=(16, 8, 128), w1_data_prepared=(16, 128, 128), w1_gate_up_data_prepared=(8, 256, 128),
                w1_gate_up_scale_prepared=(8, 32, 128), w1_scale_prepared_interleaved=(16, 16, 128), w2_data_prepared=(16, 128, 64),
                w2_data_prepared_k256=(8, 128, 128), w2_scale_prepared_k256=(8, 16, 128), w1_fragments_prepared=(64, 36, 128),
                w2_fragments_prepared=(32, 36, 128))
    zeros = {name: np.zeros(shape, np.uint8) for name, shape in good.items()}
    pair = ('w1_gate_up_data_prepared', 'w1_gate_up_scale_prepared')
    for name, shape in good.items():  # C11, C12
        for dimension, what in enumerate(('number of panels', 'height of a panel', 'width of a panel')):
            wrong = tuple(size * 2 if d == dimension else size for d, size in enumerate(shape))
            others = {other: zeros[other] for other in pair if name in pair}
            refuse('INVALID_SHAPE', "operand '%s' dimension %d is %d, must equal the %s = %d" % (name, dimension, wrong[dimension], what, shape[dimension]),
                   **{**others, name: np.zeros(wrong, np.uint8)})
    for one, other in (pair, pair[::-1]):  # C13
        refuse('NULL_POINTER', "operand '%s' is NULL, must be set with '%s'" % (one, other), **{other: zeros[other]})
    rng = np.random.default_rng(33)
    narrow = refuser(rank, Case(rng, Layer(rng, 2, 256, 256), 3))
    for name in ('w2_data_prepared_k256', 'w2_scale_prepared_k256'):
        narrow('INVALID_SHAPE', "operand 'gemm1_weights' dimension 1 is 256, must be with '%s' a multiple of 512" % name, **{name: zeros[name]})


def test_overlap(rank):
    """The output in the memory of each input."""
    case = small_case()
    for name in ('hidden_states', 'hidden_states_scale', *WEIGHTS, 'output1_scale_gate_scalar', 'output1_scale_scalar', 'output2_scale_scalar',
                 'topk_ids', 'topk_weights', *PLAN):
        given = case.operands()[name]
        array, tag = given if isinstance(given, tuple) else (given, None)
        memory = np.zeros(array.nbytes + 5 * 512, np.uint8)
        inside = memory[:array.nbytes].view(array.dtype).reshape(array.shape)
        inside[...] = array
        out = memory[array.nbytes - 2 & ~1:][:5 * 512].view(np.uint16).reshape(5, 256)
        first, second = (name, 'out') if name in PLAN else ('out', name)
        refuser(rank, case)('OVERLAP', "operand '%s' overlaps operand '%s'; give it memory of its own" % (first, second),
                            **{name: typed(inside, tag) if tag else inside, 'out': typed(out, 'bf16')})


def test_no_memory(rank):
    context = rank.new_context(arena_limit=4096)
    operands = small_case().operands()
    before = operands['out'].array.copy()
    try:
        call(context, 'moe.nvfp4_routed', **operands)
    except MoertError as error:
        assert error.name == 'MOERT_ERROR_OUT_OF_MEMORY', error
    else:
        raise AssertionError('no error')
    np.testing.assert_array_equal(operands['out'].array, before)
    for name in PLAN:
        assert (operands[name] == POISON).all()


def main(rank):
    for test in (test_sizes, test_options, test_choices, test_parts, test_halves, test_no_tokens, test_accumulate, test_scales, test_ties, test_no_numbers, test_same_bits,
                 test_rows_apart, test_prepared, test_fragments, test_shape_errors, test_part_errors, test_plan_errors, test_plans_without_room, test_prepared_errors, test_overlap,
                 test_no_memory):
        test(rank)
        print('ok', test.__name__, flush=True)


if __name__ == '__main__':
    run_ranks(1, main)
