//===- kernel.c - handles of kernels ----------------------------------------------------------------===//
//
// There is one handle for each instance in the table of kernels and one for each op's generic kernel. They are made together when the first is asked
// for, and never freed: graphs keep them.
//
//===----------------------------------------------------------------------------------------------===//

#include "runtime.h"

#include "kernels/table.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct moert_kernel {
  int op;           // MOERT__OP_...
  int32_t instance; // its number, or MOERT__GENERIC
  const char *target;
  moert__text name;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static moert_kernel *handles; // NULL if there was no memory
static size_t num_handles;

//===--- make -------------------------------------------------------------------------------------===//

static int index_of(const char *op) {
  for (int i = 0; i < MOERT__NUM_OPS; ++i)
    if (!strcmp(moert__op_name(i), op)) return i;
  return -1;
}

static moert_kernel *add_handle(const char *op, int32_t instance, const char *target) {
  moert_kernel *made = &handles[num_handles++];
  made->op = index_of(op);
  made->instance = instance;
  made->target = target;
  moert__append(&made->name, "%s/%s/", op, target);
  return made;
}

static void add_generic(const char *op, const char *target) { moert__append(&add_handle(op, MOERT__GENERIC, target)->name, "generic"); }

static void add_instance(const MoeKernelInstance *instance, const char *target) {
  moert__text *name = &add_handle(instance->op, instance->number, target)->name;
  moert__append(name, "%s", instance->dtype);
  for (int i = 0; i < instance->numColumns; ++i) moert__append(name, ",%s=%s", instance->columns[i].name, instance->columns[i].value);
}

static void make_handles(void) {
  size_t targets = 0, ops = 0;
  while (moeKernelTargets[targets]) ++targets;
  while (moeKernelOps[ops]) ++ops;
  handles = calloc(targets * (ops + (size_t)moeNumKernelInstances), sizeof *handles);
  if (!handles) return;
  for (size_t t = 0; t < targets; ++t) {
    for (size_t i = 0; i < ops; ++i) add_generic(moeKernelOps[i], moeKernelTargets[t]);
    for (int i = 0; i < moeNumKernelInstances; ++i) add_instance(&moeKernelInstances[i], moeKernelTargets[t]);
  }
}

//===--- find -------------------------------------------------------------------------------------===//

// The target of a key that the table has answered, which therefore has two slashes at least or ends with the target.
static bool has_target(const moert_kernel *handle, const char *key) {
  const char *target = strchr(key, '/') + 1;
  size_t length = strcspn(target, "/");
  return strlen(handle->target) == length && !memcmp(handle->target, target, length);
}

static bool has_op(const moert_kernel *handle, const char *key) {
  const char *op = moert__op_name(handle->op);
  size_t length = strlen(op);
  return !strncmp(op, key, length) && key[length] == '/';
}

moert_status moert_kernel_find(const char *key, moert_kernel **kernel) {
  if (!key) return moert__fail(MOERT_ERROR_NULL_POINTER, "key is NULL");
  if (!kernel) return moert__fail(MOERT_ERROR_NULL_POINTER, "kernel is NULL");
  MoeKernelMatch match = moeKernelMatch(key);
  if (match.answer == MOE_KERNEL_NONE) return moert__fail(MOERT_ERROR_NO_KERNEL, "there is no kernel '%s': %s", key, match.why);
  pthread_once(&once, make_handles);
  int32_t instance = match.answer == MOE_KERNEL_EXACT ? match.instance->number : MOERT__GENERIC;
  for (size_t i = 0; i < num_handles; ++i) {
    if (handles[i].instance != instance || !has_op(&handles[i], key) || !has_target(&handles[i], key)) continue;
    *kernel = &handles[i];
    return MOERT_OK;
  }
  return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for the handles of the kernels");
}

const char *moert_kernel_name(const moert_kernel *kernel) { return kernel ? kernel->name.data : NULL; }

//===--- use --------------------------------------------------------------------------------------===//

static bool is_handle(const moert_kernel *kernel) {
  pthread_once(&once, make_handles);
  uintptr_t offset = (uintptr_t)kernel - (uintptr_t)handles;
  return offset < num_handles * sizeof *handles && offset % sizeof *handles == 0;
}

moert_status moert__kernel_instance(const moert_kernel *kernel, int op, const moert_context *context, int32_t *instance) {
  *instance = MOERT__CHOOSE;
  if (!kernel) return MOERT_OK;
  const moert__backend *backend = moert__context_backend(context);
  if (backend->device_type == MOERT_DEVICE_CPU)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "kernel is set, must be NULL: the host backend has no kernels to choose from");
  if (!is_handle(kernel)) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "kernel is not what moert_kernel_find gave; NULL lets the library choose");
  if (kernel->op != op || strcmp(kernel->target, backend->target))
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "kernel is '%s', must be one of %s/%s", kernel->name.data, moert__op_name(op), backend->target);
  *instance = kernel->instance;
  return MOERT_OK;
}
