//===- launch.cu - moe.grouped_matmul on devices ------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/moe_grouped_matmul/sm90_fma.cuh"
#include "kernels/moe_grouped_matmul/sm90_mma.cuh"
#include "lib/reference/moe_grouped_matmul.h"

namespace {

using namespace grouped_matmul;

//===--- instances --------------------------------------------------------------------------------===//

// A product kernel and what its launch needs.
struct Product {
  void (*kernel)(Call);
  int rowTile;
  size_t shared; // of dynamic shared memory
};

struct Instance {
  Dtype dtype;
  Activation activation;
  Product product; // its kernel is NULL if the library is built without
};

template <Dtype kDtype, Activation kActivation> constexpr Product productOf() {
  if constexpr (kDtype == Dtype::bf16) return {sm90_moe_grouped_matmul_mma<MOERT__BF16, kActivation>, kMmaRowTile, kMmaShared};
  if constexpr (kDtype == Dtype::f16) return {sm90_moe_grouped_matmul_mma<MOERT__F16, kActivation>, kMmaRowTile, kMmaShared};
  if constexpr (kDtype == Dtype::f32) return {sm90_moe_grouped_matmul_f32<kActivation>, kFmaRowTile, kFmaShared};
}

template <bool kIsBuilt, Dtype kDtype, Activation kActivation> constexpr Instance makeInstance() {
  if constexpr (kIsBuilt) return {kDtype, kActivation, productOf<kDtype, kActivation>()};
  return {kDtype, kActivation, {nullptr, 0, 0}};
}

const Instance instances[] = {
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, dtype, activation) makeInstance<MOE_IS_BUILT(set), Dtype::dtype, Activation::activation>(),
#include "kernels/moe_grouped_matmul/specializations.def"
};
constexpr int kInstances = sizeof instances / sizeof *instances;

Product genericProduct(Dtype dtype) {
  if (dtype == Dtype::bf16) return productOf<Dtype::bf16, Activation::atRunTime>();
  if (dtype == Dtype::f16) return productOf<Dtype::f16, Activation::atRunTime>();
  return productOf<Dtype::f32, Activation::atRunTime>();
}

bool serves(const Instance &instance, Dtype dtype, bool swiglu) {
  return accepts(instance.dtype, dtype) && instance.activation == (swiglu ? Activation::swiglu : Activation::none);
}

moert_status chooseProduct(int32_t number, Dtype dtype, bool swiglu, Product *product) {
  if (number >= 0 && (number >= kInstances || !serves(instances[number], dtype, swiglu))) return failInstance(number);
  *product = genericProduct(dtype);
  for (int i = 0; i < kInstances; ++i) {
    bool named = number == i || (number == MOERT__CHOOSE && serves(instances[i], dtype, swiglu));
    if (named && instances[i].product.kernel) *product = instances[i].product;
  }
  return MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

Indices indicesOf(const moert_tensor *tensor) {
  return tensor ? Indices{moert__data(tensor), tensor->dtype.code == MOERT_CODE_UINT} : Indices{nullptr, false};
}

bool isVector(const void *data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

Call makeCall(const moert__grouped_matmul &checked, const moert_moe_grouped_matmul_args *args, const moert_context *context, Plan *plan) {
  Call call = {};
  call.groups = checked.groups;
  call.rows = checked.rows;
  call.columns = checked.columns;
  call.depth = checked.depth;
  call.inRows = checked.in_rows;
  call.outColumns = checked.out_columns;
  call.in = checked.in.data;
  call.weights = checked.weights.data;
  call.bias = checked.bias.data;
  call.out = checked.out.data;
  call.rowWeights = checked.row_weights;
  call.offsets = indicesOf(args->offsets);
  call.rowIds = indicesOf(args->row_ids);
  call.biasFormat = checked.bias.format;
  call.outFormat = checked.out.format;
  call.swiglu = checked.swiglu;
  call.form = checked.form;
  call.readsVectors = isVector(call.in) && isVector(call.weights);
  call.writesVectors = isVector(call.out);
  call.plan = plan;
  call.fault = moert__context_fault(context);
  call.op = MOERT__OP_MOE_GROUPED_MATMUL;
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

// A block for each processor, but not more than there can be tiles: every group may have a last one that is not full.
moert_status chooseGrid(const Call &call, const Product &product, int32_t device, unsigned *grid) {
  int processors = 0;
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return failDevice(error, "the number of processors is not known");
  int64_t down = call.rows / product.rowTile + (call.groups < call.rows ? call.groups : call.rows);
  int64_t across = ceilDivide(call.outColumns, call.swiglu ? kColumnTile / 2 : kColumnTile);
  int64_t most = processors;
  *grid = down > 0 && across > most / down ? static_cast<unsigned>(most) : gridFor(down * across, most);
  if (*grid == 0) *grid = 1; // faults are reported even if there is nothing to multiply
  return MOERT_OK;
}

moert_status launchProduct(const Call &call, const Product &product, const moert_context *context) {
  unsigned grid;
  moert_status status = chooseGrid(call, product, moert__context_device(context), &grid);
  if (status) return status;
  cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void *>(product.kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(product.shared));
  if (error != cudaSuccess) return failDevice(error, "a kernel cannot have its shared memory");
  return launch(context, product.kernel, dim3(grid), kThreads, product.shared, call);
}

moert_status launchAll(const Call &call, const Product &product, const moert_context *context) {
  moert_status status = launch(context, planGroups, dim3(1), kPlanThreads, 0, call, product.rowTile);
  if (!status && call.rowIds.data) status = launch(context, checkRowIds, dim3(gridFor(ceilDivide(call.rows, 256))), 256, 0, call);
  return status ? status : launchProduct(call, product, context);
}

} // namespace

moert_status moert__cuda_moe_grouped_matmul(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args,
                                            int32_t instance, moert_context *context) {
  moert__grouped_matmul checked;
  moert_status status = moert__grouped_matmul_check(params, args, &checked);
  Product product;
  if (!status) status = chooseProduct(instance, dtypeOf(args->rows), checked.swiglu, &product);
  if (status) return status;
  moert__arena_mark mark = moert__arena_mark_get(context);
  void *plan;
  status = moert_context_allocate(context, static_cast<int64_t>(sizeof(Plan)) + checked.groups * static_cast<int64_t>(sizeof(int64_t)), &plan);
  if (status) return status;
  status = launchAll(makeCall(checked, args, context, static_cast<Plan *>(plan)), product, context);
  moert__arena_rewind(context, mark);
  return status;
}
