#!/usr/bin/env python3
"""All-reduce, residual add and RMS norm of bf16 on two GPUs: moe.allreduce_fusion beside what can be built from PyTorch and Triton.

  in:  partial [T, H], each rank its own; residual [T, H] and weight [H], the same on both
  out: the new residual, sum over ranks of partial + residual; its RMS norm times weight

Variants
  nccl eager     dist.all_reduce, then torch's add and rms_norm
  nccl triton    dist.all_reduce, then one Triton kernel that adds and normalises
  one_shot       torch.ops.symm_mem.one_shot_all_reduce, then that kernel; the partial lies in symmetric memory already
  triton_fused   one Triton kernel: flags and pulls through symmetric memory row by row; the partial lies there already
  moert          moe.allreduce_fusion; the partial lies in ordinary memory
"""
import sys

import common  # first: it sets what libraries read when they load
import torch
import torch.distributed as dist
import torch.nn.functional as F
import triton
import triton.language as tl

import moert

EPS, SETS, CALLS = 1e-6, 4, 20
HIDDEN = (7168, 4096)


@triton.jit
def add_norm(part, residual, weight, sum_out, norm_out, eps, H: tl.constexpr, BLOCK: tl.constexpr):
    """A row per program."""
    row = tl.program_id(0).to(tl.int64) * H
    col = tl.arange(0, BLOCK)
    mask = col < H
    total = tl.load(part + row + col, mask=mask, other=0.0).to(tl.float32) + tl.load(residual + row + col, mask=mask, other=0.0).to(tl.float32)
    rounded = total.to(tl.bfloat16)
    tl.store(sum_out + row + col, rounded, mask=mask)
    z = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(z * z, axis=0) / H + eps)
    tl.store(norm_out + row + col, (z * scale * tl.load(weight + col, mask=mask, other=0.0).to(tl.float32)).to(tl.bfloat16), mask=mask)


@triton.jit
def exchange_add_norm(own, peer, residual, weight, sum_out, norm_out, flag_own, flag_peer, epochs, eps, H: tl.constexpr, BLOCK: tl.constexpr):
    """A row per program: tell the peer that this row is there, wait for the same, pull its row, add, normalise.

    Flags count calls, so that nothing is cleared. A row may be written again two calls later: the flag of the call between proves that the peer has
    read it.
    """
    program = tl.program_id(0)
    row = program.to(tl.int64) * H
    col = tl.arange(0, BLOCK)
    mask = col < H
    epoch = tl.load(epochs + program) + 1
    tl.debug_barrier()
    tl.store(epochs + program, epoch)
    tl.atomic_xchg(flag_peer + program, epoch, sem='release', scope='sys')
    mine = tl.load(own + row + col, mask=mask, other=0.0).to(tl.float32)
    before = tl.load(residual + row + col, mask=mask, other=0.0).to(tl.float32)
    while tl.atomic_add(flag_own + program, 0, sem='acquire', scope='sys') < epoch:
        pass
    rounded = ((mine + tl.load(peer + row + col, mask=mask, other=0.0).to(tl.float32)) + before).to(tl.bfloat16)
    tl.store(sum_out + row + col, rounded, mask=mask)
    z = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(z * z, axis=0) / H + eps)
    tl.store(norm_out + row + col, (z * scale * tl.load(weight + col, mask=mask, other=0.0).to(tl.float32)).to(tl.bfloat16), mask=mask)


class Shared:
    """Symmetric memory of both libraries, for the largest case."""

    def __init__(self, comm, tokens, hidden):
        from torch.distributed import _symmetric_memory as symmetric  # pylint: disable=import-outside-toplevel
        device, count, peer = torch.device('cuda', comm.device.id), SETS * tokens * hidden, 1 - comm.rank
        self.comm, self.own = comm, symmetric.empty(count, dtype=torch.bfloat16, device=device)
        self.peer = symmetric.rendezvous(self.own, group=dist.group.WORLD).get_buffer(peer, (count,), torch.bfloat16)
        self.flags = symmetric.empty(tokens, dtype=torch.int32, device=device)
        self.flags.zero_()
        self.peer_flags = symmetric.rendezvous(self.flags, group=dist.group.WORLD).get_buffer(peer, (tokens,), torch.int32)
        self.epochs = torch.zeros(tokens, dtype=torch.int32, device=device)
        self.workspace = comm.workspace(tokens, 2 * hidden, 1)
        torch.cuda.synchronize()
        dist.barrier()


class Case:
    """Buffers of one size; a variant is a function of the number of the call in the chain, and gives the sum and its norm."""

    def __init__(self, shared, tokens, hidden):
        self.shared, self.tokens, self.hidden = shared, tokens, hidden
        device = shared.own.device
        own = torch.Generator(device=device).manual_seed(10 + shared.comm.rank)
        same = torch.Generator(device=device).manual_seed(99)
        self.fresh = torch.randn(SETS, tokens, hidden, device=device, generator=own).bfloat16()
        self.residual = torch.randn(SETS, tokens, hidden, device=device, generator=same).bfloat16()
        self.weight = (1 + 0.1 * torch.randn(hidden, device=device, generator=same)).bfloat16()
        self.part, self.sum, self.norm = (torch.empty_like(self.fresh) for _ in range(3))
        self.own, self.peer = (memory[:self.fresh.numel()].view_as(self.fresh) for memory in (shared.own, shared.peer))
        self.no_experts = torch.empty(0, tokens, hidden, dtype=torch.bfloat16, device=device)
        self.no_scales = torch.empty(0, tokens, device=device)
        self.launch = {'H': hidden, 'BLOCK': triton.next_power_of_2(hidden), 'num_warps': 16 if tokens <= 128 else 8}
        self.reset()

    def reset(self):
        """All-reduces in place double their buffer at every call."""
        self.part.copy_(self.fresh)
        self.own.copy_(self.fresh)
        torch.cuda.synchronize()
        dist.barrier()

    def add_norm(self, part, k):
        add_norm[(self.tokens,)](part, self.residual[k], self.weight, self.sum[k], self.norm[k], EPS, **self.launch)
        return self.sum[k], self.norm[k]

    def nccl_eager(self, i):
        k = i % SETS
        dist.all_reduce(self.part[k])
        total = self.part[k] + self.residual[k]
        return total, F.rms_norm(total, (self.hidden,), self.weight, EPS)

    def nccl_triton(self, i):
        k = i % SETS
        dist.all_reduce(self.part[k])
        return self.add_norm(self.part[k], k)

    def one_shot(self, i):
        k = i % SETS
        return self.add_norm(torch.ops.symm_mem.one_shot_all_reduce(self.own[k], 'sum', dist.group.WORLD.group_name), k)

    def triton_fused(self, i):
        k, shared = i % SETS, self.shared
        exchange_add_norm[(self.tokens,)](self.own[k], self.peer[k], self.residual[k], self.weight, self.sum[k], self.norm[k], shared.flags,
                                          shared.peer_flags, shared.epochs, EPS, **self.launch)
        return self.sum[k], self.norm[k]

    def moert(self, i):
        k, workspace = i % SETS, self.shared.workspace
        moert.moe_allreduce_fusion(
            self.shared.comm, residual_in=self.residual[k], rms_gamma=self.weight, moe_reduction_active_experts_token_input=self.no_experts,
            moe_reduction_scale_input=self.no_scales, moe_reduction_token_input=self.fresh[k], workspace=workspace.slab, metainfo=workspace.metainfo,
            residual_out=self.sum[k], norm_out=self.norm[k], hidden_size=self.hidden, rms_eps=EPS)
        return self.sum[k], self.norm[k]

    def variants(self):
        return {'nccl eager': self.nccl_eager, 'nccl triton': self.nccl_triton, 'one_shot': self.one_shot, 'triton_fused': self.triton_fused,
                'moert': self.moert}

    def check(self, call):
        """Relative errors of both outputs, and whether the ranks have the same bits."""
        self.reset()
        total, norm = call(1)
        torch.cuda.synchronize()
        both = self.fresh.new_empty(common.WORLD, self.tokens, self.hidden)
        dist.all_gather_into_tensor(both, self.fresh[1].contiguous())
        wanted = both.double().sum(0) + self.residual[1].double()
        wanted_norm = wanted / torch.sqrt(wanted.square().mean(-1, keepdim=True) + EPS) * self.weight.double()
        errors = common.relative_error(total, wanted), common.relative_error(norm, wanted_norm)
        dist.all_gather_into_tensor(both, norm.contiguous())
        same = torch.equal(both[0].view(torch.int16), both[1].view(torch.int16))
        if not common.all_agree(max(errors) < 1e-2):
            raise RuntimeError('wrong result: relative errors %.3g and %.3g' % errors)
        return {'error_sum': errors[0], 'error_norm': errors[1], 'same_bits': same}


def records_of_case(options, case):
    def variant(name, call):
        def prepare():
            return case.check(call), common.Chain(call, CALLS, True, case.reset)

        def finish(us):
            if name == 'moert':
                case.shared.comm.check()
            return {'GB/s': 2 * case.tokens * case.hidden / us / 1e3}
        return {'variant': name, 'T': case.tokens, 'H': case.hidden}, prepare, finish

    wanted = {name: variant(name, call) for name, call in case.variants().items() if not options.only or name in options.only}
    return common.records_of(wanted, 3 if options.quick else 11)


def rank_program(options, comm):
    sizes = options.tokens or ([1, 64] if options.quick else [1, 16, 64, 128, 512, 2048])
    shared = Shared(comm, max(sizes), max(HIDDEN))
    for hidden in HIDDEN:
        for tokens in sizes:
            yield from records_of_case(options, Case(shared, tokens, hidden))


if __name__ == '__main__':
    sys.exit(common.main(__doc__, ['H', 'T', 'variant', 'us', 'us_min', 'us_max', 'GB/s', 'error_norm', 'same_bits', 'error'], rank_program))
