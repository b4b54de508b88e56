/* SPDX-License-Identifier: MIT */
/* CUPTI, NVIDIA's library that times the work of a GPU. The plugin loads CUPTI when a timeline is
 * requested and is not linked with it. Therefore the plugin also runs where CUPTI is not installed.
 * Tests link a test double of CUPTI instead (tests/doubles/cupti.c). */
#ifndef CUDA_CUPTI_LIB_H
#define CUDA_CUPTI_LIB_H

#include <lockstep/status.h>

/* Defined if the plugin is built with CUPTI's header. */
#if defined __has_include
#if __has_include(<cupti.h>)
#define LS_HAVE_CUPTI 1
#endif
#endif

#ifdef LS_HAVE_CUPTI
#include <cupti.h>

/* FUNCTION(name) for each function of CUPTI that is used. */
#define LS_CUPTI_FUNCTIONS(FUNCTION)                                                               \
    FUNCTION(cuptiActivityRegisterTimestampCallback)                                               \
    FUNCTION(cuptiActivityRegisterCallbacks)                                                       \
    FUNCTION(cuptiActivityEnable)                                                                  \
    FUNCTION(cuptiActivityDisable)                                                                 \
    FUNCTION(cuptiActivityFlushAll)                                                                \
    FUNCTION(cuptiActivityGetNextRecord)                                                           \
    FUNCTION(cuptiActivityGetNumDroppedRecords)                                                    \
    FUNCTION(cuptiGetStreamIdEx)                                                                   \
    FUNCTION(cuptiGetResultString)

typedef struct ls_cupti {
#define LS_CUPTI_SLOT(name) __typeof__(name) *name; /* NOLINT(bugprone-macro-parentheses) */
    LS_CUPTI_FUNCTIONS(LS_CUPTI_SLOT)
#undef LS_CUPTI_SLOT
} ls_cupti;

/* The newest version of each record type in CUPTI's header. The fields that this plugin reads have
 * had the same offsets in all earlier versions. */
#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 ls_cupti_kernel;
typedef CUpti_ActivityMemcpy6 ls_cupti_copy;
#else
typedef CUpti_ActivityKernel9 ls_cupti_kernel;
typedef CUpti_ActivityMemcpy5 ls_cupti_copy;
#endif
typedef CUpti_ActivityMemcpyPtoP4 ls_cupti_peer_copy;
typedef CUpti_ActivityMemset4 ls_cupti_fill;

/* Loads CUPTI, which stays loaded until the process ends. Errors: LS_EUNSUPPORTED, with a text that
 * says which library was tried. Thread: any. */
int ls_cupti_load(ls_cupti *out, ls_error *err);

/* Loads CUPTI from the library with this name; for tests. */
int ls_cupti_load_from(ls_cupti *out, const char *name, ls_error *err);
#endif

#endif
