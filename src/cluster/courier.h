/* Internals of the cluster, shared by cluster.c, courier.c, sum.c and watch.c. See cluster.h.
 *
 * Names: the courier is the progress thread, a parcel a transfer together with its purpose. */
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

/* Memory orders of an order's results and of a sum's parts (cluster.h, "Memory order"). They are
 * macros so that a test can weaken each one and check that ThreadSanitizer reports it
 * (tests/sync/weakened_orders.sh). */
#ifndef LS_COURIER_DONE /* progress thread: stores `done` after it has written the results */
#define LS_COURIER_DONE memory_order_release
#endif
#ifndef LS_COURIER_SEEN /* caller: loads `done` before it reads the results */
#define LS_COURIER_SEEN memory_order_acquire
#endif
#ifndef LS_COURIER_READY /* caller: stores sum.ready after it has written its part of the nodes */
#define LS_COURIER_READY memory_order_release
#endif
#ifndef LS_COURIER_TAKES /* progress thread: loads sum.ready before it sends and adds that part */
#define LS_COURIER_TAKES memory_order_acquire
#endif
#ifndef LS_COURIER_SPINS /* number of spins before a caller that waits for an order sleeps */
#define LS_COURIER_SPINS 0
#endif

/* Marks messages of this version. */
#define LS_CLUSTER_MAGIC 0x4c53776du

/* Channels of the transport. */
enum { LS_ON_CONTROL, LS_ON_HEADS, LS_ON_DATA, LS_ON_SUMS };

/* Kinds of messages outside of orders. All but the first are last messages of their sender. */
typedef enum ls_say {
    LS_SAY_ALIVE, /* a sign of life */
    LS_SAY_BYE,   /* the sender has ended normally after `begun` orders */
    LS_SAY_LEAVE, /* the sender has a fault; the others may go on without it */
    LS_SAY_LOSS,  /* the sender has noticed the loss of a third member, and will regroup */
    LS_SAY_END    /* the sender has a fault after which no member can go on */
} ls_say;

typedef struct ls_control {
    uint32_t magic, say;
    uint64_t begun; /* number of orders for which the sender has delivered all of its own data */
    char text[LS_ERROR_TEXT];
} ls_control;

/* Header of an order, sent by each member to each. */
typedef struct ls_head {
    uint32_t magic, kind;
    uint64_t number;
    uint64_t bytes; /* bytes of the sender's part; of a sum: bytes of the arena */
    uint32_t shards;
    uint32_t asks; /* the sender asks all to stop */
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
typedef enum ls_parcel_kind {
    LS_PARCEL_CONTROL_IN,
    LS_PARCEL_CONTROL_OUT,
    LS_PARCEL_LAST_OUT, /* any last message */
    LS_PARCEL_HEAD_IN,
    LS_PARCEL_NODE_IN,
    LS_PARCEL_OTHER /* data of an order that need no action */
} ls_parcel_kind;

typedef struct ls_parcel {
    ls_transfer transfer; /* must be first: poll returns a pointer to it */
    ls_parcel_kind kind;
    int piece;              /* NODE_IN: index of the piece of the arena */
    struct ls_parcel *next; /* next transfer that waits for the same peer */
} ls_parcel;

typedef struct ls_peer {
    char host[LS_MEMBER_NAME];
    uint64_t silent_ns;    /* attended time (base/clock.h) since anything has arrived from it */
    uint64_t begun;        /* ls_control.begun of its most recent message */
    int origin;            /* its number in the first group */
    bool sent_last;        /* its last message has arrived */
    bool leaves_run;       /* by that message it leaves the run (every kind but LS_SAY_LOSS) */
    bool alive_in_transit; /* this member's sign of life to it, `out`, is in transit */
    bool last_posted;      /* this member's last message to it, `last`, has been posted */
    bool last_in_transit;  /* `last` is in transit */
    ls_control in, out, last;
    ls_parcel in_parcel, out_parcel, last_parcel;
    ls_head head_in;
    int coming;       /* number of messages of the order that are expected from it */
    size_t under_way; /* bytes of the order in transit to it */
    /* list of the sends that are posted when `under_way` leaves room for them */
    ls_parcel *waiting, **waiting_end;
} ls_peer;

/* Most bytes of orders in transit to all other members together, but at least one message to each.
 * An engine may send what it has in any order. A sign of life must not be queued after a whole
 * arena, and the pieces of an arena should not all end at the same time. */
#define LS_UNDER_WAY ((size_t)8 << 20)

enum { LS_PIECES_MOST = 1024 /* for each member */ };

/* A sum: the rest of the tree over all members' nodes. */
typedef struct ls_sum {
    int shards;
    size_t floats;
    size_t piece;  /* length of a piece in floats, except the last */
    int pieces;    /* number of pieces of the arena */
    int nodes;     /* number of nodes of this member */
    int others;    /* number of nodes of all others */
    float *memory; /* [nodes + 1][floats]: the nodes and the total */
    float *node[LS_PARTIALS_MAX];
    float *total;
    float *stage; /* [pieces of this member][others][piece]: nodes of the others */
    ls_tree_rest rest;
    _Atomic size_t ready; /* number of the nodes' floats that have been
                             written; set by the caller */
    /* number of pieces, from the first on, that this member has delivered: its nodes were sent to
     * the owner of the piece, or this member owns the piece */
    int brought;
    int added;                   /* number of this member's pieces that have been added */
    int arrived[LS_PIECES_MOST]; /* [piece of this member]: number of nodes that have arrived */
} ls_sum;

/* Most bytes of a message. If no message of an order ends within the deadline, the run fails, so a
 * message must be short enough even if several members share a slow network. */
#define LS_MESSAGE_MOST ((size_t)4 << 20)

/* A sum of a group before a loss. */
typedef struct ls_old_sum {
    ls_sum sum;
    struct ls_old_sum *next;
} ls_old_sum;

struct ls_cluster {
    ls_cluster_options options;
    /* Fields of the callers, set by the last order that changed them. The progress thread uses
     * those of its transport. */
    int member, members;
    char (*name)[LS_MEMBER_NAME]; /* [members]: name of each member's host */
    int *origin;                  /* [members]: number in the first group */
    int room;                     /* capacity of `name` and `origin` */
    uint64_t group;               /* number of regroupings before this group */
    char host[LS_MEMBER_NAME];    /* name of this host */
    ls_pool *pool;                /* pool of one worker, the progress thread */
    ls_ring orders;
    ls_park finished;
    ls_heartbeat heartbeat; /* heartbeat of the progress thread */

    /* The order. It belongs to the caller until it is pushed and after `done`, to the
     * progress thread in between. */
    uint64_t order_bytes; /* bytes of this member's part */
    size_t *bytes;        /* [members]: bytes of each part of a gather */
    unsigned char *stage; /* memory of a gather for the transport: all parts one after another */
    size_t stage_bytes;
    ls_parcel *parcel;
    int parcel_room;
    ls_sum sum;
    ls_old_sum *old_sums;
    int agreed;
    int newcomer;       /* index of the member that is new in this group; 0: none */
    int arrivals;       /* ARRIVALS: number of processes that wait */
    ls_arrival arrival; /* ARRIVALS: result; ADMIT: the process to be admitted */
    int status;
    ls_error error;
    bool failed_by_loss; /* the order failed because a member was lost; the run may go on */
    atomic_bool done;
    ls_error leaving; /* the reason why this member leaves; valid once `leave_asked` is set */
    atomic_bool leave_asked;
    atomic_int joining; /* LS_JOINING until the progress thread or its caller decides */
    /* The next four are used by callers only. */
    bool hangs;   /* the progress thread did not answer, and no caller waits for it any more */
    bool kept;    /* the memory is not freed at the end */
    bool summing; /* a sum was begun, and its end was not waited for yet */
    bool summed;  /* a sum has succeeded, and ls_cluster_commit was not called yet */

    /* Fields of the progress thread. */
    ls_wire *wire;
    ls_peer *peer;
    bool active;        /* an order is in progress */
    ls_order_kind kind; /* kind of the order in progress, or of the last one */
    uint64_t begun;     /* number of sums and gathers begun in this group; numbers them from 1 */
    int parcels, open;  /* transfers of the order: number posted; number not ended yet */
    int heads;          /* number of headers still to come */
    ls_head head;
    ls_thread_use own;  /* CPU use of the thread, while a member is suspected */
    uint64_t looked_ns; /* time of the last ls_watch_look */
    uint64_t spoke_ns;  /* time of the last signs of life to the others */
    uint64_t stuck_ns;  /* attended time since data of the order have moved */
    uint64_t fault_ns;  /* time of the fault */
    bool closed;
    uint64_t now_group;     /* number of regroupings before the group of the transport `wire` */
    int regroups_since_sum; /* number of regroupings since the last sum that succeeded */
    bool fault_is_loss;     /* the fault is the loss of a member: the surviving members regroup */
    bool admitting;         /* the next regrouping is to include `arrival` */
    ls_error last_loss;     /* the last loss after which the members have regrouped */
    bool touched;           /* the transport may still touch this memory; read by callers
                               after the last order */
    ls_error fault;         /* status 0: none */
    atomic_bool regroups;
};

/* ---- courier.c ------------------------------------------------------------------------------ */

/* Runs the progress thread, a job of the pool. `arg`: the cluster. */
int ls_courier(const ls_worker *worker, void *arg, ls_error *err);

/* Decides how joining ends, unless the other side has decided before. Returns whether this side's
 * decision counts. Both threads. */
bool ls_joining_ends(ls_cluster *c, int how);

/* Posts the next transfer of the order. A failure becomes the fault. */
void ls_courier_post(ls_cluster *c, ls_parcel_kind kind, int piece, const ls_transfer *transfer);

/* ---- names.c ------------------------------------------------------------------------------- */

/* Sets numbers and names of the members of a new transport. `before`, unless NULL: members of the
 * former group; origin[m]: number that member m had in it, or −1. */
void ls_names_take(ls_cluster *c, const ls_peer *before, const int *origin);
/* Makes the names of hosts unique: appends "#m" to the name of member m if a member before it has
 * the same name. It goes from the last member to the first, so that the names with which a name is
 * compared are still the original ones. Called when all headers have arrived. */
void ls_names_number(ls_cluster *c);
/* Makes room for the callers' copies of names and numbers, before ls_names_publish. The callers
 * wait for the order in progress, and only the progress thread replaces the arrays. Errors:
 * LS_ENOMEM. */
int ls_names_room(ls_cluster *c, ls_error *err);
/* Copies the group to the fields of the callers, who are waiting for an order. */
void ls_names_publish(ls_cluster *c);

/* ---- cluster.c ------------------------------------------------------------------------------ */

/* Checks that an order can be given. Otherwise nothing may be changed that the progress thread, or
 * the transport, may still read. Errors: those of orders. */
int ls_cluster_usable(const ls_cluster *c, ls_error *err);
/* Gives an order and waits for its end. Errors: those of orders. */
int ls_cluster_order(ls_cluster *c, ls_order_kind order, ls_error *err);
/* Makes room for the transfers of an order. Errors: LS_ENOMEM. */
int ls_cluster_room(ls_cluster *c, int parcels, ls_error *err);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* Returns the number of members of the progress thread's transport. It can differ from c->members,
 * which callers use until they call ls_cluster_regroup. */
static inline int ls_watch_members(const ls_cluster *c)
{
    return c->wire && c->peer ? c->wire->members : 0;
}

/* Ends the order under way and wakes its caller. `why`: its error; NULL, or with status LS_OK: it
 * has succeeded. `by_loss`: the error is a loss after which the caller may regroup. */
void ls_watch_end_order(ls_cluster *c, const ls_error *why, bool by_loss);

/* Handles the first fault, which is in c->fault: ends the order and tells the others at once, so
 * that none waits for its own deadline. */
void ls_watch_note_fault(ls_cluster *c);

/* Returns whether the run may go on after the loss of a member. It may not after MOST_REGROUPS
 * regroupings in a row without a sum that succeeded: a transport that breaks again and again ends
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

/* Handles an error of the transport. A broken connection means that a host is lost, as its silence
 * would. Does nothing if `status` is LS_OK. */
void ls_watch_note_wire(ls_cluster *c, int status, const ls_error *why);
/* Posts a transfer. Returns false if that failed, which is then the fault. */
bool ls_watch_post(ls_cluster *c, ls_transfer *transfer);

/* Returns whether a sum is under way for which this member has not delivered all of its own data
 * yet, because its devices are still computing. */
bool ls_watch_owes_parts(const ls_cluster *c);

/* Receives the next message of member m outside of orders. */
void ls_watch_listen(ls_cluster *c, int m);
/* Handles a message that has arrived from member m outside of orders. */
void ls_watch_hear(ls_cluster *c, int m);
/* Sends a last message to all members, after which this member sends nothing. It is not repeated
 * for a member that does not receive it. */
void ls_watch_say_last(ls_cluster *c, ls_say say, const char *text);
/* Counts how long each member has been silent and how long the order has been stuck, reports a loss
 * or a fault if the deadline is exceeded, and sends signs of life when they are due. Called at
 * short intervals. */
void ls_watch_look(ls_cluster *c);

/* ---- sum.c ---------------------------------------------------------------------------------- */

/* Allocates the memory of a sum, as ls_cluster_prepare describes. */
int ls_sum_prepare(ls_cluster *c, int shards, size_t floats, ls_error *err);
/* Frees the memory of a sum. */
void ls_sum_fini(ls_sum *sum, const ls_host *host);
/* Returns the largest number of parcels of a sum, headers included. */
int ls_sum_parcels(const ls_cluster *c);
/* Posts all receives of a sum, and sends what is ready. */
void ls_sum_begin(ls_cluster *c);
/* Sends the pieces of this member's nodes that have become complete (sum.ready). */
void ls_sum_go_on(ls_cluster *c);
/* Returns whether this member has delivered all pieces of its nodes. */
bool ls_sum_is_brought(const ls_cluster *c);
/* Called when a node of one of this member's pieces has arrived. When all nodes of the piece have
 * arrived, they are added and the sum is sent to all. */
void ls_sum_arrived(ls_cluster *c, int piece);

#endif
