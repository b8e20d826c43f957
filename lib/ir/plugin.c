//===- plugin.c - what mlir-opt looks for in MoeMlirPlugin.so -------------------------------------===//

#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"

// The layouts of mlir/Tools/Plugins/{Dialect,Pass}Plugin.h, which are C++ headers.
enum { PLUGIN_API_VERSION = 1 };

typedef struct DialectPlugin {
  uint32_t apiVersion;
  const char *name, *version;
  void (*registerDialects)(void *registry);
} DialectPlugin;

typedef struct PassPlugin {
  uint32_t apiVersion;
  const char *name, *version;
  void (*registerPasses)(void);
} PassPlugin;

MLIR_CAPI_EXPORTED DialectPlugin mlirGetDialectPluginInfo(void);
MLIR_CAPI_EXPORTED PassPlugin mlirGetPassPluginInfo(void);

static void registerDialects(void *registry) { moeMlirRegisterDialects((MlirDialectRegistry){registry}); }

DialectPlugin mlirGetDialectPluginInfo(void) { return (DialectPlugin){PLUGIN_API_VERSION, "MoeMlir", MOE_VERSION, registerDialects}; }
PassPlugin mlirGetPassPluginInfo(void) { return (PassPlugin){PLUGIN_API_VERSION, "MoeMlir", MOE_VERSION, moeMlirRegisterPasses}; }
