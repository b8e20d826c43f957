#!/usr/bin/env python3
"""A matrix product beside moe.dispatch and moe.combine on two GPUs: how much of the chip do they leave to it?

  product   torch.matmul of two matrices 8192 x 8192 of bf16, again and again on one stream
  exchange  moe.dispatch and moe.combine in turn on another stream, of higher priority, with `max_sms` n: rows of 7168 bf16, ids and weights,
            received in place; top 8 of 256 experts; 4096 tokens of each rank

The exchange begins before the first product and ends behind the last. `share` is the product's speed beside the exchange in parts of its speed alone,
and `of_rest` that in parts of (SMs - n) / SMs: 1 where the exchange takes exactly what it was given. Samples of both alternate, since long runs of
products lower the clocks. The last round trips of `round_trip_beside_us` have no product beside them.
"""
import statistics
import sys

import common  # first: it sets what libraries read when they load
import torch
import torch.distributed as dist

import moert

WORLD = common.WORLD
H, K, E, SIZE = 7168, 8, 256, 8192
PAYLOAD_DATA = 9  # of metainfo
MAX_SMS = (4, 8, 12, 16, 0)  # 0: as many as the ops can use
PRODUCTS, ROUND_TRIPS = 16, 10  # in a graph


class Exchange:
    """Dispatch and combine on a workspace of their own."""

    def __init__(self, comm, tokens, max_sms):
        device = torch.device('cuda', comm.device.id)
        generator = torch.Generator(device=device).manual_seed(1000 + comm.rank)
        self.comm, self.tokens, self.max_sms = comm, tokens, max_sms
        self.rows = torch.randn(tokens, H, device=device, generator=generator).bfloat16()
        self.ids = torch.rand(tokens, E, device=device, generator=generator).topk(K, dim=1).indices.int()
        self.weights = torch.rand(tokens, K, device=device, generator=generator)
        self.result = torch.randn(WORLD, tokens, H, device=device, generator=generator).bfloat16()
        self.out = torch.empty(tokens, H, dtype=torch.bfloat16, device=device)
        self.counts = torch.empty(WORLD, dtype=torch.int32, device=device)
        self.payloads = [self.rows, self.ids, self.weights]
        row_bytes = [payload[0].nbytes for payload in self.payloads]
        self.workspace = comm.workspace(tokens, sum(row_bytes), row_bytes[0])
        self.received = self._areas(row_bytes)

    def _areas(self, row_bytes):
        """Where the payloads arrive."""
        areas, offset = [], int(self.workspace.metainfo[PAYLOAD_DATA])
        for payload, row, dtype in zip(self.payloads, row_bytes, ('bf16', 'i32', 'f32')):
            areas.append(moert.moe_workspace_view(self.comm, workspace=self.workspace.slab, offset=offset,
                                                  shape=(WORLD, self.tokens, payload.shape[1]), dtype=dtype))
            offset = (offset + WORLD * self.tokens * row + 127) // 128 * 128
        return areas

    def round_trip(self, _i):
        both = {'workspace': self.workspace.slab, 'metainfo': self.workspace.metainfo, 'runtime_max_tokens_per_rank': self.tokens, 'top_k': K,
                'max_sms': self.max_sms}
        begin = moert.moe_dispatch(self.comm, topk_ids=self.ids, payloads=self.payloads, recv=self.received, recv_counts=self.counts, n_experts=E,
                                   **both)
        moert.moe_combine(self.comm, payload=self.result, combine_payload_offset=begin, out=self.out, hidden_size=H, **both)

    def check(self):
        """Every received row, and every sum: of two terms, which have no order. Collective."""
        self.round_trip(0)
        torch.cuda.synchronize()
        rank, sums = self.comm.rank, torch.zeros_like(self.out, dtype=torch.float32)
        everyone = [[torch.empty_like(part) for _ in range(WORLD)] for part in (self.rows, self.ids, self.result)]
        for parts, part in zip(everyone, (self.rows, self.ids, self.result)):
            dist.all_gather(parts, part)
        right = True
        for peer, (rows, ids, result) in enumerate(zip(*everyone)):
            comes, goes = ((ids // (E // WORLD)) == rank).any(1), ((self.ids // (E // WORLD)) == peer).any(1)
            right &= int(self.counts[peer]) == int(comes.sum()) and torch.equal(self.received[0][peer, :int(comes.sum())], rows[comes])
            sums[goes] += result[rank, :int(goes.sum())].float()
        if not common.all_agree(right and torch.equal(self.out, sums.bfloat16())):
            raise RuntimeError('wrong result')

    def close(self):
        torch.cuda.synchronize()
        self.comm.barrier()
        self.workspace.free()


class Product:
    def __init__(self, device):
        self.a, self.b = (torch.randn(SIZE, SIZE, device=device).bfloat16() for _ in range(2))
        self.c = torch.empty(SIZE, SIZE, dtype=torch.bfloat16, device=device)

    def multiply(self, _i):
        torch.matmul(self.a, self.b, out=self.c)


class Pair:
    """The graphs of both, and what they take alone and together."""

    def __init__(self, product, exchange):
        self.product, self.exchange = common.Chain(product.multiply, PRODUCTS, True), common.Chain(exchange.round_trip, ROUND_TRIPS, True)
        self.fast = torch.cuda.Stream(priority=-1)
        self.repeats = 1  # of the exchange's graph, so that it ends behind the products
        self.tiny = torch.zeros(1, device='cuda')

    def sample(self, with_product, with_exchange):
        """Microseconds of a product and of a round trip, and whether the exchange ended clearly behind the products."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        torch.cuda.synchronize()
        with torch.cuda.stream(self.fast):
            dist.all_reduce(self.tiny)  # lines the ranks up
            events[0].record()
            for _ in range(self.repeats if with_exchange else 0):
                self.exchange.graph.replay()
            events[1].record()
        with torch.cuda.stream(self.product.stream):
            self.product.stream.wait_event(events[0])
            events[2].record()
            if with_product:
                self.product.graph.replay()
            events[3].record()
        torch.cuda.synchronize()
        product_us = 1e3 * events[2].elapsed_time(events[3]) / PRODUCTS
        trip_us = 1e3 * events[0].elapsed_time(events[1]) / (self.repeats * ROUND_TRIPS)
        return product_us, trip_us, events[3].elapsed_time(events[1]) > 0.1 * events[2].elapsed_time(events[3])

    def settle(self):
        """The same number of repeats on all ranks."""
        while not common.all_agree(self.sample(True, True)[2]):
            self.repeats *= 2
            if self.repeats > 4096:
                raise RuntimeError('the products wait for the exchange: nothing runs beside it')

    def measure(self, samples):
        """Medians on the slower rank: a product alone and beside, a round trip alone and beside."""
        times = []
        for _ in range(samples):
            alone, beside = self.sample(True, False), self.sample(True, True)
            times.append((alone[0], beside[0], self.sample(False, True)[1], beside[1]))
        medians = torch.tensor([statistics.median(column) for column in zip(*times)], dtype=torch.float64, device='cuda')
        dist.all_reduce(medians, op=dist.ReduceOp.MAX)
        return medians.tolist()


def record_of(comm, tokens, max_sms, product, samples):
    exchange = Exchange(comm, tokens, max_sms)
    exchange.check()
    pair = Pair(product, exchange)
    pair.settle()
    alone, beside, trip_alone, trip_beside = pair.measure(samples)
    comm.check()
    exchange.close()
    sms = torch.cuda.get_device_properties(comm.device.id).multi_processor_count
    record = {'T': tokens, 'max_sms': max_sms or 'all', 'product_us': alone, 'product_beside_us': beside, 'share': alone / beside,
              'round_trip_us': trip_alone, 'round_trip_beside_us': trip_beside}
    if max_sms:
        record['of_rest'] = alone / beside * sms / (sms - max_sms)
    return record


def rank_program(options, comm):
    product = Product(torch.device('cuda', comm.device.id))
    for tokens in options.tokens or [4096]:
        for max_sms in (8, 12) if options.quick else MAX_SMS:
            yield record_of(comm, tokens, max_sms, product, 3 if options.quick else 11)


COLUMNS = ['T', 'max_sms', 'product_us', 'product_beside_us', 'share', 'of_rest', 'round_trip_us', 'round_trip_beside_us']

if __name__ == '__main__':
    sys.exit(common.main(__doc__, COLUMNS, rank_program))
