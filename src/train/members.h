/* Training over several processes, the members of a run (cluster/cluster.h). In a run of one
 * process these functions do nothing.
 *
 * Every member goes through the same steps, epochs and evaluations, on its own copy of the data,
 * with the same rows and the same random numbers; only the shards are divided among the members.
 * The first member has the run directory: it writes records and checkpoints, and sends the other
 * members what it resumes from.
 *
 * All members stop after the same step. If the user stops one member, this member sends the request
 * to stop together with its part of a sum, and all members receive the request together with the
 * total. All then do one more step, because the next step may already be in progress.
 *
 * If a member is lost, the run ends on all members. If cluster.on_host_loss is "continue", the
 * remaining members continue instead (regroup.c); the remaining member with the lowest number is
 * the first member from then on.
 */
#ifndef TRAIN_MEMBERS_H
#define TRAIN_MEMBERS_H

#include "cluster/cluster.h"

#include <stdbool.h>

struct ls_trainer;
struct ls_report;

/* One device of a member. */
typedef struct ls_member_device {
    char name[LS_MEMBER_NAME + 64]; /* host and device, such as "a: cpu(0)" */
    /* number of its member at the start of the run (ls_cluster_origin) */
    int origin;
} ls_member_device;

/* Fingerprint of a member's run: data that must be the same on all members. The struct is sent as
 * bytes, so it has no pointers. */
typedef struct ls_fingerprint {
    char version[16];
    uint64_t train_rows, test_rows;
    uint32_t data_crc32, recipe_crc32;
} ls_fingerprint;

/* The state of this process as a member of the run. Zeroed: a run of one process. */
typedef struct ls_members {
    struct ls_cluster *cluster; /* NULL: the run has one process */
    int member, count;          /* index of this member, and number of members */
    /* Number of the step, from 1, after which all members stop; UINT64_MAX: no member has asked to
     * stop. */
    uint64_t stop_after;
    /* [devices] devices of all members, ordered by member. The devices of this member begin at
     * index `own`. */
    ls_member_device *device;
    int devices, own, devices_at_start;
    /* Fields for runs that go on without lost members (regroup.c). */
    int origin;           /* number of this member at the start of the run */
    uint64_t evaluations; /* number of evaluations completed by all members */
    /* a member was lost, and ls_members_level has not brought the members to the same state
     * since */
    bool unlevelled;
    /* this member has adopted the results of the evaluation in progress from a member that had
     * completed the evaluation before a loss (regroup.c) */
    bool evaluated;
    /* this member has become the first after a loss, and has created a run directory */
    bool took_over;
    /* this member has become the first, and its run directory has no checkpoint yet */
    bool lacks_checkpoint;
    char lost[200]; /* names of the hosts that were lost last */
    /* Fields for runs that admit hosts (admit.c). */
    ls_fingerprint print; /* fingerprint of this process; constant once the run has begun */
    bool has_print;       /* `print` is set */
    /* this process is being admitted to a run, and has not begun its own part yet */
    bool arrived;
    bool begun; /* ls_members_begin has succeeded: the run is open on all members */
    /* the group has a new member, which has not received the state of the run yet */
    bool has_newcomer;
    uint64_t rounds; /* number of epochs at whose ends all admissions have been completed */
} ls_members;

/* Joins the other members, if the options or the config describe a run of several processes.
 * Errors: those of the transport, LS_ECONFIG, LS_EUNSUPPORTED. */
int ls_members_open(struct ls_trainer *trainer, ls_error *err);
/* Leaves the run. If the run has not started, informs the other members. `used`: a stalled worker
 * may still use the memory of sums and the list of devices, which are then not freed. Returns the
 * result of ls_cluster_close. */
int ls_members_close(struct ls_trainer *trainer, bool used);

/* Gathers `size` bytes from every member. Returns an array with the bytes `own` of each member,
 * ordered by member, which the caller frees. All members must call the function at the same point.
 * Returns NULL on failure, with the status of the error in *status. Errors: LS_ENOMEM, the
 * cluster's. */
void *ls_members_gather(int *status, struct ls_trainer *trainer, const void *own, size_t size,
                        ls_error *err);

/* Returns whether the run is to stop after the steps that are done: the caller has asked for it,
 * or, if there are several members, all have agreed on it. */
bool ls_stopping(const struct ls_trainer *trainer);

/* Returns whether this process is the first member, which has the run directory. */
bool ls_members_first(const struct ls_trainer *trainer);
/* Sends a text of the first member to the others. On the first member *text is the text. On the
 * others *text becomes a copy of the text, which the caller frees with ls_free. Errors: LS_ENOMEM,
 * the cluster's. */
int ls_members_share_text(char **text, struct ls_trainer *trainer, ls_error *err);
/* Writes the range lo … hi − 1 of shards, out of `shards`, that belongs to this process. If there
 * is no other process, the range is all shards. */
void ls_members_span(const struct ls_trainer *trainer, int shards, int *lo, int *hi);

/* If the config does not give a number of shards, adopts the first member's number. (If a
 * checkpoint is resumed, the first member takes the number from it.) Errors: LS_ECONFIG (the number
 * is 0 or smaller than the number of members). */
int ls_members_share_shards(struct ls_trainer *trainer, ls_error *err);
/* Checks that recipe, library version and data are the same on all members. It is called before
 * they exchange data whose size depends on these. (The recipe is the part of the config on which
 * the weights depend.) Errors: LS_ECONFIG, LS_EDATA, LS_EUNSUPPORTED, which name the first host
 * that differs. */
int ls_members_compare(struct ls_trainer *trainer, ls_error *err);
/* Computes the fingerprint of this process's run with `shards` shards. The data must be open.
 * Errors: LS_ENOMEM. */
int ls_members_fingerprint(ls_fingerprint *out, const struct ls_trainer *trainer, int shards,
                           ls_error *err);
/* ls_cluster_options.refuses: compares the fingerprint of a newcomer (a host that asks to be
 * admitted) with this member's. Any thread. */
int ls_members_refuse(void *trainer, const char *host, const void *print, size_t bytes, char *why,
                      size_t size);
/* Opens the workers, and compares the kinds of devices of all members. If results depend on the
 * kind of device, all members must have devices of the same kind. If results depend on a device's
 * choices among kernels, the first member opens its workers before the others, and the others use
 * its choices. Errors: those of ls_worker_open, LS_EUNSUPPORTED, which names the first host that
 * differs. */
int ls_members_open_workers(struct ls_trainer *trainer, ls_error *err);
/* Called by old members during an admission: compares the kinds of devices of all members, and
 * sends the first member's choices among kernels to the new member. The workers must be open.
 * Errors: as above. */
int ls_members_welcome_devices(struct ls_trainer *trainer, ls_error *err);
/* Compares the gradient of one shard over all members, and writes the list of all devices. Errors:
 * LS_EUNSUPPORTED, which names the first host that differs. */
int ls_members_compare_hosts(struct ls_trainer *trainer, ls_error *err);
/* Sends the first member's position, results, weights and optimizer states to the other members. At
 * a start all of them adopt these data. In an admission only the new member adopts them; the others
 * keep their own. Errors: the cluster's. */
int ls_members_share_start(struct ls_trainer *trainer, ls_error *err);
/* The start-up check. Checks that the gradient of one shard is the same on all members, and that no
 * two members use the same devices. The workers must be open and have no work. Errors: LS_ECONFIG,
 * LS_EUNSUPPORTED, which name the first host that differs; those of ls_cluster_prepare. */
int ls_members_check(struct ls_trainer *trainer, const ls_comm_type *merge, ls_error *err);

/* A shard whose loss is not finite. `shard` −1: none was found. */
typedef struct ls_bad_shard {
    int member, worker, shard;
} ls_bad_shard;

/* Each member passes the bad shard that it has found in *bad. On all members *bad becomes the bad
 * shard of the lowest member that has found one. All members call it at the same step, while their
 * workers have no work. Errors: LS_ENOMEM, the cluster's. */
int ls_members_share_bad(ls_bad_shard *bad, struct ls_trainer *trainer, ls_error *err);

/* Called when a step is done. If a member has asked to stop, sets the step after which all members
 * stop. */
void ls_members_note_stop(struct ls_trainer *trainer, const struct ls_report *report);
/* Gathers the tallies of all members' shards, and the scores if they are wanted. Errors: LS_ENOMEM,
 * the cluster's. */
int ls_members_gather_evaluation(struct ls_trainer *trainer, ls_error *err);
/* Called when the trainer is open on this member. Waits until it is open on all members. From then
 * on the run survives the loss of a member, if cluster.on_host_loss is "continue". Errors: the
 * cluster's. */
int ls_members_begin(struct ls_trainer *trainer, ls_error *err);
/* Called after the run, which ended with `status`. Compares the final weights of all members, and
 * sets result.saved to whether the first member has saved a checkpoint. If the run failed on this
 * member, the member leaves the cluster instead. After LS_EDIVERGED it ends the run on all members,
 * if these would otherwise continue without it. Errors: LS_EDIVERGED, LS_ENOMEM, the cluster's. */
int ls_members_end(struct ls_trainer *trainer, int status, ls_error *err);

/* ---- admit.c -------------------------------------------------------------------------------- */

/* Called on all members at the end of an epoch, before the next epoch begins. Admits the hosts that
 * wait, one after another. Returns LS_OK at once if the run admits no hosts. Errors: the cluster's,
 * those of ls_recover. */
int ls_members_admit(struct ls_trainer *trainer, ls_error *err);
/* Called by the old members of a group that has a new member. Does the exchanges of a start
 * together with the new member, in the order in which that member opens its run, and records its
 * arrival. Errors: the cluster's. */
int ls_members_welcome(struct ls_trainer *trainer, ls_error *err);

/* ---- regroup.c ------------------------------------------------------------------------------ */

/* Returns whether the last exchange failed because members were lost, and the remaining members may
 * continue the run. */
bool ls_members_lost(const struct ls_trainer *trainer);
/* Makes the remaining processes the members of the run. No worker may have work. Errors:
 * LS_ESTALLED (this process is not a remaining member), LS_ENOMEM. */
int ls_members_regroup(struct ls_trainer *trainer, ls_error *err);
/* Brings all members to the state of the member that has completed the largest number of steps and
 * evaluations, and records the loss. If the group has a new member, welcomes that member instead
 * (ls_members_welcome). Does nothing if no member was lost and none is new. The workers must have
 * joined a new group before. If another member is lost meanwhile, the cluster's error is returned,
 * and the function may be called again after ls_members_regroup. After any other error this member
 * leaves the run. */
int ls_members_level(struct ls_trainer *trainer, ls_error *err);

#endif
