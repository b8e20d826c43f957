#===- ep.py - ep.init, ep.dispatch and ep.combine.skip_a2a against NumPy ---------------------------===#
#
# From the contract of the ops (ops/ep/ep.td), in the plainest form: lists of rows, and sums in slot order with one rounding per step. Bits are
# compared. Outputs are poisoned before each call, and what must have been kept is checked. The ranks are threads; what one of them gets depends
# on no other.
#
#===----------------------------------------------------------------------------------------------===#
import itertools
from typing import NamedTuple

import numpy as np

from all_to_all_model import fused_multiply_add, to_f32
from moert import decode, encode, run_ranks, run_tests, typed

POISON = 0xA5
BITS = {'bf16': np.uint16, 'f16': np.float16, 'f32': np.float32}
NO_COUNT = 2**64 - 1


class Layer(NamedTuple):
    ranks: int = 2
    hidden: int = 24
    top_k: int = 3
    n_experts: int = 4  # of one rank
    max_tokens: int = 16
    shared: bool = False
    dtype: str = 'bf16'  # of what is combined
    weights: str = 'f32'
    spare: int = 2  # rows that the destination has too many

    def geometry(self):
        return dict(hidden_size=self.hidden, top_k=self.top_k, n_experts=self.n_experts, max_token_per_rank=self.max_tokens)

    def parameters(self):
        return dict(self.geometry(), fused_shared_expert=self.shared, skip_a2a=1, allreduce_world_size=self.ranks)

    def words(self):
        return 10 * self.n_experts + 320


def poisoned(shape, dtype):
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = POISON
    return array


def is_poisoned(array):
    return bool(np.all(np.ascontiguousarray(array).reshape(-1).view(np.uint8) == POISON))


# --- the model ----------------------------------------------------------------------------------------

def shared_tokens(layer, rank, tokens):
    """The tokens of a rank's shared expert: as even a split as there is, the longer parts first."""
    return np.array_split(np.arange(tokens), layer.ranks)[rank] if layer.shared else np.arange(0)


def routed_pairs(layer, rank, ids):
    """Per expert of the rank, the pairs (token, slot) that chose it."""
    return [np.argwhere(ids == rank * layer.n_experts + expert) for expert in range(layer.n_experts)]


def combined(layer, rank, ids, weights, row_of, shared_rows):
    """The rank's part of the result: row_of(token, slot) and shared_rows[i] in the element type, weights likewise."""
    tokens = len(ids)
    mine = {int(t): i for i, t in enumerate(shared_tokens(layer, rank, tokens))}
    out = np.zeros((tokens, layer.hidden), encode(0, layer.dtype).dtype)
    for token in range(tokens):
        total = np.zeros(layer.hidden, np.float32)
        for k in range(layer.top_k):
            if 0 <= int(ids[token, k]) - rank * layer.n_experts < layer.n_experts:
                weight = to_f32(weights[token, k:k + 1], layer.weights)
                total = fused_multiply_add(weight, to_f32(row_of(token, k), layer.dtype), total)
        value = encode(total, layer.dtype)
        if token in mine:
            with np.errstate(invalid='ignore', over='ignore'):
                value = encode(to_f32(value, layer.dtype) + to_f32(shared_rows[mine[token]], layer.dtype), layer.dtype)
        out[token] = value
    return out


def same_bits(got, want, dtype):
    """Equal bits; one NaN is as good as another."""
    words = np.uint32 if dtype == 'f32' else np.uint16
    both_nan = np.isnan(decode(got, dtype)) & np.isnan(decode(want, dtype))
    return bool(np.all((got.view(words) == want.view(words)) | both_nan))


# --- a rank -------------------------------------------------------------------------------------------

class State:
    """The counters and tables of a layer on a rank, as ep.init leaves them and a caller spreads them."""

    def __init__(self, rank, layer):
        self.rank, self.layer = rank, layer
        self.counters, others = (poisoned(layer.words(), np.int32) for _ in range(2))
        pointers, number = poisoned((2, 3), np.int64), poisoned(1, np.int32)
        rank.op('ep.init', atomic_counters_0=self.counters, atomic_counters_1=others, dev_ptrs=pointers, my_rank=number, combine_dtype=layer.dtype,
                **layer.geometry())
        assert number[0] == rank.rank and not self.counters.any() and not others.any()
        assert pointers[1, 0] == 0 and len(set(pointers.flat)) == 6
        self.tables = np.zeros((2, 3, rank.size), np.int64)
        self.tables[:, :, rank.rank] = pointers  # of the other ranks there is no need in this mode
        for address in pointers[:, 2]:
            counts = (np.ctypeslib.ctypes.c_uint64 * layer.n_experts).from_address(int(address))
            assert all(count == NO_COUNT for count in counts)

    def buffers(self, group):
        return dict(zip(('send_ptrs', 'recv_ptrs', 'recv_count_ptrs'), self.tables[group]))

    def dispatch(self, tokens, ids):
        """Calls the op, compares all that it gives, and returns rows, row of each (token, slot), and src_info."""
        layer, me = self.layer, self.rank.rank
        pairs = routed_pairs(layer, me, ids)
        mine = shared_tokens(layer, me, len(ids))
        groups = ([mine[:, None]] if layer.shared else []) + pairs
        total = sum(map(len, groups))
        rows, sources = poisoned((total + layer.spare, layer.hidden), np.uint16), poisoned((total + layer.spare, 2), np.int32)
        offsets, experts = poisoned(len(groups) + 1, np.uint32), poisoned(len(groups), np.int32)
        self.rank.op('ep.dispatch', output_tokens=typed(rows, 'bf16'), row_offsets=offsets, expert_ids=experts, src_info=sources,
                     atomic_counters=self.counters, input_tokens=typed(tokens, 'bf16'), topk_ids=ids, **self.buffers(0), **layer.parameters())
        assert offsets.tolist() == [0] + list(itertools.accumulate(map(len, groups)))
        assert experts.tolist() == list(range(len(groups)))
        everyone = np.concatenate([g[:, 0] for g in groups]).astype(int)
        assert np.array_equal(rows[:total], tokens[everyone])
        routed = np.concatenate(pairs) if pairs else np.empty((0, 2))
        assert np.array_equal(sources[len(mine):total], routed)
        assert is_poisoned(rows[total:]) and is_poisoned(sources[total:]) and is_poisoned(sources[:len(mine)])
        return rows, {(int(t), int(k)): len(mine) + i for i, (t, k) in enumerate(routed)}, sources

    def combine(self, results, sources, weights, ids):
        layer = self.layer
        out = poisoned((len(ids), layer.hidden), BITS[layer.dtype])
        self.rank.op('ep.combine.skip_a2a', output_tokens=typed(out, layer.dtype), atomic_counters=self.counters,
                     input_tokens=typed(results, layer.dtype), src_info=sources, router_weights=typed(weights, layer.weights), topk_ids=ids,
                     **self.buffers(1), **layer.parameters())
        assert not self.counters.any()
        return out


# --- inputs -------------------------------------------------------------------------------------------

def random_ids(rng, layer, tokens, kind):
    experts, shape = layer.ranks * layer.n_experts, (tokens, layer.top_k)
    if kind == 'distinct' and layer.top_k <= experts:
        return np.array([rng.permutation(experts)[:layer.top_k] for _ in range(tokens)], np.int32).reshape(shape)
    if kind == 'one expert':
        return np.full(shape, experts - 1, np.int32)
    if kind == 'one rank':
        return rng.integers(0, layer.n_experts, shape).astype(np.int32)
    if kind == 'invalid':
        return rng.choice(np.array([-1, experts, -2**31, 2**31 - 1, 65536, -layer.n_experts], np.int32), shape)
    return rng.integers(-2, experts + 2, shape).astype(np.int32)  # duplicates, negative ones, ones behind the last


def random_values(rng, shape, dtype, special):
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    if special:
        odd = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-40, -6e-8, 3e38, 65504.0, -65519.0])
        values = np.where(rng.random(shape) < 0.3, rng.choice(odd, shape), values)
    return encode(values, dtype)


def run_layer(layer, rounds, seed):
    """One layer, several times: rounds of (tokens, kind of ids, special values)."""
    rng = np.random.default_rng(seed)
    steps = []
    for tokens, kind, special in rounds:
        steps.append((rng.integers(0, 2**16, (tokens, layer.hidden), np.uint16), random_ids(rng, layer, tokens, kind),
                      random_values(rng, (tokens, layer.top_k), layer.weights, special), special, int(rng.integers(2**31))))

    def rank_main(rank):
        state = State(rank, layer)
        for tokens, ids, weights, special, salt in steps:
            rows, row_of, sources = state.dispatch(tokens, ids)
            results = random_values(np.random.default_rng((salt, rank.rank)), rows.shape, layer.dtype, special)  # what any experts may give
            got = state.combine(results, sources, weights, ids)
            want = combined(layer, rank.rank, ids, weights, lambda t, k: results[row_of[t, k]], results)
            assert same_bits(got, want, layer.dtype)

    run_ranks(layer.ranks, rank_main)


# --- tests --------------------------------------------------------------------------------------------

KINDS = ['random', 'distinct', 'one expert', 'one rank', 'invalid']


def test_ranks_and_tokens():
    for ranks, shared in itertools.product((1, 2, 3, 4, 8), (False, True)):
        layer = Layer(ranks=ranks, shared=shared)
        counts = [0, 1, 2, 3, 5, 7, 8, 13, 16, 0, 11]  # of 8 ranks mostly not a multiple
        run_layer(layer, [(tokens, KINDS[i % 5], i % 3 == 2) for i, tokens in enumerate(counts)], seed=ranks)


def test_element_types():
    for (dtype, weights), shared in itertools.product(itertools.product(BITS, BITS), (False, True)):
        run_layer(Layer(dtype=dtype, weights=weights, shared=shared), [(13, 'random', False), (16, 'random', True)], seed=7)


def test_shapes():
    for hidden, top_k, experts in ((1, 1, 1), (7, 32, 2), (257, 2, 5), (512, 8, 48)):
        run_layer(Layer(hidden=hidden, top_k=top_k, n_experts=experts), [(9, kind, False) for kind in KINDS], seed=hidden)
    run_layer(Layer(ranks=64, n_experts=2, shared=True), [(16, 'random', False)], seed=64)


def test_several_layers():
    """Each with counters of its own, one dispatch after the other before the combines come in another order."""
    layers = [Layer(shared=i % 2 == 1, n_experts=2 + i, dtype=list(BITS)[i % 3]) for i in range(4)]

    def rank_main(rank):
        rng = np.random.default_rng(3)
        states = [State(rank, layer) for layer in layers]
        for _ in range(3):
            waiting = []
            for state in states:
                ids = random_ids(rng, state.layer, 11, 'random')
                waiting.append((state, ids) + state.dispatch(rng.integers(0, 2**16, (11, state.layer.hidden), np.uint16), ids))
            for state, ids, rows, row_of, sources in reversed(waiting):
                weights = random_values(rng, ids.shape, state.layer.weights, False)
                results = random_values(np.random.default_rng(rank.rank), rows.shape, state.layer.dtype, False)
                got = state.combine(results, sources, weights, ids)
                want = combined(state.layer, rank.rank, ids, weights, lambda t, k: results[row_of[t, k]], results)
                assert same_bits(got, want, state.layer.dtype)

    run_ranks(2, rank_main)


def test_identity():
    """Experts that change nothing: what all ranks' parts add up to is each token times its weights, and once more for the shared expert."""
    layer = Layer(ranks=4, hidden=64, top_k=8, n_experts=8, max_tokens=33, shared=True)
    rng = np.random.default_rng(1)
    tokens = encode(rng.standard_normal((33, layer.hidden)), 'bf16')
    ids = random_ids(rng, layer, 33, 'distinct')
    weights = rng.random((33, layer.top_k)).astype(np.float32)

    def rank_main(rank):
        state = State(rank, layer)
        rows, _, sources = state.dispatch(tokens, ids)
        return decode(state.combine(rows, sources, weights, ids), 'bf16')

    total = sum(run_ranks(layer.ranks, rank_main))
    want = decode(tokens, 'bf16') * (1 + weights.sum(axis=1, keepdims=True))
    assert np.allclose(total, want, rtol=5e-2, atol=5e-3)
    assert np.linalg.norm(total - want) / np.linalg.norm(want) < 4e-3


if __name__ == '__main__':
    run_tests(globals())
