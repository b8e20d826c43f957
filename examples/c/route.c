/*===- route.c - one op from C ----------------------------------------------------------------------===*
 *
 *   cc -std=c99 -I include -I build/generated examples/c/route.c -L build/lib -lmoert -Wl,-rpath,$PWD/build/lib -o route && ./route
 *
 *===----------------------------------------------------------------------------------------------===*/
#include <moert/ops.h>
#include <stdio.h>

enum { TOKENS = 2, EXPERTS = 4, TOP_K = 2 };

int main(void) {
  float logits[TOKENS][EXPERTS] = {{0, 3, 1, 2}, {1, 1, 0, -1}}, weights[TOKENS][TOP_K];
  int32_t ids[TOKENS][TOP_K];
  int64_t in[2] = {TOKENS, EXPERTS}, out[2] = {TOKENS, TOP_K};
  moert_device cpu = {MOERT_DEVICE_CPU, 0};
  moert_dtype f32 = {MOERT_CODE_FLOAT, 32, 1}, i32 = {MOERT_CODE_INT, 32, 1};
  moert_tensor logits_tensor = {logits, cpu, 2, f32, in, NULL, 0};
  moert_tensor ids_tensor = {ids, cpu, 2, i32, out, NULL, 0}, weights_tensor = {weights, cpu, 2, f32, out, NULL, 0};

  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  params.top_k = TOP_K;
  params.n_experts = EXPERTS;
  params.renormalize = 1;
  moert_moe_route_args args = MOERT_MOE_ROUTE_ARGS_INIT;
  args.logits = &logits_tensor;
  args.ids = &ids_tensor;
  args.weights = &weights_tensor;

  moert_comm *comm = NULL;
  moert_context *context = NULL;
  moert_status status = moert_comm_create_threads(1, NULL, &comm);
  if (!status) status = moert_context_create(comm, NULL, &context);
  if (!status) status = moert_moe_route(&params, &args, NULL, context);
  if (status) fprintf(stderr, "%s: %s\n", moert_status_name(status), moert_last_error());
  for (int t = 0; t < TOKENS && !status; ++t)
    printf("token %d: expert %d with %.4f, expert %d with %.4f\n", t, (int)ids[t][0], weights[t][0], (int)ids[t][1], weights[t][1]);
  moert_context_destroy(context);
  moert_comm_destroy(comm);
  return status != MOERT_OK;
}
