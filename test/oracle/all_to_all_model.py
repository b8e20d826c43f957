#===- all_to_all_model.py - what moe.dispatch and moe.combine have to give, in NumPy --------------===#
#
# All ranks at once, from the contract of the ops (ops/moe/moe.td), in the plainest form: lists of rows, and sums written out as they are
# to be associated.
#
#===----------------------------------------------------------------------------------------------===#
from functools import reduce

import numpy as np

import formats_model as formats
from moert import decode, encode

# Where sums are not left folds: the leaves are slots.
P = {i: (2 * i, 2 * i + 1) for i in range(11)}
TREES = {
    1: 0,
    2: P[0],
    4: (P[0], P[1]),
    6: ((P[0], P[1]), P[2]),
    8: ((P[0], P[1]), (P[2], P[3])),
    10: (((P[0], P[1]), (P[2], P[3])), P[4]),
    16: (((P[0], P[1]), (P[2], P[3])), ((P[4], P[5]), (P[6], P[7]))),
    22: ((((P[0], P[1]), (P[2], P[3])), ((P[4], P[5]), (P[6], P[7]))), ((P[8], P[9]), P[10])),
}


def owners(n_experts, ranks):
    """The rank of each expert."""
    return np.concatenate([np.full(len(part), r) for r, part in enumerate(np.array_split(np.arange(n_experts), ranks))])


class Routing:
    """What the ids of all ranks, each [T, K], mean: who sends which token where. Ranks that are not in `active` neither send nor receive.

    sent[r]     list per destination of the tokens that rank r sends there
    targets[r]  [T, K]: destination of the row that a slot sends, -1 if it sends none
    places[r]   [T, K]: its place among the rows of that destination, -1 likewise
    """

    def __init__(self, ids, n_experts, active=None):
        self.ids, self.ranks = ids, len(ids)
        self.active = range(self.ranks) if active is None else active
        self.owner = owners(n_experts, self.ranks)
        self.sent = [[[] for _ in ids] for _ in ids]
        self.targets = [np.full(x.shape, -1, np.int32) for x in ids]
        self.places = [np.full(x.shape, -1, np.int32) for x in ids]
        for source in self.active:
            for (token, k), expert in np.ndenumerate(ids[source]):
                destination = self.owner_of(expert)
                if destination not in self.active or destination in self.targets[source][token]:
                    continue
                self.targets[source][token, k] = destination
                self.places[source][token, k] = len(self.sent[source][destination])
                self.sent[source][destination].append(token)

    def owner_of(self, expert):
        return self.owner[expert] if 0 <= expert < len(self.owner) else None

    def counts(self, rank):
        return np.array([len(self.sent[source][rank]) for source in range(self.ranks)], np.int32)

    def rank_major(self, rank, payloads, recv):
        """Fill recv [E, R, ...] of a rank; payloads is one array per source."""
        for source in range(self.ranks):
            tokens = self.sent[source][rank]
            recv[source, :len(tokens)] = payloads[source][tokens]

    def choices(self, rank):
        """The rows of the grouped layout on a rank: (source, token, slot) each, and the offsets of its experts."""
        rows, offsets = [], [0]
        for expert in np.flatnonzero(self.owner == rank):
            rows += [(source, token, k) for source in self.active for token, k in np.argwhere(self.ids[source] == expert)]
            offsets.append(len(rows))
        return rows, np.array(offsets, np.int32)


def add(a, b):
    with np.errstate(invalid='ignore', over='ignore'):
        return (a + b).astype(np.float32)


def tree_sum(terms):
    """Of a list of float32 arrays, by the tree of its length."""
    if len(terms) not in TREES:
        return reduce(add, terms)
    walk = lambda node: add(walk(node[0]), walk(node[1])) if isinstance(node, tuple) else terms[node]
    return walk(TREES[len(terms)])


def fused_multiply_add(a, b, c):
    """float32 a * b + c with one rounding: the product is exact in double, and the sum is rounded to odd there before it is rounded to float32."""
    a, b, c = (np.asarray(x, np.float32).astype(np.float64) for x in (a, b, c))
    with np.errstate(all='ignore'):
        product = a * b
        total = product + c
        part = total - product
        error = (product - (total - part)) + (c - part)
        inexact = np.isfinite(total) & (error != 0) & ((total.view(np.uint64) & 1) == 0)
        odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        return np.where(inexact, odd, total).astype(np.float32)


def to_f32(array, dtype):
    return formats.Arrays.decode(formats.E4M3, array) if dtype == 'f8E4M3FN' else decode(array, dtype).astype(np.float32)


def from_f32(values, dtype):
    """Rounded once, to nearest even; what is too large for E4M3 becomes its largest number."""
    return formats.Arrays.encode(formats.E4M3, values) if dtype == 'f8E4M3FN' else encode(values, dtype)


def combine_rank_major(routing, source, rows_of, hidden, wire, out_dtype):
    """out [T, hidden] of a rank; rows_of(rank) is what that rank sends back, [E, R, hidden] of element type `wire`."""
    targets, places = routing.targets[source], routing.places[source]
    out = []
    for token in range(len(targets)):
        zero = np.zeros(hidden, np.float32)
        terms = [to_f32(rows_of(rank)[source, place], wire) if rank >= 0 else zero for rank, place in zip(targets[token], places[token])]
        out.append(encode(tree_sum(terms), out_dtype))
    return np.array(out, encode(0, out_dtype).dtype).reshape(len(targets), hidden)


def combine_grouped(routing, rank, weights, payload, hidden, dtype, wire, max_tokens):
    """What a rank sends back, [E, R, hidden] of element type `wire`, from its grouped payload [C, hidden]."""
    back = np.zeros((routing.ranks, max_tokens, hidden), np.float32)
    row_of = {choice: row for row, choice in enumerate(routing.choices(rank)[0])}
    for source in range(routing.ranks):
        for place, token in enumerate(routing.sent[source][rank]):
            for k in range(routing.ids[source].shape[1]):
                row = row_of.get((source, token, k))
                if row is not None:
                    back[source, place] = fused_multiply_add(to_f32(payload[row], dtype), weights[source][token, k], back[source, place])
    return from_f32(back, wire)


def quantize_sums(sums, dtype, format_name, global_scale, layout):
    """Codes and scales, as they lie in memory, of sums [T, hidden] of element type `dtype`."""
    rule = formats.Rule(format_name, float(np.float32(global_scale)) if format_name == 'nvfp4' else None)
    codes, scales = formats.quantize(rule, to_f32(sums, dtype))
    return formats.pack(codes, 'low_first') if rule.numbers.packed else codes, formats.lay_out(scales, layout)
