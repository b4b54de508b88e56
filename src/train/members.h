/* Training over several processes, the members of a run (cluster/cluster.h). In a run of one
 * process these functions do nothing.
 *
 * Every member goes through the same steps, epochs and evaluations, on its own copy of the data,
 * with the same rows and the same random numbers; only the shards are divided among the members.
 * The first member has the run directory: it writes records and checkpoints, and sends the other
 * members what it resumes from.
 *
 * All members stop after the same step. A member that is asked to stop says so with its part of a
 * sum, and all members receive that with the sum. They then do one more step, because that step may
 * already be in progress.
 *
 * The loss of a member ends the run on all members, or, if cluster.on_host_loss is "continue", the
 * others go on (regroup.c). The lowest remaining member is the first one from then on.
 */
#ifndef TRAIN_MEMBERS_H
#define TRAIN_MEMBERS_H

#include "cluster/cluster.h"

#include <stdbool.h>

struct ls_trainer;
struct ls_report;

/* A device of a member. */
typedef struct ls_member_device {
    char name[LS_MEMBER_NAME + 64]; /* host and device, such as "a: cpu(0)" */
    int origin;                     /* index of its member in the first group */
} ls_member_device;

/* Fingerprint of a member's run: data that must be the same on all members. It is sent as it is
 * stored, so it has no pointers. */
typedef struct ls_fingerprint {
    char version[16];
    uint64_t train_rows, test_rows;
    uint32_t data_crc32, recipe_crc32;
} ls_fingerprint;

/* This process's membership. Zeroed: a run of one process. */
typedef struct ls_members {
    struct ls_cluster *cluster; /* NULL: the run has one process */
    int member, count;          /* index of this member, and number of members */
    /* Number of the step, from 1, after which all members stop; UINT64_MAX: none was agreed. */
    uint64_t stop_after;
    /* [devices] devices of all members, ordered by member; those of this member begin at `own`. */
    ls_member_device *device;
    int devices, own, devices_at_start;
    /* Fields for runs that go on without lost members (regroup.c). */
    int origin;           /* index of this member in the first group */
    uint64_t evaluations; /* number of evaluations completed by all members */
    bool uneven;          /* a member was lost, and ls_members_level has not succeeded since */
    bool evaluated;       /* results of the evaluation in progress were adopted from a member that
                           * had completed it before the loss (regroup.c) */
    bool took_over;       /* this member has taken over as the first, with a run directory */
    bool unsaved;         /* the run directory of a new first member has no checkpoint yet */
    char lost[200];       /* hosts that were lost last */
    /* Fields for runs that admit hosts (admit.c). */
    ls_fingerprint print; /* fingerprint of this process; constant once the run has begun */
    bool has_print;       /* `print` is set */
    bool arrived;         /* this process was admitted, and its run has not begun yet */
    bool begun;           /* ls_members_begin has succeeded: the run is open on all members */
    bool welcomes;        /* this group has a new member, which lacks the state of the run */
    uint64_t rounds;      /* number of ends of epochs at which all admissions are over */
} ls_members;

/* Joins the other members if the options or the config say so. Errors: those of the transport,
 * LS_ECONFIG, LS_EUNSUPPORTED. */
int ls_members_open(struct ls_trainer *trainer, ls_error *err);
/* Leaves the run. If the run did not start, tells the other members so. `used`: a stalled worker
 * may still use the memory of sums and of the list of devices, so this memory is not freed. Returns
 * as ls_cluster_close. */
int ls_members_close(struct ls_trainer *trainer, bool used);

/* Gathers `size` bytes from every member: returns an array of all members' `own`, ordered by
 * member, which the caller frees. All members must call it at the same point. Returns NULL on
 * failure, with the cause in *status. Errors: LS_ENOMEM, the cluster's. */
void *ls_members_gather(int *status, struct ls_trainer *trainer, const void *own, size_t size,
                        ls_error *err);

/* Returns whether the run is to stop after the steps that are done: the caller has asked for it,
 * or, if there are several members, all have agreed on it. */
bool ls_stopping(const struct ls_trainer *trainer);

/* Returns whether this process is the first member, which has the run directory. */
bool ls_members_first(const struct ls_trainer *trainer);
/* Sends the first member's text to the others. On the first member *text is the text; on the others
 * it becomes a copy, which the caller frees with ls_free. Errors: LS_ENOMEM, the cluster's. */
int ls_members_share_text(char **text, struct ls_trainer *trainer, ls_error *err);
/* Writes the range lo … hi − 1 of `shards` shards that belongs to this process; all of them if
 * there is no other process. */
void ls_members_span(const struct ls_trainer *trainer, int shards, int *lo, int *hi);

/* Adopts the first member's number of shards if the config gives none. (The first member may have
 * it from the checkpoint that is resumed.) Errors: LS_ECONFIG (the number is 0 or smaller than the
 * number of members). */
int ls_members_share_shards(struct ls_trainer *trainer, ls_error *err);
/* Checks that recipe, library version and data are the same on all members, before they exchange
 * anything that depends on them. Errors: LS_ECONFIG, LS_EDATA, LS_EUNSUPPORTED, which name the
 * first host that differs. */
int ls_members_compare(struct ls_trainer *trainer, ls_error *err);
/* Computes the fingerprint of this process's run, of `shards` shards. The data is open. Errors:
 * LS_ENOMEM. */
int ls_members_fingerprint(ls_fingerprint *out, const struct ls_trainer *trainer, int shards,
                           ls_error *err);
/* ls_cluster_options.refuses: compares a newcomer's fingerprint with this member's. Any thread. */
int ls_members_refuse(void *trainer, const char *host, const void *print, size_t bytes, char *why,
                      size_t size);
/* Opens the workers, and compares the kinds of devices of all members. If results depend on the
 * kind of device, all members' devices must be alike. If results depend on a device's choices among
 * kernels, the first member opens its workers first, and the other members use its choices. Errors:
 * the workers', LS_EUNSUPPORTED, which names the first host that differs. */
int ls_members_open_workers(struct ls_trainer *trainer, ls_error *err);
/* Compares the kinds of devices of all members, and sends the first member's choices among kernels
 * to a member that is new. The workers are open. Errors: as above. */
int ls_members_welcome_devices(struct ls_trainer *trainer, ls_error *err);
/* Compares the gradient of one shard over all members, and lists all devices. Errors:
 * LS_EUNSUPPORTED, which names the first host that differs. */
int ls_members_compare_hosts(struct ls_trainer *trainer, ls_error *err);
/* Copies the first member's position, results, weights and optimizer states to all members at a
 * start, and to the new member in an admission, in which the others keep their own. Errors: the
 * cluster's. */
int ls_members_share_start(struct ls_trainer *trainer, ls_error *err);
/* The start-up check: the gradient of one shard is the same on all members, and each has its own
 * devices. The workers are open and have no work. Errors: LS_ECONFIG, LS_EUNSUPPORTED, which name
 * the first host that differs; those of ls_cluster_prepare. */
int ls_members_check(struct ls_trainer *trainer, const ls_comm_type *merge, ls_error *err);

/* A shard whose loss is not finite; −1: none was found. */
typedef struct ls_bad_shard {
    int member, worker, shard;
} ls_bad_shard;

/* Sets *bad to the bad shard of the lowest member that found one. All members call it at the same
 * step, while their workers have no work. Errors: LS_ENOMEM, the cluster's. */
int ls_members_share_bad(ls_bad_shard *bad, struct ls_trainer *trainer, ls_error *err);

/* Called when a step is done: if a member has asked to stop, sets the step after which all stop. */
void ls_members_note_stop(struct ls_trainer *trainer, const struct ls_report *report);
/* Gathers the tallies, and the scores if wanted, of all members' shards. Errors: LS_ENOMEM, the
 * cluster's. */
int ls_members_gather_evaluation(struct ls_trainer *trainer, ls_error *err);
/* Called when the trainer is open. Waits until it is open on all members. From then on the run
 * survives the loss of a member, if the config says so. Errors: the cluster's. */
int ls_members_begin(struct ls_trainer *trainer, ls_error *err);
/* Called after the run, which ended with `status`: compares the final weights of all members, and
 * learns whether the first member has saved. If the run failed on this member, it leaves instead;
 * after LS_EDIVERGED it ends the run on all members if they survive losses. Errors: LS_EDIVERGED,
 * LS_ENOMEM, the cluster's. */
int ls_members_end(struct ls_trainer *trainer, int status, ls_error *err);

/* ---- admit.c -------------------------------------------------------------------------------- */

/* Called at the end of an epoch, on all members, before the next one begins: admits the hosts that
 * wait, one after another. Returns LS_OK at once if the run admits none. Errors: the cluster's,
 * those of ls_recover. */
int ls_members_admit(struct ls_trainer *trainer, ls_error *err);
/* Called by the old members of a group that has a new member: does the exchanges of a start with
 * it, in the order in which it opens its run, and records its arrival. Errors: the cluster's. */
int ls_members_welcome(struct ls_trainer *trainer, ls_error *err);

/* ---- regroup.c ------------------------------------------------------------------------------ */

/* Returns whether the last exchange failed because members were lost and the others may go on. */
bool ls_members_lost(const struct ls_trainer *trainer);
/* Makes the remaining processes the members of the run. No worker may have work. Errors:
 * LS_ESTALLED (this process is not one of them), LS_ENOMEM. */
int ls_members_regroup(struct ls_trainer *trainer, ls_error *err);
/* Brings all members to the state of the member that has done most, and records the loss. Does
 * nothing if no member was lost. The workers have joined a new group before. If another member is
 * lost meanwhile, the cluster's error is returned, and the function may be called again after a
 * regroup; after any other error this member leaves the run. */
int ls_members_level(struct ls_trainer *trainer, ls_error *err);

#endif
