/* NCCL 2: ranks of one host, in one process or in several, that meet in a mapped file.
 *
 * A collective begins on each rank when its stream reaches it, and ends on all of them together: a
 * latency and the bytes over the bus (`nccl_latency_us`, `nccl_gb_s` of the machine) after the last one
 * began. Ends must be known when work is queued, so a call returns once all ranks have made theirs; a
 * send does not wait for who receives it. Values of messages up to a size are really moved and reduced,
 * as ranks compare shapes and send each other objects; larger ones only take their time. */
#define _GNU_SOURCE
#include "streams.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define MOST_RANKS 64
#define MOST_IN_GROUP 4096
#define MOST_OWN_OPERATIONS 256
#define VALUES ((size_t)256 << 10) /* bytes of a message that are moved */
#define RING 4                     /* messages from one rank to another that lie ready */
#define CHANNELS 24                /* blocks of a kernel */

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, MEETING, SEND, RECEIVE };

/* ---- what ranks share ---- */

struct message { int64_t ready_ns; int kind, type, root; uint64_t count; char values[VALUES]; };
struct seat { uint64_t round; struct message messages[2]; }; /* one of this round, one of the next */
struct pipe { uint64_t sent, received; struct message messages[RING]; };
struct meeting { uint32_t num_joined; struct seat seats[]; }; /* then a pipe for each pair */

struct ncclComm {
    struct meeting *meeting;
    size_t size;
    ncclUniqueId id;
    int num_ranks, rank, device, is_aborted, num_inside;
    uint64_t round, num_splits;
    char error[160];
};

static _Thread_local char last_error[160];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static ncclResult_t refuse(ncclComm_t comm, ncclResult_t result, const char *why) {
    snprintf(last_error, sizeof last_error, "software GPU: %s", why);
    if (comm) memcpy(comm->error, last_error, sizeof last_error);
    return result;
}
static struct pipe *pipe_of(ncclComm_t comm, int from, int to) {
    struct pipe *pipes = (struct pipe *)(comm->meeting->seats + comm->num_ranks);
    return &pipes[from * comm->num_ranks + to];
}
#define READ(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define WRITE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)
/* Until it holds, or the communicator is aborted (by another thread, as a watchdog does). */
#define WAIT_UNTIL(comm, holds)                                                                            \
    for (int64_t since_ns = now_ns(); !(holds) && !READ((comm)->is_aborted);) \
        if (now_ns() - since_ns > 50000) usleep(20)
static int is_over(ncclComm_t comm) { return READ(comm->is_aborted); }

/* ---- groups: what is called between start and end is done at the end ---- */

struct call_of { enum kind kind; const void *from; void *to; uint64_t count; int type, operation, root; ncclComm_t comm; cudaStream_t stream; };
static _Thread_local struct call_of *calls;
static _Thread_local ncclComm_t *joining;
static _Thread_local int depth, num_calls, num_joining;

/* ---- types and sums ---- */

static size_t size_of(int type) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[type];
}
static double factors[MOST_OWN_OPERATIONS]; /* of sums of products with a number */
static int num_factors;

static double half_at(const void *at, int is_brain) {
    uint16_t bits = *(const uint16_t *)at;
    if (is_brain) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -size : size;
}
static uint16_t half_of(double value, int is_brain) {
    if (is_brain) {
        float narrow = value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        return isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    value = fabs(value);
    if (isnan(value)) return 0x7e00;
    if (value >= 65520) return sign | 0x7c00;
    if (value < ldexp(1, -14)) return sign | (uint16_t)nearbyint(ldexp(value, 24));
    int exponent;
    double fraction = frexp(value, &exponent); /* 0.5 to 1 */
    return sign + ((exponent + 13) << 10) + (uint16_t)nearbyint(ldexp(fraction, 11));
}
static double number_at(const char *values, uint64_t i, int type) {
    const void *at = values + i * size_of(type);
    switch (type) {
    case ncclInt8: return *(const int8_t *)at;
    case ncclUint8: return *(const uint8_t *)at;
    case ncclInt32: return *(const int32_t *)at;
    case ncclUint32: return *(const uint32_t *)at;
    case ncclInt64: return *(const int64_t *)at;
    case ncclUint64: return *(const uint64_t *)at;
    case ncclFloat32: return *(const float *)at;
    case ncclFloat64: return *(const double *)at;
    case ncclFloat16: case ncclBfloat16: return half_at(at, type == ncclBfloat16);
    default: return 0;
    }
}
static void put_number(char *values, uint64_t i, int type, double number) {
    void *at = values + i * size_of(type);
    switch (type) {
    case ncclInt8: *(int8_t *)at = number; break;
    case ncclUint8: *(uint8_t *)at = number; break;
    case ncclInt32: *(int32_t *)at = number; break;
    case ncclUint32: *(uint32_t *)at = number; break;
    case ncclInt64: *(int64_t *)at = number; break;
    case ncclUint64: *(uint64_t *)at = number; break;
    case ncclFloat32: *(float *)at = number; break;
    case ncclFloat64: *(double *)at = number; break;
    case ncclFloat16: case ncclBfloat16: *(uint16_t *)at = half_of(number, type == ncclBfloat16); break;
    }
}
/* Whole numbers of 64 bits are added as such: a double would round them. */
static void reduce(ncclComm_t comm, const struct call_of *call, const struct message *const of[], uint64_t first, uint64_t count) {
    int is_whole = call->type == ncclInt64 || call->type == ncclUint64;
    double factor = call->operation >= ncclNumOps ? factors[call->operation - ncclNumOps] : 1;
    for (uint64_t i = 0; i < count; i++) {
        double result = 0;
        uint64_t sum = 0;
        for (int rank = 0; rank < comm->num_ranks; rank++) {
            double number = number_at(of[rank]->values, first + i, call->type);
            if (is_whole) sum += ((const uint64_t *)of[rank]->values)[first + i];
            if (!rank) result = number * factor;
            else if (call->operation == ncclProd) result *= number;
            else if (call->operation == ncclMax) result = fmax(result, number);
            else if (call->operation == ncclMin) result = fmin(result, number);
            else result += number * factor;
        }
        if (call->operation == ncclAvg) result /= comm->num_ranks;
        if (is_whole && call->operation == ncclSum) memcpy((char *)call->to + 8 * i, &sum, 8);
        else put_number(call->to, i, call->type, result);
    }
}

/* ---- one collective ---- */

/* How many elements a rank puts into its message. */
static uint64_t given(const struct call_of *call) {
    int num = call->comm->num_ranks;
    int is_wide = call->kind == REDUCE_SCATTER || call->kind == ALL_TO_ALL || (call->kind == SCATTER && call->comm->rank == call->root);
    int is_root = call->comm->rank == call->root;
    if ((call->kind == BROADCAST || call->kind == SCATTER) && !is_root) return 0;
    return is_wide ? call->count * num : call->count;
}
/* Bytes that cross the link of the busiest rank, as by rings. */
static double bytes_over(const struct call_of *call) {
    double num = call->comm->num_ranks, bytes = (double)call->count * size_of(call->type);
    switch (call->kind) {
    case ALL_REDUCE: return 2 * (num - 1) / num * bytes;
    case ALL_GATHER: case REDUCE_SCATTER: case ALL_TO_ALL: case GATHER: case SCATTER: return (num - 1) * bytes;
    case REDUCE: case BROADCAST: return num > 1 ? bytes : 0;
    default: return 0;
    }
}
static int64_t duration_of(double bytes) {
    double rate = machine_number("nccl_gb_s", 20) * 1e9, latency_us = machine_number("nccl_latency_us", 20);
    return llround(1e3 * latency_us + 1e9 * bytes / rate);
}
static const char *name_of(enum kind kind, int type, int operation) {
    static const char *const kinds[] = {"AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter", "", "SendRecv", "SendRecv"};
    static const char *const types[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
    static const char *const operations[] = {"Sum", "Prod", "MinMax", "MinMax", "Sum", "PreMulSum"};
    static char *names[SEND + 2][ncclNumTypes][ncclNumOps + 1];
    int which = operation > ncclNumOps ? ncclNumOps : operation, reduces = kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
    char name[128];
    pthread_mutex_lock(&mutex);
    char **kept = &names[kind][type][which];
    if (!*kept) {
        if (kind >= SEND) snprintf(name, sizeof name, "ncclDevKernel_SendRecv");
        else if (!reduces) snprintf(name, sizeof name, "ncclDevKernel_%s_RING_LL", kinds[kind]);
        else snprintf(name, sizeof name, "ncclDevKernel_%s_%s_%s_RING_LL", kinds[kind], operations[which], types[type]);
        if (asprintf(kept, "_Z%zu%s24ncclDevKernelArgsStorageILm4096EE", strlen(name), name) < 0) abort();
    }
    pthread_mutex_unlock(&mutex);
    return *kept;
}
static ncclResult_t launch(const struct call_of *call, int64_t ready_ns, int64_t end_ns) {
    struct kernel kernel = {
        .name = name_of(call->kind, call->type, call->operation), .duration_ns = end_ns - ready_ns, .since_ns = ready_ns,
        .grid = {CHANNELS, 1, 1}, .block = {544, 1, 1}, .registers = 96, .shared_dynamic = 80 << 10, .engine = EXCHANGE,
    };
    return enqueue_kernel(call->stream, &kernel) ? ncclUnhandledCudaError : ncclSuccess;
}
static int64_t ready_of(cudaStream_t stream) {
    int64_t now = now_ns(), end_ns = end_of_stream(stream);
    return end_ns > now ? end_ns : now;
}
static int captures(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &status);
    return status == cudaStreamCaptureStatusActive;
}
static struct message *own_message(ncclComm_t comm) { return &comm->meeting->seats[comm->rank].messages[comm->round % 2]; }
static void arrive(const struct call_of *call) {
    ncclComm_t comm = call->comm;
    struct message *message = own_message(comm);
    size_t bytes = given(call) * size_of(call->type);
    message->ready_ns = call->kind == MEETING ? 0 : ready_of(call->stream);
    message->kind = call->kind;
    message->type = call->type;
    message->root = call->root;
    message->count = call->count;
    if (bytes && bytes <= VALUES) memcpy(message->values, call->from, bytes);
    WRITE(comm->meeting->seats[comm->rank].round, comm->round + 1);
}
static void take_values(const struct call_of *call, const struct message *const of[]) {
    ncclComm_t comm = call->comm;
    int num = comm->num_ranks, is_root = comm->rank == call->root;
    size_t bytes = call->count * size_of(call->type), wide = bytes * num;
    switch (call->kind) {
    case BROADCAST: if (bytes <= VALUES) memcpy(call->to, of[call->root]->values, bytes); break;
    case ALL_REDUCE: if (bytes <= VALUES) reduce(comm, call, of, 0, call->count); break;
    case REDUCE: if (bytes <= VALUES && is_root) reduce(comm, call, of, 0, call->count); break;
    case REDUCE_SCATTER: if (wide <= VALUES) reduce(comm, call, of, comm->rank * call->count, call->count); break;
    case SCATTER: if (wide <= VALUES) memcpy(call->to, of[call->root]->values + comm->rank * bytes, bytes); break;
    case ALL_GATHER: case GATHER: case MEETING:
        if (bytes <= VALUES && (call->kind != GATHER || is_root))
            for (int rank = 0; rank < num; rank++) memcpy((char *)call->to + rank * bytes, of[rank]->values, bytes);
        break;
    case ALL_TO_ALL:
        if (wide <= VALUES)
            for (int rank = 0; rank < num; rank++) memcpy((char *)call->to + rank * bytes, of[rank]->values + comm->rank * bytes, bytes);
        break;
    default: break;
    }
}
static ncclResult_t complete(const struct call_of *call) {
    ncclComm_t comm = call->comm;
    const struct message *of[MOST_RANKS], *own = own_message(comm);
    int64_t last_ns = 0;
    for (int rank = 0; rank < comm->num_ranks; rank++) {
        struct seat *seat = &comm->meeting->seats[rank];
        WAIT_UNTIL(comm, READ(seat->round) > comm->round);
        if (is_over(comm)) return refuse(comm, ncclRemoteError, "a communicator was aborted");
        of[rank] = &seat->messages[comm->round % 2];
        if (of[rank]->kind != own->kind || of[rank]->type != own->type || of[rank]->count != own->count || of[rank]->root != own->root)
            return refuse(comm, ncclInvalidUsage, "ranks called different collectives, or with different sizes");
        if (of[rank]->ready_ns > last_ns) last_ns = of[rank]->ready_ns;
    }
    take_values(call, of);
    comm->round++;
    if (call->kind == MEETING) return ncclSuccess;
    return launch(call, own->ready_ns, last_ns + duration_of(bytes_over(call)));
}

/* ---- messages from one rank to another: those of a group are one kernel ---- */

static ncclResult_t send(const struct call_of *call) {
    ncclComm_t comm = call->comm;
    struct pipe *pipe = pipe_of(comm, comm->rank, call->root);
    WAIT_UNTIL(comm, pipe->sent - READ(pipe->received) < RING);
    if (is_over(comm)) return refuse(comm, ncclRemoteError, "a communicator was aborted");
    struct message *message = &pipe->messages[pipe->sent % RING];
    size_t bytes = call->count * size_of(call->type);
    message->ready_ns = ready_of(call->stream);
    message->count = bytes;
    if (bytes <= VALUES) memcpy(message->values, call->from, bytes);
    WRITE(pipe->sent, pipe->sent + 1);
    return ncclSuccess;
}
static ncclResult_t receive(const struct call_of *call, int64_t *ready_ns) {
    ncclComm_t comm = call->comm;
    struct pipe *pipe = pipe_of(comm, call->root, comm->rank);
    WAIT_UNTIL(comm, READ(pipe->sent) > pipe->received);
    if (is_over(comm)) return refuse(comm, ncclRemoteError, "a communicator was aborted");
    const struct message *message = &pipe->messages[pipe->received % RING];
    size_t bytes = call->count * size_of(call->type);
    if (message->count != bytes) return refuse(comm, ncclInvalidUsage, "a message has another size than is received");
    if (bytes <= VALUES) memcpy(call->to, message->values, bytes);
    if (message->ready_ns > *ready_ns) *ready_ns = message->ready_ns;
    WRITE(pipe->received, pipe->received + 1);
    return ncclSuccess;
}
static ncclResult_t exchange(ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    const struct call_of *any = NULL;
    double sent = 0, received = 0;
    int64_t own_ns = 0, last_ns = 0;
    for (int i = 0; i < num_calls; i++)
        if (calls[i].comm == comm && calls[i].kind >= SEND) {
            any = &calls[i];
            int64_t ready_ns = ready_of(any->stream);
            if (ready_ns > own_ns) own_ns = ready_ns;
            if (any->kind == RECEIVE) received += (double)any->count * size_of(any->type);
            else sent += (double)any->count * size_of(any->type);
        }
    last_ns = own_ns;
    for (int i = 0; i < num_calls && !result; i++)
        if (calls[i].comm == comm && calls[i].kind == RECEIVE) result = receive(&calls[i], &last_ns);
    if (result || !any) return result;
    return launch(any, own_ns, last_ns + duration_of(fmax(sent, received)));
}

/* ---- the end of a group ---- */

static ncclResult_t call_captured(const struct call_of *call) {
    double bytes = call->kind >= SEND ? (double)call->count * size_of(call->type) : bytes_over(call);
    return launch(call, 0, duration_of(bytes));
}
static ncclResult_t finish_group(void) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < num_joining; i++)
        WAIT_UNTIL(joining[i], READ(joining[i]->meeting->num_joined) >= (uint32_t)joining[i]->num_ranks);
    for (int i = 0; i < num_calls; i++) __atomic_add_fetch(&calls[i].comm->num_inside, 1, __ATOMIC_ACQ_REL);
    char *is_done = calloc(num_calls + 1, 1);
    for (int i = 0; i < num_calls && !result; i++) {
        if (captures(calls[i].stream)) {
            result = call_captured(&calls[i]);
            is_done[i] = 1;
        } else if (calls[i].kind == SEND) result = send(&calls[i]);
    }
    for (int left = 1; left && !result;) { /* the next collective of each communicator: all arrive, then all wait */
        int next[MOST_RANKS], num = 0;
        left = 0;
        for (int i = 0; i < num_calls; i++) {
            if (is_done[i] || calls[i].kind >= SEND) continue;
            int is_taken = num == MOST_RANKS;
            for (int j = 0; j < num; j++) is_taken |= calls[next[j]].comm == calls[i].comm;
            if (is_taken) left = 1;
            else next[num++] = i;
        }
        for (int j = 0; j < num; j++) arrive(&calls[next[j]]);
        for (int j = 0; j < num; j++) {
            ncclResult_t one = complete(&calls[next[j]]);
            if (one) result = one;
            is_done[next[j]] = 1;
        }
    }
    for (int i = 0; i < num_calls && !result; i++) {
        int is_first = calls[i].kind >= SEND && !is_done[i];
        for (int j = 0; j < i; j++) is_first &= !(calls[j].comm == calls[i].comm && calls[j].kind >= SEND && !is_done[j]);
        if (is_first) result = exchange(calls[i].comm);
    }
    for (int i = 0; i < num_calls; i++) __atomic_sub_fetch(&calls[i].comm->num_inside, 1, __ATOMIC_ACQ_REL);
    free(is_done);
    num_calls = num_joining = 0;
    return result;
}
ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
    if (depth < 1) return refuse(NULL, ncclInvalidUsage, "a group ends that did not start");
    return --depth ? ncclSuccess : finish_group();
}
static ncclResult_t add(struct call_of call) {
    if (!call.comm) return refuse(NULL, ncclInvalidArgument, "no communicator");
    if (call.type < 0 || call.type >= ncclNumTypes || call.operation < 0 || call.operation >= ncclNumOps + num_factors)
        return refuse(call.comm, ncclInvalidArgument, "no such type or operation");
    if (call.root < 0 || call.root >= call.comm->num_ranks) return refuse(call.comm, ncclInvalidArgument, "no such rank");
    if (device_of_stream(call.stream) != call.comm->device)
        return refuse(call.comm, ncclInvalidUsage, "a stream of another device than the communicator's");
    if (!calls) calls = calloc(MOST_IN_GROUP, sizeof *calls);
    if (num_calls == MOST_IN_GROUP) return refuse(call.comm, ncclInternalError, "too many calls in one group");
    calls[num_calls++] = call;
    return depth ? ncclSuccess : finish_group();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){ALL_REDUCE, from, to, count, type, operation, 0, comm, stream});
}
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){REDUCE, from, to, count, type, operation, root, comm, stream});
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){BROADCAST, from, to, count, type, 0, root, comm, stream});
}
ncclResult_t ncclBcast(void *at, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(at, at, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){ALL_GATHER, from, to, count, type, 0, 0, comm, stream});
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){REDUCE_SCATTER, from, to, count, type, operation, 0, comm, stream});
}
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){ALL_TO_ALL, from, to, count, type, 0, 0, comm, stream});
}
ncclResult_t ncclGather(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){GATHER, from, to, count, type, 0, root, comm, stream});
}
ncclResult_t ncclScatter(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){SCATTER, from, to, count, type, 0, root, comm, stream});
}
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){SEND, from, NULL, count, type, 0, peer, comm, stream});
}
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add((struct call_of){RECEIVE, NULL, to, count, type, 0, peer, comm, stream});
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *made, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm) {
    pthread_mutex_lock(&mutex);
    int place = num_factors % MOST_OWN_OPERATIONS; /* the oldest one is forgotten */
    if (num_factors < MOST_OWN_OPERATIONS) num_factors++;
    factors[place] = number_at(scalar, 0, type);
    pthread_mutex_unlock(&mutex);
    *made = (ncclRedOp_t)(ncclNumOps + place);
    return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t comm) { return ncclSuccess; }

/* ---- communicators ---- */

static void path_of(const ncclUniqueId *id, char path[PATH_MAX]) {
    const char *machine = getenv("SOFTWARE_GPU_MACHINE");
    int length = snprintf(path, PATH_MAX - 40, "%s-nccl-", machine && *machine ? machine : "/dev/shm/software-gpu");
    for (int i = 0; i < 16; i++) length += snprintf(path + length, 3, "%02x", (unsigned char)id->internal[i]);
}
static ncclResult_t join(ncclComm_t *made, int num_ranks, ncclUniqueId id, int rank) {
    if (num_ranks < 1 || num_ranks > MOST_RANKS || rank < 0 || rank >= num_ranks)
        return refuse(NULL, ncclInvalidArgument, "no such rank, or more ranks than the software GPU has");
    char path[PATH_MAX];
    path_of(&id, path);
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->size = sizeof(struct meeting) + num_ranks * sizeof(struct seat) + (size_t)num_ranks * num_ranks * sizeof(struct pipe);
    comm->id = id;
    comm->num_ranks = num_ranks;
    comm->rank = rank;
    comm->device = current_device();
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, comm->size)) {
        free(comm);
        return refuse(NULL, ncclSystemError, strerror(errno));
    }
    comm->meeting = mmap(NULL, comm->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (comm->meeting == MAP_FAILED) abort();
    *made = comm;
    return ncclSuccess;
}
static void sit_down(ncclComm_t comm) {
    if (__atomic_add_fetch(&comm->meeting->num_joined, 1, __ATOMIC_ACQ_REL) < (uint32_t)comm->num_ranks) return;
    char path[PATH_MAX]; /* all hold it, so it needs no name any more */
    path_of(&comm->id, path);
    unlink(path);
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    return getrandom(id->internal, 16, 0) == 16 ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclCommInitRank(ncclComm_t *made, int num_ranks, ncclUniqueId id, int rank) {
    ncclResult_t result = join(made, num_ranks, id, rank);
    if (result) return result;
    sit_down(*made);
    if (!joining) joining = calloc(MOST_RANKS, sizeof *joining);
    if (num_joining == MOST_RANKS) return refuse(NULL, ncclInternalError, "too many communicators in one group");
    joining[num_joining++] = *made;
    return depth ? ncclSuccess : finish_group();
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    return ncclCommInitRank(made, num_ranks, id, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t *made, int num_ranks, int rank, int num_ids, ncclUniqueId *ids, ncclConfig_t *config) {
    return ncclCommInitRank(made, num_ranks, ids[0], rank);
}
ncclResult_t ncclCommInitAll(ncclComm_t *made, int num, const int *list) {
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    for (int i = 0; i < num && !result; i++) {
        result = join(&made[i], num, id, i);
        if (!result) made[i]->device = list ? list[i] : i;
    }
    for (int i = 0; i < num && !result; i++) sit_down(made[i]);
    return result;
}
struct wish { int color, key; };
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    struct wish own = {color, key}, wishes[MOST_RANKS];
    struct call_of call = {.kind = MEETING, .from = &own, .to = wishes, .count = sizeof own, .type = ncclUint8, .comm = comm};
    arrive(&call);
    ncclResult_t result = complete(&call);
    if (result) return result;
    int num = 0, rank = 0;
    for (int i = 0; i < comm->num_ranks; i++) {
        if (wishes[i].color != color) continue;
        num++;
        if (wishes[i].key < key || (wishes[i].key == key && i < comm->rank)) rank++;
    }
    ncclUniqueId id = comm->id;
    uint64_t number = ++comm->num_splits * 0x9e3779b97f4a7c15 + (uint64_t)color * 0xc2b2ae3d27d4eb4f, kept;
    for (int i = 0; i < 2; i++) {
        memcpy(&kept, id.internal + 8 * i, 8);
        kept = (kept ^ number) * 0xff51afd7ed558ccd;
        memcpy(id.internal + 8 * i, &kept, 8);
    }
    *made = NULL;
    return color == NCCL_SPLIT_NOCOLOR ? ncclSuccess : ncclCommInitRank(made, num, id, rank);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    munmap(comm->meeting, comm->size);
    free(comm);
    return ncclSuccess;
}
/* Calls of other threads that still wait return first. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    WRITE(comm->is_aborted, 1);
    while (READ(comm->num_inside)) usleep(20);
    return ncclCommDestroy(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    *error = ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) { *count = comm->num_ranks; return ncclSuccess; }
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) { *device = comm->device; return ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) { *rank = comm->rank; return ncclSuccess; }
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t size, void **handle) { *handle = at; return ncclSuccess; }
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) { return ncclSuccess; }

/* ---- the library ---- */

ncclResult_t ncclGetVersion(int *version) { *version = NCCL_VERSION_CODE; return ncclSuccess; }
ncclResult_t ncclMemAlloc(void **at, size_t size) { return cudaMalloc(at, size) ? ncclUnhandledCudaError : ncclSuccess; }
ncclResult_t ncclMemFree(void *at) { return cudaFree(at) ? ncclUnhandledCudaError : ncclSuccess; }
const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const names[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
        "remote process exited or there was a network error", "NCCL operation in progress", "NCCL operation timed out"};
    return result >= 0 && result < ncclNumResults ? names[result] : "unknown result code";
}
const char *ncclGetLastError(ncclComm_t comm) { return comm ? comm->error : last_error; }
