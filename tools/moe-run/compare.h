//===- compare.h - results against what is expected -----------------------------------------------===//
#ifndef MOE_RUN_COMPARE_H
#define MOE_RUN_COMPARE_H

#include "team.h"

// Compare every argument of --expect on every rank; agreement is printed to stdout, differences too. RUN_DIFFERENT if something differs, else RUN_OK,
// or what `why` says.
run_exit compare_results(const team *team, message *why);

// Compare what was written with what the same calls wrote on the host backend, but for symmetric memory, whose layout is the backends' own.
// RUN_DIFFERENT if something differs, else RUN_OK.
run_exit compare_backends(const team *tested, const team *host);

#endif
