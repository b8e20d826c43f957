"""skip_mode_layer.py GRAPH FOLDER: compile GRAPH, which is for 4 of its 16 experts per rank and no shared expert, for other numbers of ranks
and for a shared expert, run it, and compare what every rank gets with a dense layer, which computes every expert on every token in double
precision."""
import os
import re
import subprocess
import sys

import numpy as np

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 256, 128, 16, 4
BOUND = 0.006  # relative L2 error: rows of the hidden layer and of each expert, and the ranks' parts, are rounded to bf16


def encode(values):
    """bf16, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def decode(array):
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def swiglu(x, gate_up, down):
    both = x @ gate_up.T
    gate, up = both[:, :INTERMEDIATE], both[:, INTERMEDIATE:]
    return (gate / (1 + np.exp(-gate)) * up) @ down.T


def dense(x, router, gate_up, down, shared):
    """Experts 0 to 15 of the weights; the last is the shared one."""
    logits = x @ router.T
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    chosen = np.argsort(-scores, axis=1, kind='stable')[:, :TOP_K]
    weights = np.zeros_like(scores)
    np.put_along_axis(weights, chosen, np.take_along_axis(scores, chosen, 1), 1)
    out = sum(weights[:, [e]] * swiglu(x, gate_up[e], down[e]) for e in range(EXPERTS))
    return out + swiglu(x, gate_up[EXPERTS], down[EXPERTS]) if shared else out


class Weights:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.router = encode(rng.standard_normal((EXPERTS, HIDDEN)) * 1.5 / HIDDEN**0.5)
        self.gate_up = encode(rng.standard_normal((EXPERTS + 1, 2 * INTERMEDIATE, HIDDEN)) * 1.5 / HIDDEN**0.5)
        self.down = encode(rng.standard_normal((EXPERTS + 1, HIDDEN, INTERMEDIATE)) * 1.5 / INTERMEDIATE**0.5)
        self.gamma = encode(np.ones(HIDDEN))


def save_weights(weights, folder, ranks, shared):
    """Each rank's experts in files; the shared expert, which all have, is the first."""
    np.save(os.path.join(folder, 'router.npy'), weights.router)
    np.save(os.path.join(folder, 'gamma.npy'), weights.gamma)
    for rank, experts in enumerate(np.split(np.arange(EXPERTS), ranks)):
        mine = np.concatenate([[EXPERTS], experts]) if shared else experts
        np.save(os.path.join(folder, 'gate_up%d.npy' % rank), weights.gate_up[mine])
        np.save(os.path.join(folder, 'down%d.npy' % rank), weights.down[mine])


def compile_graph(graph, folder, ranks, shared):
    with open(graph) as file:
        text = file.read()
    text, count = re.subn(r'n_experts = 4 : i64', 'n_experts = %d : i64' % (EXPERTS // ranks), text)
    assert count == 3
    world = 'allreduce_world_size = %d : i64%s' % (ranks, ', fused_shared_expert = true' if shared else '')
    text, count = re.subn(r'allreduce_world_size = 4 : i64', world, text)
    assert count == 2
    path = os.path.join(folder, 'layer')
    with open(path + '.mlir', 'w') as file:
        file.write(text)
    subprocess.run(['moe-compile', path + '.mlir', '-o', path + '.so'], check=True)


def run_graph(folder, ranks):
    """Twice, on the same counters and workspace."""
    inputs = ['%s=%s/%s.npy' % (name, folder, file) for name, file in (
        ('tokens', 'tokens'), ('router', 'router'), ('gamma', 'gamma'), ('gate_up', 'gate_up{rank}'), ('down', 'down{rank}'))]
    outputs = ['%s=%s/%s{rank}.npy' % (name, folder, name) for name in ('out', 'residual')]
    sizes = ['C=%d' % (10 * EXPERTS // ranks + 320), 'W=%d' % ranks]
    command = ['moe-run', folder + '/layer.so', '--ranks', str(ranks), '--function', 'setup', '--function', 'layer', '--repeat', '2', '--quiet']
    for option, operands in (('--input', inputs), ('--output', outputs), ('--size', sizes)):
        for operand in operands:
            command += [option, operand]
    subprocess.run(command, check=True)


def check(folder, ranks, tokens, want):
    outs = [np.load('%s/out%d.npy' % (folder, rank)) for rank in range(ranks)]
    residuals = [np.load('%s/residual%d.npy' % (folder, rank)) for rank in range(ranks)]
    assert all(np.array_equal(out, outs[0]) for out in outs), 'ranks differ'
    assert all(np.array_equal(residual, encode(decode(outs[0]) + decode(tokens))) for residual in residuals)
    if not len(tokens):
        return 0.0
    return np.linalg.norm(decode(outs[0]) - want) / np.linalg.norm(want)


def main():
    graph, folder = sys.argv[1:]
    weights = Weights()
    router, gate_up, down = decode(weights.router), decode(weights.gate_up), decode(weights.down)
    for ranks in (1, 2, 4, 8):
        for shared in (False, True):
            case = os.path.join(folder, '%d%s' % (ranks, 'shared' if shared else ''))
            os.makedirs(case, exist_ok=True)
            save_weights(weights, case, ranks, shared)
            compile_graph(graph, case, ranks, shared)
            for count in (0, 1, 13, 64):
                tokens = encode(np.random.default_rng(count).standard_normal((count, HIDDEN)))
                np.save(os.path.join(case, 'tokens.npy'), tokens)
                run_graph(case, ranks)
                error = check(case, ranks, tokens, dense(decode(tokens), router, gate_up, down, shared))
                assert error < BOUND, (ranks, shared, count, error)
                print('%d ranks, %d tokens%s: agrees, relative error %.5f' % (ranks, count, ', shared expert' if shared else '', error))


main()
