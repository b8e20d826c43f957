//===- packets.cuh - data that is its own flag ----------------------------------------------------------===//
//
// A packet is 16 bytes: 12 of data, and the epoch, by which the receiver knows that it has come. Packets are stored and loaded by scalar accesses of
// 128 bits, of which no reader sees a half (they are single operations in the memory model of PTX, other than vectors of smaller elements), so that
// neither a flag nor a fence is needed, and any bits may be data.
//
// Of numbers a thread has a piece of 8, which are 4 or 8 words. The words of a warp that stand at the same four places in their pieces are a unit.
// Each lane sends its first three of them in a packet, and every third lane another with the fourth words of itself and the next two. The last lane
// sends the hash of the call, so that nobody takes the numbers of another one: 44 packets for 32 times 16 bytes.
//
// A packet that was sent 2^32 - 2 epochs ago, in a place that no call since has used, would pass for one of this epoch.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_PACKETS_CUH
#define MOE_KERNELS_PACKETS_CUH

#include <moert/workspace.h>

namespace packets {

__device__ inline void storePacket(char *at, uint32_t a, uint32_t b, uint32_t c, uint32_t epoch) {
  asm volatile("{\n\t.reg .b64 l, h;\n\t.reg .b128 p;\n\tmov.b64 l, {%1, %2};\n\tmov.b64 h, {%3, %4};\n\tmov.b128 p, {l, h};\n\t"
               "st.relaxed.sys.global.b128 [%0], p;\n\t}" ::"l"(at),
               "r"(a), "r"(b), "r"(c), "r"(epoch)
               : "memory");
}

__device__ inline uint4 loadPacket(const char *at) {
  uint4 packet;
  asm volatile("{\n\t.reg .b64 l, h;\n\t.reg .b128 p;\n\tld.relaxed.sys.global.b128 p, [%4];\n\tmov.b128 {l, h}, p;\n\tmov.b64 {%0, %1}, l;\n\t"
               "mov.b64 {%2, %3}, h;\n\t}"
               : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
               : "l"(at)
               : "memory");
  return packet;
}

// The packets of a thread in a unit.
struct Lane {
  bool inside;            // it has a piece of the row
  bool seconds;           // it has a second packet
  bool hashes;            // which is that of the hash
  uint32_t first, second; // where they lie
  int leader, place;      // the lane that sends its fourth word, and as which of the three

  __device__ Lane(bool inside, bool warpInside) : inside(inside) {
    const uint32_t lane = threadIdx.x % 32;
    hashes = lane == 31;
    place = static_cast<int>(lane % 3);
    leader = static_cast<int>(lane) - place;
    seconds = hashes ? warpInside : inside && place == 0;
    first = lane * 16;
    second = MOERT_WORKSPACE_UNIT_DATA + (hashes ? 11 : lane / 3) * 16;
  }
};

// A piece as a thread sends it.
template <int kWords> struct Sent {
  static const int kUnits = kWords / 4;
  uint32_t first[kUnits][3], second[kUnits][3];

  // By a whole warp.
  __device__ Sent(const Lane &lane, const uint32_t (&words)[kWords], uint32_t hash) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int i = 0; i < 3; ++i) first[unit][i] = words[4 * unit + i];
      second[unit][0] = lane.hashes ? hash : words[4 * unit + 3];
#pragma unroll
      for (int i = 1; i < 3; ++i) second[unit][i] = __shfl_down_sync(~0u, words[4 * unit + 3], i);
    }
  }

  __device__ void store(char *to, const Lane &lane, uint32_t epoch) const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      char *at = to + unit * MOERT_WORKSPACE_UNIT_BYTES;
      if (lane.inside) storePacket(at + lane.first, first[unit][0], first[unit][1], first[unit][2], epoch);
      if (lane.seconds) storePacket(at + lane.second, second[unit][0], second[unit][1], second[unit][2], epoch);
    }
  }
};

// A piece as a thread receives it.
template <int kWords> struct Received {
  static const int kUnits = kWords / 4;
  uint4 first[kUnits], second[kUnits];

  __device__ void load(const char *from, const Lane &lane) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const char *at = from + unit * MOERT_WORKSPACE_UNIT_BYTES;
      if (lane.inside) first[unit] = loadPacket(at + lane.first);
      if (lane.seconds) second[unit] = loadPacket(at + lane.second);
    }
  }

  __device__ bool isHere(const Lane &lane, uint32_t hash, uint32_t epoch) const {
    bool here = true;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit)
      here = here && (!lane.inside || first[unit].w == epoch) && (!lane.seconds || second[unit].w == epoch) &&
             (!lane.seconds || !lane.hashes || second[unit].x == hash);
    return here;
  }

  // By a whole warp.
  __device__ void unpack(const Lane &lane, uint32_t (&words)[kWords]) const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const uint32_t a = __shfl_sync(~0u, second[unit].x, lane.leader), b = __shfl_sync(~0u, second[unit].y, lane.leader),
                     c = __shfl_sync(~0u, second[unit].z, lane.leader);
      words[4 * unit] = first[unit].x;
      words[4 * unit + 1] = first[unit].y;
      words[4 * unit + 2] = first[unit].z;
      words[4 * unit + 3] = lane.place == 0 ? a : lane.place == 1 ? b : c;
    }
  }
};

} // namespace packets

#endif
