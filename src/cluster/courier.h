/* The inside of the room: what the courier's files share. See cluster.h. */
#ifndef CLUSTER_COURIER_H
#define CLUSTER_COURIER_H

#include "cluster/cluster.h"
#include "merge/group.h"
#include "merge/tree.h"
#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"

#include <lockstep/pool.h>
#include <stdbool.h>

/* The orders that an order's results stand on, macros so that a test can weaken each one and see
 * ThreadSanitizer object (tests/sync/weakened_orders.sh). */
#ifndef LS_COURIER_DONE /* courier: the results are written before they are said to be there */
#define LS_COURIER_DONE memory_order_release
#endif
#ifndef LS_COURIER_SEEN /* caller: they are read after that was seen */
#define LS_COURIER_SEEN memory_order_acquire
#endif
#ifndef LS_COURIER_READY /* caller: a part of this member's nodes is written before it is said to be there */
#define LS_COURIER_READY memory_order_release
#endif
#ifndef LS_COURIER_TAKES /* courier: it is sent, and added, after that was seen */
#define LS_COURIER_TAKES memory_order_acquire
#endif
#ifndef LS_COURIER_SPINS /* before who waits for the courier goes to sleep */
#define LS_COURIER_SPINS 0
#endif

/* Channels of the wire. */
enum { LS_ON_CONTROL, LS_ON_HEADS, LS_ON_DATA, LS_ON_SUMS };

/* What a member says outside of orders. */
typedef enum ls_say {
    LS_SAY_ALIVE,
    LS_SAY_BYE,   /* it has come to its end, in good order, behind `begun` orders */
    LS_SAY_LEAVE, /* it has a fault */
    LS_SAY_LOSS,  /* another member is lost: the surviving members regroup */
    LS_SAY_END    /* it has a fault that none survives */
} ls_say;

typedef struct ls_control {
    uint32_t magic, say;
    uint64_t begun; /* orders of which its own part is there */
    char text[LS_ERROR_TEXT];
} ls_control;

/* What begins an order, from each member to each. */
typedef struct ls_head {
    uint32_t magic, kind;
    uint64_t number;
    uint64_t bytes; /* of the sender's part; of a sum: of the arena */
    uint32_t shards;
    uint32_t asks; /* to stop */
    char host[LS_MEMBER_NAME];
} ls_head;

typedef enum ls_order_kind {
    LS_ORDER_OPEN,
    LS_ORDER_GATHER,
    LS_ORDER_SUM,
    LS_ORDER_REGROUP,
    LS_ORDER_CLOSE
} ls_order_kind;

/* How joining ended. */
enum { LS_JOINING, LS_JOINING_JOINED, LS_JOINING_GIVEN_UP };

/* A transfer, and what it is for. */
typedef enum ls_parcel_kind {
    LS_PARCEL_CONTROL_IN,
    LS_PARCEL_CONTROL_OUT,
    LS_PARCEL_LAST_OUT, /* a bye, or a leave */
    LS_PARCEL_HEAD_IN,
    LS_PARCEL_NODE_IN,
    LS_PARCEL_OTHER /* of an order: it has only to end */
} ls_parcel_kind;

typedef struct ls_parcel {
    ls_transfer transfer; /* its first member, by which poll names it */
    ls_parcel_kind kind;
    int piece;              /* NODE_IN: the arena's */
    struct ls_parcel *next; /* that waits for the same peer */
} ls_parcel;

typedef struct ls_peer {
    char host[LS_MEMBER_NAME];
    uint64_t silent_ns; /* of the courier's attended time */
    uint64_t begun;     /* orders, as it said last */
    int origin;         /* what it was called in the first group */
    bool gone;          /* it has said its last word */
    bool ended;         /* which was not about another's loss */
    bool saying;        /* `out` is on its way */
    bool told_last;     /* this member's last word was posted … */
    bool telling;       /* … and is on its way */
    ls_control in, out, last;
    ls_parcel in_parcel, out_parcel, last_parcel;
    ls_head head_in;
    int coming;                        /* messages of orders that it has yet to send */
    size_t under_way;                  /* bytes of orders on their way to it … */
    ls_parcel *waiting, **waiting_end; /* … and what goes behind them */
} ls_peer;

/* Bytes of orders that are on their way to all others together; to each at least one message. An engine may send what it
 * has got in any order: what says that this member is alive must not stand behind a whole arena, nor all of an arena's
 * pieces end together. */
#define LS_UNDER_WAY ((size_t)8 << 20)

enum { LS_PIECES_MOST = 1024 /* of a member */ };

/* The rest of the tree over all members' nodes. */
typedef struct ls_sum {
    int shards;
    size_t floats;
    size_t piece;  /* floats of each piece of the arena but the last … */
    int pieces;    /* … and how many there are */
    int nodes;     /* of this member, … */
    int others;    /* … and of all others together */
    float *memory; /* the nodes, and behind them the total */
    float *node[LS_PARTIALS_MAX];
    float *total;
    float *stage; /* [this member's pieces][others][piece]: the others' nodes */
    ls_tree_rest rest;
    _Atomic size_t ready; /* so many of the nodes' floats are there; the caller's */
    int brought;          /* pieces of them that were sent, or are this member's own to add */
    int added;            /* of this member's pieces */
    int arrived[LS_PIECES_MOST]; /* nodes that are there of each of them */
} ls_sum;

/* Most bytes of a message. A member is given up if nothing comes or goes for the deadline, so a message
 * must be over sooner than that, also where several share a slow line. */
#define LS_MESSAGE_MOST ((size_t)4 << 20)

/* Of a group before a loss. */
typedef struct ls_old_sum {
    ls_sum sum;
    struct ls_old_sum *next;
} ls_old_sum;

struct ls_cluster {
    ls_cluster_options options;
    /* The callers', by the last order that changed them; the courier's own are its wire's. */
    int member, members;
    char (*name)[LS_MEMBER_NAME]; /* of each member, … */
    int *origin;                  /* … and what it was called in the first group */
    uint64_t group;               /* how many times it was regrouped before */
    char host[LS_MEMBER_NAME];    /* this one's */
    ls_pool *pool;                /* of one worker: the courier */
    ls_ring orders;
    ls_park finished;
    ls_heartbeat heartbeat; /* the courier's */

    /* The order: the caller's until it is pushed and from `done` on, the courier's between. */
    uint64_t order_bytes; /* of this member's part */
    size_t *bytes;        /* of a gather, of each member */
    unsigned char *stage; /* of a gather: all parts one behind the other; the wire's own memory */
    size_t stage_bytes;
    ls_parcel *parcel;
    int parcel_room;
    ls_sum sum;
    ls_old_sum *old_sums;
    int agreed;
    int status;
    ls_error error;
    bool lost; /* the order failed by a loss */
    atomic_bool done;
    ls_error leaving; /* why this member leaves, from `left` on */
    atomic_bool left;
    atomic_int joining; /* first of the courier and its caller to say how it ended is right */
    bool hangs;         /* the courier was given up; the callers' */
    bool kept;          /* its memory outlives its end; likewise */
    bool summing;       /* a sum was begun and not waited for; likewise */
    bool summed;        /* and not committed yet; likewise */

    /* The courier's. */
    ls_wire *wire;
    ls_peer *peer;
    bool active;        /* an order is under way, … */
    ls_order_kind kind; /* … or was last, of this kind */
    uint64_t begun;
    int parcels, open; /* of the order: used, and not ended yet */
    int heads;         /* to come */
    ls_head head;
    ls_thread_use own; /* its thread's, while a member is suspected */
    uint64_t looked_ns, spoke_ns, stuck_ns, fault_ns;
    bool closed;
    uint64_t now_group; /* that its wire is of */
    int in_vain;        /* how many times it has regrouped since the last sum */
    bool loss;          /* the fault is one: the surviving members regroup */
    ls_error last_loss; /* of those that it has recovered from */
    bool touched; /* the wire may still touch memory of ours; the callers' behind the last order */
    ls_error fault; /* status 0: none */
    atomic_bool regroups;
};

/* ---- courier.c ------------------------------------------------------------------------------ */

/* The job of the courier's thread. `arg` is the cluster. */
int ls_courier(const ls_worker *worker, void *arg, ls_error *err);

/* Whether joining ends this way: the other side has not said before that it ends in another. */
bool ls_joining_ends(ls_cluster *c, int how);

/* Posts the next parcel of the order; a failure becomes the fault. */
void ls_courier_post(ls_cluster *c, ls_parcel_kind kind, int piece, const ls_transfer *transfer);

/* ---- sum.c ---------------------------------------------------------------------------------- */

int ls_sum_prepare(ls_cluster *c, int shards, size_t floats, ls_error *err);
void ls_sum_fini(ls_sum *sum, const ls_host *host);
/* Parcels that a sum may need, heads included. */
int ls_sum_parcels(const ls_cluster *c);
/* Posts all receives, and what there is to send. */
void ls_sum_begin(ls_cluster *c);
/* Posts what this member has brought since. */
void ls_sum_go_on(ls_cluster *c);
/* Whether it has brought all. */
bool ls_sum_is_brought(const ls_cluster *c);
/* A node of a piece of this member's is there: when all are, they are added and go to all. */
void ls_sum_arrived(ls_cluster *c, int piece);

#endif
