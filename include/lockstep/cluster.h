/* SPDX-License-Identifier: MIT */
/* Training in several processes: how a program finds the other processes of a run.
 *
 *     ls_tcp_place place = {.size = sizeof place, .meet = "10.0.0.1:7070", .members = 2,
 *                           .secret = secret, .secret_bytes = sizeof secret};
 *     ls_trainer_cluster cluster = {.size = sizeof cluster, .tcp = &place};
 *     ls_trainer_options o = {..., .config_path = "config.json", .cluster = &cluster};
 *
 * The processes of a run are its *members*. A *transport* is the code that carries messages between
 * the members, a table of functions (<lockstep/sys/transport.h>). The transport "tcp" is part of
 * the library, and the transport "mpi" is a plugin. A program can supply a transport of its own.
 */
#ifndef LOCKSTEP_CLUSTER_H
#define LOCKSTEP_CLUSTER_H

#include <lockstep/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MEMBERS_MAX 4096 /* largest number of members of a run */

/* A transport (<lockstep/sys/transport.h>). */
typedef struct ls_transport ls_transport;

/* How the members find each other with the transport "tcp" (ls_trainer_cluster.tcp). One member is
 * the *first* and has the number 0. The first waits for the other members, which are numbered in
 * the order of their addresses.
 *
 *     the first      .listen = ":7070"            or an address of this machine before the port
 *     the others     .meet = "10.0.0.1:7070"      any address that leads to the first; also the
 *                                                 address of a gateway that forwards to it
 *
 * If the config's cluster.on_arrival is "admit", a process can also join a run that has already
 * begun. Such a process sets `meet` to the address of any member, and waits until the members admit
 * it at the end of an epoch of ls_trainer_run. For such a process the field `members` is ignored,
 * and `timeout` limits the time until a member answers, and the time from the first failed
 * admission on. Members that train by ls_trainer_step admit no process.
 *
 * If no member sets `listen`, all members set the same `meet`, and the member whose machine has
 * this address is the first. The first tells every member the addresses of the other members. If a
 * member sets `advertise`, that is its address. Otherwise it has two addresses, and the other
 * members try both: the source address of its connection to the first, and the address that the
 * member itself reports. (They differ if a gateway has replaced the source address.)
 *
 * Every pair of members has LS_TRANSPORT_CHANNELS (<lockstep/sys/transport.h>) TCP connections.
 * Both ends of a connection prove that they know the secret without sending it (HMAC-SHA-256 over
 * random numbers of both ends). Therefore a program that does not know the secret cannot join the
 * run, and cannot keep a member from joining. All data that is sent after this proof is
 * authenticated (UMAC-128, with keys that are derived from the secret for each connection) and not
 * encrypted: data that was changed on the way is never used, and the connection counts as broken.
 * Use a tunnel on a network in which somebody must not read the weights. */
typedef struct ls_tcp_place {
    size_t size; /* sizeof(ls_tcp_place) */
    /* Address of the first member, "HOST:PORT", such as "10.0.0.1:7070" or "[fd00::1]:7070". NULL:
     * this member is the first, and sets `listen`. */
    const char *meet;
    /* Secret that only the members know. It should be random (head -c 32 /dev/urandom), because
     * whoever can connect can test guesses. A text of fewer than 24 characters causes a warning. */
    const void *secret;
    size_t secret_bytes; /* length of the secret, at least LS_TCP_SECRET_LEAST */
    int members;         /* total number of members, this one included */
    ls_timeout timeout;  /* longest time that ls_trainer_open waits for the other members; 0: the
                          * default, 600 s */
    /* Address on which this member listens, "HOST:PORT"; or ":PORT" for all addresses of this
     * machine. A member that sets `meet` as well is not the first; its port may be 0, and the
     * system then chooses a port. NULL: the member whose machine has the address `meet` listens
     * there; every other member listens on a port that the system chooses. */
    const char *listen;
    /* Address at which the others reach this member, "HOST" or "HOST:PORT"; only for members with
     * `meet`. NULL: one of the two addresses described above. */
    const char *advertise;
} ls_tcp_place;

/* The other processes of a run, for ls_trainer_options.cluster. At most one of `tcp`, `mpi_comm`
 * and `transport` is set: it is the transport. If none is set, the config's key cluster.transport
 * names it. What the pointers refer to is read while the trainer is opened. */
typedef struct ls_trainer_cluster {
    size_t size;             /* sizeof(ls_trainer_cluster) */
    const ls_tcp_place *tcp; /* how the members find each other by TCP */
    const void *mpi_comm; /* a pointer to an MPI_Comm with all members; without it, the members of
                           * the transport "mpi" are all processes that the launcher has started */
    /* Number of processes that a launcher (such as mpirun) has started, if the caller knows it; 0:
     * unknown. If the config's cluster.transport is "auto", no transport is set and this number is
     * at least 2, the trainer uses the transport "mpi". With "auto" and a smaller number the
     * process trains alone. If this number is at least 2 and ls_trainer_open fails before it has
     * joined the others, it joins them to tell them why. It then waits up to two minutes for those
     * that have not come, and MPI is finalized if this library had started it. */
    int launched;
    const ls_transport *transport; /* a transport of the program's own */
    const void *place;             /* value of ls_wire_options.place for that transport */
} ls_trainer_cluster;

#define LS_TCP_SECRET_LEAST 16 /* smallest length of the secret in bytes */

#pragma GCC visibility push(default)
/* Returns the transport "tcp" of this library, for transports that pass calls on to it; the place
 * is an ls_tcp_place. Any thread. While ls_trainer_open joins the other members, this transport can
 * fail with
 *
 * - LS_EINVAL: an address cannot be parsed, or a host's name leads to a loopback address such as
 *   127.0.1.1; the secret is too short; or the first member expects another number of members
 * - LS_ETIMEDOUT: not all members came in time, or the first does not answer
 * - LS_EUNSUPPORTED: the secrets or the versions differ, or the run has already begun
 * - LS_EIO: the program that answers is not a member of this run
 * - LS_ESYSTEM: the address is in use, a connection between two members failed, or a message was
 *   changed on the way
 * - LS_ENOMEM */
const ls_transport *ls_transport_tcp(void);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
