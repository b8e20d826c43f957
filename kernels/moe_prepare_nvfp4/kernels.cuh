//===- kernels.cuh - moe.prepare_nvfp4 on devices -----------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_PREPARE_NVFP4_KERNELS_CUH
#define MOE_KERNELS_MOE_PREPARE_NVFP4_KERNELS_CUH

#include "lib/reference/fragments.h"

namespace prepare {

const int kAnyLayout = -1;

struct Call {
  const uint8_t *source, *scales; // scales: of fragments
  uint8_t *prepared;
  int64_t experts, rows, rowBytes;
  moert__routed_panel panel;
};

// `Unit` is what a thread moves: four bytes of a row that begin at a multiple of four are together in a panel, too.
template <int kLayout, typename Unit> __global__ void movePanels(const __grid_constant__ Call call) {
  const moert__routed_panel panel = kLayout == kAnyLayout ? call.panel : moert__routed_panel_of(kLayout);
  const int64_t unit = sizeof(Unit), width = moert__routed_row_bytes(panel), across = call.rowBytes / width, panelBytes = panel.height * panel.width;
  const int64_t expertBytes = call.rows * call.rowBytes, count = call.experts * expertBytes,
                step = static_cast<int64_t>(gridDim.x) * blockDim.x * unit;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit; i < count; i += step) {
    const int64_t expert = i / expertBytes, row = i % expertBytes / call.rowBytes, byte = i % call.rowBytes;
    const int64_t p = row / panel.rows, r = row % panel.rows;
    const uint8_t *from = call.source + expert * expertBytes + moert__routed_source_row(panel, call.rows, p, r) * call.rowBytes + byte;
    uint8_t *to = call.prepared + expert * expertBytes + (p * across + byte / width) * panelBytes + moert__routed_offset(panel, r, byte % width);
    *reinterpret_cast<Unit *>(to) = *reinterpret_cast<const Unit *>(from);
  }
}

// A thread makes words, each from a few bytes of the source; `Unit` is what it stores at once.
template <int kLayout, typename Unit> __global__ void makeFragments(const __grid_constant__ Call call) {
  const moert__routed_panel panel = kLayout == kAnyLayout ? call.panel : moert__routed_panel_of(kLayout);
  const int64_t across = call.rowBytes / moert__routed_row_bytes(panel), panels = call.rows / panel.rows * across,
                expertBytes = call.rows * call.rowBytes;
  const int64_t count = call.experts * panels * MOERT__FRAGMENT_WORDS, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t word = i % MOERT__FRAGMENT_WORDS, number = i / MOERT__FRAGMENT_WORDS, expert = number / panels, p = number % panels / across;
    const moert__fragment_source source = {call.source + expert * expertBytes, call.scales + expert * (expertBytes / 8), call.rows, call.rowBytes};
    const uint32_t made = moert__fragment_word(&source, panel, p, number % across, word);
    if constexpr (sizeof(Unit) == sizeof made)
      reinterpret_cast<Unit *>(call.prepared)[i] = made;
    else
      moert__fragment_store(call.prepared + 4 * i, made);
  }
}

} // namespace prepare

#endif
