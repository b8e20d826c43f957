//===- info.c - the interface of a graph as text --------------------------------------------------===//
#include "info.h"

#include "plan.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *role_name(int64_t role) {
  static const char *const names[] = {"in", "out", "inout"};
  return role >= 0 && role <= MOERT_ROLE_INOUT ? names[role] : "?";
}

static const char *memory_name(int64_t memory) {
  static const char *const names[] = {"device", "host", "symmetric", "value"};
  return memory >= 0 && memory <= MOERT_MEMORY_VALUE ? names[memory] : "?";
}

static int longest_name(const moert_function_info *function) {
  size_t longest = 0;
  for (int64_t i = 0; i < function->num_arguments; ++i)
    if (strlen(function->arguments[i].name) > longest) longest = strlen(function->arguments[i].name);
  return (int)longest;
}

static void print_workspace(const moert_workspace_info *w) {
  printf("         workspace: max_num_tokens %lld, dispatch_bytes_per_token %lld, combine_bytes_per_token %lld, eplb_stats_num_experts %lld, ",
         (long long)w->max_num_tokens, (long long)w->dispatch_bytes_per_token, (long long)w->combine_bytes_per_token,
         (long long)w->eplb_stats_num_experts);
  if (w->ep_size == 0)
    printf("ep_size from the context\n");
  else
    printf("ep_size %lld\n", (long long)w->ep_size);
}

static void print_function(const moert_function_info *function, bool on_device) {
  int width = longest_name(function);
  printf("function %s%s\n", function->name, !on_device ? "" : function->capturable ? ", capturable" : ", not capturable");
  for (int64_t i = 0; i < function->num_arguments; ++i) {
    const moert_argument_info *info = &function->arguments[i];
    char type[1024] = "";
    append_argument_type(type, sizeof type, info);
    printf("  %-6s %-*s  %-9s %s\n", role_name(info->role), width, info->name, memory_name(info->memory), type);
    if (info->workspace) print_workspace(info->workspace);
  }
}

// A graph for a device has the same functions for the host backend. It is loaded already, from a file, which dlopen takes for one if it has a slash.
static bool has_host_half(const char *path) {
  char file[4096] = "";
  text_append(file, sizeof file, "%s%s", strchr(path, '/') ? "" : "./", path);
  void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  bool found = library && dlsym(library, "moert_graph_info_host");
  if (library) dlclose(library);
  return found;
}

static void print_kernel(const moert_graph_description *graph, int64_t index) {
  printf("kernel %s", graph->kernel_keys[index]);
  if (graph->kernels && graph->kernels[index]) printf(": %s", moert_kernel_name(graph->kernels[index]));
  printf("\n");
}

void info_print(const char *path, const moert_graph_description *graph) {
  bool on_device = strcmp(graph->target, "host") != 0;
  printf("graph %s\ntarget %s%s\nABI %lld\nproducer %s\n", path, graph->target, on_device && has_host_half(path) ? ", and host" : "",
         (long long)graph->abi_version, graph->producer);
  for (int64_t i = 0; i < graph->num_functions; ++i) print_function(&graph->functions[i], on_device);
  for (int64_t i = 0; i < graph->num_kernel_keys; ++i) print_kernel(graph, i);
}
