//===- outbox.c - local images of the memory of peers that cannot be addressed -------------------------------===//
//
// An image has the addresses of the whole block of symmetric memory, but memory only where this rank writes: its own lanes, one part in as many as
// there are ranks. The memory comes in granules, when an exchange first needs them, and is freed with the block.
//
//===----------------------------------------------------------------------------------------------===//

#include "cuda.h"
#include "link.h"
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdlib.h>

//===--- the driver ---------------------------------------------------------------------------------===//

typedef struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 granularity;
  PFN_cuMemAddressReserve_v10020 reserve;
  PFN_cuMemAddressFree_v10020 free_addresses;
  PFN_cuMemCreate_v10020 create;
  PFN_cuMemRelease_v10020 release;
  PFN_cuMemMap_v10020 map;
  PFN_cuMemUnmap_v10020 unmap;
  PFN_cuMemSetAccess_v10020 set_access;
} Driver;

static Driver driver;
static bool has_driver; // all of them

static void find_all(void) {
  has_driver = moert__cuda_find_function("cuMemGetAllocationGranularity", &driver.granularity) &&
               moert__cuda_find_function("cuMemAddressReserve", &driver.reserve) &&
               moert__cuda_find_function("cuMemAddressFree", &driver.free_addresses) && moert__cuda_find_function("cuMemCreate", &driver.create) &&
               moert__cuda_find_function("cuMemRelease", &driver.release) && moert__cuda_find_function("cuMemMap", &driver.map) &&
               moert__cuda_find_function("cuMemUnmap", &driver.unmap) && moert__cuda_find_function("cuMemSetAccess", &driver.set_access);
}

static bool find_driver(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_all);
  return has_driver;
}

//===--- images -------------------------------------------------------------------------------------===//

typedef struct Image {
  CUdeviceptr begin; // 0: not reserved yet
  bool *provided;    // of each granule
} Image;

// Those of one block, for each rank.
typedef struct Outboxes {
  int32_t device;
  size_t granule, count; // of granules in the block
  Image images[MOERT_MAX_RANKS];
} Outboxes;

// The driver numbers its errors as the runtime does.
static moert_status fail(CUresult result) { return moert__cuda_fail((cudaError_t)result, "the image of a peer's memory"); }

// As NCCL makes its own memory, which it may share with other processes.
static CUmemAllocationProp properties_of(int32_t device) {
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  return properties;
}

// NCCL's kernels of other devices of this process may read a sender's memory themselves.
static CUresult give_access(CUdeviceptr memory, size_t bytes, int32_t device) {
  CUmemAccessDesc accesses[MOERT__CUDA_MAX_DEVICES];
  size_t count = 0;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();
  for (int other = 0; other < devices && other < MOERT__CUDA_MAX_DEVICES; ++other) {
    int can = other == device;
    if (!can && cudaDeviceCanAccessPeer(&can, other, device) != cudaSuccess) cudaGetLastError();
    if (can)
      accesses[count++] =
          (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  return driver.set_access(memory, bytes, accesses, count);
}

static CUresult map_granule(const Outboxes *boxes, CUdeviceptr memory) {
  const CUmemAllocationProp properties = properties_of(boxes->device);
  CUmemGenericAllocationHandle made;
  CUresult result = driver.create(&made, boxes->granule, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver.map(memory, boxes->granule, 0, made, 0);
  driver.release(made); // it stays as long as it is mapped
  if (result != CUDA_SUCCESS) return result;
  result = give_access(memory, boxes->granule, boxes->device);
  if (result != CUDA_SUCCESS) driver.unmap(memory, boxes->granule);
  return result;
}

// Cleared, as padded rows are sent that no kernel has written.
static moert_status provide_granule(const Outboxes *boxes, CUdeviceptr memory) {
  CUresult result = map_granule(boxes, memory);
  if (result != CUDA_SUCCESS) return fail(result);
  cudaStream_t stream = moert__cuda_own_stream(boxes->device);
  cudaError_t error = cudaMemsetAsync((void *)(uintptr_t)memory, 0, boxes->granule, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) return MOERT_OK;
  driver.unmap(memory, boxes->granule);
  return moert__cuda_fail(error, "the image of a peer's memory");
}

static moert_status reserve_image(const Outboxes *boxes, Image *image) {
  image->provided = calloc(boxes->count, sizeof *image->provided);
  if (!image->provided) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for %zu granules", boxes->count);
  CUresult result = driver.reserve(&image->begin, boxes->count * boxes->granule, 0, 0, 0);
  if (result == CUDA_SUCCESS) return MOERT_OK;
  free(image->provided);
  *image = (Image){0, NULL};
  return fail(result);
}

static void free_image(const Outboxes *boxes, Image *image) {
  for (size_t i = 0; i < boxes->count; ++i)
    if (image->provided[i]) driver.unmap(image->begin + i * boxes->granule, boxes->granule);
  driver.free_addresses(image->begin, boxes->count * boxes->granule);
  free(image->provided);
}

void moert__cuda_release_outboxes(void *outboxes) {
  Outboxes *boxes = outboxes;
  int32_t entered = moert__cuda_enter(boxes->device);
  for (int32_t r = 0; r < MOERT_MAX_RANKS; ++r)
    if (boxes->images[r].begin) free_image(boxes, &boxes->images[r]);
  moert__cuda_leave(entered);
  free(boxes);
}

//===--- those of a block ---------------------------------------------------------------------------===//

static moert_status make_boxes(int32_t device, size_t bytes, void **made) {
  if (!find_driver()) return moert__fail(MOERT_ERROR_UNSUPPORTED, "the driver cannot map memory in parts, which the transport nccl needs");
  const CUmemAllocationProp properties = properties_of(device);
  size_t granule = 0;
  CUresult result = driver.granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return fail(result);
  Outboxes *boxes = calloc(1, sizeof *boxes);
  if (!boxes) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for images of peers' memory");
  boxes->device = device;
  boxes->granule = granule;
  boxes->count = bytes / granule + 1;
  *made = boxes;
  return MOERT_OK;
}

// The image of the block that `slab` lies in, and how far into it that is.
static moert_status find_image(moert_context *context, const void *slab, int32_t peer, Outboxes **boxes, size_t *offset) {
  void *begin;
  size_t bytes;
  void **slot = moert__symmetric_outboxes(moert_context_comm(context), slab, &begin, &bytes);
  if (!slot) return moert__fail(MOERT_ERROR_INVALID_MEMORY, "%p does not lie in symmetric memory", slab);
  moert_status status = *slot ? MOERT_OK : make_boxes(moert__context_device(context), bytes, slot);
  if (status != MOERT_OK) return status;
  *boxes = *slot;
  *offset = (size_t)((const char *)slab - (const char *)begin);
  Image *image = &(*boxes)->images[peer];
  return image->begin ? MOERT_OK : reserve_image(*boxes, image);
}

moert_status moert__outbox(moert_context *context, const void *slab, int32_t peer, char **image) {
  Outboxes *boxes;
  size_t offset;
  moert_status status = find_image(context, slab, peer, &boxes, &offset);
  if (status == MOERT_OK) *image = (char *)(uintptr_t)boxes->images[peer].begin + offset;
  return status;
}

moert_status moert__outbox_provide(moert_context *context, const void *slab, int32_t peer, int64_t begin, int64_t end, bool capturing) {
  Outboxes *boxes;
  size_t offset;
  if (begin >= end) return MOERT_OK;
  moert_status status = find_image(context, slab, peer, &boxes, &offset);
  if (status != MOERT_OK) return status;
  Image *image = &boxes->images[peer];
  const size_t first = (offset + (size_t)begin) / boxes->granule, last = (offset + (size_t)end - 1) / boxes->granule;
  for (size_t i = first; i <= last && status == MOERT_OK; ++i) {
    if (image->provided[i]) continue;
    if (capturing)
      return moert__fail(MOERT_ERROR_NOT_CAPTURABLE, "the images of peers' memory have to grow, which a CUDA graph cannot record; call the op once "
                                                     "before with as many tokens");
    status = provide_granule(boxes, image->begin + i * boxes->granule);
    image->provided[i] = status == MOERT_OK;
  }
  return status;
}
