/* Training over several processes: what a program says of the others.
 *
 *     ls_tcp_place place = {.size = sizeof place, .meet = "10.0.0.1:7070", .members = 2,
 *                           .secret = secret, .secret_bytes = sizeof secret};
 *     ls_trainer_cluster cluster = {.size = sizeof cluster, .wire = ls_wire_tcp(), .comm = &place};
 *     ls_trainer_options o = {.size = sizeof o, .config_path = "config.json", .cluster = &cluster};
 *
 * An *engine* moves messages between the processes, the *members* of a run. "tcp" is part of the library, "mpi" is
 * a plugin; one of the caller's own is a table, <lockstep/sys/wire.h>.
 */
#ifndef LOCKSTEP_CLUSTER_H
#define LOCKSTEP_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MEMBERS_MAX 4096

/* An engine (<lockstep/sys/wire.h>). */
typedef struct ls_wire_type ls_wire_type;

typedef struct ls_trainer_cluster {
    size_t size; /* sizeof(ls_trainer_cluster) */
    /* The engine; NULL: the config's, cluster.engine. */
    const ls_wire_type *wire;
    /* What to join, in the engine's terms: for "mpi" the address of an MPI_Comm, for "tcp" an ls_tcp_place, read
     * while the trainer is opened. NULL: all processes that the launcher has started. */
    const void *comm;
    /* How many processes a launcher has started, where the caller knows; 0: unknown. cluster.engine "auto" looks
     * for an engine from 2 on. */
    int launched;
} ls_trainer_cluster;

/* The rendezvous of the members that the engine "tcp" connects: what ls_trainer_cluster.comm points to; read while the
 * trainer is opened. One member is the first, number 0, and waits for the others; these are numbered by their addresses.
 *
 *     the first      .listen = ":7070"            or an address of this machine before the port
 *     the others     .meet = "10.0.0.1:7070"      whatever leads to the first: its address, a service, a published port
 *
 * Where nobody says `listen`, the one that has the address `meet` is the first. The first tells the others where each
 * of them listens: at the address that it was seen to come from, or at its own, or at what it advertises.
 *
 * Every two members have a connection for each channel. Each end of each proves to the other that it knows the secret,
 * without sending it (HMAC-SHA-256 over both ends' random numbers), so strangers can neither join nor keep others from
 * it; what is sent later is neither encrypted nor signed: a network whose participants may forge traffic needs a
 * tunnel. */
typedef struct ls_tcp_place {
    size_t size; /* sizeof(ls_tcp_place) */
    /* "HOST:PORT", "10.0.0.1:7070" or "[fd00::1]:7070": where the first is reached. NULL: this is the first. */
    const char *meet;
    const void *secret;  /* what all members know, and nobody else */
    size_t secret_bytes; /* at least LS_TCP_SECRET_LEAST */
    int members;         /* how many there will be, this one included */
    uint64_t wait_ns;    /* how long to wait for the others; 0: 600 s */
    /* "[HOST]:PORT": where this member listens; without a host at all addresses of this machine. With `meet` it is not
     * the first, and port 0 lets the system choose. NULL: as `meet` says, above. */
    const char *listen;
    /* "HOST[:PORT]": where the others reach this member, which has `meet`. NULL: as seen by the first. */
    const char *advertise;
} ls_tcp_place;

#define LS_TCP_SECRET_LEAST 16

#pragma GCC visibility push(default)
/* The engine "tcp", which is part of the library: for ls_trainer_cluster.wire, with an ls_tcp_place as
 * `comm`. Its open fails with LS_EINVAL (an address that cannot be read, or that no other host reaches, too short a
 * secret, another number of members than the first's), LS_ETIMEDOUT (not all members came, or nobody answers),
 * LS_EUNSUPPORTED (another secret, or a run that has begun), LS_EIO (what answers is no member of this run),
 * LS_ESYSTEM (an address that is not free, or a member that another one does not reach) or LS_ENOMEM. Any thread. */
const ls_wire_type *ls_wire_tcp(void);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
