#===- finalize_allreduce_fusion.py - moe.finalize_allreduce_fusion against NumPy ------------------===#
#
# This rank's part by choices; what becomes of the parts is modelled in allreduce_fusion.py. Bits are compared.
#
#===----------------------------------------------------------------------------------------------===#
import itertools

import numpy as np

from all_to_all import Workspace, poisoned, random_values, same_bits
from allreduce_fusion import Case, EPSILON, FACTORED, add_ranks, code_buffers, f32, finish, fma, rounded, typed_output
from moert import decode, encode, expect_error, run_ranks, run_tests, typed

OUTPUTS = ('residual_out', 'norm_out')


def part_of(case, inputs, rank):
    with np.errstate(invalid='ignore', over='ignore'):
        part = np.zeros((case.tokens, case.hidden))
        for k in range(inputs.indices[rank].shape[1]):
            index = inputs.indices[rank][:, k]
            there = index >= 0
            row = decode(inputs.rows[rank], case.dtype)[np.where(there, index, 0)] if len(inputs.rows[rank]) else np.zeros_like(part)
            part = np.where(there[:, None], add_choice(case, inputs, rank, k, row, part), part)
        if inputs.factor != 1:
            part = f32(part * f32(inputs.factor))
            part = part if case.fp32_acc else rounded(part, case.dtype)
        if inputs.shared[rank] is not None:
            part = f32(part + decode(inputs.shared[rank], case.dtype))
    return part if case.fp32_acc else rounded(part, case.dtype)


def add_choice(case, inputs, rank, k, row, part):
    if inputs.scales[rank] is None:
        return f32(part + row) if case.fp32_acc else rounded(f32(part + row), case.dtype)
    scale = decode(inputs.scales[rank], case.scale_dtype)[:, k:k + 1]
    if case.fp32_acc:
        return fma(row, scale, part)
    return rounded(f32(part + rounded(f32(row * scale), case.dtype)), case.dtype)


class AllInputs:
    def __init__(self, case, seed, top_k, factor=1.0, scaled=True, has_shared=True):
        rng = np.random.default_rng(seed)
        special = case.special == 'numbers'
        shape = (case.tokens, case.hidden)
        self.case, self.factor, self.ranks = case, factor, range(case.ranks)
        self.rows = [random_values(rng, (case.room, case.hidden), case.dtype, special) for _ in self.ranks]
        self.indices = [rng.integers(-1, max(case.room, 0), (case.tokens, top_k)).astype(np.int32) for _ in self.ranks]
        self.scales = [encode(rng.standard_normal((case.tokens, top_k)), case.scale_dtype) if scaled else None for _ in self.ranks]
        self.shared = [random_values(rng, shape, case.dtype, special) if has_shared else None for _ in self.ranks]
        self.residual = random_values(rng, shape, case.dtype, special)
        self.gamma = encode(rng.standard_normal(case.hidden), case.dtype)


def call(workspace, case, inputs, **changed):
    rank, dtype = workspace.rank.rank, case.dtype
    residual = inputs.residual.copy()
    outputs = {name: poisoned((case.tokens, case.hidden), dtype) for name in case.outputs}
    if case.in_place:
        outputs['residual_out'] = residual
    outputs.update(code_buffers(case))
    named = dict(residual_in=typed(residual, dtype), norm_weight=typed(inputs.gamma, dtype), allreduce_in=typed(inputs.rows[rank], dtype),
                 expanded_idx_to_permuted_idx=typed(inputs.indices[rank], 'i32'),
                 expert_scale_factor=None if inputs.scales[rank] is None else typed(inputs.scales[rank], case.scale_dtype),
                 shared_expert_output=None if inputs.shared[rank] is None else typed(inputs.shared[rank], dtype),
                 hidden_size=case.hidden, rms_eps=case.rms_eps, weight_bias=case.weight_bias, fp32_acc=case.fp32_acc,
                 routed_scaling_factor=inputs.factor, quant_format=case.quant_format, layout_code=case.layout, scale_factor=case.factor,
                 strategy=case.strategy, **{name: typed_output(case, name, array) for name, array in outputs.items()}, **workspace.operands())
    workspace.rank.op('moe.finalize_allreduce_fusion', **{**named, **changed})
    return outputs


def play(case, seed=0, repeats=2, **others):
    """By all ranks the bits of the model, each time."""
    inputs = AllInputs(case, seed, **others)
    want = finish(case, add_ranks(case, [part_of(case, inputs, rank) for rank in range(case.ranks)]), decode(inputs.residual, case.dtype),
                  decode(inputs.gamma, case.dtype))

    def rank_main(rank):
        workspace = Workspace(rank, max(case.tokens, 1), case.row_bytes(), 1)
        for _ in range(repeats):
            got = call(workspace, case, inputs)
            for name in case.outputs:
                assert same_bits(got[name], want[name], case.dtype), (case, others, name)
            for name in case.written()[len(case.outputs):]:
                assert np.array_equal(got[name].view(np.uint8), want[name].view(np.uint8)), (case, others, name)

    run_ranks(case.ranks, rank_main, timeout_ms=20000)


def test_ranks():
    for ranks, fp32_acc, tokens in itertools.product((1, 2, 3, 8, 16), (False, True), (0, 1, 5)):
        play(Case(ranks, tokens, 64, room=7, fp32_acc=fp32_acc, outputs=OUTPUTS), seed=ranks, top_k=3)


def test_variants():
    """Types, with and without scales, factor and shared expert, numbers that are none and infinities."""
    for dtype, scale_dtype, fp32_acc, special in itertools.product(EPSILON, EPSILON, (False, True), ('', 'numbers')):
        for scaled, has_shared, factor in itertools.product((False, True), (False, True), (1.0, 2.5)):
            play(Case(2, 4, 40, dtype, scale_dtype, room=9, fp32_acc=fp32_acc, special=special, outputs=OUTPUTS), seed=1, repeats=1, top_k=4,
                 factor=factor, scaled=scaled, has_shared=has_shared)


def test_choices():
    """None, one, more than a batch; no rows at all."""
    for top_k, room in itertools.product((0, 1, 2, 8, 40), (0, 1, 50)):
        play(Case(2, 3, 72, room=room, outputs=OUTPUTS, in_place=True), seed=top_k, top_k=top_k)


def test_hidden_sizes():
    for hidden in (8, 264, 2880, 7168, 8200):
        play(Case(2, 2, hidden, room=5, outputs=OUTPUTS, weight_bias=1.0), seed=hidden, repeats=1, top_k=2)


def test_codes():
    for quant_format in ('nvfp4', 'mxfp4', 'mxfp8', 'fp8_block', 'fp8_token', 'fp8_tensor'):
        factor = 3.75 if quant_format in FACTORED else 1.0
        for outputs in ((), OUTPUTS):
            play(Case(2, 5, 96, room=9, quant_format=quant_format, factor=factor, outputs=outputs), seed=3, top_k=3)


def test_indices():
    """One that names no row is an error of the call, and of no other one."""
    case = Case(1, 3, 16, room=4, outputs=OUTPUTS)
    inputs = AllInputs(case, 0, top_k=2)

    def rank_main(rank):
        workspace = Workspace(rank, 3, 32, 1)
        for value in (4, -2):
            bad = inputs.indices[0].copy()
            bad[2, 1] = value
            expect_error('MOERT_ERROR_DATA',
                         "moe.finalize_allreduce_fusion: operand 'expanded_idx_to_permuted_idx' holds %d for token 2, slot 1, must be at least -1 and "
                         "less than 4, dimension 0 of 'allreduce_in'" % value, call, workspace, case, inputs,
                         expanded_idx_to_permuted_idx=typed(bad, 'i32'))
        call(workspace, case, inputs)

    run_ranks(1, rank_main)


if __name__ == '__main__':
    run_tests(globals())
