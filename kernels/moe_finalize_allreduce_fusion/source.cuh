//===- source.cuh - this rank's part: rows that experts have computed, by choice --------------------------===//
#ifndef MOE_KERNELS_MOE_FINALIZE_ALLREDUCE_FUSION_SOURCE_CUH
#define MOE_KERNELS_MOE_FINALIZE_ALLREDUCE_FUSION_SOURCE_CUH

#include "kernels/moe_allreduce_fusion/kernels.cuh"

namespace allreduce {

// The sum over a token's choices of their rows, times their scales, and the shared expert's.
struct Choices {
  struct Begun {};
  static const bool kChecksParts = true;

  const void *rows, *scales, *shared; // scales and shared may be NULL
  const int32_t *indices;
  int64_t numRows;
  int32_t topK;
  moert__format scaleFormat;
  float factor;

  __device__ Begun begin() const { return {}; }
  __device__ bool fits(Begun) const { return true; }
  __device__ void report(const moert__watch &, Begun) const {}

  // False if an index names no row.
  template <typename Kind>
  __device__ bool makePart(const Call &call, Begun, int64_t token, int64_t column, uint32_t (&part)[Kind::kWireWords]) const {
    const int kBatch = 16 / Kind::kWords;
    const int64_t hidden = Kind::hidden(call);
    uint32_t last[Kind::kWords] = {};
    bool fits = true;
    if (shared) loadWords<Kind>(call, shared, token * hidden + column, last);
#pragma unroll 1
    for (int first = 0; first < topK; first += kBatch) {
      uint32_t terms[kBatch][Kind::kWords];
      int32_t index[kBatch];
      float weights[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t choice = token * topK + first + i;
        index[i] = first + i < topK ? indices[choice] : -1;
        weights[i] = scales && first + i < topK ? loadFactor(scaleFormat, scales, choice) : 1.0f;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (index[i] < -1 || index[i] >= numRows) fits = false;
        if (index[i] >= numRows) index[i] = -1;
        if (index[i] >= 0) loadWords<Kind>(call, rows, index[i] * hidden + column, terms[i]);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (index[i] >= 0) addChoice<Kind>(terms[i], weights[i], part);
    }
    if (factor != 1.0f) scale<Kind>(part);
    if (shared) addRow<Kind>(last, part);
    return fits;
  }

  // By one thread: what makePart has found.
  __device__ void reportPart(const moert__watch &watch, int64_t token) const {
    for (int slot = 0; slot < topK; ++slot) {
      const int32_t index = indices[token * topK + slot];
      if (index < -1 || index >= numRows) ::report(watch.fault, watch.op, MOERT__FAULT_FINALIZE_INDEX, index, token, slot, numRows);
    }
  }

private:
  template <typename Kind> __device__ void addChoice(const uint32_t (&row)[Kind::kWords], float weight, uint32_t (&sum)[Kind::kWireWords]) const {
    if (scales) {
      addScaled<Kind>(row, weight, sum);
    } else {
      addRow<Kind>(row, sum);
    }
  }

  template <typename Kind> __device__ void scale(uint32_t (&sum)[Kind::kWireWords]) const {
    float piece[kPiece];
    unpackWords<Kind::kWire>(sum, piece);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] *= factor;
    packWords<Kind::kWire>(piece, sum);
  }
};

} // namespace allreduce

#endif
