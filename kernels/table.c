//===- table.c - answers about kernels --------------------------------------------------------------===//

#include "kernels/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.inc" // generated: moeKernelInstances, moeKernelOps

const int moeNumKernelInstances = sizeof moeKernelInstances / sizeof *moeKernelInstances;
const char *const moeKernelTargets[] = {"sm_90a", NULL};

const char *moeKernelSetName(MoeKernelSet set) {
  static const char *const names[] = {"minimal", "default", "full"};
  return names[set];
}

//===--- texts ------------------------------------------------------------------------------------===//

// A part of a key.
typedef struct Piece {
  const char *data;
  size_t length;
} Piece;

static bool equals(Piece piece, const char *text) { return strlen(text) == piece.length && !memcmp(text, piece.data, piece.length); }

// What does not fit is cut off.
static void append(MoeKernelMatch *match, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(MoeKernelMatch *match, const char *format, ...) {
  size_t used = strlen(match->why);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(match->why + used, sizeof match->why - used, format, arguments);
  va_end(arguments);
}

static bool isListed(const char *const *names, Piece piece) {
  for (; *names; ++names)
    if (equals(piece, *names)) return true;
  return false;
}

bool moeKernelTargetExists(const char *target) { return isListed(moeKernelTargets, (Piece){target, strlen(target)}); }

static void appendList(MoeKernelMatch *match, const char *const *names) {
  for (const char *const *name = names; *name; ++name) append(match, "%s%s", name == names ? "" : ", ", *name);
}

//===--- keys -------------------------------------------------------------------------------------===//

typedef struct Key {
  Piece op, target, dtype; // the element type of the first buffer
  const char *rest;        // element types and parameters
} Key;

// The text up to the first of `ends`; `*at` goes past that character.
static Piece take(const char **at, const char *ends) {
  Piece piece = {*at, strcspn(*at, ends)};
  *at += piece.length + ((*at)[piece.length] != 0);
  return piece;
}

static Key parse(const char *text) {
  Key key;
  key.op = take(&text, "/");
  key.target = take(&text, "/");
  key.rest = text;
  key.dtype = take(&text, ",");
  if (memchr(key.dtype.data, '=', key.dtype.length)) key.dtype.length = 0; // an op without buffers
  return key;
}

// The value of a parameter; false if the key leaves it out.
static bool findValue(const Key *key, const char *name, Piece *value) {
  const char *at = key->rest;
  size_t length = strlen(name);
  while (*at) {
    *value = take(&at, ",");
    if (value->length <= length || memcmp(value->data, name, length) || value->data[length] != '=') continue;
    *value = (Piece){value->data + length + 1, value->length - length - 1};
    return true;
  }
  return false;
}

//===--- distances --------------------------------------------------------------------------------===//

// How far an instance is from a key: columns that differ, then by how much their numbers do, as parts of the larger.
typedef struct Distance {
  int columns;
  double numbers;
} Distance;

static bool isNumber(Piece value, double *number) {
  char text[64], *end;
  if (value.length == 0 || value.length >= sizeof text) return false;
  memcpy(text, value.data, value.length);
  text[value.length] = 0;
  *number = strtod(text, &end);
  return !*end && isfinite(*number);
}

static double numberDistance(Piece value, const char *other) {
  double a, b;
  if (!isNumber(value, &a) || !isNumber((Piece){other, strlen(other)}, &b)) return 1;
  return a == b ? 0 : fabs(a - b) / (fabs(a) + fabs(b)); // at most 1
}

static Distance distanceOf(const Key *key, const MoeKernelInstance *instance) {
  Distance distance = {0, 0};
  for (int i = 0; i < instance->numColumns; ++i) {
    Piece value;
    bool given = findValue(key, instance->columns[i].name, &value);
    if (given && equals(value, instance->columns[i].value)) continue;
    distance.columns++;
    distance.numbers += given ? numberDistance(value, instance->columns[i].value) : 1;
  }
  return distance;
}

static bool isNearer(Distance a, Distance b) { return a.columns != b.columns ? a.columns < b.columns : a.numbers < b.numbers; }

//===--- match ------------------------------------------------------------------------------------===//

// The nearest of the op and element type, the first of equals; NULL if there is none.
static const MoeKernelInstance *findNearest(const Key *key, Distance *least) {
  const MoeKernelInstance *nearest = NULL;
  for (int i = 0; i < moeNumKernelInstances; ++i) {
    const MoeKernelInstance *instance = &moeKernelInstances[i];
    if (!equals(key->op, instance->op) || (strcmp(instance->dtype, "any") != 0 && !equals(key->dtype, instance->dtype))) continue;
    Distance distance = distanceOf(key, instance);
    if (nearest && !isNearer(distance, *least)) continue;
    nearest = instance;
    *least = distance;
  }
  return nearest;
}

static void explainColumns(MoeKernelMatch *match, const Key *key) {
  for (int i = 0; i < match->instance->numColumns; ++i) {
    const MoeKernelColumn *column = &match->instance->columns[i];
    const char *separator = match->why[0] ? "; " : "";
    Piece value;
    if (!findValue(key, column->name, &value))
      append(match, "%s%s is not given, the nearest instance has %s", separator, column->name, column->value);
    else if (!equals(value, column->value))
      append(match, "%s%s is %.*s, the nearest instance has %s", separator, column->name, (int)value.length, value.data, column->value);
  }
}

// Which element types the op's instances have, each once.
static void explainDtype(MoeKernelMatch *match, const Key *key) {
  const char *dtypes[8] = {NULL};
  int count = 0;
  for (int i = 0; i < moeNumKernelInstances; ++i) {
    const char *dtype = moeKernelInstances[i].dtype;
    if (equals(key->op, moeKernelInstances[i].op) && !isListed(dtypes, (Piece){dtype, strlen(dtype)}) && count < 7) dtypes[count++] = dtype;
  }
  if (count == 0) {
    append(match, "the op has no instances");
    return;
  }
  append(match, "element type %.*s, instances have ", (int)key->dtype.length, key->dtype.data);
  appendList(match, dtypes);
}

static MoeKernelMatch refuse(const char *what, Piece name, const char *known, const char *const *names) {
  MoeKernelMatch match = {MOE_KERNEL_NONE, NULL, ""};
  append(&match, "%s '%.*s' %s: ", what, (int)name.length, name.data, known);
  appendList(&match, names);
  return match;
}

MoeKernelMatch moeKernelMatch(const char *text) {
  Key key = parse(text);
  if (!isListed(moeKernelOps, key.op)) return refuse("op", key.op, "is none of those that have kernels", moeKernelOps);
  if (!isListed(moeKernelTargets, key.target)) return refuse("target", key.target, "is none of this build's", moeKernelTargets);
  Distance distance = {0, 0};
  MoeKernelMatch match = {MOE_KERNEL_GENERIC, findNearest(&key, &distance), ""};
  if (!match.instance)
    explainDtype(&match, &key);
  else if (distance.columns)
    explainColumns(&match, &key);
  else
    match.answer = MOE_KERNEL_EXACT;
  return match;
}
