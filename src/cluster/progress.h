/* SPDX-License-Identifier: MIT */
/* Internals of the cluster, shared by the files of this directory. An order is one of cluster.h;
 * *memory order* is that of C11.
 *
 * A *peer* is another member. A *control message* is a message outside of orders: a sign of life,
 * or the last message that a member sends to a peer on a transport. A *request* is a transfer
 * together with its purpose. */
#ifndef CLUSTER_PROGRESS_H
#define CLUSTER_PROGRESS_H

#include "cluster/cluster.h"
#include "merge/group.h"
#include "merge/tree.h"
#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"

#include <lockstep/pool.h>
#include <stdbool.h>

/* Memory orders by which a thread hands over the results of an order or the parts of a sum
 * (cluster.h, "Memory order"). They are macros so that a test can weaken each one and check that
 * ThreadSanitizer reports the data race (tests/sync/weakened_orders.sh). */
#ifndef LS_PROGRESS_DONE /* progress thread: stores `done` after it has written the results */
#define LS_PROGRESS_DONE memory_order_release
#endif
#ifndef LS_PROGRESS_SEEN /* caller: loads `done` before it reads the results */
#define LS_PROGRESS_SEEN memory_order_acquire
#endif
#ifndef LS_PROGRESS_READY /* caller: stores sum.ready after it has written its nodes */
#define LS_PROGRESS_READY memory_order_release
#endif
#ifndef LS_PROGRESS_TAKES /* progress thread: loads sum.ready before it reads these nodes */
#define LS_PROGRESS_TAKES memory_order_acquire
#endif
/* how many times a caller that waits for an order checks `done` before it sleeps */
#ifndef LS_PROGRESS_SPINS
#define LS_PROGRESS_SPINS 0
#endif

/* The first field of every message. It marks messages of this version. */
#define LS_CLUSTER_MAGIC 0x4c53776fu

/* Channels of the transport: independent, ordered sequences of messages between two members. */
enum {
    LS_ON_CONTROL, /* control messages */
    LS_ON_HEADS,   /* headers of orders */
    LS_ON_DATA,    /* parts of gathers; nodes, to the owner of a piece */
    LS_ON_SUMS     /* sums, from the owner of a piece */
};

/* Kinds of control messages. After any kind but the first, the sender sends nothing more on this
 * transport. */
typedef enum ls_control_kind {
    LS_CONTROL_ALIVE, /* a sign of life */
    LS_CONTROL_BYE,   /* the sender has ended its run normally */
    LS_CONTROL_LEAVE, /* the sender has a fault; the other members can go on without the sender */
    LS_CONTROL_LOSS,  /* the sender has noticed the loss of a third member, and will regroup */
    LS_CONTROL_END    /* the sender has a fault after which no member can go on */
} ls_control_kind;

/* A control message. */
typedef struct ls_control {
    uint32_t magic, kind; /* LS_CLUSTER_MAGIC; an ls_control_kind */
    /* number of sums, gathers and orders ADMIT that the sender has begun. A sum for which the
     * sender has not delivered all of its own data does not count yet */
    uint64_t begun;
    uint32_t lost; /* LEAVE, LOSS: 1 + number of the member that the sender has lost; 0: none, or
                    * not known */
    char text[LS_ERROR_TEXT]; /* LEAVE, LOSS, END: the sender's error */
} ls_control;

/* Header of a sum, of a gather or of an order ADMIT. Each member sends it to each other member. */
typedef struct ls_head {
    uint32_t magic, kind;      /* LS_CLUSTER_MAGIC; an ls_order_kind */
    uint64_t number;           /* number of the order on the sender: ls_cluster.begun */
    uint64_t bytes;            /* gather: bytes of the sender's part; sum: bytes of the arena */
    uint32_t shards;           /* sum: number of leaves of the tree; other orders: 0 */
    uint32_t asks;             /* non-zero: the sender asks all members to stop */
    uint64_t digest;           /* sum: digest of the sender's replicas; other orders: 0 */
    char host[LS_MEMBER_NAME]; /* name of the sender's host */
} ls_head;

/* Kinds of orders. */
typedef enum ls_order_kind {
    LS_ORDER_OPEN, /* join the other members */
    LS_ORDER_GATHER,
    LS_ORDER_SUM,
    LS_ORDER_REGROUP,  /* let the callers see the host group of the transport */
    LS_ORDER_ARRIVALS, /* ls_cluster_arrivals */
    LS_ORDER_ADMIT,    /* ls_cluster_admit */
    LS_ORDER_CLOSE
} ls_order_kind;

/* States of joining the other members (ls_cluster.joining): in progress; the progress thread has
 * joined; the caller has stopped waiting. */
enum { LS_JOINING, LS_JOINING_JOINED, LS_JOINING_GIVEN_UP };

/* The purposes of a transfer. The kinds from HEAD_IN on belong to an order. */
typedef enum ls_request_kind {
    LS_REQUEST_CONTROL_IN,
    LS_REQUEST_CONTROL_OUT, /* a sign of life */
    LS_REQUEST_LAST_OUT,    /* the last message to a peer, of any kind */
    LS_REQUEST_HEAD_IN,
    LS_REQUEST_NODE_IN, /* a piece of a node, for this member as the owner */
    LS_REQUEST_OTHER    /* data of an order; the end of the transfer needs no action */
} ls_request_kind;

/* A transfer with its purpose. */
typedef struct ls_request {
    ls_transfer transfer; /* must be first: poll returns a pointer to it */
    ls_request_kind kind;
    int piece;               /* NODE_IN: index of the piece of the arena */
    struct ls_request *next; /* next request that waits for the same peer */
} ls_request;

/* A peer, as the progress thread sees it. */
typedef struct ls_peer {
    char host[LS_MEMBER_NAME];
    /* attended time (base/clock.h) since the last message arrived from the peer */
    uint64_t silent_ns;
    uint64_t begun; /* ls_control.begun of the peer's most recent message */
    int origin;     /* the peer's origin (ls_cluster_origin) */
    bool sent_last; /* the peer's last message has arrived */
    /* that last message says that the peer leaves the run (every kind but LS_CONTROL_LOSS) */
    bool leaves_run;
    bool alive_in_transit; /* this member's sign of life to the peer, `out`, is in transit */
    bool last_posted;      /* this member's last message to the peer, `last`, has been posted */
    bool last_in_transit;  /* `last` is in transit */
    /* control messages: the one being received; this member's sign of life; its last message */
    ls_control in, out, last;
    ls_request in_request, out_request, last_request; /* the transfers of these messages */
    ls_head head_in;                                  /* header received from the peer */
    int coming;       /* number of transfers of the order that are still expected from the peer */
    size_t under_way; /* bytes of the order in transit to the peer */
    /* list of the sends to the peer that are posted later, when `under_way` leaves room */
    ls_request *waiting, **waiting_end;
} ls_peer;

/* Largest number of bytes of an order in transit to all peers together. One message to each peer is
 * always allowed. There is a limit for two reasons:
 *
 * - A transport can send posted messages of different channels in any sequence, and a sign of life
 *   must not wait for a whole arena.
 * - The first pieces of an arena should arrive early, and not at the same time as the last ones. */
#define LS_UNDER_WAY ((size_t)8 << 20)

enum { LS_PIECES_MOST = 1024 /* largest number of pieces for each member */ };

/* A sum of the nodes of all members (cluster.h, "sums over the shard tree"). */
typedef struct ls_sum {
    int shards;                   /* number of leaves of the tree, over all members */
    size_t floats;                /* length of the arena */
    size_t piece;                 /* length of a piece in floats; the last piece can be shorter */
    int pieces;                   /* number of pieces of the arena */
    int nodes;                    /* number of nodes of this member: the sums of its own shards */
    int others;                   /* number of nodes of all other members together */
    float *memory;                /* [nodes + 1][floats]: this member's nodes, then the total */
    float *node[LS_PARTIALS_MAX]; /* [nodes]: the nodes in `memory` */
    float *total;                 /* the sum over all members, in `memory` */
    float *stage;         /* [pieces that this member owns][others][piece]: the received nodes */
    ls_tree_rest rest;    /* the additions above the members' nodes (merge/group.h) */
    _Atomic size_t ready; /* number of floats of each node that the caller has written */
    /* Number of pieces, from the first on, that this member has delivered. A piece is delivered
     * when this member has posted the sends of its nodes to the owner of the piece. A piece that
     * this member owns is delivered when the caller has written this piece of this member's
     * nodes. */
    int delivered;
    int added; /* number of pieces owned by this member that have been added */
    /* [piece that this member owns]: number of nodes of which this piece has arrived, own nodes
     * included */
    int arrived[LS_PIECES_MOST];
} ls_sum;

/* Largest number of bytes of a message. The run fails if no message of an order is completed within
 * the deadline. Therefore a message must be short enough even if several members share a slow
 * network. */
#define LS_MESSAGE_MOST ((size_t)4 << 20)

/* The memory of a sum of an earlier host group, kept until ls_cluster_free_old. */
typedef struct ls_old_sum {
    ls_sum sum;
    struct ls_old_sum *next;
} ls_old_sum;

enum { LS_FAILURE = 320 /* bytes of the reason of a failed admission */ };

struct ls_cluster {
    ls_cluster_options options;
    /* The host group as the callers see it: this member's number and the number of members.
     * ls_names_publish copies them. The progress thread uses the member numbers of its transport
     * instead, because the transport can belong to a newer host group. */
    int member, members;
    char (*name)[LS_MEMBER_NAME]; /* [members]: name of each member's host */
    /* [members]: origin of each member (ls_cluster_origin) */
    int *origin;
    int room;                  /* capacity of `name` and `origin`, in members */
    uint64_t regrouped;        /* number of regroupings that the callers have adopted */
    char host[LS_MEMBER_NAME]; /* name of this host */
    ls_pool *pool;             /* pool of one worker, the progress thread */
    ls_ring orders;            /* from the caller to the progress thread: kind of each order */
    ls_park finished;          /* a caller sleeps on it until `done` */
    ls_heartbeat heartbeat;    /* heartbeat of the progress thread */

    /* The order. The fields from here to `failed_by_loss` belong to the progress thread from the
     * push of the order until `done`. At all other times they belong to the caller. */
    uint64_t order_bytes; /* bytes of this member's part of a gather, or of the arena of a sum */
    size_t *bytes;        /* [members]: bytes of each part of a gather */
    uint64_t digest;      /* digest of this member's replicas, for the next sum */
    /* memory of a gather that the transport accesses, of stage_bytes bytes: the members' parts one
     * after another */
    unsigned char *stage;
    size_t stage_bytes;
    /* [request_room] the requests of the order */
    ls_request *request;
    int request_room;
    ls_sum sum;
    ls_old_sum *old_sums; /* list of the sums that ls_cluster_free_old frees */
    int agreed;           /* non-zero: a member has asked all members to stop (ls_head.asks) */
    int newcomer;         /* number of the member that was admitted with this host group; 0: none */
    uint64_t round;       /* ARRIVALS: argument of ls_transport.arrivals */
    int arrivals;         /* ARRIVALS: number of processes that wait at this member */
    ls_arrival arrival;   /* ARRIVALS: result; ADMIT: the process to be admitted */
    /* the reason why the host group lacks the arrival of the last ADMIT; "": it does not lack it,
     * or no reason is known */
    char not_admitted[LS_FAILURE];
    int status;     /* result of the order */
    ls_error error; /* error of the last order that failed; status 0: none has failed */
    int lost;       /* 1 + number of the member whose loss `error` reports; 0: not known, or none */
    bool failed_by_loss; /* the order failed because a member was lost; the run may go on */
    atomic_bool done;
    ls_error leaving; /* the reason why this member leaves; valid after `leave_asked` is set */
    atomic_bool leave_asked;
    /* LS_JOINING until the progress thread or the caller decides how joining ends */
    atomic_int joining;
    /* Callers alone use the next four fields. */
    /* the progress thread did not answer in time, and no caller waits for the progress thread any
     * more */
    bool hangs;
    bool kept;    /* ls_cluster_close does not free the memory */
    bool summing; /* a sum was begun, and no caller has waited for its end yet */
    bool summed;  /* the last sum has succeeded, and ls_cluster_commit has not been called since */

    /* Only the progress thread uses the fields below, unless a comment says otherwise. */
    ls_wire *wire;
    ls_peer *peer;      /* [wire->members]; the entry of this member has only host and origin */
    bool active;        /* an order is in progress */
    ls_order_kind kind; /* kind of the order in progress, or of the last one */
    /* number of sums, gathers and orders ADMIT begun in this host group. It is also the number of
     * the newest of these orders, from 1 */
    uint64_t begun;
    /* `requests`: number of transfers that the order has posted or queued. `open`: number of these
     * transfers that have not ended yet */
    int requests, open;
    int heads;    /* number of headers of other members still to come */
    ls_head head; /* this member's header */
    /* CPU use of the progress thread, measured while a member has been silent for long (watch.c) */
    ls_thread_use own;
    uint64_t checked_ns;    /* time of the last ls_watch_check */
    uint64_t alive_sent_ns; /* time at which this member last sent signs of life */
    uint64_t stuck_ns;      /* attended time (base/clock.h) since data of the order last moved */
    uint64_t fault_ns;      /* time at which the fault was noticed */
    bool closed;            /* the transport is closed, and the progress thread ends */
    /* number of regroupings before the host group of `wire`; callers use `regrouped` */
    uint64_t now_regrouped;
    int regroups_since_sum; /* number of regroupings since the last sum that succeeded */
    /* the fault is the loss of a member, after which the surviving members regroup */
    bool fault_is_loss;
    bool admitting;           /* the next regrouping is to include `arrival` */
    ls_error last_loss;       /* the last loss after which the members have regrouped */
    char failure[LS_FAILURE]; /* as not_admitted, of the newest host group */
    /* the transport can still access memory of the cluster; the caller reads the field after the
     * last order */
    bool touched;
    ls_error fault;       /* status 0: none */
    int fault_lost;       /* as `lost`, of `fault` */
    atomic_bool regroups; /* ls_cluster_regroups has been called */
};

/* ---- progress.c ------------------------------------------------------------------------------ */

/* The function of the progress thread, run as a job of the pool. `arg`: the cluster. */
int ls_progress_run(const ls_worker *worker, void *arg, ls_error *err);

/* Sets `joining` to `how` (LS_JOINING_JOINED or LS_JOINING_GIVEN_UP), unless another thread has set
 * it before. Returns whether this call has set it. Called by the caller and by the progress
 * thread. */
bool ls_joining_ends(ls_cluster *c, int how);

/* Posts a transfer of the order in progress, or queues it if too many bytes are in transit to the
 * peer (LS_UNDER_WAY). If posting fails, the failure becomes the fault. `piece`: index of the
 * piece, for LS_REQUEST_NODE_IN. */
void ls_progress_post(ls_cluster *c, ls_request_kind kind, int piece, const ls_transfer *transfer);

/* ---- names.c ------------------------------------------------------------------------------- */

/* Sets origins and names of the members of a new transport. `before`: members of the former host
 * group; NULL: there is none. Unlike ls_peer.origin, the parameter origin[m] is the number of
 * member m in the former host group; −1: the member was not in that one. */
void ls_names_take(ls_cluster *c, const ls_peer *before, const int *origin);
/* Makes the names of hosts unique: appends "#m" to the name of member m if a member before it has
 * the same name. It goes from the last member to the first, so that each name is compared with
 * names that have no "#m" yet. Called when all headers have arrived. */
void ls_names_number(ls_cluster *c);
/* Makes room for the callers' copies of names and origins, before ls_names_publish. Called during
 * an order, for which the caller waits, so that no caller reads the arrays while they are replaced.
 * Errors: LS_ENOMEM. */
int ls_names_room(ls_cluster *c, ls_error *err);
/* Copies the progress thread's host group (numbers, names and origins) to the fields that callers
 * read. Called during an order. */
void ls_names_publish(ls_cluster *c);

/* ---- cluster.c ------------------------------------------------------------------------------ */

/* Checks that an order can be given. If the check fails, the caller must not change memory of an
 * order, because the progress thread or the transport can still read that memory. Errors: those of
 * orders. */
int ls_cluster_usable(const ls_cluster *c, ls_error *err);
/* Gives an order and waits for its end. Errors: those of orders. */
int ls_cluster_order(ls_cluster *c, ls_order_kind order, ls_error *err);
/* Makes room for `requests` transfers of an order. Errors: LS_ENOMEM. */
int ls_cluster_room(ls_cluster *c, int requests, ls_error *err);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* Returns the number of members of the progress thread's transport. It can differ from c->members,
 * which callers use until they call ls_cluster_regroup. */
static inline int ls_watch_members(const ls_cluster *c)
{
    return c->wire && c->peer ? c->wire->members : 0;
}

/* Ends the order in progress and wakes the caller. `why`: the order's error; if `why` is NULL or
 * has the status LS_OK, the order has succeeded. `by_loss`: the error is a loss after which the
 * caller may regroup. */
void ls_watch_end_order(ls_cluster *c, const ls_error *why, bool by_loss);

/* Handles the first fault, which is in c->fault: ends the order, and tells the other members at
 * once, so that they need not wait for their own deadlines. */
void ls_watch_note_fault(ls_cluster *c);

/* Returns whether the surviving members regroup after the loss of a member. Returns false after
 * MOST_REGROUPS (watch.c) regroupings in a row without a successful sum, so that a transport that
 * breaks again and again ends the run. */
bool ls_watch_may_regroup(const ls_cluster *c);

/* Reports a fault with this status and text, unless a fault has been reported before. */
#define ls_watch_fault(c, ...)                                                                     \
    do {                                                                                           \
        if ((c)->fault.status == LS_OK) {                                                          \
            ls_fail(&(c)->fault, __VA_ARGS__);                                                     \
            ls_watch_note_fault(c);                                                                \
        }                                                                                          \
    } while (0)

/* Stores the loss of the member of the number `lost` − 1 in c->fault (0: it is not known), and sets
 * fault_is_loss if the surviving members regroup. If they cannot regroup, the loss is a fault like
 * any other. Does nothing if a fault or a loss has been stored before. */
#define ls_watch_loss(c, member, ...)                                                              \
    do {                                                                                           \
        if ((c)->fault.status == LS_OK) {                                                          \
            (c)->fault_lost = (member);                                                            \
            (c)->fault_is_loss = ls_watch_may_regroup(c);                                          \
            ls_watch_fault(c, LS_ESTALLED, __VA_ARGS__);                                           \
        }                                                                                          \
    } while (0)

/* Handles an error of the transport. A broken connection (LS_EIO) counts as the loss of a host.
 * Does nothing if `status` is LS_OK. */
void ls_watch_note_wire(ls_cluster *c, int status, const ls_error *why);
/* Posts a transfer. If posting fails, stores the failure as the fault and returns false. */
bool ls_watch_post(ls_cluster *c, ls_transfer *transfer);

/* Returns whether this member takes part in a sum and has not delivered all of its own data yet.
 * The usual reason is that its devices still compute. */
bool ls_watch_owes_parts(const ls_cluster *c);

/* Posts the receive of the next control message from member m. */
void ls_watch_receive(ls_cluster *c, int m);
/* Handles the control message that has arrived from member m. */
void ls_watch_on_control(ls_cluster *c, int m);
/* Posts the last message, of this kind and with this text, to every peer to which no last message
 * has been posted yet. */
void ls_watch_send_last(ls_cluster *c, ls_control_kind kind, const char *text);
/* Counts how long each member has been silent and how long the order has been stuck, reports a loss
 * or a fault if the deadline is exceeded, and sends signs of life when they are due. Called at
 * short intervals. */
void ls_watch_check(ls_cluster *c);

/* ---- sum.c ---------------------------------------------------------------------------------- */

/* Allocates the memory of a sum, as ls_cluster_prepare describes. */
int ls_sum_prepare(ls_cluster *c, int shards, size_t floats, ls_error *err);
/* Frees the memory of a sum. */
void ls_sum_fini(ls_sum *sum, const ls_host *host);
/* Returns how many requests a sum needs, headers included. */
int ls_sum_requests(const ls_cluster *c);
/* Posts all receives of a sum, and the sends of the pieces that the caller has written already. */
void ls_sum_begin(ls_cluster *c);
/* Sends the pieces of this member's nodes that the caller has written since the last call
 * (sum.ready). */
void ls_sum_go_on(ls_cluster *c);
/* Returns whether this member has delivered all pieces of its nodes. */
bool ls_sum_is_delivered(const ls_cluster *c);
/* Called when a node's floats of a piece that this member owns have arrived. When the floats of all
 * nodes have arrived, adds them and sends the sum to all members. */
void ls_sum_arrived(ls_cluster *c, int piece);

#endif
