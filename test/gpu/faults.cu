//===- faults.cu - what kernels report, and what breaks a device --------------------------------------------===//
//
// Kernels of this test stand for those of ops.
//
//===----------------------------------------------------------------------------------------------===//

#include "gpu.h"
#include "kernels/common/device.cuh"
#include "lib/runtime/shared.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

//===--- faults -------------------------------------------------------------------------------------===//

__global__ static void reportOffset(moert__fault *fault, long long index, long long value) {
  report(fault, MOERT__OP_MOE_GROUPED_MATMUL, MOERT__FAULT_OFFSET_NEGATIVE, index, value);
}

static void launchReport(gpu_rank *rank, long long index) {
  cudaSetDevice(moert_comm_device(rank->comm).id);
  reportOffset<<<1, 1, 0, (cudaStream_t)moert_context_stream(rank->context)>>>(moert__context_fault(rank->context), index, -5);
  CHECK(cudaGetLastError() == cudaSuccess);
}

static const char *const kText = "moe.grouped_matmul: offsets[3] is -5, must not be negative";

static void reportOnce(gpu_rank *rank) {
  CHECK_OK(moert_context_status(rank->context));
  launchReport(rank, 3);
  launchReport(rank, 4); // the first stays
  CHECK_FAILS(moert_context_synchronize(rank->context), MOERT_ERROR_DATA, kText);
  CHECK(moert_context_status(rank->context) == MOERT_ERROR_DATA);
  CHECK_OK(moert_comm_status(rank->comm)); // no peer feels it
  moert_context *fresh = NULL;
  CHECK_OK(moert_context_create(rank->comm, NULL, &fresh));
  CHECK_OK(moert_context_status(fresh));
  CHECK_OK(moert_context_synchronize(fresh));
  moert_context_destroy(fresh);
}

// The next call of the context returns what a kernel before it met.
static void reportToNextCall(gpu_rank *rank) {
  static int64_t shape[2] = {4, 4}, chosen[2] = {4, 1};
  void *memory = NULL;
  CHECK_OK(moert_device_alloc(rank->comm, 4096, &memory));
  moert_device device = moert_comm_device(rank->comm);
  moert_tensor logits = {memory, device, 2, {MOERT_CODE_FLOAT, 32, 1}, shape, NULL, 0};
  moert_tensor ids = {memory, device, 2, {MOERT_CODE_INT, 32, 1}, chosen, NULL, 1024};
  moert_tensor weights = {memory, device, 2, {MOERT_CODE_FLOAT, 32, 1}, chosen, NULL, 2048};
  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  params.top_k = 1, params.n_experts = 4;
  moert_moe_route_args args = MOERT_MOE_ROUTE_ARGS_INIT;
  args.logits = &logits, args.ids = &ids, args.weights = &weights;
  launchReport(rank, 3);
  CHECK(cudaStreamSynchronize((cudaStream_t)moert_context_stream(rank->context)) == cudaSuccess);
  CHECK_FAILS(moert_moe_route(&params, &args, NULL, rank->context), MOERT_ERROR_DATA, kText);
  moert_device_free(rank->comm, memory);
}

static void seeStatus(gpu_rank *rank) {
  launchReport(rank, 3);
  for (int64_t i = 0; i < 100000000 && moert_context_status(rank->context) == MOERT_OK; ++i) continue; // without waiting for the stream
  CHECK(moert_context_status(rank->context) == MOERT_ERROR_DATA);
  CHECK_FAILS(moert_comm_check(rank->comm), MOERT_ERROR_DATA, kText);
}

//===--- broken devices -----------------------------------------------------------------------------===//

__global__ static void writeNowhere(int *memory) { *memory = 1; }

// CUDA gives up the process's context; the library says so, again and again, and nothing crashes.
static void breakDevice(gpu_rank *rank) {
  if (!rank->cuda) return; // of the two runs that are compared
  cudaSetDevice(moert_comm_device(rank->comm).id);
  writeNowhere<<<1, 1, 0, (cudaStream_t)moert_context_stream(rank->context)>>>((int *)8);
  for (int i = 0; i < 3; ++i) {
    CHECK(moert_context_synchronize(rank->context) == MOERT_ERROR_DEVICE);
    CHECK(strstr(moert_last_error(), "cudaErrorIllegalAddress") != NULL);
  }
  void *memory = NULL;
  CHECK(moert_device_alloc(rank->comm, 16, &memory) == MOERT_ERROR_DEVICE);
  CHECK(strstr(moert_last_error(), "cudaErrorIllegalAddress") != NULL);
  CHECK(memory == NULL);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  if (gpu_extent() != GPU_SMALL) // compute-sanitizer sees what this does, and must not
    gpu_case("an illegal address breaks the process's device") gpu_processes(1, 1, breakDevice, NULL, 0, -1);
  gpu_case("a fault has its text") gpu_only(2, 0, reportOnce, NULL);
  gpu_case("a fault comes with the next call") gpu_only(2, 0, reportToNextCall, NULL);
  gpu_case("a fault is seen without waiting") gpu_only(2, 0, seeStatus, NULL);
  return gpu_end();
}
