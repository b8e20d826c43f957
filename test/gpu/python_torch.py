#!/usr/bin/env python3
"""The Python package moert on torch tensors: two ranks as processes, on two GPUs or on one.

    MOERT_LIBRARY=.../libmoert.so python3 test/gpu/python_torch.py

Prints PASS or FAIL for each case, and "N cases"; exit status 1 if one failed.
"""
import os
import socket
import sys
import traceback

os.environ.setdefault('NCCL_NVLS_ENABLE', '0')
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'python'))

# pylint: disable=wrong-import-position
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import moert  # noqa: E402

WORLD, TOKENS, HIDDEN, EXPERTS, TOP_K = 2, 48, 256, 16, 4
LOCAL = EXPERTS // WORLD
CAPACITY = WORLD * TOKENS * TOP_K


class Layer:
    """A mixture-of-experts layer on one rank, and what it must give. The weights of all experts are the same numbers on all ranks."""

    def __init__(self, comm):
        self.comm, self.device = comm, torch.device('cuda', torch.cuda.current_device())
        same = torch.Generator(device=self.device).manual_seed(1)
        self.up = (torch.randn(EXPERTS, 2 * HIDDEN, HIDDEN, device=self.device, generator=same) / HIDDEN**0.5).bfloat16()
        self.down = (torch.randn(EXPERTS, HIDDEN, HIDDEN, device=self.device, generator=same) / HIDDEN**0.5).bfloat16()
        self.mine = slice(comm.rank * LOCAL, (comm.rank + 1) * LOCAL)
        self.workspace = comm.workspace(TOKENS, 2 * HIDDEN, 2 * HIDDEN)
        rows = lambda *shape: torch.zeros(*shape, dtype=torch.bfloat16, device=self.device)
        self.tokens, self.out = rows(TOKENS, HIDDEN), rows(TOKENS, HIDDEN)
        self.rows, self.hidden, self.results = rows(CAPACITY, HIDDEN), rows(CAPACITY, HIDDEN), rows(CAPACITY, HIDDEN)
        self.logits = torch.zeros(TOKENS, EXPERTS, device=self.device)
        self.ids = torch.zeros(TOKENS, TOP_K, dtype=torch.int32, device=self.device)
        self.weights = torch.zeros(TOKENS, TOP_K, device=self.device)
        self.offsets = torch.zeros(LOCAL + 1, dtype=torch.int32, device=self.device)

    def fill(self, seed):
        own = torch.Generator(device=self.device).manual_seed(100 * seed + self.comm.rank)
        self.tokens.copy_(torch.randn(TOKENS, HIDDEN, device=self.device, generator=own))
        self.logits.copy_(torch.randn(TOKENS, EXPERTS, device=self.device, generator=own))

    def run(self):
        comm, workspace = self.comm, self.workspace
        moert.moe_route(comm, logits=self.logits, ids=self.ids, weights=self.weights, top_k=TOP_K, n_experts=EXPERTS)
        begin = moert.moe_dispatch(comm, topk_ids=self.ids, topk_weights=self.weights, payloads=[self.tokens], workspace=workspace.slab,
                                   metainfo=workspace.metainfo, runtime_max_tokens_per_rank=TOKENS, recv=[self.rows], offsets=self.offsets,
                                   top_k=TOP_K, n_experts=EXPERTS, layout='expert_grouped')
        moert.moe_grouped_matmul(comm, rows=self.rows, offsets=self.offsets, weights=self.up[self.mine], out=self.hidden, activation='swiglu')
        moert.moe_grouped_matmul(comm, rows=self.hidden, offsets=self.offsets, weights=self.down[self.mine], out=self.results)
        moert.moe_combine(comm, payload=self.results, workspace=workspace.slab, metainfo=workspace.metainfo, runtime_max_tokens_per_rank=TOKENS,
                          combine_payload_offset=begin, out=self.out, top_k=TOP_K, hidden_size=HIDDEN, layout='expert_grouped')

    def wanted(self):
        """Every expert on every token, in double precision."""
        scores, ids = self.logits.double().softmax(1).topk(TOP_K, 1)
        both = torch.einsum('th,enh->etn', self.tokens.double(), self.up.double())
        gate, up = both[..., :HIDDEN], both[..., HIDDEN:]
        experts = torch.einsum('etn,ehn->eth', gate * gate.sigmoid() * up, self.down.double())
        chosen = experts.permute(1, 0, 2).gather(1, ids[:, :, None].expand(-1, -1, HIDDEN))
        return (chosen * scores[:, :, None]).sum(1)

    def error(self):
        wanted = self.wanted()
        return float((self.out.double() - wanted).norm() / wanted.norm())


def test_layer(comm):
    layer = Layer(comm)
    for seed in range(3):
        layer.fill(seed)
        layer.run()
        torch.cuda.synchronize()
        comm.check()
        assert layer.error() < 0.02, layer.error()


def test_capture(comm):
    layer, stream = Layer(comm), torch.cuda.Stream()
    layer.fill(0)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        layer.run()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        layer.run()
    for seed in range(1, 5):
        layer.fill(seed)
        layer.out.fill_(float('nan'))
        graph.replay()
        torch.cuda.synchronize()
        comm.check()
        assert layer.error() < 0.02, layer.error()
        replayed = layer.out.clone()
        layer.run()
        torch.cuda.synchronize()
        assert torch.equal(replayed.view(torch.int16), layer.out.view(torch.int16)), 'a replay and a call differ'


def test_allreduce_fusion(comm):
    device = torch.device('cuda', torch.cuda.current_device())
    workspace = comm.workspace(TOKENS, 2 * HIDDEN, 1)
    own, same = (torch.Generator(device=device).manual_seed(seed) for seed in (comm.rank, 99))
    part, residual = (torch.randn(TOKENS, HIDDEN, device=device, generator=g).bfloat16() for g in (own, same))
    gamma = torch.randn(HIDDEN, device=device, generator=same).bfloat16()
    total, norm = torch.empty_like(part), torch.empty_like(part)
    for _ in range(3):
        moert.moe_allreduce_fusion(
            comm, residual_in=residual, rms_gamma=gamma, moe_reduction_active_experts_token_input=part.new_empty(0, TOKENS, HIDDEN),
            moe_reduction_scale_input=torch.empty(0, TOKENS, device=device), moe_reduction_token_input=part, workspace=workspace.slab,
            metainfo=workspace.metainfo, residual_out=total, norm_out=norm, hidden_size=HIDDEN, rms_eps=1e-6)
    torch.cuda.synchronize()
    comm.check()
    parts = [None] * WORLD
    dist.all_gather_object(parts, part.float().cpu())
    wanted = sum(parts).to(device).bfloat16() + residual
    assert torch.equal(total, wanted), 'the sum is not exact'
    scale = torch.rsqrt(wanted.double().square().mean(1, keepdim=True) + 1e-6)
    assert torch.allclose(norm.double(), wanted.double() * scale * gamma.double(), rtol=0.01, atol=1e-3)


def test_streams(comm):
    """Each stream of torch gets its own context, ordered with what else runs on it."""
    device = torch.device('cuda', torch.cuda.current_device())
    assert comm.current().stream == 1, 'the default stream is the legacy stream'
    stream = torch.cuda.Stream()
    logits = torch.zeros(4, EXPERTS, device=device)
    ids, weights = torch.zeros(4, 1, dtype=torch.int32, device=device), torch.zeros(4, 1, device=device)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        assert comm.current().stream == stream.cuda_stream
        torch.cuda._sleep(20000000)  # pylint: disable=protected-access
        logits[:, 5] = 1
        moert.moe_route(comm, logits=logits, ids=ids, weights=weights, top_k=1, n_experts=EXPERTS)
    comm_context = moert.Context(comm, stream.cuda_stream)
    comm_context.synchronize()
    assert ids.flatten().tolist() == [5] * 4, ids
    comm_context.close()


def test_dlpack(comm):
    """Other libraries' tensors come by DLPack."""
    class Exporter:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self):
            return self.tensor.__dlpack__()

    device = torch.device('cuda', torch.cuda.current_device())
    logits = torch.eye(EXPERTS, device=device)
    ids, weights = torch.zeros(EXPERTS, 1, dtype=torch.int32, device=device), torch.zeros(EXPERTS, 1, device=device)
    moert.moe_route(comm, logits=Exporter(logits), ids=Exporter(ids), weights=weights, top_k=1, n_experts=EXPERTS)
    torch.cuda.synchronize()
    assert ids.flatten().tolist() == list(range(EXPERTS)), ids


def test_memory(comm):
    """Symmetric memory is a tensor of the device, and a view of a workspace too."""
    workspace = comm.workspace(TOKENS, 2 * HIDDEN, 2 * HIDDEN)
    assert workspace.slab.is_cuda and workspace.slab.dtype == torch.int8
    shape, offset = (WORLD, TOKENS, HIDDEN), int(workspace.metainfo[10])
    view = moert.moe_workspace_view(comm, workspace=workspace.slab, offset=offset, shape=shape, dtype=torch.bfloat16)
    view.fill_(1)
    assert view.shape == shape and view.float().sum() == view.numel()
    torch.cuda.synchronize()
    comm.barrier()
    workspace.free()


def raised_by(call):
    try:
        call()
    except moert.Error as error:
        return error
    raise AssertionError('no error')


def test_errors(comm):
    device = torch.device('cuda', torch.cuda.current_device())
    ids, weights = torch.zeros(4, 2, dtype=torch.int32, device=device), torch.zeros(4, 2, device=device)
    route = lambda logits: moert.moe_route(comm, logits=logits, ids=ids, weights=weights, top_k=2, n_experts=EXPERTS)
    assert raised_by(lambda: route(torch.zeros(4, EXPERTS))).name == 'MOERT_ERROR_INVALID_MEMORY'
    assert raised_by(lambda: route(torch.zeros(4, EXPERTS, dtype=torch.int32, device=device))).name == 'MOERT_ERROR_INVALID_DTYPE'
    assert raised_by(lambda: route(torch.zeros(EXPERTS, 4, device=device).t())).name == 'MOERT_ERROR_NOT_CONTIGUOUS'
    comm.check()


TESTS = (test_layer, test_capture, test_allreduce_fusion, test_streams, test_dlpack, test_memory, test_errors)


def run_test(test, comm):
    """Passed on all ranks? A rank that fails tells why; its peer must not wait for it for long."""
    failed = 0
    try:
        test(comm)
    except Exception:  # pylint: disable=broad-except
        print('rank %d: %s' % (comm.rank, traceback.format_exc()), flush=True)
        comm.report()
        failed = 1
    verdicts = [None] * WORLD
    dist.all_gather_object(verdicts, failed)
    return not any(verdicts)


def rank_main(rank, port, results):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group('gloo', init_method='tcp://127.0.0.1:%d' % port, rank=rank, world_size=WORLD)  # one GPU may have both ranks
    for test in TESTS:
        comm = moert.Comm.from_torch(timeout_ms=10000)
        passed = run_test(test, comm)
        if rank == 0:
            print('%s %s' % ('PASS' if passed else 'FAIL', test.__name__[5:]), flush=True)
            results.append(passed)
        torch.cuda.synchronize()
        dist.barrier()
        comm.close()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def main():
    if not torch.cuda.is_available():
        sys.exit('torch sees no GPU')
    results = mp.Manager().list()
    mp.spawn(rank_main, args=(free_port(), results), nprocs=WORLD)
    passed = list(results)
    print('%d cases, %d failed' % (len(passed), passed.count(False)))
    return 0 if len(passed) == len(TESTS) and all(passed) else 1


if __name__ == '__main__':
    sys.exit(main())
