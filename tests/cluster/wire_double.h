/* SPDX-License-Identifier: MIT */
/* A test double of a transport between processes, a transport (<lockstep/sys/transport.h>). It
 * connects threads of one process, which stand for the *members* of a run. It can be slow, be cut,
 * hang, and lose members. The `comm` (ls_wire_options) of each member is a wire_place. A *post* is
 * one call of the transport's function post. */
#ifndef TESTS_CLUSTER_WIRE_DOUBLE_H
#define TESTS_CLUSTER_WIRE_DOUBLE_H

#include <lockstep/sys/transport.h>
#include <stdatomic.h>
#include <stdint.h>

enum { WIRE_MOST = 8 };

/* All members that can be connected, and the messages in transit. */
typedef struct wire_world wire_world;

typedef struct wire_place {
    wire_world *world;
    int member;
} wire_place;

extern const ls_transport wire_double;

/* Clock of the calling thread, in nanoseconds; NULL: the machine's clock. */
extern _Thread_local const _Atomic uint64_t *wire_own_clock;

wire_world *wire_world_create(int members);
void wire_world_destroy(wire_world *world);

/* Delays messages by random times up to `most_ns`. Messages of one channel between two members keep
 * their sequence. */
void wire_world_delay(wire_world *world, uint64_t most_ns, uint64_t seed);
/* While `cut` is non-zero, no message reaches or leaves the member. */
void wire_world_cut(wire_world *world, int member, int cut);
/* Cuts the member at its post number `posts`, counted from the member's start, as if the member had
 * been killed then. */
void wire_world_kill_at(wire_world *world, int member, uint64_t posts);
/* From its post number `posts` on, the member's transport reports a broken connection. */
void wire_world_break_at(wire_world *world, int member, uint64_t posts);
/* From its post number `posts` on, the member's transport reports that the connection to the member
 * `peer` is broken, at each post to this peer. */
void wire_world_sever_at(wire_world *world, int member, int peer, uint64_t posts);
/* From now on messages that the member sends on this channel do not arrive. All other messages
 * arrive. */
void wire_world_hold(wire_world *world, int member, int channel);
/* Limits the rate of a member's messages to another member. The send completes when the message has
 * arrived. */
void wire_world_rate(wire_world *world, uint64_t bytes_per_s);
/* Gives the members' progress threads (src/cluster) a clock of their own, which does not depend on
 * the machine's load. The clock advances by 2 ms when every open member has polled without result
 * since the last advance. Called before any member opens. The program must be linked with
 * own_clock.c. */
void wire_world_own_clock(wire_world *world);
/* Returns by how much the clock of wire_world_own_clock has advanced. */
uint64_t wire_world_elapsed_ns(wire_world *world);
/* Returns the number of transfers that a member has posted. */
uint64_t wire_world_posts(wire_world *world, int member);
/* Returns the number of messages that a member has sent on a channel. */
uint64_t wire_world_sent(wire_world *world, int member, int channel);
/* Returns the largest number of bytes of a member's messages that were in transit at the same
 * time. */
size_t wire_world_most_under_way(wire_world *world, int member);
/* While `hang` is non-zero, the member's calls of poll do not return. */
void wire_world_hang(wire_world *world, int member, int hang);
/* Makes the function `open` wait for `members` members, of which one never comes. */
void wire_world_expect(wire_world *world, int members);

#endif
