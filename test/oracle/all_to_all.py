#===- all_to_all.py - moe.dispatch, sanitize_expert_ids, combine against all_to_all_model.py ------===#
#
# Bits are compared, those of sums too. Every round poisons its outputs and checks what must have been kept.
#
#===----------------------------------------------------------------------------------------------===#
import ctypes
import itertools
import threading
from typing import NamedTuple

import numpy as np

import formats_model as formats
from all_to_all_model import Routing, combine_grouped, combine_rank_major, from_f32, quantize_sums, to_f32
from moert import MoertError, Tensor, check, decode, encode, expect_error, library, make_tensor, run_ranks, run_tests, typed
from quantize import SCALE_TYPES, VALUE_TYPES, Guarded

FIELDS = ['FLAG_VAL', 'LOCAL_TOKEN_COUNTER', 'SEND_COUNTERS', 'RECV_COUNTERS', 'DISPATCH_COMPLETION_FLAGS', 'COMBINE_COMPLETION_FLAGS',
          'TOPK_TARGET_RANKS', 'TOPK_SEND_INDICES', 'EPLB_GATHERED_STATS', 'PAYLOAD_DATA', 'COMBINE_DATA', 'ANNOUNCEMENTS', 'COUNT_FLAGS',
          'RECV_TOPK_ROWS', 'RECV_TOPK_WEIGHTS', 'STATE']
POISON = 0xA5
BITS = {'bf16': np.uint16, 'f16': np.float16, 'f32': np.float32, 'f64': np.float64, 'i8': np.int8, 'i16': np.int16, 'i32': np.int32,
        'i64': np.int64, 'ui8': np.uint8, 'f8E4M3FN': np.uint8, 'f8E5M2': np.uint8, 'f8E8M0FNU': np.uint8}

library.moert_comm_recover.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64]


class Payload(NamedTuple):
    shape: tuple  # of one row
    dtype: str

    def row_bytes(self):
        return int(np.prod(self.shape, dtype=int)) * np.dtype(BITS[self.dtype]).itemsize


class Round(NamedTuple):
    """One dispatch and its combine on all ranks."""
    tokens: tuple  # of each rank
    n_experts: int
    top_k: int
    payloads: tuple
    hidden: tuple  # trailing dimensions of the combine's payload
    dtype: str = 'bf16'
    out_dtype: str = 'bf16'
    layout: str = 'rank_major'
    max_tokens: int = 0  # R; 0: the largest of `tokens`
    in_place: bool = False  # receive into the workspace, and combine from it
    weighted: bool = True  # topk_weights are given
    spare: int = 3  # rows that a grouped destination has too many
    ids: str = 'random'
    special: bool = False  # -0.0, infinities, NaN, subnormals among what is combined
    low: bool = False  # use_low_precision
    output: str = 'none'  # output_format
    sf_layout: str = 'linear'
    global_scale: float = 1.0  # output_scalar_scale
    byte_types: int = 0  # which of the element types of codes and scales
    mask: int = 0  # active_rank_mask; 0: absent

    def active(self):
        return [r for r in range(len(self.tokens)) if not self.mask or self.mask >> r & 1]

    def R(self):
        return self.max_tokens or max(max(self.tokens), 1)

    def width(self):
        return int(np.prod(self.hidden, dtype=int))

    def combines_in_place(self):
        return self.in_place and self.layout == 'rank_major'

    def wire(self):
        """The element type in which rows come back."""
        return 'f8E4M3FN' if self.low else self.dtype

    def sizes(self):
        between_rows = self.dtype if self.combines_in_place() else self.wire()
        return self.R(), sum(p.row_bytes() for p in self.payloads), self.width() * np.dtype(BITS[between_rows]).itemsize

    def types(self):
        """Of codes and scales."""
        numbers = formats.FORMATS[self.output]
        return [types[self.byte_types % len(types)] for types in (VALUE_TYPES[numbers.elements.name], SCALE_TYPES[numbers.scales.name])]


def poisoned(shape, dtype):
    array = np.empty(shape, BITS[dtype])
    array.reshape(-1).view(np.uint8)[:] = POISON
    return array


def random_bits(rng, shape, dtype):
    size = int(np.prod(shape, dtype=int)) * np.dtype(BITS[dtype]).itemsize
    return rng.integers(0, 256, size, np.uint8).view(BITS[dtype]).reshape(shape)


def random_ids(rng, rnd, tokens):
    shape = (tokens, rnd.top_k)
    if rnd.ids == 'one_expert':
        return np.full(shape, rnd.n_experts - 1, np.int32)
    if rnd.ids == 'invalid':
        return rng.choice(np.array([-1, rnd.n_experts, -2**31, 2**31 - 1, 65536], np.int32), shape)
    if rnd.ids == 'distinct':
        return np.array([rng.permutation(rnd.n_experts)[:rnd.top_k] for _ in range(tokens)], np.int32).reshape(shape)
    ids = rng.integers(-1, rnd.n_experts + 1, shape).astype(np.int32)  # duplicates, -1 and n_experts among them
    ids[rng.random(shape) < 0.05] = rng.choice([-7, 1 << 30])
    return ids


def random_values(rng, shape, dtype, special):
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    if special:
        odd = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-40, -6e-8, 3e38, 65504.0, -65519.0, 447.0, 448.0, -456.0, 463.0, -464.0, 1000.0,
                        2.0**-9, -2.0**-10, 2.0**-10 * 1.5])
        values = np.where(rng.random(shape) < 0.3, rng.choice(odd, shape), values)
        rows = values.reshape(-1, shape[-1])
        rows[::3] = -0.0
        rows[1::7] = np.nan
    return encode(values, dtype)


def same_bits(got, want, dtype):
    """Equal bits; one NaN is as good as another."""
    words = np.uint32 if dtype == 'f32' else np.uint16
    both_nan = np.isnan(decode(got, dtype)) & np.isnan(decode(want, dtype))
    return bool(np.all((got.view(words) == want.view(words)) | both_nan))


class Inputs:
    """What all ranks bring to a round, and what the model says they get."""

    def __init__(self, rnd, seed):
        rng = np.random.default_rng(seed)
        ranks = range(len(rnd.tokens))
        self.rnd = rnd
        self.ids = [random_ids(rng, rnd, t) for t in rnd.tokens]
        self.weights = [rng.standard_normal(x.shape).astype(np.float32) for x in self.ids]
        self.payloads = [[random_bits(rng, (t,) + p.shape, p.dtype) for t in rnd.tokens] for p in rnd.payloads]
        self.routing = Routing(self.ids, rnd.n_experts, rnd.active())
        self.grouped = rnd.layout == 'expert_grouped'
        hidden, wire = rnd.width(), rnd.wire()
        if self.grouped:
            self.choices = [self.routing.choices(r) for r in ranks]
            self.results = [random_values(rng, (len(rows) + rnd.spare, hidden), rnd.dtype, rnd.special) for rows, _ in self.choices]
            ones = [np.ones_like(w) for w in self.weights]
            self.back = [combine_grouped(self.routing, r, self.weights if rnd.weighted else ones, self.results[r], hidden, rnd.dtype, wire, rnd.R())
                         for r in ranks]
        else:
            self.results = [random_values(rng, (len(rnd.tokens), rnd.R(), hidden), rnd.dtype, rnd.special) for _ in ranks]
            self.back = [from_f32(to_f32(x, rnd.dtype), wire) for x in self.results] if rnd.low else self.results
        sums_dtype = rnd.out_dtype if rnd.output == 'none' else rnd.dtype
        self.out = [combine_rank_major(self.routing, r, lambda rank: self.back[rank], hidden, wire, sums_dtype) for r in ranks]
        if rnd.output != 'none':
            self.quantized = [quantize_sums(x, rnd.dtype, rnd.output, rnd.global_scale, rnd.sf_layout) for x in self.out]

    def received(self, rank, i, before):
        """Payload i as the rank receives it into `before`."""
        want = before.copy()
        if not self.grouped:
            self.routing.rank_major(rank, self.payloads[i], want)
            return want
        for row, (source, token, _) in enumerate(self.choices[rank][0]):
            want[row] = self.payloads[i][source][token]
        return want


def align(size):
    return -(-size // 128) * 128


class Workspace:
    def __init__(self, rank, max_tokens, dispatch_bytes, combine_bytes):
        self.rank = rank
        self.max_tokens = max_tokens
        self.sizes = dict(max_num_tokens=max_tokens, dispatch_bytes_per_token=dispatch_bytes, combine_bytes_per_token=combine_bytes,
                          eplb_stats_num_experts=5)
        self.slab = rank.symmetric(rank.op('moe.workspace_size', **self.sizes))
        self.metainfo = np.full(16, -1, np.int64)
        self.initialize()

    def initialize(self):
        self.rank.op('moe.initialize', **self.sizes, **self.operands())

    def operands(self):
        return dict(workspace=self.slab.view(np.int8), metainfo=self.metainfo)

    def view(self, offset, shape, dtype):
        size = int(np.prod(shape, dtype=int)) * np.dtype(BITS[dtype]).itemsize
        return self.slab[offset:offset + size].view(BITS[dtype]).reshape(shape)

    def region(self, name, shape, dtype='i32'):
        return self.view(self.metainfo[FIELDS.index(name)], shape, dtype)

    def receive_view(self, rnd, i):
        ranks = self.rank.size
        offset = self.metainfo[FIELDS.index('PAYLOAD_DATA')] + sum(align(ranks * self.max_tokens * p.row_bytes()) for p in rnd.payloads[:i])
        return self.view(offset, (ranks, rnd.R()) + rnd.payloads[i].shape, rnd.payloads[i].dtype)


def dispatch(workspace, inputs):
    """Dispatch, check all outputs, return combine_payload_offset."""
    rank, rnd, me = workspace.rank, inputs.rnd, workspace.rank.rank
    if inputs.grouped:
        rows, want_offsets = inputs.choices[me]
        recv = [poisoned((len(rows) + rnd.spare,) + p.shape, p.dtype) for p in rnd.payloads]
        offsets = poisoned(want_offsets.shape, 'i32')
        named = dict(offsets=offsets, topk_weights=inputs.weights[me] if rnd.weighted else None)
    else:
        recv = [workspace.receive_view(rnd, i) if rnd.in_place else poisoned((rank.size, rnd.R()) + p.shape, p.dtype) for i, p in
                enumerate(rnd.payloads)]
        for array in recv:
            array.reshape(-1).view(np.uint8)[:] = POISON
        counts = poisoned((rank.size,), 'i32')
        named = dict(recv_counts=counts)
    before = [x.copy() for x in recv]
    offset = rank.op('moe.dispatch', top_k=rnd.top_k, n_experts=rnd.n_experts, layout=rnd.layout, topk_ids=inputs.ids[me],
                     payloads=[typed(x[me], p.dtype) for x, p in zip(inputs.payloads, rnd.payloads)],
                     recv=[typed(x, p.dtype) for x, p in zip(recv, rnd.payloads)],
                     runtime_max_tokens_per_rank=rnd.R(), active_rank_mask=rnd.mask, **named, **workspace.operands())
    for i, array in enumerate(recv):
        assert np.array_equal(array.view(np.uint8), inputs.received(me, i, before[i]).view(np.uint8)), (me, i)
    if inputs.grouped:
        assert np.array_equal(offsets, want_offsets)
    else:
        assert np.array_equal(counts, inputs.routing.counts(me))
    check_metadata(workspace, inputs)
    return offset


def check_metadata(workspace, inputs):
    me, routing, shape = workspace.rank.rank, inputs.routing, inputs.ids[workspace.rank.rank].shape
    assert np.array_equal(workspace.region('TOPK_TARGET_RANKS', shape), routing.targets[me])
    assert np.array_equal(workspace.region('TOPK_SEND_INDICES', shape), routing.places[me])
    assert np.array_equal(workspace.region('RECV_COUNTERS', (routing.ranks,)), routing.counts(me))
    assert np.array_equal(workspace.region('SEND_COUNTERS', (routing.ranks,)), [len(x) for x in routing.sent[me]])


def outputs(inputs, me):
    """Poisoned `out` and `output_scales`; of a round without a format None in place of the second."""
    rnd = inputs.rnd
    if rnd.output == 'none':
        return Guarded((rnd.tokens[me],) + rnd.hidden, BITS[rnd.out_dtype]), None
    return tuple(Guarded(x.shape, np.uint8) for x in inputs.quantized[me])


def combine_call(workspace, inputs, offset, out, scales):
    """The arguments of moe.combine. In place, the payload is written."""
    rnd, me = inputs.rnd, workspace.rank.rank
    payload = inputs.results[me].reshape(inputs.results[me].shape[:-1] + rnd.hidden)
    if rnd.combines_in_place():
        view = workspace.view(offset, payload.shape, rnd.dtype)
        view[:] = payload
        payload = view
    named = dict(top_k=rnd.top_k, hidden_size=rnd.width(), layout=rnd.layout, payload_in_workspace=rnd.combines_in_place(),
                 use_low_precision=rnd.low, payload=typed(payload, rnd.dtype), runtime_max_tokens_per_rank=rnd.R(), combine_payload_offset=offset,
                 active_rank_mask=rnd.mask, **workspace.operands())
    if rnd.output == 'none':
        return dict(named, out=typed(out.array, rnd.out_dtype))
    value_type, scale_type = rnd.types()
    return dict(named, out=typed(out.array, value_type), output_scales=typed(scales.array, scale_type), output_format=rnd.output,
                sf_layout=rnd.sf_layout, output_scalar_scale=rnd.global_scale)


def check_narrowed(workspace, inputs, offset):
    """Rows that were narrowed in place begin with their codes, as far apart as they were; those that nobody had sent are as before."""
    rnd, me = inputs.rnd, workspace.rank.rank
    rows = workspace.view(offset, inputs.results[me].shape, rnd.dtype)
    for source, count in enumerate(inputs.routing.counts(me)):
        assert np.array_equal(rows[source, :count].view(np.uint8)[:, :rnd.width()], inputs.back[me][source, :count]), (me, source)
        assert np.array_equal(rows[source, count:].view(np.uint8), inputs.results[me][source, count:].view(np.uint8)), (me, source)


def combine(workspace, inputs, offset):
    rank, rnd, me = workspace.rank, inputs.rnd, workspace.rank.rank
    out, scales = outputs(inputs, me)
    rank.op('moe.combine', **combine_call(workspace, inputs, offset, out, scales))
    if rnd.low and rnd.combines_in_place():
        check_narrowed(workspace, inputs, offset)
    if rnd.output == 'none':
        assert same_bits(out.taken().reshape(inputs.out[me].shape), inputs.out[me], rnd.out_dtype), (me, out.array, inputs.out[me])
        return out.array.tobytes()
    for got, want in zip((out, scales), inputs.quantized[me]):
        assert np.array_equal(got.taken(), want), (me, rnd, got.array, want)
    return out.array.tobytes() + scales.array.tobytes()


def play(rounds, seed, repeats=1):
    """Rounds on one workspace that is large enough for all of them."""
    prepared = [Inputs(rnd, seed + i) for i, rnd in enumerate(rounds)]
    max_tokens, dispatch_bytes, combine_bytes = (max(x) for x in zip(*(rnd.sizes() for rnd in rounds)))

    def rank_main(rank):
        workspace = Workspace(rank, max_tokens, max(dispatch_bytes, 1), combine_bytes)
        results = [[combine(workspace, inputs, dispatch(workspace, inputs)) for inputs in prepared] for _ in range(repeats)]
        assert all(r == results[0] for r in results)
        assert workspace.region('FLAG_VAL', (1,))[0] == 2 * len(rounds) * repeats

    run_ranks(len(rounds[0].tokens), rank_main, timeout_ms=20000)


def set_out(workspace, rnd):
    """A rank that is left out waits until the others have played; nothing comes to its slab."""
    before = workspace.slab.copy()
    workspace.rank.barrier()
    assert np.array_equal(workspace.slab, before), (workspace.rank.rank, rnd.mask)


def play_masked(rounds, seed):
    """Rounds in which fewer and fewer ranks take part, then one of all, for which they begin anew."""
    prepared = [Inputs(rnd, seed + i) for i, rnd in enumerate(rounds)]
    max_tokens, dispatch_bytes, combine_bytes = (max(x) for x in zip(*(rnd.sizes() for rnd in rounds)))

    def rank_main(rank):
        workspace = Workspace(rank, max_tokens, max(dispatch_bytes, 1), combine_bytes)
        for inputs in prepared:
            rank.barrier()
            if rank.rank not in inputs.rnd.active():
                set_out(workspace, inputs.rnd)
                continue
            combine(workspace, inputs, dispatch(workspace, inputs))
            rank.barrier()
        assert workspace.region('FLAG_VAL', (1,))[0] == 2 * sum(rank.rank in rnd.active() for rnd in rounds)
        workspace.initialize()
        everybody = Inputs(rounds[-1]._replace(mask=0), seed)
        combine(workspace, everybody, dispatch(workspace, everybody))

    run_ranks(len(rounds[0].tokens), rank_main, timeout_ms=20000)


HIDDEN = Payload((24,), 'bf16')
BYTES = {1: Payload((), 'i8'), 2: Payload((), 'bf16'), 3: Payload((3,), 'f8E4M3FN'), 7: Payload((7, 1), 'f8E8M0FNU'), 16: Payload((2, 2), 'f32'),
         14336: Payload((7168,), 'bf16')}


def uneven(ranks, seed, most=9):
    rng = np.random.default_rng(seed)
    return tuple(int(t) for t in rng.permutation(np.concatenate([[0, 1, most], rng.integers(0, most, 64)])[:ranks]))


def test_ranks_and_experts():
    for ranks, layout in itertools.product((1, 2, 3, 4, 5, 8), ('rank_major', 'expert_grouped')):
        for n_experts in sorted({max(ranks, 7), ranks, 3 * ranks, 3 * ranks + 1, 32}):
            top_k = min(4, n_experts)
            play([Round(uneven(ranks, n_experts), n_experts, top_k, (HIDDEN,), (24,), layout=layout)], seed=ranks * 100 + n_experts)


def test_top_k():
    for top_k, layout in itertools.product(range(1, 33), ('rank_major', 'expert_grouped')):
        ids = 'distinct' if top_k % 2 else 'random'
        play([Round((5, 0, 7, 3), 40, top_k, (HIDDEN,), (24,), out_dtype='f32', layout=layout, ids=ids)], seed=top_k)
        play([Round((4,) * 32, 32, top_k, (BYTES[1],), (5,), dtype='f32', out_dtype='f32', layout=layout, ids='distinct')], seed=top_k)


def test_dtypes():
    for dtype, out_dtype, layout in itertools.product(('bf16', 'f16', 'f32'), ('bf16', 'f16', 'f32'), ('rank_major', 'expert_grouped')):
        for top_k, special in ((1, True), (3, True), (8, True), (8, False)):
            play([Round((6, 11, 3), 16, top_k, (HIDDEN,), (4, 65), dtype, out_dtype, layout, special=special)], seed=top_k)


def test_payloads():
    sets = [(BYTES[b],) for b in BYTES] + [tuple(BYTES.values()), tuple(reversed(BYTES.values())),
                                           (BYTES[1],) * 8,
                                           tuple(Payload((3, 1, 2)[:i % 4], d) for i, d in enumerate(BITS) if i < 8),
                                           tuple(Payload((1,) * (i % 4), d) for i, d in enumerate(BITS) if i >= 8),
                                           (Payload((0,), 'i32'), BYTES[3])]
    for payloads, (layout, in_place) in itertools.product(sets, (('rank_major', False), ('rank_major', True), ('expert_grouped', False))):
        play([Round((3, 0, 8), 7, 3, payloads, (2, 3), layout=layout, in_place=in_place)], seed=len(payloads))


def test_ids():
    for ids, layout in itertools.product(('one_expert', 'invalid', 'distinct'), ('rank_major', 'expert_grouped')):
        play([Round((9, 4, 0, 2), 9, 5, (HIDDEN,), (24,), layout=layout, ids=ids, spare=0)], seed=3)


def test_no_tokens():
    for layout, spare in itertools.product(('rank_major', 'expert_grouped'), (0, 2)):
        play([Round((0, 0, 0), 6, 2, (HIDDEN, BYTES[3]), (24,), layout=layout, spare=spare, max_tokens=4),
              Round((0, 1, 0), 6, 2, (HIDDEN,), (24,), layout=layout, spare=spare)], seed=4, repeats=2)


def test_weights_absent():
    play([Round((5, 6), 6, 4, (HIDDEN,), (24,), layout='expert_grouped', weighted=False, special=special) for special in (False, True)], seed=5)


WAYS = (('rank_major', False), ('rank_major', True), ('expert_grouped', False))  # layout, in place


def test_low_precision():
    for ranks, (layout, in_place), dtype in itertools.product((1, 2, 3, 4), WAYS, ('bf16', 'f16', 'f32')):
        for out_dtype, top_k, special in (('f32', 1, True), ('bf16', 8, True), ('f16', 3, False), (dtype, 5, True)):
            play([Round(uneven(ranks, top_k), 16, top_k, (HIDDEN,), (5, 7), dtype, out_dtype, layout, in_place=in_place, special=special, low=True),
                  Round(uneven(ranks, top_k + 1), 16, top_k, (HIDDEN,), (300,), dtype, out_dtype, layout, in_place=in_place, low=True)], seed=top_k)


def test_quantized():
    """Every format and layout of the scales; the formats change from round to round, and so does the precision on the wire."""
    ways = itertools.cycle(itertools.product(WAYS, (False, True), ('bf16', 'f16', 'f32')))
    for ranks, hidden in itertools.product((1, 2, 3, 4), (32, 160, 2880)):
        for _ in range(3 if hidden < 2880 else 1):
            rounds = []
            for i, (output, sf_layout) in enumerate(itertools.product(('nvfp4', 'mxfp4', 'mxfp8'), formats.SWIZZLED)):
                (layout, in_place), low, dtype = next(ways)
                rounds.append(Round(uneven(ranks, i), 9, 1 + i % 5, (HIDDEN,), (hidden,), dtype, layout=layout, in_place=in_place, low=low,
                                    special=i % 2 == 0, output=output, sf_layout=sf_layout, byte_types=i,
                                    global_scale=3.7 if output == 'nvfp4' else 1.0))
            play(rounds, seed=hidden + ranks, repeats=2)


def test_quantized_ways():
    """Each way of the payload with each precision, element type and format."""
    for (layout, in_place), low, dtype in itertools.product(WAYS, (False, True), ('bf16', 'f16', 'f32')):
        play([Round((7, 0, 9), 8, 4, (HIDDEN,), (2, 48), dtype, layout=layout, in_place=in_place, low=low, special=True, output=output,
                    sf_layout=('8x4', '128x4', 'linear')[i]) for i, output in enumerate(('nvfp4', 'mxfp4', 'mxfp8'))], seed=13)


def test_quantized_tokens():
    """More tokens than a tile of scales has rows, exactly as many, one, and none."""
    for tokens in ((130, 128), (1, 0), (8, 9), (0, 0)):
        for output, sf_layout in itertools.product(('nvfp4', 'mxfp8'), formats.SWIZZLED):
            play([Round(tokens, 4, 2, (BYTES[2],), (160,), output=output, sf_layout=sf_layout)], seed=14)


def test_global_scale():
    """As an f32, however large or small."""
    for scale in (0.1, 448 * 6 / 3.5, 2.0**-126, 1e-42, 3e38, 1.0):
        play([Round((6, 3), 8, 4, (HIDDEN,), (64,), special=special, output='nvfp4', global_scale=scale) for special in (False, True)], seed=15)


def test_formats_differ():
    """Each rank has an output format of its own; the precision on the wire is the same on all."""
    rounds = [Round((6, 3, 4), 8, 4, (HIDDEN,), (64,), low=True, output=output, sf_layout='8x4' if output != 'none' else 'linear')
              for output in ('mxfp8', 'none', 'nvfp4')]
    prepared = [Inputs(rnd, 16) for rnd in rounds]

    def rank_main(rank):
        workspace, inputs = Workspace(rank, 6, 48, 64), prepared[rank.rank]
        combine(workspace, inputs, dispatch(workspace, inputs))

    run_ranks(3, rank_main, timeout_ms=20000)


def test_masks():
    """Every way, with one rank left out and then more; one is left alone in the end. Special values come from ranks that take part alone."""
    for ranks, (layout, in_place) in itertools.product((1, 2, 3, 4, 8), WAYS):
        every = (1 << ranks) - 1
        for odd in range(ranks):
            masks = [0, every, every & ~(1 << odd), every & ~(1 << odd) & ~(1 << (odd + 1) % ranks), 1 << (odd + 2) % ranks]
            for i in range(1, len(masks)):
                masks[i] &= masks[i - 1] or every
            play_masked([Round(uneven(ranks, odd), 3 * ranks + 1, 1 + odd % 5, (HIDDEN, BYTES[3]), (24,), ('bf16', 'f16', 'f32')[odd % 3],
                               layout=layout, in_place=in_place, special=i % 2 == 0, low=i == 3, mask=mask, max_tokens=9)
                         for i, mask in enumerate(masks) if not i or mask], seed=21 + odd)


def test_masks_of_outputs():
    """Sums that leave as codes, without tokens, with ids of ranks that are left out alone, and of the last of 64 ranks."""
    for output in ('nvfp4', 'mxfp8'):
        play_masked([Round((5, 9, 0), 3, 2, (HIDDEN,), (64,), output=output, sf_layout='8x4', mask=mask, ids=ids, max_tokens=9, spare=0)
                     for mask, ids in ((3, 'one_expert'), (3, 'random'), (1, 'invalid'))], seed=22)
    for layout in ('rank_major', 'expert_grouped'):
        play_masked([Round(tuple(i % 3 for i in range(64)), 100, 6, (BYTES[3],), (5,), layout=layout, mask=mask)
                     for mask in (2**64 - 1 - 2**5, 0xf0f0f0f0f0f0f0d0, 2**63)], seed=23)


def test_groups():
    """Two groups of ranks that leave each other out play on one workspace, each as if the others were not there."""
    for layout in ('rank_major', 'expert_grouped'):
        rounds = [Round((4, 0, 7, 3, 5), 11, 3, (HIDDEN,), (24,), layout=layout, special=True, mask=mask) for mask in (0b01011, 0b10100)]
        groups = [Inputs(rnd, 24) for rnd in rounds]

        def rank_main(rank):
            workspace = Workspace(rank, 7, 48, 48)
            inputs, = (group for group in groups if rank.rank in group.rnd.active())
            for _ in range(20):
                combine(workspace, inputs, dispatch(workspace, inputs))

        run_ranks(5, rank_main, timeout_ms=20000)


def test_mask_and_recovery():
    """A call's mask is one of the ranks that live. A rank that died is left out, as long as nobody had waited for it, by a mask alone."""
    rnd = Round((4, 0, 7, 3), 11, 3, (HIDDEN,), (24,))
    ways = {mask: Inputs(rnd._replace(mask=mask), 25) for mask in (0, 0b1101, 0b1100)}
    died = threading.Event()

    def rank_main(rank):
        workspace = Workspace(rank, 7, 48, 48)
        combine(workspace, ways[0], dispatch(workspace, ways[0]))
        if rank.rank == 1:
            died.set()
            return
        combine(workspace, ways[0b1101], dispatch(workspace, ways[0b1101]))
        died.wait(20)
        check(library.moert_comm_recover(rank.comm, 0b1101, 0))
        expect_error('MOERT_ERROR_INVALID_ARGUMENT',
                     "moe.dispatch: operand 'active_rank_mask' is 0xf, must have no ranks but those that live, 0xd: leave out rank 1",
                     dispatch, workspace, Inputs(rnd._replace(mask=0b1111), 25))
        absent = Inputs(rnd._replace(mask=0b1101), 25)
        absent.rnd = rnd  # all that live
        combine(workspace, absent, dispatch(workspace, absent))
        if rank.rank >= 2:
            combine(workspace, ways[0b1100], dispatch(workspace, ways[0b1100]))

    run_ranks(4, rank_main, timeout_ms=20000)


def failed_combine(inputs_of, sizes, **options):
    """Each rank's error and what its outputs hold afterwards, one byte, in a round whose combine goes wrong. `options` as of run_ranks."""
    def rank_main(rank):
        workspace, inputs = Workspace(rank, *sizes), inputs_of[rank.rank]
        offset = dispatch(workspace, inputs)
        out, scales = outputs(inputs, rank.rank)
        rank.barrier()
        try:
            rank.op('moe.combine', **combine_call(workspace, inputs, offset, out, scales))
        except MoertError as error:
            left, = set(out.taken().reshape(-1)) | set(scales.taken().reshape(-1))
            return error, int(left)
        raise AssertionError('the combine went through')

    return run_ranks(len(inputs_of), rank_main, timeout_ms=300, **options)


def test_poison():
    """When a peer does not come, codes and scales, their padding too, are all ones: NaN where there is one. The rank that stopped writes nothing."""
    for output, sf_layout, phase in itertools.product(('nvfp4', 'mxfp4', 'mxfp8'), formats.SWIZZLED, ('entry', 'flag')):
        inputs = Inputs(Round((5, 3), 8, 4, (HIDDEN,), (96,), output=output, sf_layout=sf_layout), 17)
        waiting, stopped = failed_combine([inputs] * 2, (5, 48, 192),
                                          options=lambda rank: dict(stop_op='moe.combine', stop_phase=phase) if rank == 1 else {})
        assert (waiting[0].name, waiting[0].text) == ('MOERT_ERROR_PEER_TIMEOUT',
                                                      'moe.combine: rank 0 waited 300 ms for rank 1 (its data, epoch 2)'), waiting
        assert stopped[0].name == 'MOERT_ERROR_STOPPED', stopped
        assert (waiting[1], stopped[1]) == (0xff, 0xcb), (waiting, stopped)


def test_wire_differs():
    """Rows of other elements, or at other distances, are not added up."""
    plain = Round((5, 3), 8, 4, (HIDDEN,), (96,), output='mxfp8')
    low = plain._replace(low=True)
    for one, other in ((plain, low), (low, low._replace(in_place=True))):
        results = failed_combine([Inputs(one, 18), Inputs(other, 18)], (5, 48, 192))
        assert [left for _, left in results] == [0xff, 0xff], results
        names = {error.name for error, _ in results}
        assert 'MOERT_ERROR_PEER_MISMATCH' in names and names <= {'MOERT_ERROR_PEER_MISMATCH', 'MOERT_ERROR_PEER_FAILED'}, results


def test_output_errors():
    """Constraints C6 to C9, and places; a combine that was refused can be called again."""
    quantized = Round((5,), 8, 4, (HIDDEN,), (96,), output='nvfp4', sf_layout='8x4')
    prepared = {output: Inputs(quantized._replace(output=output, sf_layout='8x4' if output != 'none' else 'linear'), 19)
                for output in ('none', 'nvfp4', 'mxfp4', 'mxfp8')}

    def refuse(workspace, offset, output, name, text, **changes):
        inputs = prepared[output]
        out, scales = outputs(inputs, 0)
        call = combine_call(workspace, inputs, offset, out, scales)
        expect_error('MOERT_ERROR_' + name, 'moe.combine: ' + text, workspace.rank.op, 'moe.combine', **{**call, **changes})
        for kept in (out, scales) if scales else (out,):
            assert np.all(kept.taken().view(np.uint8) == 0xcb)

    def rank_main(rank):
        workspace = Workspace(rank, 5, 48, 192)
        offset = dispatch(workspace, prepared['none'])
        zeros = lambda *shape: np.zeros(shape, np.uint8)
        fails = lambda *arguments, **changes: refuse(workspace, offset, *arguments, **changes)
        # C6
        fails('none', 'INVALID_ARGUMENT', "operand 'output_scales' is set, must be NULL with output_format none", output_scales=zeros(5, 6))
        fails('mxfp4', 'NULL_POINTER', "operand 'output_scales' is NULL, must be set with format mxfp4", output_scales=None)
        # C7
        fails('none', 'INVALID_DTYPE', "operand 'out': element type ui8, must be bf16, f16 or f32 with output_format none", out=zeros(5, 96))
        fails('none', 'INVALID_DTYPE', "operand 'out': element type f8E4M3FN, must be bf16, f16 or f32 with output_format none",
              out=typed(zeros(5, 96), 'f8E4M3FN'))
        fails('nvfp4', 'INVALID_DTYPE', "operand 'out': element type f8E4M3FN, must be i8 or ui8 for format nvfp4",
              out=typed(zeros(5, 48), 'f8E4M3FN'))
        fails('mxfp8', 'INVALID_DTYPE', "operand 'out': element type f32, must be f8E4M3FN, i8 or ui8 for format mxfp8",
              out=np.zeros((5, 96), np.float32))
        fails('nvfp4', 'INVALID_DTYPE', "operand 'output_scales': element type f8E8M0FNU, must be f8E4M3FN, i8 or ui8 for format nvfp4",
              output_scales=typed(zeros(8, 8), 'f8E8M0FNU'))
        fails('mxfp8', 'INVALID_DTYPE', "operand 'output_scales': element type f32, must be f8E8M0FNU, i8 or ui8 for format mxfp8",
              output_scales=np.zeros((8, 4), np.float32))
        fails('nvfp4', 'INVALID_SHAPE', "operand 'out' has rank 3, must have 2 with an output_format", out=zeros(5, 6, 8))
        fails('mxfp8', 'INVALID_SHAPE', "operand 'out' dimension 1 is 48, must equal hidden_size = 96", out=zeros(5, 48))
        fails('mxfp4', 'INVALID_SHAPE', "operand 'out' dimension 1 is 96, must equal half of hidden_size = 48", out=zeros(5, 96))
        fails('mxfp4', 'INVALID_STATE', "operand 'out' has 4 tokens, must have 5 as in the dispatch", out=zeros(4, 48))
        fails('mxfp8', 'INVALID_SHAPE', "parameter 'hidden_size' is 48, must be a multiple of 32, the block of format mxfp8", out=zeros(5, 48),
              hidden_size=48, payload=typed(np.zeros((1, 5, 48), np.uint16), 'bf16'))
        fails('nvfp4', 'INVALID_SHAPE', "parameter 'hidden_size' is 24, must be a multiple of 16, the block of format nvfp4", out=zeros(5, 12),
              hidden_size=24, payload=typed(np.zeros((1, 5, 24), np.uint16), 'bf16'))
        fails('nvfp4', 'INVALID_SHAPE', "operand 'output_scales' dimension 0 is 5, must equal the tokens of the dispatch up to a multiple of 8 = 8",
              output_scales=zeros(5, 8))
        fails('mxfp4', 'INVALID_SHAPE', "operand 'output_scales' dimension 1 is 3, must equal the blocks of a row up to a multiple of 4 = 4",
              output_scales=zeros(8, 3))
        fails('mxfp8', 'INVALID_SHAPE',
              "operand 'output_scales' dimension 0 is 8, must equal the tokens of the dispatch up to a multiple of 128 = 128", sf_layout='128x4')
        fails('mxfp8', 'INVALID_SHAPE', "operand 'output_scales' dimension 0 is 8, must equal the tokens of the dispatch = 5", sf_layout='linear')
        fails('mxfp8', 'INVALID_SHAPE', "operand 'output_scales' dimension 1 is 4, must equal the blocks of a row = 3", sf_layout='linear',
              output_scales=zeros(5, 4))
        # C8
        fails('none', 'INVALID_ARGUMENT', "parameter 'sf_layout' is 128x4, must be linear with output_format none", sf_layout='128x4')
        fails('none', 'INVALID_ARGUMENT', "parameter 'sf_layout' is 8x4, must be linear with output_format none", sf_layout='8x4')
        # C9
        for value, shown in ((0.0, '0'), (-2.5, '-2.5'), (1e-60, '1e-60')):
            fails('nvfp4', 'INVALID_ARGUMENT', "parameter 'output_scalar_scale' is %s, must be larger than 0 as an f32" % shown,
                  output_scalar_scale=value)
        fails('nvfp4', 'INVALID_ARGUMENT', "parameter 'output_scalar_scale' is 1e+39, beyond the largest f32, 3.40282e+38", output_scalar_scale=1e39)
        for output in ('none', 'mxfp4', 'mxfp8'):
            fails(output, 'INVALID_ARGUMENT', "parameter 'output_scalar_scale' is 2, must be 1 unless output_format is nvfp4",
                  output_scalar_scale=2.0)
        # places
        inside = workspace.slab[offset:]
        fails('mxfp8', 'OVERLAP', "operand 'out' lies in the workspace, which other ranks use during this call", out=inside[:480].reshape(5, 96))
        fails('mxfp8', 'OVERLAP', "operand 'output_scales' lies in the workspace, which other ranks use during this call",
              output_scales=inside[:32].reshape(8, 4))
        combine(workspace, prepared['mxfp8'], offset)

    run_ranks(1, rank_main)


def test_wire_capacity():
    """What has to fit into combine_bytes_per_token are the rows of the wire."""
    rnd = Round((5,), 8, 4, (HIDDEN,), (96,), low=True)
    for low, in_place, room, text in ((True, False, 96, None), (True, True, 192, None),
                                      (True, False, 95, 'rows of 96 bytes as E4M3, must have at most 95'),
                                      (True, True, 191, 'rows of 192 bytes, must have at most 191'),
                                      (False, False, 191, 'rows of 192 bytes, must have at most 191')):
        inputs = Inputs(rnd._replace(low=low, in_place=in_place), 20)

        def rank_main(rank):
            workspace = Workspace(rank, 5, 48, room)
            offset = dispatch(workspace, inputs)
            if text is None:
                combine(workspace, inputs, offset)
                return
            expect_error('MOERT_ERROR_CAPACITY', "moe.combine: operand 'payload' has %s (combine_bytes_per_token)" % text, rank.op, 'moe.combine',
                         **combine_call(workspace, inputs, offset, *outputs(inputs, 0)))

        run_ranks(1, rank_main)


def test_changing_rounds():
    """R and the payloads grow and shrink between rounds, and the layouts alternate: no round disturbs another."""
    rng = np.random.default_rng(6)
    rounds = []
    for i in range(20):
        most = int(rng.integers(1, 40))
        tokens = tuple(int(t) for t in rng.integers(0, most + 1, 4))
        chosen = rng.choice([1, 2, 3, 7, 16], rng.integers(1, 6))
        rounds.append(Round(tokens, int(rng.integers(5, 33)), int(rng.integers(1, 6)), tuple(BYTES[int(b)] for b in chosen),
                            (int(rng.integers(1, 300)),), ('bf16', 'f16', 'f32')[i % 3],
                            layout=('rank_major', 'expert_grouped')[int(rng.integers(2))], max_tokens=most, in_place=bool(rng.integers(2)),
                            special=i % 4 == 0))
    play(rounds, seed=60, repeats=2)


def test_many_ranks():
    for layout in ('rank_major', 'expert_grouped'):
        play([Round(tuple(i % 3 for i in range(64)), 100, 6, (BYTES[3],), (5,), layout=layout)], seed=7)


def test_wide_rows():
    for layout in ('rank_major', 'expert_grouped'):
        play([Round((17, 30, 5, 0), 32, 8, (BYTES[14336], BYTES[16]), (7168,), layout=layout, in_place=layout == 'rank_major')], seed=8)


def test_layout():
    """Offsets follow the rules of docs/abi.md."""
    def rank_main(rank):
        workspace = Workspace(rank, 5, 6, 7)
        ranks, choices = 3, 4 * 32 * 5
        end, want = 8 + 8 * ranks, [0, 4, 8, 8 + 4 * ranks]
        for size in (4 * ranks, 4 * ranks, choices, choices, 4 * ranks * 5):
            want.append(align(end))
            end = want[-1] + size
        own = []
        for size in (16 * ranks, 4 * ranks, ranks * choices, ranks * choices, 256):
            own.append(align(end))
            end = own[-1] + size
        for size in (4 * ranks * 5, 4 * ranks * 5, 8 * (4096 + 2 * ranks), ranks * choices,  # of kernels alone
                     128, 4 * 160 * (ranks + 512), 2 * ranks * 5 * 1408, 32 * (2 * 5 + ranks), 2 * (2 * 5 + ranks) * align(6),
                     2 * ranks * 5 * (align(528 * 8) + 256)):
            end = align(end) + size
        data = align(end)
        area = data + align(ranks * 5 * 6) + 8 * 128
        assert workspace.metainfo.tolist() == want + [data, area] + own, (workspace.metainfo.tolist(), want, data, area, own)
        assert len(workspace.slab) == area + align(ranks * 5 * 7) + align(ranks * 5 * 16)

    run_ranks(3, rank_main)


def sanitize(workspace, inputs, ids, **parameters):
    """Sanitise the ids, and check every one of them."""
    rank = workspace.rank
    want = ids.copy()
    for source in range(rank.size):
        want[source, len(inputs.routing.sent[source][rank.rank]):] = parameters.get('invalid_expert_id', -1)
    rank.op('moe.sanitize_expert_ids', expert_ids=ids, **parameters, **workspace.operands())
    assert np.array_equal(ids, want), (rank.rank, ids, want)


def test_sanitize_masked():
    """Rows from ranks that were left out are marked, whatever the workspace held of them."""
    rnd = Round((5, 9, 7), 9, 3, (HIDDEN, Payload((3,), 'i32')), (24,), max_tokens=9, in_place=True)
    everybody, some = Inputs(rnd, 12), Inputs(rnd._replace(mask=0b101), 12)

    def rank_main(rank):
        workspace = Workspace(rank, 9, *rnd.sizes()[1:])
        combine(workspace, everybody, dispatch(workspace, everybody))
        if rank.rank == 1:
            return
        offset = dispatch(workspace, some)
        sanitize(workspace, some, np.full((3, 9, 2), 77, np.int32), invalid_expert_id=9)
        sanitize(workspace, some, workspace.receive_view(rnd, 1))
        combine(workspace, some, offset)

    run_ranks(3, rank_main, timeout_ms=20000)


def test_sanitize():
    """Rows beyond the counts, of any width, in memory of their own and in the receive area; as often as one likes."""
    for tokens, ids in itertools.product(((5, 0, 7, 3), (1,), (0, 0, 0), (9, 9)), ('random', 'one_expert', 'invalid')):
        rnd = Round(tokens, 9, 3, (HIDDEN, Payload((3,), 'i32')), (24,), max_tokens=9, ids=ids, in_place=True)
        inputs = Inputs(rnd, 12)

        def rank_main(rank):
            rng = np.random.default_rng(rank.rank)
            workspace = Workspace(rank, 11, *rnd.sizes()[1:])
            for _ in range(3):
                offset = dispatch(workspace, inputs)
                for width, invalid in ((1, -1), (3, 9), (22, -2**31), (5, 2**31 - 1), (0, 0)):
                    sanitize(workspace, inputs, rng.integers(-2**31, 2**31, (rank.size, 9, width)).astype(np.int32), invalid_expert_id=invalid)
                received = workspace.receive_view(rnd, 1)
                sanitize(workspace, inputs, received, ep_size=rank.size)
                sanitize(workspace, inputs, received)
                combine(workspace, inputs, offset)

        run_ranks(len(tokens), rank_main, timeout_ms=20000)


def test_initialize_again():
    """A rank that is ahead does not clear what a peer still reads."""
    rnd = Round((6, 1, 9), 8, 2, (HIDDEN,), (24,))
    inputs = Inputs(rnd, 9)

    def rank_main(rank):
        workspace = Workspace(rank, 9, 48, 48)
        for _ in range(20):
            combine(workspace, inputs, dispatch(workspace, inputs))
            workspace.initialize()
            assert workspace.region('FLAG_VAL', (2,)).tolist() == [0, 0]

    run_ranks(3, rank_main)


def test_epoch_wraps():
    """Epochs are compared modulo 2^32."""
    rnd = Round((6, 1, 9), 8, 2, (HIDDEN,), (24,))
    inputs = Inputs(rnd, 10)

    def rank_main(rank):
        workspace = Workspace(rank, 9, 48, 48)
        rank.barrier()
        start = 2**32 - 3
        for name, words in (('FLAG_VAL', 1), ('COUNT_FLAGS', 3), ('DISPATCH_COMPLETION_FLAGS', 3), ('COMBINE_COMPLETION_FLAGS', 3)):
            workspace.region(name, (words,)).view(np.uint32)[:] = start
        rank.barrier()
        for _ in range(5):
            combine(workspace, inputs, dispatch(workspace, inputs))
        assert workspace.region('FLAG_VAL', (1,))[0] == 7

    run_ranks(3, rank_main)


def test_capacity():
    """A grouped destination without room is an error on its rank; the peers finish the call, and the next one tells them."""
    rnd = Round((4, 4, 4), 3, 2, (HIDDEN,), (24,), layout='expert_grouped', ids='one_expert', spare=0)
    inputs = Inputs(rnd, 11)

    def rank_main(rank):
        workspace = Workspace(rank, 4, 48, 48)
        if rank.rank < 2:
            offset = dispatch(workspace, inputs)
            try:
                combine(workspace, inputs, offset)
            except MoertError as error:  # of rank 2, or of the other peer, which had noticed before
                assert error.name == 'MOERT_ERROR_PEER_FAILED', error
                return
            raise AssertionError('the combine went through')
        recv, offsets = poisoned((23, 24), 'bf16'), poisoned((2,), 'i32')
        expect_error('MOERT_ERROR_CAPACITY', "moe.dispatch: 24 rows arrived for the experts of rank 2, operand 'recv[0]' has room for 23", rank.op,
                     'moe.dispatch', top_k=2, n_experts=3, layout='expert_grouped', topk_ids=inputs.ids[2],
                     payloads=[typed(inputs.payloads[0][2], 'bf16')], recv=[typed(recv, 'bf16')], offsets=offsets,
                     runtime_max_tokens_per_rank=4, **workspace.operands())
        assert np.all(recv.view(np.uint8) == POISON) and np.all(offsets.view(np.uint8) == POISON)
        assert rank.status() == 'MOERT_ERROR_CAPACITY'

    run_ranks(3, rank_main, timeout_ms=20000)


def test_view():
    def rank_main(rank):
        workspace = Workspace(rank, 4, 48, 48)
        keep = []
        shape = np.zeros((2, 4, 24), np.uint16)
        view = make_tensor(typed(shape, 'bf16'), keep)
        view.data, view.byte_offset = None, 77
        offset = int(workspace.metainfo[FIELDS.index('COMBINE_DATA')])
        got = rank.op('moe.workspace_view', workspace=workspace.slab.view(np.int8), offset=offset, view=view)
        assert isinstance(got, Tensor) and got.data == workspace.slab.ctypes.data + offset and got.byte_offset == 0
        size = len(workspace.slab)
        expect_error('MOERT_ERROR_INVALID_ARGUMENT',
                     "moe.workspace_view: result 'view' has 384 bytes, and does not lie within the %d bytes of operand 'workspace' at offset %d" %
                     (size, size - 382), rank.op, 'moe.workspace_view', workspace=workspace.slab.view(np.int8), offset=size - 382, view=view)
        expect_error('MOERT_ERROR_MISALIGNED', "moe.workspace_view: operand 'offset' is 3, must be a multiple of 2, the size of element type bf16",
                     rank.op, 'moe.workspace_view', workspace=workspace.slab.view(np.int8), offset=3, view=view)

    run_ranks(2, rank_main)


if __name__ == '__main__':
    run_tests(globals())
