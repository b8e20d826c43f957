#!/usr/bin/env python3
"""Expert-parallel dispatch and combine of bf16 rows on two GPUs: moe.dispatch and moe.combine beside what can be built from PyTorch and Triton.

  dispatch  in:  rows [T, H], expert ids [T, K] and weights [T, K] on the GPU; the host knows nothing of the routing
            out: the rows that came to this rank, grouped by its experts, and where each group ends
  combine   in:  a row per pair of token and local expert, grouped likewise
            out: for each token of this rank the weighted sum of its K rows

Variants
  nccl_pairs   all_to_all_single, a row per pair of token and expert, torch's sort and index ops. The split sizes are read back to the host once per
               dispatch, as they must be, so nothing can be captured
  triton_push  Triton kernels store each token at most once into the peer's symmetric memory, a barrier of torch, grouping by Triton kernels; combine
               adds locally, and pushes a row per token
  moert        moe.dispatch with the layout expert_grouped, and moe.combine

A round trip is timed, dispatch and combine: the experts between them are left out, and the rows that go back are the same in every call.
"""
import sys

import common  # first: it sets what libraries read when they load
import torch
import torch.distributed as dist
import triton
import triton.language as tl

import moert

WORLD = common.WORLD
SHAPES = ((7168, 8, 256), (4096, 6, 128))  # H, K, E


# --- Triton -----------------------------------------------------------------------------------------------------

@triton.jit
def push_rows(rows, ids, weights, rows_there, ids_there, weights_there, ids_here, weights_here, counts, num_counts, first, last,
              W: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr, CP: tl.constexpr):
    """Program (t, c) stores chunk c of token t at the peer if one of its experts is there; chunk 0 brings its ids and weights to both ranks, and
    program (0, 0) clears the counts."""
    token = tl.program_id(0)
    chunk = tl.program_id(1)
    k = tl.arange(0, KP)
    expert = tl.load(ids + token * K + k, mask=k < K, other=-1)
    if chunk == 0:
        weight = tl.load(weights + token * K + k, mask=k < K, other=0.0)
        tl.store(ids_there + token * K + k, expert, mask=k < K)
        tl.store(weights_there + token * K + k, weight, mask=k < K)
        tl.store(ids_here + token * K + k, expert, mask=k < K)
        tl.store(weights_here + token * K + k, weight, mask=k < K)
        if token == 0:
            j = tl.arange(0, CP)
            tl.store(counts + j, tl.zeros([CP], tl.int32), mask=j < num_counts)
    if tl.max(tl.where((expert >= first) & (expert < last), 1, 0), axis=0) > 0:
        col = chunk * BLOCK + tl.arange(0, BLOCK)
        at = token.to(tl.int64) * W + col
        tl.store(rows_there + at, tl.load(rows + at, mask=col < W), mask=col < W)


@triton.jit
def count_pairs(ids, counts, slots, num_pairs, first, num_experts, BLOCK: tl.constexpr):
    """The number of each pair within its local expert, -1 if it is not local."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(ids + i, mask=i < num_pairs, other=-1) - first
    local = (i < num_pairs) & (expert >= 0) & (expert < num_experts)
    slot = tl.atomic_add(counts + expert, 1, mask=local, sem='relaxed')
    tl.store(slots + i, tl.where(local, slot, -1), mask=i < num_pairs)


@triton.jit
def place_pairs(ids, counts, slots, places, num_pairs, first, num_experts, BLOCK: tl.constexpr, CP: tl.constexpr):
    """The row of each pair in the grouped output, -1 if it is not local."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.arange(0, CP)
    expert = tl.load(ids + i, mask=i < num_pairs, other=-1) - first
    slot = tl.load(slots + i, mask=i < num_pairs, other=-1)
    count = tl.load(counts + j, mask=j < num_experts, other=0)
    before = tl.sum(tl.where(j[None, :] < expert[:, None], count[None, :], 0), axis=1)
    tl.store(places + i, tl.where(slot >= 0, before + slot, -1), mask=i < num_pairs)


@triton.jit
def group_rows(rows_here, rows_came, places, out, T, rank, W: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    """Program (r * T + t, c) reads chunk c of token t of rank r once, and writes it to each of its rows."""
    row = tl.program_id(0)
    token = (row % T).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = rows_came + token * W
    if row // T == rank:
        source = rows_here + token * W
    value = tl.load(source + col, mask=col < W)
    for k in tl.static_range(K):
        place = tl.load(places + row * K + k)
        tl.store(out + place.to(tl.int64) * W + col, value, mask=(col < W) & (place >= 0))


@triton.jit
def add_pairs(y, places, weights, token, col, H: tl.constexpr, K: tl.constexpr, total):
    for k in tl.static_range(K):
        place = tl.load(places + token * K + k)
        weight = tl.load(weights + token * K + k)
        total += weight * tl.load(y + place.to(tl.int64) * H + col, mask=(col < H) & (place >= 0), other=0.0).to(tl.float32)
    return total


@triton.jit
def push_sums(y, places, weights, there, H: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr):
    """To the peer the weighted sum of each of its tokens that has a pair here."""
    token = tl.program_id(0)
    k = tl.arange(0, KP)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if tl.max(tl.load(places + token * K + k, mask=k < K, other=-1), axis=0) >= 0:
        total = add_pairs(y, places, weights, token, col, H, K, tl.zeros([BLOCK], tl.float32))
        tl.store(there + token.to(tl.int64) * H + col, total.to(tl.bfloat16), mask=col < H)


@triton.jit
def finish_sums(y, places, weights, ids, came, out, first, last, H: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr):
    """Of each of this rank's tokens the pairs here, and what the peer has pushed if it has pairs."""
    token = tl.program_id(0)
    k = tl.arange(0, KP)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(ids + token * K + k, mask=k < K, other=first)
    far = tl.max(tl.where((expert < first) | (expert >= last), 1, 0), axis=0)
    at = token.to(tl.int64) * H + col
    total = tl.load(came + at, mask=(col < H) & (far > 0), other=0.0).to(tl.float32)
    tl.store(out + at, add_pairs(y, places, weights, token, col, H, K, total).to(tl.bfloat16), mask=col < H)


# --- inputs -----------------------------------------------------------------------------------------------------

class Inputs:
    """One set of tokens with its routing."""

    def __init__(self, case, generator):
        device = case.device
        self.rows = torch.randn(case.T, case.H, device=device, generator=generator).bfloat16()
        self.ids64 = torch.rand(case.T, case.E, device=device, generator=generator).topk(case.K, dim=1).indices.contiguous()
        self.ids = self.ids64.int()
        weights = torch.rand(case.T, case.K, device=device, generator=generator) + 0.1
        self.weights = (weights / weights.sum(1, keepdim=True)).contiguous()


class Case:
    def __init__(self, comm, tokens, shape):
        self.comm, self.rank, self.T = comm, comm.rank, tokens
        self.H, self.K, self.E = shape
        self.local = self.E // WORLD
        self.first, self.capacity = self.rank * self.local, WORLD * tokens * self.K  # rows that the grouped output can hold
        self.device = torch.device('cuda', comm.device.id)
        generator = torch.Generator(device=self.device).manual_seed(1000 + self.rank)
        self.sets = [Inputs(self, generator) for _ in range(2 if tokens >= 2048 else 4)]
        self.y = torch.randn(self.capacity, self.H, device=self.device, generator=generator).bfloat16()  # for times; results do not matter

    def needed_bytes(self):
        """Distinct pairs of a token and the other rank, times the bytes of a row: what must travel in each direction, of this rank's tokens."""
        far = sum(int(((s.ids64 // self.local) != self.rank).any(1).sum()) for s in self.sets)
        return 2 * self.H * far / len(self.sets)


def expert_factor(expert):
    """The stand-in for an expert's work: a power of two of its own."""
    return torch.exp2((expert % 3 - 1).float())


# --- variants: dispatch(i) gives rows, offsets of the groups, and what combine(i, y, state) needs -------------------------

class NcclPairs:
    capturable = False

    def __init__(self, case):
        self.case = case
        self.expert_of_split = torch.arange(case.local, device=case.device).repeat(WORLD)

    @staticmethod
    def inverse(order):
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel(), device=order.device)
        return inverse

    def dispatch(self, i):
        case, s = self.case, self.case.sets[i % len(self.case.sets)]
        flat = s.ids64.view(-1)
        order = torch.argsort(flat, stable=True)
        counts = torch.bincount(flat, minlength=case.E)
        came = torch.empty_like(counts)
        dist.all_to_all_single(came, counts)
        sent_to, came_from = torch.stack([counts.view(WORLD, -1).sum(1), came.view(WORLD, -1).sum(1)]).tolist()
        got = torch.empty(sum(came_from), case.H, dtype=torch.bfloat16, device=case.device)
        dist.all_to_all_single(got, s.rows[order // case.K], came_from, sent_to)
        regroup = torch.argsort(torch.repeat_interleave(self.expert_of_split, came, output_size=sum(came_from)), stable=True)
        return got[regroup], came.view(WORLD, -1).sum(0).cumsum(0), (order, regroup, sent_to, came_from)

    def combine(self, i, y, state):
        case, s = self.case, self.case.sets[i % len(self.case.sets)]
        order, regroup, sent_to, came_from = state
        got = torch.empty(case.T * case.K, case.H, dtype=torch.bfloat16, device=case.device)
        dist.all_to_all_single(got, y[self.inverse(regroup)], sent_to, came_from)
        pairs = got[self.inverse(order)].view(case.T, case.K, case.H)
        return torch.bmm(s.weights.bfloat16().view(case.T, 1, case.K), pairs).view(case.T, case.H)


class TritonPush:
    capturable = True
    memory = {}  # symmetric, of torch; it only grows

    def __init__(self, case):
        self.case, self.num_pairs = case, WORLD * case.T * case.K
        self.words = case.H // 2  # rows move as 32-bit words
        self.slots, self.places = torch.empty(2, self.num_pairs, dtype=torch.int32, device=case.device)
        self.counts = torch.zeros(case.local, dtype=torch.int32, device=case.device)
        self.rows = torch.empty(case.capacity, case.H, dtype=torch.bfloat16, device=case.device)
        self.out = torch.empty(case.T, case.H, dtype=torch.bfloat16, device=case.device)
        self.k_padded, self.counts_padded = max(2, triton.next_power_of_2(case.K)), max(16, triton.next_power_of_2(case.local))
        self.halves = self._halves()

    def _halves(self):
        """Two parts of the memory in turn, (own, peer) each: a rank comes to the next call but one only through the barrier of the call between,
        which the other enters after it has read this one."""
        case = self.case
        sizes = [case.T * self.words, self.num_pairs, self.num_pairs, case.T * self.words]
        sizes = [(size + 63) // 64 * 64 for size in sizes]
        own, peer = self._symmetric(2 * sum(sizes))

        def parts(flat, begin):
            rows, ids, weights, sums = flat[begin:begin + sum(sizes)].split(sizes)
            return {'rows': rows, 'ids': ids[:self.num_pairs].view(WORLD, -1), 'sums': sums.view(torch.bfloat16),
                    'weights': weights[:self.num_pairs].view(torch.float32).view(WORLD, -1)}

        return [(parts(own, begin), parts(peer, begin)) for begin in (0, sum(sizes))]

    def _symmetric(self, words):
        from torch.distributed import _symmetric_memory as symmetric  # pylint: disable=import-outside-toplevel
        memory = self.memory
        if memory.get('words', 0) < words:
            own = symmetric.empty(words, dtype=torch.int32, device=self.case.device)
            handle = symmetric.rendezvous(own, group=dist.group.WORLD)
            memory.update(words=words, own=own, handle=handle, peer=handle.get_buffer(1 - self.case.rank, (words,), torch.int32))
        return memory['own'], memory['peer']

    def grid(self, tokens, width):
        return tokens, triton.cdiv(width, 1024)

    def dispatch(self, i):
        case, s = self.case, self.case.sets[i % len(self.case.sets)]
        own, peer = self.halves[i & 1]
        rank, other = case.rank, 1 - case.rank
        push_rows[self.grid(case.T, self.words)](
            s.rows.view(torch.int32), s.ids, s.weights, peer['rows'], peer['ids'][rank], peer['weights'][rank], own['ids'][rank],
            own['weights'][rank], self.counts, case.local, other * case.local, (other + 1) * case.local, W=self.words, K=case.K, KP=self.k_padded,
            BLOCK=1024, CP=self.counts_padded)
        self.memory['handle'].barrier(channel=0)
        count_pairs[(triton.cdiv(self.num_pairs, 256),)](own['ids'], self.counts, self.slots, self.num_pairs, case.first, case.local, BLOCK=256)
        place_pairs[(triton.cdiv(self.num_pairs, 64),)](own['ids'], self.counts, self.slots, self.places, self.num_pairs, case.first, case.local,
                                                        BLOCK=64, CP=self.counts_padded)
        group_rows[self.grid(WORLD * case.T, self.words)](
            s.rows.view(torch.int32), own['rows'], self.places, self.rows.view(torch.int32), case.T, rank, W=self.words, K=case.K, BLOCK=1024)
        return self.rows, self.counts, own['weights']

    def combine(self, i, y, state):
        case, s = self.case, self.case.sets[i % len(self.case.sets)]
        own, peer = self.halves[i & 1]
        rank, other, places = case.rank, 1 - case.rank, self.places.view(WORLD, -1)
        push_sums[self.grid(case.T, case.H)](y, places[other], state[other], peer['sums'], H=case.H, K=case.K, KP=self.k_padded, BLOCK=1024)
        self.memory['handle'].barrier(channel=0)
        finish_sums[self.grid(case.T, case.H)](
            y, places[rank], state[rank], s.ids, own['sums'], self.out, case.first, case.first + case.local, H=case.H, K=case.K, KP=self.k_padded,
            BLOCK=1024)
        return self.out


class Moert:
    capturable = True

    def __init__(self, case):
        self.case = case
        row = 2 * case.H
        self.workspace = case.comm.workspace(case.T, row, row)
        self.rows = torch.empty(case.capacity, case.H, dtype=torch.bfloat16, device=case.device)
        self.offsets = torch.empty(case.local + 1, dtype=torch.int32, device=case.device)
        self.out = torch.empty(case.T, case.H, dtype=torch.bfloat16, device=case.device)

    def dispatch(self, i):
        case, s = self.case, self.case.sets[i % len(self.case.sets)]
        begin = moert.moe_dispatch(
            case.comm, topk_ids=s.ids, topk_weights=s.weights, payloads=[s.rows], workspace=self.workspace.slab, metainfo=self.workspace.metainfo,
            runtime_max_tokens_per_rank=case.T, recv=[self.rows], offsets=self.offsets, top_k=case.K, n_experts=case.E, layout='expert_grouped')
        return self.rows, self.offsets[1:], begin

    def combine(self, _i, y, state):
        case = self.case
        moert.moe_combine(
            case.comm, payload=y, workspace=self.workspace.slab, metainfo=self.workspace.metainfo, runtime_max_tokens_per_rank=case.T,
            combine_payload_offset=state, out=self.out, top_k=case.K, hidden_size=case.H, layout='expert_grouped')
        return self.out

    def close(self):
        torch.cuda.synchronize()
        self.case.comm.barrier()
        self.workspace.free()


VARIANTS = {'nccl_pairs': NcclPairs, 'triton_push': TritonPush, 'moert': Moert}


# --- checking and timing --------------------------------------------------------------------------------------------

def ends_of(name, ends):
    """Where each group ends; the Triton kernels leave the counts."""
    return ends.cumsum(0) if name == 'triton_push' else ends


def check(case, name, variant):
    """A round trip in which expert e multiplies by a power of two: the error against double precision."""
    rows, ends, state = variant.dispatch(0)
    torch.cuda.synchronize()
    ends = ends_of(name, ends).long()
    count = int(ends[-1])
    expert = torch.searchsorted(ends, torch.arange(count, device=case.device), right=True) + case.first
    y = torch.zeros_like(case.y)
    y[:count] = (rows[:count].float() * expert_factor(expert)[:, None]).bfloat16()
    out = variant.combine(0, y[:count] if name == 'nccl_pairs' else y, state)
    s = case.sets[0]
    wanted = s.rows.double() * (s.weights.double() * expert_factor(s.ids64).double()).sum(1, keepdim=True)
    error = common.relative_error(out, wanted)
    if not common.all_agree(error < 1e-2):
        raise RuntimeError('wrong result: relative error %.3g' % error)
    return error


def calls_of(tokens):
    return 20 if tokens <= 128 else 8 if tokens <= 1024 else 4


def records_of_case(options, case):
    made = {}

    def variant(name):
        def prepare():
            made[name] = VARIANTS[name](case)
            error = check(case, name, made[name])

            def round_trip(i):
                rows, _, state = made[name].dispatch(i)
                made[name].combine(i, case.y[:rows.shape[0]], state)
            return {'captured': made[name].capturable, 'error_combine': error}, common.Chain(round_trip, calls_of(case.T), made[name].capturable)

        def finish(us):
            if name == 'moert':
                case.comm.check()
            return {'GB/s': 2 * case.needed_bytes() / us / 1e3}  # there and back
        return {'variant': name, 'T': case.T, 'H': case.H, 'K': case.K, 'E': case.E}, prepare, finish

    records = common.records_of({name: variant(name) for name in options.only or VARIANTS}, 3 if options.quick else 11)
    for record in records:
        if 'error' not in record and hasattr(made[record['variant']], 'close'):
            made[record['variant']].close()
    torch.cuda.empty_cache()
    return records


def rank_program(options, comm):
    for shape in SHAPES:
        for tokens in options.tokens or ([8, 512] if options.quick else [1, 8, 32, 128, 512, 2048]):
            yield from records_of_case(options, Case(comm, tokens, shape))


COLUMNS = ['H', 'K', 'E', 'T', 'variant', 'captured', 'us', 'us_min', 'us_max', 'GB/s', 'error_combine', 'error']

if __name__ == '__main__':
    sys.exit(common.main(__doc__, COLUMNS, rank_program))
