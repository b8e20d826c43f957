//===- support.c - what the tests of the compiler side's C API share ------------------------------===//

#include "support.h"
#include <mlir-c/Diagnostics.h>
#include <mlir-c/RegisterEverything.h>
#include <stdlib.h>
#include <string.h>

Text diagnostics;

void append(MlirStringRef piece, void *data) {
  Text *text = data;
  size_t room = sizeof text->data - 1 - text->used, count = piece.length < room ? piece.length : room;
  memcpy(text->data + text->used, piece.data, count);
  text->data[text->used += count] = 0;
}

void clearDiagnostics(void) {
  diagnostics.used = 0;
  diagnostics.data[0] = 0;
}

static MlirLogicalResult keepDiagnostic(MlirDiagnostic diagnostic, void *data) {
  mlirDiagnosticPrint(diagnostic, append, data);
  append(STR("\n"), data);
  return mlirLogicalResultSuccess();
}

int setUp(void **state) {
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  MlirContext *context = malloc(sizeof *context);
  mlirRegisterAllDialects(registry);
  moeMlirRegisterDialects(registry);
  *context = mlirContextCreateWithRegistry(registry, true);
  mlirDialectRegistryDestroy(registry);
  clearDiagnostics();
  mlirContextAttachDiagnosticHandler(*context, keepDiagnostic, &diagnostics, NULL);
  *state = context;
  return 0;
}

int tearDown(void **state) {
  mlirContextDestroy(*(MlirContext *)*state);
  free(*state);
  return 0;
}

MlirContext contextOf(void **state) { return *(MlirContext *)*state; }

void expectDiagnostic(const char *text) {
  size_t length = strlen(text);
  if (diagnostics.used != length + 1 || memcmp(diagnostics.data, text, length) != 0) fail_msg("expected: %s\nbut got: %s", text, diagnostics.data);
  clearDiagnostics();
}
