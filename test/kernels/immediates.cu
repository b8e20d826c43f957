//===- immediates.cu - kernels whose machine code immediates.py reads ---------------------------------===//
//
// An instance and the generic kernel of each kind, and where the static parameters lie in the kernels' arguments.
//
//===----------------------------------------------------------------------------------------------===//

#include "kernels/ep_combine_skip_a2a/kernels.cuh"
#include "kernels/ep_dispatch/kernels.cuh"
#include "kernels/moe_route/kernels.cuh"
#include <stddef.h>

extern "C" {
__device__ int DispatchCall_hidden = offsetof(DispatchCall, layer.hidden);
__device__ int DispatchCall_topK = offsetof(DispatchCall, layer.topK);
__device__ int CombineCall_hidden = offsetof(CombineCall, layer.hidden);
__device__ int CombineCall_topK = offsetof(CombineCall, layer.topK);
__device__ int RouteCall_experts = offsetof(RouteCall, experts);
__device__ int RouteCall_topK = offsetof(RouteCall, topK);
}

template __global__ void placePairs<8>(DispatchCall);
template __global__ void placePairs<0>(DispatchCall);
template __global__ void copyTokens<7168, 8, uint4>(DispatchCall);
template __global__ void copyTokens<0, 0, uint4>(DispatchCall);
template __global__ void combineRows<MOERT__BF16, 7168, 8, 8>(CombineCall);
template __global__ void combineRows<MOERT__BF16, 0, 0, 8>(CombineCall);
template __global__ void routeTokens<MOERT__BF16, 256, 8>(RouteCall);
template __global__ void routeTokens<MOERT__BF16, 0, 0>(RouteCall);
