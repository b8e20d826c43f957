#!/usr/bin/env python3
"""The Python package moert on the host backend: arrays, ops, errors, ranks as threads and as processes."""
import multiprocessing
import os
import signal
import threading
import unittest

import numpy as np

import moert

HIDDEN, EXPERTS, TOP_K, TOKENS = 8, 8, 2, 6


# --- ranks ----------------------------------------------------------------------------------------------

def run_threads(size, function, **options):
    """What function(comm) returned on each rank; an exception stands for it."""
    comms, results = moert.Comm.threads(size, **options), [None] * size

    def work(rank):
        try:
            results[rank] = function(comms[rank])
        except Exception as error:  # pylint: disable=broad-except
            results[rank] = error

    workers = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for comm in comms:
        comm.close()
    return results


class Meeting:
    """How processes of this test exchange bytes."""
    SLOT = 1 << 16

    def __init__(self, size):
        self.size, self.barrier, self.memory = size, multiprocessing.Barrier(size), multiprocessing.RawArray('B', size * self.SLOT)

    def allgather(self, rank, mine):
        self.memory[rank * self.SLOT:rank * self.SLOT + len(mine)] = mine
        self.barrier.wait(30)
        parts = [bytes(self.memory[r * self.SLOT:r * self.SLOT + len(mine)]) for r in range(self.size)]
        self.barrier.wait(30)
        return parts


def process_main(rank, meeting, function, options, results):
    try:
        with moert.Comm.process(rank, meeting.size, lambda mine: meeting.allgather(rank, mine), **options) as comm:
            results.put((rank, function(comm)))
    except Exception as error:  # pylint: disable=broad-except
        results.put((rank, '%s: %s' % (type(error).__name__, error)))


def run_processes(size, function, ended=(), **options):
    meeting, results = Meeting(size), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=process_main, args=(rank, meeting, function, options, results)) for rank in range(size)]
    for worker in workers:
        worker.start()
    found = dict(results.get(timeout=60) for _ in range(size - len(ended)))
    for worker in workers:
        worker.join()
    return [found.get(rank) for rank in range(size)]


# --- what ranks do ----------------------------------------------------------------------------------------

def tokens_of(rank):
    generator = np.random.default_rng(rank)
    count = (TOKENS, 0, 1, 3)[rank % 4]
    ids = np.stack([generator.choice(EXPERTS, TOP_K, False) for _ in range(count)]).astype(np.int32) if count else np.zeros((0, TOP_K), np.int32)
    return ids, generator.random((count, TOP_K), np.float32), generator.standard_normal((count, HIDDEN)).astype(np.float32)


def exchange(comm):
    """Every expert doubles its rows: each token comes back times twice the sum of its weights."""
    ids, weights, tokens = tokens_of(comm.rank)
    row = 4 * HIDDEN
    workspace = comm.workspace(TOKENS, row, row)
    capacity = comm.size * TOKENS * TOP_K
    rows, offsets = np.full((capacity, HIDDEN), np.nan, np.float32), np.empty(EXPERTS // comm.size + 1, np.int32)
    doubled, out = np.empty_like(rows), np.empty_like(tokens)
    for _ in range(3):
        begin = moert.moe_dispatch(comm, topk_ids=ids, topk_weights=weights, payloads=[tokens], workspace=workspace.slab, metainfo=workspace.metainfo,
                                   runtime_max_tokens_per_rank=TOKENS, recv=[rows], offsets=offsets, top_k=TOP_K, n_experts=EXPERTS,
                                   layout='expert_grouped')
        doubled[:] = 2 * rows
        moert.moe_combine(comm, payload=doubled, workspace=workspace.slab, metainfo=workspace.metainfo, runtime_max_tokens_per_rank=TOKENS,
                          combine_payload_offset=begin, out=out, top_k=TOP_K, hidden_size=HIDDEN, layout='expert_grouped')
    workspace.free()
    comm.barrier()
    return np.allclose(out, 2 * tokens * weights.sum(1, keepdims=True), rtol=1e-6) or out.tolist()


def exchange_codes(comm):
    """Tokens go to their ranks and come back as the codes of their sums; the counts of every rank's experts go to all."""
    counts = [np.bincount(tokens_of(rank)[0].ravel(), minlength=EXPERTS).astype(np.int32) for rank in range(comm.size)]
    ids, row = tokens_of(comm.rank)[0], 4 * 32
    tokens = np.random.default_rng(comm.rank).standard_normal((len(ids), 32)).astype(np.float32)
    received, gathered = np.empty((comm.size, TOKENS, 32), np.float32), np.full((comm.size, EXPERTS), -1, np.int32)
    workspace = comm.workspace(TOKENS, row, row, eplb_stats_num_experts=EXPERTS)
    common = {'workspace': workspace.slab, 'metainfo': workspace.metainfo, 'runtime_max_tokens_per_rank': TOKENS, 'top_k': TOP_K}

    def there_and_back(**outputs):
        begin = moert.moe_dispatch(comm, topk_ids=ids, payloads=[tokens], recv=[received], eplb_local_stats=counts[comm.rank],
                                   eplb_gathered_stats=gathered, n_experts=EXPERTS, **common)
        moert.moe_combine(comm, payload=received, combine_payload_offset=begin, hidden_size=32, **common, **outputs)

    sums = np.empty_like(tokens)
    codes, wanted = np.empty((2, len(ids), 16), np.int8)
    scales, wanted_scales = np.full((2, 8 if len(ids) else 0, 4), 0x55, np.uint8)
    there_and_back(out=sums)
    there_and_back(out=codes, output_scales=scales, output_format='nvfp4', sf_layout='8x4')
    moert.moe_quantize(comm, input=sums, values=wanted, scales=wanted_scales, format='nvfp4', scale_layout='8x4')
    workspace.free()
    comm.barrier()
    return np.array_equal(gathered, counts) and np.array_equal(codes, wanted) and np.array_equal(scales, wanted_scales)


def exchange_among(comm):
    """Even ranks and odd ones leave each other out: what goes to the others is lost, and counts 0."""
    mine = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2]
    ids, _, tokens = tokens_of(comm.rank)
    workspace = comm.workspace(TOKENS, 4 * HIDDEN, 4 * HIDDEN)
    received, counts = np.empty((comm.size, TOKENS, HIDDEN), np.float32), np.full(comm.size, -1, np.int32)
    common = {'workspace': workspace.slab, 'metainfo': workspace.metainfo, 'runtime_max_tokens_per_rank': TOKENS, 'top_k': TOP_K,
              'active_rank_mask': sum(1 << rank for rank in mine)}
    out = np.empty_like(tokens)
    for options in ({}, {'max_sms': 8, 'enable_pdl': False}):
        begin = moert.moe_dispatch(comm, topk_ids=ids, payloads=[tokens], recv=[received], recv_counts=counts, n_experts=EXPERTS, **options, **common)
        moert.moe_combine(comm, payload=received, combine_payload_offset=begin, out=out, hidden_size=HIDDEN, **options, **common)
    owners = [[{expert // (EXPERTS // comm.size) for expert in row} & set(mine) for row in tokens_of(rank)[0].tolist()] for rank in range(comm.size)]
    wanted = [sum(comm.rank in row for row in owners[rank]) if rank in mine else 0 for rank in range(comm.size)]
    workspace.free()
    comm.barrier()
    return counts.tolist() == wanted and np.array_equal(out, tokens * np.array([len(row) for row in owners[comm.rank]], np.float32).reshape(-1, 1))


def die(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier(20000)


# --- tests ------------------------------------------------------------------------------------------------

class Arrays(unittest.TestCase):
    def setUp(self):
        self.comm, = moert.Comm.threads(1)
        self.addCleanup(self.comm.close)

    def route(self, logits, **more):
        ids, weights = np.zeros((2, TOP_K), np.int32), np.zeros((2, TOP_K), np.float32)
        moert.moe_route(self.comm, logits=logits, ids=ids, weights=weights, **{'top_k': TOP_K, 'n_experts': EXPERTS, **more})
        return ids, weights

    def test_numpy_typed_and_dlpack_are_the_same(self):
        class Exporter:  # an array that only DLPack knows
            def __init__(self, array):
                self.array = array

            def __dlpack__(self):
                return self.array.__dlpack__()

        logits = np.arange(16, dtype=np.float32).reshape(2, 8) % 5
        wanted = self.route(logits)
        np.testing.assert_array_equal(wanted[0], [[4, 3], [1, 6]])
        bf16 = moert.typed((logits.view(np.uint32) >> 16).astype(np.uint16), 'bf16')
        for value in (Exporter(logits), bf16, moert.typed(bf16.array, 'bfloat16')):
            for found, expected in zip(self.route(value), wanted):
                np.testing.assert_array_equal(found, expected)

    def test_arrays_that_do_not_fit(self):
        with self.assertRaisesRegex(TypeError, 'list is no array: a torch tensor, a NumPy array or an object with __dlpack__ is needed'):
            self.route([[1, 2]])
        with self.assertRaisesRegex(TypeError, 'element type complex64 is not one that libmoert knows'):
            self.route(np.zeros((2, 8), np.complex64))
        with self.assertRaisesRegex(TypeError, 'elements of bf16 have 16 bits, those of the array 32'):
            moert.typed(np.zeros(2, np.float32), 'bf16')
        with self.assertRaises(moert.Error) as raised:
            self.route(np.zeros((2, 16), np.float32)[:, ::2])
        self.assertEqual(raised.exception.name, 'MOERT_ERROR_NOT_CONTIGUOUS')

    def test_rows_that_are_no_whole_number_of_elements_apart(self):
        rows = np.zeros(2, [('logits', np.float32, 8), ('flag', np.int16)])['logits']
        self.assertEqual(rows.strides, (34, 4))
        wanted = 'dimension 0 of the array steps by 34 bytes, must step by a multiple of the 4 bytes of an element: copy the array'
        for value in (rows, moert.typed(rows, 'f32')):
            with self.assertRaisesRegex(ValueError, wanted):
                self.route(value)
        values, scales = np.zeros((1, 8), np.int8), np.zeros((1, 1), np.float32)
        moert.moe_quantize(self.comm, input=rows[:1], values=values, scales=scales, format='fp8_token')  # one row has no distance

    def test_quantize_and_dequantize_with_rows_apart(self):
        magnitudes = np.array([6, 0, 0.5, -1, 1.5, -2, 3, -4] * 4, np.float32)  # those of E2M1, which every format holds
        wide = np.full((5, 40), np.nan, np.float32)
        rows = wide[:, 4:36]
        rows[:] = magnitudes * np.float32([1, 4, 0.25, 64, 16])[:, None]
        for name, block, width in (('nvfp4', 16, 16), ('mxfp4', 32, 16), ('mxfp8', 32, 32)):
            codes, scales, back = np.zeros((5, width), np.int8), np.zeros((5, 32 // block), np.uint8), np.zeros((5, 32), np.float32)
            moert.moe_quantize(self.comm, input=rows, values=codes, scales=scales, format=name)
            apart = np.full((5, width + 14), 0x77, np.int8)[:, 7:7 + width]
            apart[:] = codes
            moert.moe_dequantize(self.comm, values=apart, scales=scales, out=back, format=name)
            np.testing.assert_array_equal(back, rows)
        with self.assertRaises(moert.Error) as raised:  # what is written has no gaps
            moert.moe_dequantize(self.comm, values=codes, scales=scales, out=wide[:, :32], format='mxfp8')
        self.assertEqual(raised.exception.name, 'MOERT_ERROR_NOT_CONTIGUOUS')

    def test_errors_have_name_number_and_text(self):
        with self.assertRaises(moert.Error) as raised:
            self.route(np.zeros((2, 8), np.float32), top_k=3)
        error = raised.exception
        self.assertEqual((error.name, error.status, error.text),
                         ('MOERT_ERROR_INVALID_SHAPE', 1003, "moe.route: operand 'ids' dimension 1 is 2, must equal top_k = 3"))
        self.assertEqual(str(error), error.name + ': ' + error.text)
        with self.assertRaisesRegex(ValueError, "moe_route: score is 'relu', must be 'softmax' or 'sigmoid'"):
            self.route(np.zeros((2, 8), np.float32), score='relu')
        with self.assertRaisesRegex(TypeError, 'top'):
            moert.moe_route(self.comm, logits=None, ids=None, weights=None, n_experts=8)

    def test_memory_of_the_library(self):
        workspace = self.comm.workspace(4, 4 * HIDDEN, 4 * HIDDEN)
        self.assertEqual(workspace.slab.dtype, np.int8)
        offset = int(workspace.metainfo[9])
        view = moert.moe_workspace_view(self.comm, workspace=workspace.slab, offset=offset, shape=(4, HIDDEN), dtype='f32')
        view[1, 0] = 1
        self.assertEqual(workspace.slab[offset + 4 * HIDDEN + 3], 0x3f)
        bits = moert.moe_workspace_view(self.comm, workspace=workspace.slab, offset=offset, shape=(2,), dtype='bf16')
        self.assertEqual((bits.shape, bits.dtype), ((2,), np.uint16))
        with self.assertRaises(moert.Error) as raised:
            moert.moe_workspace_view(self.comm, workspace=workspace.slab, offset=len(workspace.slab), shape=(1,), dtype='i8')
        self.assertEqual(raised.exception.name, 'MOERT_ERROR_INVALID_ARGUMENT')
        workspace.free()

    def test_kernels(self):
        kernel = moert.Kernel('moe.route/sm_90a/f32,top_k=2')
        self.assertTrue(kernel.name.startswith('moe.route/sm_90a/'))
        with self.assertRaises(moert.Error) as raised:
            self.route(np.zeros((2, 8), np.float32), kernel=kernel)
        self.assertEqual(raised.exception.name, 'MOERT_ERROR_UNSUPPORTED')
        with self.assertRaises(moert.Error) as raised:
            moert.Kernel('moe.nothing/sm_90a/f32')
        self.assertEqual(raised.exception.name, 'MOERT_ERROR_NO_KERNEL')


class Ranks(unittest.TestCase):
    def test_threads(self):
        for size in (1, 2, 4):
            self.assertEqual(run_threads(size, exchange), [True] * size)

    def test_codes_and_statistics(self):
        for size in (1, 2, 4):
            self.assertEqual(run_threads(size, exchange_codes), [True] * size)

    def test_ranks_that_take_part(self):
        for size in (1, 2, 4):
            self.assertEqual(run_threads(size, exchange_among), [True] * size)

    def test_processes(self):
        for size in (1, 2, 4):
            self.assertEqual(run_processes(size, exchange), [True] * size)

    def test_a_rank_that_does_not_come(self):
        late, reported = run_threads(2, lambda comm: comm.barrier() if comm.rank == 0 else None, timeout_ms=200)
        self.assertEqual((late.name, reported), ('MOERT_ERROR_PEER_TIMEOUT', None))

    def test_check_and_report(self):
        def work(comm):
            comm.check()
            if comm.rank == 1:
                comm.report(6001)
                return None
            try:
                comm.barrier(20000)
            finally:
                lines.extend(comm.dump())
            return None

        lines = []
        failed, _ = run_threads(2, work)
        self.assertEqual(failed.name, 'MOERT_ERROR_PEER_FAILED')
        self.assertEqual(len(lines), 2)

    def test_contexts_end_with_their_communicator(self):
        comm, = moert.Comm.threads(1)
        first, second = moert.Context(comm), moert.Context(comm)
        first.close()
        self.assertEqual(comm.contexts, {second})
        comm.close()
        for context in (first, second):
            self.assertIsNone(context.handle.value)
            context.close()

    def test_a_process_that_is_killed(self):
        first, second = run_processes(2, die, ended=[1])
        self.assertIsNone(second)
        self.assertRegex(first, r'\AError: MOERT_ERROR_PEER_FAILED: the process of rank 1 has ended while rank 0 waited')

    def test_allgather_that_fails(self):
        def fail(_mine):
            raise KeyError('no store')

        with self.assertRaisesRegex(KeyError, 'no store'):
            moert.Comm.process(0, 2, fail)
        with self.assertRaisesRegex(ValueError, 'allgather: 1 parts of'):
            moert.Comm.process(0, 2, lambda mine: [mine])

    def test_devices(self):
        with self.assertRaisesRegex(ValueError, "device is 'tpu', must be 'cpu' or 'cuda'"):
            moert.Comm.threads(1, device='tpu')


class Names(unittest.TestCase):
    def test_all(self):
        for name in moert.__all__:
            self.assertTrue(getattr(moert, name).__doc__ or isinstance(getattr(moert, name), int), name)
        self.assertIn('moe_dispatch', moert.__all__)


if __name__ == '__main__':
    unittest.main()
