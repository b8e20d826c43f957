//===- stream.c - streams, copies, captures -------------------------------------------------------------===//

#include "cuda.h"
#include <pthread.h>

static moert_status finish(int32_t entered, cudaError_t error, const char *call) {
  moert__cuda_leave(entered);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, call);
}

//===--- streams ----------------------------------------------------------------------------------===//

// A device takes work from up to 32 queues, to which CUDA deals streams in turn as they are made. Behind a kernel that waits, all of its queue waits,
// so ranks of one device need streams of different queues, and the library's own work one that no rank has: those that are made one after the other,
// and stay. Of the streams for contexts the first free one is taken, so that the last, which has the queue of the library's own, is the last resort.
enum { STREAMS = 32 };
typedef struct Streams {
  bool is_made, is_taken[STREAMS];
  cudaStream_t own, streams[STREAMS];
} Streams;

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static Streams of_device[MOERT__CUDA_MAX_DEVICES];

// Not ordered with the legacy stream: what a rank waits for must not stop the program's other work, nor be stopped by it.
static cudaError_t make_stream(cudaStream_t *stream) { return *stream ? cudaSuccess : cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); }

static cudaError_t make_all(Streams *made) {
  cudaError_t error = make_stream(&made->own);
  for (int i = 0; i < STREAMS && error == cudaSuccess; ++i) error = make_stream(&made->streams[i]);
  made->is_made = error == cudaSuccess;
  return error;
}

moert_status moert__cuda_make_streams(int32_t device) {
  pthread_mutex_lock(&streams_lock);
  Streams *made = &of_device[device];
  cudaError_t error = made->is_made ? cudaSuccess : make_all(made);
  pthread_mutex_unlock(&streams_lock);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "cudaStreamCreateWithFlags");
}

cudaStream_t moert__cuda_own_stream(int32_t device) { return of_device[device].own; }

static cudaError_t take_stream(Streams *from, cudaStream_t *stream) {
  for (int i = 0; i < STREAMS; ++i) {
    if (from->is_taken[i]) continue;
    from->is_taken[i] = true;
    *stream = from->streams[i];
    return cudaSuccess;
  }
  return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}

moert_status moert__cuda_create_stream(int32_t device, void **stream) {
  int32_t entered = moert__cuda_enter(device);
  cudaStream_t made = NULL;
  pthread_mutex_lock(&streams_lock);
  cudaError_t error = take_stream(&of_device[device], &made);
  pthread_mutex_unlock(&streams_lock);
  if (error == cudaSuccess) *stream = made;
  return finish(entered, error, "cudaStreamCreateWithFlags");
}

// Whether it was one of those that stay.
static bool give_back(Streams *to, cudaStream_t stream) {
  for (int i = 0; i < STREAMS; ++i) {
    if (to->streams[i] != stream) continue;
    to->is_taken[i] = false;
    return true;
  }
  return false;
}

void moert__cuda_destroy_stream(int32_t device, void *stream) {
  int32_t entered = moert__cuda_enter(device);
  pthread_mutex_lock(&streams_lock);
  bool stays = give_back(&of_device[device], stream);
  pthread_mutex_unlock(&streams_lock);
  if (!stays && cudaStreamDestroy(stream) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
}

bool moert__cuda_is_capturing(int32_t device, void *stream) {
  int32_t entered = moert__cuda_enter(device);
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
  // The legacy stream may not be used while another stream is captured in the mode `global`; that is an error, and all the caller needs to know.
  return status != cudaStreamCaptureStatusNone || error == cudaErrorStreamCaptureImplicit;
}

// Waiting inside a capture would break it.
static moert_status check_not_capturing(int32_t device, void *stream, const char *what) {
  if (!moert__cuda_is_capturing(device, stream)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_NOT_CAPTURABLE, "%s while the stream is captured", what);
}

moert_status moert__cuda_synchronize(int32_t device, void *stream) {
  moert_status status = check_not_capturing(device, stream, "the device cannot be waited for");
  if (status != MOERT_OK) return status;
  int32_t entered = moert__cuda_enter(device);
  return finish(entered, cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

//===--- copies -----------------------------------------------------------------------------------===//

moert_status moert__cuda_fill(int32_t device, void *stream, void *memory, unsigned char value, size_t bytes) {
  if (bytes == 0) return MOERT_OK;
  int32_t entered = moert__cuda_enter(device);
  return finish(entered, cudaMemsetAsync(memory, value, bytes, stream), "cudaMemsetAsync");
}

static bool is_device_memory(const void *memory) {
  struct cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess) return attributes.type == cudaMemoryTypeDevice;
  cudaGetLastError();
  return false;
}

static cudaError_t copy(void *stream, void *to, const void *from, size_t bytes, bool wait) {
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  return error == cudaSuccess && wait ? cudaStreamSynchronize(stream) : error;
}

moert_status moert__cuda_copy(int32_t device, void *stream, void *to, const void *from, size_t bytes) {
  if (bytes == 0) return MOERT_OK;
  int32_t entered = moert__cuda_enter(device);
  bool with_host = !is_device_memory(to) || !is_device_memory(from);
  moert_status status = with_host ? check_not_capturing(device, stream, "memory of the host cannot be copied") : MOERT_OK;
  if (status == MOERT_OK) return finish(entered, copy(stream, to, from, bytes, with_host), "cudaMemcpyAsync");
  moert__cuda_leave(entered);
  return status;
}

//===--- captures ---------------------------------------------------------------------------------===//

// In the mode `thread local`: other ranks, which are other threads, may allocate meanwhile.
moert_status moert__cuda_begin_capture(int32_t device, void *stream) {
  int32_t entered = moert__cuda_enter(device);
  return finish(entered, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

// All of it is brought to the device here, where no rank needs to wait yet, and not with the first replay.
static cudaError_t instantiate(cudaGraph_t graph, cudaStream_t stream, void **capture) {
  cudaGraphExec_t made = NULL;
  cudaError_t error = cudaGraphInstantiate(&made, graph, 0);
  if (error != cudaSuccess) return error;
  error = cudaGraphUpload(made, stream);
  if (error == cudaSuccess)
    *capture = made;
  else
    cudaGraphExecDestroy(made);
  return error;
}

moert_status moert__cuda_end_capture(int32_t device, void *stream, bool keep, void **capture) {
  *capture = NULL;
  int32_t entered = moert__cuda_enter(device);
  cudaGraph_t graph = NULL;
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  const char *call = "cudaStreamEndCapture";
  if (error == cudaSuccess && keep) {
    error = instantiate(graph, stream, capture);
    call = "cudaGraphInstantiate";
  }
  if (graph) cudaGraphDestroy(graph);
  if (!keep && error != cudaSuccess) { // whoever gives the capture up knows why
    cudaGetLastError();
    error = cudaSuccess;
  }
  return finish(entered, error, call);
}

moert_status moert__cuda_replay_capture(int32_t device, void *stream, void *capture) {
  int32_t entered = moert__cuda_enter(device);
  return finish(entered, cudaGraphLaunch(capture, stream), "cudaGraphLaunch");
}

void moert__cuda_destroy_capture(int32_t device, void *capture) {
  int32_t entered = moert__cuda_enter(device);
  if (cudaGraphExecDestroy(capture) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
}
