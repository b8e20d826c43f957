//===- one.c - a graph with one function, which needs no --function -------------------------------===//
#include <moert/moert.h>

static moert_status only(void *const *arguments, moert_context *context) {
  (void)arguments, (void)context;
  return MOERT_OK;
}

static const moert_function_info function = {"only", only, 0, NULL, 1};

MOERT_API extern const moert_graph_description moert_graph_info;
const moert_graph_description moert_graph_info = {
    MOERT_GRAPH_MAGIC, MOERT_ABI_VERSION, sizeof(moert_graph_description), "host", "the tests of moe-run", 1, &function, 0, NULL, NULL,
};
