//===- gpu.h - what the tests on a GPU share ----------------------------------------------------------===//
//
// A test is a body that every rank runs, once on the host backend and once on GPUs; what it names as a result must have the same bits on both:
//
//   static void body(gpu_rank *rank) {
//     gpu_buffer *x = gpu_new(rank, "bf16", 2, 64, 2048), *y = gpu_new(rank, "bf16", 2, 64, 2048);
//     gpu_random(x, 1.0);
//     moert_moe_..._args args = MOERT_MOE_..._ARGS_INIT;
//     args.x = &x->tensor, args.y = &y->tensor;
//     CHECK_OK(moert_moe_...(&params, &args, NULL, rank->context));
//     CHECK_OK(moert_context_synchronize(rank->context));
//     gpu_result("y", y);
//   }
//   int main(int argc, char **argv) {
//     gpu_begin(argc, argv);
//     gpu_case("4 ranks") gpu_both(4, 0, body, NULL);
//     return gpu_end();
//   }
//
// Everything that a body makes through the rank is freed when it returns. Checks may fail in any thread; they say so, and the test goes on. Buffers
// are made in C: their macros use compound literals.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_GPU_H
#define MOERT_TEST_GPU_H

#include <moert/moert.h>
#include <moert/ops.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

//===--- programs and checks ------------------------------------------------------------------------===//

// How much a program does: --small (seconds, for compute-sanitizer), --quick, or all.
typedef enum gpu_size { GPU_SMALL, GPU_QUICK, GPU_FULL } gpu_size;

// Options: --small, --quick, words that a case must have one of in its name, and --host: the host backend stands for the GPUs, so that a program can
// be tried where there are none. Call it first: it makes the process that gpu_processes needs.
void gpu_begin(int argc, char **argv);
int gpu_end(void); // prints the verdict; the program's exit status
gpu_size gpu_extent(void);
int32_t gpu_count(void); // of GPUs; 0 with --host

// A case has one line: PASS, FAIL or SKIP (it needs a GPU), its name and its time. Its statement is left out if the options do not name it.
#define gpu_case(...) for (bool run_ = gpu_case_begin(__VA_ARGS__); run_; gpu_case_end(), run_ = false)
bool gpu_case_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gpu_case_end(void);

// Each returns whether it holds.
#define CHECK(condition) gpu_check(condition, __FILE__, __LINE__, "%s", #condition)
#define CHECK_OK(call) gpu_check_status(call, MOERT_OK, NULL, __FILE__, __LINE__, #call)
#define CHECK_FAILS(call, status, text) gpu_check_status(call, status, text, __FILE__, __LINE__, #call) // text: all of the last error; NULL: any
bool gpu_check(bool holds, const char *file, int line, const char *format, ...) __attribute__((format(printf, 4, 5)));
bool gpu_check_status(moert_status status, moert_status expected, const char *text, const char *file, int line, const char *call);

//===--- ranks --------------------------------------------------------------------------------------===//

typedef struct gpu_buffer gpu_buffer;
typedef struct gpu_records gpu_records;

typedef struct gpu_rank {
  int32_t rank, size;
  bool cuda;       // else the host backend, with --host always
  bool is_process; // else a thread
  moert_comm *comm;
  moert_context *context;
  void *user;
  // The harness's own.
  bool is_compared; // else its results are those to compare with
  uint64_t random;
  gpu_buffer *buffers;
  gpu_records *records;
  int num_results;
} gpu_rank;

typedef void gpu_body(gpu_rank *rank);

// Run the body on `size` ranks of the host backend, then on as many of `gpus` GPUs (0: all), rank r on GPU r % gpus; what it passes to gpu_result and
// gpu_same_status must be equal. `user` is given to every rank as it is.
void gpu_both(int32_t size, int32_t gpus, gpu_body *body, void *user);
// On GPUs only, or on the host only; results are not compared.
void gpu_only(int32_t size, int32_t gpus, gpu_body *body, void *user);
// Whether there are GPUs; else the case is skipped. For statements of a case other than these.
bool gpu_needed(void);
void gpu_host_only(int32_t size, gpu_body *body, void *user);
// As gpu_both, with a process for each rank on GPUs; each also runs the host's ranks to compare with. `user` is copied from `bytes` bytes. `killed`
// is the rank whose process the body kills (raise(SIGKILL)), -1: none.
void gpu_processes(int32_t size, int32_t gpus, gpu_body *body, const void *user, size_t bytes, int32_t killed);

// Give the rank a context with other options (its `stream` is ignored) in place of its own.
void gpu_use_options(gpu_rank *rank, const moert_context_options *options);

// What the body does between ops. On GPUs `step` is captured once into a CUDA graph, which is replayed `times` times; on the host it is called as
// often. Then the stream is waited for. The status is the first that is not MOERT_OK. Collective on GPUs.
moert_status gpu_replay(gpu_rank *rank, moert_status (*step)(gpu_rank *rank, void *data), void *data, int times);

//===--- buffers ------------------------------------------------------------------------------------===//

struct gpu_buffer {
  moert_tensor tensor; // for the ops
  void *host;          // its elements as the host sees them: gpu_upload and gpu_download move them
  size_t bytes;
  int64_t count;
  int64_t shape[8];
  moert_memory memory;
  gpu_rank *rank;
  char *guarded; // the memory with a guard zone on both sides, NULL if it has none
  gpu_buffer *next;
};

// `dtype`: bf16, f16, f32, f64, i8, i16, i32, i64, ui8, ui32, ui64, f8E4M3FN, f8E8M0FNU; then the sizes. Elements of f8 are their codes, from 0 to
// 255, to all functions below. New memory is poison: 0xcb in every byte, and so are guard zones
// around it that nobody may write; symmetric memory is zero as the library gives it.
#define gpu_new(rank, dtype, ndim, ...) gpu_new_in(rank, MOERT_MEMORY_DEVICE, dtype, ndim, (const int64_t[8]){__VA_ARGS__})
#define gpu_new_host(rank, dtype, ndim, ...) gpu_new_in(rank, MOERT_MEMORY_HOST, dtype, ndim, (const int64_t[8]){__VA_ARGS__})
#define gpu_new_symmetric(rank, dtype, ndim, ...) gpu_new_in(rank, MOERT_MEMORY_SYMMETRIC, dtype, ndim, (const int64_t[8]){__VA_ARGS__}) // collective
gpu_buffer *gpu_new_in(gpu_rank *rank, moert_memory memory, const char *dtype, int32_t ndim, const int64_t *shape);

void gpu_upload(gpu_buffer *buffer);   // host to tensor
void gpu_download(gpu_buffer *buffer); // tensor to host
void gpu_fill(gpu_buffer *buffer, unsigned char value);
bool gpu_is_filled(gpu_buffer *buffer, unsigned char value); // downloads
enum { GPU_POISON = 0xcb };

// The same numbers on every backend; other ones on every rank. Floating-point values are in [-scale, scale], integers in [0, scale).
void gpu_random(gpu_buffer *buffer, double scale);
uint64_t gpu_random_bits(gpu_rank *rank);
int64_t gpu_random_below(gpu_rank *rank, int64_t bound);
// One element, of the host's copy. Numbers of every dtype as doubles.
double gpu_get(const gpu_buffer *buffer, int64_t index);
void gpu_set(gpu_buffer *buffer, int64_t index, double value);

// Download it; on GPUs compare with the host backend's result of the same name in the same place. Bits must be equal; NaN is equal to NaN.
void gpu_result(const char *name, gpu_buffer *buffer);
// The same with the first `count` elements only.
void gpu_result_part(const char *name, gpu_buffer *buffer, int64_t count);
// The same status and last error on both backends.
void gpu_same_status(gpu_rank *rank, const char *name, moert_status status);

#ifdef __cplusplus
}
#endif
#endif
