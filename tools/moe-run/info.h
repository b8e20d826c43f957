//===- info.h - the interface of a graph as text --------------------------------------------------===//
#ifndef MOE_RUN_INFO_H
#define MOE_RUN_INFO_H

#include <moert/moert.h>

void info_print(const char *path, const moert_graph_description *graph);

#endif
