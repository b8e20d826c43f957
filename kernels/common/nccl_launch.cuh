//===- nccl_launch.cuh - exchanges that are one kernel, over links --------------------------------------------===//
#ifndef MOE_KERNELS_NCCL_LAUNCH_CUH
#define MOE_KERNELS_NCCL_LAUNCH_CUH

#include "kernels/common/fused.cuh"
#include "kernels/common/nccl_exchange.h"

inline bool goesOverLink(const moert_context *context) { return moert__comm_link(moert_context_comm(context)) != nullptr; }

// The steps of nccl_exchange.h, with a kernel that takes `call` and `further`.
template <typename Kernel, typename Call, typename... Further>
moert_status launchOverLink(const NcclExchange &exchange, Kernel kernel, const Grid &grid, Call call, const Further &...further) {
  moert_status status = moert__stop_point(exchange.context, "entry");
  if (!status) status = prepareOutboxes(exchange, call.round.exchange.slabs);
  call.round.parts = fused::kPush;
  if (!status) status = launch(exchange.context, kernel, grid, call, further...);
  if (!status) status = moveOverLink(exchange);
  call.round.parts = fused::kReceive;
  return status ? status : launch(exchange.context, kernel, grid, call, further...);
}

#endif
