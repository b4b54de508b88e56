/* The wire table: how processes on several hosts, the *members* of a run, reach each other.
 *
 * This header is for authors of engines (MPI, gloo, a test's double). It is unstable: any version may change it. An
 * engine moves messages between pairs of members and nothing else: what is
 * added up, in which order, and when a member counts as lost is decided above it, alike for all engines.
 *
 *     open                                     joins the other members, on the thread that calls it
 *     post, post, …                            begins transfers
 *     poll(timeout)                            gets them on, and says which have ended
 *     regroup                                  members are lost: the surviving ones regroup, on another wire
 *     close, or abort                          in good order together with the others, or at once and alone
 *
 * One thread at a time calls the slots of a wire, from open to close; an engine need not be safe for
 * several. No slot but open, close and regroup may wait for another member: post returns at once, and poll no
 * later than its timeout. Open and close run under a time limit of the caller's, who leaves a thread behind that
 * does not return from them; so an engine has its memory from the C library, and none of the caller's own.
 *
 * Messages of one channel from one member to another arrive in the order in which they were posted, and
 * the receives that take them are matched in that order, too. Between channels, and between pairs, there
 * is no order.
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

#define LS_WIRE_ABI 2
#define LS_WIRE_ENTRY "ls_wire_entry"      /* what liblockstep-NAME.so shows: an ls_wire_entry_fn */
#define LS_WIRE_CHANNELS 4                 /* 0 … 3 */
#define LS_TRANSFER_MOST ((size_t)1 << 30) /* bytes of one transfer */

typedef struct ls_wire ls_wire;
typedef struct ls_wire_type ls_wire_type;

/* A message on its way. It and its data belong to the wire from post until poll has named it; after an
 * abort that says so, for as long as the process lives: hardware may still write there. */
typedef struct ls_transfer {
    int peer;     /* the other member */
    int channel;  /* 0 … LS_WIRE_CHANNELS − 1 */
    int incoming; /* non-zero: received */
    void *data;
    size_t bytes; /* the message's very length, at most LS_TRANSFER_MOST; 0 is allowed */
} ls_transfer;

typedef struct ls_wire_options {
    size_t size; /* sizeof(ls_wire_options) */
    /* What to join, in the engine's terms: for "mpi" the address of an MPI_Comm, which is duplicated, in
     * a program that has called MPI_Init_thread with MPI_THREAD_MULTIPLE, or with MPI_THREAD_SERIALIZED if
     * it makes no call of MPI while the wire is open. NULL: all processes that the launcher has started. */
    const void *comm;
    int regroups; /* non-zero: `regroup` may be called one day */
    /* Optional. An engine whose open waits for other members calls `alive` several times a second meanwhile: the
     * caller's time limit is for silence, and the whole is the engine's to limit. `say`, from open to close: one line
     * of what the engine waits for, or whom it has turned away, with an ls_log_level. Both on the thread that called
     * the slot. */
    void (*alive)(void *user);
    void (*say)(void *user, int level, const char *text);
    void *user;
} ls_wire_options;

/* Members of a wire are lost. */
typedef struct ls_regroup {
    size_t size;           /* sizeof(ls_regroup) */
    const uint8_t *lost;   /* [members]: non-zero: it was silent, or has said that it leaves */
    uint64_t deadline_ns;  /* how long a member may be silent */
    void (*alive)(void *); /* called several times within that, on the caller's thread */
    void *user;
    int *origin; /* out, [members]: what each member of the new wire was called on the old one */
} ls_regroup;

/* The start of every wire; the engine's own fields follow. */
struct ls_wire {
    const ls_wire_type *type;
    int member, members; /* this process's number, and how many there are */
};

/* All slots but regroup are mandatory. */
struct ls_wire_type {
    uint32_t abi;     /* LS_WIRE_ABI */
    uint32_t size;    /* sizeof(ls_wire_type) */
    const char *name; /* config key `cluster.engine` */
    /* Collective. Errors: LS_EUNSUPPORTED (the engine, or how it was started, will not do: what to do),
     * LS_ESYSTEM, LS_ENOMEM. */
    int (*open)(ls_wire **out, const ls_wire_options *options, ls_error *err);
    /* Begins a transfer. Errors: LS_EIO, LS_ENOMEM. */
    int (*post)(ls_wire *wire, ls_transfer *transfer, ls_error *err);
    /* Writes up to `most` transfers that have ended to `ended` and returns how many, having waited at most
     * `timeout_ns` for the first. Errors: LS_EIO (a connection broke), LS_EDATA (a message had another
     * length than its transfer). */
    int (*poll)(ls_wire *wire, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err);
    /* Collective, when no transfer is under way; frees the wire. */
    void (*close)(ls_wire *wire);
    /* Instead of close, at any time, for whatever reason: nothing is waited for, and nothing freed that a
     * transfer under way may still touch. Non-zero: there may be such memory. */
    int (*abort)(ls_wire *wire);
    /* Optional. When posts and polls have come to nothing: the members that find each other agree who goes on,
     * and all of them get a wire to each other, numbered in the old order. Of any two parts that cannot reach
     * each other at most one goes on: one that has more than half of the members, or half of them with the
     * lowest. The old wire is to be aborted then, whatever came of it; an engine's abort that has this slot
     * returns 0. Returns within a few times the deadline, or a few seconds, whichever is less. Errors:
     * LS_ESTALLED (this part does not go on, or nothing came of it in that time), LS_EUNSUPPORTED (the wire
     * was opened without `regroups`), LS_ENOMEM. */
    int (*regroup)(ls_wire **out, ls_wire *wire, const ls_regroup *how, ls_error *err);
};

typedef const ls_wire_type *ls_wire_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
