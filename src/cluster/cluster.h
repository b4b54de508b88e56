/* The members of a run, each a process, as a rule one on each host.
 *
 *     ls_cluster_open(&c, &options, &err);            the courier joins the others over a wire
 *     ls_cluster_gather(c, …), ls_cluster_share(c, …) small things, and checkpoints
 *     ls_cluster_sum(c, …)                            the sum over all members' nodes of the shard tree
 *     ls_cluster_regroup(c, &err)                     members are lost: goes on among those that are left
 *     ls_cluster_leave(c, "the disk is full")         tells the others why, if it is not in good order
 *     ls_cluster_close(c)
 *
 * One thread, the *courier*, owns the wire (<lockstep/sys/wire.h>). Everybody else gives it one order
 * at a time, from one thread at a time, and waits until it is done. While there is none the courier sends and
 * hears signs of life. All members give the same orders in the same sequence; each order begins with a head
 * by which the others see that it is the same.
 *
 * How it ends. A member that has been silent for the deadline, one that says that it leaves, a wire that
 * fails, or a head that is not the expected one are a *fault*: from then on every order fails at once, with
 * the same message, and what the wire may still touch is never freed. Time in which this process was stopped
 * counts against nobody (base/clock.h). No wait is without limit: the courier ends each order by itself
 * when others fall silent; and who waits for the courier leaves it behind when it shows no sign of life
 * itself, which an engine's own hang can cause.
 *
 * Where the engine can regroup, and ls_cluster_regroups has been called, a *loss* is no fault: the order under way
 * fails, and the courier at once meets the other couriers that are left, while callers may still be busy with
 * something else. They agree who goes on, and get a wire of their own; signs of life are sent over it from then
 * on. Orders fail until the caller has taken note by ls_cluster_regroup, behind which members have other numbers,
 * in the old order, and all has to be prepared anew.
 *
 * Memory order. The order and what it points to are handed to the courier by a ring (sync/ring.h:
 * release, acquire), and its results back by `done`: the courier's release store, the waiting thread's acquire
 * load, with a park word (sync/park.h) for the sleep between them. There is one order at a time, so nothing
 * else of it is shared but how much of its nodes this member has brought to a sum that is under way: the caller
 * writes floats and then their number (release), the courier reads the number (acquire) and then sends no more
 * than these; none is written again before the sum is done.
 */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <lockstep/sys/communicator.h>
#include <lockstep/sys/wire.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_cluster ls_cluster;

enum { LS_MEMBER_NAME = 64 };

typedef struct ls_cluster_options {
    const ls_wire_type *type;
    const void *comm;     /* ls_wire_options.comm */
    uint64_t deadline_ns; /* how long a member may be silent */
    uint64_t open_ns;     /* how long joining may take */
    const atomic_int
        *asks;     /* not 0: this member asks all to stop; goes with each sum. NULL: never */
    bool regroups; /* ls_cluster_regroups may be called one day */
    const ls_host *host;
} ls_cluster_options;

/* Loads the engine liblockstep-NAME.so. Errors: LS_ENOENT (absent), LS_EDEVICE (broken), with the fix. */
int ls_wire_load(const ls_wire_type **out, const char *name, ls_error *err);

/* Collective: joins the others, and learns their names. Errors: the wire's, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_cluster_open(ls_cluster **out, const ls_cluster_options *options, ls_error *err);

/* Ends in good order with the others, unless there was a fault or this member has left. NULL is allowed.
 * LS_ESTALLED: a thread, or memory that the wire may still touch, was left behind. */
int ls_cluster_close(ls_cluster *cluster);

/* Caller's thread, before the close: a thread left behind may still use the sums' memory, which then stays. */
void ls_cluster_keep_memory(ls_cluster *cluster);

/* Any thread. */
int ls_cluster_member(const ls_cluster *cluster);
int ls_cluster_members(const ls_cluster *cluster);
const char *ls_cluster_host(const ls_cluster *cluster,
                            int member); /* "a", the name of its machine */

/* Whether the engine can regroup, and was opened so that it may. */
bool ls_cluster_can_regroup(const ls_cluster *cluster);
/* From now on losses are no faults: called by all members between the same two orders. */
void ls_cluster_regroups(ls_cluster *cluster);
/* Whether the last order failed by a loss, behind which ls_cluster_regroup may help. */
bool ls_cluster_lost(const ls_cluster *cluster);
/* Why it did. */
void ls_cluster_why(const ls_cluster *cluster, ls_error *out);
/* Goes on among those that are left. Sums have to be prepared anew; the memory of the last ones stays until close,
 * or until ls_cluster_free_old, because a group that goes, or a thread that sleeps, may still touch it. Errors:
 * LS_ESTALLED (this member does not go on), LS_ENOMEM. */
int ls_cluster_regroup(ls_cluster *cluster, ls_error *err);
/* Nothing touches the memory of sums before the last regrouping any more. */
void ls_cluster_free_old(ls_cluster *cluster);
/* What a member was called in the first group. */
int ls_cluster_origin(const ls_cluster *cluster, int member);

/* ---- orders: each returns LS_OK on all members, or sooner or later on none ---------------------- *
 * Errors of all: LS_ESTALLED (a member is lost, or has left, or the courier hangs), LS_EIO, LS_EINTERNAL
 * (the members gave different orders), LS_ENOMEM. */

/* part[m], of bytes[m] bytes, is member m's: this one's own is sent to all, the others are filled in. */
int ls_cluster_gather_parts(ls_cluster *cluster, void *const *part, const size_t *bytes,
                            ls_error *err);
/* The same for `bytes` bytes of each member, one behind the other in `all`. */
int ls_cluster_gather(ls_cluster *cluster, void *all, size_t bytes, ls_error *err);
/* The first member's `data`, or that of member `from`, of which all know the length. */
int ls_cluster_share(ls_cluster *cluster, void *data, size_t bytes, ls_error *err);
int ls_cluster_share_from(ls_cluster *cluster, int from, void *data, size_t bytes, ls_error *err);

/* Any thread that could give an order. A fault of this member's own making: no further order succeeds, and the
 * others hear of it. The first reason counts. */
void ls_cluster_leave(ls_cluster *cluster, const char *why);
/* Likewise, and the others do not go on either: LS_EDIVERGED of their orders. */
void ls_cluster_end_all(ls_cluster *cluster, const char *why);

/* ---- sums over the shard tree ------------------------------------------------------------------ *
 * The leaves are split evenly over the members; the nodes of member m are the cover of its span
 * (ls_tree_cover). The arena is cut into pieces, which the members have in turn: each evaluates the rest of the
 * tree over its pieces of all nodes and sends the sums to all. While later ones are still on their way, or not
 * even computed, earlier ones are added and go back. */

/* The leaves of a member. */
void ls_cluster_span(const ls_cluster *cluster, int shards, int member, int *lo, int *hi);

/* Makes room for sums of `floats` floats (a multiple of 16) over `shards` leaves; does nothing if it is there
 * already. Errors: LS_EINVAL (fewer leaves than members), LS_ENOMEM. */
int ls_cluster_prepare(ls_cluster *cluster, int shards, size_t floats, ls_error *err);
/* What communicators see of it, by which each function here is explained: ls_members_ops in
 * <lockstep/sys/communicator.h>. Errors: those of orders. */
float *ls_cluster_node(const ls_cluster *cluster, int i);
const float *ls_cluster_total(const ls_cluster *cluster);
int ls_cluster_begin_sum(ls_cluster *cluster, ls_error *err);
void ls_cluster_ready(ls_cluster *cluster, size_t floats);
int ls_cluster_sum(ls_cluster *cluster, const ls_cluster_wait *wait, ls_error *err);
int ls_cluster_agreed(const ls_cluster *cluster);
void ls_cluster_commit(ls_cluster *cluster, int committed);
extern const ls_members_ops ls_cluster_ops;

/* Bytes that the busiest member sends in a sum, as a multiple of what a ring all-reduce sends. */
double ls_cluster_bytes_factor(const ls_cluster *cluster);

#endif
