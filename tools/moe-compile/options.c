//===- options.c - the command line of moe-compile ------------------------------------------------===//

#include "tools/moe-compile/options.h"
#include "moe-mlir-c/MoeMlir.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: moe-compile GRAPH.mlir -o OUTPUT [options]\n"
                            "\n"
                            "Compiles a graph with operations of moe-mlir to a shared library for moe-run, or for any program that\n"
                            "links libmoert. GRAPH.mlir may be - for standard input.\n"
                            "\n"
                            "  -o, --output FILE    where to write; - is standard output, for mlir and llvm\n"
                            "      --target NAME    what the graph will run on: host (the default), or sm_90a (NVIDIA Hopper); a\n"
                            "                       library for sm_90a runs on the host too\n"
                            "      --no-host        leave the host's half out of a library for sm_90a\n"
                            "      --remarks        say of every op that has kernels which one it gets\n"
                            "      --require-specialized\n"
                            "                       an op that would get a generic kernel is an error\n"
                            "      --emit KIND      what to write: mlir (the LLVM dialect, kernels as gpu.module), llvm (LLVM IR), obj (an\n"
                            "                       object file), so (a shared library, the default)\n"
                            "      --cpu NAME       processor of the host: an LLVM name such as x86-64-v3, or native\n"
                            "                       (default: x86-64-v2, which runs everywhere)\n"
                            "      --library DIR    the folder of libmoert.so (default: ../lib beside this program)\n"
                            "      --cuda DIR       the folder of the CUDA toolkit, of which ptxas, fatbinary and libdevice are used\n"
                            "                       (default: CUDA_HOME of the environment, else /usr/local/cuda)\n"
                            "      --print-pipeline print the equivalent --pass-pipeline for mlir-opt-22 with MoeMlirPlugin.so, and stop\n"
                            "      --verbose        print the time of each step\n"
                            "      --help           print this\n"
                            "      --version        print the versions of moe-mlir, the ABI, the dialects and LLVM\n"
                            "\n"
                            "exit status: 0 success, 1 the graph is not valid, 2 bad command line, 3 a file could not be read or\n"
                            "written, 4 the linker failed (a symbol that no library has, or no linker), 5 a defect of this program\n";

static bool refuse(int *status, const char *text, const char *value) {
  fprintf(stderr, "moe-compile: %s%s%s\nTry moe-compile --help.\n", text, value ? " " : "", value ? value : "");
  *status = EXIT_USAGE;
  return false;
}

static bool parseEmit(const char *text, Emit *emit) {
  static const char *const kinds[] = {"mlir", "llvm", "obj", "so"};
  for (int i = 0; i < 4; ++i) {
    if (strcmp(text, kinds[i]) != 0) continue;
    *emit = (Emit)i;
    return true;
  }
  return false;
}

bool isForHost(const Options *options) { return strcmp(options->target, "host") == 0; }

static bool checkOptions(const Options *options, int *status) {
  if (strpbrk(options->cuda, " \t{}'\""))
    return refuse(status, "the folder of the CUDA toolkit must not have blanks, quotes or braces:", options->cuda);
  if (isForHost(options) && options->noHost) return refuse(status, "--no-host needs a target other than host", NULL);
  if (isForHost(options) && options->requireSpecialized)
    return refuse(status, "--require-specialized needs a target other than host, which has one implementation of each op", NULL);
  if (options->printPipeline) return true;
  if (!options->input) return refuse(status, "no graph given", NULL);
  if (!options->output) return refuse(status, "no output given: use -o FILE", NULL);
  if (strcmp(options->output, "-") == 0 && options->emit >= EMIT_OBJECT) return refuse(status, "objects and libraries need a file: -o FILE", NULL);
  return true;
}

bool parseOptions(int argc, char **argv, Options *options, int *status) {
  static const struct option table[] = {{"output", required_argument, NULL, 'o'},
                                        {"target", required_argument, NULL, 't'},
                                        {"emit", required_argument, NULL, 'e'},
                                        {"cpu", required_argument, NULL, 'c'},
                                        {"library", required_argument, NULL, 'l'},
                                        {"cuda", required_argument, NULL, 'C'},
                                        {"no-host", no_argument, NULL, 'n'},
                                        {"remarks", no_argument, NULL, 'r'},
                                        {"require-specialized", no_argument, NULL, 'R'},
                                        {"print-pipeline", no_argument, NULL, 'p'},
                                        {"verbose", no_argument, NULL, 'v'},
                                        {"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'V'},
                                        {NULL, 0, NULL, 0}};
  const char *cuda = getenv("CUDA_HOME");
  *options = (Options){.target = "host", .cpu = "x86-64-v2", .cuda = cuda && *cuda ? cuda : "/usr/local/cuda", .emit = EMIT_LIBRARY};
  *status = 0;
  for (int c; (c = getopt_long(argc, argv, "o:", table, NULL)) != -1;) {
    switch (c) {
    case 'o': options->output = optarg; break;
    case 't': options->target = optarg; break;
    case 'c': options->cpu = optarg; break;
    case 'l': options->library = optarg; break;
    case 'C': options->cuda = optarg; break;
    case 'n': options->noHost = true; break;
    case 'r': options->remarks = true; break;
    case 'R': options->requireSpecialized = true; break;
    case 'p': options->printPipeline = true; break;
    case 'v': options->verbose = true; break;
    case 'e':
      if (!parseEmit(optarg, &options->emit)) return refuse(status, "--emit must be mlir, llvm, obj or so, not", optarg);
      break;
    case 'h': fputs(usage, stdout); return false;
    case 'V': printf("moe-compile %s\n", moeMlirVersionGet()); return false;
    default: return refuse(status, "bad command line", NULL);
    }
  }
  if (optind < argc) options->input = argv[optind++];
  if (optind < argc) return refuse(status, "more than one graph:", argv[optind]);
  return checkOptions(options, status);
}
