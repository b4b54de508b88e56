/* The members of a run: processes, usually one on each host.
 *
 *     ls_cluster_open(&c, &options, &err);             joins the others over a transport
 *     ls_cluster_gather(c, …), ls_cluster_share(c, …)  small data, and checkpoints
 *     ls_cluster_sum(c, …)                             sum over all nodes of the shard tree
 *     ls_cluster_regroup(c, &err)                      after losses: goes on with the survivors
 *     ls_cluster_leave(c, "the disk is full")          tells the others the reason for a failure
 *     ls_cluster_close(c)
 *
 * Threads. A progress thread, called the courier in the code, owns the transport
 * (<lockstep/sys/wire.h>). An *order* is a request of a caller to the progress thread: to join, to
 * gather data, to sum, to regroup or to close. One order at a time is given, by one thread at a
 * time, and that thread waits until the order is done. Between orders the progress thread sends and
 * receives signs of life. All members give the same orders in the same sequence. Each sum and each
 * gather (messages call both an exchange) begins with a header, by which the members check that
 * they all do the same.
 *
 * Faults. A member that has been silent for the deadline, a member that says that it leaves, a
 * transport that fails, or a header other than the expected one is a *fault*. From then on every
 * order fails at once, with the same message, and memory that the transport may still touch is
 * never freed. Time during which this process was stopped counts against no member (base/clock.h).
 * No wait is unlimited: the progress thread ends each order itself when other members are silent.
 * If the progress thread itself shows no sign of life, for example because an engine hangs, its
 * caller stops waiting for it.
 *
 * Losses. If the engine can regroup, and ls_cluster_regroups has been called, the *loss* of a
 * member is not a fault. The order in progress fails, and the progress threads of the surviving
 * members contact each other at once, while callers may still be busy with something else. They
 * agree which members go on, and open a new transport, over which they send signs of life from then
 * on. Orders fail until the caller calls ls_cluster_regroup. After that, members have other
 * numbers, in the old order, and everything must be prepared anew.
 *
 * Memory order. Let C be the calling thread (callers synchronise among themselves, so that one
 * thread at a time calls), and P the progress thread.
 *
 * 1. Order. C writes the order, which may refer to other memory, and stores false in `done`
 *    (relaxed). Then it pushes the order's kind into the ring `orders`. The push releases, and the
 *    pop by P acquires (sync/ring.h), so these writes happen before P works on the order.
 * 2. Result. P writes the results, stores true in `done` (release) and wakes C. C loads `done`
 *    (acquire) until it is true. It cannot read the true of an earlier order: its own store of
 *    false is later in the modification order, and P's store of true follows that, because of 1. So
 *    everything that P did for the order happens before what C does next. C may read the results
 *    and reuse the order's memory. The transport has finished with this memory as well, because an
 *    order succeeds only when all its transfers have ended. After a fault the memory is not used
 *    again. After a loss it is used again only after ls_cluster_regroup, when P has aborted the
 *    former transport; an engine that can regroup touches no memory after that. The park word on
 *    which C sleeps (sync/park.h) is not part of this argument, since C checks `done` itself.
 * 3. Parts of a sum. While P works on a sum, C writes floats of this member's nodes and then their
 *    number in sum.ready (release). P loads the number (acquire) and sends and adds only floats
 *    below it, so the writes of these floats happen before P's reads. C does not write them again
 *    before the sum's result, after which 2 orders P's reads before C's writes. C then resets
 *    sum.ready to 0 (relaxed). P loads it again only in a later sum; the push of that sum follows
 *    the reset, so P cannot read the old number.
 * 4. Leaving. C writes `leaving` and then true in `leave_asked` (release). P loads `leave_asked`
 *    (acquire) before it reads `leaving`.
 * 5. C stores `regroups` (release) after it has written what options.refuses reads. P loads it
 *    (acquire) before it calls options.refuses, so that call sees these writes. Elsewhere P loads
 *    it relaxed, because there it is a decision by itself.
 * 6. `joining` and options.asks are relaxed. Each is a decision or a request by itself and hands
 *    over no other memory. `joining` is decided by compare-and-exchange, so that exactly one of C
 *    and P succeeds. */
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
    uint64_t deadline_ns; /* a member that is silent for longer is lost */
    uint64_t open_ns;     /* longest time for joining the other members */
    /* non-zero: this member asks all members to stop; the next sum tells them. NULL: never */
    const atomic_int *asks;
    bool regroups; /* ls_cluster_regroups may be called later */
    bool admits;   /* other processes may be admitted later, or this one may be admitted */
    /* [fingerprint_bytes] what the members of a run compare if this process is to be admitted;
     * NULL: it cannot be */
    const void *fingerprint;
    size_t fingerprint_bytes;
    /* Compares the fingerprint of a process that wants to be admitted: ls_wire_options.refuses.
     * Called on the progress thread, only after ls_cluster_regroups. */
    int (*refuses)(void *user, const char *host, const void *fingerprint, size_t bytes, char *why,
                   size_t size);
    void *user;
    const ls_host *host;
} ls_cluster_options;

/* Loads the engine liblockstep-NAME.so. Errors: LS_ENOENT (absent), LS_EDEVICE
 * (broken), with the cure. */
int ls_wire_load(const ls_wire_type **out, const char *name, ls_error *err);

/* Joins the others and learns their names; all members must call it. The caller closes *out.
 * Errors: those of the transport, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_cluster_open(ls_cluster **out, const ls_cluster_options *options, ls_error *err);

/* Closes the transport and frees the cluster. Waits until the other members close it too, unless
 * there was a fault or this member has left. NULL is allowed. Returns LS_ESTALLED if the progress
 * thread hangs, or if the transport may still use some memory; that memory is then not freed. */
int ls_cluster_close(ls_cluster *cluster);

/* Declares that a stalled worker may still use the memory of sums. ls_cluster_close then does not
 * free it. Called before ls_cluster_close, on the same thread. */
void ls_cluster_keep_memory(ls_cluster *cluster);

/* ls_cluster_member returns the number of this member, ls_cluster_members the number of
 * members. Any thread. */
int ls_cluster_member(const ls_cluster *cluster);
int ls_cluster_members(const ls_cluster *cluster);
/* Returns the name of the member's host, which is valid until the group changes
 * (ls_cluster_regroup). */
const char *ls_cluster_host(const ls_cluster *cluster, int member);

/* Returns whether the engine can regroup and was opened for it. */
bool ls_cluster_can_regroup(const ls_cluster *cluster);
/* From now on the loss of a member is not a fault, and the surviving members regroup. All members
 * must call it between the same two orders. */
void ls_cluster_regroups(ls_cluster *cluster);
/* Returns whether the last order failed because a member was lost, so that the caller may call
 * ls_cluster_regroup and go on. */
bool ls_cluster_lost(const ls_cluster *cluster);
/* Copies the error of the last order that failed. */
void ls_cluster_why(const ls_cluster *cluster, ls_error *out);
/* Adopts the group of the surviving members, so that orders succeed again. Sums must be prepared
 * anew (ls_cluster_prepare). The memory of earlier sums is not freed before ls_cluster_free_old or
 * ls_cluster_close, because a worker that sleeps in the former group may still use it. Errors:
 * LS_ESTALLED (this member is not in the new group), LS_ENOMEM. */
int ls_cluster_regroup(ls_cluster *cluster, ls_error *err);
/* Frees the memory of sums from before the last regrouping, which no thread may use any more. */
void ls_cluster_free_old(ls_cluster *cluster);
/* Returns a member's number in the first group. A member that was admitted has one that no other
 * had. */
int ls_cluster_origin(const ls_cluster *cluster, int member);

/* ---- admission (admit.c) -----------------------------------------------------------------------
 */

/* Returns whether the engine can admit processes and was opened for it. */
bool ls_cluster_can_admit(const ls_cluster *cluster);
/* Returns whether this process was admitted to a run that had begun. */
bool ls_cluster_was_admitted(const ls_cluster *cluster);
/* Returns the index of the member that is new in this group; 0: none is. All members of the group
 * get the same. */
int ls_cluster_newcomer(const ls_cluster *cluster);
/* An order that exchanges nothing: tells how many processes wait at this member to be admitted, and
 * which has waited longest. Sets out->number in any case. Errors: those of orders. */
int ls_cluster_arrivals(ls_cluster *cluster, ls_arrival *out, int *count, ls_error *err);
/* Ends this group so that one with the arrival follows. All members must call it with the same
 * arrival. It always fails: as after a loss (ls_cluster_lost), and ls_cluster_regroup goes on with
 * the new group, which contains the arrival unless that was lost; or by a fault. Errors:
 * LS_ESTALLED, those of orders. */
int ls_cluster_admit(ls_cluster *cluster, const ls_arrival *arrival, ls_error *err);

/* ---- orders ------------------------------------------------------------------------------------
 *
 * After a failure on one member, the same order or a later one fails on every member. Errors of
 * all: LS_ESTALLED (a member is lost or has left, or the progress thread hangs), LS_EIO,
 * LS_EINTERNAL (the members gave different orders), LS_ENOMEM. */

/* Gathers part[m], of bytes[m] bytes, from each member m: sends this member's part to all others,
 * and writes the parts of the others. */
int ls_cluster_gather_parts(ls_cluster *cluster, void *const *part, const size_t *bytes,
                            ls_error *err);
/* Gathers `bytes` bytes from each member, stored in `all` one after another. The caller has
 * written its own part. */
int ls_cluster_gather(ls_cluster *cluster, void *all, size_t bytes, ls_error *err);
/* ls_cluster_share sends `data` of the first member to all others, ls_cluster_share_from that of
 * member `from`. All members must pass the same number of bytes. */
int ls_cluster_share(ls_cluster *cluster, void *data, size_t bytes, ls_error *err);
int ls_cluster_share_from(ls_cluster *cluster, int from, void *data, size_t bytes, ls_error *err);

/* Reports a fault of this member: no further order succeeds, and the others are told `why`. Only
 * the first reason counts. Any thread that could give an order. */
void ls_cluster_leave(ls_cluster *cluster, const char *why);
/* Does the same as ls_cluster_leave, and ends the run on the other members too: their orders fail
 * with LS_EDIVERGED, and they do not regroup. */
void ls_cluster_end_all(ls_cluster *cluster, const char *why);

/* ---- sums over the shard tree ------------------------------------------------------------------
 *
 * The leaves are distributed evenly over the members. The nodes of member m are the cover of its
 * leaves (ls_tree_cover). The arena is cut into pieces, which the members own in turn. The owner
 * of a piece receives the piece of all nodes, evaluates the rest of the tree and sends the sum to
 * all. Earlier pieces are added and sent back while later ones are still in transit, or have not
 * even been computed. */

/* Computes the range of leaves [*lo, *hi) of a member. */
void ls_cluster_span(const ls_cluster *cluster, int shards, int member, int *lo, int *hi);

/* Allocates memory for sums of `floats` floats (a multiple of 16) over `shards` leaves, unless it
 * exists already. Errors: LS_EINVAL (fewer leaves than members), LS_ENOMEM. */
int ls_cluster_prepare(ls_cluster *cluster, int shards, size_t floats, ls_error *err);
/* The functions that communicators call; ls_members_ops in <lockstep/sys/communicator.h> explains
 * each. Errors: those of orders. */
float *ls_cluster_node(const ls_cluster *cluster, int i);
const float *ls_cluster_total(const ls_cluster *cluster);
int ls_cluster_begin_sum(ls_cluster *cluster, ls_error *err);
void ls_cluster_ready(ls_cluster *cluster, size_t floats);
int ls_cluster_sum(ls_cluster *cluster, const ls_cluster_wait *wait, ls_error *err);
int ls_cluster_agreed(const ls_cluster *cluster);
void ls_cluster_commit(ls_cluster *cluster, int committed);
extern const ls_members_ops ls_cluster_ops;

/* Returns the number of bytes that the busiest member sends in a sum, relative
 * to a ring all-reduce. */
double ls_cluster_bytes_factor(const ls_cluster *cluster);

#endif
