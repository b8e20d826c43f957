//===- modules.c - graphs with kernels of their own ------------------------------------------------------------===//

#include "gpu.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// By CMakeLists.txt: GRAPH and BROKEN_GRAPH, the paths of modules/graph.c's libraries.

static moert_graph *graph; // loaded once, for all ranks

static bool counts_up(const gpu_buffer *buffer) {
  for (int64_t i = 0; i < buffer->count; ++i)
    if (gpu_get(buffer, i) != (double)i) return false;
  return true;
}

static moert_status call(gpu_rank *rank, const char *function, gpu_buffer *out) {
  return moert_graph_call(graph, function, &out->tensor, 1, rank->context);
}

static void launch(gpu_rank *rank) {
  gpu_buffer *out = gpu_new(rank, "f32", 1, 1000), *empty = gpu_new(rank, "f32", 1, 0);
  for (int i = 0; i < 3; ++i) {
    gpu_fill(out, GPU_POISON);
    CHECK_OK(call(rank, "count_up", out));
    CHECK_OK(call(rank, "count_up", empty));
    CHECK_OK(moert_context_synchronize(rank->context));
    gpu_download(out);
    CHECK(counts_up(out));
  }
}

static void capture(gpu_rank *rank) {
  gpu_buffer *out = gpu_new(rank, "f32", 1, 1000);
  moert_capture *capture = NULL;
  CHECK_OK(call(rank, "count_up", out));
  CHECK_OK(moert_context_synchronize(rank->context));
  gpu_fill(out, GPU_POISON);
  if (!CHECK_OK(moert_graph_capture(graph, "count_up", &out->tensor, 1, rank->context, &capture))) return;
  CHECK(gpu_is_filled(out, GPU_POISON));
  for (int i = 0; i < 3; ++i) {
    gpu_fill(out, GPU_POISON);
    CHECK_OK(moert_capture_replay(capture));
    CHECK_OK(moert_context_synchronize(rank->context));
    gpu_download(out);
    CHECK(counts_up(out));
  }
  moert_capture_destroy(capture);
}

static void launch_too_large(gpu_rank *rank) {
  gpu_buffer *out = gpu_new(rank, "f32", 1, 1000);
  static const char text[] = "a kernel of the graph has 1 x 70000 x 1 blocks, must have at most 2147483647 x 65535 x 65535: call the graph "
                             "with fewer rows";
  CHECK_FAILS(call(rank, "too_large", out), MOERT_ERROR_CAPACITY, text);
  CHECK_FAILS(moert_context_synchronize(rank->context), MOERT_ERROR_CAPACITY, NULL);
  CHECK(gpu_is_filled(out, GPU_POISON));
  CHECK_OK(call(rank, "count_up", out));
  moert_capture *capture = NULL;
  CHECK_FAILS(moert_graph_capture(graph, "too_large", &out->tensor, 1, rank->context, &capture), MOERT_ERROR_CAPACITY, text);
  CHECK(capture == NULL);
  gpu_download(out);
  CHECK(counts_up(out));
}

static void launch_unknown(gpu_rank *rank) {
  gpu_buffer *out = gpu_new(rank, "f32", 1, 1000);
  CHECK_FAILS(call(rank, "unknown", out), MOERT_ERROR_DEVICE, NULL);
  CHECK(strstr(moert_last_error(), "loading a kernel of the graph: cuda") == moert_last_error());
  CHECK(gpu_is_filled(out, GPU_POISON));
  CHECK_OK(call(rank, "count_up", out));
}

static void launch_broken(gpu_rank *rank) {
  gpu_buffer *out = gpu_new(rank, "f32", 1, 1000);
  moert_graph *broken = NULL;
  if (!CHECK_OK(moert_graph_load(BROKEN_GRAPH, &broken))) return;
  CHECK_FAILS(moert_graph_call(broken, "count_up", &out->tensor, 1, rank->context), MOERT_ERROR_DEVICE, NULL);
  CHECK(strstr(moert_last_error(), "loading a kernel of the graph: cuda") == moert_last_error());
  CHECK(gpu_is_filled(out, GPU_POISON));
  CHECK_OK(call(rank, "count_up", out)); // the other graph is as good as before
  moert_graph_unload(broken);
}

static void load_again(gpu_rank *rank) {
  gpu_buffer *out = gpu_new(rank, "f32", 1, 1000);
  for (int i = 0; i < 20; ++i) {
    moert_graph *again = NULL;
    if (!CHECK_OK(moert_graph_load(GRAPH, &again))) return;
    gpu_fill(out, GPU_POISON);
    CHECK_OK(moert_graph_call(again, "count_up", &out->tensor, 1, rank->context));
    CHECK_OK(moert_context_synchronize(rank->context));
    moert_graph_unload(again);
    gpu_download(out);
    CHECK(counts_up(out));
  }
}

typedef void Launch(void *, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, int32_t, void *, void **, void **, size_t);

static void launch_outside(void) {
  void *library = dlopen(GRAPH, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, "moert_mgpuLaunchKernel") : NULL;
  Launch *launcher;
  memcpy(&launcher, &symbol, sizeof launcher);
  if (!CHECK(symbol != NULL)) return;
  launcher(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, 0);
  CHECK(strcmp(moert_last_error(), "a kernel of a graph was to be launched outside of a graph call") == 0);
  dlclose(library);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  gpu_case("a graph is loaded without a device") CHECK_OK(moert_graph_load(GRAPH, &graph));
  gpu_case("a launch outside of a graph call") launch_outside();
  if (!graph) return gpu_end();
  gpu_case("kernels of a graph, 4 ranks") gpu_only(4, 0, launch, NULL);
  gpu_case("captured") gpu_only(4, 0, capture, NULL);
  gpu_case("a grid that is too large") gpu_only(2, 0, launch_too_large, NULL);
  gpu_case("a kernel that the image has not") gpu_only(1, 0, launch_unknown, NULL);
  gpu_case("an image that is none") gpu_only(1, 0, launch_broken, NULL);
  moert_graph_unload(graph);
  graph = NULL;
  gpu_case("loaded and unloaded") gpu_only(1, 0, load_again, NULL);
  return gpu_end();
}
