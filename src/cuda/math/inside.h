/* What the files behind math_lib.h share. */
#ifndef CUDA_MATH_INSIDE_H
#define CUDA_MATH_INSIDE_H

#include "cuda/cuda_device.h"
#include "cuda/math/math_lib.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <stdbool.h>

/* A plan that was chosen, here or by another machine. */
typedef struct ls_math_choice {
    struct ls_math_choice *next;
    const char *text; /* behind the key */
    char key[];
} ls_math_choice;

struct ls_math {
    ls_math_desc desc;
    ls_math_choice *choices;
    bool given;                          /* they are another machine's, and nothing else is timed */
    cudnnHandle_t cudnn;                 /* NULL when only planning … */
    cudnnBackendDescriptor_t properties; /* … for the device so described */
    cublasLtHandle_t blas;
};

typedef struct ls_math_inside ls_math_inside;

/* What makes and runs plans, of its own kind: a struct of `bytes` that begins with ls_math_inside. */
typedef struct ls_math_library {
    size_t bytes;
    /* Completes a plan that has its shape, and workspace_bytes; after a failure `fini` follows. */
    int (*init)(ls_math_inside *plan, ls_error *err);
    int (*run)(ls_math_inside *plan, cudaStream_t stream, const ls_math_operands *operands,
               ls_error *err);
    void (*fini)(ls_math_inside *plan);
} ls_math_library;

extern const ls_math_library ls_cudnn_conv;   /* cudnn_conv.c */
extern const ls_math_library ls_cublas_dense; /* cublas_dense.c */

/* The start of every plan. */
struct ls_math_inside {
    ls_math_plan plan; /* first */
    ls_math *math;
    ls_math_shape shape;
    const ls_math_library *library;
};

/* ---- cudnn_graph.c: cuDNN's graph API, as much of it as convolutions need -------------------- */

typedef cudnnBackendDescriptor_t ls_graph_object;

enum { LS_GRAPH_OBJECTS = 48, LS_GRAPH_OPERATIONS = 4 };

/* The first failure is kept and makes the rest do nothing. */
typedef struct ls_graph {
    ls_graph_object object[LS_GRAPH_OBJECTS]; /* all of them, to be destroyed */
    int objects;
    ls_graph_object operation[LS_GRAPH_OPERATIONS];
    int operations;
    ls_graph_object graph;
    cudnnStatus_t status;
    char text[256]; /* of the first failure */
} ls_graph;

/* What memory a run of a convolution's graph is bound to. */
enum { LS_GRAPH_A = 1, LS_GRAPH_B = 2, LS_GRAPH_OUT = 3, LS_GRAPH_BIAS = 4 };

/* The graph of a convolution's pass, with what is fused behind it; `g->status` says whether cuDNN takes
 * it. ls_graph_fini follows in any case. */
void ls_graph_of_conv(ls_graph *g, const ls_math *math, const ls_math_shape *shape);
void ls_graph_fini(ls_graph *g);

/* ---- cudnn_engine.c: from a graph to engines that compute it --------------------------------- */

enum {
    LS_ENGINES = 24,       /* most candidates … */
    LS_ENGINE_VARIANTS = 3 /* … and most of them that are one engine, with other knobs */
};
#define LS_ENGINE_WORKSPACE ((size_t)256 << 20)

/* One finished execution plan. */
typedef struct ls_conv_engine {
    ls_graph_object plan;
    size_t workspace_bytes;
    int64_t number;
    char name[64]; /* "engine 6, tensor cores" */
} ls_conv_engine;

/* Fills at most `room` candidates that are deterministic, as precise as the graph's shape asks, and
 * content with LS_ENGINE_WORKSPACE bytes, in the order in which cuDNN recommends them; returns how many.
 * One that cuDNN compiles at run time, which takes up to seconds at each start, is a candidate only where
 * there is no other. */
int ls_conv_engine_candidates(ls_conv_engine *out, int room, const ls_graph *g, const ls_math *math,
                              const ls_math_shape *shape);

/* The candidate as text, or NULL; free it with ls_free. And back: LS_OK or not. */
char *ls_conv_engine_to_text(const ls_conv_engine *engine, const ls_math *math);
int ls_conv_engine_from_text(ls_conv_engine *out, const ls_math *math, const char *text);

void ls_conv_engine_destroy(ls_conv_engine *engine);

/* ---- cache.c: choices in memory and on disk ---------------------------------------------- */

/* The text of the choice for `key`, or NULL. And its addition, unless it is there. Errors: LS_ENOMEM. */
const char *ls_math_chosen(const ls_math *math, const char *key);
int ls_math_note(ls_math *math, const char *key, const char *text, ls_error *err);
void ls_math_forget(ls_math *math);

/* The text that is kept under `key` (one line), or NULL: there is none, or it is damaged. Free it with
 * ls_free. */
char *ls_math_cache_get(const ls_math *math, const char *key);

/* Keeps `text` under `key`, unless another process has kept one first, which then stays. A cache that cannot
 * be written is logged and changes nothing. */
void ls_math_cache_put(const ls_math *math, const char *key, const char *text);

/* What is kept under `key` is of no use, if it still is `text`. */
void ls_math_cache_drop(const ls_math *math, const char *key, const char *text);

#endif
