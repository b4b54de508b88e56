/* The members of a run, each a process, as a rule one on each host.
 *
 *     ls_cluster_open(&c, &options, &err);            the courier joins the others over a wire
 *     ls_cluster_gather(c, …), ls_cluster_share(c, …) small things, and checkpoints
 *     ls_cluster_sum(c, …)                            the sum over all members' nodes of the shard tree
 *     ls_cluster_leave(c, "the disk is full")         tells the others why, if it is not in good order
 *     ls_cluster_close(c)
 *
 * One thread, the *courier*, owns the wire (<lockstep/cluster.h>). Everybody else gives it one order
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
 * Memory order. The order and what it points to are handed to the courier by a ring (sync/ring.h:
 * release, acquire), and its results back by `done`: the courier's release store, the waiting thread's acquire
 * load, with a park word (sync/park.h) for the sleep between them. There is one order at a time, so nothing
 * else of it is shared.
 */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <lockstep/cluster.h>
#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdatomic.h>
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
        *asks; /* not 0: this member asks all to stop; goes with each sum. NULL: never */
    const ls_host *host;
} ls_cluster_options;

/* Loads the engine liblockstep-NAME.so. Errors: LS_ENOENT (absent), LS_EDEVICE (broken), with the fix. */
int ls_wire_load(const ls_wire_type **out, const char *name, ls_error *err);

/* Collective: joins the others, and learns their names. Errors: the wire's, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_cluster_open(ls_cluster **out, const ls_cluster_options *options, ls_error *err);

/* Ends in good order with the others, unless there was a fault or this member has left. NULL is allowed.
 * LS_ESTALLED: a thread, or memory that the wire may still touch, was left behind. */
int ls_cluster_close(ls_cluster *cluster);

/* Any thread. */
int ls_cluster_member(const ls_cluster *cluster);
int ls_cluster_members(const ls_cluster *cluster);
const char *ls_cluster_host(const ls_cluster *cluster,
                            int member); /* "a", the name of its machine */

/* Between two orders. */
void ls_cluster_set_deadline(ls_cluster *cluster, uint64_t deadline_ns);

/* Told now and then while an order is waited for, on the waiting thread, so that it can show that it lives. */
typedef struct ls_cluster_wait {
    void (*beat)(void *user);
    void *user;
} ls_cluster_wait;

/* ---- orders: each returns LS_OK on all members, or sooner or later on none ---------------------- *
 * Errors of all: LS_ESTALLED (a member is lost, or has left, or the courier hangs), LS_EIO, LS_EINTERNAL
 * (the members gave different orders), LS_ENOMEM. */

/* part[m], of bytes[m] bytes, is member m's: this one's own is sent to all, the others are filled in. */
int ls_cluster_gather_parts(ls_cluster *cluster, void *const *part, const size_t *bytes,
                            ls_error *err);
/* The same for `bytes` bytes of each member, one behind the other in `all`. */
int ls_cluster_gather(ls_cluster *cluster, void *all, size_t bytes, ls_error *err);
/* The first member's `data`, of which all know the length. */
int ls_cluster_share(ls_cluster *cluster, void *data, size_t bytes, ls_error *err);

/* Any thread that could give an order. A fault of this member's own making: no further order succeeds, and the
 * others hear of it. The first reason counts. */
void ls_cluster_leave(ls_cluster *cluster, const char *why);

/* ---- sums over the shard tree ------------------------------------------------------------------ *
 * The leaves are split evenly over the members; the nodes of member m are the cover of its span
 * (ls_tree_cover). Member c evaluates the rest of the tree over chunk c of all nodes and sends the sum to
 * all, in pieces: while later ones are still on their way, earlier ones are added and go back. */

/* The leaves of a member. */
void ls_cluster_span(const ls_cluster *cluster, int shards, int member, int *lo, int *hi);

/* Makes room for sums of `floats` floats (a multiple of 16) over `shards` leaves; does nothing if it is there
 * already. Errors: LS_EINVAL (fewer leaves than members), LS_ENOMEM. */
int ls_cluster_prepare(ls_cluster *cluster, int shards, size_t floats, ls_error *err);
/* What this member brings: node i of its cover; and where the sum arrives. The wire's, while a sum is
 * under way. */
float *ls_cluster_node(const ls_cluster *cluster, int i);
const float *ls_cluster_total(const ls_cluster *cluster);
/* Bytes that the busiest member sends in a sum, as a multiple of what a ring all-reduce sends. */
double ls_cluster_bytes_factor(const ls_cluster *cluster);

/* total ← the sum, in tree order. `wait` may be NULL. */
int ls_cluster_sum(ls_cluster *cluster, const ls_cluster_wait *wait, ls_error *err);
/* Whether a member asked to stop when it brought its nodes to the last sum: the same on all of them. */
int ls_cluster_agreed(const ls_cluster *cluster);
/* After each attempt at a sum, also one that ended before ls_cluster_sum: whether this process has made use
 * of what was summed. One that was summed and has not been cannot be repeated: this member leaves. */
void ls_cluster_commit(ls_cluster *cluster, int committed);

#endif
