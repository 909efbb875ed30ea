/* The driver's functions that torch, Triton and others look up by name; modules hold no code. */
#define _GNU_SOURCE
#include "streams.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

void *own_function(const char *name) {
    static const char *const versions[] = {"", "_v3", "_v2"};
    static void *library;
    if (!library) {
        Dl_info about;
        dladdr((void *)own_function, &about);
        library = dlopen(about.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    }
    for (size_t i = 0; library && i < sizeof versions / sizeof *versions; i++) {
        char whole[128];
        snprintf(whole, sizeof whole, "%s%s", name, versions[i]);
        void *function = dlsym(library, whole);
        if (function) return function;
    }
    return NULL;
}
static int nothing(void) { return 0; }
static void *function_or_nothing(const char *name) {
    void *function = own_function(name);
    return function ? function : (void *)nothing;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    *function = function_or_nothing(name);
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status) {
    *function = function_or_nothing(name);
    if (status) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

/* ---- devices and contexts: a context is its device's number, and 1 ---- */

CUresult cuInit(unsigned flags) { return num_devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult cuDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = num_devices();
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int number) {
    if (number < 0 || number >= num_devices()) return CUDA_ERROR_INVALID_DEVICE;
    *device = number;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, size, "%s", model_of(card_of(device))->name);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    struct cudaDeviceProp about;
    if (cudaGetDeviceProperties(&about, device)) return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid, &about.uuid, sizeof *uuid);
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    *bytes = model_of(card_of(device))->memory_bytes;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice device) {
    return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)name, device);
}
static CUcontext context_of(int device) { return (CUcontext)(uintptr_t)(device + 1); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = context_of(current_device());
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    if (context) set_current_device((int)(uintptr_t)context - 1);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    *device = current_device();
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) { return (CUresult)cudaDeviceSynchronize(); }
CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr at) {
    struct cudaPointerAttributes about;
    cudaPointerGetAttributes(&about, (void *)at);
    switch (name) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        if (about.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
        *(unsigned *)value = about.type;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (about.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)value = at;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = about.device; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = context_of(about.device); return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* ---- modules ---- */

struct named { char name[256]; };
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    *module = calloc(1, 1);
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    return cuModuleLoadData(module, image);
}
CUresult cuModuleLoad(CUmodule *module, const char *path) { return cuModuleLoadData(module, path); }
CUresult cuModuleUnload(CUmodule module) {
    free(module);
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    struct named *made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name);
    *function = (CUfunction)made;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute name, CUfunction function) {
    *value = name == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : name == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int threads, size_t shared) {
    *count = resident_blocks(current_device(), threads, 32, shared);
    return CUDA_SUCCESS;
}
static CUresult launch(CUfunction function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                       CUstream stream) {
    struct kernel kernel = {.name = ((struct named *)function)->name, .registers = 32, .shared_dynamic = shared};
    memcpy(kernel.grid, grid, sizeof kernel.grid);
    memcpy(kernel.block, block, sizeof kernel.block);
    return (CUresult)enqueue_kernel((cudaStream_t)stream, &kernel);
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **args, void **more) {
    DRIVER_CALL("cuLaunchKernel");
    return launch(function, (unsigned[]){x, y, z}, (unsigned[]){bx, by, bz}, shared, stream);
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void **args) {
    DRIVER_CALL("cuLaunchCooperativeKernel");
    return launch(function, (unsigned[]){x, y, z}, (unsigned[]){bx, by, bz}, shared, stream);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction function, void **args, void **more) {
    DRIVER_CALL("cuLaunchKernelEx");
    return launch(function, (unsigned[]){how->gridDimX, how->gridDimY, how->gridDimZ},
                  (unsigned[]){how->blockDimX, how->blockDimY, how->blockDimZ}, how->sharedMemBytes, how->hStream);
}
CUresult cuStreamSynchronize(CUstream stream) { return (CUresult)cudaStreamSynchronize((cudaStream_t)stream); }
