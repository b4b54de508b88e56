/* SPDX-License-Identifier: MIT */
/* The transport table: how messages travel between the processes of a run (its *members*), on one
 * host or several. A *transport* carries the messages, for example over TCP or MPI: it is one table
 * of functions, ls_transport. A *wire* is an open connection of this process to all other members.
 * The transport's `open` creates a wire. This header is for authors of transports. The header is
 * unstable: any version may change it. A transport only moves messages between pairs of members.
 * The library decides, in the same way for all transports, which numbers are summed in which order,
 * and when a member counts as lost. The life of a wire:
 *
 *     open              joins the other members, on the calling thread
 *     post, post, …     starts transfers
 *     poll(timeout)     makes progress on transfers and reports those that have ended
 *     regroup           after a loss of members, or to admit a process: the members join each other
 *                       on a new wire
 *     close             ends the wire, together with the other members
 *     abort             ends the wire at once, without the other members
 *
 * Threads: one thread at a time calls the functions of a wire, from open to close. Therefore a
 * transport need not be thread-safe.
 * Waiting: only open, close and regroup may wait for another member. post returns at once, and poll
 * at the end of its timeout at the latest. If `open` or `close` takes too long, the caller abandons
 * the thread that is inside the call, which can continue after the caller has freed its own memory.
 * Therefore a transport allocates its memory by malloc, and does not use memory of the caller.
 * Order: between two members there are LS_TRANSPORT_CHANNELS independent *channels*. Messages on
 * one channel from one member to another arrive in the order in which they were posted. The posted
 * receives get them in this order. There is no order between messages on different channels or of
 * different pairs of members. */
#ifndef LOCKSTEP_SYS_TRANSPORT_H
#define LOCKSTEP_SYS_TRANSPORT_H

#include <lockstep/cluster.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_TRANSPORT_ABI 8 /* version of this header, which a transport must match */
/* symbol of liblockstep-NAME.so, an ls_transport_entry_fn */
#define LS_TRANSPORT_ENTRY "ls_transport_entry"
#define LS_TRANSPORT_CHANNELS 4            /* number of channels between two members */
#define LS_TRANSFER_MOST ((size_t)1 << 30) /* largest number of bytes of one transfer */

typedef struct ls_wire ls_wire;
typedef struct ls_transport ls_transport;

/* One message that is sent or received. The caller must not change or free this structure or its
 * data from post until poll has returned the transfer. If `abort` has returned non-zero, the caller
 * must not change or free them until the process ends, because hardware can still write there. */
typedef struct ls_transfer {
    int peer;     /* number of the other member */
    int channel;  /* 0 … LS_TRANSPORT_CHANNELS − 1 */
    int incoming; /* non-zero: this process receives, else it sends */
    void *data;   /* [bytes] the message, or the buffer for it */
    size_t bytes; /* exact length of the message in bytes, at most LS_TRANSFER_MOST; 0 is allowed */
} ls_transfer;

/* A process that waits to be *admitted*: to become a member of a run that has begun. */
typedef struct ls_arrival {
    char host[64];  /* name of the process's host, zero-terminated */
    uint8_t at[56]; /* address at which the process is reached, in the transport's form */
    int64_t number; /* identification: a number that no other process of the run has ever had */
} ls_arrival;

#define LS_FINGERPRINT_MOST 400 /* largest number of bytes of a fingerprint */

/* Options of open. */
typedef struct ls_wire_options {
    size_t size; /* sizeof(ls_wire_options) */
    /* The processes to join, as the transport defines them. For "mpi" it is the address of an
     * MPI_Comm, which the transport duplicates; the program must have called MPI_Init_thread with
     * MPI_THREAD_MULTIPLE, or with MPI_THREAD_SERIALIZED if it makes no MPI call while the wire is
     * open. NULL: all processes that the launcher started. */
    const void *place;
    int regroups; /* non-zero: the caller may call `regroup` later, and the transport must prepare
                   * for this */
    /* Optional. While `open` waits for other members, the transport calls alive(user) several times
     * a second, on the thread that called `open`. If the calls stop for too long, the caller gives
     * up the thread. The transport itself limits the total time of `open`. */
    void (*alive)(void *user);
    /* Optional. Receives a log line, such as what the transport waits for or which connection it
     * refused. The transport calls this function on the thread that called a function of the wire,
     * from open to close. `level` is an ls_log_level. */
    void (*say)(void *user, int level, const char *text);
    void *user; /* first argument of `alive`, `say` and `refuses` */
    /* Non-zero: the run can admit processes after it has begun. If the run has already begun when
     * this process calls open, open waits, without a time limit, until the members try to admit
     * this process. Needs `regroups`. */
    int admits;
    /* [fingerprint_bytes] *fingerprint*: a summary of this process's config, data set and build. If
     * this process asks to be admitted, the members compare the fingerprint with their own. The
     * transport reads it during open. NULL: this process can take part in a run only from the run's
     * beginning. */
    const void *fingerprint;
    size_t fingerprint_bytes; /* at most LS_FINGERPRINT_MOST */
    /* Optional. The transport calls this function on the thread that called a function of the wire.
     * It compares the fingerprint of a process that asks to be admitted with this process's own.
     * Returns 0 if the other process may wait to be admitted. Otherwise returns non-zero and writes
     * the reason to `why`, [size]; the transport then refuses the other process. */
    int (*refuses)(void *user, const char *host, const void *fingerprint, size_t bytes, char *why,
                   size_t size);
} ls_wire_options;

/* Arguments of regroup, which is called after members of a wire were lost, or to admit a
 * process. */
typedef struct ls_regroup {
    size_t size;           /* sizeof(ls_regroup) */
    const uint8_t *lost;   /* [members] non-zero: member i did not answer in time, or has announced
                            * that it leaves */
    uint64_t deadline_ns;  /* duration in nanoseconds: a member that does not answer for so long
                            * counts as lost */
    void (*alive)(void *); /* the transport calls it with `user` several times within deadline_ns,
                            * on the thread that called regroup */
    void *user;
    /* Output, [members + 1]: for each member of the new wire, its number on the old wire; −1 for a
     * member that was not on the old wire. */
    int *origin;
    const ls_arrival *arrival; /* the process to be admitted; all members pass the same one. NULL:
                                * no process is to be admitted */
    /* Output, [why_bytes]: if `arrival` is set and regroup succeeds without it, the reason, such as
     * which two hosts do not reach each other. NULL: the caller does not ask for it. */
    char *why;
    size_t why_bytes;
} ls_regroup;

/* First fields of every wire; the transport's own fields follow. */
struct ls_wire {
    const ls_transport *type;
    int member, members; /* number of this process, from 0; number of members, this one included */
    /* Number of the member that was admitted when this wire was made; all members have the same
     * value. 0: no member was admitted. */
    int admitted;
    /* [members] On the wire of the process that was admitted: for each member its host, address and
     * identification, by member number. NULL on the wires of all other processes. */
    const ls_arrival *place;
    /* After poll or post has returned LS_EIO: 1 + number of the member whose connection broke; 0:
     * it is not known. */
    int lost;
};

/* The table of a transport. All functions must be set, except regroup and arrivals, which may be
 * NULL. */
struct ls_transport {
    uint32_t abi;     /* LS_TRANSPORT_ABI */
    uint32_t size;    /* sizeof(ls_transport) */
    const char *name; /* name of the transport, which the config key `cluster.transport` selects */
    /* Joins the other members and creates a wire. Collective: every member calls it. Errors:
     * LS_EUNSUPPORTED (the transport cannot work on this machine, or cannot work in the way in
     * which the program was started; the message says what to do), LS_ESYSTEM, LS_ENOMEM. */
    int (*open)(ls_wire **out, const ls_wire_options *options, ls_error *err);
    /* Starts a transfer and returns at once. Errors: LS_EIO, LS_ENOMEM. */
    int (*post)(ls_wire *wire, ls_transfer *transfer, ls_error *err);
    /* Makes progress on transfers. Writes up to `most` transfers that have ended to `ended`, and
     * returns how many it wrote, or a negative status. If no transfer has ended, poll waits for
     * one, at most `timeout_ns` nanoseconds. The library trusts the data of a received transfer
     * that has ended. Therefore a transport that can notice that a message was changed on the way
     * does so before it reports the transfer. Errors: LS_EIO (a connection broke, or a message was
     * changed), LS_EDATA (a message had another length than the transfer that receives it). */
    int (*poll)(ls_wire *wire, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err);
    /* Closes and frees the wire. Collective: every member calls it, when no transfer is in
     * progress. */
    void (*close)(ls_wire *wire);
    /* Ends the wire at any time, for any reason, instead of close. It does not wait, and does not
     * free memory that a transfer in progress can still access. Returns non-zero if a transfer can
     * still access its data, and 0 otherwise. */
    int (*abort)(ls_wire *wire);
    /* Optional. Called after post or poll failed. The members that can reach each other agree which
     * of them continue. Each of these gets a new wire to the others, and they get new numbers
     * without gaps, in the sequence of their old numbers. If the run falls into parts that cannot
     * reach each other, at most one part continues: the part with more than half of the old
     * members, or the part with exactly half of them that contains the member with the lowest old
     * number. After regroup, successful or not, the caller aborts the old wire. `abort` must return
     * 0 in a transport that has `regroup`. Returns within a few times deadline_ns or within a few
     * seconds, whichever is less. If how->arrival is set, the caller can call regroup although no
     * member was lost, and the arriving process can become a member. It does not if it, or a member
     * that knows of it, is lost during the call, or if it and a member do not reach each other. No
     * member is left out for its sake. Errors: LS_ESTALLED (this part does not continue, or there
     * was no agreement in time), LS_EUNSUPPORTED (the wire was opened without `regroups`),
     * LS_ENOMEM. */
    int (*regroup)(ls_wire **out, ls_wire *wire, const ls_regroup *how, ls_error *err);
    /* Optional; needs regroup. Returns the number of processes that wait at this member and may be
     * admitted in the round `round`, a number that increases by one from one opportunity for
     * admissions to the next. (The transport puts off and at last refuses a process whose
     * admissions fail.) Called on all members, also after each admission, in the same round. Writes
     * the process that has waited longest to *out, for ls_regroup.arrival. Always sets out->number,
     * even if no process waits, to a number that can identify the next process to be admitted: as
     * far as this member knows, no process of the run has had it. */
    int (*arrivals)(ls_wire *wire, uint64_t round, ls_arrival *out);
};

/* Type of the function LS_TRANSPORT_ENTRY, which returns the transport's static table. */
typedef const ls_transport *ls_transport_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
