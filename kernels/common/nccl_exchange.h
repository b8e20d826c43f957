//===- nccl_exchange.h - exchanges over links ---------------------------------------------------------------===//
//
// With the transport NCCL an op that sends rows has three steps on the stream:
//
//   push      its kernel with the part kPush alone: it writes to the outboxes of the peers what it would write to their slabs
//   move      `moveOverLink`: NCCL brings that to the same places of the slabs
//   receive   its kernel with the part kReceive alone: everything is there, or the workspace stands in error
//
// which `launchOverLink` of nccl_launch.cuh puts there.
//
// Outside of captures ranks tell each other first how many rows they send. The host waits for that, and then exactly these rows are sent. While the
// stream is captured nobody can wait: each peer is sent room for R rows, whatever is in it.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_NCCL_EXCHANGE_H
#define MOE_KERNELS_NCCL_EXCHANGE_H

#include "lib/cuda/link.h"
#include "lib/reference/workspace.h"

// How much of a lane there is to send.
enum class NcclExtent {
  rows,   // `unit` bytes for each row
  words,  // `unit` bytes
  experts // `unit` bytes for each expert of the destination, and behind them for all together
};

// A part of slabs that has a lane for each rank that sends: that of rank s begins at `begin + s * stride`, or with experts where that of s - 1 ends.
struct NcclLane {
  NcclExtent extent;
  int64_t begin, stride, unit;
};

// One dispatch or combine.
struct NcclExchange {
  moert_context *context;
  const moert__workspace *workspace;
  int op; // MOERT__OP_...
  uint32_t hash;
  int64_t maxRows; // R
  int64_t experts; // of all ranks together
  // The region that says how many rows this rank sends to each; those of a dispatch, SEND_COUNTERS, become the receivers' RECV_COUNTERS.
  int counts;
  int32_t numLanes;
  NcclLane lanes[MOERT_WORKSPACE_MAX_PAYLOADS + 8];
};

inline NcclExchange makeExchange(moert_context *context, const moert__workspace &workspace, int op, uint32_t hash, int64_t maxRows) {
  NcclExchange exchange = {};
  exchange.context = context;
  exchange.workspace = &workspace;
  exchange.op = op;
  exchange.hash = hash;
  exchange.maxRows = maxRows;
  return exchange;
}

inline void addLane(NcclExchange *exchange, NcclExtent extent, int64_t begin, int64_t stride, int64_t unit) {
  if (unit > 0) exchange->lanes[exchange->numLanes++] = {extent, begin, stride, unit};
}

// A lane of R rows for each rank.
inline void addRows(NcclExchange *exchange, int64_t begin, int64_t rowBytes) {
  addLane(exchange, NcclExtent::rows, begin, exchange->maxRows * rowBytes, rowBytes);
}

// Where the push writes for each rank that takes part: into `slabs`, by ranks.
moert_status prepareOutboxes(const NcclExchange &exchange, char **slabs);
moert_status moveOverLink(const NcclExchange &exchange);

#endif
