# Communicators: how the gradients of workers on GPUs become one.
list(APPEND cuda_sources
  cuda_comm_group.c
  cuda_comm_links.c
  cuda_comm_local.c
  cuda_comm_merge.c
  cuda_comm_nccl.c
  cuda_comm_ordered.c
  cuda_comm_places.c)
