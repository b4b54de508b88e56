/* The communicators of CUDA devices: the device table's `communicators`.
 *
 *     ordered   the same bits on any number of workers, however they share GPUs
 *     nccl      NCCL's all-reduce, beside the backward pass; the bits depend on the number of
 *               workers, and each needs a GPU of its own
 *     local     as `ordered`, for workers that share one GPU; refuses others
 */
#ifndef CUDA_CUDA_COMM_TABLE_H
#define CUDA_CUDA_COMM_TABLE_H

#include <lockstep/communicator.h>

extern const ls_comm_type ls_cuda_comm_ordered, ls_cuda_comm_nccl, ls_cuda_comm_local;

/* NULL-terminated, static. Any thread. */
const ls_comm_type *const *ls_cuda_comms(void);

#endif
