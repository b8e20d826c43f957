//===- gpu.c - what the tests on a GPU share ----------------------------------------------------------===//

#include "gpu.h"
#include "lib/reference/numerics.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GUARD_BYTES = 512, MOST_RESULTS = 512, MOST_USER_BYTES = 4096, SECONDS_OF_A_PROCESS = 120, TIMEOUT_MS = 20000 };

//===--- programs and checks --------------------------------------------------------------------------===//

// Shared with the processes of gpu_processes.
typedef struct Shared {
  atomic_int failures; // checks of the current case
  atomic_bool is_skipped;
  char name[256]; // of the current case
} Shared;

static Shared *shared;
static gpu_size extent = GPU_FULL;
static bool on_host; // --host
static char **words;
static int num_words, num_cases, num_failed;
static double started;
static int zygote = -1; // the socket to the process that makes those of gpu_processes

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *map_shared(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return memory;
  perror("mmap");
  exit(2);
}

static void start_zygote(void);

void gpu_begin(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  words = argv;
  for (int i = 1; i < argc; ++i)
    if (strcmp(argv[i], "--small") == 0)
      extent = GPU_SMALL;
    else if (strcmp(argv[i], "--quick") == 0)
      extent = GPU_QUICK;
    else if (strcmp(argv[i], "--host") == 0)
      on_host = true;
    else
      words[num_words++] = argv[i];
  shared = map_shared(sizeof *shared);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); // as the library does; but here the program comes first to CUDA
  start_zygote();
}

gpu_size gpu_extent(void) { return extent; }

int32_t gpu_count(void) {
  int count = 0;
  return !on_host && cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

bool gpu_case_begin(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(shared->name, sizeof shared->name, format, arguments);
  va_end(arguments);
  bool named = num_words == 0;
  for (int i = 0; i < num_words; ++i) named |= strstr(shared->name, words[i]) != NULL;
  atomic_store(&shared->failures, 0);
  atomic_store(&shared->is_skipped, false);
  started = seconds();
  return named;
}

void gpu_case_end(void) {
  int failures = atomic_load(&shared->failures);
  printf("%s %s (%.2f s)\n", failures ? "FAIL" : atomic_load(&shared->is_skipped) ? "SKIP" : "PASS", shared->name, seconds() - started);
  ++num_cases;
  num_failed += failures > 0;
}

int gpu_end(void) {
  if (zygote >= 0) close(zygote);
  while (wait(NULL) > 0) continue;
  printf("%d cases, %d failed\n", num_cases, num_failed);
  return num_failed > 0 || num_cases == 0;
}

bool gpu_check(bool holds, const char *file, int line, const char *format, ...) {
  if (holds) return true;
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (atomic_fetch_add(&shared->failures, 1) < 20) printf("  %s: %s:%d: %s\n", shared->name, file, line, text);
  return false;
}

bool gpu_check_status(moert_status status, moert_status expected, const char *text, const char *file, int line, const char *call) {
  const char *said = status == MOERT_OK ? "" : moert_last_error();
  if (status != expected)
    return gpu_check(false, file, line, "%s is %s (%s), not %s", call, moert_status_name(status), said, moert_status_name(expected));
  return gpu_check(!text || strcmp(said, text) == 0, file, line, "%s says\n    %s\n  not\n    %s", call, said, text ? text : "");
}

//===--- results ------------------------------------------------------------------------------------===//

// What the ranks of the host backend had; those on GPUs compare with it.
typedef struct Result {
  char name[64], dtype[16];
  void *bytes;
  size_t size;
} Result;

struct gpu_records {
  int count[MOERT_MAX_RANKS];
  Result results[MOERT_MAX_RANKS][MOST_RESULTS];
};

static void free_records(gpu_records *records) {
  for (int r = 0; r < MOERT_MAX_RANKS; ++r)
    for (int i = 0; i < records->count[r]; ++i) free(records->results[r][i].bytes);
  free(records);
}

static void record(gpu_rank *rank, const char *name, const char *dtype, const void *bytes, size_t size) {
  int index = rank->records->count[rank->rank];
  if (!CHECK(index < MOST_RESULTS)) return;
  Result *result = &rank->records->results[rank->rank][index];
  rank->records->count[rank->rank] = index + 1;
  snprintf(result->name, sizeof result->name, "%s", name);
  snprintf(result->dtype, sizeof result->dtype, "%s", dtype);
  result->bytes = malloc(size + 1);
  result->size = size;
  memcpy(result->bytes, bytes, size);
}

static double element(const char *dtype, const void *bytes, int64_t index);

static int64_t element_size(const char *dtype) {
  int bits = atoi(dtype + strcspn(dtype, "0123456789"));
  return bits / 8;
}

static bool is_float(const char *dtype) { return strchr(dtype, 'f') && element_size(dtype) > 1; }

static bool equal_elements(const char *dtype, const void *a, const void *b, int64_t index) {
  size_t size = (size_t)element_size(dtype), offset = (size_t)index * size;
  if (memcmp((const char *)a + offset, (const char *)b + offset, size) == 0) return true;
  double x = element(dtype, a, index), y = element(dtype, b, index);
  return is_float(dtype) && x != x && y != y;
}

static void compare(gpu_rank *rank, const char *name, const char *dtype, const void *bytes, size_t size) {
  int index = rank->num_results++;
  if (!gpu_check(index < rank->records->count[rank->rank], __FILE__, __LINE__, "rank %d: the host has no result '%s'", rank->rank, name)) return;
  const Result *host = &rank->records->results[rank->rank][index];
  if (!gpu_check(strcmp(host->name, name) == 0 && host->size == size, __FILE__, __LINE__,
                 "rank %d: result %d is '%s' of %zu bytes, on the host '%s' of %zu", rank->rank, index, name, size, host->name, host->size))
    return;
  if (strcmp(dtype, "text") == 0) {
    gpu_check(strcmp(bytes, host->bytes) == 0, __FILE__, __LINE__, "rank %d: '%s' is\n    %s\n  on the host\n    %s", rank->rank, name,
              (const char *)bytes, (const char *)host->bytes);
    return;
  }
  if (memcmp(bytes, host->bytes, size) == 0) return;
  int64_t count = (int64_t)size / element_size(dtype), different = 0, first = 0;
  for (int64_t i = count; i-- > 0;)
    if (!equal_elements(dtype, bytes, host->bytes, i)) ++different, first = i;
  if (different == 0) return;
  gpu_check(false, __FILE__, __LINE__, "rank %d: '%s': %lld of %lld elements differ, first [%lld]: %.9g, on the host %.9g", rank->rank, name,
            (long long)different, (long long)count, (long long)first, element(dtype, bytes, first), element(dtype, host->bytes, first));
}

static void result(gpu_rank *rank, const char *name, const char *dtype, const void *bytes, size_t size) {
  if (!rank->records) return;
  if (rank->is_compared)
    compare(rank, name, dtype, bytes, size);
  else
    record(rank, name, dtype, bytes, size);
}

void gpu_same_status(gpu_rank *rank, const char *name, moert_status status) {
  char text[4096];
  snprintf(text, sizeof text, "%s: %s", moert_status_name(status), status == MOERT_OK ? "" : moert_last_error());
  result(rank, name, "text", text, strlen(text) + 1);
}

//===--- buffers ------------------------------------------------------------------------------------===//

typedef struct Dtype {
  const char *name;
  moert_dtype dtype;
} Dtype;

static const Dtype dtypes[] = {
    {"bf16", {MOERT_CODE_BFLOAT, 16, 1}},       {"f16", {MOERT_CODE_FLOAT, 16, 1}}, {"f32", {MOERT_CODE_FLOAT, 32, 1}},
    {"f64", {MOERT_CODE_FLOAT, 64, 1}},         {"i8", {MOERT_CODE_INT, 8, 1}},     {"i16", {MOERT_CODE_INT, 16, 1}},
    {"i32", {MOERT_CODE_INT, 32, 1}},           {"i64", {MOERT_CODE_INT, 64, 1}},   {"ui8", {MOERT_CODE_UINT, 8, 1}},
    {"ui32", {MOERT_CODE_UINT, 32, 1}},         {"ui64", {MOERT_CODE_UINT, 64, 1}}, {"f8E4M3FN", {MOERT_CODE_F8E4M3FN, 8, 1}},
    {"f8E8M0FNU", {MOERT_CODE_F8E8M0FNU, 8, 1}}};

static const Dtype *find_dtype(const char *name) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i)
    if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
  printf("no element type '%s'\n", name);
  exit(2);
}

static const char *dtype_name(const gpu_buffer *buffer) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i)
    if (memcmp(&dtypes[i].dtype, &buffer->tensor.dtype, sizeof(moert_dtype)) == 0) return dtypes[i].name;
  return "";
}

static double element(const char *dtype, const void *bytes, int64_t index) {
  if (strcmp(dtype, "bf16") == 0) return (double)moert__bf16_to_f32(((const uint16_t *)bytes)[index]);
  if (strcmp(dtype, "f16") == 0) return (double)moert__f16_to_f32(((const uint16_t *)bytes)[index]);
  if (strcmp(dtype, "f32") == 0) return (double)((const float *)bytes)[index];
  if (strcmp(dtype, "f64") == 0) return ((const double *)bytes)[index];
  if (strcmp(dtype, "i8") == 0) return ((const int8_t *)bytes)[index];
  if (strcmp(dtype, "i16") == 0) return ((const int16_t *)bytes)[index];
  if (strcmp(dtype, "i32") == 0) return ((const int32_t *)bytes)[index];
  if (strcmp(dtype, "i64") == 0) return (double)((const int64_t *)bytes)[index];
  if (element_size(dtype) == 1) return ((const uint8_t *)bytes)[index]; // ui8, and the codes of f8
  if (strcmp(dtype, "ui32") == 0) return ((const uint32_t *)bytes)[index];
  return (double)((const uint64_t *)bytes)[index];
}

double gpu_get(const gpu_buffer *buffer, int64_t index) { return element(dtype_name(buffer), buffer->host, index); }

void gpu_set(gpu_buffer *buffer, int64_t index, double value) {
  const char *dtype = dtype_name(buffer);
  if (strcmp(dtype, "bf16") == 0)
    ((uint16_t *)buffer->host)[index] = moert__f32_to_bf16((float)value);
  else if (strcmp(dtype, "f16") == 0)
    ((uint16_t *)buffer->host)[index] = moert__f32_to_f16((float)value);
  else if (strcmp(dtype, "f32") == 0)
    ((float *)buffer->host)[index] = (float)value;
  else if (strcmp(dtype, "f64") == 0)
    ((double *)buffer->host)[index] = value;
  else if (strcmp(dtype, "ui64") == 0)
    ((uint64_t *)buffer->host)[index] = (uint64_t)value;
  else {
    int64_t whole = (int64_t)value; // little endian: the low bytes come first
    memcpy((char *)buffer->host + index * element_size(dtype), &whole, (size_t)element_size(dtype));
  }
}

static void *guarded_memory(gpu_buffer *buffer, moert_memory memory) {
  void *whole = NULL;
  size_t bytes = buffer->bytes + 2 * GUARD_BYTES;
  if (memory == MOERT_MEMORY_HOST)
    whole = aligned_alloc(256, (bytes + 255) / 256 * 256);
  else if (!CHECK_OK(moert_device_alloc(buffer->rank->comm, bytes, &whole)))
    exit(2);
  buffer->guarded = whole;
  return buffer->guarded + GUARD_BYTES;
}

gpu_buffer *gpu_new_in(gpu_rank *rank, moert_memory memory, const char *dtype, int32_t ndim, const int64_t *shape) {
  gpu_buffer *buffer = calloc(1, sizeof *buffer);
  buffer->rank = rank;
  buffer->memory = memory;
  buffer->count = 1;
  for (int32_t i = 0; i < ndim; ++i) buffer->count *= buffer->shape[i] = shape[i];
  buffer->bytes = (size_t)(buffer->count * element_size(dtype));
  buffer->host = malloc(buffer->bytes + 1);
  buffer->next = rank->buffers;
  rank->buffers = buffer;
  moert_device host = {MOERT_DEVICE_CPU, 0};
  buffer->tensor = (moert_tensor){
      NULL, memory == MOERT_MEMORY_HOST ? host : moert_comm_device(rank->comm), ndim, find_dtype(dtype)->dtype, buffer->shape, NULL, 0};
  if (memory == MOERT_MEMORY_SYMMETRIC) {
    CHECK_OK(moert_symmetric_alloc(rank->comm, buffer->bytes, &buffer->tensor.data));
    memset(buffer->host, 0, buffer->bytes);
    return buffer;
  }
  buffer->tensor.data = guarded_memory(buffer, memory);
  size_t bytes = buffer->bytes + 2 * GUARD_BYTES;
  void *poison = malloc(bytes);
  memset(poison, GPU_POISON, bytes);
  CHECK_OK(moert_copy(rank->context, buffer->guarded, poison, bytes));
  memcpy(buffer->host, poison, buffer->bytes);
  free(poison);
  return buffer;
}

void gpu_upload(gpu_buffer *buffer) { CHECK_OK(moert_copy(buffer->rank->context, buffer->tensor.data, buffer->host, buffer->bytes)); }

void gpu_download(gpu_buffer *buffer) { CHECK_OK(moert_copy(buffer->rank->context, buffer->host, buffer->tensor.data, buffer->bytes)); }

void gpu_fill(gpu_buffer *buffer, unsigned char value) {
  memset(buffer->host, value, buffer->bytes);
  gpu_upload(buffer);
}

static bool is_filled(const void *memory, size_t bytes, unsigned char value) {
  for (size_t i = 0; i < bytes; ++i)
    if (((const unsigned char *)memory)[i] != value) return false;
  return true;
}

bool gpu_is_filled(gpu_buffer *buffer, unsigned char value) {
  gpu_download(buffer);
  return is_filled(buffer->host, buffer->bytes, value);
}

static void check_guards(gpu_buffer *buffer) {
  unsigned char guard[GUARD_BYTES];
  for (int side = 0; side < 2; ++side) {
    if (!CHECK_OK(moert_copy(buffer->rank->context, guard, side ? buffer->guarded + GUARD_BYTES + buffer->bytes : buffer->guarded, GUARD_BYTES)))
      return;
    gpu_check(is_filled(guard, GUARD_BYTES, GPU_POISON), __FILE__, __LINE__, "rank %d: memory %s a buffer of %zu bytes was written",
              buffer->rank->rank, side ? "behind" : "before", buffer->bytes);
  }
}

// Symmetric memory is the communicator's.
static void free_buffers(gpu_rank *rank) {
  for (gpu_buffer *buffer = rank->buffers, *next; buffer; buffer = next) {
    next = buffer->next;
    if (buffer->guarded) check_guards(buffer);
    if (buffer->memory == MOERT_MEMORY_HOST)
      free(buffer->guarded);
    else
      moert_device_free(rank->comm, buffer->guarded);
    free(buffer->host);
    free(buffer);
  }
  rank->buffers = NULL;
}

// splitmix64
uint64_t gpu_random_bits(gpu_rank *rank) {
  uint64_t bits = rank->random += 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

int64_t gpu_random_below(gpu_rank *rank, int64_t bound) { return (int64_t)(gpu_random_bits(rank) % (uint64_t)bound); }

void gpu_random(gpu_buffer *buffer, double scale) {
  bool has_fractions = is_float(dtype_name(buffer));
  for (int64_t i = 0; i < buffer->count; ++i) {
    double unit = (double)(gpu_random_bits(buffer->rank) >> 11) * 0x1p-53;
    gpu_set(buffer, i, has_fractions ? (2 * unit - 1) * scale : unit * scale);
  }
  gpu_upload(buffer);
}

void gpu_result_part(const char *name, gpu_buffer *buffer, int64_t count) {
  gpu_download(buffer);
  const char *dtype = dtype_name(buffer);
  result(buffer->rank, name, dtype, buffer->host, (size_t)(count * element_size(dtype)));
}

void gpu_result(const char *name, gpu_buffer *buffer) { gpu_result_part(name, buffer, buffer->count); }

//===--- ranks --------------------------------------------------------------------------------------===//

typedef struct Run {
  gpu_rank rank;
  gpu_body *body;
  pthread_t thread;
} Run;

static void run_rank(Run *run) {
  gpu_rank *rank = &run->rank;
  rank->rank = moert_comm_rank(rank->comm);
  rank->size = moert_comm_size(rank->comm);
  rank->random = (uint64_t)rank->rank * 7919 + 1;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = TIMEOUT_MS;
  if (!CHECK_OK(moert_context_create(rank->comm, &options, &rank->context))) return;
  run->body(rank);
  free_buffers(rank);
  moert_context_destroy(rank->context);
}

static void *run_thread(void *data) {
  run_rank(data);
  return NULL;
}

static int32_t devices_of(int32_t gpus) {
  int32_t count = gpu_count();
  return gpus > 0 && gpus < count ? gpus : count;
}

// `is_device`: on GPUs, or on what stands for them.
static void run_threads(bool is_device, int32_t size, int32_t gpus, gpu_body *body, void *user, gpu_records *records) {
  bool cuda = is_device && !on_host;
  moert_comm *comms[MOERT_MAX_RANKS] = {NULL};
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = cuda ? MOERT_DEVICE_CUDA : MOERT_DEVICE_CPU;
  if (cuda) options.num_devices = devices_of(gpus);
  if (!CHECK_OK(moert_comm_create_threads(size, &options, comms))) return;
  Run *runs = calloc((size_t)size, sizeof *runs);
  for (int32_t r = 0; r < size; ++r) {
    runs[r].body = body;
    runs[r].rank = (gpu_rank){.cuda = cuda, .is_compared = is_device, .comm = comms[r], .user = user, .records = records};
    if (pthread_create(&runs[r].thread, NULL, run_thread, &runs[r]) != 0) exit(2);
  }
  for (int32_t r = 0; r < size; ++r) pthread_join(runs[r].thread, NULL);
  for (int32_t r = 0; r < size; ++r) moert_comm_destroy(comms[r]);
  free(runs);
}

void gpu_both(int32_t size, int32_t gpus, gpu_body *body, void *user) {
  gpu_records *records = calloc(1, sizeof *records);
  run_threads(false, size, 0, body, user, records);
  run_threads(true, size, gpus, body, user, records);
  free_records(records);
}

bool gpu_needed(void) {
  if (on_host) atomic_store(&shared->is_skipped, true);
  return !on_host;
}

void gpu_only(int32_t size, int32_t gpus, gpu_body *body, void *user) {
  if (gpu_needed()) run_threads(true, size, gpus, body, user, NULL);
}

void gpu_host_only(int32_t size, gpu_body *body, void *user) { run_threads(false, size, 0, body, user, NULL); }

void gpu_use_options(gpu_rank *rank, const moert_context_options *options) {
  moert_context_options own = *options;
  own.stream = NULL;
  moert_context_destroy(rank->context);
  rank->context = NULL;
  if (!CHECK_OK(moert_context_create(rank->comm, &own, &rank->context))) exit(2);
}

//===--- replays ------------------------------------------------------------------------------------===//

static bool check_cuda(cudaError_t error, const char *call, int line) {
  return gpu_check(error == cudaSuccess, __FILE__, line, "%s: %s", call, cudaGetErrorString(error));
}

#define CHECK_CUDA(call) check_cuda(call, #call, __LINE__)

// To make and to free a graph may wait for the device: nobody does while another rank may wait there for this one.
static void meet(const gpu_rank *rank) { CHECK_OK(moert_comm_barrier(rank->comm, 0)); }

static moert_status replay(gpu_rank *rank, moert_status (*step)(gpu_rank *rank, void *data), void *data, int times) {
  cudaStream_t stream = moert_context_stream(rank->context);
  cudaGraph_t graph = NULL;
  cudaGraphExec_t executable = NULL;
  if (!CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))) return MOERT_ERROR_DEVICE;
  moert_status status = step(rank, data);
  bool captured = CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  bool made = status == MOERT_OK && captured && CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  if (made) CHECK_CUDA(cudaGraphUpload(executable, stream));
  moert_status end = moert_context_synchronize(rank->context);
  meet(rank);
  for (int i = 0; made && i < times; ++i) CHECK_CUDA(cudaGraphLaunch(executable, stream));
  if (end == MOERT_OK) end = moert_context_synchronize(rank->context);
  meet(rank);
  if (executable) cudaGraphExecDestroy(executable);
  if (graph) cudaGraphDestroy(graph);
  return status != MOERT_OK ? status : end;
}

moert_status gpu_replay(gpu_rank *rank, moert_status (*step)(gpu_rank *rank, void *data), void *data, int times) {
  if (!rank->cuda) {
    moert_status status = MOERT_OK;
    for (int i = 0; i < times && status == MOERT_OK; ++i) status = step(rank, data);
    return status;
  }
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(moert_comm_device(rank->comm).id);
  moert_status status = replay(rank, step, data, times);
  cudaSetDevice(previous);
  return status;
}

//===--- processes ----------------------------------------------------------------------------------===//

// CUDA does not survive a fork. So gpu_begin forks a process that never uses it; on request this one forks the ranks.
typedef struct Request {
  int32_t size, gpus, killed;
  gpu_body *body;
  char user[MOST_USER_BYTES];
} Request;

enum { SLOT_BYTES = 4096 };
typedef struct Meeting { // of the ranks of a request
  pthread_barrier_t barrier;
  char slots[MOERT_MAX_RANKS][SLOT_BYTES];
} Meeting;

typedef struct Member {
  Meeting *meeting;
  int32_t rank, size;
} Member;

static int gather(void *user, const void *mine, size_t bytes, void *all) {
  Member *member = user;
  if (bytes > SLOT_BYTES) return 1;
  memcpy(member->meeting->slots[member->rank], mine, bytes);
  pthread_barrier_wait(&member->meeting->barrier);
  for (int32_t r = 0; r < member->size; ++r) memcpy((char *)all + (size_t)r * bytes, member->meeting->slots[r], bytes);
  pthread_barrier_wait(&member->meeting->barrier);
  return 0;
}

static void run_process(const Request *request, Meeting *meeting, int32_t r) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(SECONDS_OF_A_PROCESS);
  Request own = *request;
  gpu_records *records = calloc(1, sizeof *records);
  if (request->killed < 0) run_threads(false, request->size, 0, request->body, own.user, records);
  Member member = {meeting, r, request->size};
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  if (!on_host) {
    options.device_type = MOERT_DEVICE_CUDA;
    options.num_devices = devices_of(request->gpus);
  }
  Run run = {.body = request->body,
             .rank = {.cuda = !on_host, .is_process = true, .is_compared = true, .user = own.user, .records = request->killed < 0 ? records : NULL}};
  if (CHECK_OK(moert_comm_create_process(r, request->size, &options, gather, &member, &run.rank.comm))) run_rank(&run);
  moert_comm_destroy(run.rank.comm);
  free_records(records);
  exit(0);
}

static void serve(const Request *request) {
  Meeting *meeting = map_shared(sizeof *meeting);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&meeting->barrier, &attributes, (unsigned)request->size);
  pid_t ranks[MOERT_MAX_RANKS];
  for (int32_t r = 0; r < request->size; ++r)
    if ((ranks[r] = fork()) == 0) run_process(request, meeting, r);
  for (int32_t r = 0; r < request->size; ++r) {
    int status = 0;
    waitpid(ranks[r], &status, 0);
    bool as_it_must = r == request->killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    gpu_check(as_it_must, __FILE__, __LINE__, "the process of rank %d ended with wait status %#x", r, status);
  }
  munmap(meeting, sizeof *meeting);
}

static void start_zygote(void) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) exit(2);
  pid_t child = fork();
  if (child < 0) exit(2);
  if (child > 0) {
    close(sockets[1]);
    zygote = sockets[0];
    return;
  }
  close(sockets[0]);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Request request;
  char done = 1;
  while (recv(sockets[1], &request, sizeof request, 0) == sizeof request) {
    serve(&request);
    if (send(sockets[1], &done, 1, 0) != 1) break;
  }
  _exit(0);
}

void gpu_processes(int32_t size, int32_t gpus, gpu_body *body, const void *user, size_t bytes, int32_t killed) {
  Request request = {size, gpus, killed, body, {0}};
  if (!CHECK(bytes <= MOST_USER_BYTES)) return;
  if (bytes > 0) memcpy(request.user, user, bytes);
  char done = 0;
  CHECK(send(zygote, &request, sizeof request, 0) == sizeof request && recv(zygote, &done, 1, 0) == 1);
}
