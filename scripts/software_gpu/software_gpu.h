/* What the parts of the GPU in software know of each other.
 *
 * A machine has cards; a process sees some of them as devices (CUDA_VISIBLE_DEVICES). Cards, their
 * memory, their time and who uses them are shared between processes (devices.c). Each card has a
 * model, which a file states (model.c). Work is put behind what its stream holds, with a start and an
 * end in nanoseconds of CLOCK_MONOTONIC that are known at once (streams.c); whoever waits for it
 * really waits. Names that begin with cu, nvml or nccl are visible outside, all others are not. */
#ifndef SOFTWARE_GPU_H
#define SOFTWARE_GPU_H

#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_CARDS 8
#define MIB ((size_t)1 << 20)

/* ---- model.c: what a card is; README.md lists the keys of the file ---- */

struct phase { double from_s, until_s, slower; uint64_t reasons; int sm_mhz; }; /* since the machine began */

struct model {
    char name[128], uuid[48];           /* uuid: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
    int major, minor, sms, threads_per_sm, blocks_per_sm, registers_per_sm;
    size_t shared_per_sm, memory_bytes, context_bytes, pinned_bytes, copied_bytes;
    double bandwidth, thread_bytes;     /* bytes/s of the card's memory; bytes that a thread moves */
    double pinned, pageable, peer;      /* bytes/s over the bus */
    double peak_fp64, peak_fp32, peak_tf32, peak_half, peak_int8; /* FLOP/s, dense */
    double half_flops;                  /* of a product that reaches half of the peak */
    int64_t launch_ns, kernel_ns, copy_ns; /* host: from launch to launch at least; device: floors */
    int queue;                          /* launches that a stream holds before the host must wait */
    double idle_w, busy_w;
    int sm_mhz;
    struct phase phases[8];
    int num_phases;
};

int num_cards(void);
const struct model *model_of(int card);
/* Any other key, so that a part can have keys of its own. */
double model_number(int card, const char *key, double otherwise);
const char *model_text(int card, const char *key, const char *otherwise);
/* A key before the first [card]: of the machine. */
double machine_number(const char *key, double otherwise);
const char *machine_text(const char *key, const char *otherwise);

/* ---- devices.c: cards that processes share ---- */

enum engine { COMPUTE, TO_DEVICE, FROM_DEVICE, PEER, EXCHANGE, NUM_ENGINES }; /* EXCHANGE: NCCL's kernels */

/* All since the machine began; differences of two moments give means. Moments may lie behind or
 * ahead of now, as far as work is known. */
struct usage {
    int64_t busy_ns[NUM_ENGINES];
    double sm_ns;    /* busy time of all engines but copies, weighted with the share of SMs at work */
    double warp_ns;  /* the same, weighted with the share of all warps that are resident */
    double joules;
    double bytes_to, bytes_from; /* over the bus */
};
struct tenant { int process; size_t bytes; };

int64_t now_ns(void);
int64_t machine_began_ns(void);
void wait_until(int64_t then_ns);   /* sleeps, then spins */
int num_devices(void);              /* that this process sees */
int card_of(int device);
struct usage usage_until(int card, int64_t at_ns);
size_t used_bytes(int card);        /* by all processes that live */
int tenants(int card, struct tenant *list, int room); /* how many there are; processes with a context */
const struct phase *phase_at(int card, int64_t at_ns); /* NULL: nothing slows it down */
/* Takes or returns memory of a card in the name of this process; 0 where there is no room. */
int take_bytes(int card, size_t size);
void return_bytes(int card, size_t size);
/* Reserves an engine of a card for a time, at the earliest from `ready_ns`; returns the start.
 * `share`: of the SMs that work meanwhile; `warps`: of all that the SMs hold; `bytes`: that cross the bus. */
int64_t reserve_engine(int card, enum engine engine, int64_t ready_ns, int64_t duration_ns, double share,
                       double warps, double bytes);

/* ---- streams.c: queues, events, waits ---- */

int current_device(void);           /* of this thread, as cudaGetDevice says */
int device_of_stream(cudaStream_t stream);

struct kernel {
    const char *name;               /* mangled, as CUPTI would say; must stay where it is */
    int64_t duration_ns;            /* on a card that nothing slows down; 0: priced by its threads */
    unsigned grid[3], block[3], registers;
    size_t shared_static, shared_dynamic;
    enum engine engine;             /* COMPUTE, or EXCHANGE for kernels that run beside those */
    int64_t since_ns;               /* since when it waited for other processes, whenever it is queued; 0: it did not */
};
/* Puts a kernel behind what the stream holds, or into the graph that the stream captures. Waits where
 * the queue is full. Outside of a CALL it counts as a cudaLaunchKernel of its own. */
cudaError_t enqueue_kernel(cudaStream_t stream, const struct kernel *kernel);
/* When the last of what a stream holds will be done. */
int64_t end_of_stream(cudaStream_t stream);
/* The host waits for a stream (cudaStreamSynchronize, but no call of its own). */
void wait_for_stream(cudaStream_t stream);

/* ---- model.c: prices, for a device of this process ---- */

/* Fills name, duration, grid, block, registers and shared memory of a dense product [m,k] x [k,n]. */
void price_product(int device, cudaDataType type, int tf32, double m, double n, double k, double batches,
                   struct kernel *kernel);
/* Time for FLOPs of a type in so many blocks; and for bytes of the card's own memory. */
int64_t price_flops(int device, cudaDataType type, int tf32, double flops);
int64_t price_bytes(int device, double bytes);
int64_t price_threads(int device, const unsigned grid[3], const unsigned block[3]);
/* Blocks of that shape that an SM holds at once. */
int resident_blocks(int device, int threads, int registers, size_t shared);

/* ---- records: what CUPTI would hear of ---- */

enum activity_kind { CALL_ACTIVITY, KERNEL_ACTIVITY, COPY_ACTIVITY, FILL_ACTIVITY, WAIT_ACTIVITY, EVENT_ACTIVITY };
enum place { PAGEABLE, PINNED, ON_DEVICE };
enum waited_for { WAIT_EVENT, WAIT_STREAM_FOR_EVENT, WAIT_STREAM, WAIT_DEVICE };

/* Nanoseconds of CLOCK_MONOTONIC. Work of a device is recorded when it is queued, so its times may lie
 * ahead: who delivers it waits until now_ns() has passed end_ns. */
struct activity {
    enum activity_kind kind;
    const char *name;               /* of a call, "cudaLaunchKernel"; of a kernel, mangled; else NULL */
    int64_t queued_ns, start_ns, end_ns;
    uint32_t correlation;           /* the same for a call and for the work that it queued */
    uint32_t process, thread;
    int is_driver_call;             /* cuLaunchKernel rather than cudaLaunchKernel */
    int result;                     /* of a call */
    int device;                     /* as this process numbers them */
    uint32_t context, stream;       /* numbers; the default stream of a device is 7 */
    struct kernel kernel;           /* of KERNEL_ACTIVITY: its grid and so on */
    uint64_t bytes;                 /* of a copy or fill */
    int value;                      /* of a fill */
    enum place from, to;            /* of a copy */
    int peer;                       /* device that a copy comes from, where it is another; else -1 */
    uint32_t graph, node;           /* of work that a graph launched, else 0 */
    enum waited_for waited_for;     /* of WAIT_ACTIVITY */
    uint32_t event;                 /* number of the event waited for or recorded, else 0 */
};
/* Who listens (cupti.c sets it), or NULL. It is called by the calling thread: for work, within the
 * call and with the lock of streams held, so it must call nothing of CUDA; for the call itself, when it ends. */
extern void (*record_activity)(const struct activity *activity);

/* First line of each function of CUDA that CUPTI reports: CALL("cudaMemcpyAsync"). Nested ones are
 * part of the outer one. */
struct call { const char *name; int64_t start_ns; uint32_t correlation; int is_driver_call, result; struct call *outer; };
struct call *begin_call(struct call *call);
void end_call(struct call *call);
uint32_t current_correlation(void);
uint32_t next_correlation(void);
#define CALL_OF(text, driver)                                                                       \
    struct call call_ __attribute__((cleanup(end_call))) = {.name = text, .is_driver_call = driver}; \
    begin_call(&call_)
#define CALL(text) CALL_OF(text, 0)
#define DRIVER_CALL(text) CALL_OF(text, 1)

/* ---- entry points: functions of the driver that are looked up by name ---- */

/* A part that has driver functions (cu...) of its own simply defines them: all names are looked up in
 * this library. */
void *own_function(const char *name);

#endif
