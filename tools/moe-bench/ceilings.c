//===- ceilings.c - what the machine gives at most ----------------------------------------------------===//

#include "bench.h"
#include "device.h"

const Ceilings reference_ceilings = {.link_gbs = 360, .memory_gbs = 4210, .read_gbs = 4430, .matrix_tflops = 769, .flag_us = 2.43, .node_us = 0.58};

enum { LINK_BYTES = 256 << 20, COPY_BYTES = 1 << 30, TIMES = 10, LINK_BLOCKS = 264, ROUNDS = 2000, NODES = 1000 };

// What is allocated on a GPU while it is measured.
typedef struct Side {
  int device;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  unsigned char *from, *to;
  unsigned *flag;
} Side;

static cudaError_t open_side(Side *side, int device) {
  side->device = device;
  cudaError_t error = cudaSetDevice(device);
  if (!error) error = cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking);
  if (!error) error = cudaEventCreate(&side->begin);
  if (!error) error = cudaEventCreate(&side->end);
  if (!error) error = cudaMalloc((void **)&side->from, COPY_BYTES);
  if (!error) error = cudaMalloc((void **)&side->to, COPY_BYTES);
  if (!error) error = cudaMalloc((void **)&side->flag, sizeof *side->flag);
  if (!error) error = cudaMemset(side->flag, 0, sizeof *side->flag);
  if (!error) error = cudaMemset(side->from, 1, COPY_BYTES);
  return error ? error : cudaDeviceSynchronize(); // the stream does not wait for what was set
}

static void close_side(Side *side) {
  cudaSetDevice(side->device);
  cudaFree(side->from);
  cudaFree(side->to);
  cudaFree(side->flag);
  if (side->begin) cudaEventDestroy(side->begin);
  if (side->end) cudaEventDestroy(side->end);
  if (side->stream) cudaStreamDestroy(side->stream);
}

static cudaError_t begin(Side *side) {
  cudaError_t error = cudaSetDevice(side->device);
  return error ? error : cudaEventRecord(side->begin, side->stream);
}

static cudaError_t finish(Side *side, double *us) {
  float ms = 0;
  cudaError_t error = cudaEventSynchronize(side->end);
  if (!error) error = cudaEventElapsedTime(&ms, side->begin, side->end);
  *us = 1e3 * (double)ms;
  return error;
}

static cudaError_t copy_times(Side *side, unsigned char *to, size_t bytes, int blocks) {
  cudaError_t error = device_copy(to, side->from, bytes, blocks, side->stream); // not timed
  if (!error) error = begin(side);
  for (int i = 0; i < TIMES && !error; ++i) error = device_copy(to, side->from, bytes, blocks, side->stream);
  return error ? error : cudaEventRecord(side->end, side->stream);
}

static cudaError_t measure_memory(Side *side, double *gbs) {
  double us = 0;
  cudaError_t error = cudaSetDevice(side->device);
  if (!error) error = copy_times(side, side->to, COPY_BYTES, 0);
  if (!error) error = finish(side, &us);
  *gbs = 2e-3 * COPY_BYTES * TIMES / us;
  return error;
}

static cudaError_t measure_reads(Side *side, double *gbs) {
  double us = 0;
  cudaError_t error = cudaSetDevice(side->device);
  if (!error) error = device_read(side->from, COPY_BYTES, side->flag, side->stream); // not timed
  if (!error) error = begin(side);
  for (int i = 0; i < TIMES && !error; ++i) error = device_read(side->from, COPY_BYTES, side->flag, side->stream);
  if (!error) error = cudaEventRecord(side->end, side->stream);
  if (!error) error = finish(side, &us);
  *gbs = 1e-3 * COPY_BYTES * TIMES / us;
  return error;
}

static cudaError_t enable_peer(int device, int peer) {
  cudaError_t error = cudaSetDevice(device);
  if (!error) error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) return error;
  cudaGetLastError();
  return cudaSuccess;
}

static cudaError_t measure_link(Side sides[2], double *gbs) {
  double us[2] = {0, 0};
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < 2 && !error; ++i) error = enable_peer(sides[i].device, sides[1 - i].device);
  for (int i = 0; i < 2 && !error; ++i) {
    error = cudaSetDevice(sides[i].device);
    if (!error) error = copy_times(&sides[i], sides[1 - i].to, LINK_BYTES, LINK_BLOCKS);
  }
  for (int i = 0; i < 2 && !error; ++i) error = finish(&sides[i], &us[i]);
  *gbs = 1e-3 * LINK_BYTES * TIMES / (us[0] > us[1] ? us[0] : us[1]);
  return error;
}

static cudaError_t measure_flag(Side sides[2], double *us) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < 2 && !error; ++i) {
    error = begin(&sides[i]);
    if (!error) error = device_ping_pong(sides[i].flag, sides[1 - i].flag, i == 0, ROUNDS, sides[i].stream);
    if (!error) error = cudaEventRecord(sides[i].end, sides[i].stream);
  }
  double all = 0;
  if (!error) error = finish(&sides[1], &all); // it began last
  *us = all / ROUNDS;
  return error ? error : cudaStreamSynchronize(sides[0].stream);
}

static cudaError_t make_empty_graph(Side *side, cudaGraphExec_t *graph) {
  cudaGraph_t recorded = NULL;
  cudaError_t error = cudaStreamBeginCapture(side->stream, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < NODES && !error; ++i) error = device_nothing(side->stream);
  cudaError_t ended = cudaStreamEndCapture(side->stream, &recorded);
  if (!error) error = ended;
  if (!error) error = cudaGraphInstantiate(graph, recorded, 0);
  if (recorded) cudaGraphDestroy(recorded);
  return error;
}

static cudaError_t measure_node(Side *side, double *us) {
  cudaGraphExec_t graph = NULL;
  double all = 0;
  cudaError_t error = cudaSetDevice(side->device);
  if (!error) error = make_empty_graph(side, &graph);
  if (!error) error = cudaGraphLaunch(graph, side->stream); // not timed
  if (!error) error = begin(side);
  if (!error) error = cudaGraphLaunch(graph, side->stream);
  if (!error) error = cudaEventRecord(side->end, side->stream);
  if (!error) error = finish(side, &all);
  if (graph) cudaGraphExecDestroy(graph);
  *us = all / NODES;
  return error;
}

cudaError_t ceilings_measure(int num_gpus, Ceilings *measured) {
  Side sides[2] = {{0}, {0}};
  int count = num_gpus < 2 ? 1 : 2;
  cudaError_t error = cudaSuccess;
  *measured = (Ceilings){0};
  for (int i = 0; i < count && !error; ++i) error = open_side(&sides[i], i);
  if (!error) error = measure_memory(&sides[0], &measured->memory_gbs);
  if (!error) error = measure_reads(&sides[0], &measured->read_gbs);
  if (!error) error = measure_node(&sides[0], &measured->node_us);
  if (!error && count == 2) error = measure_link(sides, &measured->link_gbs);
  if (!error && count == 2) error = measure_flag(sides, &measured->flag_us);
  for (int i = 0; i < count; ++i) close_side(&sides[i]);
  return error;
}
