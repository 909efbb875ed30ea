/* Streams are queues in time: what is put into one is known at once to start and to end. */
#define _GNU_SOURCE
#include "streams.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct stream defaults[MOST_CARDS], *created;
static uint32_t num_streams = 7, num_events;
/* Where launches take the host a stated time, it lives on a clock of its own: it may lag behind that
 * for a while, as where another process took its core, and makes up for it. */
static int64_t host_ns;
static __thread cudaError_t last_error;

void lock_streams(void) { pthread_mutex_lock(&mutex); }
void unlock_streams(void) { pthread_mutex_unlock(&mutex); }

/* ---- errors, calls and records ---- */

void (*record_activity)(const struct activity *activity);
static __thread struct call *current_call;
static uint32_t num_calls;

cudaError_t failed(cudaError_t error) {
    if (error) last_error = error;
    for (struct call *call = current_call; call && error; call = call->outer) call->result = error;
    return error;
}
cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
uint32_t next_correlation(void) { return __atomic_add_fetch(&num_calls, 1, __ATOMIC_RELAXED); }
uint32_t current_correlation(void) { return current_call ? current_call->correlation : 0; }
struct call *begin_call(struct call *call) {
    call->outer = current_call;
    if (call->outer) {
        call->correlation = call->outer->correlation;
        current_call = call;
        return call;
    }
    call->correlation = next_correlation();
    if (record_activity) call->start_ns = now_ns();
    current_call = call;
    return call;
}
static void record(struct activity *activity) {
    activity->process = getpid();
    activity->thread = syscall(SYS_gettid);
    activity->correlation = current_correlation();
    record_activity(activity);
}
void end_call(struct call *call) {
    if (!call->outer && record_activity && call->start_ns) {
        struct activity activity = {
            .kind = CALL_ACTIVITY, .name = call->name, .queued_ns = call->start_ns, .start_ns = call->start_ns,
            .end_ns = now_ns(), .is_driver_call = call->is_driver_call, .result = call->result,
            .device = current_device(), .peer = -1,
        };
        record(&activity);
    }
    current_call = call->outer;
}
static void record_wait(enum waited_for what, const struct stream *stream, uint32_t event, int64_t start_ns) {
    if (!record_activity) return;
    struct activity activity = {
        .kind = WAIT_ACTIVITY, .waited_for = what, .start_ns = start_ns, .queued_ns = start_ns, .end_ns = now_ns(),
        .device = stream ? stream->device : current_device(), .stream = stream ? stream->number : 0, .event = event,
        .peer = -1,
    };
    activity.context = activity.device + 1;
    record(&activity);
}
void record_work(const struct stream *stream, const struct work *work, int device, int64_t queued_ns,
                 int64_t start_ns, int64_t end_ns, uint32_t graph, uint32_t node) {
    if (!record_activity) return;
    struct activity activity = {
        .kind = work->kind, .name = work->kernel.name, .queued_ns = queued_ns, .start_ns = start_ns,
        .end_ns = end_ns, .device = device, .context = device + 1, .stream = stream->number,
        .kernel = work->kernel, .bytes = work->bytes, .value = work->value, .from = work->from, .to = work->to,
        .peer = work->peer, .graph = graph, .node = node,
    };
    record(&activity);
}

/* ---- devices of threads ---- */

static __thread int device;
int current_device(void) { return device; }
void set_current_device(int number) { device = number; }

/* ---- streams ---- */

static void prepare(struct stream *stream, int number) {
    stream->room = model_of(card_of(number))->queue;
    if (stream->room < 1) stream->room = 1;
    stream->device = number;
    stream->ends_ns = calloc(stream->room, sizeof *stream->ends_ns);
}
struct stream *stream_of(cudaStream_t handle) {
    if ((uintptr_t)handle > 2) return (struct stream *)handle;
    struct stream *own = &defaults[device];
    if (!own->ends_ns) {
        prepare(own, device);
        own->number = 7;
    }
    return own;
}
struct stream *first_stream(void) { return created; }
int device_of_stream(cudaStream_t handle) { return (uintptr_t)handle > 2 ? ((struct stream *)handle)->device : device; }

/* How the host's clock stands at the start of a launch; how much it may lag is a matter of a few. */
static int64_t launched(int number) {
    const int few = 10;
    int64_t launch_ns = model_of(card_of(number))->launch_ns, now = now_ns();
    if (!launch_ns) return now;
    if (host_ns < now - few * launch_ns) host_ns = now - launch_ns; /* nothing to make up for: it did other things */
    return host_ns += launch_ns;
}
void host_waited(int64_t end_ns) {
    lock_streams();
    if (host_ns < end_ns) host_ns = end_ns;
    unlock_streams();
}
/* A call begins before what it launches, on a host whose clock lags behind too. */
static void began_before(int64_t then_ns) {
    struct call *call = current_call;
    while (call && call->outer) call = call->outer;
    if (call && call->start_ns >= then_ns) call->start_ns = then_ns - 1000;
}
int64_t place_in(struct stream *stream) {
    int64_t reached_ns = launched(stream->device);
    began_before(reached_ns);
    for (;;) {
        int64_t now = now_ns();
        while (stream->count && stream->ends_ns[stream->first] <= (now > reached_ns ? now : reached_ns)) {
            stream->first = (stream->first + 1) % stream->room;
            stream->count--;
        }
        int64_t until_ns = reached_ns;
        if (stream->count == stream->room && until_ns < stream->ends_ns[stream->first])
            until_ns = stream->ends_ns[stream->first];
        if (now < until_ns) {
            unlock_streams();
            wait_until(until_ns);
            lock_streams();
            if (host_ns < until_ns) host_ns = until_ns;
            if (reached_ns < until_ns) reached_ns = until_ns;
            continue;
        }
        if (stream->count < stream->room) return reached_ns;
    }
}
void took_place(struct stream *stream, int64_t end_ns) {
    stream->tail_ns = end_ns;
    stream->ends_ns[(stream->first + stream->count++) % stream->room] = end_ns;
}

static double share_of_sms(int number, const struct kernel *kernel) {
    double blocks = (double)kernel->grid[0] * kernel->grid[1] * kernel->grid[2];
    double share = blocks / model_of(card_of(number))->sms;
    return share < 1 ? share : 1;
}
/* Of the warps that the card's SMs hold, how many a kernel keeps there while it has blocks for all. */
static double share_of_warps(int number, const struct kernel *kernel) {
    const struct model *model = model_of(card_of(number));
    double blocks = (double)kernel->grid[0] * kernel->grid[1] * kernel->grid[2] / model->sms;
    int threads = kernel->block[0] * kernel->block[1] * kernel->block[2];
    size_t shared = kernel->shared_static + kernel->shared_dynamic;
    int most = resident_blocks(number, threads, kernel->registers, shared);
    return (blocks < most ? blocks : most) * threads / model->threads_per_sm;
}
void run_node(struct stream *stream, const struct work *work, int number, int64_t queued_ns, int64_t ready_ns,
              uint32_t graph, uint32_t node, int64_t *start_ns, int64_t *end_ns) {
    int card = card_of(number);
    int64_t duration_ns = work->kernel.duration_ns;
    const struct phase *phase = work->kind == COPY_ACTIVITY || work->kernel.engine == EXCHANGE ? NULL : phase_at(card, ready_ns);
    if (phase) duration_ns *= phase->slower;
    *start_ns = reserve_engine(card, work->kernel.engine, ready_ns, duration_ns, share_of_sms(number, &work->kernel),
                               share_of_warps(number, &work->kernel), work->bytes);
    *end_ns = *start_ns + duration_ns;
    record_work(stream, work, number, queued_ns, *start_ns, *end_ns, graph, node);
}
cudaError_t enqueue(cudaStream_t handle, const struct work *work, int64_t *end) {
    int64_t start_ns, end_ns;
    lock_streams();
    struct stream *stream = stream_of(handle);
    if (stream->capturing) {
        capture(stream->capturing, stream, work);
        unlock_streams();
        if (end) *end = 0;
        return cudaSuccess;
    }
    int64_t queued_ns = place_in(stream);
    int64_t ready_ns = work->kernel.since_ns ? work->kernel.since_ns : queued_ns;
    if (ready_ns < stream->tail_ns) ready_ns = stream->tail_ns;
    run_node(stream, work, stream->device, queued_ns, ready_ns, 0, 0, &start_ns, &end_ns);
    took_place(stream, end_ns);
    unlock_streams();
    if (end) *end = end_ns;
    return cudaSuccess;
}
cudaError_t enqueue_kernel(cudaStream_t handle, const struct kernel *kernel) {
    CALL("cudaLaunchKernel");
    struct work work = {.kind = KERNEL_ACTIVITY, .kernel = *kernel, .peer = -1};
    if (!kernel->duration_ns)
        work.kernel.duration_ns = price_threads(device_of_stream(handle), kernel->grid, kernel->block);
    return enqueue(handle, &work, NULL);
}
int64_t end_of_stream(cudaStream_t handle) {
    lock_streams();
    struct stream *stream = stream_of(handle);
    int64_t end_ns = stream->capturing ? 0 : stream->tail_ns;
    unlock_streams();
    return end_ns;
}
void wait_for_stream(cudaStream_t handle) {
    int64_t end_ns = end_of_stream(handle);
    wait_until(end_ns);
    host_waited(end_ns);
}
static int64_t end_of_device(int number) {
    lock_streams();
    int64_t end_ns = defaults[number].tail_ns;
    for (struct stream *stream = created; stream; stream = stream->next)
        if (stream->device == number && !stream->capturing && stream->tail_ns > end_ns) end_ns = stream->tail_ns;
    unlock_streams();
    return end_ns;
}
void wait_for_device(int number) {
    int64_t end_ns = end_of_device(number);
    wait_until(end_ns);
    host_waited(end_ns);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority) {
    struct stream *stream = calloc(1, sizeof *stream);
    prepare(stream, device);
    stream->priority = priority;
    lock_streams();
    stream->number = ++num_streams + 5;
    stream->next = created;
    created = stream;
    unlock_streams();
    *handle = (cudaStream_t)stream;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
    return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    lock_streams();
    for (struct stream **at = &created; *at; at = &(*at)->next)
        if (*at == (struct stream *)handle) {
            struct stream *gone = *at;
            *at = gone->next;
            free(gone->ends_ns);
            free(gone);
            break;
        }
    unlock_streams();
    return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    *priority = (uintptr_t)handle > 2 ? ((struct stream *)handle)->priority : 0;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    if (capture_forbids(handle)) return failed(cudaErrorStreamCaptureUnsupported);
    return now_ns() >= end_of_stream(handle) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    CALL("cudaStreamSynchronize");
    if (capture_forbids(handle)) return failed(cudaErrorStreamCaptureUnsupported);
    int64_t start_ns = now_ns();
    wait_for_stream(handle);
    record_wait(WAIT_STREAM, stream_of(handle), 0, start_ns);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    CALL("cudaDeviceSynchronize");
    if (capture_forbids(NULL)) return failed(cudaErrorStreamCaptureUnsupported);
    int64_t start_ns = now_ns();
    wait_for_device(device);
    record_wait(WAIT_DEVICE, NULL, 0, start_ns);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
    struct event *event = calloc(1, sizeof *event);
    event->number = __atomic_add_fetch(&num_events, 1, __ATOMIC_RELAXED);
    event->has_timing = !(flags & cudaEventDisableTiming);
    event->device = device;
    *handle = (cudaEvent_t)event;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *handle) { return cudaEventCreateWithFlags(handle, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    free(handle);
    return cudaSuccess;
}
/* Takes a place in the queue, but no launch of the host's. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t at, unsigned flags) {
    CALL("cudaEventRecord");
    struct event *event = (struct event *)handle;
    lock_streams();
    struct stream *stream = stream_of(at);
    if (stream->device != event->device && event->is_recorded) {
        unlock_streams();
        return failed(cudaErrorInvalidResourceHandle);
    }
    event->device = stream->device;
    event->is_recorded = 1;
    event->graph = number_of_graph(stream->capturing);
    event->time_ns = stream->tail_ns;
    if (!stream->capturing) {
        int64_t launch_ns = model_of(card_of(stream->device))->launch_ns;
        if (launch_ns) host_ns -= launch_ns;
        int64_t queued_ns = place_in(stream);
        event->time_ns = queued_ns > stream->tail_ns ? queued_ns : stream->tail_ns;
        took_place(stream, event->time_ns);
    }
    unlock_streams();
    if (record_activity && !event->graph) {
        struct activity activity = {
            .kind = EVENT_ACTIVITY, .start_ns = event->time_ns, .end_ns = event->time_ns, .queued_ns = now_ns(),
            .device = stream->device, .context = stream->device + 1, .stream = stream->number,
            .event = event->number, .peer = -1,
        };
        record(&activity);
    }
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    return cudaEventRecordWithFlags(handle, stream, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
    CALL("cudaEventQuery");
    struct event *event = (struct event *)handle;
    if (event->graph) return failed(cudaErrorCapturedEvent);
    return !event->is_recorded || now_ns() >= event->time_ns ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    CALL("cudaEventSynchronize");
    struct event *event = (struct event *)handle;
    if (event->graph) return failed(cudaErrorCapturedEvent);
    int64_t start_ns = now_ns();
    if (event->is_recorded) {
        int64_t end_ns = event->time_ns;
        wait_until(end_ns);
        host_waited(end_ns);
    }
    record_wait(WAIT_EVENT, NULL, event->number, start_ns);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    struct event *from = (struct event *)start, *to = (struct event *)end;
    if (!from->has_timing || !to->has_timing || !from->is_recorded || !to->is_recorded)
        return failed(cudaErrorInvalidResourceHandle);
    int64_t now = now_ns();
    if (now < from->time_ns || now < to->time_ns) return failed(cudaErrorNotReady);
    *ms = (to->time_ns - from->time_ns) / 1e6;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t awaited, unsigned flags) {
    CALL("cudaStreamWaitEvent");
    struct event *event = (struct event *)awaited;
    lock_streams();
    struct stream *stream = stream_of(handle);
    cudaError_t error = cudaSuccess;
    if (event->graph && !captured_now(event->graph)) {
        error = cudaErrorCapturedEvent;
    } else if (event->graph && !stream->capturing) { /* the stream joins the capture */
        stream->capturing = captured_now(event->graph);
        stream->tail_ns = event->time_ns;
    } else if (stream->capturing && event->is_recorded && event->graph != number_of_graph(stream->capturing)) {
        error = cudaErrorStreamCaptureIsolation;
    } else if (event->is_recorded && event->time_ns > stream->tail_ns) {
        stream->tail_ns = event->time_ns;
    }
    unlock_streams();
    record_wait(WAIT_STREAM_FOR_EVENT, stream, event->number, now_ns());
    return failed(error);
}

/* ---- functions of the host that a stream calls ---- */

struct host_call { int64_t then_ns; cudaHostFn_t function; cudaStreamCallback_t callback; cudaStream_t stream; void *data; };
static void *call_host(void *given) {
    struct host_call *call = given;
    wait_until(call->then_ns);
    if (call->function) call->function(call->data);
    else call->callback(call->stream, cudaSuccess, call->data);
    free(call);
    return NULL;
}
static cudaError_t call_later(struct host_call call) {
    struct host_call *kept = malloc(sizeof *kept);
    *kept = call;
    kept->then_ns = end_of_stream(call.stream);
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_host, kept)) return failed(cudaErrorUnknown);
    pthread_detach(thread);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    CALL("cudaLaunchHostFunc");
    return call_later((struct host_call){.function = function, .stream = stream, .data = data});
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags) {
    return call_later((struct host_call){.callback = callback, .stream = stream, .data = data});
}
