//===- scene.h - a layer of experts on several ranks, and what must come of it ------------------------===//
//
// Expert e multiplies a row by e + 1. Values are small multiples of 1/8, so that every sum is exact in f32 and results are compared for equality with
// plain loops over all tokens, choices and columns, which know nothing of how rows travel.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_KINDS_SCENE_H
#define MOERT_TEST_KINDS_SCENE_H

#include "test/unit/support.h"
#include <moert/ops.h>

enum { MAX_RANKS = 8, DEADLINE_MS = 300, GUARD_BYTES = 128 };

extern const moert_dtype BF16, F8, F32, I8, I32, UI32, I64, UI64;

// A tensor of this block; TENSOR(data, F32, 3, 8) is [3, 8].
#define TENSOR(data, dtype, ...)                                                                                                                     \
  ((moert_tensor){(data), {MOERT_DEVICE_CPU, 0}, (int32_t)COUNT(((int64_t[]){__VA_ARGS__})), (dtype), (int64_t[]){__VA_ARGS__}, NULL, 0})

//===--- memory between guards --------------------------------------------------------------------===//

// Of 0xa5, with guards around; any thread may take some. At the end of a test the guards must be as they were.
void *take(size_t bytes);
void assert_guards_and_release(void);
bool is_untouched(const void *data, size_t bytes); // still 0xa5

//===--- the scene --------------------------------------------------------------------------------===//

typedef struct scene scene;

// One rank's part.
typedef struct member {
  scene *scene;
  int32_t rank;
  int64_t step; // counts the layers of this rank; tokens differ from step to step
  moert_context *context;
  moert_tensor workspace, metainfo;
  int64_t workspace_shape[1], metainfo_shape[1], metainfo_data[MOERT_METAINFO_FIELDS];
  int32_t *ids, *recv_ids, *recv_counts, *offsets;
  float *weights, *x, *recv, *recv_weights, *result, *out;
  int64_t payload_offset;
  const char *wrong; // what the plain loops found, NULL if nothing
} member;

struct scene {
  int32_t ranks;
  int64_t experts, top_k, hidden;
  int64_t limit; // max_num_tokens of the workspace, and runtime_max_tokens_per_rank
  bool grouped;
  int64_t steps;                // layers that play_steps plays; 0 is 1
  int64_t tokens[8][MAX_RANKS]; // of each step, and round again
  int64_t sets;                 // of `tokens`; 0 is 1
  int32_t (*choose)(const scene *scene, int32_t rank, int64_t token, int64_t slot);
  moert_status (*play)(member *m); // NULL: play_steps
  int64_t spare_bytes;             // of symmetric memory behind the workspace
  int64_t row_bytes;               // of a dispatch; 0: what the layer needs
  int64_t timeout_ms;
  int32_t odd;   // the rank that does something else
  scene *layers; // of a test that plays several, else NULL
  member members[MAX_RANKS];
  rank_run runs[MAX_RANKS];
};

int64_t tokens_of(const scene *scene, int32_t rank, int64_t step);
float value_of(const scene *scene, int32_t rank, int64_t token, int64_t column);
float weight_of(int64_t token, int64_t slot);
int32_t rank_of(int64_t experts, int32_t ranks, int64_t expert); // -1: nobody's
int64_t first_expert_of(int64_t experts, int32_t ranks, int32_t rank);
int64_t experts_of(int64_t experts, int32_t ranks, int32_t rank);
int32_t spread(const scene *scene, int32_t rank, int64_t token, int64_t slot); // a `choose` that spares no rank

// Context and workspace on the rank's communicator, and the end of them. Collective.
moert_status open_member(member *m, moert_comm *comm);
void close_member(member *m);
void make_buffers(member *m);
void fill_inputs(member *m);

// The calls with everything as it should be. dispatch_layer checks what arrived, combine_layer what came back, into `wrong`.
moert_status dispatch_layer(member *m);
void apply_experts(member *m);
moert_status combine_layer(member *m);
moert_status play_step(member *m);
moert_status play_steps(member *m);

// Runs all ranks. assert_scene: and everything went well.
void run_scene(scene *scene);
void assert_scene(scene *scene);

#endif
