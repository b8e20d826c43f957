//===- npy.c - arrays in NumPy's .npy files -------------------------------------------------------===//
#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6, ALIGNMENT = 64, NUM_KEYS = 3 };

// The element types that are read, and their sizes.
static const struct {
  char descr[NPY_DESCR_BYTES];
  int bytes;
} descrs[] = {{"<f4", 4}, {"<f8", 8}, {"<f2", 2}, {"<i2", 2}, {"<i4", 4}, {"<i8", 8}, {"<u2", 2}, {"<u4", 4},
              {"<u8", 8}, {"|i1", 1}, {"|u1", 1}, {"|b1", 1}, {"<V2", 2}, {"|V2", 2}, {"|V1", 1}, {"<V1", 1}};

//===--- the header, a Python dictionary ----------------------------------------------------------===//

typedef struct cursor {
  const char *at, *end;
} cursor;

static bool take(cursor *c, char wanted) {
  while (c->at < c->end && isspace((unsigned char)*c->at)) ++c->at;
  if (c->at == c->end || *c->at != wanted) return false;
  ++c->at;
  return true;
}

static bool take_word(cursor *c, const char *word) {
  size_t length = strlen(word);
  while (c->at < c->end && isspace((unsigned char)*c->at)) ++c->at;
  if ((size_t)(c->end - c->at) < length || strncmp(c->at, word, length) != 0) return false;
  c->at += length;
  return true;
}

static bool take_string(cursor *c, char *text, size_t size) {
  char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : '\0';
  if (quote == '\0') return false;
  size_t length = 0;
  for (; c->at < c->end && *c->at != quote && length + 1 < size; ++c->at) text[length++] = *c->at;
  text[length] = '\0';
  return take(c, quote);
}

static bool take_size(cursor *c, int64_t *size) {
  while (c->at < c->end && isspace((unsigned char)*c->at)) ++c->at;
  const char *begin = c->at;
  for (*size = 0; c->at < c->end && isdigit((unsigned char)*c->at); ++c->at)
    if (__builtin_mul_overflow(*size, 10, size) || __builtin_add_overflow(*size, *c->at - '0', size)) return false;
  return c->at > begin;
}

static bool take_shape(cursor *c, npy_array *array) {
  if (!take(c, '(')) return false;
  for (array->ndim = 0; !take(c, ')'); ++array->ndim) {
    if (array->ndim == NPY_MAX_DIMENSIONS || !take_size(c, &array->shape[array->ndim])) return false;
    if (take(c, ',')) continue;
    ++array->ndim;
    return array->ndim > 1 && take(c, ')'); // "(3)" would be a number
  }
  return true;
}

// The value of the key; *seen has a bit for each key that was there.
static bool take_value(cursor *c, const char *key, npy_array *array, bool *fortran, unsigned *seen) {
  static const char *const keys[NUM_KEYS] = {"descr", "fortran_order", "shape"};
  int index = 0;
  while (index < NUM_KEYS && strcmp(key, keys[index]) != 0) ++index;
  if (index == NUM_KEYS || (*seen & 1u << index)) return false;
  *seen |= 1u << index;
  if (index == 0) return take_string(c, array->descr, sizeof array->descr);
  if (index == 2) return take_shape(c, array);
  *fortran = take_word(c, "True");
  return *fortran || take_word(c, "False");
}

static bool take_header(cursor *c, npy_array *array, bool *fortran) {
  unsigned seen = 0;
  if (!take(c, '{')) return false;
  while (!take(c, '}')) {
    char key[16];
    if (!take_string(c, key, sizeof key) || !take(c, ':') || !take_value(c, key, array, fortran, &seen)) return false;
    if (take(c, ',')) continue;
    if (!take(c, '}')) return false;
    break;
  }
  while (c->at < c->end && isspace((unsigned char)*c->at)) ++c->at;
  return c->at == c->end && seen == (1u << NUM_KEYS) - 1;
}

//===--- reading ----------------------------------------------------------------------------------===//

// Where the header lies; the file holds at least `mapping_bytes`.
static run_exit find_header(const char *path, const npy_array *array, cursor *header, message *why) {
  const unsigned char *file = array->mapping;
  size_t have = array->mapping_bytes;
  if (have < MAGIC_BYTES + 4 || memcmp(file, magic, MAGIC_BYTES) != 0) return message_set(why, RUN_FILE, "%s: not a .npy file (no magic)", path);
  unsigned version = file[MAGIC_BYTES];
  if (version < 1 || version > 3 || file[MAGIC_BYTES + 1] != 0)
    return message_set(why, RUN_FILE, "%s: .npy version %u.%u; 1.0, 2.0 and 3.0 are read", path, version, file[MAGIC_BYTES + 1]);
  size_t begin = MAGIC_BYTES + 2 + (version == 1 ? 2 : 4), length = 0;
  for (size_t i = MAGIC_BYTES + 2; i < begin && i < have; ++i) length |= (size_t)file[i] << 8 * (i - MAGIC_BYTES - 2);
  if (have < begin || have - begin < length)
    return message_set(why, RUN_FILE, "%s: truncated: the header needs %zu bytes, the file has %zu", path, begin + length, have);
  header->at = (const char *)file + begin;
  header->end = header->at + length;
  return RUN_OK;
}

static run_exit check_type(const char *path, npy_array *array, message *why) {
  for (size_t i = 0; i < sizeof descrs / sizeof *descrs; ++i)
    if (strcmp(array->descr, descrs[i].descr) == 0) return array->item_bytes = descrs[i].bytes, RUN_OK;
  return message_set(why, RUN_FILE, "%s: element type '%s' is not read; it must be a number of 1 to 8 bytes in little-endian order", path,
                     array->descr);
}

static run_exit check_bytes(const char *path, npy_array *array, size_t offset, message *why) {
  int64_t bytes = array->item_bytes;
  bool overflow = false, empty = false;
  for (int64_t i = 0; i < array->ndim; ++i) {
    empty = empty || array->shape[i] == 0;
    overflow = __builtin_mul_overflow(bytes, array->shape[i] ? array->shape[i] : 1, &bytes) || overflow;
  }
  array->bytes = empty ? 0 : (size_t)bytes;
  size_t have = array->mapping_bytes - offset;
  if (!overflow && have == array->bytes) return RUN_OK;
  char type[2048] = "";
  npy_append_type(type, sizeof type, array);
  if (overflow) return message_set(why, RUN_FILE, "%s: %s has more elements than fit a 64-bit size", path, type);
  return message_set(why, RUN_FILE, "%s: %s: %s needs %zu bytes of data, the file has %zu", path, have < array->bytes ? "truncated" : "too long",
                     type, array->bytes, have);
}

static run_exit align_data(const char *path, npy_array *array, size_t offset, message *why) {
  array->data = (char *)array->mapping + offset;
  if (offset % ALIGNMENT == 0) return RUN_OK;
  if (posix_memalign(&array->copy, ALIGNMENT, array->bytes ? array->bytes : 1) != 0)
    return message_set(why, RUN_RANK, "%s: no memory for %zu bytes", path, array->bytes);
  memcpy(array->copy, array->data, array->bytes);
  array->data = array->copy;
  return RUN_OK;
}

static run_exit parse_file(const char *path, npy_array *array, message *why) {
  cursor header = {NULL, NULL};
  bool fortran = false;
  run_exit result = find_header(path, array, &header, why);
  if (result != RUN_OK) return result;
  size_t offset = (size_t)(header.end - (const char *)array->mapping);
  if (!take_header(&header, array, &fortran))
    return message_set(why, RUN_FILE, "%s: the header is not that of one array: it must give descr as a string, fortran_order and shape", path);
  if (fortran) return message_set(why, RUN_FILE, "%s: the array is in Fortran order; write it with numpy.ascontiguousarray", path);
  result = check_type(path, array, why);
  if (result == RUN_OK) result = check_bytes(path, array, offset, why);
  return result == RUN_OK ? align_data(path, array, offset, why) : result;
}

static run_exit map_file(const char *path, npy_array *array, message *why) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    message_set(why, RUN_FILE, "%s: %s", path, file < 0 ? strerror(errno) : "not a regular file");
    if (file >= 0) close(file);
    return RUN_FILE;
  }
  array->mapping_bytes = (size_t)status.st_size;
  // Private: what a graph writes stays in this process.
  void *mapping = status.st_size == 0 ? NULL : mmap(NULL, array->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  int error = errno;
  close(file);
  if (mapping == MAP_FAILED) return message_set(why, RUN_FILE, "%s: cannot be mapped: %s", path, strerror(error));
  array->mapping = mapping;
  return RUN_OK;
}

run_exit npy_open(const char *path, npy_array *array, message *why) {
  memset(array, 0, sizeof *array);
  run_exit result = map_file(path, array, why);
  if (result == RUN_OK) result = parse_file(path, array, why);
  if (result != RUN_OK) npy_close(array);
  return result;
}

void npy_close(npy_array *array) {
  if (array->mapping) munmap(array->mapping, array->mapping_bytes);
  free(array->copy);
  memset(array, 0, sizeof *array);
}

void npy_append_type(char *buffer, size_t size, const npy_array *array) {
  text_append(buffer, size, "%s", array->descr);
  text_append_shape(buffer, size, array->ndim, array->shape);
}

//===--- writing ----------------------------------------------------------------------------------===//

static size_t make_header(char *header, size_t size, const char *descr, int64_t ndim, const int64_t *shape) {
  char dictionary[2048] = "";
  text_append(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int64_t i = 0; i < ndim; ++i)
    text_append(dictionary, sizeof dictionary, "%lld%s", (long long)shape[i], ndim == 1 ? "," : i + 1 < ndim ? ", " : "");
  text_append(dictionary, sizeof dictionary, "), }");
  size_t fixed = MAGIC_BYTES + 4, used = fixed + strlen(dictionary) + 1;
  size_t total = (used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, length = total - fixed;
  memcpy(header, magic, MAGIC_BYTES);
  memcpy(header + MAGIC_BYTES, (char[]){1, 0, (char)(length & 0xff), (char)(length >> 8)}, 4);
  snprintf(header + fixed, size - fixed, "%-*s\n", (int)length - 1, dictionary);
  return total;
}

static bool write_all(const char *path, const char *header, size_t header_bytes, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  if (!file) return false;
  bool written = fwrite(header, 1, header_bytes, file) == header_bytes && (bytes == 0 || fwrite(data, 1, bytes, file) == bytes);
  int error = errno;
  if (fclose(file) != 0) return false;
  errno = error;
  return written;
}

run_exit npy_write(const char *path, const char *descr, int64_t ndim, const int64_t *shape, const void *data, size_t bytes, message *why) {
  char header[2048 + 2 * ALIGNMENT];
  if (ndim > NPY_MAX_DIMENSIONS) return message_set(why, RUN_FILE, "%s: .npy has at most %d dimensions", path, NPY_MAX_DIMENSIONS);
  size_t header_bytes = make_header(header, sizeof header, descr, ndim, shape);
  // The name may be that of a mapped input: write beside it, then take its place. What is not a regular file (/dev/null) is written as it is.
  struct stat status;
  bool direct = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
  size_t size = strlen(path) + sizeof ".part";
  char *part = records(size, 1);
  text_append(part, size, "%s%s", path, direct ? "" : ".part");
  bool written = write_all(part, header, header_bytes, data, bytes) && (direct || rename(part, path) == 0);
  if (!written) {
    message_set(why, RUN_FILE, "%s: cannot be written: %s", path, strerror(errno));
    if (!direct) unlink(part);
  }
  free(part);
  return written ? RUN_OK : RUN_FILE;
}
