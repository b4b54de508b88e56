/* SPDX-License-Identifier: MIT */
/* NCCL, NVIDIA's library that moves and adds data of several GPUs. The plugin loads NCCL when
 * several GPUs merge, and is not linked with it. A program that uses one GPU can therefore load
 * another copy of NCCL later, as PyTorch does. Tests link a test double of NCCL instead
 * (tests/doubles/nccl_comm.c). */
#ifndef CUDA_COMM_NCCL_LIB_H
#define CUDA_COMM_NCCL_LIB_H

#include <lockstep/status.h>
#include <nccl.h>
#include <stdio.h>

/* FUNCTION(name) for each function of NCCL that is used. */
#define LS_NCCL_FUNCTIONS(FUNCTION)                                                                \
    FUNCTION(ncclGetVersion)                                                                       \
    FUNCTION(ncclGetErrorString)                                                                   \
    FUNCTION(ncclGetUniqueId)                                                                      \
    FUNCTION(ncclCommInitRankConfig)                                                               \
    FUNCTION(ncclCommAbort)                                                                        \
    FUNCTION(ncclCommGetAsyncError)                                                                \
    FUNCTION(ncclGroupStart)                                                                       \
    FUNCTION(ncclGroupEnd)                                                                         \
    FUNCTION(ncclAllReduce)                                                                        \
    FUNCTION(ncclSend)                                                                             \
    FUNCTION(ncclRecv)

typedef struct ls_nccl {
#define LS_NCCL_SLOT(name) __typeof__(name) *name; /* NOLINT(bugprone-macro-parentheses) */
    LS_NCCL_FUNCTIONS(LS_NCCL_SLOT)
#undef LS_NCCL_SLOT
    int version;    /* version of the loaded library, as NCCL counts: 22809; 0: nothing is loaded */
    char path[256]; /* file from which it was loaded */
} ls_nccl;

/* Loads NCCL, which stays loaded until the process ends. If the process has loaded a copy of NCCL
 * already, that copy is used. Errors: LS_EUNSUPPORTED, with a text that says which library was
 * tried, or that it is older than the NCCL of the build. Thread: any. */
int ls_nccl_load(ls_nccl *out, ls_error *err);

/* Loads NCCL from the library with this name; for tests. */
int ls_nccl_load_from(ls_nccl *out, const char *name, ls_error *err);

/* Writes a version as text: "2.28.9" for 22809. */
static inline void ls_nccl_version_text(char out[16], int version)
{
    snprintf(out, 16, "%d.%d.%d", version / 10000 % 100, version / 100 % 100, version % 100);
}

#endif
