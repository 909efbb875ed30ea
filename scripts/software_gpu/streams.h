/* Streams and what is queued in them, for streams.c, graphs.c and copies.c. */
#ifndef STREAMS_H
#define STREAMS_H
#include "software_gpu.h"

struct graph;

/* What a stream holds one place for. Engines of copies take no SM. */
struct work {
    enum activity_kind kind;
    struct kernel kernel; /* duration and engine of copies too */
    uint64_t bytes;
    enum place from, to;
    int peer, value;
};
/* In a graph: when it starts, counted from the start of the graph. */
struct node { struct work work; int device; int64_t start_ns; };

struct stream {
    int device, priority;
    uint32_t number;
    int64_t tail_ns;      /* when the last of it will be done; while capturing, counted from the graph's start */
    int64_t *ends_ns;     /* of what is queued, a ring */
    int first, count, room;
    struct graph *capturing;
    struct stream *next;
};
struct event {
    uint32_t number;
    int has_timing, is_recorded, device;
    int64_t time_ns;
    uint32_t graph;       /* number of the one that it was captured into, else 0 */
};

/* All of these with the lock of streams held. */
void lock_streams(void);
void unlock_streams(void);
struct stream *stream_of(cudaStream_t handle);
struct stream *first_stream(void);
/* Waits for a place, with the lock given away meanwhile; when the host's call reaches the device. */
int64_t place_in(struct stream *stream);
void took_place(struct stream *stream, int64_t end_ns);
void capture(struct graph *graph, struct stream *stream, const struct work *work);
uint32_t number_of_graph(const struct graph *graph); /* 0 for NULL */
struct graph *captured_now(uint32_t number);         /* NULL once its capture has ended */

/* Without it. */
cudaError_t enqueue(cudaStream_t handle, const struct work *work, int64_t *end_ns);
void run_node(struct stream *stream, const struct work *work, int device, int64_t queued_ns, int64_t ready_ns,
              uint32_t graph, uint32_t node, int64_t *start_ns, int64_t *end_ns);
void host_waited(int64_t end_ns);
cudaError_t failed(cudaError_t error);
cudaError_t capture_forbids(cudaStream_t handle); /* a wait; cudaSuccess where none is captured */
void record_work(const struct stream *stream, const struct work *work, int device, int64_t queued_ns,
                 int64_t start_ns, int64_t end_ns, uint32_t graph, uint32_t node);
void set_current_device(int device);
void wait_for_device(int device);
#endif
