/* SPDX-License-Identifier: MIT */
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
struct ls_tune_result; /* tune.h */

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

    /* The functions that follow serve ls_math_choose_plan (choice.c). */

    /* Writes the key of the plan's choice: all that decides which choice is best. */
    void (*key)(char *out, size_t size, const ls_math_inside *plan);
    /* Makes the candidates, at most `room`, in the sequence in which the library recommends them.
     * room 1: only the first one that may be used without measuring. Sets the first three fields of
     * `result` (tune.h) and returns the number of candidates, or a negative status. */
    int (*find)(ls_math_inside *plan, struct ls_tune_result *result, int room, ls_error *err);
    /* Makes the plan run candidate i. */
    void (*take)(ls_math_inside *plan, int i);
    /* Returns what the plan runs as text, which the caller frees with ls_free; NULL if the library
     * gives no text or memory runs out. */
    char *(*to_text)(const ls_math_inside *plan);
    /* Makes the plan run what a text says. Returns LS_OK or LS_EUNSUPPORTED. */
    int (*from_text)(ls_math_inside *plan, const char *text);
    const char *name; /* name of the library, for messages */
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

/* ---- choice.c: which candidate a plan runs --------------------------------------------------- */

/* Makes the plan run the choice of another machine, the choice on disk, or the best candidate,
 * which it then stores on disk. Errors: LS_EUNSUPPORTED, LS_EDEVICE, LS_ENOMEM. */
int ls_math_choose_plan(ls_math_inside *plan, ls_error *err);

/* ---- cudnn_engine.c: cuDNN's engines (implementations) that compute a graph ------------------ */

/* A *candidate* is an engine with its settings that may be chosen for a shape. */
enum { LS_ENGINES = 64 /* largest number of candidates */ };

/* Returns the largest workspace of a candidate in bytes: 1/256 of the device's memory, and at least
 * 256 MiB. */
size_t ls_conv_workspace_limit(const ls_math *math);

/* A finished execution plan of cuDNN, of a candidate. */
typedef struct ls_conv_engine {
    ls_graph_object plan;
    size_t workspace_bytes;
    int64_t number;
    uint64_t settings; /* hash of the engine's settings (knobs) */
    bool simple;       /* engines 0 and 1, which add term by term */
    bool own;          /* Lockstep's own kernels (own_conv.h); `plan` is NULL */
    char name[64];     /* "engine 6, tensor cores" */
} ls_conv_engine;

/* Fills `out` with at most `room` candidates, and returns their number. They come from all of
 * cuDNN's heuristics (modes A and B, and the fallback), first the first recommendation of each,
 * then the second of each, and so on. No two candidates have the same engine and settings. cuDNN
 * calls all of them deterministic and as precise as the shape requires; they need at most
 * ls_conv_workspace_limit bytes of workspace. Engines that cuDNN compiles at run time, which takes
 * up to seconds at each start, are candidates only if there are no others. room 1: a candidate that
 * may be used without measuring its error, so none that computes by FFT or by Winograd's
 * algorithm. */
int ls_conv_engine_candidates(ls_conv_engine *out, int room, const ls_graph *g, const ls_math *math,
                              const ls_math_shape *shape);

/* A setting of an engine: cuDNN's number of the kind of setting, and its value. */
typedef struct ls_conv_knob {
    int type;
    int64_t value;
} ls_conv_knob;
enum { LS_CONV_KNOBS = 64 /* largest number of settings that are read */ };

/* Reads the settings of an engine's configuration. Returns their number. */
int ls_conv_engine_knobs(ls_conv_knob out[LS_CONV_KNOBS], ls_graph_object config);

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

/* Stores a text about the choice for `key` (the candidates and what was measured) beside the
 * choice, for people. Failures are ignored. */
void ls_math_cache_remark(const ls_math *math, const char *key, const char *text);

/* Deletes the text that is stored on disk for `key`, if it still equals `text`, which cuDNN has
 * refused. Logs a warning. */
void ls_math_cache_drop(const ls_math *math, const char *key, const char *text);

#endif
