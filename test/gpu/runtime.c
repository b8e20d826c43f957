//===- runtime.c - communicators, contexts, memory and captures on GPUs -----------------------------------===//

#include "exchange.h"
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/runtime/shared.h"

//===--- an op that needs no peers ------------------------------------------------------------------===//

enum { TOKENS = 37, EXPERTS = 16, TOP_K = 2 };

typedef struct Route {
  gpu_buffer *logits, *ids, *weights;
} Route;

static Route make_route(gpu_rank *rank) {
  Route route = {gpu_new(rank, "f32", 2, TOKENS, EXPERTS), gpu_new(rank, "i32", 2, TOKENS, TOP_K), gpu_new(rank, "f32", 2, TOKENS, TOP_K)};
  gpu_random(route.logits, 4.0);
  return route;
}

static moert_status call_route(const Route *route, moert_context *context) {
  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  params.top_k = TOP_K, params.n_experts = EXPERTS;
  moert_moe_route_args args = MOERT_MOE_ROUTE_ARGS_INIT;
  args.logits = &route->logits->tensor, args.ids = &route->ids->tensor, args.weights = &route->weights->tensor;
  return moert_moe_route(&params, &args, NULL, context);
}

static void show_route(const Route *route) {
  gpu_result("ids", route->ids);
  gpu_result("weights", route->weights);
}

//===--- life and death -----------------------------------------------------------------------------===//

static void *use_rank(void *data) {
  moert_comm *comm = data;
  moert_context *context = NULL;
  void *symmetric = NULL, *memory = NULL;
  int32_t value = 7, back = 0;
  if (!CHECK_OK(moert_context_create(comm, NULL, &context))) return NULL;
  CHECK_OK(moert_symmetric_alloc(comm, 1 << 16, &symmetric));
  CHECK_OK(moert_device_alloc(comm, 1 << 16, &memory));
  CHECK_OK(moert_copy(context, memory, &value, sizeof value));
  CHECK_OK(moert_copy(context, symmetric, memory, sizeof value));
  CHECK_OK(moert_copy(context, &back, symmetric, sizeof value));
  CHECK(back == 7);
  CHECK_OK(moert_comm_barrier(comm, 0));
  moert_device_free(comm, memory);
  moert_context_destroy(context);
  return NULL; // the symmetric memory is the communicator's
}

static void live_once(int32_t size) {
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = MOERT_DEVICE_CUDA;
  moert_comm *comms[MOERT_MAX_RANKS];
  pthread_t threads[MOERT_MAX_RANKS];
  if (!CHECK_OK(moert_comm_create_threads(size, &options, comms))) return;
  for (int32_t r = 0; r < size; ++r) pthread_create(&threads[r], NULL, use_rank, comms[r]);
  for (int32_t r = 0; r < size; ++r) pthread_join(threads[r], NULL);
  for (int32_t r = 0; r < size; ++r) moert_comm_destroy(comms[r]);
}

static int count_entries(const char *folder) {
  DIR *directory = opendir(folder);
  int count = 0;
  while (directory && readdir(directory)) ++count;
  if (directory) closedir(directory);
  return count;
}

static int count_mappings(void) {
  FILE *file = fopen("/proc/self/maps", "r");
  int count = 0;
  for (int c; file && (c = getc(file)) != EOF;) count += c == '\n';
  if (file) fclose(file);
  return count;
}

static size_t free_memory(void) {
  size_t sum = 0;
  for (int32_t device = 0; device < gpu_count(); ++device) {
    size_t unused = 0, all = 0;
    cudaSetDevice(device);
    if (cudaMemGetInfo(&unused, &all) == cudaSuccess) sum += unused;
  }
  cudaSetDevice(0);
  return sum;
}

static void live_often(int cycles) {
  for (int i = 0; i < 10; ++i) live_once(2);
  size_t memory = free_memory();
  int files = count_entries("/proc/self/fd"), mappings = count_mappings();
  for (int i = 0; i < cycles; ++i) live_once(2);
  size_t end = free_memory();
  gpu_check(end + (8 << 20) >= memory, __FILE__, __LINE__, "%zu bytes of device memory are gone", memory - end);
  gpu_check(count_entries("/proc/self/fd") <= files, __FILE__, __LINE__, "%d descriptors more", count_entries("/proc/self/fd") - files);
  gpu_check(count_mappings() <= mappings + cycles / 10 + 8, __FILE__, __LINE__, "%d mappings more", count_mappings() - mappings);
}

static void *live_in_thread(void *data) {
  for (int i = 0; i < 3; ++i) live_once(*(int32_t *)data);
  return NULL;
}

static void live_side_by_side(void) {
  int32_t sizes[] = {1, 2, 4};
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, live_in_thread, &sizes[i]);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
}

//===--- devices ------------------------------------------------------------------------------------===//

static void check_placement(gpu_rank *rank) {
  moert_device device = moert_comm_device(rank->comm);
  if (!rank->cuda) return;
  CHECK(device.type == MOERT_DEVICE_CUDA && device.id == rank->rank % gpu_count());
  // The thread keeps the device that it had.
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess && current == 0);
  Route route = make_route(rank);
  CHECK_OK(call_route(&route, rank->context));
  CHECK(cudaGetDevice(&current) == cudaSuccess && current == 0);
  struct cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, route.ids->tensor.data) == cudaSuccess && attributes.device == device.id);
}

static void check_refusals(void) {
  moert_comm *comms[MOERT_MAX_RANKS] = {NULL};
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = MOERT_DEVICE_CUDA;
  int32_t device = 1000;
  options.devices = &device, options.num_devices = 1;
  CHECK_FAILS(moert_comm_create_threads(2, &options, comms), MOERT_ERROR_NO_DEVICE, NULL);
  device = 0;
  CHECK_FAILS(moert_comm_create_threads(17, &options, comms), MOERT_ERROR_UNSUPPORTED,
              "17 ranks are on device 0, at most 16 can wait for each other on one; use more devices");
  CHECK(comms[0] == NULL);
}

//===--- memory -------------------------------------------------------------------------------------===//

static void exhaust(gpu_rank *rank) {
  void *memory = NULL;
  char text[256];
  size_t much = (size_t)1 << 50;
  snprintf(text, sizeof text, "cudaMallocFromPoolAsync of %zu bytes on device %d: cudaErrorMemoryAllocation (out of memory)", much,
           moert_comm_device(rank->comm).id);
  CHECK_FAILS(moert_device_alloc(rank->comm, much, &memory), MOERT_ERROR_OUT_OF_MEMORY, text);
  CHECK(memory == NULL);
  CHECK_FAILS(moert_symmetric_alloc(rank->comm, much, &memory), MOERT_ERROR_OUT_OF_MEMORY, NULL);
  CHECK(memory == NULL);
  CHECK_OK(moert_comm_status(rank->comm));
  CHECK_OK(moert_symmetric_alloc(rank->comm, 100, &memory)); // nothing is broken
  CHECK((uintptr_t)memory % 256 == 0);
  Route route = make_route(rank);
  CHECK_OK(call_route(&route, rank->context));
  CHECK_OK(moert_context_synchronize(rank->context));
}

static void pass_wrong_memory(gpu_rank *rank) {
  Route route = make_route(rank);
  gpu_buffer *on_host = gpu_new_host(rank, "f32", 2, TOKENS, EXPERTS);
  Route wrong = route;
  wrong.logits = on_host;
  CHECK_FAILS(call_route(&wrong, rank->context), MOERT_ERROR_INVALID_MEMORY,
              "moe.route: operand 'logits': device type 1, must be 2 (CUDA): the communicator's ranks run on devices");
  int32_t own = route.logits->tensor.device.id;
  route.logits->tensor.device.id = own + 1;
  CHECK_FAILS(call_route(&route, rank->context), MOERT_ERROR_INVALID_MEMORY, NULL);
  route.logits->tensor.device.id = own;
  CHECK(gpu_is_filled(route.ids, GPU_POISON));
  CHECK_OK(call_route(&route, rank->context));
  CHECK_OK(moert_context_synchronize(rank->context));
}

// Every rank reads what the others wrote, through the addresses that kernels use.
static void read_peers(gpu_rank *rank) {
  enum { WORDS = 100000 };
  gpu_buffer *words = gpu_new_symmetric(rank, "i32", 1, WORDS);
  CHECK(gpu_is_filled(words, 0));
  for (int64_t i = 0; i < WORDS; ++i) gpu_set(words, i, (double)(rank->rank * 1000003 + i));
  gpu_upload(words);
  CHECK_OK(moert_comm_barrier(rank->comm, 0));
  void *peers[MOERT_MAX_RANKS];
  CHECK_OK(moert__symmetric_peers(rank->comm, words->tensor.data, words->bytes, peers));
  int32_t *copy = malloc(words->bytes);
  for (int32_t r = 0; r < rank->size; ++r) {
    int wrong = 0;
    if (!CHECK_OK(moert_copy(rank->context, copy, peers[r], words->bytes))) break;
    for (int32_t i = 0; i < WORDS; ++i) wrong += copy[i] != r * 1000003 + i;
    gpu_check(wrong == 0, __FILE__, __LINE__, "rank %d read %d wrong words of rank %d", rank->rank, wrong, r);
  }
  free(copy);
  CHECK_OK(moert_comm_barrier(rank->comm, 0));
  void *memory = NULL;
  CHECK_OK(moert_symmetric_alloc(rank->comm, 0, &memory));
  CHECK_OK(moert_symmetric_alloc(rank->comm, 3 << 20, &memory));
  CHECK_OK(moert_symmetric_free(rank->comm, memory));
}

//===--- streams ------------------------------------------------------------------------------------===//

static void use_stream(gpu_rank *rank, cudaStream_t stream, const char *name) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.stream = stream;
  moert_context *context = NULL;
  Route route = make_route(rank);
  if (!gpu_check(moert_context_create(rank->comm, &options, &context) == MOERT_OK, __FILE__, __LINE__, "%s: %s", name, moert_last_error())) return;
  CHECK(moert_context_stream(context) == (void *)stream);
  CHECK_OK(call_route(&route, context));
  CHECK_OK(moert_context_synchronize(context));
  moert_context_destroy(context); // not the stream
  CHECK_OK(call_route(&route, rank->context));
  show_route(&route);
}

// What a program may have: a stream of its own of either kind, and the two that every program has.
static void use_streams(gpu_rank *rank) {
  cudaStream_t own[2] = {NULL, NULL};
  if (rank->cuda) {
    cudaSetDevice(moert_comm_device(rank->comm).id);
    CHECK(cudaStreamCreateWithFlags(&own[0], cudaStreamNonBlocking) == cudaSuccess && cudaStreamCreate(&own[1]) == cudaSuccess);
  }
  use_stream(rank, own[0], "a stream that does not wait for the legacy stream");
  use_stream(rank, own[1], "a stream");
  use_stream(rank, rank->cuda ? cudaStreamLegacy : NULL, "the legacy stream");
  use_stream(rank, rank->cuda ? cudaStreamPerThread : NULL, "the thread's stream");
  for (int i = 0; rank->cuda && i < 2; ++i) CHECK(cudaStreamSynchronize(own[i]) == cudaSuccess && cudaStreamDestroy(own[i]) == cudaSuccess);
}

static void use_many_contexts(gpu_rank *rank) {
  enum { CONTEXTS = 5 };
  moert_context *contexts[CONTEXTS];
  Route routes[CONTEXTS];
  for (int i = 0; i < CONTEXTS; ++i) {
    CHECK_OK(moert_context_create(rank->comm, NULL, &contexts[i]));
    routes[i] = make_route(rank);
  }
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < CONTEXTS; ++i) CHECK_OK(call_route(&routes[i], contexts[i]));
  for (int i = 0; i < CONTEXTS; ++i) {
    CHECK_OK(moert_context_synchronize(contexts[i]));
    show_route(&routes[i]);
    moert_context_destroy(contexts[i]);
  }
}

//===--- while a peer waits -------------------------------------------------------------------------===//

typedef struct Search {
  const char *line;
  int found, lines;
} Search;

static void look_at_line(void *user, const char *line) {
  Search *search = user;
  search->found += strcmp(line, search->line) == 0;
  ++search->lines;
}

static Search search_dump(const gpu_rank *rank, const char *line) {
  Search search = {line, 0, 0};
  moert_comm_dump(rank->comm, look_at_line, &search);
  return search;
}

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

// Within a second, which is many times what a kernel takes to say so.
static bool is_shown(const gpu_rank *rank, const char *line) {
  for (int64_t end = now_ms() + 1000; now_ms() < end;)
    if (search_dump(rank, line).found) return true;
  return false;
}

// What contexts make and free, with several at a time.
static void use_new_contexts(gpu_rank *rank) {
  enum { CONTEXTS = 20, BYTES = 1 << 20 };
  moert_context *contexts[CONTEXTS] = {NULL};
  void *memory = NULL, *own = NULL;
  CHECK_OK(moert_device_alloc(rank->comm, BYTES, &memory));
  for (int i = 0; i < CONTEXTS; ++i) {
    if (!CHECK_OK(moert_context_create(rank->comm, NULL, &contexts[i]))) break;
    CHECK_OK(moert_context_allocate(contexts[i], BYTES, &own));
    CHECK_OK(moert_copy(contexts[i], own, memory, BYTES));
    CHECK_OK(moert_context_synchronize(contexts[i]));
  }
  for (int i = 0; i < CONTEXTS; ++i) moert_context_destroy(contexts[i]);
  moert_device_free(rank->comm, memory);
}

// A kernel of rank 0 waits for rank 1, which has other things to do first; on one GPU or two. The dump shows who waits for whom.
static void live_while_a_peer_waits(gpu_rank *rank) {
  enum { MOST_MS = 3000 }; // the deadline is far behind
  static const exchange_case what = {.max_tokens = 8, .hidden = 64, .top_k = 2, .experts = 4, .dtype = "bf16", .out = "bf16"};
  static const char line[] = "rank 0 of 2: a kernel waits for rank 1 (its counts, epoch 1) in moe.dispatch";
  exchange_layer l;
  if (!rank->cuda) return; // the host's ranks wait in the call itself
  exchange_open(&l, rank, &what, 0);
  exchange_fill(&l);
  exchange_settle(rank);
  if (rank->rank == 0) {
    CHECK_OK(exchange_dispatch(&l));
    CHECK(is_shown(rank, line));
  }
  exchange_settle(rank);
  if (rank->rank == 1) {
    int64_t start = now_ms();
    CHECK(is_shown(rank, line)); // to every rank
    use_new_contexts(rank);
    gpu_check(now_ms() - start < MOST_MS, __FILE__, __LINE__, "contexts took %" PRId64 " ms beside a kernel that waits", now_ms() - start);
    CHECK_OK(exchange_dispatch(&l));
  }
  CHECK_OK(exchange_wait(&l, exchange_combine(&l)));
  exchange_settle(rank);
  CHECK(search_dump(rank, line).lines == 2);
  exchange_settle(rank);
}

//===--- captures -----------------------------------------------------------------------------------===//

static moert_status route_step(gpu_rank *rank, void *data) { return call_route(data, rank->context); }

// A replay reads what is in the memory then.
static void replay_route(gpu_rank *rank) {
  Route route = make_route(rank);
  CHECK_OK(gpu_replay(rank, route_step, &route, 3));
  show_route(&route);
  gpu_random(route.logits, 1.0);
  CHECK_OK(gpu_replay(rank, route_step, &route, 1));
  show_route(&route);
}

static moert_status copy_step(gpu_rank *rank, void *data) {
  int32_t value = 0;
  return moert_copy(rank->context, &value, data, sizeof value);
}

static moert_status wait_step(gpu_rank *rank, void *data) {
  (void)data;
  return moert_context_synchronize(rank->context);
}

// What cannot be captured says so, and the capture goes on without it.
static void capture_what_waits(gpu_rank *rank) {
  gpu_buffer *word = gpu_new(rank, "i32", 1, 1);
  CHECK_FAILS(gpu_replay(rank, copy_step, word->tensor.data, 1), MOERT_ERROR_NOT_CAPTURABLE, NULL);
  CHECK_FAILS(gpu_replay(rank, wait_step, NULL, 1), MOERT_ERROR_NOT_CAPTURABLE, NULL);
  replay_route(rank);
}

//===--- the program --------------------------------------------------------------------------------===//

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  static const int cycles[] = {[GPU_SMALL] = 2, [GPU_QUICK] = 50, [GPU_FULL] = 1000};
  if (gpu_extent() != GPU_SMALL) {
    gpu_case("ranks as 2 processes read each other's memory") gpu_processes(2, 0, read_peers, NULL, 0, -1);
    gpu_case("ranks as 2 processes of one GPU") gpu_processes(2, 1, read_peers, NULL, 0, -1);
    if (gpu_extent() == GPU_FULL) gpu_case("ranks as 4 processes") gpu_processes(4, 0, read_peers, NULL, 0, -1);
    gpu_case("contexts come and go while a peer waits") gpu_only(2, 0, live_while_a_peer_waits, NULL);
    gpu_case("contexts come and go while a rank of the same GPU waits") gpu_only(2, 1, live_while_a_peer_waits, NULL);
    gpu_case("contexts come and go while a process on the same GPU waits") gpu_processes(2, 1, live_while_a_peer_waits, NULL, 0, -1);
  }
  gpu_case("ranks read each other's memory") gpu_both(4, 0, read_peers, NULL);
  gpu_case("ranks of one GPU read each other's memory") gpu_both(3, 1, read_peers, NULL);
  gpu_case("rank r is on GPU r modulo their number") gpu_both(4, 0, check_placement, NULL);
  gpu_case("devices that are not there, too many ranks") if (gpu_needed()) check_refusals();
  gpu_case("out of memory") gpu_only(2, 0, exhaust, NULL);
  gpu_case("memory of the wrong kind") gpu_only(2, 0, pass_wrong_memory, NULL);
  gpu_case("streams of the program") gpu_both(2, 0, use_streams, NULL);
  gpu_case("several contexts") gpu_both(2, 0, use_many_contexts, NULL);
  gpu_case("capture and replay") gpu_both(2, 0, replay_route, NULL);
  gpu_case("capture of what cannot be captured") gpu_only(2, 0, capture_what_waits, NULL);
  gpu_case("several communicators at a time") if (gpu_needed()) live_side_by_side();
  gpu_case("%d lives of a communicator", cycles[gpu_extent()]) if (gpu_needed()) live_often(cycles[gpu_extent()]);
  return gpu_end();
}
