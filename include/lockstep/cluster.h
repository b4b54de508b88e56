/* Training in several processes: how a program finds the other processes of a run.
 *
 *     ls_tcp_place place = {.size = sizeof place, .meet = "10.0.0.1:7070", .members = 2,
 *                           .secret = secret, .secret_bytes = sizeof secret};
 *     ls_trainer_cluster cluster = {.size = sizeof cluster, .wire = ls_wire_tcp(), .comm = &place};
 *     ls_trainer_options o = {.size = sizeof o, .config_path = "config.json", .cluster = &cluster};
 *
 * The processes of a run are its *members*. An *engine* is the transport that carries messages
 * between the members. The engine "tcp" is part of the library, and the engine "mpi" is a plugin. A
 * program can supply an engine of its own, as a table of functions (<lockstep/sys/wire.h>).
 */
#ifndef LOCKSTEP_CLUSTER_H
#define LOCKSTEP_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MEMBERS_MAX 4096 /* largest number of members of a run */

/* A transport between members, called an engine (<lockstep/sys/wire.h>). */
typedef struct ls_wire_type ls_wire_type;

/* The other processes of a run, for ls_trainer_options.cluster. */
typedef struct ls_trainer_cluster {
    size_t size;              /* sizeof(ls_trainer_cluster) */
    const ls_wire_type *wire; /* the engine; NULL: the one that the config's cluster.engine names */
    /* The group of processes to join, in the engine's terms: for "mpi" the address of an MPI_Comm,
     * for "tcp" an ls_tcp_place. It is read while the trainer is opened. NULL: all processes that
     * the launcher started. */
    const void *comm;
    /* Number of processes that a launcher (such as mpirun) has started, if the caller knows it; 0:
     * unknown. If the config's cluster.engine is "auto", the trainer looks for an engine only if
     * this number is at least 2. */
    int launched;
} ls_trainer_cluster;

/* Rendezvous of the members with the engine "tcp": the value of ls_trainer_cluster.comm, which is
 * read while the trainer is opened. One member is the first, number 0, and waits for the others,
 * which are numbered in the order of their addresses.
 *
 *     the first      .listen = ":7070"            or an address of this host before the port
 *     the others     .meet = "10.0.0.1:7070"      any name that leads to the first: its address, a
 *                                                 service, a published port
 *
 * If the config's cluster.on_arrival is "admit", a process may also join the run after it has
 * begun. Such a process sets `meet` to the address of any member, and waits until the members admit
 * it, at the end of an epoch of ls_trainer_run. The members then ignore its field `members`, and
 * `wait_ns` limits only the time until a member answers. If the members train by ls_trainer_step,
 * they admit no process.
 *
 * If no member sets `listen`, the one that has the address `meet` is the first. The first sends
 * every member the addresses at which the others listen. The address of a member is the one that it
 * advertises; else the one from which its connection came; or, if a gateway made that connection in
 * its name, the member's own address.
 *
 * Every pair of members has one TCP connection per channel. Both ends of a connection prove that
 * they know the secret without sending it (HMAC-SHA-256 over random numbers of both ends), so a
 * program that does not know the secret cannot join the run or keep a member from joining. Data
 * that is sent after this proof is not encrypted and not authenticated: on a network whose
 * participants may forge traffic, use a tunnel. */
typedef struct ls_tcp_place {
    size_t size; /* sizeof(ls_tcp_place) */
    /* Address of the first member, "HOST:PORT", such as "10.0.0.1:7070" or "[fd00::1]:7070". NULL:
     * this member is the first. */
    const char *meet;
    const void *secret;  /* secret that all members share and nobody else knows */
    size_t secret_bytes; /* length of the secret, at least LS_TCP_SECRET_LEAST */
    int members;         /* total number of members, this one included */
    uint64_t wait_ns;    /* longest wait for the other members in nanoseconds; 0: 600 s */
    /* Address on which this member listens, "[HOST]:PORT"; without a host, on all addresses of this
     * host. A member that sets `meet` as well is not the first, and may give port 0, for which the
     * system chooses a port. NULL: as described above for `meet`. */
    const char *listen;
    /* Address at which the others reach this member, "HOST[:PORT]", for members with `meet`. NULL:
     * the address that the first member sees. */
    const char *advertise;
} ls_tcp_place;

#define LS_TCP_SECRET_LEAST 16 /* smallest length of the secret in bytes */

#pragma GCC visibility push(default)
/* Returns the built-in engine "tcp", for ls_trainer_cluster.wire with an ls_tcp_place as `comm`.
 * Any thread. The engine's open, which ls_trainer_open calls, fails with LS_EINVAL (an address
 * cannot be parsed or cannot be reached from another host, the secret is too short, or the first
 * member expects another number of members), LS_ETIMEDOUT (not all members came, or the first does
 * not answer), LS_EUNSUPPORTED (the secrets differ, or the run has already begun), LS_EIO (the peer
 * that answers is not a member of this run), LS_ESYSTEM (the address is in use, or one member
 * cannot reach another) or LS_ENOMEM. */
const ls_wire_type *ls_wire_tcp(void);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
