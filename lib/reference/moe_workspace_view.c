//===- moe_workspace_view.c - moe.workspace_view on the host --------------------------------------===//

#include "lib/reference/workspace.h"
#include <inttypes.h>

// `args->view` comes with its element type and shape; this gives it memory.
moert_status moert__host_moe_workspace_view(const moert_moe_workspace_view_params *params, const moert_moe_workspace_view_args *args,
                                            moert_context *context) {
  (void)params, (void)context;
  moert_tensor *view = args->view;
  if (!view) return moert__fail(MOERT_ERROR_NULL_POINTER, "result 'view' is NULL");
  if (view->ndim < 0 || (view->ndim && !view->shape)) return moert__fail(MOERT_ERROR_INVALID_SHAPE, "result 'view' has no shape");
  for (int32_t i = 0; i < view->ndim; ++i)
    if (view->shape[i] < 0)
      return moert__fail(MOERT_ERROR_INVALID_SHAPE, "result 'view': dimension %" PRId32 " is %" PRId64 ", must be at least 0", i, view->shape[i]);
  int64_t element = moert__dtype_bytes(view->dtype);
  if (!element)
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "result 'view': element type %s, must be of whole bytes", moert__dtype_name(view->dtype));
  int64_t bytes = moert__elements(view) ? moert__row_size(view, 0) : 0, available = args->workspace->shape[0];
  if (args->offset < 0 || args->offset > available || bytes > available - args->offset)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "result 'view' has %" PRId64 " bytes, and does not lie within the %" PRId64 " bytes of operand 'workspace' at offset %" PRId64,
                       bytes, available, args->offset);
  char *data = (char *)moert__data(args->workspace) + args->offset;
  if (args->offset % element)
    return moert__fail(MOERT_ERROR_MISALIGNED, "operand 'offset' is %" PRId64 ", must be a multiple of %" PRId64 ", the size of element type %s",
                       args->offset, element, moert__dtype_name(view->dtype));
  if ((uintptr_t)data % (uintptr_t)element)
    return moert__fail(MOERT_ERROR_MISALIGNED, "operand 'workspace' does not begin at a multiple of %" PRId64 " bytes, the size of element type %s",
                       element, moert__dtype_name(view->dtype));
  view->data = data;
  view->byte_offset = 0;
  view->device = args->workspace->device;
  view->strides = NULL;
  return MOERT_OK;
}
