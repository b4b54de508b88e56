/* SPDX-License-Identifier: MIT */
/* The members of a run: processes, usually one on each host.
 *
 *     ls_cluster_open(&c, &options, &err);             joins the others over a transport
 *     ls_cluster_gather(c, …), ls_cluster_share(c, …)  small data, and checkpoints
 *     ls_cluster_sum(c, …)                             sum over the whole shard tree
 *     ls_cluster_regroup(c, &err)                      after losses: goes on with the survivors
 *     ls_cluster_leave(c, "the disk is full")          tells the others the reason for a failure
 *     ls_cluster_close(c)
 *
 * Words. The *transport* carries messages between the members (<lockstep/sys/transport.h>). A *sign
 * of life* is a short message by which a member shows that it still runs. The *host group* is the
 * set of present members; a member's number is its position in the host group.
 *
 * Threads. A *progress thread* owns the transport. An *order* is a command of a *caller* to the
 * progress thread: to join, to gather data, to sum, to regroup or to close. Callers give one order
 * at a time, and wait until it is done. The progress thread sends and receives signs of life all
 * the time, also between orders. All members give the same orders in the same sequence. Each sum
 * and each gather begins with a header, by which the members check that all of them do the same.
 * (Error messages call a sum or a gather an "exchange".)
 *
 * Faults. There is a *fault* when a member has been silent for the deadline, when a member says
 * that it leaves, when the transport fails, or when a header is not the expected one. From then on
 * every order fails at once, with the same message. Memory that the transport can still access is
 * never freed. Time during which this process was stopped counts against no member (base/clock.h).
 * Every wait has a limit: when other members are silent, the progress thread ends the order. If the
 * progress thread itself hangs, for example in a call of the transport, its heartbeat stops, and
 * the caller stops waiting for it.
 *
 * Losses. If the transport can regroup, and ls_cluster_regroups has been called, the *loss* of a
 * member is not a fault. The order in progress fails. The progress threads of the surviving members
 * contact each other at once, even while their callers do something else. The progress threads
 * agree which members go on, and open a new transport, over which they send signs of life from then
 * on. Orders fail until the caller calls ls_cluster_regroup. From then on the caller sees the new
 * host group: the members are numbered from 0 again, in the same sequence as before. The memory of
 * sums must be prepared anew (ls_cluster_prepare).
 *
 * Memory order. Let C be the calling thread (callers synchronise among themselves, so that one
 * thread at a time calls), and P the progress thread.
 *
 * 1. Order. C writes the order, which can refer to other memory, and stores false in `done`
 *    (relaxed). Then it pushes the order's kind into the ring `orders`. The push releases, and the
 *    pop by P acquires (sync/ring.h), so these writes of C happen before P works on the order.
 * 2. Result. P writes the results, stores true in `done` (release) and wakes C. C loads `done`
 *    (acquire) until it is true. C cannot read the true of an earlier order: C's own store of false
 *    is later in the modification order, and by rule 1 P's store of true for this order follows
 *    that store of false. So everything that P did for the order happens before what C does next. C
 *    may read the results and reuse the order's memory. The transport has finished with this memory
 *    too, because an order succeeds only when all its transfers have ended. After a fault the
 *    memory is not used again. After a loss the memory is used again only after ls_cluster_regroup.
 *    By then P has aborted the former transport, and a transport that can regroup touches no memory
 *    after the abort. The park word on which C sleeps (sync/park.h) is not part of this argument,
 *    since C checks `done` itself.
 * 3. Parts of a sum. While P works on a sum, C writes floats of this member's nodes, and then
 *    stores in sum.ready how many floats of each node it has written (release). P loads sum.ready
 *    (acquire), and sends and adds only floats below this number, so C's writes of these floats
 *    happen before P's reads. C does not write the floats again before it has seen the sum's
 *    result; by rule 2, P's reads happen before these later writes. C then resets sum.ready to 0
 *    (relaxed). P loads sum.ready again only in a later sum. C pushes the order of that sum after
 *    the reset, so by rule 1 P cannot read the old number.
 * 4. Leaving. C writes `leaving` and then true in `leave_asked` (release). P loads `leave_asked`
 *    (acquire) before it reads `leaving`.
 * 5. C stores `regroups` (release) after it has written the data that options.refuses reads. P
 *    loads `regroups` (acquire) before it calls options.refuses, so this call sees the data.
 *    Elsewhere P loads `regroups` relaxed, because there P uses nothing but its value.
 * 6. Accesses to `joining` and options.asks are relaxed: the other thread uses nothing but their
 *    values, and no other memory is handed over by them. `joining` starts as LS_JOINING. P changes
 *    it when the transport's `open` has returned. C changes it when C gives up waiting for that.
 * Both use a compare-and-exchange, so that exactly one of the two changes takes place. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <lockstep/sys/communicator.h>
#include <lockstep/sys/transport.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_cluster ls_cluster;

enum { LS_MEMBER_NAME = 64 };

typedef struct ls_cluster_options {
    const ls_transport *type;
    /* passed to the transport as ls_wire_options.place: describes the processes to join, in a form
     * that each transport defines */
    const void *place;
    uint64_t deadline_ns; /* the deadline: a member that is silent for longer is lost */
    uint64_t open_ns;     /* longest time for joining the other members */
    /* non-zero: this member asks all members to stop; the header of its next sum or gather tells
     * the other members. NULL: this member never asks */
    const atomic_int *asks;
    bool regroups; /* ls_cluster_regroups may be called later */
    bool admits;   /* processes may be admitted to the run later, this process included */
    /* [fingerprint_bytes] data that must be equal on all members. The members of a run that has
     * begun compare these data with their own before they admit this process. NULL: this process
     * cannot be admitted */
    const void *fingerprint;
    size_t fingerprint_bytes;
    /* Compares the fingerprint of a process that wants to be admitted; see ls_wire_options.refuses.
     * Called on the progress thread, only after ls_cluster_regroups. */
    int (*refuses)(void *user, const char *host, const void *fingerprint, size_t bytes, char *why,
                   size_t size);
    void *user;
    const ls_host *host;
} ls_cluster_options;

/* Loads the transport liblockstep-NAME.so. Errors: LS_ENOENT (there is no such library), LS_EDEVICE
 * (the library cannot be used). The message says what to do. */
int ls_transport_load(const ls_transport **out, const char *name, ls_error *err);

/* Joins the other members and receives the names of their hosts. All members must call it. The
 * caller closes *out (ls_cluster_close). Errors: those of the transport, LS_ETIMEDOUT,
 * LS_ENOMEM. */
int ls_cluster_open(ls_cluster **out, const ls_cluster_options *options, ls_error *err);

/* Closes the transport and frees the cluster. Waits until the other members close the transport
 * too, unless there was a fault or this member has left. NULL is allowed. Returns LS_ESTALLED
 * without freeing the memory if the progress thread hangs, or if the transport or a stalled worker
 * can still use the memory. */
int ls_cluster_close(ls_cluster *cluster);

/* Declares that a stalled worker can still use the memory of sums. Therefore ls_cluster_close will
 * free no memory. Called before ls_cluster_close, on the same thread. */
void ls_cluster_keep_memory(ls_cluster *cluster);

/* Returns the member number of this process. Any thread. */
int ls_cluster_member(const ls_cluster *cluster);
/* Returns how many members the host group has. Any thread. */
int ls_cluster_members(const ls_cluster *cluster);
/* Returns the host name of a member, by its number. The text is valid until the next
 * ls_cluster_regroup. */
const char *ls_cluster_host(const ls_cluster *cluster, int member);

/* Returns whether the transport can regroup and was opened for it. */
bool ls_cluster_can_regroup(const ls_cluster *cluster);
/* Allows regrouping: from now on the loss of a member is not a fault, and the surviving members
 * regroup. All members must call this function at the same point of their sequence of orders. */
void ls_cluster_regroups(ls_cluster *cluster);
/* Returns whether the last order failed because a member was lost. If so, the caller may call
 * ls_cluster_regroup and go on. */
bool ls_cluster_lost(const ls_cluster *cluster);
/* Copies the error of the last order that failed. */
void ls_cluster_why(const ls_cluster *cluster, ls_error *out);
/* Returns the number of the other member whose loss the last failed order reports; −1: its error is
 * no loss, or the member is not known. */
int ls_cluster_lost_member(const ls_cluster *cluster);
/* Adopts the host group of the surviving members. After that, orders can succeed again. Sums must
 * be prepared anew (ls_cluster_prepare). The memory of earlier sums is kept until
 * ls_cluster_free_old or ls_cluster_close, because a stalled worker of the former host group can
 * still use the memory. Errors: LS_ESTALLED (this member is not in the new host group),
 * LS_ENOMEM. */
int ls_cluster_regroup(ls_cluster *cluster, ls_error *err);
/* Frees the memory of the sums that were prepared before the last ls_cluster_regroup. The caller
 * makes sure that no thread uses this memory any more. */
void ls_cluster_free_old(ls_cluster *cluster);
/* Returns a member's *origin*: its number in the first host group. A member that was admitted later
 * has as its origin the next number that no member has had. */
int ls_cluster_origin(const ls_cluster *cluster, int member);

/* ---- admission (admit.c) --------------------------------------------------------------------- */

/* Returns whether the transport can admit processes and was opened for it. */
bool ls_cluster_can_admit(const ls_cluster *cluster);
/* Returns whether this process was admitted to a run that had begun. */
bool ls_cluster_was_admitted(const ls_cluster *cluster);
/* Returns the number of the *newcomer*, the member that was admitted when this host group was
 * formed; 0: there is none. The result is the same on all members of the host group. */
int ls_cluster_newcomer(const ls_cluster *cluster);
/* Reports the processes that wait at this member and may be admitted in the round `round`
 * (ls_transport.arrivals): sets *count to their number, and *out to the one that has waited
 * longest. Sets out->number even if none waits: to the origin that the next admitted process would
 * get. This order exchanges nothing with other members. Errors: those of orders. */
int ls_cluster_arrivals(ls_cluster *cluster, uint64_t round, ls_arrival *out, int *count,
                        ls_error *err);
/* Returns the reason why the host group of the last ls_cluster_regroup lacks the arrival of the
 * last ls_cluster_admit; "": it does not lack it, or no reason is known. The text is valid until
 * the next ls_cluster_regroup. */
const char *ls_cluster_not_admitted(const ls_cluster *cluster);
/* Ends this host group, so that one with the process `arrival` can follow. All members must call it
 * with the same arrival. It never returns LS_OK. If ls_cluster_lost returns true afterwards, the
 * caller goes on by ls_cluster_regroup; the new host group contains the arrival, unless that was
 * lost. Otherwise there was a fault. Errors: LS_ESTALLED, those of orders. */
int ls_cluster_admit(ls_cluster *cluster, const ls_arrival *arrival, ls_error *err);

/* ---- orders ------------------------------------------------------------------------------------
 *
 * After a failure on one member, the same order or a later one fails on every member. Errors of
 * every order: LS_ESTALLED (a member is lost or has left, or the progress thread hangs), LS_EIO,
 * LS_EINTERNAL (the members gave different orders), LS_ENOMEM. */

/* Gathers data from all members: sends this member's part to all others, and stores the part of
 * each other member m, of bytes[m] bytes, in part[m]. */
int ls_cluster_gather_parts(ls_cluster *cluster, void *const *part, const size_t *bytes,
                            ls_error *err);
/* Gathers `bytes` bytes from each member, stored in `all` one after another. The caller has stored
 * its own part there before the call. */
int ls_cluster_gather(ls_cluster *cluster, void *all, size_t bytes, ls_error *err);
/* Sends `data` of member 0 to all other members, which receive it in `data`. All members must pass
 * the same number of bytes. */
int ls_cluster_share(ls_cluster *cluster, void *data, size_t bytes, ls_error *err);
/* Works like ls_cluster_share, but sends `data` of member `from`. */
int ls_cluster_share_from(ls_cluster *cluster, int from, void *data, size_t bytes, ls_error *err);

/* Reports a fault of this member: no further order succeeds, and the other members are told `why`.
 * Only the first call has an effect. One thread at a time may call it or give orders. */
void ls_cluster_leave(ls_cluster *cluster, const char *why);
/* Does the same as ls_cluster_leave, and ends the run on the other members too: the orders of the
 * other members fail with LS_EDIVERGED, and those members do not regroup. */
void ls_cluster_end_all(ls_cluster *cluster, const char *why);

/* ---- sums over the shard tree ------------------------------------------------------------------
 *
 * The leaves of the tree are the shards of the minibatch, which are distributed evenly over the
 * members. The *nodes* of a member are the cover of its shards (ls_tree_cover); the member has
 * computed the sum of each of them, an arena. The arena is cut into *pieces*. Each piece has an
 * owner; the members own pieces in turn. The owner of a piece receives this piece of every node of
 * every member. It makes the additions above these nodes in the tree, and sends the result to all
 * members. The first pieces are added and sent back while later pieces are still in transit, or
 * have not been computed yet. */

/* Computes which shards a member has: numbers *lo to *hi − 1. */
void ls_cluster_span(const ls_cluster *cluster, int shards, int member, int *lo, int *hi);

/* Allocates memory for sums over `shards` shards. Each arena has `floats` floats, a multiple of 16.
 * Does nothing if the memory exists already. Errors: LS_EINVAL (fewer shards than members),
 * LS_ENOMEM. */
int ls_cluster_prepare(ls_cluster *cluster, int shards, size_t floats, ls_error *err);
/* The functions that communicators call. A communicator merges the gradients of the local workers.
 * ls_members_ops in <lockstep/sys/communicator.h> describes each function. Errors: those of
 * orders. */
float *ls_cluster_node(const ls_cluster *cluster, int i);
const float *ls_cluster_total(const ls_cluster *cluster);
int ls_cluster_begin_sum(ls_cluster *cluster, ls_error *err);
void ls_cluster_ready(ls_cluster *cluster, size_t floats);
int ls_cluster_sum(ls_cluster *cluster, const ls_cluster_wait *wait, ls_error *err);
int ls_cluster_agreed(const ls_cluster *cluster);
void ls_cluster_commit(ls_cluster *cluster, int committed);
extern const ls_members_ops ls_cluster_ops;
/* Sets the digest of this member's replicas (base/digest.h), which the next sum compares with
 * those of the other members. Called before each sum. A sum that has been begun already, in an
 * earlier attempt of the same step, goes on with the digest of that attempt. If the digests differ,
 * the sum fails with LS_EDIVERGED on every member. */
void ls_cluster_set_digest(ls_cluster *cluster, uint64_t digest);

/* Returns the largest number of bytes that a member sends in a sum, divided by the number of bytes
 * that a member would send in a ring all-reduce. */
double ls_cluster_bytes_factor(const ls_cluster *cluster);

#endif
