//===- moe_prepare_nvfp4.c - moe.prepare_nvfp4 on the host ------------------------------------------------===//

#include "lib/reference/moe_prepare_nvfp4.h"
#include "lib/reference/checks.h"

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_panels(const moert_tensor *source, const moert_tensor *prepared, moert__routed_panel panel) { // C2
  int64_t panels = source->shape[0];
  if (__builtin_mul_overflow(panels, source->shape[1] / panel.rows, &panels) ||
      __builtin_mul_overflow(panels, source->shape[2] / moert__routed_row_bytes(panel), &panels))
    panels = INT64_MAX;
  moert_status status = moert__check_dimension(prepared, "prepared", 0, panels, "the number of panels");
  if (!status) status = moert__check_dimension(prepared, "prepared", 1, panel.height, "the height of a panel");
  return status ? status : moert__check_dimension(prepared, "prepared", 2, panel.width, "the width of a panel");
}

static moert_status check_codes(const moert_tensor *tensor, const char *name) { // C3
  if (tensor->dtype.code != MOERT_CODE_F8E4M3FN) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand '%s': element type f8E4M3FN, must be i8 or ui8 where layout is of codes", name);
}

moert_status moert__prepare_nvfp4_check(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args) {
  const moert__routed_panel panel = moert__routed_panel_of((int)params->layout);
  moert_status status = moert__check_multiple(args->source, "source", 1, panel.rows); // C1
  if (!status) status = moert__check_multiple(args->source, "source", 2, moert__routed_row_bytes(panel));
  if (!status) status = check_panels(args->source, args->prepared, panel);
  if (status || !moert__routed_has_codes(panel)) return status;
  status = check_codes(args->source, "source");
  return status ? status : check_codes(args->prepared, "prepared");
}

//===--- the op -----------------------------------------------------------------------------------===//

// The panels of one expert.
static void prepare_expert(moert__routed_panel panel, int64_t rows, int64_t row_bytes, const uint8_t *source, uint8_t *prepared) {
  const int64_t bytes = moert__routed_row_bytes(panel), across = row_bytes / bytes;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t p = row / panel.rows, r = row % panel.rows;
    const uint8_t *from = source + moert__routed_source_row(panel, rows, p, r) * row_bytes;
    for (int64_t i = 0; i < row_bytes; ++i)
      prepared[(p * across + i / bytes) * (panel.height * panel.width) + moert__routed_offset(panel, r, i % bytes)] = from[i];
  }
}

moert_status moert__host_moe_prepare_nvfp4(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args,
                                           moert_context *context) {
  (void)context;
  moert_status status = moert__prepare_nvfp4_check(params, args);
  if (status) return status;
  const moert__routed_panel panel = moert__routed_panel_of((int)params->layout);
  const int64_t rows = args->source->shape[1], row_bytes = args->source->shape[2], expert_bytes = rows * row_bytes;
  const uint8_t *source = moert__data(args->source);
  uint8_t *prepared = moert__data(args->prepared);
  for (int64_t e = 0; expert_bytes > 0 && e < args->source->shape[0]; ++e)
    prepare_expert(panel, rows, row_bytes, source + e * expert_bytes, prepared + e * expert_bytes);
  return MOERT_OK;
}
