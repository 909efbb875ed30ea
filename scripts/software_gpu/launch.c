/* Kernels: their names, as torch's libraries register them, and their launches. They compute nothing. */
#define _GNU_SOURCE
#include "streams.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define REGISTERS 32 /* of each thread of any kernel: what they really take stands in code for a GPU */

struct function { const void *host; const char *name; int sleeps; };
static struct function *functions; /* by address of the host's function, open addressing */
static size_t num_functions, num_places;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct function *place_of_function(struct function *table, size_t places, const void *host) {
    size_t at = ((uintptr_t)host >> 4) * 0x9e3779b97f4a7c15ull % places;
    while (table[at].host && table[at].host != host) at = (at + 1) % places;
    return &table[at];
}
static void add_function(const void *host, const char *name) {
    pthread_mutex_lock(&mutex);
    if (2 * (num_functions + 1) > num_places) {
        size_t places = num_places ? 4 * num_places : 1 << 16;
        struct function *larger = calloc(places, sizeof *larger);
        for (size_t i = 0; i < num_places; i++)
            if (functions[i].host) *place_of_function(larger, places, functions[i].host) = functions[i];
        free(functions);
        functions = larger;
        num_places = places;
    }
    struct function *place = place_of_function(functions, num_places, host);
    if (!place->host) num_functions++;
    *place = (struct function){host, name, strstr(name, "spin_kernel") != NULL};
    pthread_mutex_unlock(&mutex);
}
static struct function function_of(const void *host) {
    struct function found = {host, "unknown_kernel", 0};
    pthread_mutex_lock(&mutex);
    if (num_places) {
        struct function *place = place_of_function(functions, num_places, host);
        if (place->host) found = *place;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}
void **__cudaRegisterFatBinary(void *binary) {
    void **handle = calloc(1, sizeof *handle);
    *handle = binary;
    return handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp) {
    add_function(host, name);
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
                       int global) {}
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t size,
                              int constant, int global) {}

/* ---- launches ---- */

static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configured[8];
static __thread int num_configured;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    if (num_configured == 8) return 1;
    configured[num_configured].grid = grid;
    configured[num_configured].block = block;
    configured[num_configured].shared = shared;
    configured[num_configured++].stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!num_configured) return cudaErrorMissingConfiguration;
    num_configured--;
    *grid = configured[num_configured].grid;
    *block = configured[num_configured].block;
    *shared = configured[num_configured].shared;
    *(cudaStream_t *)stream = configured[num_configured].stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    double blocks = (double)grid.x * grid.y * grid.z, threads = (double)block.x * block.y * block.z;
    if (blocks < 1 || threads < 1 || threads > 1024) return failed(cudaErrorInvalidConfiguration);
    struct function function = function_of(host);
    struct kernel kernel = {
        .name = function.name, .grid = {grid.x, grid.y, grid.z}, .block = {block.x, block.y, block.z},
        .registers = REGISTERS, .shared_dynamic = shared, .engine = COMPUTE,
    };
    if (function.sleeps) { /* torch.cuda._sleep: so many cycles */
        double cycles = *(const int64_t *)args[0];
        kernel.duration_ns = llround(1e3 * cycles / model_of(card_of(device_of_stream(stream)))->sm_mhz) + 1;
    }
    return failed(enqueue_kernel(stream, &kernel));
}
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    CALL("cudaLaunchKernel");
    return launch(host, grid, block, args, shared, stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *host, void **args) {
    CALL("cudaLaunchKernelExC");
    return launch(host, how->gridDim, how->blockDim, args, how->dynamicSmemBytes, how->stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream) {
    CALL("cudaLaunchCooperativeKernel");
    return launch(host, grid, block, args, shared, stream);
}

/* ---- what is asked about them ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *about, const void *host) {
    const struct model *model = model_of(card_of(current_device()));
    memset(about, 0, sizeof *about);
    about->maxThreadsPerBlock = 1024;
    about->numRegs = REGISTERS;
    about->binaryVersion = about->ptxVersion = 10 * model->major + model->minor;
    about->maxDynamicSharedSizeBytes = 48 << 10;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *host, int threads,
                                                                   size_t shared, unsigned flags) {
    *count = resident_blocks(current_device(), threads, REGISTERS, shared);
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *host, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, host, threads, shared, 0);
}
