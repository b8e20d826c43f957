/*===- header.c - the public headers, in C99 and in C++17 -----------------------------------------------===*/

#include <moert/ep.h>
#include <moert/moert.h>
#include <moert/nccl.h>
#include <moert/ops.h>

/* What a caller writes: every INIT macro, and a call. */
moert_status header_use(moert_comm *comm, const moert_tensor *tensor);
moert_status header_use(moert_comm *comm, const moert_tensor *tensor) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_moe_route_params route_params = MOERT_MOE_ROUTE_PARAMS_INIT;
  moert_moe_route_args route_args = MOERT_MOE_ROUTE_ARGS_INIT;
  moert_moe_grouped_matmul_params matmul_params = MOERT_MOE_GROUPED_MATMUL_PARAMS_INIT;
  moert_moe_grouped_matmul_args matmul_args = MOERT_MOE_GROUPED_MATMUL_ARGS_INIT;
  moert_moe_dispatch_params dispatch_params = MOERT_MOE_DISPATCH_PARAMS_INIT;
  moert_moe_dispatch_args dispatch_args = MOERT_MOE_DISPATCH_ARGS_INIT;
  moert_moe_combine_params combine_params = MOERT_MOE_COMBINE_PARAMS_INIT;
  moert_moe_combine_args combine_args = MOERT_MOE_COMBINE_ARGS_INIT;
  moert_context *context = NULL;
  moert_status status = moert_context_create(comm, &options, &context);
  route_args.logits = matmul_args.rows = dispatch_args.payloads = combine_args.payload = tensor;
  if (status == MOERT_OK) status = moert_moe_route(&route_params, &route_args, NULL, context);
  if (status == MOERT_OK) status = moert_moe_grouped_matmul(&matmul_params, &matmul_args, NULL, context);
  if (status == MOERT_OK) status = moert_moe_dispatch(&dispatch_params, &dispatch_args, NULL, context);
  if (status == MOERT_OK) status = moert_moe_combine(&combine_params, &combine_args, NULL, context);
  moert_context_destroy(context);
  return status;
}

moert_allgather *header_allgather(void);
moert_allgather *header_allgather(void) { return moert_nccl_allgather; }

/* A program with devices and captures. */
moert_status header_use_device(moert_graph *graph, const moert_tensor *tensors, int64_t count);
moert_status header_use_device(moert_graph *graph, const moert_tensor *tensors, int64_t count) {
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  moert_comm *comm = NULL;
  moert_context *context = NULL;
  moert_capture *capture = NULL;
  moert_kernel *kernel = NULL;
  void *memory = NULL;
  moert_status status;
  options.device_type = MOERT_DEVICE_CUDA;
  status = moert_comm_create_threads(1, &options, &comm);
  if (status == MOERT_OK) status = moert_context_create(comm, NULL, &context);
  if (status == MOERT_OK) status = moert_device_alloc(comm, 256, &memory);
  if (status == MOERT_OK) status = moert_copy(context, memory, tensors->data, 256);
  if (status == MOERT_OK) status = moert_kernel_find("moe.route/sm_90a/f32,top_k=8,n_experts=64", &kernel);
  if (status == MOERT_OK) status = moert_graph_capture(graph, moert_kernel_name(kernel), tensors, count, context, &capture);
  if (status == MOERT_OK) status = moert_capture_replay(capture);
  if (status == MOERT_OK) status = moert_context_synchronize(context);
  if (status == MOERT_OK) status = moert_comm_check(comm);
  if (status != MOERT_OK) status = moert_comm_recover(comm, moert_comm_mask(comm), 1000);
  moert_capture_destroy(capture);
  moert_device_free(comm, memory);
  moert_context_destroy(context);
  moert_comm_destroy(comm);
  return status;
}
