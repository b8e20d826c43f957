#===- eplb.py - statistics that travel with moe.dispatch ------------------------------------------===#
#
# Every rank must get the numbers of all ranks that live, in memory of its own and in the workspace, round after round; ranks that do not agree on
# them must say so.
#
#===----------------------------------------------------------------------------------------------===#
import ctypes
import itertools

import numpy as np

from moert import MoertError, check, expect_error, library, run_ranks, run_tests, typed

EPLB_GATHERED_STATS = 8  # of metainfo
POISON = -0x5A5A5A5B  # 0xA5 in every byte
HIDDEN, TOP_K = 6, 2
TIMEOUT = dict(timeout_ms=20000)
DEADLINE_MS = 200  # of what must fail

library.moert_comm_recover.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64]


def random_stats(seed, ranks, count):
    """Of each rank; any number is one, the largest and the least among them."""
    stats = np.random.default_rng(seed).integers(-2**31, 2**31, (ranks, count)).astype(np.int32)
    stats[:, ::5] = seed
    stats[0, 0], stats[-1, -1] = 2**31 - 1, -2**31
    return stats


class Layer:
    """A workspace with room for `room` numbers of each rank, and a round of `tokens` tokens here."""

    def __init__(self, rank, room, n_experts, tokens=3, layout='rank_major'):
        self.rank, self.room, self.n_experts, self.tokens, self.layout = rank, room, n_experts, tokens, layout
        self.max_tokens = 4
        sizes = dict(max_num_tokens=self.max_tokens, dispatch_bytes_per_token=2 * HIDDEN, combine_bytes_per_token=2 * HIDDEN,
                     eplb_stats_num_experts=room)
        self.slab = rank.symmetric(rank.op('moe.workspace_size', **sizes))
        self.metainfo = np.zeros(16, np.int64)
        rank.op('moe.initialize', **self.shared(), **sizes)
        rng = np.random.default_rng(rank.rank)
        self.ids = rng.integers(-1, n_experts, (tokens, TOP_K)).astype(np.int32)
        self.rows = rng.integers(0, 1 << 14, (tokens, HIDDEN)).astype(np.uint16)

    def shared(self):
        return dict(workspace=self.slab.view(np.int8), metainfo=self.metainfo)

    def region(self):
        """EPLB_GATHERED_STATS of this rank, as docs/abi.md has it."""
        begin, ranks = int(self.metainfo[EPLB_GATHERED_STATS]), self.rank.size
        return self.slab[begin:begin + 4 * ranks * self.room].view(np.int32).reshape(ranks, self.room)

    def outputs(self):
        """Destinations of the layout, poisoned."""
        grouped, ranks = self.layout == 'expert_grouped', self.rank.size
        recv = np.full((ranks * self.max_tokens * TOP_K, HIDDEN) if grouped else (ranks, self.max_tokens, HIDDEN), POISON & 0xffff, np.uint16)
        local = len(np.array_split(np.arange(self.n_experts), ranks)[self.rank.rank])
        counts = np.full(local + 1 if grouped else ranks, POISON, np.int32)
        return recv, counts

    def dispatch(self, stats=None, gathered=None, mask=None):
        self.recv, self.counts = self.outputs()
        self.offset = self.rank.op(
            'moe.dispatch', top_k=TOP_K, n_experts=self.n_experts, layout=self.layout, topk_ids=self.ids, payloads=[typed(self.rows, 'bf16')],
            recv=[typed(self.recv, 'bf16')], runtime_max_tokens_per_rank=self.max_tokens, eplb_local_stats=stats, eplb_gathered_stats=gathered,
            active_rank_mask=mask, **{'offsets' if self.layout == 'expert_grouped' else 'recv_counts': self.counts}, **self.shared())

    def combine(self, mask=None):
        out = np.zeros((self.tokens, HIDDEN), np.uint16)
        self.rank.op('moe.combine', top_k=TOP_K, hidden_size=HIDDEN, layout=self.layout, payload=typed(self.recv, 'bf16'), out=typed(out, 'bf16'),
                     runtime_max_tokens_per_rank=self.max_tokens, combine_payload_offset=self.offset, active_rank_mask=mask, **self.shared())

    def check_round(self, stats, lives=None, mask=None):
        """A dispatch with the stats of the ranks that live, and its combine. The region keeps what does not belong to the round."""
        ranks, count = stats.shape
        lives = np.ones(ranks, bool) if lives is None else lives
        before = self.region().copy()
        gathered = np.full(stats.shape, POISON, np.int32)
        own = stats[self.rank.rank].copy()
        self.dispatch(own, gathered, mask)
        assert np.array_equal(gathered, np.where(lives[:, None], stats, 0)), (self.rank.rank, gathered, stats)
        assert np.array_equal(own, stats[self.rank.rank])
        before[lives, :count] = stats[lives]
        assert np.array_equal(self.region(), before), (self.rank.rank, self.region(), before)
        self.combine(mask)
        assert np.array_equal(self.region()[lives, :count], stats[lives])  # until the next dispatch


def test_gathering():
    """All ranks get all rows, whatever they send else: none with tokens, some, or all."""
    for ranks, layout, tokens in itertools.product((1, 2, 3, 4, 7), ('rank_major', 'expert_grouped'), ((0,), (3,), (0, 4, 1))):
        for count, n_experts, room in ((1, ranks + 1, 1), (ranks + 1, ranks + 1, ranks + 9), (33, 40, 40), (40, 40, 40)):
            stats = random_stats(count, ranks, count)

            def rank_main(rank):
                Layer(rank, room, n_experts, tokens[rank.rank % len(tokens)], layout).check_round(stats)

            run_ranks(ranks, rank_main, **TIMEOUT)


def test_many():
    """As many as there may be."""
    stats = random_stats(1, 2, 65536)
    run_ranks(2, lambda rank: Layer(rank, 65536, 65536).check_round(stats), **TIMEOUT)


def test_rounds():
    """Numbers, their count and the layout change from round to round, and some rounds have none: those leave the region as it is."""
    rng = np.random.default_rng(2)
    rounds = [(int(count), random_stats(i, 4, max(count, 1))) for i, count in enumerate(rng.integers(0, 13, 40))]

    def rank_main(rank):
        layer = Layer(rank, 12, 12, rank.rank)
        for i, (count, stats) in enumerate(rounds):
            layer.layout = ('rank_major', 'expert_grouped')[i % 3 == 0]
            if count:
                layer.check_round(stats)
                continue
            before = layer.region().copy()
            layer.dispatch()
            layer.combine()
            assert np.array_equal(layer.region(), before)

    run_ranks(4, rank_main, **TIMEOUT)


def test_ranks_that_differ():
    """Ranks that differ, in whether there are numbers or in how many, say so; the outputs are poisoned, and nothing is sent."""
    for ranks, layout, odd_count in itertools.product((2, 4), ('rank_major', 'expert_grouped'), (0, 4, 6)):
        def rank_main(rank):
            layer = Layer(rank, 6, 8, layout=layout)
            count = odd_count if rank.rank == 1 else 5
            gathered = np.full((ranks, count), POISON, np.int32) if count else None
            try:
                layer.dispatch(np.arange(count, dtype=np.int32) if count else None, gathered)
            except MoertError as error:
                other = 'rank %d called another op or used other parameters than rank %d' % ((0, 1) if rank.rank == 1 else (1, rank.rank))
                assert error.name == 'MOERT_ERROR_PEER_MISMATCH' and other in error.text, error
                assert gathered is None or np.all(gathered == -1)
                assert np.all(layer.counts == -1) and np.all(layer.recv == 0xffff)
                assert np.all(layer.region() == 0)
            else:
                raise AssertionError('the dispatch went through')

        run_ranks(ranks, rank_main, **TIMEOUT)


def test_recovery():
    """A rank stops; all go on, or the others without it: its row is 0 then, whatever it had written."""
    for ranks, odd, phase, everybody in itertools.product((2, 4), (0, 1), ('counts', 'data', 'flag'), (False, True)):
        layout = ('rank_major', 'expert_grouped')[odd]
        stats = [random_stats(i, ranks, 7) for i in range(4)]
        lives = np.ones(ranks, bool) if everybody else np.arange(ranks) != odd

        def rank_main(rank):
            layer = Layer(rank, 9, 8, rank.rank, layout)
            layer.check_round(stats[0])
            rank.context = rank.new_context(timeout_ms=DEADLINE_MS, **dict(stop_op='moe.dispatch', stop_phase=phase) if rank.rank == odd else {})
            rank.barrier()
            gathered = np.full((ranks, 7), POISON, np.int32)
            expected = ('MOERT_ERROR_STOPPED',) if rank.rank == odd else ('MOERT_ERROR_PEER_TIMEOUT', 'MOERT_ERROR_PEER_FAILED')
            try:
                layer.dispatch(stats[1][rank.rank], gathered)
            except MoertError as error:
                assert error.name in expected, error
            else:
                raise AssertionError('the dispatch went through')
            assert np.all(gathered == (POISON if rank.rank == odd else -1))
            rank.context = rank.new_context(**TIMEOUT)
            if lives[rank.rank]:
                check(library.moert_comm_recover(rank.comm, sum(1 << r for r in np.flatnonzero(lives).tolist()), 0))
                layer.check_round(stats[2], lives)
                layer.check_round(stats[3], lives)

        run_ranks(ranks, rank_main, **TIMEOUT)


def test_masks():
    """Ranks that a mask leaves out have rows of 0, whatever they had sent before, and get none."""
    for ranks, odd, layout in itertools.product((2, 3, 5), (0, 1), ('rank_major', 'expert_grouped')):
        stats = [random_stats(i, ranks, 7) for i in range(4)]
        some = np.arange(ranks) != odd
        mask = sum(1 << r for r in np.flatnonzero(some).tolist())

        def rank_main(rank):
            layer = Layer(rank, 9, 8, rank.rank % 4, layout)
            layer.check_round(stats[0], mask=(1 << ranks) - 1)
            rank.barrier()
            before = layer.region().copy()
            for i in (1, 2):
                if rank.rank != odd:
                    layer.check_round(stats[i], some, mask)
            rank.barrier()
            assert rank.rank != odd or np.array_equal(layer.region(), before)

        run_ranks(ranks, rank_main, **TIMEOUT)


def test_checks():
    """What one rank finds by itself, with exact texts; nothing is written, and the workspace serves on."""
    def rank_main(rank):
        layer = Layer(rank, 5, 8)
        five, gathered = np.arange(5, dtype=np.int32), np.full((1, 5), POISON, np.int32)

        def refuse(status, text, stats, destination):
            expect_error(status, 'moe.dispatch: ' + text, layer.dispatch, stats, destination)
            assert np.all(layer.recv == POISON & 0xffff) and np.all(layer.counts == POISON)
            assert destination is None or np.all(gathered == POISON)

        refuse('MOERT_ERROR_NULL_POINTER', "operand 'eplb_gathered_stats' is NULL, must be set with 'eplb_local_stats'", five, None)
        refuse('MOERT_ERROR_NULL_POINTER', "operand 'eplb_local_stats' is NULL, must be set with 'eplb_gathered_stats'", None, gathered)
        refuse('MOERT_ERROR_INVALID_SHAPE', "operand 'eplb_local_stats' has 0 elements, must have 1 to 8 (n_experts)", five[:0], gathered)
        refuse('MOERT_ERROR_INVALID_SHAPE', "operand 'eplb_local_stats' has 9 elements, must have 1 to 8 (n_experts)", np.zeros(9, np.int32),
               gathered)
        refuse('MOERT_ERROR_CAPACITY',
               "operand 'eplb_local_stats' has 6 elements, must have at most 5, the eplb_stats_num_experts of the workspace", np.zeros(6, np.int32),
               gathered)
        refuse('MOERT_ERROR_INVALID_SHAPE', "operand 'eplb_gathered_stats' dimension 0 is 2, must equal ep_size = 1", five,
               np.full((2, 5), POISON, np.int32))
        refuse('MOERT_ERROR_INVALID_SHAPE',
               "operand 'eplb_gathered_stats' dimension 1 is 5, must equal the elements of 'eplb_local_stats' = 4", five[:4], gathered)
        refuse('MOERT_ERROR_OVERLAP', "operand 'eplb_local_stats' lies in the workspace, where this call receives", layer.region()[0], gathered)
        refuse('MOERT_ERROR_OVERLAP', "operand 'eplb_gathered_stats' lies in the workspace, where this call receives", five, layer.region())
        assert np.all(layer.region() == 0)
        layer.check_round(random_stats(3, 1, 5))

        bare = Layer(rank, 0, 8)
        expect_error('MOERT_ERROR_CAPACITY',
                     "moe.dispatch: operand 'eplb_local_stats' has 1 elements, must have at most 0, the eplb_stats_num_experts of the workspace",
                     bare.dispatch, five[:1], gathered[:, :1])
        bare.dispatch()
        bare.combine()

    run_ranks(1, rank_main)


def test_no_room_for_rows():
    """A grouped destination without room for its rows: no output is written, that of the numbers neither."""
    def rank_main(rank):
        layer = Layer(rank, 4, 2, layout='expert_grouped')
        layer.ids[:] = 0
        recv, offsets = np.zeros((5, HIDDEN), np.uint16), np.zeros(3, np.int32)
        gathered = np.full((1, 2), POISON, np.int32)
        expect_error('MOERT_ERROR_CAPACITY', "moe.dispatch: 6 rows arrived for the experts of rank 0, operand 'recv[0]' has room for 5", rank.op,
                     'moe.dispatch', top_k=TOP_K, n_experts=2, layout='expert_grouped', topk_ids=layer.ids,
                     payloads=[typed(layer.rows, 'bf16')], recv=[typed(recv, 'bf16')], offsets=offsets, runtime_max_tokens_per_rank=4,
                     eplb_local_stats=np.ones(2, np.int32), eplb_gathered_stats=gathered, **layer.shared())
        assert np.all(gathered == POISON)

    run_ranks(1, rank_main)


if __name__ == '__main__':
    run_tests(globals())
