/* SPDX-License-Identifier: MIT */
/* The double of src/cuda/comm/nccl_lib.h: the functions of the NCCL double in place of a loaded
 * library. */
#include "cuda/comm/nccl_lib.h"

#include "doubles/nccl_inside.h"

#include <stdio.h>

int ls_nccl_load(ls_nccl *out, ls_error *err)
{
    int error;
    if (dbl_enter(DBL_ncclLoad, &error)) {
        err->status = LS_EUNSUPPORTED;
        snprintf(err->text, sizeof err->text, "NCCL does not load: a failure of the double");
        return LS_EUNSUPPORTED;
    }
#define TAKE(function) out->function = function;
    LS_NCCL_FUNCTIONS(TAKE)
#undef TAKE
    snprintf(out->path, sizeof out->path, "the double");
    return ncclGetVersion(&out->version) == ncclSuccess ? LS_OK : LS_EUNSUPPORTED;
}
