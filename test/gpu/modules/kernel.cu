//===- kernel.cu - the kernel of the graph in graph.c ------------------------------------------------------===//

extern "C" __global__ void countUp(float *out, long long size) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < size) out[i] = (float)i;
}
