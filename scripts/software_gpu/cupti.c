/* CUPTI's activity and callback interfaces, as far as kineto and its like ask. Listeners hear of calls
 * when they end, not when they begin.
 *
 * Calls are written down as they return; work on the device only when somebody flushes, or when
 * much of it has ended: late, stream after stream, as the real one delivers its device buffers.
 *
 * Keys of the model's file, before the first [card], plant what goes wrong:
 *
 *     cupti_refuses = 1         no permission: subscribing and the device's records fail
 *     cupti_drops_first = 100   records of the device that are lost at each start of a window
 *     cupti_drops_after = 100   all after so many are lost, as where no buffer is left
 *     cupti_drops_every = 10    each tenth is lost
 */
#define _GNU_SOURCE
#include "software_gpu.h"
#include "callback_names.h" /* made of the headers by library.py */
#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_KINDS 64
#define MOST_CALLBACKS 2048
#define MOST_EXTERNAL_KINDS 8
#define DEEPEST 256
#define DEVICE_BUFFER 16384 /* records of the device that wait before they are written down */
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct Buffer { uint8_t *data; size_t size, used; } Buffer;
enum domain { DRIVER_API, RUNTIME_API };
typedef struct { uint64_t ids[DEEPEST]; int depth; } External;
typedef struct { uint64_t ours, theirs; } ClockPair;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc clock_of_user;
static ClockPair first_pair;
static uint8_t enabled[MOST_KINDS], not_recorded[2][MOST_CALLBACKS];
static uint8_t listened[2][MOST_CALLBACKS];
static CUpti_CallbackFunc listener;
static void *listener_data;
static CUpti_ActivityThreadIdType thread_id_type;
static Buffer filling, full[1024];
static size_t num_full;
static struct activity *pending;
static size_t num_pending, pending_room;
static size_t num_dropped, num_since_start;

static __thread External external[MOST_EXTERNAL_KINDS];
static __thread CUptiResult last_error;

/* ---- what goes wrong ---- */

static CUptiResult failed(CUptiResult code) { return last_error = code; }
static int is_refused(void) { return machine_number("cupti_refuses", 0) != 0; }
/* The place of a record since the window's start says whether it is lost. */
static int is_lost(void) {
    uint64_t place = num_since_start++;
    uint64_t after = machine_number("cupti_drops_after", 0), every = machine_number("cupti_drops_every", 0);
    return place < machine_number("cupti_drops_first", 0) || (after && place >= after) ||
           (every && place % every == 0);
}

/* ---- times: the device's are those of CLOCK_MONOTONIC, the answers those of whoever listens ---- */

static uint64_t read_clock(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
static uint64_t user_now(void) {
    return clock_of_user ? clock_of_user() : read_clock(CLOCK_REALTIME);
}
/* Both clocks at one moment: of several pairs that whose reading took least. */
static ClockPair read_pair(void) {
    ClockPair best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t before = (uint64_t)now_ns(), theirs = user_now(), after = (uint64_t)now_ns();
        if (after - before < least) {
            least = after - before;
            best = (ClockPair){before + (after - before) / 2, theirs};
        }
    }
    return best;
}
static uint64_t in_their_clock(uint64_t ns, ClockPair now) {
    double rate = 1;
    if (clock_of_user && now.ours > first_pair.ours)
        rate = (double)(now.theirs - first_pair.theirs) / (double)(now.ours - first_pair.ours);
    return now.theirs + (int64_t)((double)((int64_t)ns - (int64_t)now.ours) * rate);
}

/* ---- buffers: those of whoever listens ---- */

static size_t size_of(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT: return sizeof(CUpti_ActivityCudaEvent2);
    default: return 0;
    }
}
static int is_wanted(CUpti_ActivityKind kind) { return enabled[kind] && request; }
static void write_down(const void *record);
static void overhead(CUpti_ActivityOverheadKind kind, uint64_t start) {
    CUpti_ActivityOverhead3 record = {
        .kind = CUPTI_ACTIVITY_KIND_OVERHEAD, .overheadKind = kind,
        .objectKind = CUPTI_ACTIVITY_OBJECT_PROCESS, .start = start, .end = user_now()};
    record.objectId.pt.processId = getpid();
    if (is_wanted(CUPTI_ACTIVITY_KIND_OVERHEAD)) write_down(&record);
}
/* Under the lock. */
static void write_down(const void *record) {
    size_t size = size_of(((const CUpti_Activity *)record)->kind);
    if (filling.data && filling.used + size > filling.size) {
        if (num_full == COUNT(full)) { num_dropped++; return; }
        full[num_full++] = filling;
        filling = (Buffer){0};
    }
    if (!filling.data) {
        size_t most = 0;
        uint64_t start = user_now();
        request(&filling.data, &filling.size, &most);
        if (!filling.data || filling.size < size) {
            filling = (Buffer){0};
            num_dropped++;
            return;
        }
        overhead(CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE, start);
    }
    memcpy(filling.data + filling.used, record, size);
    filling.used += size;
}

/* ---- work of the device ---- */

static CUpti_ActivityMemoryKind memory_kind(enum place place) {
    return place == PAGEABLE ? CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE
           : place == PINNED ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED
                             : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
}
static void write_kernel(const struct activity *what, uint64_t start, uint64_t end) {
    const struct kernel *kernel = &what->kernel;
    CUpti_ActivityKernel10 record = {
        .kind = enabled[CUPTI_ACTIVITY_KIND_KERNEL] ? CUPTI_ACTIVITY_KIND_KERNEL
                                                    : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        .registersPerThread = kernel->registers, .start = start, .end = end, .completed = end,
        .deviceId = what->device, .contextId = what->context, .streamId = what->stream,
        .gridX = kernel->grid[0], .gridY = kernel->grid[1], .gridZ = kernel->grid[2],
        .blockX = kernel->block[0], .blockY = kernel->block[1], .blockZ = kernel->block[2],
        .staticSharedMemory = kernel->shared_static, .dynamicSharedMemory = kernel->shared_dynamic,
        .sharedMemoryExecuted = kernel->shared_static + kernel->shared_dynamic,
        .correlationId = what->correlation, .gridId = what->correlation, .name = what->name,
        .graphId = what->graph, .graphNodeId = what->node,
        .channelID = what->stream, .channelType = CUPTI_CHANNEL_TYPE_COMPUTE};
    write_down(&record);
}
static void write_copy(const struct activity *what, uint64_t start, uint64_t end) {
    static const CUpti_ActivityMemcpyKind kinds[2][2] = {
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD},
        {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD}};
    CUpti_ActivityMemcpy6 record = {
        .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
        .copyKind = kinds[what->from == ON_DEVICE][what->to == ON_DEVICE],
        .srcKind = memory_kind(what->from), .dstKind = memory_kind(what->to),
        .flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, .bytes = what->bytes, .start = start, .end = end,
        .deviceId = what->device, .contextId = what->context, .streamId = what->stream,
        .correlationId = what->correlation, .graphId = what->graph, .graphNodeId = what->node,
        .channelID = what->stream, .channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY, .copyCount = 1};
    write_down(&record);
}
static void write_peer_copy(const struct activity *what, uint64_t start, uint64_t end) {
    CUpti_ActivityMemcpyPtoP4 record = {
        .kind = CUPTI_ACTIVITY_KIND_MEMCPY2, .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP,
        .srcKind = memory_kind(ON_DEVICE), .dstKind = memory_kind(ON_DEVICE),
        .flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, .bytes = what->bytes, .start = start, .end = end,
        .deviceId = what->device, .contextId = what->context, .streamId = what->stream,
        .srcDeviceId = what->peer, .srcContextId = what->peer + 1,
        .dstDeviceId = what->device, .dstContextId = what->context,
        .correlationId = what->correlation, .graphId = what->graph, .graphNodeId = what->node,
        .channelID = what->stream, .channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY};
    write_down(&record);
}
static void write_fill(const struct activity *what, uint64_t start, uint64_t end) {
    CUpti_ActivityMemset4 record = {
        .kind = CUPTI_ACTIVITY_KIND_MEMSET, .value = what->value, .bytes = what->bytes,
        .start = start, .end = end, .deviceId = what->device, .contextId = what->context,
        .streamId = what->stream, .correlationId = what->correlation,
        .flags = CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC, .memoryKind = memory_kind(ON_DEVICE),
        .graphId = what->graph, .graphNodeId = what->node,
        .channelID = what->stream, .channelType = CUPTI_CHANNEL_TYPE_COMPUTE};
    write_down(&record);
}
/* The flag that asks for records of copies asks for those between devices too. */
static int is_work_wanted(const struct activity *what) {
    switch (what->kind) {
    case KERNEL_ACTIVITY:
        return is_wanted(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) || is_wanted(CUPTI_ACTIVITY_KIND_KERNEL);
    case COPY_ACTIVITY:
        return is_wanted(CUPTI_ACTIVITY_KIND_MEMCPY) ||
               (what->peer >= 0 && is_wanted(CUPTI_ACTIVITY_KIND_MEMCPY2));
    default: return is_wanted(CUPTI_ACTIVITY_KIND_MEMSET);
    }
}
static void write_work(const struct activity *what, ClockPair now) {
    int is_over = (uint64_t)what->end_ns <= now.ours;
    uint64_t start = is_over ? in_their_clock(what->start_ns, now) : 0;
    uint64_t end = is_over ? in_their_clock(what->end_ns, now) : 0;
    if (what->kind == KERNEL_ACTIVITY) write_kernel(what, start, end);
    else if (what->kind == FILL_ACTIVITY) write_fill(what, start, end);
    else if (what->peer >= 0) write_peer_copy(what, start, end);
    else write_copy(what, start, end);
}
static int by_stream(const void *one, const void *other) {
    const struct activity *a = one, *b = other;
    if (a->device != b->device) return a->device < b->device ? 1 : -1;
    if (a->stream != b->stream) return a->stream < b->stream ? 1 : -1;
    return (a->end_ns > b->end_ns) - (a->end_ns < b->end_ns);
}
/* Under the lock: what has ended is written down, stream after stream; of what has not, if it must
 * be, no times are known. */
static void collect(int whole) {
    size_t num_left = 0, num_ended = 0;
    ClockPair now = read_pair();
    struct activity *ended = malloc((num_pending + 1) * sizeof *ended);
    for (size_t i = 0; i < num_pending; i++)
        if ((uint64_t)pending[i].end_ns <= now.ours || whole) ended[num_ended++] = pending[i];
        else pending[num_left++] = pending[i];
    num_pending = num_left;
    qsort(ended, num_ended, sizeof *ended, by_stream);
    for (size_t i = 0; i < num_ended; i++) write_work(&ended[i], now);
    free(ended);
}
/* Under the lock. */
static void keep_work(const struct activity *what) {
    if (!is_work_wanted(what)) return;
    if (is_lost()) {
        num_dropped++;
        return;
    }
    if (num_pending == pending_room) {
        pending_room = pending_room ? 2 * pending_room : 1024;
        pending = realloc(pending, pending_room * sizeof *pending);
    }
    pending[num_pending++] = *what;
    if (num_pending % DEVICE_BUFFER == 0) collect(0);
}

/* ---- calls and waits ---- */

static uint32_t thread_id(void) {
    return thread_id_type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? (uint32_t)gettid()
                                                                  : (uint32_t)pthread_self();
}
static enum domain domain_of(const struct activity *call) {
    return call->is_driver_call ? DRIVER_API : RUNTIME_API;
}
static const char *name_of(enum domain domain, uint32_t cbid) {
    if (domain == RUNTIME_API) return cbid < COUNT(runtime_names) ? runtime_names[cbid] : NULL;
    return cbid < COUNT(driver_names) ? driver_names[cbid] : NULL;
}
/* The number of a call: names of the runtime carry the version in which they came, of which the first
 * is meant. 0: CUPTI does not know it. */
static uint32_t number_of(enum domain domain, const char *call) {
    size_t length = strlen(call), num = domain == RUNTIME_API ? COUNT(runtime_names) : COUNT(driver_names);
    for (uint32_t cbid = 1; cbid < num; cbid++) {
        const char *name = name_of(domain, cbid);
        if (name && !strncmp(name, call, length) && (!name[length] || !strncmp(name + length, "_v", 2)))
            return cbid;
    }
    return 0;
}
/* Under the lock. */
static uint32_t cbid_of(const struct activity *call) {
    static struct { const char *name; uint32_t cbid; } known[2][MOST_CALLBACKS];
    enum domain domain = domain_of(call);
    size_t place = ((uintptr_t)call->name >> 1) % MOST_CALLBACKS; /* names are constants: their places tell them apart */
    if (known[domain][place].name != call->name) {
        known[domain][place].cbid = number_of(domain, call->name);
        known[domain][place].name = call->name;
    }
    return known[domain][place].cbid;
}
static void tell_listener(const struct activity *call, uint32_t cbid) {
    static __thread uint64_t data_of_listener;
    enum domain domain = domain_of(call);
    CUpti_CallbackFunc function = listener;
    if (!function || !listened[domain][cbid]) return;
    int returned = call->result;
    CUpti_CallbackData about = {
        .callbackSite = CUPTI_API_EXIT, .functionName = call->name, .functionReturnValue = &returned,
        .contextUid = call->context, .correlationData = &data_of_listener,
        .correlationId = call->correlation};
    function(listener_data,
             domain == RUNTIME_API ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, cbid, &about);
}
static void write_external(uint32_t correlation) {
    for (uint32_t kind = 0; kind < MOST_EXTERNAL_KINDS; kind++) {
        const External *stack = &external[kind];
        if (!stack->depth) continue;
        CUpti_ActivityExternalCorrelation record = {
            .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, .externalKind = kind,
            .externalId = stack->ids[stack->depth - 1], .correlationId = correlation};
        write_down(&record);
    }
}
/* Under the lock. */
static void write_call(const struct activity *call, uint32_t cbid) {
    enum domain domain = domain_of(call);
    CUpti_ActivityKind kind = domain == RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
    if (!is_wanted(kind) || not_recorded[domain][cbid]) return;
    if (is_wanted(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) write_external(call->correlation);
    ClockPair now = read_pair();
    CUpti_ActivityAPI record = {
        .kind = kind, .cbid = cbid, .start = in_their_clock(call->start_ns, now),
        .end = in_their_clock(call->end_ns, now), .processId = getpid(), .threadId = thread_id(),
        .correlationId = call->correlation, .returnValue = call->result};
    write_down(&record);
}
/* Under the lock. */
static void write_wait(const struct activity *wait) {
    static const CUpti_ActivitySynchronizationType types[] = {
        [WAIT_EVENT] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE,
        [WAIT_STREAM_FOR_EVENT] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT,
        [WAIT_STREAM] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
        [WAIT_DEVICE] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE};
    if (!is_wanted(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
    ClockPair now = read_pair();
    int names_stream = wait->waited_for == WAIT_STREAM || wait->waited_for == WAIT_STREAM_FOR_EVENT;
    CUpti_ActivitySynchronization2 record = {
        .kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, .type = types[wait->waited_for],
        .start = in_their_clock(wait->start_ns, now), .end = in_their_clock(wait->end_ns, now),
        .correlationId = wait->correlation, .contextId = wait->context,
        .streamId = names_stream ? wait->stream : (uint32_t)CUPTI_SYNCHRONIZATION_INVALID_VALUE,
        .cudaEventId = wait->event ? wait->event : (uint32_t)CUPTI_SYNCHRONIZATION_INVALID_VALUE};
    write_down(&record);
}
/* Under the lock. */
static void write_event(const struct activity *event) {
    if (!is_wanted(CUPTI_ACTIVITY_KIND_CUDA_EVENT)) return;
    CUpti_ActivityCudaEvent2 record = {
        .kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT, .correlationId = event->correlation,
        .contextId = event->context, .streamId = event->stream, .eventId = event->event,
        .deviceId = event->device, .deviceTimestamp = in_their_clock(event->end_ns, read_pair())};
    write_down(&record);
}
static void hear(const struct activity *what) {
    pthread_mutex_lock(&lock);
    uint32_t cbid = what->kind == CALL_ACTIVITY ? cbid_of(what) : 0;
    if (what->kind == CALL_ACTIVITY) write_call(what, cbid);
    else if (what->kind == WAIT_ACTIVITY) write_wait(what);
    else if (what->kind == EVENT_ACTIVITY) write_event(what);
    else keep_work(what);
    pthread_mutex_unlock(&lock);
    if (what->kind == CALL_ACTIVITY) tell_listener(what, cbid);
}

/* ---- the activity interface ---- */

static void note_whether_active(void) {
    int any = listener != NULL;
    for (int i = 0; i < MOST_KINDS; i++) any |= enabled[i];
    record_activity = any ? hear : NULL;
}
static int needs_permission(CUpti_ActivityKind kind) {
    return kind == CUPTI_ACTIVITY_KIND_KERNEL || kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
           kind == CUPTI_ACTIVITY_KIND_MEMCPY || kind == CUPTI_ACTIVITY_KIND_MEMCPY2 ||
           kind == CUPTI_ACTIVITY_KIND_MEMSET;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (kind >= MOST_KINDS || !size_of(kind)) return failed(CUPTI_ERROR_INVALID_KIND);
    if (needs_permission(kind) && is_refused())
        return failed(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    pthread_mutex_lock(&lock);
    if (!enabled[kind] && needs_permission(kind)) num_since_start = 0;
    enabled[kind] = 1;
    note_whether_active();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    if (kind >= MOST_KINDS || !size_of(kind)) return failed(CUPTI_ERROR_INVALID_KIND);
    pthread_mutex_lock(&lock);
    enabled[kind] = 0;
    note_whether_active();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
    return cuptiActivityEnable(kind);
}
CUptiResult cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind) {
    return cuptiActivityDisable(kind);
}
static CUptiResult record_call(enum domain domain, CUpti_CallbackId cbid, uint8_t enable) {
    if (cbid >= MOST_CALLBACKS || !name_of(domain, cbid))
        return failed(CUPTI_ERROR_INVALID_PARAMETER);
    not_recorded[domain][cbid] = !enable;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
    return record_call(RUNTIME_API, cbid, enable);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
    return record_call(DRIVER_API, cbid, enable);
}
CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc asked,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
    if (!asked || !completed) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    request = asked;
    complete = completed;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc read) {
    if (!read) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    pthread_mutex_lock(&lock);
    if (clock_of_user != read) {
        clock_of_user = read;
        first_pair = read_pair();
    }
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
/* Buffers go back from the last to the first, none while the lock is held. */
CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    static Buffer ready[COUNT(full) + 1];
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    if (!complete) return failed(CUPTI_ERROR_INVALID_OPERATION);
    pthread_mutex_lock(&one_at_a_time);
    pthread_mutex_lock(&lock);
    uint64_t start = user_now();
    size_t num_ready = 0;
    if (request) {
        collect(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        if (filling.data) overhead(CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, start);
    }
    if (filling.data) ready[num_ready++] = filling;
    while (num_full) ready[num_ready++] = full[--num_full];
    filling = (Buffer){0};
    num_since_start = 0;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < num_ready; i++)
        complete(NULL, 0, ready[i].data, ready[i].size, ready[i].used);
    pthread_mutex_unlock(&one_at_a_time);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlush(CUcontext context, uint32_t stream, uint32_t flag) {
    return cuptiActivityFlushAll(flag);
}
CUptiResult cuptiActivityFlushPeriod(uint32_t ms) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    if (!buffer || !record) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : buffer;
    if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    CUpti_Activity *found = (CUpti_Activity *)next;
    if (!size_of(found->kind)) return failed(CUPTI_ERROR_INVALID_KIND);
    *record = found;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    pthread_mutex_lock(&lock);
    *dropped = num_dropped;
    num_dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute name, size_t *size, void *value) {
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    if (kind >= MOST_EXTERNAL_KINDS) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    External *stack = &external[kind];
    if (stack->depth == DEEPEST) return failed(CUPTI_ERROR_OUT_OF_MEMORY);
    stack->ids[stack->depth++] = id;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    if (kind >= MOST_EXTERNAL_KINDS) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    External *stack = &external[kind];
    if (!stack->depth) return failed(CUPTI_ERROR_QUEUE_EMPTY);
    uint64_t id = stack->ids[--stack->depth];
    if (last) *last = id;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
    thread_id_type = type;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t *time) {
    *time = user_now();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetLastError(void) {
    CUptiResult code = last_error;
    last_error = CUPTI_SUCCESS;
    return code;
}
CUptiResult cuptiGetResultString(CUptiResult code, const char **text) {
    static const char *const words[] = {
        [CUPTI_SUCCESS] = "CUPTI_SUCCESS",
        [CUPTI_ERROR_INVALID_PARAMETER] = "CUPTI_ERROR_INVALID_PARAMETER",
        [CUPTI_ERROR_INVALID_OPERATION] = "CUPTI_ERROR_INVALID_OPERATION",
        [CUPTI_ERROR_OUT_OF_MEMORY] = "CUPTI_ERROR_OUT_OF_MEMORY",
        [CUPTI_ERROR_MAX_LIMIT_REACHED] = "CUPTI_ERROR_MAX_LIMIT_REACHED",
        [CUPTI_ERROR_QUEUE_EMPTY] = "CUPTI_ERROR_QUEUE_EMPTY",
        [CUPTI_ERROR_INVALID_KIND] = "CUPTI_ERROR_INVALID_KIND",
        [CUPTI_ERROR_INSUFFICIENT_PRIVILEGES] = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        [CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED] =
            "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"};
    *text = (size_t)code < COUNT(words) && words[code] ? words[code] : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

/* ---- the callback interface ---- */

static int own_domain(CUpti_CallbackDomain domain) {
    return domain == CUPTI_CB_DOMAIN_RUNTIME_API  ? RUNTIME_API
           : domain == CUPTI_CB_DOMAIN_DRIVER_API ? DRIVER_API
                                                  : -1;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data) {
    if (!subscriber || !callback) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    if (is_refused()) return failed(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    if (listener) return failed(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    listener = callback;
    listener_data = data;
    *subscriber = (CUpti_SubscriberHandle)&listener;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
    listener = NULL;
    memset(listened, 0, sizeof listened);
    note_whether_active();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
    int own = own_domain(domain);
    if (own >= 0 && cbid >= MOST_CALLBACKS) return failed(CUPTI_ERROR_INVALID_PARAMETER);
    if (own >= 0) listened[own][cbid] = enable != 0;
    note_whether_active();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                              CUpti_CallbackDomain domain) {
    int own = own_domain(domain);
    if (own >= 0) memset(listened[own], enable != 0, sizeof listened[own]);
    note_whether_active();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name) {
    int own = own_domain(domain);
    *name = own >= 0 ? name_of(own, cbid) : NULL;
    return *name ? CUPTI_SUCCESS : failed(CUPTI_ERROR_INVALID_PARAMETER);
}
CUptiResult cuptiFinalize(void) {
    pthread_mutex_lock(&lock);
    memset(enabled, 0, sizeof enabled);
    memset(listened, 0, sizeof listened);
    listener = NULL;
    clock_of_user = NULL;
    num_pending = 0;
    note_whether_active();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
