/* Declarations that the files of the math library share; math_lib.h is its interface. */
#ifndef CUDA_MATH_INSIDE_H
#define CUDA_MATH_INSIDE_H

#include "cuda/cuda_device.h"
#include "cuda/math/math_lib.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <stdbool.h>

/* A choice: the plan that was chosen for a shape, by this device or by another machine
 * (math_lib.h). */
typedef struct ls_math_choice {
    struct ls_math_choice *next;
    const char *text; /* the plan as text, stored after the key */
    char key[];
} ls_math_choice;

struct ls_math {
    ls_math_desc desc;
    ls_math_choice *choices;
    bool given;          /* the choices come from another machine, and this device times nothing */
    cudnnHandle_t cudnn; /* NULL if this ls_math can only plan */
    cudnnBackendDescriptor_t properties; /* the described device, if this ls_math can only plan */
    cublasLtHandle_t blas;
};

typedef struct ls_math_inside ls_math_inside;

/* Functions that create and run plans of one kind. A plan is a struct of `bytes` bytes that begins
 * with ls_math_inside. */
typedef struct ls_math_library {
    size_t bytes;
    /* Completes a plan whose shape is set, including workspace_bytes. `fini` is called even after a
     * failure. */
    int (*init)(ls_math_inside *plan, ls_error *err);
    int (*run)(ls_math_inside *plan, cudaStream_t stream, const ls_math_operands *operands,
               ls_error *err);
    void (*fini)(ls_math_inside *plan);
} ls_math_library;

extern const ls_math_library ls_cudnn_conv;   /* cudnn_conv.c */
extern const ls_math_library ls_cublas_dense; /* cublas_dense.c */

/* Base of every plan. */
struct ls_math_inside {
    ls_math_plan plan; /* base; must be first */
    ls_math *math;
    ls_math_shape shape;
    const ls_math_library *library;
};

/* ---- cudnn_graph.c: the parts of cuDNN's graph API that convolutions need -------------------- */

typedef cudnnBackendDescriptor_t ls_graph_object;

enum { LS_GRAPH_OBJECTS = 48, LS_GRAPH_OPERATIONS = 4 };

/* A graph under construction. The first failure is stored in `status` and `text`. After a failure
 * all functions that extend the graph do nothing. */
typedef struct ls_graph {
    ls_graph_object object[LS_GRAPH_OBJECTS]; /* all objects, to be destroyed at the end */
    int objects;
    ls_graph_object operation[LS_GRAPH_OPERATIONS];
    int operations;
    ls_graph_object graph;
    cudnnStatus_t status;
    char text[256]; /* text of the first failure */
} ls_graph;

/* Numbers of the tensors of a convolution's graph to which a run binds memory. */
enum { LS_GRAPH_A = 1, LS_GRAPH_B = 2, LS_GRAPH_OUT = 3, LS_GRAPH_BIAS = 4 };

/* Builds the graph of one pass of a convolution, including the fused operations that follow it.
 * `g->status` says whether cuDNN accepts the graph. Call ls_graph_fini in either case. */
void ls_graph_of_conv(ls_graph *g, const ls_math *math, const ls_math_shape *shape);
/* Destroys all objects of the graph. */
void ls_graph_fini(ls_graph *g);

/* ---- cudnn_engine.c: cuDNN's engines (implementations) that compute a graph ------------------ */

/* A *candidate* is an engine with its settings that may be chosen for a shape. */
enum {
    LS_ENGINES = 24, /* largest number of candidates */
    /* largest number of candidates that use the same engine with different settings */
    LS_ENGINE_VARIANTS = 3
};
#define LS_ENGINE_WORKSPACE ((size_t)256 << 20)

/* A finished execution plan of cuDNN, of a candidate. */
typedef struct ls_conv_engine {
    ls_graph_object plan;
    size_t workspace_bytes;
    int64_t number;
    char name[64]; /* "engine 6, tensor cores" */
} ls_conv_engine;

/* Fills `out` with at most `room` candidates, in the sequence in which cuDNN recommends them.
 * Returns their number. A candidate is deterministic, is as precise as the shape requires, and
 * needs at most LS_ENGINE_WORKSPACE bytes of workspace. Engines that cuDNN compiles at run time are
 * candidates only if there are no other candidates, because compiling takes up to seconds at each
 * start. */
int ls_conv_engine_candidates(ls_conv_engine *out, int room, const ls_graph *g, const ls_math *math,
                              const ls_math_shape *shape);

/* Returns the candidate as text, which the caller frees with ls_free; NULL if cuDNN does not give
 * the text or memory runs out. */
char *ls_conv_engine_to_text(const ls_conv_engine *engine, const ls_math *math);
/* Restores a candidate from its text. Returns LS_OK or LS_EUNSUPPORTED. */
int ls_conv_engine_from_text(ls_conv_engine *out, const ls_math *math, const char *text);

void ls_conv_engine_destroy(ls_conv_engine *engine);

/* ---- cache.c: choices in memory and on disk -------------------------------------------------- */

/* Returns the text of the choice for `key`, or NULL. */
const char *ls_math_chosen(const ls_math *math, const char *key);
/* Adds a choice to those in memory, unless there is one for the key already. `text` may be NULL:
 * nothing is added. Errors: LS_ENOMEM. */
int ls_math_note(ls_math *math, const char *key, const char *text, ls_error *err);
/* Frees all choices in memory. */
void ls_math_forget(ls_math *math);

/* Returns the text that is stored on disk for `key` (one line); the caller frees it with ls_free.
 * Returns NULL if there is none or the file is damaged. */
char *ls_math_cache_get(const ls_math *math, const char *key);

/* Stores `text` on disk for `key`. If another process has already stored a text for the key, that
 * text stays. If the file cannot be written, logs a warning and returns as usual. */
void ls_math_cache_put(const ls_math *math, const char *key, const char *text);

/* Deletes the text that is stored on disk for `key`, if it still equals `text`, which cuDNN has
 * refused. Logs a warning. */
void ls_math_cache_drop(const ls_math *math, const char *key, const char *text);

#endif
