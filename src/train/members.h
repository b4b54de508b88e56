/* Training over several processes, the members of a run (cluster/cluster.h). What is theirs in common is here;
 * where a run is one process, none of it does anything.
 *
 * Every member goes through the same steps, epochs and evaluations, on its own copy of the data, with the
 * same rows and numbers; only the shards are divided. The first member has the run directory: it writes
 * records and checkpoints, and what it resumes from it tells the others. All members stop behind the same
 * step: who is asked to stop says so with a sum, which all of them hear in it, and one more step is done,
 * because it may be under way.
 *
 * A member that is lost ends the run for all, or, with cluster.on_host_loss "continue", the others go on
 * (regroup.c). The lowest of them is the first from then on. */
#ifndef TRAIN_MEMBERS_H
#define TRAIN_MEMBERS_H

#include "cluster/cluster.h"

#include <stdbool.h>

struct ls_trainer;
struct ls_report;

typedef struct ls_member_device {
    char name[LS_MEMBER_NAME + 64]; /* "a: cpu(0)" */
    int origin;                     /* what its member was called in the first group */
} ls_member_device;

/* This process's part. Zeroed: a run of one process. */
typedef struct ls_members {
    struct ls_cluster *cluster; /* NULL: this process is the run */
    int member, count;          /* of them */
    uint64_t stop_behind;       /* the step, from 1; UINT64_MAX: none was agreed */
    ls_member_device
        *device; /* of all members, one member's behind another's; this one's from `own` on */
    int devices, own;
    /* Where the run goes on without members that are lost (regroup.c). */
    int origin;           /* what this member was called in the first group */
    uint64_t evaluations; /* that all members have brought together */
    bool uneven;          /* some may have done more than others when the last one was lost */
    bool evaluated;       /* the evaluation that was interrupted has come from another member */
    bool took_over;       /* the run directory is this one's since the first was lost, … */
    bool unsaved;         /* … and has no checkpoint yet */
    char lost[200];       /* who was lost last, and why */
} ls_members;

/* Joins the others if the options or the config say so. Errors: those of the engine, LS_ECONFIG. */
int ls_members_open(struct ls_trainer *trainer, ls_error *err);
/* Tells the others why the run ended here, if not in good order, and leaves. `used`: a worker left behind may
 * still use the memory of sums and choices, which stays. LS_ESTALLED as ls_cluster_close. */
int ls_members_close(struct ls_trainer *trainer, bool used);

/* What every member says of itself, `size` bytes of `own`, in the order of the members: → an array that the caller
 * frees. All call it at the same point. NULL: *status says why. Errors: LS_ENOMEM, the cluster's. */
void *ls_members_gather(int *status, struct ls_trainer *trainer, const void *own, size_t size,
                        ls_error *err);

/* Whether the run is to stop behind the steps that are done: the caller has asked for it, or, where there are several
 * members, all have agreed. */
bool ls_stopping(const struct ls_trainer *trainer);

/* Whether this process has the run directory. */
bool ls_members_first(const struct ls_trainer *trainer);
/* The text of the run's own config, for members without its directory; the caller frees it with ls_free. */
int ls_members_share_text(char **text, struct ls_trainer *trainer, ls_error *err);
/* Of so many shards those of this process; all where there is no other. */
void ls_members_span(const struct ls_trainer *trainer, int shards, int *lo, int *hi);

/* Of a run that gives no number of shards: the first member's, which has what is resumed. Errors: LS_ECONFIG
 * (there are none, or fewer than members). */
int ls_members_share_shards(struct ls_trainer *trainer, ls_error *err);
/* Recipe, library version and data are the same on all members, before they exchange what depends on them.
 * Errors: LS_ECONFIG, LS_EDATA, LS_EUNSUPPORTED, with the first host that differs. */
int ls_members_compare(struct ls_trainer *trainer, ls_error *err);
/* Opens the workers; theirs is the start of the others' comparison of devices. Where results depend on what a
 * device is, all members' are alike; where they depend on what it chooses, the first member's opens first, and
 * the others' make its choices. Errors: the workers', LS_EUNSUPPORTED, with the first host that differs. */
int ls_members_open_workers(struct ls_trainer *trainer, ls_error *err);
/* The first member's position, results, weights and optimizer state become everybody's. */
int ls_members_share_start(struct ls_trainer *trainer, ls_error *err);
/* The start-up check: the gradient of one shard is the same on all members, and each has devices of its own. The
 * workers are open and rest. Errors: LS_ECONFIG, LS_EUNSUPPORTED, with the first host that differs. */
int ls_members_check(struct ls_trainer *trainer, const ls_comm_type *merge, ls_error *err);

/* A shard whose loss is not finite; −1: none was found. */
typedef struct ls_bad_shard {
    int member, worker, shard;
} ls_bad_shard;

/* *bad ← the first member's that found one. All are at the same step, and the workers rest. */
int ls_members_share_bad(ls_bad_shard *bad, struct ls_trainer *trainer, ls_error *err);

/* A step is done: did a member ask to stop? */
void ls_members_heed(struct ls_trainer *trainer, const struct ls_report *report);
/* The tallies, and scores, of all members' shards. */
int ls_members_gather_evaluation(struct ls_trainer *trainer, ls_error *err);
/* Everything is open on all members, and losses are survived from now on, where the config says so. */
int ls_members_begin(struct ls_trainer *trainer, ls_error *err);
/* After the run: whether the first member has saved, and the same weights on all. */
int ls_members_end(struct ls_trainer *trainer, int status, ls_error *err);

/* ---- regroup.c ------------------------------------------------------------------------------ */

/* Whether what was exchanged last came to nothing because members are lost, and the others may go on. */
bool ls_members_lost(const struct ls_trainer *trainer);
/* Those that are left are the members from now on; no worker is at work. Errors: LS_ESTALLED (this one is not of
 * them), LS_ENOMEM. */
int ls_members_regroup(struct ls_trainer *trainer, ls_error *err);
/* Brings all to where the one is that has done most, and records the loss. Does nothing where no member was
 * lost. The workers have joined a new group. Errors: the cluster's; any other makes this member leave. */
int ls_members_level(struct ls_trainer *trainer, ls_error *err);

#endif
