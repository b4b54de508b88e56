/* SPDX-License-Identifier: MIT */
/* Sums over the shard tree (cluster.h): a reduce-scatter followed by an all-gather, piece by piece.
 * Piece p is owned by member p modulo the number of members. For each piece:
 *
 *     every member    sends this piece of each of its nodes to the owner
 *     the owner       adds this piece of all nodes as the tree prescribes (add_piece), and sends
 *                     the sum to every member
 *
 * A member sends a piece as soon as the caller has written this piece of its nodes
 * (ls_cluster_ready), while its devices still compute later pieces. */
#include "base/error.h"
#include "base/host.h"
#include "cluster/progress.h"

#include <lockstep/split.h>
#include <string.h>

#define PIECE_FLOATS ((size_t)1 << 18) /* least size of a piece in a large arena: 1 MiB */
#define PIECES_GOOD 64                 /* most pieces of a member, unless they get too long */

void ls_cluster_span(const ls_cluster *c, int shards, int member, int *lo, int *hi)
{
    uint32_t first, count;
    ls_split((uint32_t)shards, (uint32_t)c->members, (uint32_t)member, &first, &count);
    *lo = (int)first;
    *hi = (int)(first + count);
}

/* Lists the nodes of a member, and returns their number. */
static int nodes_of(ls_span out[LS_PARTIALS_MAX], const ls_cluster *c, int shards, int member)
{
    int lo, hi;
    ls_cluster_span(c, shards, member, &lo, &hi);
    return ls_tree_cover(out, shards, lo, hi);
}

static size_t round_up(size_t floats, size_t to)
{
    return (floats + to - 1) / to * to;
}

/* Cuts the arena (all floats of a node) into pieces. The numbers of pieces that two members own
 * differ by one at most. If the arena is large enough, a piece has at least PIECE_FLOATS floats. A
 * member owns at most PIECES_GOOD pieces, unless a piece would then exceed LS_MESSAGE_MOST. */
static void cut(ls_sum *s, int members)
{
    const size_t share = round_up(s->floats, 16 * (size_t)members) / (size_t)members;
    const size_t least = share / (LS_MESSAGE_MOST / sizeof(float)) + 1;
    size_t each = (share + PIECE_FLOATS - 1) / PIECE_FLOATS;
    each = each > PIECES_GOOD ? PIECES_GOOD : each;
    each = each < least ? least : each;
    each = each > LS_PIECES_MOST ? LS_PIECES_MOST : each;
    s->piece = round_up((share + each - 1) / each, 16);
    s->pieces = (int)((s->floats + s->piece - 1) / s->piece);
}

static int owner_of(const ls_cluster *c, int piece)
{
    return piece % c->members;
}

/* Returns the number of pieces that this member owns. */
static int own_pieces(const ls_cluster *c)
{
    return (c->sum.pieces + c->members - 1 - c->member) / c->members;
}

/* Returns the memory for the k-th piece that this member owns: the floats of all other members'
 * nodes, one node after another. */
static float *stage_of(const ls_sum *s, int k)
{
    return s->stage + (size_t)k * (size_t)s->others * s->piece;
}

/* ---- preparing ------------------------------------------------------------------------------- */

void ls_sum_fini(ls_sum *s, const ls_host *host)
{
    ls_free(host, s->memory);
    ls_free(host, s->stage);
    ls_tree_rest_fini(&s->rest, host);
    memset(s, 0, sizeof *s);
}

/* Lists the nodes of all members, member by member, for the additions above these nodes
 * (merge/group.h). `total`: number of these nodes. Their leaves have the same sequence in the
 * tree. */
static int list_nodes(ls_cluster *c, int total, ls_error *err)
{
    ls_sum *s = &c->sum;
    ls_span span[LS_PARTIALS_MAX];
    int status = ls_tree_rest_begin(&s->rest, total, c->options.host, err);
    for (int m = 0; m < c->members && status == LS_OK; m++) {
        const int count = nodes_of(span, c, s->shards, m);
        for (int i = 0; i < count; i++) {
            const ls_tree_rest_part part = {m, i, span[i], 0, m == c->member ? s->node[i] : NULL};
            if (!ls_tree_rest_push(&s->rest, s->shards, &part))
                return ls_fail(err, LS_EINTERNAL, "the nodes of %d members leave too many sums",
                               c->members);
        }
    }
    return status;
}

/* Allocates the memory. This member's nodes and the total are one block, so that the block can be
 * registered with a device as a whole. */
static int allocate(ls_cluster *c)
{
    ls_sum *s = &c->sum;
    const ls_host *host = c->options.host;
    const size_t staged = (size_t)own_pieces(c) * (size_t)s->others;
    s->memory = ls_alloc_array(host, (size_t)(s->nodes + 1) * s->floats, sizeof(float));
    s->stage = ls_alloc_array(host, staged * s->piece, sizeof(float));
    for (int i = 0; i < s->nodes && s->memory; i++)
        s->node[i] = s->memory + (size_t)i * s->floats;
    s->total = s->memory ? s->memory + (size_t)s->nodes * s->floats : NULL;
    return s->memory && s->stage ? LS_OK : LS_ENOMEM;
}

int ls_sum_prepare(ls_cluster *c, int shards, size_t floats, ls_error *err)
{
    ls_sum *s = &c->sum;
    ls_span span[LS_PARTIALS_MAX];
    if (s->total && s->shards == shards && s->floats == floats)
        return LS_OK;
    if (shards < c->members || floats % 16 != 0)
        return ls_fail(err, LS_EINVAL,
                       "%d shards over %d hosts: a minibatch needs a shard for each; set shards to "
                       "at least %d, or take fewer hosts",
                       shards, c->members, c->members);
    ls_sum_fini(s, c->options.host);
    s->shards = shards;
    s->floats = floats;
    cut(s, c->members);
    s->nodes = nodes_of(span, c, shards, c->member);
    for (int m = 0; m < c->members; m++)
        s->others += m == c->member ? 0 : nodes_of(span, c, shards, m);
    int status = allocate(c);
    if (status)
        return ls_fail(err, status, "out of memory for sums of %zu floats over %d hosts", floats,
                       c->members);
    return list_nodes(c, s->nodes + s->others, err);
}

int ls_sum_requests(const ls_cluster *c)
{
    const ls_sum *s = &c->sum;
    return 2 * c->members + s->pieces * (s->nodes + 1)     /* headers, nodes out, sums in */
           + own_pieces(c) * (s->others + c->members - 1); /* nodes in, sums out */
}

/* With n members, a member with k nodes sends (n − 1)/n of each node to the owners of the pieces,
 * and the sums of its own pieces, 1/n of the arena, to n − 1 members. In all it sends
 * (k + 1)·(n − 1)/n arenas. In a ring all-reduce it is 2·(n − 1)/n arenas. */
double ls_cluster_bytes_factor(const ls_cluster *c)
{
    ls_span span[LS_PARTIALS_MAX];
    int most = 1;
    for (int m = 0; m < c->members; m++) {
        const int nodes = nodes_of(span, c, c->sum.shards, m);
        most = nodes > most ? nodes : most;
    }
    return (most + 1) / 2.0;
}

/* ---- a sum, on the progress thread ----------------------------------------------------------- */

static size_t piece_floats(const ls_sum *s, int piece)
{
    const size_t left = s->floats - (size_t)piece * s->piece;
    return left < s->piece ? left : s->piece;
}

/* Posts the send or the receive of one piece. */
static void post_floats(ls_cluster *c, ls_request_kind kind, int piece, int peer, int channel,
                        int incoming, float *data)
{
    const ls_transfer t = {.peer = peer,
                           .channel = channel,
                           .incoming = incoming,
                           .data = data,
                           .bytes = piece_floats(&c->sum, piece) * sizeof *data};
    ls_progress_post(c, kind, piece, &t);
}

/* Posts the receives of a piece that this member owns: one for each node of the other members. */
static void receive_nodes(ls_cluster *c, int piece)
{
    ls_sum *s = &c->sum;
    ls_span span[LS_PARTIALS_MAX];
    float *at = stage_of(s, piece / c->members);
    for (int m = 0; m < c->members; m++) {
        const int nodes = m == c->member ? 0 : nodes_of(span, c, s->shards, m);
        for (int i = 0; i < nodes; i++, at += s->piece)
            post_floats(c, LS_REQUEST_NODE_IN, piece, m, LS_ON_DATA, 1, at);
    }
}

/* Adds the k-th piece that this member owns over all nodes, and posts the sends of the sum. */
static void add_piece(ls_cluster *c, int k)
{
    ls_sum *s = &c->sum;
    const int piece = k * c->members + c->member;
    const size_t first = (size_t)piece * s->piece;
    /* ls_tree_rest_add reads each node from float `first` on, where a received piece begins */
    const float *other = stage_of(s, k) - first;
    for (int i = 0; i < s->rest.count; i++)
        if (s->rest.part[i].rank != c->member) {
            s->rest.part[i].data = other;
            other += s->piece;
        }
    ls_tree_rest_add(&s->rest, &s->total, first, piece_floats(s, piece));
    for (int d = 1; d < c->members; d++)
        post_floats(c, LS_REQUEST_OTHER, piece, (c->member + d) % c->members, LS_ON_SUMS, 0,
                    s->total + first);
}

/* This member's pieces are added and sent in ascending sequence, because the other members have
 * posted the receives in that sequence. */
void ls_sum_arrived(ls_cluster *c, int piece)
{
    ls_sum *s = &c->sum;
    s->arrived[piece / c->members]++;
    while (s->added < own_pieces(c) && s->arrived[s->added] == s->others + s->nodes)
        add_piece(c, s->added++);
}

/* Sends a piece of each node of this member to the owner of the piece. If this member is the owner,
 * counts the nodes as arrived. */
static void deliver_piece(ls_cluster *c, int piece)
{
    ls_sum *s = &c->sum;
    const int owner = owner_of(c, piece);
    for (int i = 0; i < s->nodes; i++)
        if (owner == c->member)
            ls_sum_arrived(c, piece);
        else
            post_floats(c, LS_REQUEST_OTHER, piece, owner, LS_ON_DATA, 0,
                        s->node[i] + (size_t)piece * s->piece);
}

/* The receives are posted before the sends, so that data that arrive early have a buffer. */
void ls_sum_begin(ls_cluster *c)
{
    ls_sum *s = &c->sum;
    memset(s->arrived, 0, sizeof s->arrived);
    s->added = s->delivered = 0;
    for (int p = 0; p < s->pieces; p++)
        if (owner_of(c, p) == c->member)
            receive_nodes(c, p);
        else
            post_floats(c, LS_REQUEST_OTHER, p, owner_of(c, p), LS_ON_SUMS, 1,
                        s->total + (size_t)p * s->piece);
    ls_sum_go_on(c);
}

bool ls_sum_is_delivered(const ls_cluster *c)
{
    return c->sum.delivered == c->sum.pieces;
}

void ls_sum_go_on(ls_cluster *c)
{
    ls_sum *s = &c->sum;
    const size_t ready = atomic_load_explicit(&s->ready, LS_PROGRESS_TAKES);
    while (s->delivered < s->pieces &&
           (size_t)s->delivered * s->piece + piece_floats(s, s->delivered) <= ready)
        deliver_piece(c, s->delivered++);
}
