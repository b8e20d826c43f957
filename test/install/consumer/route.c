/*===- route.c - a program that needs the run side alone ----------------------------------------------===*
 *
 * Two ranks, each on a thread, choose experts for tokens of their own.
 *
 *===----------------------------------------------------------------------------------------------===*/
#include <moert/ops.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS = 2, TOKENS = 2, EXPERTS = 4 };

static moert_comm *comms[RANKS];

/* Each token of rank r has its highest logit at expert r + t. Returns NULL if that is what was chosen on both ranks. */
static void *run_rank(void *comm) {
  int32_t rank = moert_comm_rank(comm), ids[TOKENS] = {-2, -2};
  float logits[TOKENS][EXPERTS] = {{0}}, weights[TOKENS] = {-1, -1};
  int64_t in[2] = {TOKENS, EXPERTS}, out[2] = {TOKENS, 1};
  moert_device cpu = {MOERT_DEVICE_CPU, 0};
  moert_dtype f32 = {MOERT_CODE_FLOAT, 32, 1}, i32 = {MOERT_CODE_INT, 32, 1};
  moert_tensor logits_tensor = {NULL, {0, 0}, 2, {0, 0, 0}, NULL, NULL, 0}, ids_tensor = logits_tensor, weights_tensor = logits_tensor;
  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  moert_moe_route_args args = MOERT_MOE_ROUTE_ARGS_INIT;
  moert_context *context = NULL;
  moert_status status;
  int t, wrong = 0;

  logits_tensor.device = ids_tensor.device = weights_tensor.device = cpu;
  logits_tensor.data = logits, logits_tensor.dtype = f32, logits_tensor.shape = in;
  ids_tensor.data = ids, ids_tensor.dtype = i32, ids_tensor.shape = out;
  weights_tensor.data = weights, weights_tensor.dtype = f32, weights_tensor.shape = out;
  params.top_k = 1, params.n_experts = EXPERTS, params.renormalize = 1;
  args.logits = &logits_tensor, args.ids = &ids_tensor, args.weights = &weights_tensor;
  for (t = 0; t < TOKENS; ++t) logits[t][rank + t] = 1;

  status = moert_context_create(comm, NULL, &context);
  if (!status) status = moert_moe_route(&params, &args, NULL, context);
  if (!status) status = moert_comm_barrier(comm, 0);
  if (status) fprintf(stderr, "rank %d: %s: %s\n", (int)rank, moert_status_name(status), moert_last_error());
  for (t = 0; t < TOKENS; ++t) wrong |= ids[t] != rank + t || weights[t] != 1;
  moert_context_destroy(context);
  return status || wrong ? comm : NULL;
}

int main(void) {
  pthread_t threads[RANKS];
  void *failed[RANKS] = {NULL};
  int r;
  if (moert_abi_version() != MOERT_ABI_VERSION || moert_comm_create_threads(RANKS, NULL, comms)) return 1;
  for (r = 0; r < RANKS; ++r)
    if (pthread_create(&threads[r], NULL, run_rank, comms[r])) return 1;
  for (r = 0; r < RANKS; ++r) pthread_join(threads[r], &failed[r]);
  for (r = 0; r < RANKS; ++r) moert_comm_destroy(comms[r]);
  if (failed[0] || failed[1]) return 1;
  printf("route: OK with libmoert %s\n", moert_version());
  return 0;
}
