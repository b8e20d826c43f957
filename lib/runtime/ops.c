//===- ops.c - the op functions: common checks, then the backend ------------------------------------===//

#include "runtime.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime.inc"

enum { MAX_LIST = 32, MAX_TENSORS = 128 };

//===--- structs and parameters -------------------------------------------------------------------===//

static moert_status check_struct(const char *what, const void *given, size_t known) {
  if (!given) return moert__fail(MOERT_ERROR_NULL_POINTER, "%s is NULL", what);
  size_t size;
  memcpy(&size, given, sizeof size);
  if (size == known) return MOERT_OK;
  return moert__fail(MOERT_ERROR_STRUCT_SIZE, "%s: struct_size is %zu, must be %zu", what, size, known);
}

static moert_status check_parameter(const moert__parameter *parameter, const void *params) {
  const unsigned char *at = (const unsigned char *)params + parameter->offset;
  if (parameter->kind == MOERT__PARAMETER_FLOAT) {
    double value;
    memcpy(&value, at, sizeof value);
    if (isfinite(value)) return MOERT_OK;
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter '%s' is %g, must be finite", parameter->name, value);
  }
  int64_t value;
  memcpy(&value, at, sizeof value);
  if (value >= parameter->minimum && value <= parameter->maximum) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter '%s' is %" PRId64 ", must be in [%" PRId64 ", %" PRId64 "]", parameter->name, value,
                     parameter->minimum, parameter->maximum);
}

//===--- operands ---------------------------------------------------------------------------------===//

// The tensors seen so far, to find overlaps.
typedef struct extents {
  int64_t count;
  moert__extent at[MAX_TENSORS];
} extents;

static moert_status check_tensor(const moert__operand *operand, int64_t index, const moert_tensor *tensor, moert_comm *comm, extents *seen) {
  moert__subject subject = {"operand", operand->name, index};
  moert_status status = moert__check_shape(&subject, tensor, operand->rank);
  if (!status) status = moert__check_dtype_set(&subject, tensor, operand->dtypes);
  if (!status) status = moert__check_memory(&subject, tensor, operand->memory, operand->flags, comm);
  if (status) return status;
  if (seen->count == MAX_TENSORS) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "more than %d tensors", MAX_TENSORS);
  moert__extent *extent = &seen->at[seen->count++];
  *extent = moert__extent_of(&subject, tensor, operand->flags & MOERT__DESTINATION, operand->memory);
  extent->in_place = operand->in_place;
  return MOERT_OK;
}

static moert_status check_operand(const moert__operand *operand, const void *args, moert_comm *comm, extents *seen) {
  const moert_tensor *tensors;
  int64_t count = 1;
  memcpy(&tensors, (const unsigned char *)args + operand->offset, sizeof tensors);
  if (operand->count) memcpy(&count, (const unsigned char *)args + operand->count, sizeof count);
  if (count < 0 || count > MAX_LIST)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand '%s': %" PRId64 " tensors, must be in [0, %d]", operand->name, count, MAX_LIST);
  if (!tensors && (count == 0 || operand->flags & MOERT__OPTIONAL)) return MOERT_OK;
  if (!tensors) return moert__fail(MOERT_ERROR_NULL_POINTER, "operand '%s' is NULL", operand->name);
  for (int64_t i = 0; i < count; ++i) {
    moert_status status = check_tensor(operand, operand->count ? i : -1, &tensors[i], comm, seen);
    if (status) return status;
  }
  return MOERT_OK;
}

static moert_status check_operands(const moert__op *op, const void *args, moert_comm *comm) {
  extents seen;
  seen.count = 0;
  for (int i = 0; i < op->num_operands; ++i) {
    moert_status status = check_operand(&op->operands[i], args, comm, &seen);
    if (status) return status;
  }
  return moert__check_overlap(seen.at, seen.count);
}

//===--- calls ------------------------------------------------------------------------------------===//

static moert_status check_communicator(const moert_comm *comm) {
  moert_status status = moert_comm_status(comm);
  if (!status) return MOERT_OK;
  return moert__fail(status, "the communicator stands in error since an earlier call: %s (%s)", moert_status_name(status), moert_status_text(status));
}

static moert_status check_transport(const moert__op *op, const moert_comm *comm) {
  bool addresses_peers = op->index == MOERT__OP_MOE_ALLREDUCE_FUSION || op->index == MOERT__OP_MOE_FINALIZE_ALLREDUCE_FUSION;
  if (!addresses_peers || moert_comm_transport(comm) != MOERT_TRANSPORT_NCCL) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED,
                     "the transport of the communicator is nccl, the op needs one whose ranks address each other's memory: peer");
}

static moert_status check_call(const moert__op *op, const void *params, const void *args, const moert_context *context) {
  moert_comm *comm = moert_context_comm(context);
  moert_status status = op->fabric ? check_communicator(comm) : MOERT_OK;
  if (!status) status = check_transport(op, comm);
  if (!status) status = check_struct("params", params, op->params_size);
  if (!status) status = check_struct("args", args, op->args_size);
  for (int i = 0; !status && i < op->num_parameters; ++i) status = check_parameter(&op->parameters[i], params);
  return status ? status : check_operands(op, args, comm);
}

static moert_status call_backend(const moert__op *op, const void *params, const void *args, int32_t instance, moert_context *context) {
  moert__backend_function *own = moert__context_backend(context)->functions[op->index], *function = own ? own : op->host;
  moert__visit visit = moert__enter_device(context, op->name);
  moert_status status = function(params, args, instance, context);
  moert__leave_device(visit);
  return status;
}

static moert_status run(const moert__op *op, const void *params, const void *args, const moert_kernel *kernel, moert_context *context) {
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  int32_t instance = MOERT__CHOOSE;
  moert_status status = moert__context_take_fault(context);
  if (!status) status = moert__context_launch_status(context); // what the op would read is missing
  if (!status) status = moert__kernel_instance(kernel, op->index, context, &instance);
  if (!status) status = check_call(op, params, args, context);
  if (!status) status = call_backend(op, params, args, instance, context);
  moert__context_note(context, status);
  return status;
}

moert_status moert__run(const moert__op *op, const void *params, const void *args, moert_kernel *kernel, moert_context *context) {
  const char *outer = moert__enter_op(op->name);
  moert_status status = run(op, params, args, kernel, context);
  moert__enter_op(outer);
  return status;
}

const moert__op *moert__op_of(int index) { return index >= 0 && index < MOERT__NUM_OPS ? moert__ops[index] : NULL; }

const char *moert__op_name(int index) {
  const moert__op *op = moert__op_of(index);
  return op ? op->name : "?";
}
