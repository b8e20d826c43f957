//===- launch.cu - launches moe.dequantize ------------------------------------------------------------===//

#include "kernels/common/format_columns.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/moe_dequantize/kernels.cuh"
#include "lib/reference/moe_dequantize.h"

static const unsigned kTileThreads = 64;              // of a block
static const int64_t kManyNumbers = int64_t{1} << 21; // from which on a thread takes two rows

static bool areVectors(const moert__quantized_call &call) {
  const int64_t numberBytes = call.type == MOERT__F32 ? 4 : 2, codeBytes = moert__is_packed(call.format) ? 4 : 8;
  return call.hidden % 8 == 0 && reinterpret_cast<uintptr_t>(call.numbers) % 16 == 0 && call.numbers_stride * numberBytes % 16 == 0 &&
         reinterpret_cast<uintptr_t>(call.codes) % static_cast<uintptr_t>(codeBytes) == 0 && call.codes_stride % codeBytes == 0;
}

template <moert__format kType, int kFormat, int kRows> static moert_status runTiles(DequantizeCall call, const moert_context *context) {
  const int64_t tiles = ceilDivide(call.tensors.hidden, tileSize<kType>());
  unsigned width = 1;
  while (width < kTileThreads && width < tiles) width *= 2;
  const unsigned height = kTileThreads / width;
  call.tileColumns = static_cast<unsigned>(ceilDivide(tiles, width));
  const unsigned blocks = static_cast<unsigned>(ceilDivide(call.tensors.tokens, height * kRows)) * call.tileColumns;
  return launch(context, dequantizeTiles<kType, kFormat, kRows>, blocks, dim3(width, height), 0, call);
}

template <int kFormat, int kRows> static moert_status runType(const DequantizeCall &call, const moert_context *context) {
  switch (call.tensors.type) {
  case MOERT__BF16: return runTiles<MOERT__BF16, kFormat, kRows>(call, context);
  case MOERT__F16: return runTiles<MOERT__F16, kFormat, kRows>(call, context);
  default: return runTiles<MOERT__F32, kFormat, kRows>(call, context);
  }
}

template <int kFormat> static moert_status run(const DequantizeCall &call, const moert_context *context) {
  if (!areVectors(call.tensors)) return runType<kAnyFormat, 1>(call, context);
  if (call.tensors.tokens * call.tensors.hidden >= kManyNumbers) return runType<kFormat, 2>(call, context);
  return runType<kFormat, 1>(call, context);
}

moert_status moert__cuda_moe_dequantize(const moert_moe_dequantize_params *params, const moert_moe_dequantize_args *args, int32_t instance,
                                        moert_context *context) {
  DequantizeCall call = {};
  const moert_status status = moert__moe_dequantize_check(params, args, &call.tensors);
  if (status) return status;
  Selection selection(instance);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, value)                                                                                                         \
  if (selection.takes(call.tensors.format == column::value))                                                                                         \
    if constexpr (MOE_IS_BUILT(set)) return run<column::value>(call, context);
#include "kernels/moe_dequantize/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : runType<kAnyFormat, 1>(call, context);
}
