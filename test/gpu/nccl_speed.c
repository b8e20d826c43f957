//===- nccl_speed.c - how fast rows go over NCCL, beside NCCL alone --------------------------------------------===//
//
// A dispatch and its combine, and beside them what NCCL takes to bring as many bytes from rank to rank: the rows that are sent in calls, and R rows
// in captures. At 4096 tokens a rank the ops must reach 70 % of the rate of NCCL alone. NCCL goes the way between hosts unless the environment says
// otherwise: NCCL_P2P_DISABLE=0 NCCL_SHM_DISABLE=0 lets it use NVLink.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include "nccl_library.h"
#include <stdio.h>

enum { RANKS = 2, HIDDEN = 7168, TOP_K = 8, EXPERTS = 256, WARM_UP = 3, ROUNDS = 20 };
static const double least = 0.7; // of the rate of NCCL alone

typedef struct Case {
  int64_t tokens;
  bool grouped, is_captured;
} Case;

typedef struct Alone {
  nccl_comm comm;
  char *from, *to;
  size_t dispatched[2], combined[2]; // bytes that this rank sends, and that it receives
  cudaStream_t stream;
} Alone;

//===--- NCCL alone ---------------------------------------------------------------------------------===//

static void join(Alone *alone, const gpu_rank *rank) {
  static nccl_id id;
  if (rank->rank == 0) CHECK(nccl_found.get_unique_id(&id) == 0);
  exchange_settle(rank);
  CHECK(nccl_found.comm_init_rank(&alone->comm, rank->size, id, rank->rank) == 0);
}

static void move(const Alone *alone, const gpu_rank *rank, const size_t bytes[2]) {
  const int peer = 1 - rank->rank;
  CHECK(nccl_found.group_start() == 0);
  if (bytes[0]) CHECK(nccl_found.send(alone->from, bytes[0], NCCL_UINT8, peer, alone->comm, alone->stream) == 0);
  if (bytes[1]) CHECK(nccl_found.receive(alone->to, bytes[1], NCCL_UINT8, peer, alone->comm, alone->stream) == 0);
  CHECK(nccl_found.group_end() == 0);
}

static void move_both(const Alone *alone, const gpu_rank *rank) {
  move(alone, rank, alone->dispatched);
  move(alone, rank, alone->combined);
}

//===--- the ops --------------------------------------------------------------------------------------===//

static void read_counts(exchange_layer *l, int32_t counts[2]) {
  const int fields[] = {MOERT_METAINFO_SEND_COUNTERS, MOERT_METAINFO_RECV_COUNTERS};
  for (int i = 0; i < 2; ++i) {
    const char *counters = (const char *)l->workspace->tensor.data + l->layout.offsets[fields[i]];
    CHECK_OK(moert_copy(l->context, &counts[i], counters + sizeof(int32_t) * (size_t)(1 - l->rank->rank), sizeof counts[i]));
  }
}

// With a row of the layout expert_grouped go its ids, weights and places.
static void count_bytes(exchange_layer *l, const Case *what, Alone *alone) {
  const size_t row = 2 * HIDDEN, along = what->grouped ? 12 * TOP_K : 0;
  int32_t counts[2] = {(int32_t)what->tokens, (int32_t)what->tokens};
  if (!what->is_captured) read_counts(l, counts);
  for (int i = 0; i < 2; ++i) alone->dispatched[i] = (size_t)counts[i] * (row + along);
  for (int i = 0; i < 2; ++i) alone->combined[i] = (size_t)counts[1 - i] * row;
}

// Half of all choices, and some more, are for the experts of one rank.
static void open_layer(exchange_layer *l, gpu_rank *rank, const Case *what) {
  const exchange_case layer = {what->tokens, HIDDEN, TOP_K, EXPERTS, "bf16", "bf16", what->grouped, false, IDS_ANY, 1, 0, 0, false};
  exchange_open(l, rank, &layer, RANKS * what->tokens * TOP_K * 5 / 8);
  exchange_fill(l);
}

//===--- times ----------------------------------------------------------------------------------------===//

typedef struct Timer {
  cudaEvent_t begin, end;
} Timer;

static float stop(const Timer *timer, cudaStream_t stream) {
  float ms = 0;
  CHECK_CUDA(cudaEventRecord(timer->end, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaEventElapsedTime(&ms, timer->begin, timer->end));
  return 1000 * ms / ROUNDS;
}

static double time_ops(exchange_layer *l, cudaGraphExec_t executable, const Timer *timer) {
  cudaStream_t stream = moert_context_stream(l->context);
  for (int i = -WARM_UP; i < ROUNDS; ++i) {
    if (i == 0) CHECK_CUDA(cudaEventRecord(timer->begin, stream));
    if (executable)
      CHECK_CUDA(cudaGraphLaunch(executable, stream));
    else
      CHECK_OK(exchange_enqueue(l));
  }
  return stop(timer, stream);
}

static double time_alone(const Alone *alone, const gpu_rank *rank, const Timer *timer) {
  for (int i = -WARM_UP; i < ROUNDS; ++i) {
    if (i == 0) CHECK_CUDA(cudaEventRecord(timer->begin, alone->stream));
    move_both(alone, rank);
  }
  return stop(timer, alone->stream);
}

// Of the slower rank.
static double slower(const gpu_rank *rank, double mine) {
  static double of_rank[RANKS];
  of_rank[rank->rank] = mine;
  exchange_settle(rank);
  double most = of_rank[0] > of_rank[1] ? of_rank[0] : of_rank[1];
  exchange_settle(rank);
  return most;
}

static void compare(gpu_rank *rank, const Case *what, double ops, double alone) {
  ops = slower(rank, ops);
  alone = slower(rank, alone);
  if (rank->rank != 0) return;
  printf("  %5d tokens, %-7s %-8s: %9.1f us, NCCL alone %9.1f us, %3.0f %%\n", (int)what->tokens, what->grouped ? "grouped" : "flat",
         what->is_captured ? "captured" : "called", ops, alone, 100 * alone / ops);
  if (what->tokens == 4096) gpu_check(alone >= least * ops, __FILE__, __LINE__, "the ops take %.1f us, NCCL alone %.1f us", ops, alone);
}

static void measure(gpu_rank *rank) {
  const Case *what = rank->user;
  exchange_layer l;
  Alone alone = {0};
  Timer timer;
  cudaGraphExec_t executable = NULL;
  CHECK_CUDA(cudaSetDevice(moert_comm_device(rank->comm).id));
  open_layer(&l, rank, what);
  join(&alone, rank);
  CHECK_CUDA(cudaStreamCreateWithFlags(&alone.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreate(&timer.begin));
  CHECK_CUDA(cudaEventCreate(&timer.end));
  if (CHECK_OK(exchange_wait(&l, exchange_enqueue(&l)))) {
    count_bytes(&l, what, &alone);
    alone.from = gpu_new(rank, "i8", 1, (int64_t)alone.dispatched[0] + (int64_t)alone.combined[0] + 1)->tensor.data;
    alone.to = gpu_new(rank, "i8", 1, (int64_t)alone.dispatched[1] + (int64_t)alone.combined[1] + 1)->tensor.data;
    if (what->is_captured) executable = exchange_capture(&l);
    exchange_settle(rank);
    double ops = time_ops(&l, executable, &timer);
    CHECK_OK(moert_context_synchronize(l.context));
    exchange_settle(rank);
    compare(rank, what, ops, time_alone(&alone, rank, &timer));
  }
  if (executable) cudaGraphExecDestroy(executable);
  CHECK(nccl_found.comm_destroy(alone.comm) == 0);
  cudaEventDestroy(timer.begin);
  cudaEventDestroy(timer.end);
  cudaStreamDestroy(alone.stream);
}

int main(int argc, char **argv) {
  static const int64_t tokens[] = {4096, 32, 512}; // the last two without a bound
  nccl_keep_apart();
  gpu_begin(argc, argv);
  if (gpu_count() < RANKS || !nccl_find()) {
    printf("this needs two GPUs, and libnccl.so.2 where the dynamic linker looks (LD_LIBRARY_PATH): left out\n");
    return gpu_end();
  }
  for (int kind = 0; kind < 4; ++kind)
    for (size_t i = gpu_extent() == GPU_SMALL; i < (gpu_extent() == GPU_FULL ? 3 : gpu_extent() == GPU_SMALL ? 2 : 1); ++i) {
      Case what = {tokens[i], kind / 2 == 1, kind % 2 == 1};
      gpu_case("%d tokens, %s, %s", (int)what.tokens, what.grouped ? "grouped" : "flat", what.is_captured ? "captured" : "called")
          gpu_only(RANKS, RANKS, measure, &what);
    }
  return gpu_end();
}
