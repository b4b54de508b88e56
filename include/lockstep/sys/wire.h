/* The wire table: the transport between the processes of a run, its *members*, on one or more
 * hosts.
 *
 * Such a transport is called an *engine* (MPI, gloo, a test double). This header is for authors of
 * engines. It is unstable: any version may change it. An engine only moves messages between pairs
 * of members. The library decides which numbers are summed in which order, and when a member counts
 * as lost, in the same way for all engines. A *wire* connects this process with all other members;
 * it is what an engine opens. The life of a wire:
 *
 *     open              joins the other members, on the calling thread
 *     post, post, …     starts transfers
 *     poll(timeout)     makes progress on transfers and reports those that have ended
 *     regroup           after a loss of members, or to admit a process: the members join each other
 *                       on a new wire
 *     close             ends the wire, together with the other members
 *     abort             ends the wire at once, without the other members
 *
 * Threads: one thread at a time calls the slots of a wire, from open to close, so an engine need
 * not be thread-safe.
 * Waiting: only open, close and regroup may wait for another member. post returns at once, and poll
 * at the end of its timeout at the latest. The caller limits the time of open and close, and
 * abandons a thread that does not return from them. Such a thread may go on after the caller has
 * freed its own memory. So an engine allocates from the C library, and does not use memory of the
 * caller.
 * Order: messages on one channel from one member to another arrive in the order in which they were
 * posted, and they are matched with the posted receives in that order. There is no order between
 * channels or between pairs of members.
 */
#ifndef LOCKSTEP_SYS_WIRE_H
#define LOCKSTEP_SYS_WIRE_H

#include <lockstep/cluster.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_WIRE_ABI 3                      /* version of this header, which an engine must match */
#define LS_WIRE_ENTRY "ls_wire_entry"      /* symbol of liblockstep-NAME.so, an ls_wire_entry_fn */
#define LS_WIRE_CHANNELS 4                 /* number of channels between two members */
#define LS_TRANSFER_MOST ((size_t)1 << 30) /* largest number of bytes of one transfer */

typedef struct ls_wire ls_wire;
typedef struct ls_wire_type ls_wire_type;

/* One message that is sent or received. From post until poll has returned the transfer, the caller
 * must not change or free the structure and its data. If an abort has returned non-zero, the caller
 * must not change or free them until the process ends, because hardware may still write there. */
typedef struct ls_transfer {
    int peer;     /* number of the other member */
    int channel;  /* 0 … LS_WIRE_CHANNELS − 1 */
    int incoming; /* non-zero: this process receives, else it sends */
    void *data;   /* [bytes] the message, or the buffer for it */
    size_t bytes; /* exact length of the message, at most LS_TRANSFER_MOST; 0 is allowed */
} ls_transfer;

/* A process that waits to be *admitted*: to become a member of a run that has begun. */
typedef struct ls_arrival {
    char host[64];  /* name of the process's host, zero-terminated */
    uint8_t at[56]; /* address at which the process is reached, in the engine's form */
    int64_t number; /* number that no other process of the run has ever had */
} ls_arrival;

#define LS_FINGERPRINT_MOST 400 /* largest number of bytes of a fingerprint */

/* Options of open. */
typedef struct ls_wire_options {
    size_t size; /* sizeof(ls_wire_options) */
    /* The group of processes to join, as the engine defines it. For "mpi" it is the address of an
     * MPI_Comm, which the engine duplicates; the program must have called MPI_Init_thread with
     * MPI_THREAD_MULTIPLE, or with MPI_THREAD_SERIALIZED if it makes no MPI call while the wire is
     * open. NULL: all processes that the launcher started. */
    const void *comm;
    int regroups; /* non-zero: the caller may call `regroup` later, so the engine prepares for it */
    /* Optional; called on the thread that called the slot. While open waits for other members, the
     * engine calls `alive` several times a second. The caller limits the time between two such
     * calls; the engine limits the total time of open. */
    void (*alive)(void *user);
    /* Optional; called on the thread that called the slot, from open to close. Receives a log line,
     * such as what the engine waits for or which connection it refused. `level` is an
     * ls_log_level. */
    void (*say)(void *user, int level, const char *text);
    void *user; /* first argument of `alive`, `say` and `refuses` */
    /* Non-zero: the run may admit processes after it has begun. If the run has begun when this
     * process calls open, open waits, without a time limit, until the members admit this process.
     * Needs `regroups`. */
    int admits;
    /* [fingerprint_bytes] data about this process's config, data and build. If this process asks to
     * be admitted, the members compare the fingerprint with their own. Read during open. NULL: this
     * process cannot be admitted, but only take part in a run from its beginning. */
    const void *fingerprint;
    size_t fingerprint_bytes; /* at most LS_FINGERPRINT_MOST */
    /* Optional; called on the thread that called the slot. Compares the fingerprint of a process
     * that asks to be admitted with this process's own. Returns 0 if the process may wait to be
     * admitted. Otherwise returns non-zero and writes the reason to `why`, [size]; the engine then
     * refuses the process. */
    int (*refuses)(void *user, const char *host, const void *fingerprint, size_t bytes, char *why,
                   size_t size);
} ls_wire_options;

/* Arguments of regroup, after members of a wire were lost, or to admit a process. */
typedef struct ls_regroup {
    size_t size;         /* sizeof(ls_regroup) */
    const uint8_t *lost; /* [members] non-zero: this member did not answer in time, or has announced
                          * that it leaves */
    uint64_t deadline_ns; /* time in nanoseconds after which a member that does not answer counts as
                           * lost */
    void (*alive)(void *); /* called with `user` several times within deadline_ns, on the calling
                            * thread */
    void *user;
    /* Output, [members + 1]: for each member of the new wire its number on the old wire, or −1 if
     * it was not on the old wire. */
    int *origin;
    const ls_arrival *arrival; /* the process to be admitted; all members pass the same one. NULL:
                                * no process is to be admitted */
} ls_regroup;

/* First fields of every wire; the engine's own fields follow. */
struct ls_wire {
    const ls_wire_type *type;
    int member, members; /* number of this process, from 0; number of members, this one included */
    /* Number of the member that was admitted with this wire; all members have the same value. 0: no
     * member was admitted. */
    int admitted;
    /* [members] descriptions of all members by their numbers, on the wire of the process that was
     * admitted; NULL on all other wires. */
    const ls_arrival *place;
};

/* The table of an engine. All slots are mandatory, except regroup and arrivals. */
struct ls_wire_type {
    uint32_t abi;     /* LS_WIRE_ABI */
    uint32_t size;    /* sizeof(ls_wire_type) */
    const char *name; /* name of the engine, which the config key `cluster.engine` selects */
    /* Joins the other members and creates a wire. Collective: every member calls it. Errors:
     * LS_EUNSUPPORTED (the engine cannot work, or not as it was started; the message says what to
     * do), LS_ESYSTEM, LS_ENOMEM. */
    int (*open)(ls_wire **out, const ls_wire_options *options, ls_error *err);
    /* Starts a transfer and returns at once. Errors: LS_EIO, LS_ENOMEM. */
    int (*post)(ls_wire *wire, ls_transfer *transfer, ls_error *err);
    /* Makes progress on transfers. Writes up to `most` transfers that have ended to `ended`, and
     * returns the number written, or a negative status. If none has ended, waits for one, at most
     * `timeout_ns` nanoseconds. Errors: LS_EIO (a connection broke), LS_EDATA (a message had
     * another length than the transfer that receives it). */
    int (*poll)(ls_wire *wire, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err);
    /* Closes and frees the wire. Collective: every member calls it, when no transfer is in
     * progress. */
    void (*close)(ls_wire *wire);
    /* Ends the wire at any time, for any reason, instead of close. It does not wait, and does not
     * free memory that a transfer in progress may still access. Returns non-zero if there may be
     * such memory. */
    int (*abort)(ls_wire *wire);
    /* Optional. Called after post or poll failed. The members that can reach each other agree on
     * the group that continues, and every member of that group gets a new wire to the others,
     * numbered anew without gaps, in the sequence of their numbers on the old wire. Of any two
     * parts of the run that cannot reach each other, at most one continues: a part with more than
     * half of the old members, or with exactly half of them, the lowest-numbered member included.
     * Whatever the result, the caller then aborts the old wire; the abort of an engine with this
     * slot must return 0. Returns within a few times deadline_ns or within a few seconds, whichever
     * is less. Errors: LS_ESTALLED (this part does not continue, or there was no agreement in
     * time), LS_EUNSUPPORTED (the wire was opened without `regroups`), LS_ENOMEM. If how->arrival
     * is set, regroup may be called although no member was lost, and the new group may contain the
     * arriving process. It does not contain that process if the process, or a member that knows of
     * it, is lost during the call. */
    int (*regroup)(ls_wire **out, ls_wire *wire, const ls_regroup *how, ls_error *err);
    /* Optional; needs regroup. Returns the number of processes that wait at this member to be
     * admitted, and writes the one that has waited longest to *out, for ls_regroup.arrival. Always
     * sets out->number, even if no process waits, to a number that no process of the run has had as
     * far as this member knows. */
    int (*arrivals)(ls_wire *wire, ls_arrival *out);
};

/* Type of the function LS_WIRE_ENTRY, which returns the engine's static table. */
typedef const ls_wire_type *ls_wire_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
