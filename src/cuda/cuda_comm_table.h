/* The communicators of CUDA devices: the device table's `communicators`.
 *
 *     ordered   the same bits on any number of workers, which share one GPU or have one each
 *     nccl      NCCL's all-reduce; the bits depend on the number of workers
 *     local     as `ordered`, for workers that share one GPU; refuses others
 */
#ifndef CUDA_CUDA_COMM_TABLE_H
#define CUDA_CUDA_COMM_TABLE_H

#include <lockstep/communicator.h>

extern const ls_comm_type ls_cuda_comm_ordered, ls_cuda_comm_nccl, ls_cuda_comm_local;

/* NULL-terminated, static. Any thread. */
const ls_comm_type *const *ls_cuda_comms(void);

#endif
