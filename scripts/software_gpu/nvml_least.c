/* NVML, as far as torch's allocator asks. */
#include <cuda_runtime_api.h>
#define NOT_SUPPORTED 3
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetGpuFabricInfoV(void *device, void *about) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *about) { return NOT_SUPPORTED; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *list) { return NOT_SUPPORTED; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = CUDART_VERSION; return 0; }
