# Communicators: how the gradients of workers on GPUs become one.
list(APPEND cuda_sources
  cuda_comm_buckets.c
  cuda_comm_check.c
  cuda_comm_group.c
  cuda_comm_links.c
  cuda_comm_local.c
  cuda_comm_meet.c
  cuda_comm_merge.c
  cuda_comm_nccl.c
  cuda_comm_ordered.c
  cuda_comm_places.c
  cuda_comm_table.c
  cuda_comm_tree.c)
