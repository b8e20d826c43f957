//===- runtime.c - random calls of the run side's functions ---------------------------------------===//
//
//   runtime GRAPH [--seed S] [--calls N]
//
// Calls of every op function and of moert_graph_call with random parameters and tensors. Sizes come from few numbers, and what a refusal asks for is
// mostly granted, so that many calls get through; then something is spoiled. Whatever is passed, a status comes back, a refused call has written
// nothing, and no call writes outside of its outputs or into its inputs. Tensors have exactly the memory that their shapes say, so that a sanitizer
// sees what is read beyond it; one that claims more stands in a call that must be refused for another reason.
//
// The calls of a team of ranks are the same on all of them, but for those that one of them makes in its own way.
//
//===----------------------------------------------------------------------------------------------===//

#include "random.h"
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <moert/moert.h>
#include <moert/ops.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_RANK = 8,
  MAX_LIST = 10,
  MAX_OPERANDS = 32,
  MAX_STRUCT = 512, // bytes of params and of args
  MAX_BYTES = 1 << 20,
  GUARD = 64,
  STATE_SLOTS = 16,
  STATE_BYTES = 1 << 16,
  SLAB_BYTES = 1 << 18,
  REPAIRS = 45,
  MAX_WANTED = 4,
  MAX_KEPT = 48,
  TIMEOUT_MS = 50
};

//===--- tables -----------------------------------------------------------------------------------===//

typedef struct operand {
  const char *name;
  size_t offset, count; // in the args struct; `count` 0: not a list
  int num_dtypes;
  moert_dtype dtypes[16];
  int rank; // -1: any from 1
  moert_memory memory;
  bool optional, destination, state, strided;
} operand;

typedef struct number {
  const char *name;
  size_t offset;
} number;

typedef struct parameter {
  const char *name;
  size_t offset;
  bool is_float;
  int64_t minimum, maximum;
} parameter;

typedef struct op {
  const char *name;
  size_t params_size, args_size;
  const operand *operands;
  int num_operands;
  const number *numbers;
  int num_numbers;
  const parameter *parameters;
  int num_parameters;
  size_t scalar; // offset of the result's pointer, 0: none
  bool view;
  moert_status (*call)(const void *params, const void *args, moert_kernel *kernel, moert_context *context);
} op;

#include "fuzz_ops.inc"

//===--- what went wrong, and what came back ------------------------------------------------------===//

typedef struct counter {
  moert_status status;
  int64_t count;
} counter;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static counter counters[64];
static int64_t num_calls, num_failures;
static int64_t op_calls[FUZZ_COUNT(ops) + 1], op_successes[FUZZ_COUNT(ops) + 1]; // the last: graphs

static void report(const char *name, moert_status status, const char *what) {
  pthread_mutex_lock(&lock);
  if (++num_failures <= 20) printf("FAILED: %s: %s (%s: %s)\n", name, what, moert_status_name(status), status ? moert_last_error() : "");
  pthread_mutex_unlock(&lock);
}

static void count(size_t which, moert_status status) {
  pthread_mutex_lock(&lock);
  size_t at = 0;
  while (counters[at].count && counters[at].status != status) ++at;
  counters[at].status = status;
  ++counters[at].count;
  ++num_calls;
  ++op_calls[which];
  op_successes[which] += status == MOERT_OK;
  pthread_mutex_unlock(&lock);
}

//===--- a rank -----------------------------------------------------------------------------------===//

typedef struct rank_state {
  moert_comm *comm;
  moert_context *context;
  moert_graph *graph;
  unsigned char *slab;                 // symmetric; its second half is for graphs, which write all of it
  const struct op *wanted[MAX_WANTED]; // to call next: the last first
  int num_wanted;
  struct {
    const char *name;
    int64_t value;
  } kept[MAX_KEPT]; // parameters of calls that went through, which those after them may have to share
  int num_kept;
  _Alignas(16) unsigned char slots[STATE_SLOTS][STATE_BYTES]; // of memory that lives across calls, by the operand's name
  const char *slot_names[STATE_SLOTS];
  uint64_t seed, episode;
  int64_t calls; // to make
  pthread_t thread;
} rank_state;

static unsigned char *slot_of(rank_state *rank, const char *name, size_t *room) {
  static const char *const tables[] = {"send_ptrs", "recv_ptrs", "recv_count_ptrs"}; // rows of dev_ptrs, as ep.init writes them
  size_t row = 0;
  for (size_t i = 0; i < FUZZ_COUNT(tables); ++i)
    if (!strcmp(name, tables[i])) row = i * (size_t)moert_comm_size(rank->comm) * 8, name = "dev_ptrs";
  if (!strcmp(name, "atomic_counters")) name = "atomic_counters_0";
  int slot = 0;
  while (slot < STATE_SLOTS - 1 && rank->slot_names[slot] && strcmp(rank->slot_names[slot], name)) ++slot;
  rank->slot_names[slot] = name;
  *room = STATE_BYTES - row;
  return rank->slots[slot] + row;
}

//===--- tensors ----------------------------------------------------------------------------------===//

typedef struct fuzz_tensor {
  moert_tensor tensor;
  int64_t shape[MAX_RANK], strides[MAX_RANK];
  unsigned char *allocation; // NULL: memory of the rank's
  int64_t gap;               // elements between the rows of a matrix
  size_t guard, bytes;
  uint64_t hash;
  bool written;
} fuzz_tensor;

// Eight at a time: there may be many.
static uint64_t hash_bytes(const unsigned char *bytes, size_t length) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < length; i += 8) {
    uint64_t word = 0;
    memcpy(&word, bytes + i, length - i < 8 ? length - i : 8);
    hash = (hash ^ word) * UINT64_C(1099511628211);
  }
  return hash;
}

// Large tensors repeat their beginning.
static void fill(fuzz_random *random, const moert_tensor *tensor, unsigned char *data, size_t bytes) {
  const size_t period = 4096;
  bool wild = fuzz_chance(random, 10), ascends = tensor->ndim == 1 && fuzz_chance(random, 60);
  int64_t range = 1 + fuzz_below(random, 8);
  const size_t unit = tensor->dtype.bits / 8u, own = ascends || bytes < period ? bytes : period;
  for (size_t at = 0; unit && at + unit <= own; at += unit) {
    int64_t integer = fuzz_below(random, range) - (fuzz_chance(random, 5) ? 1 : 0);
    uint32_t bits = (uint32_t)fuzz_next(random) & (wild ? ~0u : 0x7fff3fffu);
    if (tensor->dtype.code == MOERT_CODE_INT || tensor->dtype.code == MOERT_CODE_UINT) {
      uint64_t value = wild ? fuzz_next(random) : ascends ? (uint64_t)(at / unit) / 2 : (uint64_t)integer;
      memcpy(data + at, &value, unit < 8 ? unit : 8);
    } else {
      memcpy(data + at, &bits, unit < 4 ? unit : 4);
      if (unit > 4) memset(data + at + 4, 0x3f, unit - 4);
    }
  }
  for (size_t at = own; at < bytes; at += own) memcpy(data + at, data, bytes - at < own ? bytes - at : own);
}

static int64_t bytes_of(const moert_tensor *tensor) {
  int64_t bytes = tensor->dtype.bits / 8 * tensor->dtype.lanes;
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] == 0) return 0;
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] < 0 || __builtin_mul_overflow(bytes, tensor->shape[d], &bytes)) return -1;
  return bytes;
}

// From the first byte of a matrix of positive strides to the end of its last; -1: that has no 64-bit value.
static int64_t span_of(const moert_tensor *matrix) {
  int64_t elements, bytes;
  if (__builtin_mul_overflow(matrix->shape[0] - 1, matrix->strides[0], &elements) || __builtin_add_overflow(elements, matrix->shape[1], &elements) ||
      __builtin_mul_overflow(elements, matrix->dtype.bits / 8, &bytes))
    return -1;
  return bytes;
}

static void set_strides(fuzz_tensor *matrix) {
  matrix->strides[0] = matrix->shape[1] + matrix->gap;
  matrix->strides[1] = 1;
  matrix->tensor.strides = matrix->strides;
}

// Exactly the memory that the shape says; half of the destinations have guards around it.
static bool give_memory(fuzz_random *random, rank_state *rank, const operand *spec, fuzz_tensor *made) {
  int64_t bytes = bytes_of(&made->tensor);
  if (made->gap) set_strides(made);
  if (made->gap && bytes > 0 && bytes <= MAX_BYTES) bytes = span_of(&made->tensor);
  if (bytes < 0 || bytes > MAX_BYTES) return false;
  made->written = spec->destination || spec->state;
  if (spec->memory == MOERT_MEMORY_SYMMETRIC && fuzz_chance(random, 97)) {
    if (bytes > SLAB_BYTES) return false;
    made->tensor.data = rank->slab + (spec->offset ? 0 : SLAB_BYTES);
    return true;
  }
  if (spec->state && fuzz_chance(random, 97)) {
    size_t room;
    unsigned char *slot = slot_of(rank, spec->name, &room);
    if ((size_t)bytes > room) return false;
    made->tensor.data = slot;
    return true;
  }
  made->bytes = (size_t)bytes;
  made->guard = spec->destination && fuzz_chance(random, 50) ? GUARD : 0;
  made->allocation = malloc(made->bytes + 2 * made->guard + (made->bytes == 0));
  if (!made->allocation) return false;
  memset(made->allocation, 0xa5, made->bytes + 2 * made->guard);
  if (!spec->destination) fill(random, &made->tensor, made->allocation, made->bytes);
  made->hash = hash_bytes(made->allocation, made->bytes + 2 * made->guard);
  made->tensor.data = bytes || fuzz_chance(random, 50) ? made->allocation + made->guard : NULL;
  return true;
}

static void drop_memory(fuzz_tensor *tensor) {
  free(tensor->allocation);
  tensor->allocation = NULL;
}

// What the call left: guards and inputs as they were, and after a refusal outputs too.
static void check_memory(const char *name, const fuzz_tensor *tensor, moert_status status) {
  if (!tensor->allocation) return;
  size_t whole = tensor->bytes + 2 * tensor->guard;
  bool refused = status && status / 1000 != 5;
  if ((!tensor->written || refused) && hash_bytes(tensor->allocation, whole) != tensor->hash)
    report(name, status, tensor->written ? "a refused call has written" : "an input has changed");
  for (size_t i = 0; i < tensor->guard; ++i)
    if (tensor->allocation[i] != 0xa5 || tensor->allocation[whole - 1 - i] != 0xa5) {
      report(name, status, "bytes beside an output have changed");
      return;
    }
}

//===--- a call -----------------------------------------------------------------------------------===//

typedef struct call {
  const op *op;
  rank_state *rank;
  fuzz_random *random; // of the plan
  int64_t pool[8];
  _Alignas(8) unsigned char params[MAX_STRUCT], args[MAX_STRUCT];
  int64_t counts[MAX_OPERANDS]; // tensors of each operand
  bool present[MAX_OPERANDS];
  fuzz_tensor tensors[MAX_OPERANDS][MAX_LIST];
  moert_tensor lists[MAX_OPERANDS][MAX_LIST];
  moert_dtype float_dtype;
  bool shares; // parameters with the calls before
  int64_t result;
  fuzz_tensor view;
  moert_kernel *kernel;
  bool must_fail;
} call;

static int64_t from_pool(call *made) { return FUZZ_PICK(made->random, made->pool); }

static void choose_pool(call *made) {
  static const int64_t tokens[] = {0, 1, 2, 3, 5}, experts[] = {1, 2, 4, 8}, widths[] = {8, 16, 24}, top_k[] = {1, 2, 3};
  fuzz_random *random = made->random;
  int64_t e = FUZZ_PICK(random, experts), t = FUZZ_PICK(random, tokens);
  const int64_t pool[] = {t, t, e, e + 1, FUZZ_PICK(random, widths), FUZZ_PICK(random, top_k), moert_comm_size(made->rank->comm), 16};
  memcpy(made->pool, pool, sizeof pool);
}

static double any_float(fuzz_random *random) {
  static const double usual[] = {0, 0, 1, 1, 1, 7, 0.5}, others[] = {-1, 1e-6, 1e39, -0.0, (double)INFINITY, (double)NAN};
  return fuzz_chance(random, 90) ? FUZZ_PICK(random, usual) : FUZZ_PICK(random, others);
}

static void set_word(unsigned char *at, int64_t value) { memcpy(at, &value, sizeof value); }
// Its place among those that are kept, or behind them.
static int find_kept(const rank_state *rank, const char *name) {
  int at = 0;
  while (at < rank->num_kept && strcmp(rank->kept[at].name, name)) ++at;
  return at;
}

static void keep_parameters(call *made) {
  rank_state *rank = made->rank;
  for (int i = 0; i < made->op->num_parameters; ++i) {
    const parameter *p = &made->op->parameters[i];
    int at = find_kept(rank, p->name);
    if (p->is_float || at == MAX_KEPT) continue;
    rank->kept[at].name = p->name;
    memcpy(&rank->kept[at].value, made->params + p->offset, sizeof rank->kept[at].value);
    if (at == rank->num_kept) ++rank->num_kept;
  }
}

static void choose_parameters(call *made) {
  fuzz_random *random = made->random;
  size_t size = made->op->params_size;
  memcpy(made->params, &size, sizeof size);
  for (int i = 0; i < made->op->num_parameters; ++i) {
    const parameter *p = &made->op->parameters[i];
    if (p->is_float) {
      double value = any_float(random);
      memcpy(made->params + p->offset, &value, sizeof value);
      continue;
    }
    int64_t value = p->maximum - p->minimum < 8 ? p->minimum + fuzz_below(random, p->maximum - p->minimum + 1) : from_pool(made);
    if (p->maximum > 1 << 20 && fuzz_chance(random, 60)) value = from_pool(made) * 16;
    if (value < p->minimum || (p->maximum < 8 && fuzz_chance(random, 50))) value = p->minimum; // the first case of an enumeration works everywhere
    if (fuzz_chance(random, 4)) value = fuzz_chance(random, 50) ? p->maximum : p->minimum + fuzz_below(random, p->maximum - p->minimum + 1);
    if (fuzz_chance(random, 1)) value = fuzz_chance(random, 50) ? p->maximum + 1 : fuzz_chance(random, 50) ? p->minimum - 1 : INT64_MIN;
    int at = find_kept(made->rank, p->name);
    if (at < made->rank->num_kept && made->shares) value = made->rank->kept[at].value;
    set_word(made->params + p->offset, value);
  }
}

static bool is_float(moert_dtype dtype) { return dtype.code == MOERT_CODE_FLOAT || dtype.code == MOERT_CODE_BFLOAT; }

static void choose_tensor(call *made, int index, int64_t nth) {
  const operand *spec = &made->op->operands[index];
  fuzz_tensor *tensor = &made->tensors[index][nth];
  fuzz_random *random = made->random;
  memset(tensor, 0, sizeof *tensor);
  tensor->tensor =
      (moert_tensor){.device = {MOERT_DEVICE_CPU, 0}, .shape = tensor->shape, .dtype = spec->dtypes[fuzz_below(random, spec->num_dtypes)]};
  for (int i = 0; i < spec->num_dtypes; ++i)
    if (is_float(spec->dtypes[i]) && spec->dtypes[i].bits == made->float_dtype.bits && spec->dtypes[i].code == made->float_dtype.code &&
        fuzz_chance(random, 90))
      tensor->tensor.dtype = made->float_dtype;
  tensor->tensor.ndim = spec->rank >= 0 ? spec->rank : 1 + (int32_t)fuzz_below(random, 3);
  for (int32_t d = 0; d < tensor->tensor.ndim; ++d) tensor->shape[d] = from_pool(made);
  if (spec->strided && fuzz_chance(random, 50)) tensor->gap = 1 + fuzz_below(random, 8);
  if (spec->memory == MOERT_MEMORY_SYMMETRIC) tensor->shape[0] = fuzz_chance(random, 80) ? SLAB_BYTES : fuzz_below(random, SLAB_BYTES);
  if (spec->memory == MOERT_MEMORY_HOST && spec->rank == 1 && spec->state && fuzz_chance(random, 70)) tensor->shape[0] = 16;
}

static int find_operand(const op *from, const char *name, size_t length) {
  for (int i = 0; i < from->num_operands; ++i)
    if (strlen(from->operands[i].name) == length && !memcmp(from->operands[i].name, name, length)) return i;
  return -1;
}

static void choose_call(call *made) {
  static const moert_dtype floats[] = {{MOERT_CODE_BFLOAT, 16, 1}, {MOERT_CODE_FLOAT, 16, 1}, {MOERT_CODE_FLOAT, 32, 1}};
  choose_pool(made);
  made->shares = fuzz_chance(made->random, 70);
  choose_parameters(made);
  made->float_dtype = FUZZ_PICK(made->random, floats);
  int64_t list = fuzz_chance(made->random, 95) ? 1 + fuzz_below(made->random, 2) : fuzz_below(made->random, MAX_LIST);
  for (int i = 0; i < made->op->num_operands; ++i) {
    const operand *spec = &made->op->operands[i];
    made->present[i] = !spec->optional || fuzz_chance(made->random, 50);
    made->counts[i] = spec->count ? list : 1;
    for (int64_t n = 0; n < made->counts[i]; ++n) choose_tensor(made, i, n);
  }
  for (int i = 0; i < made->op->num_numbers; ++i) set_word(made->args + made->op->numbers[i].offset, from_pool(made));
}

// Lay the args struct out; false if a tensor cannot have the memory that it claims.
static bool prepare(call *made) {
  size_t size = made->op->args_size;
  memcpy(made->args, &size, sizeof size);
  for (int i = 0; i < made->op->num_operands; ++i) {
    const operand *spec = &made->op->operands[i];
    const moert_tensor *list = made->present[i] ? made->lists[i] : NULL;
    for (int64_t n = 0; n < made->counts[i]; ++n) {
      if (!made->present[i]) continue;
      if (!give_memory(made->random, made->rank, spec, &made->tensors[i][n])) return false;
      made->lists[i][n] = made->tensors[i][n].tensor;
    }
    memcpy(made->args + spec->offset, &list, sizeof list);
    if (spec->count) set_word(made->args + spec->count, made->counts[i]);
  }
  const void *scalar = made->op->view ? (void *)&made->view.tensor : (void *)&made->result;
  if (made->op->view) {
    memset(&made->view, 0, sizeof made->view);
    made->view.tensor.dtype = made->float_dtype;
    made->view.tensor.ndim = (int32_t)fuzz_below(made->random, 4);
    made->view.tensor.shape = made->view.shape;
    for (int d = 0; d < made->view.tensor.ndim; ++d) made->view.shape[d] = from_pool(made);
  }
  if (made->op->scalar) memcpy(made->args + made->op->scalar, &scalar, sizeof scalar);
  return true;
}

static void release(call *made) {
  for (int i = 0; i < made->op->num_operands; ++i)
    for (int64_t n = 0; n < MAX_LIST; ++n) drop_memory(&made->tensors[i][n]);
}

//===--- spoiling ---------------------------------------------------------------------------------===//

// One tensor of the call, as it will be passed.
static moert_tensor *any_tensor(call *made, fuzz_tensor **memory, const operand **spec) {
  int i = (int)fuzz_below(made->random, made->op->num_operands);
  if (made->op->num_operands == 0 || !made->present[i] || made->counts[i] == 0) return NULL;
  int64_t n = fuzz_below(made->random, made->counts[i]);
  *memory = &made->tensors[i][n];
  *spec = &made->op->operands[i];
  return &made->lists[i][n];
}

static const int64_t extremes[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 62, INT64_C(1) << 61, INT64_C(1) << 32, INT64_MAX - 7, 0};

// Sizes whose product has no 64-bit value, or is 0: no memory stands behind either.
static void spoil_sizes(call *made, moert_tensor *tensor, fuzz_tensor *memory) {
  if (tensor->ndim < 1) return;
  memory->shape[fuzz_below(made->random, tensor->ndim)] = FUZZ_PICK(made->random, extremes);
  if (tensor->ndim > 1 && fuzz_chance(made->random, 60)) memory->shape[fuzz_below(made->random, tensor->ndim)] = FUZZ_PICK(made->random, extremes);
  tensor->shape = memory->shape;
  if (bytes_of(tensor) > (int64_t)memory->bytes) made->must_fail = true, made->kernel = (moert_kernel *)(void *)made;
  if (bytes_of(tensor) < 0) made->must_fail = true;
}

// Rows said to lie farther apart than the memory reaches would be believed: then another mistake stops the call.
static void spoil_strides(call *made, const operand *spec, moert_tensor *tensor, fuzz_tensor *memory) {
  tensor->strides = memory->strides;
  for (int d = 0; d < MAX_RANK; ++d) memory->strides[d] = fuzz_chance(made->random, 50) ? FUZZ_PICK(made->random, extremes) : 1;
  if (spec->strided && tensor->shape[0] > 1 && memory->strides[0] > 0 && span_of(tensor) > (int64_t)memory->bytes)
    made->must_fail = true, made->kernel = (moert_kernel *)(void *)made;
}

static void spoil_tensor(call *made) {
  static const moert_dtype wild[] = {{MOERT_CODE_INT, 4, 1}, {MOERT_CODE_INT, 0, 1}, {77, 8, 0}, {MOERT_CODE_FLOAT, 32, 2}, {MOERT_CODE_UINT, 24, 1},
                                     {255, 255, 65535},      {MOERT_CODE_BOOL, 8, 1}};
  fuzz_tensor *memory;
  const operand *spec;
  moert_tensor *tensor = any_tensor(made, &memory, &spec);
  fuzz_random *random = made->random;
  if (!tensor) return;
  bool empty = bytes_of(tensor) == 0;
  switch (fuzz_below(random, 9)) {
  case 0: tensor->data = NULL, made->must_fail = !empty; break;
  case 1:
    tensor->data = (unsigned char *)tensor->data + (tensor->data ? 1 : 0), made->must_fail = !empty && tensor->dtype.bits > 8;
    if (!made->must_fail) tensor->data = memory->tensor.data;
    break;
  case 2: tensor->device.type = (int32_t)fuzz_below(random, 20), made->must_fail = tensor->device.type != MOERT_DEVICE_CPU; break;
  case 3:
    tensor->dtype = FUZZ_PICK(random, wild);
    if (bytes_of(tensor) > (int64_t)memory->bytes) made->must_fail = true, made->kernel = (moert_kernel *)(void *)made;
    break;
  case 4:
    tensor->ndim =
        spec->rank >= 0 ? (int32_t)(FUZZ_PICK(random, extremes) & 0x7fffffff) * (fuzz_chance(random, 50) ? 1 : -1) : -(int32_t)fuzz_below(random, 9);
    made->must_fail = tensor->ndim != memory->tensor.ndim;
    break;
  case 5: tensor->shape = NULL, made->must_fail = tensor->ndim > 0; break;
  case 6: spoil_sizes(made, tensor, memory); break;
  case 7: spoil_strides(made, spec, tensor, memory); break;
  default: tensor->byte_offset = UINT64_MAX - (uint64_t)fuzz_below(random, 4096), made->must_fail = !empty;
  }
}

static void spoil_struct(call *made) {
  fuzz_random *random = made->random;
  size_t size = (size_t)fuzz_below(random, 2000);
  int i = (int)fuzz_below(random, made->op->num_operands);
  switch (fuzz_below(random, 5)) {
  case 0: memcpy(made->params, &size, sizeof size), made->must_fail = size != made->op->params_size; break;
  case 1: memcpy(made->args, &size, sizeof size), made->must_fail = size != made->op->args_size; break;
  case 2: made->kernel = (moert_kernel *)(void *)made, made->must_fail = true; break;
  case 3:
    if (made->op->num_operands == 0) break;
    memset(made->args + made->op->operands[i].offset, 0, sizeof(void *));
    made->must_fail = !made->op->operands[i].optional && made->counts[i] > 0;
    break;
  default:
    if (made->op->num_operands == 0 || !made->op->operands[i].count) break;
    set_word(made->args + made->op->operands[i].count, fuzz_chance(random, 50) ? -1 : 33 + fuzz_below(random, INT64_MAX - 33));
    made->must_fail = true;
  }
}

// An output in the memory of another tensor.
static void spoil_apart(call *made) {
  fuzz_tensor *first, *second;
  const operand *a, *b;
  moert_tensor *to = any_tensor(made, &first, &a), *from = any_tensor(made, &second, &b);
  if (!to || !from || to == from || !first->allocation || !second->allocation || first->bytes == 0 || second->bytes < first->bytes) return;
  if (a->destination || b->destination) to->data = from->data; // some ops may write in place
}

static void spoil(call *made) {
  switch (fuzz_below(made->random, 8)) {
  case 0: spoil_struct(made); break;
  case 1: spoil_apart(made); break;
  default: spoil_tensor(made);
  }
}

//===--- repairing --------------------------------------------------------------------------------===//

static bool first_integer(const char *text, int64_t *value) {
  for (; text && *text; ++text)
    if (isdigit((unsigned char)*text) && !isalnum((unsigned char)text[-1]) && text[-1] != '_') return *value = strtoll(text, NULL, 10), true;
  return false;
}

static bool last_integer(const char *text, int64_t *value) {
  bool found = false;
  for (; text && *text; ++text)
    if (isdigit((unsigned char)*text) && !isalnum((unsigned char)text[-1]) && text[-1] != '_') found = true, *value = strtoll(text, NULL, 10);
  return found;
}

static bool set_parameter(call *made, const char *name, size_t length, int64_t value) {
  for (int i = 0; i < made->op->num_parameters; ++i) {
    const parameter *p = &made->op->parameters[i];
    if (strlen(p->name) != length || memcmp(p->name, name, length)) continue;
    double real = (double)value;
    if (p->is_float)
      memcpy(made->params + p->offset, &real, sizeof real);
    else
      set_word(made->params + p->offset, value);
    return true;
  }
  for (int i = 0; i < made->op->num_numbers; ++i) {
    const number *n = &made->op->numbers[i];
    if (strlen(n->name) != length || memcmp(n->name, name, length)) continue;
    set_word(made->args + n->offset, value);
    return true;
  }
  return false;
}

// "must be [2, 3, ...]": the leading sizes, behind them the trailing ones of the operand in the same place of the first list, or of the text's last
// name.
static bool set_leading(call *made, int index, int64_t nth, const char *bracket) {
  fuzz_tensor *tensor = &made->tensors[index][nth];
  int64_t sizes[MAX_RANK];
  int32_t leading = 0;
  for (const char *at = bracket + 1; leading < 3 && isdigit((unsigned char)*at); ++leading) {
    sizes[leading] = strtoll(at, (char **)&at, 10);
    while (*at == ',' || *at == ' ') ++at;
  }
  const char *end = strrchr(bracket, '\''), *begin = end;
  while (begin && begin > bracket && begin[-1] != '\'') --begin;
  int like = end ? find_operand(made->op, begin, (size_t)(end - begin)) : find_operand(made->op, "payloads", 8);
  if (!leading) return false;
  const fuzz_tensor *other = like < 0 ? tensor : &made->tensors[like][made->op->operands[like].count ? nth : 0];
  int32_t skip = other->tensor.ndim > 2 || !end ? other->tensor.ndim - 1 : 1; // trailing dimensions to take
  if (leading + skip > MAX_RANK) return false;
  for (int32_t d = 0; d < skip; ++d) sizes[leading + d] = other->shape[other->tensor.ndim - skip + d];
  memcpy(tensor->shape, sizes, sizeof(int64_t) * (size_t)(leading + skip));
  tensor->tensor.ndim = leading + skip;
  return true;
}

static bool set_dtype(moert_tensor *tensor, const char *must) {
  static const struct {
    const char *name;
    moert_dtype dtype;
  } names[] = {{"must be bf16", {MOERT_CODE_BFLOAT, 16, 1}},      {"must be f16", {MOERT_CODE_FLOAT, 16, 1}},
               {"must be f32", {MOERT_CODE_FLOAT, 32, 1}},        {"must be i8", {MOERT_CODE_INT, 8, 1}},
               {"must be i32", {MOERT_CODE_INT, 32, 1}},          {"must be i64", {MOERT_CODE_INT, 64, 1}},
               {"must be f8E4M3FN", {MOERT_CODE_F8E4M3FN, 8, 1}}, {"must be f8E8M0FNU", {MOERT_CODE_F8E8M0FNU, 8, 1}}};
  for (size_t i = 0; i < FUZZ_COUNT(names); ++i)
    if (!strncmp(must, names[i].name, strlen(names[i].name))) return tensor->dtype = names[i].dtype, true;
  return false;
}

// Grant what the last error asks for. The texts are the interface here: what they name can be set.
static bool repair(call *made) {
  const char *text = moert_last_error(), *name = strchr(text, '\''), *end = name ? strpbrk(name + 1, "'[") : NULL, *must = strstr(text, "must");
  int64_t value, dimension;
  if (!end || !must) return false;
  size_t length = (size_t)(end - name - 1);
  int64_t nth = *end == '[' ? strtoll(end + 1, NULL, 10) : 0;
  if (nth < 0 || nth >= MAX_LIST) return false;
  int index = find_operand(made->op, name + 1, length);
  const char *what = strstr(end, "dimension "), *bracket = strchr(must, '[');
  if (index < 0) return first_integer(must, &value) && set_parameter(made, name + 1, length, value);
  if (nth >= made->counts[index]) return false;
  if (strstr(text, "must be set")) return made->present[index] = true;
  if (strstr(text, "must be NULL")) return made->present[index] = false, true;
  if (strstr(text, "element type")) return set_dtype(&made->tensors[index][nth].tensor, must);
  if (bracket) return set_leading(made, index, nth, bracket);
  if (what && what < must && first_integer(what, &dimension) && last_integer(must, &value) && dimension >= 0 && dimension < MAX_RANK)
    return made->tensors[index][nth].shape[dimension] = value, true;
  if (strstr(text, "rows of") && first_integer(must, &value)) {
    fuzz_tensor *tensor = &made->tensors[index][nth];
    return tensor->shape[tensor->tensor.ndim - 1] = strstr(text, "bytes") ? value * 8 / tensor->tensor.dtype.bits : value, true;
  }
  if (first_integer(must, &value)) return made->tensors[index][nth].shape[0] = value, true;
  return false;
}

//===--- calling ----------------------------------------------------------------------------------===//

static moert_status make(call *made, bool spoils) {
  made->kernel = NULL;
  made->must_fail = false;
  made->result = INT64_C(0x5a5a5a5a);
  size_t which = (size_t)(made->op - ops);
  moert_status status = MOERT_ERROR_OUT_OF_MEMORY;
  if (prepare(made)) {
    if (spoils) spoil(made);
    bool no_context = spoils && fuzz_chance(made->random, 1), no_params = spoils && fuzz_chance(made->random, 1),
         no_args = spoils && fuzz_chance(made->random, 1);
    status = made->op->call(no_params ? NULL : made->params, no_args ? NULL : made->args, made->kernel, no_context ? NULL : made->rank->context);
    count(which, status);
    made->must_fail |= no_context || no_params || no_args;
    if (!strcmp(moert_status_name(status), "MOERT_ERROR_UNKNOWN")) report(made->op->name, status, "no status");
    if (status && !moert_last_error()[0]) report(made->op->name, status, "a status without a text");
    if (!status) keep_parameters(made);
    if (!status && made->must_fail) report(made->op->name, status, "went through, though something was spoiled");
    if (status && status / 1000 != 5 && made->result != INT64_C(0x5a5a5a5a)) report(made->op->name, status, "a refused call has set the result");
    for (int i = 0; i < made->op->num_operands; ++i)
      for (int64_t n = 0; n < made->counts[i]; ++n) check_memory(made->op->name, &made->tensors[i][n], status);
  }
  release(made);
  return status;
}

static bool stands_in_error(const rank_state *rank) { return moert_comm_status(rank->comm) != MOERT_OK; }

// Another op that the last error names: "call moe.dispatch first".
static const op *named_op(const op *but) {
  for (size_t i = 0; i < FUZZ_COUNT(ops); ++i)
    if (&ops[i] != but && strstr(moert_last_error(), ops[i].name)) return &ops[i];
  return NULL;
}

static void fuzz_op(rank_state *rank, fuzz_random *random) {
  call *made = calloc(1, sizeof *made);
  if (!made) return;
  made->rank = rank;
  made->random = random;
  const op *wanted = rank->num_wanted ? rank->wanted[--rank->num_wanted] : NULL;
  made->op = wanted ? wanted : &ops[fuzz_below(random, (int64_t)FUZZ_COUNT(ops))];
  choose_call(made);
  moert_status status = make(made, false);
  bool granted = fuzz_chance(random, 90);
  for (int i = 0; status && granted && i < REPAIRS && !stands_in_error(rank) && repair(made); ++i) status = make(made, false);
  const op *named = status && fuzz_chance(random, 80) ? named_op(made->op) : NULL;
  if (named && rank->num_wanted + 2 <= MAX_WANTED) {
    rank->wanted[rank->num_wanted++] = made->op;
    rank->wanted[rank->num_wanted++] = named;
  }
  if (fuzz_chance(random, 60) && !stands_in_error(rank)) make(made, true);
  free(made);
}

//===--- graphs -----------------------------------------------------------------------------------===//

static operand operand_of(const moert_argument_info *info) {
  moert_dtype dtype = {(uint8_t)info->dtype, (uint8_t)(info->dtype >> 8), (uint16_t)(info->dtype >> 16)};
  return (operand){
      info->name, 0, 0, 1, {dtype}, (int)info->ndim, (moert_memory)info->memory, false, info->role == MOERT_ROLE_OUT, info->role == MOERT_ROLE_INOUT,
      false};
}

// The function's arguments as operands of an op, so that they are made and spoiled alike.
static void fuzz_graph(rank_state *rank, fuzz_random *random) {
  const moert_graph_description *description = moert_graph_describe(rank->graph);
  const moert_function_info *function = &description->functions[fuzz_chance(random, 90) ? 0 : fuzz_below(random, description->num_functions)];
  operand operands[MAX_OPERANDS];
  moert_tensor arguments[MAX_OPERANDS];
  op as_op = {.name = function->name, .operands = operands, .num_operands = (int)function->num_arguments};
  call *made = calloc(1, sizeof *made);
  if (!made) return;
  made->op = &as_op, made->rank = rank, made->random = random;
  choose_pool(made);
  int64_t symbols[2] = {from_pool(made), from_pool(made)};
  bool fits = true;
  for (int i = 0; i < as_op.num_operands; ++i) {
    const moert_argument_info *info = &function->arguments[i];
    operands[i] = operand_of(info);
    made->present[i] = true, made->counts[i] = 1;
    choose_tensor(made, i, 0);
    fuzz_tensor *tensor = &made->tensors[i][0];
    for (int64_t d = 0; d < info->ndim; ++d) {
      if (info->shape[d] >= 0 && fuzz_chance(random, 98)) tensor->shape[d] = info->shape[d];
      if (info->symbols && info->symbols[d] && fuzz_chance(random, 98)) tensor->shape[d] = symbols[info->symbols[d][0] == 'M'];
    }
    if (tensor->tensor.dtype.bits == 1) tensor->tensor.dtype.bits = 8; // a byte of memory
    fits = fits && give_memory(random, rank, &operands[i], tensor);
    tensor->tensor.dtype = operands[i].dtypes[0];
    made->lists[i][0] = tensor->tensor;
  }
  if (fits) {
    bool spoils = fuzz_chance(random, 50);
    if (spoils) spoil_tensor(made);
    if (made->kernel) made->lists[0][0].ndim = -1, made->must_fail = as_op.num_operands > 0; // what claims more than it has must not be read
    for (int i = 0; i < as_op.num_operands; ++i) arguments[i] = made->lists[i][0];
    bool wrong_count = fuzz_chance(random, 3), wrong_name = fuzz_chance(random, 2);
    moert_status status = moert_graph_call(rank->graph, wrong_name ? "no function" : function->name, fuzz_chance(random, 1) ? NULL : arguments,
                                           wrong_count ? fuzz_below(random, INT64_MAX) - 5 : function->num_arguments, rank->context);
    count(FUZZ_COUNT(ops), status);
    if (!status && (made->must_fail || wrong_name)) report(function->name, status, "went through, though something was spoiled");
    for (int i = 0; i < as_op.num_operands; ++i) check_memory(function->name, &made->tensors[i][0], status);
  }
  release(made);
  free(made);
}

//===--- teams ------------------------------------------------------------------------------------===//

static void *run_rank(void *argument) {
  rank_state *rank = argument;
  void *slab;
  if (moert_symmetric_alloc(rank->comm, 2 * SLAB_BYTES, &slab)) return NULL;
  rank->slab = slab;
  for (int64_t i = 0; i < rank->calls && !stands_in_error(rank); ++i) {
    fuzz_random common = fuzz_start(rank->seed, rank->episode << 20 | (uint64_t)i);
    fuzz_random own = fuzz_start(rank->seed + 1 + (uint64_t)moert_comm_rank(rank->comm), rank->episode << 20 | (uint64_t)i);
    bool alike = !fuzz_chance(&own, 5);
    if (fuzz_chance(&common, 20))
      fuzz_graph(rank, alike ? &common : &own);
    else
      fuzz_op(rank, alike ? &common : &own);
  }
  return NULL;
}

static bool run_team(const char *path, uint64_t seed, uint64_t episode) {
  fuzz_random random = fuzz_start(seed, episode);
  int32_t size = fuzz_chance(&random, 70) ? 1 : 2 + (int32_t)fuzz_below(&random, 2);
  moert_comm *comms[3];
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = TIMEOUT_MS;
  options.arena_limit = fuzz_chance(&random, 80) ? MAX_BYTES : 4096;
  rank_state *ranks = calloc((size_t)size, sizeof *ranks);
  moert_graph *graph;
  if (!ranks || moert_comm_create_threads(size, NULL, comms) || moert_graph_load(path, &graph)) return false;
  for (int32_t r = 0; r < size; ++r) {
    ranks[r].comm = comms[r], ranks[r].graph = graph, ranks[r].seed = seed, ranks[r].episode = episode, ranks[r].calls = size == 1 ? 40 : 30;
    if (moert_context_create(comms[r], &options, &ranks[r].context) || pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r])) return false;
  }
  for (int32_t r = 0; r < size; ++r) pthread_join(ranks[r].thread, NULL);
  for (int32_t r = 0; r < size; ++r) moert_context_destroy(ranks[r].context), moert_comm_destroy(comms[r]);
  moert_graph_unload(graph);
  free(ranks);
  return true;
}

//===--- the program ------------------------------------------------------------------------------===//

static void print_counts(uint64_t seed) {
  printf("%" PRId64 " calls, seed %" PRIu64 "\n", num_calls, seed);
  for (size_t i = 0; i < FUZZ_COUNT(counters) && counters[i].count; ++i)
    printf("  %8" PRId64 "  %s\n", counters[i].count, moert_status_name(counters[i].status));
  printf("by function: calls, of which successes\n");
  for (size_t i = 0; i < FUZZ_COUNT(op_calls); ++i)
    printf("  %8" PRId64 " %8" PRId64 "  %s\n", op_calls[i], op_successes[i], i < FUZZ_COUNT(ops) ? ops[i].name : "moert_graph_call");
  printf("%" PRId64 " failures\n", num_failures);
}

int main(int argc, char **argv) {
  uint64_t seed = 1, episode = 0;
  int64_t wanted = 40000;
  setenv("MOERT_TIMEOUT_MS", "50", 1); // of what no context has a deadline for
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--seed")) seed = strtoull(argv[i + 1], NULL, 10);
    if (!strcmp(argv[i], "--calls")) wanted = strtoll(argv[i + 1], NULL, 10);
  }
  if (argc < 2) return fprintf(stderr, "usage: runtime GRAPH [--seed S] [--calls N]\n"), 2;
  while (num_calls < wanted)
    if (!run_team(argv[1], seed, episode++)) return fprintf(stderr, "runtime: a team could not start: %s\n", moert_last_error()), 2;
  print_counts(seed);
  bool all = true;
  for (size_t i = 0; i < FUZZ_COUNT(op_calls); ++i) all = all && op_calls[i] > 0;
  return num_failures || !all;
}

// Sanitizers end the program when a request is too large unless told that NULL is an answer, and touch all memory that is to be zero.
MOERT_API const char *__asan_default_options(void);
MOERT_API const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
MOERT_API const char *__tsan_default_options(void);
MOERT_API const char *__tsan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
