/* Memory: a card's bytes are counted exactly; behind its addresses lie untouched pages of the host. */
#define _GNU_SOURCE
#include "streams.h"
#include "memory.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE (2 * MIB)
#define ADDRESSES ((size_t)1 << 42) /* of each device */
#define MOST_SEGMENTS 65536
#define DRIVER_OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY */

struct segment { char *start; size_t size; int device; };
static struct segment segments[MOST_SEGMENTS], pinned[MOST_SEGMENTS];
static size_t num_segments, num_pinned, pinned_bytes;
static char *ranges[MOST_CARDS], *next[MOST_CARDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static size_t whole(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

/* Addresses ascend, and none is given twice. */
static char *addresses(int device, size_t size) {
    if (!ranges[device]) {
        char *start = mmap(NULL, ADDRESSES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) abort();
        madvise(start, ADDRESSES, MADV_DONTDUMP);
        next[device] = (char *)whole((uintptr_t)start);
        ranges[device] = start;
    }
    char *given = next[device];
    next[device] += whole(size);
    if (next[device] > ranges[device] + ADDRESSES - PAGE) abort();
    return given;
}
int device_of_address(const void *at) {
    for (int i = 0; i < MOST_CARDS; i++)
        if (ranges[i] && (const char *)at >= ranges[i] && (const char *)at < ranges[i] + ADDRESSES) return i;
    return -1;
}
static struct segment *find(struct segment *list, size_t count, const void *at) {
    for (size_t i = count; i-- > 0;)
        if ((const char *)at >= list[i].start && (const char *)at < list[i].start + list[i].size) return &list[i];
    return NULL;
}
enum place place_of(const void *at) {
    if (device_of_address(at) >= 0) return ON_DEVICE;
    pthread_mutex_lock(&mutex);
    int is_pinned = find(pinned, num_pinned, at) != NULL;
    pthread_mutex_unlock(&mutex);
    return is_pinned ? PINNED : PAGEABLE;
}

cudaError_t cudaMalloc(void **out, size_t size) {
    CALL("cudaMalloc");
    int device = current_device();
    if (!take_bytes(card_of(device), whole(size))) return failed(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&mutex);
    if (num_segments == MOST_SEGMENTS) abort();
    *out = addresses(device, size);
    segments[num_segments++] = (struct segment){*out, whole(size), device};
    pthread_mutex_unlock(&mutex);
    return cudaSuccess;
}
/* As the real one, it waits for the device. */
cudaError_t cudaFree(void *at) {
    CALL("cudaFree");
    if (!at) return cudaSuccess;
    pthread_mutex_lock(&mutex);
    struct segment *found = find(segments, num_segments, at), gone = {0};
    if (found && found->start == at) {
        gone = *found;
        *found = segments[--num_segments];
    }
    pthread_mutex_unlock(&mutex);
    if (!gone.size) return failed(cudaErrorInvalidValue);
    wait_for_device(gone.device);
    madvise(gone.start, gone.size, MADV_DONTNEED);
    return_bytes(card_of(gone.device), gone.size);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    int card = card_of(current_device());
    size_t used = used_bytes(card);
    *total = model_of(card)->memory_bytes;
    *free = used < *total ? *total - used : 0;
    return cudaSuccess;
}

/* ---- memory of the host that is pinned ---- */

static cudaError_t pin(void *at, size_t size) {
    pthread_mutex_lock(&mutex);
    int has_room = pinned_bytes + size <= model_of(0)->pinned_bytes && num_pinned < MOST_SEGMENTS;
    if (has_room) {
        pinned_bytes += size;
        pinned[num_pinned++] = (struct segment){at, size, 0};
    }
    pthread_mutex_unlock(&mutex);
    return has_room ? cudaSuccess : cudaErrorMemoryAllocation;
}
static void unpin(void *at) {
    pthread_mutex_lock(&mutex);
    struct segment *found = find(pinned, num_pinned, at);
    if (found) {
        pinned_bytes -= found->size;
        *found = pinned[--num_pinned];
    }
    pthread_mutex_unlock(&mutex);
}
cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags) {
    CALL("cudaHostAlloc");
    *out = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!*out) return failed(cudaErrorMemoryAllocation);
    if (!pin(*out, size)) return cudaSuccess;
    free(*out);
    *out = NULL;
    return failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void **out, size_t size) { return cudaHostAlloc(out, size, 0); }
cudaError_t cudaFreeHost(void *at) {
    CALL("cudaFreeHost");
    unpin(at);
    free(at);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *at, size_t size, unsigned flags) {
    CALL("cudaHostRegister");
    return failed(pin(at, size));
}
cudaError_t cudaHostUnregister(void *at) {
    CALL("cudaHostUnregister");
    unpin(at);
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *at) {
    static const enum cudaMemoryType types[] = {
        [PAGEABLE] = cudaMemoryTypeUnregistered, [PINNED] = cudaMemoryTypeHost, [ON_DEVICE] = cudaMemoryTypeDevice};
    enum place place = place_of(at);
    memset(about, 0, sizeof *about);
    about->type = types[place];
    about->device = place == ON_DEVICE ? device_of_address(at) : place == PINNED ? current_device() : -2;
    about->devicePointer = place == PAGEABLE ? NULL : (void *)at;
    about->hostPointer = place == PINNED ? (void *)at : NULL;
    return cudaSuccess;
}

/* ---- the driver: memory behind ranges of addresses, for segments that grow ---- */

int cuMemAddressReserve(unsigned long long *at, size_t size, size_t alignment, unsigned long long wanted,
                        unsigned long long flags) {
    pthread_mutex_lock(&mutex);
    *at = (unsigned long long)addresses(current_device(), size);
    pthread_mutex_unlock(&mutex);
    return 0;
}
struct location { int kind, number; };
struct about_memory { int type, handle_types; struct location location; }; /* CUmemAllocationProp begins so */
int cuMemCreate(unsigned long long *memory, size_t size, const struct about_memory *about, unsigned long long flags) {
    int device = about->location.number;
    if (!take_bytes(card_of(device), size)) return DRIVER_OUT_OF_MEMORY;
    struct segment *made = malloc(sizeof *made);
    *made = (struct segment){NULL, size, device};
    *memory = (unsigned long long)made;
    return 0;
}
int cuMemRelease(unsigned long long memory) {
    struct segment *gone = (struct segment *)memory;
    return_bytes(card_of(gone->device), gone->size);
    free(gone);
    return 0;
}
int cuMemUnmap(unsigned long long at, size_t size) {
    madvise((void *)at, size, MADV_DONTNEED);
    return 0;
}
int cuMemGetAllocationGranularity(size_t *size, const void *about, int option) {
    *size = PAGE;
    return 0;
}
