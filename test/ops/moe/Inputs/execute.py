"""execute.py OP FOLDER: inputs and expected outputs of the execute.mlir of an op, for 1, 2 and 4 ranks, as FOLDER/<ranks>/<argument><rank>.npy.
FOLDER/masked is a round of 4 ranks of which rank 2 is left out by the others, and plays for itself.

Values are small multiples of powers of two wherever sums are compared to the bit, so that every order of adding them gives the same."""
import os
import sys

import numpy as np

from formats_model import E4M3, Arrays, Rule, lay_out, pack, quantize

TOKENS = {1: [5], 2: [4, 0], 4: [3, 0, 5, 1]}


def bf16(values):
    """The bits of values that bf16 holds exactly."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xffff).any()
    return (bits >> 16).astype(np.uint16)


def save(folder, ranks, name, rank, array):
    os.makedirs(os.path.join(folder, str(ranks)), exist_ok=True)
    np.save(os.path.join(folder, str(ranks), '%s%d.npy' % (name, rank)), array)


# --- routing ------------------------------------------------------------------------------------------

def choose(values, top_k):
    """Ids in descending order of value, ties to the lower; NaN is -1."""
    ids = np.argsort(np.where(np.isnan(values), np.inf, -values), axis=1, kind='stable')[:, :top_k].astype(np.int32)
    return np.where(np.isnan(np.take_along_axis(values, ids, 1)), -1, ids).astype(np.int32)


def route(folder):
    for ranks, tokens in TOKENS.items():
        for rank, count in enumerate(tokens):
            rng = np.random.default_rng([1, ranks, rank])
            logits = rng.permuted(np.tile(np.arange(8, dtype=np.float32) / 2 - 2, (count, 1)), axis=1)
            if count > 2:
                logits[1] = 0.5                  # all equal
                logits[2, :7] = np.nan           # one number
            bias = np.arange(8, dtype=np.float32) / 64
            # softmax, then the best
            numbers = logits.astype(np.float64)
            terms = np.where(np.isnan(numbers), 0, np.exp(numbers))
            scores = np.where(np.isnan(numbers), np.nan, terms / np.maximum(terms.sum(axis=1, keepdims=True), 1e-300))
            ids = choose(scores, 2)
            weights = np.where(ids < 0, 0, np.take_along_axis(scores, np.maximum(ids, 0), 1))
            # sigmoid with a bias for the choice alone, weights that sum to 2.5
            sigmoid = 1 / (1 + np.exp(-numbers))
            biased_ids = choose(sigmoid + bias, 2)
            biased = np.where(biased_ids < 0, 0, np.take_along_axis(sigmoid, np.maximum(biased_ids, 0), 1))
            biased = 2.5 * biased / np.maximum(biased.sum(axis=1, keepdims=True), 1e-300)
            for name, array in dict(logits=logits, bias=bias, ids=ids, weights=weights.astype(np.float32), biased_ids=biased_ids,
                                    biased_weights=biased.astype(np.float32)).items():
                save(folder, ranks, name, rank, array)


# --- experts ------------------------------------------------------------------------------------------

def grouped_matmul(folder):
    for ranks in TOKENS:
        for rank in range(ranks):
            rng = np.random.default_rng([2, ranks, rank])
            offsets = np.array([[0, 3, 3, 7], [0, 0, 0, 0], [1, 2, 9, 9], [0, 0, 9, 9]][rank], np.int32)  # a rank without rows in a group, and rows of none
            rows = rng.integers(-4, 5, (9, 16)).astype(np.float32)
            weights = rng.integers(-4, 5, (3, 32, 16)).astype(np.float32) / 8
            bias = rng.integers(-4, 5, (3, 32)).astype(np.float32)
            row_ids = rng.integers(0, 9, 9).astype(np.int32)
            row_weights = rng.integers(1, 5, 9).astype(np.float32) / 4
            nibbles = rng.integers(0, 16, (3, 32, 16))
            codes = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(np.uint8).view(np.int8)
            exponents = rng.integers(-1, 2, (3, 32, 1))
            scales, factors = (8 * (exponents + 7)).astype(np.int8), 2.0 ** np.arange(3, dtype=np.float32)  # E4M3 of powers of two
            magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)[nibbles & 7]
            numbers = (np.where(nibbles & 8, -magnitudes, magnitudes) * 2.0 ** exponents / factors[:, None, None]).astype(np.float32)
            old = np.full((9, 32), -77, np.float32)
            plain, gated, coded = old.copy(), old[:, :16].copy(), old.copy()
            for group in range(3):
                for r in range(offsets[group], offsets[group + 1]):
                    plain[r] = rows[r] @ weights[group].T
                    coded[r] = rows[r] @ numbers[group].T
                    product = (rows[row_ids[r]] @ weights[group].T + bias[group]).astype(np.float64)
                    gate, up = product[:16], product[16:]
                    gated[r] = gate / (1 + np.exp(-gate)) * up * row_weights[r]
            for name, array in dict(rows=rows, offsets=offsets, weights=weights, bias=bias, row_ids=row_ids, row_weights=row_weights, old=old, old_half=old[:, :16],
                                    plain=plain, gated=gated, codes=codes, scales=scales, factors=factors, coded=coded).items():
                save(folder, ranks, name, rank, array)


# --- all-to-all ---------------------------------------------------------------------------------------

EXPERTS, HIDDEN, WIDE, MAX_TOKENS, CAPACITY = 5, 8, 32, 6, 24


def owner(expert, ranks):
    """The rank of an expert, or None: blocks of consecutive ids, one more on the first ranks."""
    if not 0 <= expert < EXPERTS:
        return None
    small, more = divmod(EXPERTS, ranks)
    return next(r for r in range(ranks) if expert < small * (r + 1) + min(r + 1, more))


def rounds():
    """Name and tokens of each, and the active_rank_mask of each rank."""
    for ranks, tokens in TOKENS.items():
        yield ranks, tokens, [2**ranks - 1] * ranks
    yield 'masked', TOKENS[4], [0b1011, 0b1011, 0b0100, 0b1011]


def all_to_all(folder):
    for name, tokens, masks in rounds():
        ranks = len(tokens)
        rng = np.random.default_rng([3, ranks])
        ids = [rng.integers(-1, EXPERTS, (count, 2)).astype(np.int32) for count in tokens]
        ids[0][0], ids[0][1], ids[0][2] = [-1, -1], [3, 3], [-1, 4]  # nobody, one expert twice, one slot that is none
        x = [rng.integers(-8, 9, (count, HIDDEN)).astype(np.float32) for count in tokens]
        scales = [rng.integers(0, 256, (count,)).astype(np.uint8) for count in tokens]
        weights = [rng.integers(1, 9, (count, 2)).astype(np.float32) / 8 for count in tokens]
        reached = lambda source, rank: rank if rank is not None and masks[source] >> rank & 1 else None
        owners = [[[reached(source, owner(e, ranks)) for e in row] for row in part] for source, part in enumerate(ids)]
        for rank in range(ranks):
            # rank-major: each token once to each of its ranks; rows beyond the counts stay
            old = np.full((ranks, MAX_TOKENS, HIDDEN), -77, np.float32)
            old_scales = np.full((ranks, MAX_TOKENS), 0xa5, np.uint8)
            recv, recv_scales, counts = old.copy(), old_scales.copy(), np.zeros(ranks, np.int32)
            for source in range(ranks):
                for token in range(tokens[source]):
                    if rank in owners[source][token]:
                        recv[source, counts[source]] = x[source][token]
                        recv_scales[source, counts[source]] = scales[source][token]
                        counts[source] += 1
            # and back as they came: as often as the token was sent
            back = np.array([x[rank][t] * len(set(owners[rank][t]) - {None}) for t in range(tokens[rank])], np.float32).reshape(-1, HIDDEN)
            # wider rows, beyond what E4M3 holds exactly: through E4M3, and quantised when they have come back
            wide = (4 * np.random.default_rng([4, ranks, rank]).integers(-127, 128, (tokens[rank], WIDE))).astype(np.float32)
            times = np.array([len(set(row) - {None}) for row in owners[rank]], np.float32).reshape(-1, 1)
            low = Arrays.decode(E4M3, Arrays.encode(E4M3, wide)) * times
            codes, code_scales = quantize(Rule('nvfp4', 3.5), wide * times + np.float32(0))  # a sum of nothing is not -0
            code_scales = lay_out(code_scales, '8x4')
            for argument, array in dict(wide=bf16(wide), low=low, codes=pack(codes, 'low_first').view(np.int8), code_scales=code_scales,
                                    old_code_scales=np.full_like(code_scales, 0xa5)).items():
                save(folder, name, argument, rank, array)
            # grouped by expert: one row for each choice
            old_rows = np.full((CAPACITY, HIDDEN), -77, np.float32)
            rows, offsets = old_rows.copy(), [0]
            for expert in range(EXPERTS):
                if owner(expert, ranks) != rank:
                    continue
                chosen = [x[s][t] for s in range(ranks) for t in range(tokens[s]) for k in range(2) if ids[s][t, k] == expert and owners[s][t][k] is not None]
                rows[offsets[-1]:offsets[-1] + len(chosen)] = np.array(chosen, np.float32).reshape(-1, HIDDEN)
                offsets.append(offsets[-1] + len(chosen))
            # and back, weighted: a lone expert counts its weight, also if it is there twice
            weighted = np.array([x[rank][t] * sum(weights[rank][t, k] for k in range(2) if owners[rank][t][k] is not None) for t in range(tokens[rank])],
                                np.float32).reshape(-1, HIDDEN)
            for argument, array in dict(ids=ids[rank], x=bf16(x[rank]), scales=scales[rank], weights=weights[rank], old=bf16(old), old_scales=old_scales, recv=bf16(recv),
                                    recv_scales=recv_scales, counts=counts, back=back, old_rows=bf16(old_rows), rows=bf16(rows),
                                    offsets=np.array(offsets, np.int32), weighted=weighted).items():
                save(folder, name, argument, rank, array)


if __name__ == '__main__':
    {'route': route, 'grouped_matmul': grouped_matmul, 'all_to_all': all_to_all}[sys.argv[1]](sys.argv[2])
