//===- launch.cu - launches moe.quantize --------------------------------------------------------------===//

#include "kernels/common/format_columns.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/moe_quantize/kernels.cuh"
#include "lib/reference/moe_quantize.h"

// Threads side by side in a block of quantizeBlocks and of findAmax, so that it is whole warps; threads of a block of quantizeBlocks, and blocks that
// are under way at a time; blocks of findAmax, of quantizeRows if there are few rows, and of what zeroes padding, at most.
static const unsigned kTileWidth = 64, kTileThreads = 256, kTileBlocks = 132 * 4, kAmaxBlocks = 264, kRowBlocks = 132, kPaddingBlocks = 132;
static const int64_t kManyNumbers = int64_t{1} << 21; // that are worth large blocks

template <moert__format kType> static bool areVectors(const moert__quantized_call &call) {
  const int64_t count = tileSize<kType>(), numberBytes = kType == MOERT__F32 ? 4 : 2, codeBytes = moert__is_packed(call.format) ? count / 2 : count;
  return call.hidden % count == 0 && reinterpret_cast<uintptr_t>(call.numbers) % 16 == 0 && call.numbers_stride * numberBytes % 16 == 0 &&
         reinterpret_cast<uintptr_t>(call.codes) % static_cast<uintptr_t>(codeBytes) == 0;
}

static unsigned paddingBlocks(const moert__scale_grid &grid) { return hasPadding(grid) ? gridFor(grid.padded_rows, kPaddingBlocks) : 0; }

// Threads of a block, tiles side by side by rows: `threads` of them, or few if there are few numbers. Sets the call's blocks: so many that as many
// threads are under way as `blocks` of the large ones have.
template <moert__format kType> static dim3 cutTiles(QuantizeCall *call, unsigned threads, unsigned blocks) {
  const int64_t size = tileSize<kType>(), block = moert__block_size(call->tensors.format);
  const int64_t tiles = block ? ceilDivide(call->tensors.hidden, block) * (block / size) : ceilDivide(call->tensors.hidden, size);
  const bool many = call->tensors.tokens * call->tensors.hidden > kManyNumbers;
  const unsigned own = many ? threads : kTileWidth;
  unsigned width = 1;
  while (width < kTileWidth && width < tiles) width *= 2;
  call->tileColumns = static_cast<unsigned>(ceilDivide(tiles, width));
  const int64_t most = static_cast<int64_t>(blocks) * threads / own / call->tileColumns;
  call->dataBlocks = call->tileColumns * gridFor(ceilDivide(call->tensors.tokens, own / width), most > 0 ? most : 1);
  return dim3(width, own / width);
}

template <moert__format kType, int kFormat> static moert_status runBlocks(QuantizeCall call, const moert_context *context) {
  const dim3 threads = cutTiles<kType>(&call, kTileThreads, kTileBlocks);
  const unsigned padding = moert__block_size(call.tensors.format) ? paddingBlocks(call.tensors.grid) : 0;
  return launch(context, quantizeBlocks<kType, kFormat>, call.dataBlocks + padding, threads, 0, call);
}

// Enough threads that each holds one tile while there are few rows, which several blocks share then, and all its tiles else.
template <moert__format kType, int kFormat> static moert_status runRows(const QuantizeCall &call, int64_t rows, const moert_context *context) {
  const int64_t tiles = ceilDivide(call.tensors.hidden, tileSize<kType>()), held = rows < kRowBlocks ? 1 : 32 / tileSize<kType>();
  int64_t warps = ceilDivide(ceilDivide(tiles, held), 32), shares = rows ? kRowBlocks / rows : 0;
  if (warps > kRowThreads / 32) warps = kRowThreads / 32;
  if (warps < 1) warps = 1;
  if (shares > warps) shares = warps;
  const dim3 blocks(gridFor(rows, INT32_MAX), shares > 1 ? static_cast<unsigned>(shares) : 1);
  return launch(context, quantizeRows<kType, kFormat>, blocks, static_cast<unsigned>(warps) * 32, 0, call);
}

// The scale of all rows. A single row has that of a token, and of no rows there is a scale too.
template <moert__format kType, int kFormat> static moert_status runTensor(QuantizeCall call, moert_context *context) {
  if (call.tensors.global) return runBlocks<kType, kFormat>(call, context);
  if (call.tensors.tokens <= 1 || call.tensors.hidden == 0) return runRows<kType, kFormat>(call, 1, context);
  const dim3 threads = cutTiles<kType>(&call, kAmaxThreads, kAmaxBlocks);
  void *amaxes;
  const moert_status status = moert_context_allocate(context, call.dataBlocks * static_cast<int64_t>(sizeof(float)), &amaxes);
  if (status) return status;
  call.amaxes = static_cast<float *>(amaxes);
  call.numAmaxes = static_cast<int>(call.dataBlocks);
  const moert_status launched = launch(context, findAmax<kType, kFormat>, call.dataBlocks, threads, 0, call);
  return launched ? launched : runBlocks<kType, kFormat>(call, context);
}

// Rows of numbers and of codes are whole vectors, unless kFormat is kAnyFormat.
template <moert__format kType, int kFormat> static moert_status runFormat(const QuantizeCall &call, moert_context *context) {
  const int format = call.tensors.format;
  if constexpr (kFormat == kAnyFormat || kFormat == MOERT__FP8_TOKEN)
    if (format == MOERT__FP8_TOKEN) return runRows<kType, kFormat>(call, call.tensors.tokens, context);
  if constexpr (kFormat == kAnyFormat || kFormat == MOERT__FP8_TENSOR)
    if (format == MOERT__FP8_TENSOR) return runTensor<kType, kFormat>(call, context);
  return runBlocks<kType, kFormat>(call, context);
}

static moert_status runGeneric(const QuantizeCall &call, moert_context *context) {
  switch (call.tensors.type) {
  case MOERT__BF16: return runFormat<MOERT__BF16, kAnyFormat>(call, context);
  case MOERT__F16: return runFormat<MOERT__F16, kAnyFormat>(call, context);
  default: return runFormat<MOERT__F32, kAnyFormat>(call, context);
  }
}

template <moert__format kType, int kFormat> static moert_status run(const QuantizeCall &call, moert_context *context) {
  return areVectors<kType>(call.tensors) ? runFormat<kType, kFormat>(call, context) : runGeneric(call, context);
}

static moert_status choose(const QuantizeCall &call, Dtype dtype, int32_t instance, moert_context *context) {
  Selection selection(instance);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, value)                                                                                                         \
  if (selection.takes(accepts(Dtype::type, dtype) && call.tensors.format == column::value))                                                          \
    if constexpr (MOE_IS_BUILT(set)) return run<formatOf(Dtype::type), column::value>(call, context);
#include "kernels/moe_quantize/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : runGeneric(call, context);
}

moert_status moert__cuda_moe_quantize(const moert_moe_quantize_params *params, const moert_moe_quantize_args *args, int32_t instance,
                                      moert_context *context) {
  QuantizeCall call = {};
  const moert_status status = moert__moe_quantize_check(params, args, &call.tensors);
  if (status) return status;
  call.even = params->scale_rounding == MOERT_MOE_QUANTIZE_SCALE_ROUNDING_EVEN;
  call.fast = params->fast_reciprocal;
  const moert__arena_mark mark = moert__arena_mark_get(context);
  const moert_status launched = choose(call, dtypeOf(args->input), instance, context);
  moert__arena_rewind(context, mark);
  return launched;
}
