//===- table.h - which kernels there are ------------------------------------------------------------===//
//
// Every op with kernels has a generic one, which takes all parameters at run time, and instances for some values of its static parameters, with the
// same bits. kernels/<op>/specializations.def lists them, one a line:
//
//   MOE_COLUMNS(hidden_size, top_k)
//   MOE_SPECIALIZATION(minimal, bf16, 7168, 8)
//
// The columns are parameters of the op. The first word is the smallest set (MOE_KERNEL_SET) that has the instance, the second the element type of the
// op's first buffer, or any. The launcher includes the list to compile the instances; this table, which is made of it too, answers compilers and
// tools on machines without CUDA.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_TABLE_H
#define MOE_KERNELS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { MOE_KERNEL_MAX_COLUMNS = 6 };

typedef enum MoeKernelSet { MOE_KERNEL_SET_MINIMAL, MOE_KERNEL_SET_DEFAULT, MOE_KERNEL_SET_FULL } MoeKernelSet;

typedef struct MoeKernelColumn {
  const char *name, *value; // as in a kernel key
} MoeKernelColumn;

typedef struct MoeKernelInstance {
  const char *op;   // "moe.combine"
  int number;       // among the op's, in the order of the list
  MoeKernelSet set; // the smallest that has it
  const char *dtype;
  int numColumns;
  MoeKernelColumn columns[MOE_KERNEL_MAX_COLUMNS];
} MoeKernelInstance;

extern const MoeKernelInstance moeKernelInstances[];
extern const int moeNumKernelInstances;
extern const char *const moeKernelOps[]; // that have kernels; NULL at the end
const char *moeKernelSetName(MoeKernelSet set);

// That devices have kernels for: "sm_90a"; NULL at the end.
extern const char *const moeKernelTargets[];
bool moeKernelTargetExists(const char *target);

typedef enum MoeKernelAnswer {
  MOE_KERNEL_EXACT,   // `instance` was made for these values
  MOE_KERNEL_GENERIC, // none was; `instance` is the nearest, or NULL if the op has none of this element type
  MOE_KERNEL_NONE     // no kernel: `why` says what is unknown
} MoeKernelAnswer;

typedef struct MoeKernelMatch {
  MoeKernelAnswer answer;
  const MoeKernelInstance *instance;
  char why[320]; // what the nearest has otherwise: "hidden_size is 7000, the nearest instance has 7168"
} MoeKernelMatch;

// Answer for a kernel key: "<op>/<target>/<element types>,<name>=<value>,...". Values that the key leaves out match nothing.
MoeKernelMatch moeKernelMatch(const char *key);

#endif
