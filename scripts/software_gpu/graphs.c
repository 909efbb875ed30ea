/* CUDA graphs: what streams would have queued is captured, and launched later in one place. */
#define _GNU_SOURCE
#include "streams.h"
#include <stdlib.h>
#include <string.h>

struct graph {
    uint32_t number;
    struct stream *origin;
    int is_invalid;
    int64_t free_ns[NUM_ENGINES]; /* engines, counted from the start */
    int64_t end_ns;
    int num_nodes, room;
    struct node *nodes;
    struct graph *next;
};
static struct graph *capturing;
static uint32_t num_graphs;
static __thread enum cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

uint32_t number_of_graph(const struct graph *graph) { return graph ? graph->number : 0; }
struct graph *captured_now(uint32_t number) {
    struct graph *graph = capturing;
    while (graph && graph->number != number) graph = graph->next;
    return graph;
}
void capture(struct graph *graph, struct stream *stream, const struct work *work) {
    if (graph->num_nodes == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 256;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
    }
    int64_t start_ns = stream->tail_ns;
    if (start_ns < graph->free_ns[work->kernel.engine]) start_ns = graph->free_ns[work->kernel.engine];
    stream->tail_ns = graph->free_ns[work->kernel.engine] = start_ns + work->kernel.duration_ns;
    if (graph->end_ns < stream->tail_ns) graph->end_ns = stream->tail_ns;
    graph->nodes[graph->num_nodes++] = (struct node){*work, stream->device, start_ns};
}
/* A wait breaks the capture of the stream that is waited for; one for a whole device, any. */
cudaError_t capture_forbids(cudaStream_t handle) {
    lock_streams();
    struct graph *graph = handle ? stream_of(handle)->capturing : capturing;
    int forbids = graph && (handle || mode_of_thread != cudaStreamCaptureModeRelaxed);
    if (forbids) graph->is_invalid = 1;
    unlock_streams();
    return forbids ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
static cudaError_t begin(cudaStream_t handle, struct graph *graph) {
    if ((uintptr_t)handle <= 2) return failed(cudaErrorStreamCaptureUnsupported);
    lock_streams();
    struct stream *stream = stream_of(handle);
    if (stream->capturing) {
        unlock_streams();
        return failed(cudaErrorIllegalState);
    }
    if (!graph) {
        graph = calloc(1, sizeof *graph);
        graph->number = ++num_graphs;
    }
    graph->origin = stream;
    graph->next = capturing;
    capturing = graph;
    stream->capturing = graph;
    stream->tail_ns = 0;
    unlock_streams();
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    CALL("cudaStreamBeginCapture");
    return begin(handle, NULL);
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph, const cudaGraphNode_t *nodes,
                                          const cudaGraphEdgeData *edges, size_t num_nodes,
                                          enum cudaStreamCaptureMode mode) {
    CALL("cudaStreamBeginCaptureToGraph");
    return begin(handle, (struct graph *)graph);
}
static void release(struct stream *stream, const struct graph *graph) {
    if (stream->capturing != graph) return;
    stream->capturing = NULL;
    stream->tail_ns = 0;
}
static void drop(struct graph *graph) {
    if (!graph) return;
    free(graph->nodes);
    free(graph);
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *captured) {
    CALL("cudaStreamEndCapture");
    *captured = NULL;
    lock_streams();
    struct graph *graph = stream_of(handle)->capturing;
    if (!graph || graph->origin != stream_of(handle)) {
        unlock_streams();
        return failed(cudaErrorIllegalState);
    }
    for (struct graph **at = &capturing; *at; at = &(*at)->next)
        if (*at == graph) {
            *at = graph->next;
            break;
        }
    release(stream_of(handle), graph);
    for (struct stream *stream = first_stream(); stream; stream = stream->next) release(stream, graph);
    unlock_streams();
    if (graph->is_invalid) {
        drop(graph);
        return failed(cudaErrorStreamCaptureInvalidated);
    }
    *captured = (cudaGraph_t)graph;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *number, cudaGraph_t *of, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *num_nodes) {
    lock_streams();
    struct graph *graph = stream_of(handle)->capturing;
    unlock_streams();
    *status = !graph ? cudaStreamCaptureStatusNone
              : graph->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    if (number) *number = graph ? graph->number : 0;
    if (of) *of = (cudaGraph_t)graph;
    if (nodes) *nodes = NULL;
    if (edges) *edges = NULL;
    if (num_nodes) *num_nodes = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    return cudaStreamGetCaptureInfo(handle, status, NULL, NULL, NULL, NULL, NULL);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    enum cudaStreamCaptureMode before = mode_of_thread;
    mode_of_thread = *mode;
    *mode = before;
    return cudaSuccess;
}

/* ---- captured graphs ---- */

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count) {
    struct graph *graph = (struct graph *)handle;
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < (size_t)graph->num_nodes ? (cudaGraphNode_t)&graph->nodes[i] : NULL;
    if (!nodes || *count > (size_t)graph->num_nodes) *count = graph->num_nodes;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t handle, unsigned long long flags) {
    CALL("cudaGraphInstantiateWithFlags");
    struct graph *graph = (struct graph *)handle, *copy = malloc(sizeof *copy);
    *copy = *graph;
    copy->nodes = malloc((graph->num_nodes + 1) * sizeof *graph->nodes);
    memcpy(copy->nodes, graph->nodes, graph->num_nodes * sizeof *graph->nodes);
    *made = (cudaGraphExec_t)copy;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(made, graph, flags);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    drop((struct graph *)graph);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    drop((struct graph *)graph);
    return cudaSuccess;
}
/* One launch and one place; its nodes keep the distances that they were captured with. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t at) {
    CALL("cudaGraphLaunch");
    struct graph *graph = (struct graph *)handle;
    lock_streams();
    struct stream *stream = stream_of(at);
    int64_t queued_ns = place_in(stream);
    int64_t began_ns = queued_ns > stream->tail_ns ? queued_ns : stream->tail_ns, last_ns = began_ns, later_ns = 0;
    for (int i = 0; i < graph->num_nodes; i++) {
        const struct node *node = &graph->nodes[i];
        int64_t planned_ns = began_ns + node->start_ns + later_ns, start_ns, end_ns;
        run_node(stream, &node->work, node->device, queued_ns, planned_ns, graph->number, i + 1, &start_ns, &end_ns);
        later_ns += end_ns - planned_ns - node->work.kernel.duration_ns;
        if (last_ns < end_ns) last_ns = end_ns;
    }
    took_place(stream, last_ns);
    unlock_streams();
    return cudaSuccess;
}
