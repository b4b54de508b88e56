/* The communicators of CUDA devices, by name. */
#include "cuda/cuda_comm_group.h"

#define ROW(row_name, bits, ready)                                                                 \
    {                                                                                              \
        .name = (row_name), .same_bits = (bits), .group_create = ls_cuda_group_create,             \
        .group_destroy = ls_cuda_group_destroy, .set_timeout = ls_cuda_group_set_timeout,          \
        .join = ls_cuda_comm_join, .leave = ls_cuda_comm_leave, .check = ls_cuda_comm_check,       \
        .all_reduce = ls_cuda_comm_all_reduce, .merge_ready = (ready),                             \
        .abort = ls_cuda_group_abort, .may_read = ls_cuda_group_may_read,                          \
    }

const ls_comm_type ls_cuda_comm_ordered = ROW("ordered", 1, NULL);
const ls_comm_type ls_cuda_comm_nccl = ROW("nccl", 0, ls_cuda_comm_merge_ready);
const ls_comm_type ls_cuda_comm_local = ROW("local", 1, NULL);

const ls_comm_type *const *ls_cuda_comms(void)
{
    static const ls_comm_type *const types[] = {&ls_cuda_comm_ordered, &ls_cuda_comm_nccl,
                                                &ls_cuda_comm_local, NULL};
    return types;
}
