/* Sums over the shard tree: chunk c of every member's nodes goes to member c, which adds them in the order of
 * the tree and sends the sum to all. */
#include "base/error.h"
#include "base/host.h"
#include "cluster/courier.h"

#include <lockstep/split.h>
#include <string.h>

#define PIECE_FLOATS ((size_t)1 << 18) /* 1 MiB: the least of a piece */

void ls_cluster_span(const ls_cluster *c, int shards, int member, int *lo, int *hi)
{
    uint32_t first, count;
    ls_split((uint32_t)shards, (uint32_t)c->members, (uint32_t)member, &first, &count);
    *lo = (int)first;
    *hi = (int)(first + count);
}

static int nodes_of(ls_span out[LS_PARTIALS_MAX], const ls_cluster *c, int shards, int member)
{
    int lo, hi;
    ls_cluster_span(c, shards, member, &lo, &hi);
    return ls_tree_cover(out, shards, lo, hi);
}

static void chunk_of(const ls_cluster *c, int member, size_t *first, size_t *count)
{
    uint32_t line, lines;
    ls_split((uint32_t)(c->sum.floats / 16), (uint32_t)c->members, (uint32_t)member, &line, &lines);
    *first = (size_t)line * 16;
    *count = (size_t)lines * 16;
}

/* So that no chunk has more than LS_PIECES_MOST pieces; the first member's chunk is a longest. */
static size_t piece_size(const ls_cluster *c)
{
    size_t first, count;
    chunk_of(c, 0, &first, &count);
    const size_t least = (count / LS_PIECES_MOST + 16) / 16 * 16;
    return least > PIECE_FLOATS ? least : PIECE_FLOATS;
}

static int pieces_of(const ls_cluster *c, int member)
{
    size_t first, count;
    chunk_of(c, member, &first, &count);
    return (int)((count + c->sum.piece - 1) / c->sum.piece);
}

/* ---- making room ---------------------------------------------------------------------------- */

void ls_sum_fini(ls_cluster *c)
{
    ls_sum *s = &c->sum;
    for (int i = 0; i < LS_PARTIALS_MAX; i++)
        ls_free(c->options.host, s->node[i]);
    ls_free(c->options.host, s->total);
    ls_free(c->options.host, s->stage);
    ls_rest_fini(&s->rest, c->options.host);
    *s = (ls_sum){0};
}

/* The nodes of all members in the order of their leaves, which is that of the members; where each one's
 * floats of this member's chunk lie, counted from the arena's start. */
static int list_nodes(ls_cluster *c, int total, ls_error *err)
{
    ls_sum *s = &c->sum;
    const float *other = s->stage - s->first;
    ls_span span[LS_PARTIALS_MAX];
    int status = ls_rest_begin(&s->rest, total, c->options.host, err);
    for (int m = 0; m < c->members && status == LS_OK; m++) {
        const int count = nodes_of(span, c, s->shards, m);
        for (int i = 0; i < count; i++) {
            const bool own = m == c->member;
            const ls_rest_part part = {m, i, span[i], 0, own ? s->node[i] : other};
            other += own ? 0 : s->count;
            if (!ls_rest_push(&s->rest, s->shards, &part))
                return ls_fail(err, LS_EINTERNAL, "the nodes of %d members leave too many sums",
                               c->members);
        }
    }
    return status;
}

static int allocate(ls_cluster *c)
{
    ls_sum *s = &c->sum;
    const ls_host *host = c->options.host;
    bool complete = true;
    for (int i = 0; i < s->nodes; i++) {
        s->node[i] = ls_alloc_array(host, s->floats, sizeof(float));
        complete = complete && s->node[i];
    }
    s->total = ls_alloc_array(host, s->floats, sizeof(float));
    s->stage = ls_alloc_array(host, (size_t)s->others * s->count, sizeof(float));
    return complete && s->total && s->stage ? LS_OK : LS_ENOMEM;
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
    ls_sum_fini(c);
    s->shards = shards;
    s->floats = floats;
    s->piece = piece_size(c);
    s->pieces = pieces_of(c, c->member);
    chunk_of(c, c->member, &s->first, &s->count);
    s->nodes = nodes_of(span, c, shards, c->member);
    for (int m = 0; m < c->members; m++)
        s->others += m == c->member ? 0 : nodes_of(span, c, shards, m);
    int status = allocate(c);
    if (status)
        return ls_fail(err, status, "out of memory for sums of %zu floats over %d hosts", floats,
                       c->members);
    return list_nodes(c, s->nodes + s->others, err);
}

int ls_sum_parcels(const ls_cluster *c)
{
    const ls_sum *s = &c->sum;
    int count = 0;
    for (int m = 0; m < c->members; m++)
        count += 2 + pieces_of(c, m) * (s->nodes + 1);   /* heads, nodes out, sums in */
    return count + s->pieces * (s->others + c->members); /* nodes in, sums out */
}

/* A member with k nodes sends k + 1 parts of the arena where a ring sends two; all members wait for the one
 * that sends most. */
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

/* ---- a sum, on the courier ------------------------------------------------------------------ */

/* Of a chunk of `count` floats. */
static size_t piece_floats(const ls_sum *s, size_t count, int piece)
{
    const size_t first = (size_t)piece * s->piece;
    return count - first < s->piece ? count - first : s->piece;
}

static void post_floats(ls_cluster *c, ls_parcel_kind kind, int piece, int peer, int channel,
                        int incoming, float *data, size_t count)
{
    const ls_transfer t = {.peer = peer,
                           .channel = channel,
                           .incoming = incoming,
                           .data = data,
                           .bytes = count * sizeof *data};
    ls_courier_post(c, kind, piece, &t);
}

/* The others' nodes of this member's chunk, piece by piece; `at` is where they lie in the stage. */
static void receive_nodes(ls_cluster *c, int peer, float *at)
{
    ls_sum *s = &c->sum;
    ls_span span[LS_PARTIALS_MAX];
    const int nodes = nodes_of(span, c, s->shards, peer);
    for (int p = 0; p < s->pieces; p++)
        for (int i = 0; i < nodes; i++)
            post_floats(c, LS_PARCEL_NODE_IN, p, peer, LS_ON_DATA, 1,
                        at + (size_t)i * s->count + (size_t)p * s->piece,
                        piece_floats(s, s->count, p));
}

static void receive_sum(ls_cluster *c, int peer)
{
    ls_sum *s = &c->sum;
    size_t first, count;
    chunk_of(c, peer, &first, &count);
    for (int p = 0; p < pieces_of(c, peer); p++)
        post_floats(c, LS_PARCEL_OTHER, p, peer, LS_ON_SUMS, 1,
                    s->total + first + (size_t)p * s->piece, piece_floats(s, count, p));
}

static void send_nodes(ls_cluster *c, int peer)
{
    ls_sum *s = &c->sum;
    size_t first, count;
    chunk_of(c, peer, &first, &count);
    for (int p = 0; p < pieces_of(c, peer); p++)
        for (int i = 0; i < s->nodes; i++)
            post_floats(c, LS_PARCEL_OTHER, p, peer, LS_ON_DATA, 0,
                        s->node[i] + first + (size_t)p * s->piece, piece_floats(s, count, p));
}

static void add_and_send(ls_cluster *c, int piece)
{
    ls_sum *s = &c->sum;
    const size_t first = s->first + (size_t)piece * s->piece;
    const size_t count = piece_floats(s, s->count, piece);
    ls_rest_add(&s->rest, &s->total, first, count);
    for (int d = 1; d < c->members; d++)
        post_floats(c, LS_PARCEL_OTHER, piece, (c->member + d) % c->members, LS_ON_SUMS, 0,
                    s->total + first, count);
}

/* Receives are posted first, so that what arrives finds its place. Members begin with their neighbours, so
 * that they do not all send to the same one at once. */
void ls_sum_begin(ls_cluster *c)
{
    ls_sum *s = &c->sum;
    ls_span span[LS_PARTIALS_MAX];
    float *at = s->stage;
    memset(s->arrived, 0, sizeof s->arrived);
    for (int m = 0; m < c->members; m++) {
        if (m == c->member)
            continue;
        receive_nodes(c, m, at);
        at += (size_t)nodes_of(span, c, s->shards, m) * s->count;
        receive_sum(c, m);
    }
    for (int d = 1; d < c->members; d++)
        send_nodes(c, (c->member + d) % c->members);
    for (int p = 0; p < s->pieces && s->others == 0; p++)
        add_and_send(c, p);
}

void ls_sum_arrived(ls_cluster *c, int piece)
{
    if (++c->sum.arrived[piece] == c->sum.others)
        add_and_send(c, piece);
}
