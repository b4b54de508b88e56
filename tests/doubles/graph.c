/* SPDX-License-Identifier: MIT */
/* Capture and graphs of the doubles.
 *
 * A capture has a slot for each of its streams. Every node stores how many nodes of each slot must
 * have run before it (a vector clock), which events carry from stream to stream. A launch runs the
 * nodes in any order that respects these numbers and nothing else. */
#include "doubles/inside.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 8 };

typedef struct node {
    dbl_work *work;
    int slot;
    uint32_t after[SLOTS];
    int done; /* used in a launch's copy */
} node;

typedef struct nodes {
    node *at;
    int count, room;
} nodes;

struct CUgraph_st {
    int magic;
    nodes nodes;
    cudaStream_t stream[SLOTS]; /* slot 0: the origin */
    int slots;
    uint32_t clock[SLOTS][SLOTS]; /* vector clock of each stream */
    uint32_t issued[SLOTS];
    int invalid, ended;
    enum cudaStreamCaptureMode mode;
    long breaks; /* count of the device when the capture began */
};

struct CUgraphExec_st {
    int magic;
    nodes nodes;
};

enum { MINE = 4 };
static _Thread_local cudaGraph_t mine[MINE]; /* this thread's captures, relaxed ones excepted */
static _Atomic int global_captures;
static _Atomic int active[DBL_DEVICES];
static _Atomic long breaks[DBL_DEVICES];

void dbl_graphs_begin(void)
{
    atomic_store(&global_captures, 0);
    memset(active, 0, sizeof active);
    memset(breaks, 0, sizeof breaks);
    memset(mine, 0, sizeof mine);
}

/* ---- capture -------------------------------------------------------------------------------- */

int dbl_capture_forbids(const char *caller)
{
    int forbidden = atomic_load_explicit(&global_captures, memory_order_relaxed) > 0;
    for (int i = 0; i < MINE; i++)
        if (mine[i])
            forbidden = mine[i]->invalid = 1;
    if (forbidden)
        dbl_complain("%s during a capture", caller);
    return forbidden;
}

int dbl_capture_breaks(int device)
{
    if (atomic_load_explicit(&active[device], memory_order_relaxed) == 0)
        return 0;
    atomic_fetch_add_explicit(&breaks[device], 1, memory_order_relaxed);
    dbl_complain("the device was synchronised while a stream of it was captured");
    return 1;
}

static void append(nodes *list, const node *n)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 32;
        list->at = realloc(list->at, (size_t)list->room * sizeof *list->at);
    }
    list->at[list->count++] = *n;
}

static nodes copy_nodes(const nodes *list)
{
    nodes copy = {0};
    for (int i = 0; i < list->count; i++) {
        node n = list->at[i];
        n.work = dbl_work_copy(n.work);
        append(&copy, &n);
    }
    return copy;
}

static void free_nodes(nodes *list)
{
    for (int i = 0; i < list->count; i++)
        dbl_work_destroy(list->at[i].work);
    free(list->at);
    memset(list, 0, sizeof *list);
}

void dbl_capture_append(cudaStream_t stream, dbl_work *work)
{
    cudaGraph_t g = stream->capture;
    int slot = stream->slot;
    node n = {.work = work, .slot = slot};
    memcpy(n.after, g->clock[slot], sizeof n.after);
    append(&g->nodes, &n);
    g->clock[slot][slot] = ++g->issued[slot];
}

void dbl_capture_record(cudaEvent_t event, cudaStream_t stream)
{
    event->capture = stream->capture;
    memcpy(event->clock, stream->capture->clock[stream->slot], sizeof event->clock);
}

/* The stream joins the event's capture, or, if it is there already, learns of another branch. */
cudaError_t dbl_capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    cudaGraph_t g = event->capture;
    if (!g) {
        stream->capture->invalid = 1;
        dbl_complain("a captured stream waits for an event from outside its capture");
        return cudaErrorStreamCaptureIsolation;
    }
    if (g->ended) {
        dbl_complain("a wait for an event of a capture that has ended");
        return cudaErrorCapturedEvent;
    }
    if (stream->capture && stream->capture != g) {
        g->invalid = stream->capture->invalid = 1;
        return cudaErrorStreamCaptureMerge;
    }
    if (!stream->capture) {
        if (g->slots == SLOTS)
            return cudaErrorStreamCaptureUnsupported;
        stream->slot = g->slots++;
        stream->capture = g;
        g->stream[stream->slot] = stream;
    }
    for (int s = 0; s < SLOTS; s++)
        if (g->clock[stream->slot][s] < event->clock[s])
            g->clock[stream->slot][s] = event->clock[s];
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    DBL_ENTER_CUDA(cudaStreamBeginCapture);
    cudaError_t error = dbl_check_handle(stream, "cudaStreamBeginCapture");
    if (!error && stream->capture)
        error = cudaErrorIllegalState;
    if (error)
        return dbl_result(error);
    cudaGraph_t g = calloc(1, sizeof *g);
    g->magic = DBL_ALIVE;
    g->stream[0] = stream;
    g->slots = 1;
    g->mode = mode;
    g->breaks = atomic_load_explicit(&breaks[stream->device], memory_order_relaxed);
    stream->capture = g;
    stream->slot = 0;
    for (int i = 0; mode != cudaStreamCaptureModeRelaxed && i < MINE; i++)
        if (!mine[i]) {
            mine[i] = g;
            break;
        }
    if (mode == cudaStreamCaptureModeGlobal)
        atomic_fetch_add_explicit(&global_captures, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&active[stream->device], 1, memory_order_relaxed);
    dbl_count(DBL_GRAPH, 1);
    return cudaSuccess;
}

static int forks_are_joined(const struct CUgraph_st *g)
{
    for (int s = 1; s < g->slots; s++)
        if (g->clock[0][s] < g->issued[s])
            return 0;
    return 1;
}

static void forget(cudaGraph_t g)
{
    free_nodes(&g->nodes);
    g->magic = DBL_DEAD;
    dbl_count(DBL_GRAPH, -1);
    dbl_bury(g); /* events may still name it */
}

/* Takes the streams out of the capture; the thread must be the one that began it. */
static int leave_capture(cudaGraph_t g, int device)
{
    int found = g->mode == cudaStreamCaptureModeRelaxed;
    for (int i = 0; i < MINE; i++)
        if (mine[i] == g) {
            mine[i] = NULL;
            found = 1;
        }
    if (!found)
        return 0;
    for (int s = 0; s < g->slots; s++)
        g->stream[s]->capture = NULL;
    if (g->mode == cudaStreamCaptureModeGlobal)
        atomic_fetch_sub_explicit(&global_captures, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&active[device], 1, memory_order_relaxed);
    g->ended = 1;
    return 1;
}

/* When it fails by a rule, the capture ends all the same. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    int error;
    *out = NULL;
    dbl_enter(DBL_cudaStreamEndCapture, &error);
    cudaGraph_t g = stream->capture;
    if (!g || g->stream[0] != stream)
        return dbl_result(error ? (cudaError_t)error : cudaErrorIllegalState);
    if (!leave_capture(g, stream->device))
        return dbl_result(cudaErrorStreamCaptureWrongThread);
    if (!error && (g->invalid || g->breaks != atomic_load_explicit(&breaks[stream->device],
                                                                   memory_order_relaxed)))
        error = cudaErrorStreamCaptureInvalidated;
    if (!error && !forks_are_joined(g)) {
        dbl_complain("a capture ended while a forked stream had not joined");
        error = cudaErrorStreamCaptureUnjoined;
    }
    if (error)
        forget(g);
    else
        *out = g;
    return dbl_result((cudaError_t)error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    DBL_ENTER_CUDA(cudaStreamIsCapturing);
    cudaGraph_t g = stream->capture;
    *status = !g           ? cudaStreamCaptureStatusNone
              : g->invalid ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* ---- graphs --------------------------------------------------------------------------------- */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *list, size_t *count)
{
    DBL_ENTER_CUDA(cudaGraphGetNodes);
    if (list)
        return dbl_result(cudaErrorNotSupported);
    *count = (size_t)graph->nodes.count;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    int error;
    if (dbl_enter(DBL_cudaGraphDestroy, &error))
        return (cudaError_t)error;
    if (!graph || graph->magic != DBL_ALIVE) {
        dbl_complain("cudaGraphDestroy of what is no graph any more");
        return dbl_result(cudaErrorInvalidValue);
    }
    forget(graph);
    return dbl_result((cudaError_t)error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    DBL_ENTER_CUDA(cudaGraphInstantiate);
    (void)flags;
    cudaGraphExec_t exec = calloc(1, sizeof *exec);
    if (!exec)
        return dbl_result(cudaErrorMemoryAllocation);
    exec->magic = DBL_ALIVE;
    exec->nodes = copy_nodes(&graph->nodes);
    dbl_count(DBL_EXEC, 1);
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    int error;
    if (dbl_enter(DBL_cudaGraphExecDestroy, &error))
        return (cudaError_t)error;
    if (!exec || exec->magic != DBL_ALIVE) {
        dbl_complain("cudaGraphExecDestroy of what is no executable graph any more");
        return dbl_result(cudaErrorInvalidValue);
    }
    free_nodes(&exec->nodes); /* launches have copies */
    exec->magic = DBL_DEAD;
    dbl_bury(exec);
    dbl_count(DBL_EXEC, -1);
    return dbl_result((cudaError_t)error);
}

/* ---- a launch ------------------------------------------------------------------------------- */

struct replay {
    nodes nodes;
    uint32_t ran[SLOTS];
    uint32_t random;
    int left;
};

static int is_ready(const struct replay *r, const node *n)
{
    for (int s = 0; s < SLOTS; s++)
        if (r->ran[s] < n->after[s])
            return 0;
    return !n->done;
}

/* Runs one ready node, looking from a random place on; zero when none gets anywhere. */
static int run_one_node(struct replay *r)
{
    int count = r->nodes.count;
    int start = r->random ? (int)(dbl_random(&r->random) % (uint32_t)count) : 0;
    for (int i = 0; i < count; i++) {
        node *n = &r->nodes.at[(start + i) % count];
        if (!is_ready(r, n) || dbl_work_run(n->work) == DBL_BLOCKED)
            continue;
        n->done = 1;
        r->ran[n->slot]++;
        r->left--;
        return 1;
    }
    return 0;
}

static dbl_progress run_replay(dbl_work *work)
{
    struct replay *r = (struct replay *)work->data;
    while (r->left > 0)
        if (!run_one_node(r))
            return DBL_BLOCKED;
    return DBL_DONE;
}

static void drop_replay(dbl_work *work)
{
    free_nodes(&((struct replay *)work->data)->nodes);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    DBL_ENTER_CUDA(cudaGraphLaunch);
    cudaError_t error = dbl_check_stream(stream, "cudaGraphLaunch");
    if (!error && exec->magic != DBL_ALIVE) {
        dbl_complain("cudaGraphLaunch of a graph that was destroyed");
        error = cudaErrorInvalidValue;
    }
    if (!error && stream->capture)
        error = cudaErrorStreamCaptureUnsupported;
    if (error)
        return dbl_result(error);
    struct replay r = {
        .nodes = copy_nodes(&exec->nodes),
        .random = dbl_world.seed,
        .left = exec->nodes.count,
    };
    for (int i = 0; i < r.nodes.count; i++)
        r.nodes.at[i].work->device = stream->device;
    dbl_work *work = dbl_work_create("graph", run_replay, &r, sizeof r);
    work->drop = drop_replay;
    return dbl_result(dbl_enqueue(stream, work));
}
