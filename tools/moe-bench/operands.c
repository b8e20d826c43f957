//===- operands.c - operands of cases -----------------------------------------------------------------===//

#include "operands.h"
#include "device.h"

void operand_set(Buffer *buffer, void *data, moert_device device, moert_dtype dtype, int32_t ndim, const int64_t *shape) {
  int64_t elements = 1;
  for (int32_t i = 0; i < ndim; ++i) elements *= buffer->shape[i] = shape[i];
  buffer->bytes = (size_t)(elements * dtype.bits / 8);
  buffer->tensor = (moert_tensor){data, device, ndim, dtype, buffer->shape, NULL, 0};
}

moert_status operand_add(Work *work, Buffer *buffer, moert_dtype dtype, int32_t ndim, const int64_t *shape) {
  operand_set(buffer, NULL, moert_comm_device(work->comm), dtype, ndim, shape);
  return buffer->bytes == 0 ? MOERT_OK : moert_device_alloc(work->comm, buffer->bytes, &buffer->tensor.data);
}

moert_status operand_add_output(Work *work, Buffer *buffer, moert_dtype dtype, int32_t ndim, const int64_t *shape) {
  buffer->is_output = true;
  return operand_add(work, buffer, dtype, ndim, shape);
}

moert_status operand_add_words(Work *work, Buffer *buffer, const int32_t *words, int32_t ndim, const int64_t *shape) {
  moert_status status = operand_add(work, buffer, I32, ndim, shape);
  return status || buffer->bytes == 0 ? status : moert_copy(work->context, buffer->tensor.data, words, buffer->bytes);
}

moert_status operand_open_workspace(Work *work, int64_t dispatch_bytes, int64_t combine_bytes) {
  moert_workspace_info info = {work->tokens, dispatch_bytes, combine_bytes, 0, work->ranks};
  int64_t bytes = moert_workspace_lay_out(&info).bytes;
  moert_status status = moert_symmetric_alloc(work->comm, (size_t)bytes, &work->slab);
  if (status) return status;
  operand_set(&work->workspace, work->slab, moert_comm_device(work->comm), I8, 1, SHAPE(bytes));
  operand_set(&work->metainfo, work->metainfo_words, (moert_device){MOERT_DEVICE_CPU, 0}, I64, 1, SHAPE(MOERT_METAINFO_FIELDS));
  moert_moe_initialize_params params = MOERT_MOE_INITIALIZE_PARAMS_INIT;
  params.max_num_tokens = work->tokens;
  params.dispatch_bytes_per_token = dispatch_bytes;
  params.combine_bytes_per_token = combine_bytes;
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  return moert_moe_initialize(&params, &args, NULL, work->context);
}

uint64_t operand_seed(const Work *work, int32_t rank, int set) { return ((uint64_t)rank << 20 | (uint64_t)set << 16) + (uint64_t)work->tokens; }

moert_status operand_add_random(Work *work, int set, int slot, float scale, moert_dtype dtype, int32_t ndim, const int64_t *shape) {
  Buffer *buffer = &work->buffers[set][slot];
  moert_status status = operand_add(work, buffer, dtype, ndim, shape);
  if (status) return status;
  uint64_t seed = operand_seed(work, work->rank, set) * MAX_BUFFERS + (uint64_t)slot;
  cudaError_t error = device_random(buffer->tensor.data, (int64_t)buffer->bytes * 8 / dtype.bits, dtype, seed, scale, work->stream);
  return error ? MOERT_ERROR_DEVICE : MOERT_OK;
}

const moert_tensor *operand(const Work *work, int set, int slot) { return &work->buffers[set][slot].tensor; }

void work_close(Work *work) {
  for (int set = 0; set < MAX_SETS; ++set)
    for (int slot = 0; slot < MAX_BUFFERS; ++slot) moert_device_free(work->comm, work->buffers[set][slot].tensor.data);
  for (int i = 0; i < 2; ++i) moert_device_free(work->comm, work->counters[i].tensor.data);
  moert_symmetric_free(work->comm, work->slab);
}
