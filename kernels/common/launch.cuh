//===- launch.cuh - what the launchers of the kernels share -----------------------------------------===//
//
// kernels/<op>/launch.cu defines moert__cuda_<op>: it makes the checks that the host backend makes, picks the instance, and puts the kernels on
// the context's stream. Nothing here waits for the device, allocates outside the arena, or reads device memory, so that every launcher can be
// captured.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_LAUNCH_CUH
#define MOE_KERNELS_LAUNCH_CUH

#include "lib/reference/numerics.h"
#include "lib/runtime/shared.h"

#include "cuda_ops.h" // generated: the launchers' prototypes
#include <cuda_runtime_api.h>

//===--- instances --------------------------------------------------------------------------------===//

// Whether the library is built with the kernels of a set: MOE_KERNEL_SET is 0, 1 or 2 for minimal, default or full. An instance of a larger set keeps
// its number and is served by the generic kernel, whose bits are the same.
#define MOE_SET_minimal 0
#define MOE_SET_default 1
#define MOE_SET_full 2
#define MOE_IS_BUILT(set) (MOE_SET_##set <= MOE_KERNEL_SET)

// Element types as the first column of specializations.def names them.
enum class Dtype { bf16, f16, f32, any };

inline Dtype dtypeOf(const moert_tensor *tensor) {
  if (tensor->dtype.code == MOERT_CODE_BFLOAT && tensor->dtype.bits == 16) return Dtype::bf16;
  if (tensor->dtype.code == MOERT_CODE_FLOAT && tensor->dtype.bits == 16) return Dtype::f16;
  if (tensor->dtype.code == MOERT_CODE_FLOAT && tensor->dtype.bits == 32) return Dtype::f32;
  return Dtype::any;
}

inline bool accepts(Dtype instance, Dtype given) { return instance == Dtype::any || instance == given; }

// Of an element type that is not `any`.
constexpr moert__format formatOf(Dtype dtype) { return dtype == Dtype::bf16 ? MOERT__BF16 : dtype == Dtype::f16 ? MOERT__F16 : MOERT__F32; }

// Goes through the list of an op's instances. A launcher defines MOE_COLUMNS as nothing and MOE_SPECIALIZATION(set, type, ...) as
//
//   if (selection.takes(accepts(Dtype::type, dtype) && <the call's parameters are those of the columns>))
//     if constexpr (MOE_IS_BUILT(set)) return run<formatOf(Dtype::type), ...>(call, context);
//
// includes its specializations.def, and launches the generic kernel behind it unless the selection is mistaken: kernels/moe_route/launch.cu.
class Selection {
public:
  explicit Selection(int32_t wanted) : wanted(wanted) {}

  // Called for each instance in the order of the list, with whether it was made for the parameters of the call: whether to launch it.
  bool takes(bool fits) {
    const int32_t number = next++;
    found |= fits && number == wanted;
    return fits && (number == wanted || wanted == MOERT__CHOOSE);
  }

  // Behind the list: whether the caller named an instance that does not fit, or that there is not.
  bool mistaken() const { return wanted >= 0 && !found; }

private:
  int32_t wanted, next = 0;
  bool found = false;
};

// What a caller that names an instance for other parameters is told.
inline moert_status failInstance(int32_t instance) {
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "kernel is specialisation %d of the op, which was made for other parameters or element types",
                     static_cast<int>(instance));
}

//===--- launches ---------------------------------------------------------------------------------===//

inline moert_status failDevice(cudaError_t error, const char *what) {
  cudaGetLastError(); // it has been reported
  return moert__fail(MOERT_ERROR_DEVICE, "%s: %s (%s)", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

inline cudaStream_t streamOf(const moert_context *context) { return static_cast<cudaStream_t>(moert_context_stream(context)); }

struct Grid {
  dim3 blocks, threads;
  size_t shared;
  bool overlaps;        // may begin before the kernel in front of it on the stream has ended, and waits for that itself
  unsigned cluster = 0; // blocks of a cluster, 0: there are none
  bool waits = false;   // for other ranks
};

// `kernel` on the context's stream. A grid without blocks does nothing.
//
// The first launch of a kernel may wait for the device, and so for ranks that wait for this one, if its stack does not fit into what is there.
// Kernels of this library keep everything in registers, up to a few bytes of the 1024 that a thread always has (cudaLimitStackSize).
template <typename... Parameters, typename... Arguments>
moert_status launch(const moert_context *context, void (*kernel)(Parameters...), const Grid &grid, Arguments... arguments) {
  const size_t kAlways = 48 * 1024; // shared memory that needs no leave
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return MOERT_OK;
  cudaError_t error = cudaSuccess;
  if (grid.shared > kAlways) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared));
  // A multiprocessor may set aside as much as its first block needs, and let none in that needs more until that has ended: which may wait for it.
  if ((grid.shared > kAlways || grid.waits) && error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return failDevice(error, "shared memory of a kernel");
  cudaLaunchAttribute attributes[2] = {};
  unsigned numAttributes = 0;
  if (grid.overlaps) {
    attributes[numAttributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[numAttributes++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 0) {
    attributes[numAttributes].id = cudaLaunchAttributeClusterDimension;
    attributes[numAttributes++].val.clusterDim = {grid.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = streamOf(context);
  config.attrs = attributes;
  config.numAttrs = numAttributes;
  error = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
  return error == cudaSuccess ? MOERT_OK : failDevice(error, "a kernel could not be launched");
}

template <typename... Parameters, typename... Arguments>
moert_status launch(const moert_context *context, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared, Arguments... arguments) {
  return launch(context, kernel, Grid{blocks, threads, shared, false}, arguments...);
}

inline int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks for `work` pieces: as many as fill the device some times over, each of which takes pieces in turns.
inline unsigned gridFor(int64_t work, int64_t most = 132 * 16) { return static_cast<unsigned>(work < most ? work : most); }

#endif
