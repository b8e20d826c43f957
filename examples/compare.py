#!/usr/bin/env python3
"""Put the outputs of all ranks together and compare them with the output of one rank that did everything.

    compare.py --ranks 4 --got DIR/out.{rank}.npy --want DIR/out.full.npy [--bound 0.01]

Prints the relative error, |got - want| / |want| with the Euclidean norm. Exits 1 if it exceeds the bound or is not a number, or if the sizes differ.
"""
import argparse
import sys

import numpy as np


def load(path):
    """A .npy file in double precision; uint16 is bf16."""
    values = np.load(path)
    if values.dtype == np.uint16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def gather(pattern, ranks):
    return np.concatenate([load(pattern.replace("{rank}", str(rank))) for rank in range(ranks)])


def relative_error(got, want):
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def main():
    parser = argparse.ArgumentParser(description="Compare the outputs of several ranks with those of one.")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--got", required=True, help="path with {rank} in it")
    parser.add_argument("--want", required=True)
    parser.add_argument("--bound", type=float, default=0.01)
    args = parser.parse_args()
    got, want = gather(args.got, args.ranks), load(args.want)
    if got.shape != want.shape:
        print(f"compare.py: {args.ranks} ranks gave {list(got.shape)}, but {args.want} is {list(want.shape)}")
        return 1
    error = relative_error(got, want)
    within = error <= args.bound  # false for NaN
    print(f"{len(got)} tokens of {args.ranks} ranks: relative error {error:.3e} {'<=' if within else '> '} {args.bound:g}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
