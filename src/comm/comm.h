/* Communicators: how the workers' gradients become one.
 *
 * What a group and a communicator are, what they promise and how they end is said in
 * <lockstep/communicator.h>, the table's header.
 *
 * Two kinds merge through host memory (host_group.h):
 *
 *     ordered   every worker sums one chunk of the arena from everybody's partial sums, in the
 *               order of the shard tree, then gathers the other chunks: the same bits on any
 *               number of workers
 *     naive     the textbook's: rank 0 adds up everybody's gradients, parameter by parameter,
 *               then everybody copies the sum back; the bits depend on the number of workers
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "comm/fold.h"

#include <lockstep/communicator.h>

#define LS_COMM(name) extern const ls_comm_type ls_comm_##name;
#include "comm/comms.def"
#undef LS_COMM

/* The communicators by name, NULL-terminated. */
const ls_comm_type *const *ls_comm_types(void);

enum { LS_COMM_WHY = 128 };

/* The one of `types` (NULL-terminated: these, or a device's own) that is called `name`. NULL: none is,
 * and `why` says what to do: "did you mean 'ordered'?". */
const ls_comm_type *ls_comm_find(const ls_comm_type *const *types, const char *name,
                                 char why[LS_COMM_WHY]);

#endif
