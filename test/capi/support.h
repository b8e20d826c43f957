//===- support.h - what the tests of the compiler side's C API share ------------------------------===//
#ifndef MOE_TEST_CAPI_SUPPORT_H
#define MOE_TEST_CAPI_SUPPORT_H

#include "moe-mlir-c/Ops.h"
#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#define STR mlirStringRefCreateFromCString

typedef struct Text {
  char data[1 << 18];
  size_t used;
} Text;

// For MLIR's string callbacks; what does not fit is dropped.
void append(MlirStringRef piece, void *text);

// Of the test's context, since they were last cleared: one a line.
extern Text diagnostics;
void clearDiagnostics(void);

// A context with all dialects, upstream's and ours, in *state.
int setUp(void **state);
int tearDown(void **state);
MlirContext contextOf(void **state);

// Fails unless the diagnostics are this one alone.
void expectDiagnostic(const char *text);

#endif
