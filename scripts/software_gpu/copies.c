/* Copies and fills. Small ones are really made, and all to the host; of others only the time is kept. */
#define _GNU_SOURCE
#include "memory.h"
#include "streams.h"
#include <math.h>
#include <string.h>

#define STAGED ((size_t)64 << 10) /* so much from pageable memory is on its way when the call returns */

static int64_t price(int device, const struct work *copy) {
    const struct model *model = model_of(card_of(device));
    int is_pageable = copy->from == PAGEABLE || copy->to == PAGEABLE;
    double peer = copy->peer >= 0 ? fmin(model->peer, model_of(card_of(copy->peer))->peer) : 0;
    double rate = peer ? peer : is_pageable ? model->pageable : model->pinned;
    if (copy->from == ON_DEVICE && copy->to == ON_DEVICE && copy->peer < 0) rate = model->bandwidth / 2; /* read and written */
    return model->copy_ns + llround(1e9 * copy->bytes / rate);
}
static int device_touched(cudaStream_t stream, const void *to, const void *from) {
    int device = device_of_address(to);
    if (device < 0) device = device_of_address(from);
    return device < 0 ? device_of_stream(stream) : device;
}
static void move(void *to, const void *from, size_t size) {
    if (device_of_address(to) < 0 || size <= model_of(0)->copied_bytes) memmove(to, from, size);
}
/* The rules by which CUDA's copies wait: those to or from pageable memory do, up to their end, but
 * small ones to the device; without Async all others do too, but those within a device. */
static cudaError_t copy(void *to, const void *from, size_t size, cudaStream_t stream, int is_async) {
    struct work work = {.kind = COPY_ACTIVITY, .bytes = size, .from = place_of(from), .to = place_of(to), .peer = -1};
    if (!size) return cudaSuccess;
    if (work.from != ON_DEVICE && work.to != ON_DEVICE) {
        wait_for_stream(stream);
        memmove(to, from, size);
        return cudaSuccess;
    }
    int is_inner = work.from == ON_DEVICE && work.to == ON_DEVICE;
    if (is_inner && device_of_address(to) != device_of_address(from)) work.peer = device_of_address(from);
    work.kernel.engine = work.peer >= 0 ? PEER : is_inner ? COMPUTE : work.to == ON_DEVICE ? TO_DEVICE : FROM_DEVICE;
    if (is_inner && work.peer < 0) work.kernel.grid[0] = work.kernel.grid[1] = work.kernel.grid[2] = 1;
    work.kernel.duration_ns = price(device_touched(stream, to, from), &work);
    int64_t end_ns;
    cudaError_t error = enqueue(stream, &work, &end_ns);
    int is_staged = work.from == PAGEABLE && size <= STAGED;
    int waits = work.from == PAGEABLE ? !is_staged : work.to == PAGEABLE || (!is_async && !is_inner);
    if (waits) {
        wait_until(end_ns);
        if (end_ns) host_waited(end_ns);
    }
    move(to, from, size);
    return failed(error);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    CALL("cudaMemcpy");
    return copy(to, from, size, NULL, 0);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    CALL("cudaMemcpyAsync");
    return copy(to, from, size, stream, 1);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int source, size_t size, cudaStream_t stream) {
    CALL("cudaMemcpyPeerAsync");
    return copy(to, from, size, stream, 1);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    CALL("cudaMemcpy2DAsync");
    if (to_pitch == width && from_pitch == width) return copy(to, from, width * height, stream, 1);
    cudaError_t error = copy(to, from, width, stream, 1);
    for (size_t i = 1; i < height; i++) move((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return error;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    CALL("cudaMemsetAsync");
    struct work work = {.kind = FILL_ACTIVITY, .bytes = size, .value = value, .from = ON_DEVICE, .to = place_of(to), .peer = -1};
    work.kernel = (struct kernel){.grid = {1, 1, 1}, .engine = COMPUTE};
    work.kernel.duration_ns = price_bytes(device_touched(stream, to, to), size);

    if (size <= model_of(0)->copied_bytes) memset(to, value, size);
    return failed(enqueue(stream, &work, NULL));
}
cudaError_t cudaMemset(void *to, int value, size_t size) { return cudaMemsetAsync(to, value, size, NULL); }
