/* CUDA's runtime, driver and cuBLAS where there is no GPU: memory is the host's, kernels do nothing.
 *
 * Loaded before torch's CUDA build, it lets torch's own allocator, operators and autograd ask for
 * memory as they do on a GPU; only what kernels would compute is missing. Functions that are not
 * here return success and do nothing (library.py makes them). Signatures: CUDA 13. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB)
#define ADDRESSES ((size_t)1 << 42)
#define MOST_SEGMENTS 65536
#define DRIVER_OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY */
#define NVML_NOT_SUPPORTED 3

typedef struct { char *start; size_t size; } Segment;
static Segment segments[MOST_SEGMENTS];
static size_t num_segments, used;
static char *range, *next;

/* ---- memory: addresses ascend, and none is given twice ---- */

static size_t capacity(void) {
    const char *text = getenv("SOFTWARE_GPU_BYTES");
    return text ? strtoull(text, NULL, 10) : (size_t)80 << 30;
}
static size_t whole(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }
static char *addresses(size_t size) {
    if (!range) {
        char *start = mmap(NULL, ADDRESSES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) abort();
        range = next = (char *)whole((uintptr_t)start);
    }
    char *given = next;
    next += whole(size);
    if (next > range + ADDRESSES - PAGE) abort();
    return given;
}
static int is_on_device(const void *at) {
    return range && (const char *)at >= range && (const char *)at < range + ADDRESSES;
}
cudaError_t cudaMalloc(void **out, size_t size) {
    if (used + whole(size) > capacity()) return cudaErrorMemoryAllocation;
    if (num_segments == MOST_SEGMENTS) abort();
    *out = addresses(size);
    segments[num_segments++] = (Segment){*out, whole(size)};
    used += whole(size);
    return cudaSuccess;
}
cudaError_t cudaFree(void *at) {
    for (size_t i = 0; at && i < num_segments; i++)
        if (segments[i].start == at) {
            madvise(at, segments[i].size, MADV_DONTNEED);
            used -= segments[i].size;
            segments[i] = segments[--num_segments];
            break;
        }
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    *total = capacity();
    *free = *total - used;
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags) {
    *out = malloc(size);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **out, size_t size) { return cudaHostAlloc(out, size, 0); }
cudaError_t cudaFreeHost(void *at) { free(at); return cudaSuccess; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    memmove(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemset(void *to, int value, size_t size) {
    memset(to, value, size);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    return cudaMemset(to, value, size);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *at) {
    memset(about, 0, sizeof *about);
    about->type = is_on_device(at) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    about->devicePointer = is_on_device(at) ? (void *)at : NULL;
    return cudaSuccess;
}

/* ---- the device: the numbers of an A100 ---- */

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int device) {
    memset(about, 0, sizeof *about);
    strcpy(about->name, "stand-in for a GPU");
    about->totalGlobalMem = capacity();
    about->major = 8;
    about->multiProcessorCount = 108;
    about->warpSize = 32;
    about->maxThreadsPerBlock = about->maxThreadsDim[0] = about->maxThreadsDim[1] = 1024;
    about->maxThreadsDim[2] = 64;
    about->maxThreadsPerMultiProcessor = 2048;
    about->maxBlocksPerMultiProcessor = 32;
    about->maxGridSize[0] = INT32_MAX;
    about->maxGridSize[1] = about->maxGridSize[2] = 65535;
    about->sharedMemPerBlock = 48 << 10;
    about->sharedMemPerBlockOptin = 163 << 10;
    about->sharedMemPerMultiprocessor = 164 << 10;
    about->regsPerBlock = about->regsPerMultiprocessor = 65536;
    about->l2CacheSize = 40 << 20;
    about->memoryBusWidth = 5120;
    about->textureAlignment = 512;
    about->unifiedAddressing = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device) {
    struct cudaDeviceProp about;
    cudaGetDeviceProperties(&about, device);
    switch (name) {
    case cudaDevAttrComputeCapabilityMajor: *value = about.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = about.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = about.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = about.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = about.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = about.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = about.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = about.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = about.regsPerBlock; break;
    case cudaDevAttrWarpSize: *value = about.warpSize; break;
    case cudaDevAttrMaxGridDimX: *value = about.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrL2CacheSize: *value = about.l2CacheSize; break;
    default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    strncpy(id, "0000:00:00.0", size);
    return cudaSuccess;
}

/* ---- streams, events and kernels: all is over when it is asked for ---- */

static void *handle(void) { return calloc(1, 4096); }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    *stream = handle();
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithPriority(stream, 0, 0);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    *event = handle();
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    clock_gettime(CLOCK_MONOTONIC, (struct timespec *)event);
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    struct timespec *from = (struct timespec *)start, *to = (struct timespec *)end;
    *ms = (to->tv_sec - from->tv_sec) * 1e3 + (to->tv_nsec - from->tv_nsec) / 1e6;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *about, const void *function) {
    memset(about, 0, sizeof *about);
    about->maxThreadsPerBlock = 1024;
    about->numRegs = 32;
    about->binaryVersion = about->ptxVersion = 80;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *count, const void *function, int threads, size_t shared, unsigned flags) {
    *count = 2;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *function,
                                                          int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, threads, shared, 0);
}

/* ---- cuBLAS: its handles, and one algorithm for each product ---- */

int cublasCreate_v2(void **library) { *library = handle(); return 0; }
int cublasGetMathMode(void *library, int *mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *library, int *mode) { *mode = 0; return 0; }
int cublasLtCreate(void **library) { *library = handle(); return 0; }
int cublasLtMatmulDescCreate(void **product, int compute, int scale) { *product = handle(); return 0; }
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    *layout = handle();
    return 0;
}
int cublasLtMatmulPreferenceCreate(void **preference) { *preference = handle(); return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *library, void *product, void *a, void *b, void *c, void *d,
                                   void *preference, int asked, char *results, int *num_results) {
    memset(results, 0, 96); /* cublasLtMatmulHeuristicResult_t: no workspace, success */
    *num_results = 1;
    return 0;
}

/* ---- the driver: memory behind ranges of addresses, for segments that grow ---- */

static int nothing(void) { return 0; }
static int reserve_addresses(unsigned long long *at, size_t size, size_t alignment,
                             unsigned long long wanted, unsigned long long flags) {
    *at = (unsigned long long)addresses(size);
    return 0;
}
static int create_memory(unsigned long long *memory, size_t size, const void *about,
                         unsigned long long flags) {
    if (used + size > capacity()) return DRIVER_OUT_OF_MEMORY;
    used += size;
    *memory = size;
    return 0;
}
static int release_memory(unsigned long long memory) { used -= memory; return 0; }
static int granularity(size_t *size, const void *about, int option) { *size = PAGE; return 0; }
static int device_attribute(int *value, int name, int device) {
    return cudaDeviceGetAttribute(value, name, device);
}
static int current_context(void **context) {
    static char only[64];
    *context = only;
    return 0;
}
static cudaError_t entry_point(const char *name, void **function,
                               enum cudaDriverEntryPointQueryResult *status) {
    static const struct { const char *name; void *function; } known[] = {
        {"cuMemAddressReserve", reserve_addresses}, {"cuMemCreate", create_memory},
        {"cuMemRelease", release_memory}, {"cuMemGetAllocationGranularity", granularity},
        {"cuDeviceGetAttribute", device_attribute}, {"cuCtxGetCurrent", current_context},
    };
    *function = nothing;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) *function = known[i].function;
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    return entry_point(name, function, status);
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return 0;
}
int cuCtxGetCurrent(void **context) { return current_context(context); }

/* ---- NVML, as far as torch's allocator asks ---- */

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { *device = handle(); return 0; }
int nvmlDeviceGetGpuFabricInfoV(void *device, void *about) { return NVML_NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) { return NVML_NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *about) { return NVML_NOT_SUPPORTED; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *list) { return NVML_NOT_SUPPORTED; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = CUDART_VERSION; return 0; }
