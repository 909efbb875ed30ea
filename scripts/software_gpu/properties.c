/* Devices as a process sees them: their properties, and which one a thread has chosen. */
#define _GNU_SOURCE
#include "streams.h"
#include <stdio.h>
#include <string.h>

cudaError_t cudaGetDeviceCount(int *count) {
    *count = num_devices();
    return *count ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *device) {
    *device = current_device();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= num_devices()) return failed(cudaErrorInvalidDevice);
    set_current_device(device);
    take_bytes(card_of(device), 0); /* the context */
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int device) {
    if (device < 0 || device >= num_devices()) return failed(cudaErrorInvalidDevice);
    const struct model *model = model_of(card_of(device));
    memset(about, 0, sizeof *about);
    snprintf(about->name, sizeof about->name, "%s", model->name);
    const char *digits = model->uuid;
    while (*digits && *digits != '-') digits++;
    for (int i = 0; i < 16 && *digits; i++) {
        unsigned byte = 0;
        while (*digits == '-') digits++;
        sscanf(digits, "%2x", &byte);
        about->uuid.bytes[i] = byte;
        digits += 2;
    }
    about->totalGlobalMem = model->memory_bytes;
    about->major = model->major;
    about->minor = model->minor;
    about->multiProcessorCount = model->sms;
    about->pciBusID = card_of(device) + 1;
    about->warpSize = 32;
    about->maxThreadsPerBlock = about->maxThreadsDim[0] = about->maxThreadsDim[1] = 1024;
    about->maxThreadsDim[2] = 64;
    about->maxThreadsPerMultiProcessor = model->threads_per_sm;
    about->maxBlocksPerMultiProcessor = model->blocks_per_sm;
    about->maxGridSize[0] = INT32_MAX;
    about->maxGridSize[1] = about->maxGridSize[2] = 65535;
    about->sharedMemPerBlock = 48 << 10;
    about->sharedMemPerMultiprocessor = model->shared_per_sm;
    about->sharedMemPerBlockOptin = model->shared_per_sm - 1024;
    about->reservedSharedMemPerBlock = 1024;
    about->regsPerBlock = 65536;
    about->regsPerMultiprocessor = model->registers_per_sm;
    about->l2CacheSize = 40 << 20;
    about->memoryBusWidth = 5120;
    about->textureAlignment = 512;
    about->asyncEngineCount = 2;
    about->concurrentKernels = about->canMapHostMemory = about->streamPrioritiesSupported = 1;
    about->cooperativeLaunch = about->unifiedAddressing = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device) {
    struct cudaDeviceProp about;
    cudaError_t error = cudaGetDeviceProperties(&about, device);
    if (error) return error;
    switch (name) {
    case cudaDevAttrComputeCapabilityMajor: *value = about.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = about.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = about.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = about.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = about.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = about.sharedMemPerMultiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = about.reservedSharedMemPerBlock; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = about.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = about.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = about.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = about.regsPerBlock; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = about.regsPerMultiprocessor; break;
    case cudaDevAttrWarpSize: *value = about.warpSize; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = about.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrL2CacheSize: *value = about.l2CacheSize; break;
    case cudaDevAttrClockRate: *value = 1000 * model_of(card_of(device))->sm_mhz; break;
    case cudaDevAttrMemoryClockRate: *value = 1215000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = about.memoryBusWidth; break;
    case cudaDevAttrPciBusId: *value = about.pciBusID; break;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    snprintf(id, size, "0000:%02X:00.0", card_of(device) + 1);
    return cudaSuccess;
}
/* `peers = 0`: cards cannot read each other's memory; copies between them still run. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer && machine_number("peers", 1);
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return cudaSuccess; }
