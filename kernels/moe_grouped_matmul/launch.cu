//===- launch.cu - moe.grouped_matmul on devices ------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/moe_grouped_matmul/product.h"
#include "kernels/moe_grouped_matmul/sm90_fragments.cuh"
#include "kernels/moe_grouped_matmul/sm90_fma.cuh"
#include "kernels/moe_grouped_matmul/sm90_wgmma.cuh"
#include "lib/cuda/driver.h"
#include "lib/reference/moe_grouped_matmul.h"
#include <cudaTypedefs.h>

namespace {

using namespace grouped_matmul;

//===--- instances --------------------------------------------------------------------------------===//

// A product kernel, and what its launch needs.
struct Kernel {
  void (*function)(Call);
  int threads;
  size_t shared;           // of dynamic shared memory
  int blocks;              // on a multiprocessor
  int rows, weightRows;    // of a tile: at most, at least
  bool isGathered = false; // it takes rows as gatherRows leaves them
};

// The kernel of a call, and the one that plans its tiles; NULL: it needs no plan.
struct Product {
  void (*plan)(Call);
  Kernel kernel;
};

// Those of an instance: for any operands, and for weights of 4 bits that the copy engine can bring, by how many rows groups have.
struct Products {
  Product any, byWarps[3], byFragments[3];
};

Product warpgroupProduct(void (*function)(Call), size_t shared) {
  return {planGroups<WarpgroupTiles>, {function, kWarpgroupThreads, shared, 1, kMostRows, kBoxRows}};
}

template <typename Stages> Product warpProduct(void (*function)(Call), bool isGathered) {
  const Kernel kernel = {function, Stages::kThreads, kWarpShared<Stages>, Stages::kBlocks, Stages::kEights * 8, Stages::kWeightRows, isGathered};
  return {Stages::kEights * 8 == kAloneRows ? nullptr : planGroups<WarpTiles<Stages>>, kernel};
}

template <Activation kActivation, int kEights> Product codesProduct() {
  return warpProduct<WarpStages<kEights>>(sm90_moe_grouped_matmul_warps<kActivation, kEights>, WarpStages<kEights>::kGathered);
}

template <Activation kActivation, int kEights> Product fragmentsProduct() {
  return warpProduct<FragmentStages<kEights>>(sm90_moe_grouped_matmul_fragments<kActivation, kEights>, false);
}

template <moert__format kFormat, Activation kActivation> Products productsOf(bool codes) {
  if constexpr (kFormat == MOERT__F32)
    return {{planGroups<FmaTiles>, {sm90_moe_grouped_matmul_f32<kActivation>, kThreads, kFmaShared, 1, kFmaRowTile, kColumnTile}}, {}, {}};
  else if (codes) // whose rows are of bf16
    return {warpgroupProduct(sm90_moe_grouped_matmul_codes<kActivation>, kSharedOf<CodesStages>),
            {codesProduct<kActivation, 1>(), codesProduct<kActivation, 2>(), codesProduct<kActivation, 4>()},
            {fragmentsProduct<kActivation, 1>(), fragmentsProduct<kActivation, 2>(), fragmentsProduct<kActivation, 4>()}};
  else
    return {warpgroupProduct(sm90_moe_grouped_matmul_wgmma<kFormat, kActivation>, kSharedOf<NumberStages>), {}, {}};
}

Products genericProducts(Dtype dtype, bool codes) {
  switch (dtype) {
  case Dtype::bf16: return productsOf<MOERT__BF16, Activation::atRunTime>(codes);
  case Dtype::f16: return productsOf<MOERT__F16, Activation::atRunTime>(codes);
  default: return productsOf<MOERT__F32, Activation::atRunTime>(codes);
  }
}

moert_status chooseProducts(int32_t instance, Dtype dtype, const moert__grouped_matmul &checked, Products *products) {
  const bool codes = checked.codes.there;
  const Activation activation = checked.swiglu ? Activation::swiglu : Activation::none;
  Selection selection(instance);
  *products = genericProducts(dtype, codes);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kActivation)                                                                                                   \
  if (selection.takes(accepts(Dtype::type, dtype) && activation == Activation::kActivation))                                                         \
    if constexpr (MOE_IS_BUILT(set)) *products = productsOf<formatOf(Dtype::type), Activation::kActivation>(codes);
#include "kernels/moe_grouped_matmul/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

Indices indicesOf(const moert_tensor *tensor) {
  return tensor ? Indices{moert__data(tensor), tensor->dtype.code == MOERT_CODE_UINT} : Indices{nullptr, false};
}

bool isVector(const void *data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

Call makeCall(const moert__grouped_matmul &checked, const moert_moe_grouped_matmul_args *args) {
  Call call = {};
  call.groups = checked.groups;
  call.rows = call.expectedRows = checked.rows;
  call.columns = checked.columns;
  call.depth = checked.depth;
  call.inRows = checked.in_rows;
  call.outColumns = checked.out_columns;
  call.in = checked.in.data;
  call.weights = checked.codes.there ? checked.codes.values : checked.weights.data;
  call.codesFormat = checked.codes.format;
  call.codesScales = checked.codes.scales;
  call.globalScales = checked.codes.global_scales;
  call.bias = checked.bias.data;
  call.out = checked.out.data;
  call.rowWeights = checked.row_weights;
  call.offsets = indicesOf(args->offsets);
  call.rowIds = indicesOf(args->row_ids);
  call.biasFormat = checked.bias.format;
  call.outFormat = checked.out.format;
  call.swiglu = checked.swiglu;
  call.form = checked.form;
  call.op = MOERT__OP_MOE_GROUPED_MATMUL;
  return call;
}

Call makeCall(const GroupedProduct &product) {
  const moert__swiglu_form kPlain = {0, 1.0f, 0.0f};
  Call call = {};
  call.groups = product.groups;
  call.rows = product.rows;
  call.expectedRows = product.expectedRows;
  call.columns = product.columns;
  call.depth = product.depth;
  call.inRows = product.inRows;
  call.outColumns = product.swiglu ? product.columns / 2 : product.columns;
  call.in = product.in;
  call.weights = product.codes;
  call.codesFormat = MOERT__NVFP4;
  call.codesScales = product.scales;
  call.fragments = product.fragments;
  call.factors[0] = product.factors[0];
  call.factors[1] = product.factors[1];
  call.out = product.out;
  call.offsets = {product.offsets, false};
  call.rowIds = {product.rowIds, false};
  call.outFormat = MOERT__F32;
  call.swiglu = product.swiglu;
  call.form = kPlain;
  call.op = product.op;
  return call;
}

// What follows from where the operands lie.
void findAlignment(Call *call) {
  const bool codes = call->codesScales;
  call->readsVectors = isVector(call->in) && isVector(call->weights) && (!codes || call->depth % kChunkCodes == 0);
  call->readsScales = codes && isVector(call->codesScales) && call->depth % CodesStages::kNarrowDepth == 0;
  call->writesVectors = isVector(call->out);
  if (!isVector(call->fragments) || !isVector(call->in)) call->fragments = nullptr;
}

//===--- the map of the weights -------------------------------------------------------------------===//

// cuTensorMapEncodeTiled; NULL if the driver does not have it.
PFN_cuTensorMapEncodeTiled_v12000 findEncoder() {
  static const PFN_cuTensorMapEncodeTiled_v12000 encoder = [] {
    void *function = nullptr;
    return moert__cuda_find_function("cuTensorMapEncodeTiled", &function) ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : nullptr;
  }();
  return encoder;
}

// What a map says of an element, and of its boxes.
struct Box {
  CUtensorMapDataType type;
  int64_t bytesOfRow; // in memory
  int elements, rows; // of the box
  CUtensorMapSwizzle swizzle;
};

// A box has some elements of some weight rows, of gated ones eight of either half in turn: dimensions are elements, eight rows, halves, eights of a
// half, groups.
bool mapWeights(const Call &call, const Box &box, int64_t elements, CUtensorMap *map) {
  const PFN_cuTensorMapEncodeTiled_v12000 encode = findEncoder();
  if (!encode) return false;
  const auto size = [](int64_t value) { return static_cast<cuuint64_t>(value); };
  const int64_t halves = call.swiglu ? 2 : 1, row = box.bytesOfRow;
  const cuuint64_t sizes[] = {size(elements), 8, size(halves), size(call.columns / halves / 8), size(call.groups)};
  const cuuint64_t strides[] = {size(row), size(call.columns / halves * row), size(8 * row), size(call.columns * row)};
  const cuuint32_t boxes[] = {static_cast<cuuint32_t>(box.elements), 8, static_cast<cuuint32_t>(halves),
                              static_cast<cuuint32_t>(box.rows / 8 / halves), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  return encode(map, box.type, 5, const_cast<void *>(call.weights), sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, box.swizzle,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// `narrowRows`: weight rows of the smaller tiles of codes. Without maps the kernel copies by itself what begins anywhere, or is larger than the
// engine's coordinates.
void mapWeights(Call *call, moert__format format, int narrowRows) {
  const int64_t kMost = INT32_MAX;
  const bool fits = call->depth <= kMost && call->columns <= kMost && call->groups <= kMost;
  if (!fits || !call->readsVectors || call->depth == 0 || call->columns == 0 || call->groups == 0) return;
  if (call->codesScales) {
    const Box narrow = {CU_TENSOR_MAP_DATA_TYPE_UINT8, call->depth / 2, CodesStages::kNarrowDepth / 2, narrowRows, CU_TENSOR_MAP_SWIZZLE_128B};
    const Box wide = {CU_TENSOR_MAP_DATA_TYPE_UINT8, call->depth / 2, CodesStages::kWideDepth / 2, 2 * kBoxRows, CU_TENSOR_MAP_SWIZZLE_64B};
    call->isMapped = mapWeights(*call, narrow, call->depth / 2, &call->map) && mapWeights(*call, wide, call->depth / 2, &call->wideMap);
  } else {
    const CUtensorMapDataType type = format == MOERT__BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    call->isMapped = mapWeights(*call, {type, call->depth * 2, wgmma::kTileDepth, kBoxRows, CU_TENSOR_MAP_SWIZZLE_128B}, call->depth, &call->map);
  }
}

//===--- launches ---------------------------------------------------------------------------------===//

// As many blocks as the device has room for, but not more than there can be tiles: every group may have a last one that is not full.
moert_status chooseGrid(const Call &call, const Kernel &kernel, int32_t device, unsigned *grid) {
  int processors = 0;
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return failDevice(error, "the number of processors is not known");
  int64_t down = call.rows / kernel.rows + (call.groups < call.rows ? call.groups : call.rows);
  int64_t across = ceilDivide(call.outColumns, call.swiglu ? kernel.weightRows / 2 : kernel.weightRows);
  int64_t most = static_cast<int64_t>(processors) * kernel.blocks;
  *grid = down > 0 && across > most / down ? static_cast<unsigned>(most) : gridFor(down * across, most);
  if (*grid == 0) *grid = 1; // faults are reported even if there is nothing to multiply
  return MOERT_OK;
}

moert_status launchKernel(const Call &call, const Kernel &kernel, const moert_context *context) {
  unsigned grid;
  moert_status status = chooseGrid(call, kernel, moert__context_device(context), &grid);
  if (status) return status;
  return launch(context, kernel.function, Grid{dim3(grid), static_cast<unsigned>(kernel.threads), kernel.shared, true}, call);
}

// By how many rows the groups have on average. Groups of many are those of warpgroups.
const Product &chooseProduct(const Call &call, const Products &products) {
  if (call.groups == 0 || (!call.fragments && !(call.readsVectors && call.readsScales))) return products.any;
  const Product *byWarps = call.fragments ? products.byFragments : products.byWarps;
  if (call.rows <= kAloneRows) return byWarps[0];
  const int64_t rows = call.expectedRows / call.groups;
  return rows <= 8 ? byWarps[1] : rows <= 24 ? byWarps[2] : products.any;
}

// What is in front of the product kernel, which needs a plan.
moert_status launchPlan(const Call &call, const Product &product, const moert_context *context) {
  moert_status status = launch(context, product.plan, Grid{1, kWideThreads, 0, true}, call);
  if (status) return status;
  if (product.kernel.isGathered) return launch(context, gatherRows, Grid{gridFor(ceilDivide(call.rows * (call.depth / 8), 256)), 256, 0, true}, call);
  return call.checksRowIds ? launch(context, checkRowIds, Grid{gridFor(ceilDivide(call.rows, 256)), 256, 0, true}, call) : MOERT_OK;
}

moert_status launchAll(const Call &call, const Product &product, const moert_context *context) {
  const moert_status status = product.plan ? launchPlan(call, product, context) : MOERT_OK;
  return status ? status : launchKernel(call, product.kernel, context);
}

// Takes scratch from the arena.
moert_status launchCall(Call *call, moert__format format, const Products &products, moert_context *context) {
  void *plan, *gathered = nullptr;
  moert_status status =
      moert_context_allocate(context, static_cast<int64_t>(sizeof(Plan)) + call->groups * static_cast<int64_t>(sizeof(int64_t)), &plan);
  if (status) return status;
  call->plan = static_cast<Plan *>(plan);
  call->fault = moert__context_fault(context);
  findAlignment(call);
  const Product *product = &chooseProduct(*call, products);
  if (format != MOERT__F32) mapWeights(call, format, product->kernel.weightRows);
  if (!call->isMapped && !call->fragments) product = &products.any;
  if (product->kernel.isGathered) status = moert_context_allocate(context, call->rows * call->depth * 2, &gathered);
  call->gathered = static_cast<uint4 *>(gathered);
  return status ? status : launchAll(*call, *product, context);
}

} // namespace

moert_status launchGroupedProduct(const GroupedProduct &product, moert_context *context) {
  Call call = makeCall(product);
  return launchCall(&call, MOERT__BF16,
                    product.swiglu ? productsOf<MOERT__BF16, Activation::swiglu>(true) : productsOf<MOERT__BF16, Activation::none>(true), context);
}

moert_status moert__cuda_moe_grouped_matmul(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args,
                                            int32_t instance, moert_context *context) {
  moert__grouped_matmul checked;
  moert_status status = moert__grouped_matmul_check(params, args, &checked);
  Products products;
  if (!status) status = chooseProducts(instance, dtypeOf(args->rows), checked, &products);
  if (status) return status;
  moert__arena_mark mark = moert__arena_mark_get(context);
  Call call = makeCall(checked, args);
  call.checksRowIds = call.rowIds.data;
  status = launchCall(&call, checked.in.format, products, context);
  moert__arena_rewind(context, mark);
  return status;
}
