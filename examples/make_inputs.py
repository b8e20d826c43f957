#!/usr/bin/env python3
"""Make the inputs of the example layers: tokens from a text, weights from a seed.

    make_inputs.py --text FILE --ranks 4 --out DIR [--tokens N] [--seed N] [--no-full]

Arrays are .npy files of bf16 as raw uint16. What differs between ranks (tokens, gate_up, down) is one file per rank, NAME.RANK.npy; NAME.full.npy is
the whole, for the graph of one rank that has all experts. router.npy is the same on all ranks, and router.changed.npy differs from it in one element
that changes the choice of experts. numbers.json holds the numbers that the graphs take. The same seed gives the same values for any number of ranks.
"""
import argparse
import json
import os
import statistics
import sys

import numpy as np

MOST_TOKENS = 512  # the `max_num_tokens` that the graphs lay their workspace out for
EMBEDDINGS, MEAN, ROUTER, GATE_UP, DOWN = range(5)  # streams of random numbers


def bf16_of(values):
    """The nearest bf16 (ties to even), as raw bits."""
    bits = np.asarray(values, dtype=np.float32, order="C").view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def f32_of(raw):
    return (raw.astype(np.uint32) << 16).view(np.float32)


def normal_quantiles():
    """Looked up by 16 random bits, they are normal numbers at the price of a copy."""
    inverse = statistics.NormalDist().inv_cdf
    return np.array([inverse((i + 0.5) / 65536) for i in range(65536)], dtype=np.float32)


def random_bits(seed, stream, shape):
    generator = np.random.Generator(np.random.SFC64([seed, *stream]))
    count = int(np.prod(shape))
    words = generator.integers(0, 1 << 64, size=-(-count // 4), dtype=np.uint64)
    return words.view(np.uint16)[:count].reshape(shape)


def tokens_of(text, hidden, seed, normal):
    """Each byte's embedding and a fading trace of the bytes before it, so that equal bytes are different tokens, as after the attention of a model.
    The embeddings share a mean, as trained ones do: it makes some experts popular."""
    own = normal[random_bits(seed, [EMBEDDINGS], (256, hidden))]
    mean = normal[random_bits(seed, [MEAN], (hidden,))]
    embeddings = 0.95 * own + 0.3 * mean
    tokens = np.empty((len(text), hidden), dtype=np.float32)
    trace = np.zeros(hidden, dtype=np.float32)
    for i, byte in enumerate(text):
        tokens[i] = 0.9 * embeddings[byte] + 0.44 * trace
        trace = np.roll(tokens[i], 1)
    return bf16_of(tokens)


def shares(total, parts):
    """Uneven parts of `total`; the second of several is 0."""
    weights = [0 if i == 1 else 1 + i * 2 % 3 for i in range(parts)]
    ends = [total * sum(weights[: i + 1]) // sum(weights) for i in range(parts)]
    return [end - begin for begin, end in zip([0] + ends, ends)]


def blocks(total, parts):
    """Even parts of `total`, the first ones greater by one if they must."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def chosen(tokens, router, top_k):
    logits = f32_of(tokens) @ f32_of(router).T
    return np.sort(np.argsort(-logits, axis=1, kind="stable")[:, :top_k], axis=1)


def changed_router(tokens, router, top_k):
    """The router with a great weight from the most one-sided element of the tokens to the expert that fewest tokens chose."""
    before = chosen(tokens, router, top_k)
    expert = int(np.argmin(np.bincount(before.ravel(), minlength=len(router))))
    means = f32_of(tokens).mean(axis=0)
    element = int(np.argmax(np.abs(means)))
    changed = router.copy()
    changed[expert, element] = bf16_of(np.copysign(2.0, means[element]))
    moved = int(np.any(chosen(tokens, changed, top_k) != before, axis=1).sum())
    if moved == 0:
        sys.exit("make_inputs.py: the changed router chooses the same experts; take another --seed")
    return changed, moved


class Writer:
    """An array that is written expert by expert."""

    def __init__(self, path, shape):
        self.file = open(path, "wb")
        np.lib.format.write_array_header_1_0(self.file, {"descr": "<u2", "fortran_order": False, "shape": shape})

    def write(self, values):
        self.file.write(values.data)


def write_experts(args, name, stream, shape, scale, normal):
    """One file per rank and, unless it is not wanted, one of all."""
    values = bf16_of(normal * np.float32(scale))
    path = os.path.join(args.out, name)
    full = Writer(f"{path}.full.npy", (args.experts, *shape)) if args.full else None
    first = 0
    for rank, count in enumerate(blocks(args.experts, args.ranks)):
        shard = Writer(f"{path}.{rank}.npy", (count, *shape))
        for expert in range(first, first + count):
            weights = values[random_bits(args.seed, [stream, expert], shape)]
            shard.write(weights)
            if full:
                full.write(weights)
        shard.file.close()
        first += count
    if full:
        full.file.close()


def parse():
    parser = argparse.ArgumentParser(description="Make the inputs of the example layers.")
    parser.add_argument("--text", required=True, help="file whose bytes are the tokens")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--out", required=True, help="directory")
    parser.add_argument("--tokens", type=int, default=96, help="how many bytes of the text, over all ranks (96)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-full", dest="full", action="store_false", help="leave out the *.full.npy")
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--intermediate", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--top-k", type=int, default=8)
    args = parser.parse_args()
    if not 1 <= args.ranks <= args.experts:
        parser.error(f"--ranks is {args.ranks}, but every rank needs one of the {args.experts} experts")
    if args.tokens < 1:
        parser.error(f"--tokens is {args.tokens}, but there must be one at least")
    return parser, args


def main():
    parser, args = parse()
    with open(args.text, "rb") as file:
        text = file.read(args.tokens)
    if len(text) < args.tokens:
        parser.error(f"--tokens is {args.tokens}, but {args.text} has {len(text)} bytes")
    counts = shares(len(text), args.ranks)
    if max(counts) > MOST_TOKENS:
        parser.error(f"--tokens {args.tokens} puts {max(counts)} tokens on a rank, but the graphs have room for {MOST_TOKENS}")
    os.makedirs(args.out, exist_ok=True)

    def save(name, values):
        np.save(os.path.join(args.out, name), values)

    normal = normal_quantiles()
    tokens = tokens_of(text, args.hidden, args.seed, normal)
    save("tokens.full.npy", tokens)
    for rank, part in enumerate(np.split(tokens, np.cumsum(counts)[:-1])):
        save(f"tokens.{rank}.npy", part)

    # Scales that give logits a deviation of 1.5 and outputs one of about 1.
    router = bf16_of(normal[random_bits(args.seed, [ROUTER], (args.experts, args.hidden))] * np.float32(1.5 / args.hidden**0.5))
    changed, moved = changed_router(tokens, router, args.top_k)
    save("router.npy", router)
    save("router.changed.npy", changed)
    write_experts(args, "gate_up", GATE_UP, (2 * args.intermediate, args.hidden), 1.5 / args.hidden**0.5, normal)
    write_experts(args, "down", DOWN, (args.hidden, args.intermediate), 1.5 / args.intermediate**0.5, normal)

    experts = blocks(args.experts, args.ranks)
    numbers = {
        "ranks": args.ranks,
        "tokens": len(text),
        "tokens_per_rank": counts,
        "experts_per_rank": experts,
        "max_tokens": max(counts),
        "capacity": len(text) * min(args.top_k, max(experts)),  # a token lists an expert once: no rank can get more rows
        "tokens_moved_by_changed_router": moved,
    }
    with open(os.path.join(args.out, "numbers.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=2)
        file.write("\n")
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
