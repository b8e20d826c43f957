//===- moe_prepare_nvfp4.c - moe.prepare_nvfp4 on the host ------------------------------------------------===//

#include "lib/reference/moe_prepare_nvfp4.h"
#include "lib/reference/checks.h"
#include "lib/reference/fragments.h"

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

static moert_status check_no_scales(const moert_tensor *scales) { // C4
  if (!scales) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'scales' is set, must be NULL where layout is not of fragments");
}

static moert_status check_scales(const moert_tensor *scales, const moert_tensor *source) { // C4
  if (!scales) return moert__fail(MOERT_ERROR_NULL_POINTER, "operand 'scales' is NULL, must be set where layout is of fragments");
  moert_status status = moert__check_dimension(scales, "scales", 0, source->shape[0], "dimension 0 of 'source'");
  if (!status) status = moert__check_dimension(scales, "scales", 1, source->shape[1], "dimension 1 of 'source'");
  return status ? status : moert__check_dimension(scales, "scales", 2, source->shape[2] / 8, "an eighth of dimension 2 of 'source'");
}

moert_status moert__prepare_nvfp4_check(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args) {
  const moert__routed_panel panel = moert__routed_panel_of((int)params->layout);
  moert_status status = moert__check_multiple(args->source, "source", 1, panel.rows); // C1
  if (!status) status = moert__check_multiple(args->source, "source", 2, moert__routed_row_bytes(panel));
  if (!status) status = check_panels(args->source, args->prepared, panel);
  if (!status) status = panel.contents == MOERT__FRAGMENTS ? check_scales(args->scales, args->source) : check_no_scales(args->scales);
  if (status || panel.contents == MOERT__SCALES) return status;
  status = check_codes(args->source, "source");
  return status ? status : check_codes(args->prepared, "prepared");
}

//===--- the op -----------------------------------------------------------------------------------===//

// The panels of one expert, of codes or of scales.
static void move_panels(moert__routed_panel panel, int64_t rows, int64_t row_bytes, const uint8_t *source, uint8_t *prepared) {
  const int64_t bytes = moert__routed_row_bytes(panel), across = row_bytes / bytes;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t p = row / panel.rows, r = row % panel.rows;
    const uint8_t *from = source + moert__routed_source_row(panel, rows, p, r) * row_bytes;
    for (int64_t i = 0; i < row_bytes; ++i)
      prepared[(p * across + i / bytes) * (panel.height * panel.width) + moert__routed_offset(panel, r, i % bytes)] = from[i];
  }
}

static void make_fragments(moert__routed_panel panel, moert__fragment_source source, uint8_t *prepared) {
  const int64_t across = source.row_bytes / moert__routed_row_bytes(panel), panels = source.rows / panel.rows * across;
  for (int64_t i = 0; i < panels * MOERT__FRAGMENT_WORDS; ++i) {
    const int64_t number = i / MOERT__FRAGMENT_WORDS, word = i % MOERT__FRAGMENT_WORDS;
    moert__fragment_store(prepared + 4 * i, moert__fragment_word(&source, panel, number / across, number % across, word));
  }
}

static void prepare_expert(moert__routed_panel panel, const moert_moe_prepare_nvfp4_args *args, int64_t expert) {
  const int64_t rows = args->source->shape[1], row_bytes = args->source->shape[2], bytes = rows * row_bytes;
  const uint8_t *source = (const uint8_t *)moert__data(args->source) + expert * bytes;
  uint8_t *prepared = moert__data(args->prepared);
  if (panel.contents != MOERT__FRAGMENTS) {
    move_panels(panel, rows, row_bytes, source, prepared + expert * bytes);
    return;
  }
  const uint8_t *scales = (const uint8_t *)moert__data(args->scales) + expert * (bytes / 8);
  make_fragments(panel, (moert__fragment_source){source, scales, rows, row_bytes}, prepared + expert * (bytes + bytes / 8));
}

moert_status moert__host_moe_prepare_nvfp4(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args,
                                           moert_context *context) {
  (void)context;
  moert_status status = moert__prepare_nvfp4_check(params, args);
  if (status) return status;
  const moert__routed_panel panel = moert__routed_panel_of((int)params->layout);
  const bool empty = args->source->shape[1] == 0 || args->source->shape[2] == 0; // of however many experts
  for (int64_t e = 0; !empty && e < args->source->shape[0]; ++e) prepare_expert(panel, args, e);
  return MOERT_OK;
}
