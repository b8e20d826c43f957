#!/usr/bin/env python3
"""The layer that examples/c/build_layer builds is that of examples/moe_layer.mlir: it lowers to the same code, and gives the same bits.

    compare_layers.py BIN SOURCE SCRATCH

BIN has build_layer, moe-compile and moe-run. The layers are compared at their full size, and run at a reduced one, for which the sizes in the text are
replaced.
"""
import json
import os
import re
import subprocess
import sys

binaries, source, scratch = map(os.path.abspath, sys.argv[1:])
HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 32, 16, 4
RANKS, TOKENS = 3, 40


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s: exit status %d\n%s%s" % (" ".join(map(str, command)), done.returncode, done.stdout, done.stderr))
    return done.stdout


def tool(name, *arguments):
    return run(os.path.join(binaries, name), *arguments)


def path(name):
    return os.path.join(scratch, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


def reduced(text):
    """The text's layer at the reduced sizes. Twice the intermediate size is the hidden size, there as here."""
    text = re.sub(r"//.*", "", text)
    for pattern, size in ((r"\b4096\b", 2 * HIDDEN), (r"2048", HIDDEN), (r"1024", INTERMEDIATE), (r"(?<=[<x])64(?=x)|(?<=n_experts = )64", EXPERTS),
                          (r"(?<=\?x)8(?=x)|(?<=top_k = )8", TOP_K)):
        text, count = re.subn(pattern, "@%d@" % size, text)  # marked, so that no later pattern meets it
        assert count > 0, pattern
    return re.sub(r"@(\d+)@", r"\1", text)


def lowered(graph):
    return tool("moe-compile", graph, "--emit", "mlir", "-o", "-")


def expect_equal(what, built, written):
    if built != written:
        sys.exit("compare_layers.py: %s differ: see %s and %s" % (what, write("built.txt", built), write("written.txt", written)))


def make_inputs():
    run(sys.executable, os.path.join(source, "examples", "make_inputs.py"), "--text", os.path.join(source, "examples", "README.md"), "--ranks", RANKS,
        "--tokens", TOKENS, "--hidden", HIDDEN, "--intermediate", INTERMEDIATE, "--experts", EXPERTS, "--top-k", TOP_K, "--no-full", "--out", scratch)
    with open(path("numbers.json"), encoding="utf-8") as file:
        return json.load(file)


def outputs(name, graph, numbers):
    tool("moe-compile", graph, "-o", path(name + ".so"))
    inputs = {"tokens": path("tokens.{rank}.npy"), "router": path("router.npy"), "gate_up": path("gate_up.{rank}.npy"), "down": path("down.{rank}.npy"),
              "max_tokens": numbers["max_tokens"], "capacity": numbers["capacity"]}
    options = [option for key, value in inputs.items() for option in ("--input", "%s=%s" % (key, value))]
    tool("moe-run", path(name + ".so"), "--function", "setup", "--function", "layer", "--ranks", RANKS, *options, "--output",
         "out=" + path(name + ".{rank}.npy"))
    contents = []
    for rank in range(RANKS):
        with open(path("%s.%d.npy" % (name, rank)), "rb") as file:
            contents.append(file.read())
    return contents


def main():
    os.makedirs(scratch, exist_ok=True)
    layer = os.path.join(source, "examples", "moe_layer.mlir")
    expect_equal("the full layers", lowered(write("full.mlir", tool("build_layer"))), lowered(layer))

    sizes = (HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
    with open(layer, encoding="utf-8") as file:
        written = write("written.mlir", reduced(file.read()))
    built = write("built.mlir", tool("build_layer", *sizes))
    expect_equal("the reduced layers", lowered(built), lowered(written))
    expect_equal("the pipeline of build_layer and that of moe-compile", tool("build_layer", "--lowered", *sizes), lowered(built))

    numbers = make_inputs()
    got, want = outputs("built", built, numbers), outputs("written", written, numbers)
    if got != want or len(set(want)) != RANKS:
        sys.exit("compare_layers.py: the outputs differ")
    print("compare_layers.py: OK, %d bytes of outputs" % sum(map(len, got)))


if __name__ == "__main__":
    main()
