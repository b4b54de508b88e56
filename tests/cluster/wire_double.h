/* A double of a transport engine: connects threads of one process, and can be slow, be cut, hang,
 * and lose members. The `comm` of each member is a wire_place. */
#ifndef TESTS_CLUSTER_WIRE_DOUBLE_H
#define TESTS_CLUSTER_WIRE_DOUBLE_H

#include <lockstep/sys/wire.h>

enum { WIRE_MOST = 8 };

typedef struct wire_world wire_world;

typedef struct wire_place {
    wire_world *world;
    int member;
} wire_place;

extern const ls_wire_type wire_double;

wire_world *wire_world_create(int members);
void wire_world_destroy(wire_world *world);

/* Messages take up to so long, each another time; those of one channel and pair keep their order. */
void wire_world_delay(wire_world *world, uint64_t most_ns, uint64_t seed);
/* Nothing reaches or leaves the member any more, until it is mended. */
void wire_world_cut(wire_world *world, int member, int cut);
/* The same from the member's post number `posts` on, counted from its start: as if it had been killed there. */
void wire_world_kill_at(wire_world *world, int member, uint64_t posts);
/* From that post on its engine says that a connection broke. */
void wire_world_break_at(wire_world *world, int member, uint64_t posts);
/* Messages of a member on a channel do not arrive any more, while all others do. */
void wire_world_hold(wire_world *world, int member, int channel);
/* A member's messages to another follow each other at so many bytes a second; who sends one is told when it is
 * there. */
void wire_world_rate(wire_world *world, uint64_t bytes_per_s);
/* How many transfers a member has posted. */
uint64_t wire_world_posts(wire_world *world, int member);
/* How many messages it has sent on a channel. */
uint64_t wire_world_sent(wire_world *world, int member, int channel);
/* The most bytes of its messages that were on their way at once. */
size_t wire_world_most_under_way(wire_world *world, int member);
/* The member's polls do not return until that is over. */
void wire_world_hang(wire_world *world, int member, int hang);
/* The member's open waits for this many members, of which one never comes. */
void wire_world_expect(wire_world *world, int members);

#endif
