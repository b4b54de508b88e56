/* From a graph to engines that compute it, in the order in which cuDNN recommends them. */
#ifndef CUDA_CUDNN_ENGINE_H
#define CUDA_CUDNN_ENGINE_H

#include "cuda/cudnn_graph.h"

enum { LS_ENGINES = 8 /* most candidates */ };

/* One finished execution plan. */
typedef struct ls_engine {
    ls_graph_object plan;
    size_t workspace_bytes;
    char name[64]; /* "engine 6, tensor cores" */
} ls_engine;

/* Fills at most `room` candidates that are deterministic, as precise as the graph's shape asks, and
 * content with LS_ENGINE_WORKSPACE bytes; returns how many. `g` must be closed without failure. */
#define LS_ENGINE_WORKSPACE ((size_t)256 << 20)
int ls_engine_candidates(ls_engine *out, int room, const ls_graph *g, const ls_math *math,
                         const ls_math_shape *shape);

/* The candidate as text, or NULL; free it with ls_free. And back: LS_OK or not. */
char *ls_engine_to_text(const ls_engine *engine, const ls_math *math);
int ls_engine_from_text(ls_engine *out, const ls_math *math, const char *text);

void ls_engine_destroy(ls_engine *engine);

#endif
