/* Internals of the cluster, shared by the files of this directory. cluster.h explains the words
 * member, caller, order, group, fault, loss, node, arena and piece.
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

/* Memory orders of an order's results and of a sum's parts (cluster.h, "Memory order"). They are
 * macros so that a test can weaken each one and check that ThreadSanitizer reports it
 * (tests/sync/weakened_orders.sh). */
#ifndef LS_PROGRESS_DONE /* progress thread: stores `done` after it has written the results */
#define LS_PROGRESS_DONE memory_order_release
#endif
#ifndef LS_PROGRESS_SEEN /* caller: loads `done` before it reads the results */
#define LS_PROGRESS_SEEN memory_order_acquire
#endif
#ifndef LS_PROGRESS_READY /* caller: stores sum.ready after it has written its part of the nodes   \
                           */
#define LS_PROGRESS_READY memory_order_release
#endif
#ifndef LS_PROGRESS_TAKES /* progress thread: loads sum.ready before it sends and adds that part   \
                           */
#define LS_PROGRESS_TAKES memory_order_acquire
#endif
#ifndef LS_PROGRESS_SPINS /* number of spins before a caller that waits for an order sleeps */
#define LS_PROGRESS_SPINS 0
#endif

/* Marks messages of this version. */
#define LS_CLUSTER_MAGIC 0x4c53776du

/* Channels of the transport. */
enum { LS_ON_CONTROL, LS_ON_HEADS, LS_ON_DATA, LS_ON_SUMS };

/* Kinds of control messages. After any kind but the first, the sender sends nothing more on this
 * transport. */
typedef enum ls_control_kind {
    LS_CONTROL_ALIVE, /* a sign of life */
    LS_CONTROL_BYE,   /* the sender has ended normally after `begun` orders */
    LS_CONTROL_LEAVE, /* the sender has a fault; the other members may go on without the sender */
    LS_CONTROL_LOSS,  /* the sender has noticed the loss of a third member, and will regroup */
    LS_CONTROL_END    /* the sender has a fault after which no member can go on */
} ls_control_kind;

typedef struct ls_control {
    uint32_t magic, kind;
    /* number of sums and gathers for which the sender has delivered all of its own data */
    uint64_t begun;
    char text[LS_ERROR_TEXT];
} ls_control;

/* Header of a sum, of a gather or of ADMIT, sent by each member to each other member. */
typedef struct ls_head {
    uint32_t magic, kind;
    uint64_t number;
    uint64_t bytes; /* gather: bytes of the sender's part; sum: bytes of the arena */
    uint32_t shards;
    uint32_t asks; /* non-zero: the sender asks all members to stop */
    char host[LS_MEMBER_NAME];
} ls_head;

typedef enum ls_order_kind {
    LS_ORDER_OPEN,
    LS_ORDER_GATHER,
    LS_ORDER_SUM,
    LS_ORDER_REGROUP,
    LS_ORDER_ARRIVALS,
    LS_ORDER_ADMIT,
    LS_ORDER_CLOSE
} ls_order_kind;

/* The result of joining. */
enum { LS_JOINING, LS_JOINING_JOINED, LS_JOINING_GIVEN_UP };

/* The purposes of a transfer. */
typedef enum ls_request_kind {
    LS_REQUEST_CONTROL_IN,
    LS_REQUEST_CONTROL_OUT,
    LS_REQUEST_LAST_OUT, /* any last message */
    LS_REQUEST_HEAD_IN,
    LS_REQUEST_NODE_IN,
    LS_REQUEST_OTHER /* data of an order that need no action when they have been moved */
} ls_request_kind;

typedef struct ls_request {
    ls_transfer transfer; /* must be first: poll returns a pointer to it */
    ls_request_kind kind;
    int piece;               /* NODE_IN: index of the piece of the arena */
    struct ls_request *next; /* next request that waits for the same peer */
} ls_request;

typedef struct ls_peer {
    char host[LS_MEMBER_NAME];
    /* attended time (base/clock.h) since the last message arrived from the peer */
    uint64_t silent_ns;
    uint64_t begun; /* ls_control.begun of its most recent message */
    int origin;     /* its number in the first group */
    bool sent_last; /* its last message has arrived */
    /* its last message says that it leaves the run (every kind but LS_CONTROL_LOSS) */
    bool leaves_run;
    bool alive_in_transit; /* this member's sign of life to the peer, `out`, is in transit */
    bool last_posted;      /* this member's last message to the peer, `last`, has been posted */
    bool last_in_transit;  /* `last` is in transit */
    ls_control in, out, last;
    ls_request in_request, out_request, last_request;
    ls_head head_in;
    int coming;       /* number of messages of the order that are still expected from the peer */
    size_t under_way; /* bytes of the order in transit to the peer */
    /* list of the sends to the peer that are posted later, when `under_way` leaves room */
    ls_request *waiting, **waiting_end;
} ls_peer;

/* Largest number of bytes of an order in transit to all peers together. One message to each peer is
 * always allowed. There is a limit for two reasons: an engine may send posted messages in any
 * sequence, and a sign of life must not be queued after a whole arena; and the first pieces of an
 * arena should arrive early, not all pieces at the same time. */
#define LS_UNDER_WAY ((size_t)8 << 20)

enum { LS_PIECES_MOST = 1024 /* largest number of pieces for each member */ };

/* A sum of the nodes of all members (cluster.h, "sums over the shard tree"). */
typedef struct ls_sum {
    int shards;
    size_t floats;
    size_t piece;  /* length of a piece in floats; the last piece may be shorter */
    int pieces;    /* number of pieces of the arena */
    int nodes;     /* number of nodes of this member */
    int others;    /* number of nodes of all other members together */
    float *memory; /* [nodes + 1][floats]: this member's nodes, and the total */
    float *node[LS_PARTIALS_MAX];
    float *total;
    float *stage; /* [pieces that this member owns][others][piece]: the received nodes */
    ls_tree_rest rest;
    _Atomic size_t ready; /* number of floats of each node that the caller has written */
    /* Number of pieces, from the first on, that this member has delivered. A piece is delivered
     * when this member has posted the sends of its nodes to the owner of the piece. A piece that
     * this member owns is delivered when its nodes are complete there. */
    int delivered;
    int added; /* number of pieces owned by this member that have been added */
    /* [piece that this member owns]: number of nodes that have arrived, own nodes included */
    int arrived[LS_PIECES_MOST];
} ls_sum;

/* Largest number of bytes of a message. If no message of an order ends within the deadline, the run
 * fails. A message must therefore be short enough even if several members share a slow network. */
#define LS_MESSAGE_MOST ((size_t)4 << 20)

/* The sum of an earlier group, kept until ls_cluster_free_old. */
typedef struct ls_old_sum {
    ls_sum sum;
    struct ls_old_sum *next;
} ls_old_sum;

struct ls_cluster {
    ls_cluster_options options;
    /* The group as the callers see it, copied by ls_names_publish. The progress thread uses the
     * member numbers of its transport instead, which may belong to a newer group. */
    int member, members;
    char (*name)[LS_MEMBER_NAME]; /* [members]: name of each member's host */
    /* [members]: origin of each member, its number in the first group */
    int *origin;
    int room;                  /* capacity of `name` and `origin` */
    uint64_t group;            /* number of regroupings before the callers' group */
    char host[LS_MEMBER_NAME]; /* name of this host */
    ls_pool *pool;             /* pool of one worker, the progress thread */
    ls_ring orders;
    ls_park finished;
    ls_heartbeat heartbeat; /* heartbeat of the progress thread */

    /* The order. From the push until `done`, these fields belong to the progress thread; otherwise
     * they belong to the caller. */
    uint64_t order_bytes; /* bytes of this member's part */
    size_t *bytes;        /* [members]: bytes of each part of a gather */
    /* memory of a gather that the transport accesses: all parts one after another */
    unsigned char *stage;
    size_t stage_bytes;
    ls_request *request;
    int request_room;
    ls_sum sum;
    ls_old_sum *old_sums;
    int agreed;
    int newcomer;       /* number of the member that was admitted with this group; 0: none */
    int arrivals;       /* ARRIVALS: number of processes that wait */
    ls_arrival arrival; /* ARRIVALS: result; ADMIT: the process to be admitted */
    int status;
    ls_error error;
    bool failed_by_loss; /* the order failed because a member was lost; the run may go on */
    atomic_bool done;
    ls_error leaving; /* the reason why this member leaves; valid after `leave_asked` is set */
    atomic_bool leave_asked;
    /* LS_JOINING until the progress thread or the caller decides how joining ends */
    atomic_int joining;
    /* Callers alone use the next four fields. */
    /* the progress thread has not answered in time, and no caller waits for it any more */
    bool hangs;
    bool kept;    /* ls_cluster_close does not free the memory */
    bool summing; /* a sum was begun, and no caller has waited for its end yet */
    bool summed;  /* a sum has succeeded, and ls_cluster_commit has not been called since */

    /* Only the progress thread uses the fields below, unless a comment says otherwise. */
    ls_wire *wire;
    ls_peer *peer;
    bool active;        /* an order is in progress */
    ls_order_kind kind; /* kind of the order in progress, or of the last one */
    /* number of sums, gathers and orders ADMIT begun in this group: the number of the current one,
     * from 1 */
    uint64_t begun;
    int requests, open; /* transfers of the order: number posted; number not ended yet */
    int heads;          /* number of headers still to come */
    ls_head head;
    /* CPU use of this thread, measured while a member is suspected to be lost */
    ls_thread_use own;
    uint64_t checked_ns;    /* time of the last ls_watch_check */
    uint64_t alive_sent_ns; /* time at which this member last sent signs of life */
    uint64_t stuck_ns;      /* attended time since data of the order last moved */
    uint64_t fault_ns;      /* time of the fault */
    bool closed;
    uint64_t now_group;     /* number of regroupings before the group of the transport `wire` */
    int regroups_since_sum; /* number of regroupings since the last sum that succeeded */
    /* the fault is the loss of a member, after which the surviving members regroup */
    bool fault_is_loss;
    bool admitting;     /* the next regrouping is to include `arrival` */
    ls_error last_loss; /* the last loss after which the members have regrouped */
    /* the transport may still access memory of the cluster; read by the caller after the last
     * order */
    bool touched;
    ls_error fault; /* status 0: none */
    atomic_bool regroups;
};

/* ---- progress.c ------------------------------------------------------------------------------ */

/* The function of the progress thread, which runs as a job of a pool. `arg`: the cluster. */
int ls_progress_run(const ls_worker *worker, void *arg, ls_error *err);

/* Decides how joining ends, unless the other thread has decided before. Returns whether this
 * thread's decision counts. Called by the caller and by the progress thread. */
bool ls_joining_ends(ls_cluster *c, int how);

/* Posts a transfer of the order in progress, or queues it if too much is in transit to the peer. If
 * posting fails, the failure becomes the fault. */
void ls_progress_post(ls_cluster *c, ls_request_kind kind, int piece, const ls_transfer *transfer);

/* ---- names.c ------------------------------------------------------------------------------- */

/* Sets origins and names of the members of a new transport. `before`: members of the former group;
 * NULL: there is none. origin[m]: number of member m in the former group, or −1. */
void ls_names_take(ls_cluster *c, const ls_peer *before, const int *origin);
/* Makes the names of hosts unique: appends "#m" to the name of member m if a member before it has
 * the same name. It goes from the last member to the first, so that the names with which a name is
 * compared are still the original ones. Called when all headers have arrived. */
void ls_names_number(ls_cluster *c);
/* Makes room for the callers' copies of names and origins, before ls_names_publish. Called during
 * an order, for which the caller waits, so that no caller reads the arrays while they are replaced.
 * Errors: LS_ENOMEM. */
int ls_names_room(ls_cluster *c, ls_error *err);
/* Copies the group of the progress thread to the callers' fields. Called during an order. */
void ls_names_publish(ls_cluster *c);

/* ---- cluster.c ------------------------------------------------------------------------------ */

/* Checks that an order can be given. If it fails, the caller must not change memory that the
 * progress thread or the transport may still read. Errors: those of orders. */
int ls_cluster_usable(const ls_cluster *c, ls_error *err);
/* Gives an order and waits for its end. Errors: those of orders. */
int ls_cluster_order(ls_cluster *c, ls_order_kind order, ls_error *err);
/* Makes room for the transfers of an order. Errors: LS_ENOMEM. */
int ls_cluster_room(ls_cluster *c, int requests, ls_error *err);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* Returns the number of members of the progress thread's transport. It can differ from c->members,
 * which callers use until they call ls_cluster_regroup. */
static inline int ls_watch_members(const ls_cluster *c)
{
    return c->wire && c->peer ? c->wire->members : 0;
}

/* Ends the order in progress and wakes the caller. `why`: the order's error; if it is NULL or its
 * status is LS_OK, the order has succeeded. `by_loss`: the error is a loss after which the caller
 * may regroup. */
void ls_watch_end_order(ls_cluster *c, const ls_error *why, bool by_loss);

/* Handles the first fault, which is in c->fault: ends the order, and tells the other members at
 * once, so that they need not wait for their own deadlines. */
void ls_watch_note_fault(ls_cluster *c);

/* Returns whether the run may go on after the loss of a member. After MOST_REGROUPS regroupings in
 * a row without a successful sum it may not, so that a transport that breaks again and again ends
 * the run. */
bool ls_watch_may_regroup(const ls_cluster *c);

/* Reports a fault with this status and text, unless there was one before. */
#define ls_watch_fault(c, ...)                                                                     \
    do {                                                                                           \
        if ((c)->fault.status == LS_OK) {                                                          \
            ls_fail(&(c)->fault, __VA_ARGS__);                                                     \
            ls_watch_note_fault(c);                                                                \
        }                                                                                          \
    } while (0)

/* Reports the loss of another member, which is not a fault if the run may go on without it. */
#define ls_watch_loss(c, ...)                                                                      \
    do {                                                                                           \
        if ((c)->fault.status == LS_OK) {                                                          \
            (c)->fault_is_loss = ls_watch_may_regroup(c);                                          \
            ls_watch_fault(c, LS_ESTALLED, __VA_ARGS__);                                           \
        }                                                                                          \
    } while (0)

/* Handles an error of the transport. A broken connection (LS_EIO) counts as the loss of a host.
 * Does nothing if `status` is LS_OK. */
void ls_watch_note_wire(ls_cluster *c, int status, const ls_error *why);
/* Posts a transfer. Returns false if posting has failed; the failure has then become the fault. */
bool ls_watch_post(ls_cluster *c, ls_transfer *transfer);

/* Returns whether a sum is in progress for which this member has not delivered all of its own data
 * yet. The usual reason is that its devices still compute. */
bool ls_watch_owes_parts(const ls_cluster *c);

/* Posts the receive of the next control message from member m. */
void ls_watch_receive(ls_cluster *c, int m);
/* Handles the control message that has arrived from member m. */
void ls_watch_on_control(ls_cluster *c, int m);
/* Sends a last message to every peer to which none has been posted yet. */
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
/* Posts all receives of a sum, and the sends of the pieces that are complete. */
void ls_sum_begin(ls_cluster *c);
/* Sends the pieces of this member's nodes that have become complete (sum.ready). */
void ls_sum_go_on(ls_cluster *c);
/* Returns whether this member has delivered all pieces of its nodes. */
bool ls_sum_is_delivered(const ls_cluster *c);
/* Called when a node of one of this member's pieces has arrived. When all nodes of the piece have
 * arrived, they are added and the sum is sent to all. */
void ls_sum_arrived(ls_cluster *c, int piece);

#endif
