/* SPDX-License-Identifier: MIT */
/* Training over several members (cluster/cluster.h). In a run of one process these functions do
 * nothing.
 *
 * Every member goes through the same steps, epochs and evaluations, on its own copy of the data,
 * with the same random numbers. Only the shards are divided. The first member has the run
 * directory: it writes records and checkpoints, and sends the others the state of a run that is
 * resumed.
 *
 * All members stop after the same step. If the user stops one member, it adds the request to its
 * part of the sum of gradients in a step. All members receive it with the total, and do one more
 * step, because that can already be in progress.
 *
 * If a member is lost, the run ends on all members. If cluster.on_host_loss is "continue", the
 * remaining members continue instead (regroup.c). The remaining member with the lowest number is
 * then the first member.
 *
 * An *exchange* is one or more gathers or sums of the cluster, in the same order on all members.
 * Where members are compared, each member is compared with the first member, and an error names the
 * lowest-numbered member that differs. */
#ifndef TRAIN_MEMBERS_H
#define TRAIN_MEMBERS_H

#include "cluster/cluster.h"

#include <stdbool.h>

struct ls_trainer;
struct ls_report;

/* One device of a member. */
typedef struct ls_member_device {
    char name[LS_MEMBER_NAME + 64]; /* host and device, such as "a: cpu(0)" */
    /* number that its member had at the start of the run (ls_cluster_origin); it never changes */
    int origin;
} ls_member_device;

/* Fingerprint of a member's run: data that must be the same on all members. The struct is sent as
 * bytes, so it has no pointers. */
typedef struct ls_fingerprint {
    char version[16]; /* version of the library */
    uint64_t train_rows, test_rows;
    uint32_t data_crc32, recipe_crc32;
} ls_fingerprint;

/* The state of this process as a member of the run. Zeroed: a run of one process. */
typedef struct ls_members {
    struct ls_cluster *cluster; /* NULL: the run has one process */
    int member,                 /* number of this member, from 0; it changes if members are lost */
        count;                  /* number of members; 0: ls_members_open was not called */
    /* Number, from 1, of the step after which all members stop; UINT64_MAX: no member has asked to
     * stop. */
    uint64_t stop_after;
    /* [devices] the devices of all members, ordered by member. The devices of this member begin at
     * index `own`. */
    ls_member_device *device;
    int devices,          /* number of devices in `device` */
        own,              /* index of this member's first device in `device` */
        devices_at_start; /* value of `devices` when `device` was last made: at the start, or at
                           * the last admission of a host */
    /* Fields for runs that continue after the loss of members (regroup.c). */
    int origin;           /* number of this member at the start of the run */
    uint64_t evaluations; /* number of evaluations completed by all members */
    /* a member was lost, and since then ls_members_level has not brought the remaining members to
     * the same state */
    bool unlevelled;
    /* The evaluation in progress need not be repeated: after a loss this member has adopted its
     * results from another member, which had completed it (regroup.c). */
    bool evaluated;
    /* this member has become the first after a loss, and has created a run directory of its own */
    bool took_over;
    /* this member has become the first, and its run directory has no checkpoint yet */
    bool lacks_checkpoint;
    char lost[200];     /* names of the hosts that were lost since the last ls_members_level */
    bool ended_by_loss; /* the loss of a host ends the run, and its record is written */
    /* Fields for runs that admit hosts (admit.c). */
    ls_fingerprint print; /* fingerprint of this process; constant once the run has begun */
    bool has_print;       /* `print` is set */
    /* this process is being admitted to a run that had begun before, and does not train yet */
    bool arrived;
    bool begun; /* ls_members_begin has succeeded: the run is open on all members */
    /* the host group has a newcomer, which has not received the state of the run yet */
    bool has_newcomer;
    /* number of ends of epochs at which this member has completed the admissions (of any number of
     * hosts, also 0) */
    uint64_t rounds;
} ls_members;

/* Joins the other members, if the options or the config describe a run of several processes.
 * Errors: those of the transport, LS_ECONFIG, LS_EUNSUPPORTED. */
int ls_members_open(struct ls_trainer *trainer, ls_error *err);
/* Joins the processes that a launcher has started, after this process has failed before it joined
 * them, so that it can leave them and say why. (They wait for every process in MPI_Init.) Does
 * nothing if ls_members_open was called before. */
void ls_members_join_to_leave(struct ls_trainer *trainer);
/* Leaves the run. If the run has not started, tells the other members that this member leaves.
 * `used`: a stalled worker can still use the buffers of the cluster and the list of devices, so
 * they are not freed. Returns the result of ls_cluster_close. */
int ls_members_close(struct ls_trainer *trainer, bool used);

/* Gathers `size` bytes, `own`, from every member. Returns an array with the bytes of all members,
 * ordered by member, which the caller frees. This is an exchange: all members must call the
 * function at the same point. Returns NULL on failure, with the status of the error in *status.
 * Errors: LS_ENOMEM, the cluster's. */
void *ls_members_gather(int *status, struct ls_trainer *trainer, const void *own, size_t size,
                        ls_error *err);

/* Returns whether the run is to stop after the steps that are done. In a run of one process: the
 * caller has asked to stop. In a run of several: the step after which all members stop is done. */
bool ls_stopping(const struct ls_trainer *trainer);

/* Returns whether this process is the first member, which has the run directory. */
bool ls_members_first(const struct ls_trainer *trainer);
/* Sends a text of the first member to the others. On the first member *text is the text. On each
 * other member *text becomes a copy of the text, which the caller frees with ls_free. Errors:
 * LS_ENOMEM, the cluster's. */
int ls_members_share_text(char **text, struct ls_trainer *trainer, ls_error *err);
/* Writes the range lo … hi − 1 of shards, out of `shards`, that belongs to this process. If there
 * is no other process, the range is all shards. */
void ls_members_span(const struct ls_trainer *trainer, int shards, int *lo, int *hi);

/* If the config does not give a number of shards, adopts the first member's number. (If a
 * checkpoint is resumed, the first member takes the number from it.) Errors: LS_ECONFIG (the number
 * is 0 or smaller than the number of members). */
int ls_members_share_shards(struct ls_trainer *trainer, ls_error *err);
/* Logs a warning if the devices of this process are not all alike, because the bits then depend on
 * which device computes which shard. */
void ls_members_warn_of_kinds(const struct ls_trainer *t);

/* Checks that recipe, library version and data are the same on all members. It is called before the
 * members exchange data whose size depends on recipe or data. Errors: LS_ECONFIG, LS_EDATA,
 * LS_EUNSUPPORTED, which name the host that differs. */
int ls_members_compare(struct ls_trainer *trainer, ls_error *err);
/* Computes the fingerprint of this process's run with `shards` shards. The data must be open.
 * Errors: LS_ENOMEM. */
int ls_members_fingerprint(ls_fingerprint *out, const struct ls_trainer *trainer, int shards,
                           ls_error *err);
/* The callback ls_cluster_options.refuses: compares the fingerprint `print` of a newcomer with the
 * fingerprint of this member. Returns 0 if they are equal. Otherwise writes the reason to `why`,
 * [size], and returns 1. `trainer`: the ls_trainer. Any thread. */
int ls_members_refuse(void *trainer, const char *host, const void *print, size_t bytes, char *why,
                      size_t size);
/* Opens the workers, and compares the kinds of devices of all members. If results depend on the
 * kind of device, all members must have devices of the same kind. If devices choose among several
 * kernels, the first member opens its workers first, and the others use its choices. Errors: those
 * of ls_worker_open; LS_EUNSUPPORTED, which names the host that differs. */
int ls_members_open_workers(struct ls_trainer *trainer, ls_error *err);
/* Called during an admission by the members of the former host group: compares the kinds of devices
 * of all members, and sends the first member's choices among kernels to the newcomer. The workers
 * must be open. Errors: the cluster's; LS_EUNSUPPORTED, which names the host that differs. */
int ls_members_welcome_devices(struct ls_trainer *trainer, ls_error *err);
/* Checks that the gradient of one shard is the same on all members, and that no two members use the
 * same devices. Sets ls_members.device, the list of all devices. Errors: LS_ENOMEM, the cluster's;
 * LS_EUNSUPPORTED, which names the host that differs. */
int ls_members_compare_hosts(struct ls_trainer *trainer, ls_error *err);
/* Sends the first member's position, results, weights and optimizer states to the other members. At
 * the start of a run all other members adopt these data. In an admission only the newcomer adopts
 * them, because the others have the same data already. Errors: the cluster's. */
int ls_members_share_start(struct ls_trainer *trainer, ls_error *err);
/* The check at the start of a run: ls_members_compare_hosts, and a check that the communicator
 * `merge` works over several processes. Then prepares the cluster for sums of gradients. The
 * workers must be open and have no work. Errors: LS_ECONFIG (`merge` works within one process
 * only); those of ls_members_compare_hosts and ls_cluster_prepare. */
int ls_members_check(struct ls_trainer *trainer, const ls_comm_type *merge, ls_error *err);

/* A shard whose loss is not finite: its number, the worker that computed it, and the member of that
 * worker. `shard` −1: no such shard was found. */
typedef struct ls_bad_shard {
    int member, worker, shard;
} ls_bad_shard;

/* Each member passes the bad shard that it has found in *bad. On all members *bad becomes the bad
 * shard of the member with the lowest number that has found one. All members call the function
 * after the same step, while their workers have no work. Errors: LS_ENOMEM, the cluster's. */
int ls_members_share_bad(ls_bad_shard *bad, struct ls_trainer *trainer, ls_error *err);

/* Called when a step is done. If the report says that a member has asked to stop, sets
 * `stop_after`. */
void ls_members_note_stop(struct ls_trainer *trainer, const struct ls_report *report);
/* Called after an evaluation. Gathers the results of all members' shards: sums of losses and of
 * correct rows, and the model's outputs if a metric needs them. Errors: LS_ENOMEM, the
 * cluster's. */
int ls_members_gather_evaluation(struct ls_trainer *trainer, ls_error *err);
/* Called when the trainer is open on this member. If cluster.on_host_loss is "continue", waits
 * until the trainer is open on all members. From then on the run survives the loss of a member.
 * Errors: the cluster's. */
int ls_members_begin(struct ls_trainer *trainer, ls_error *err);
/* Called after a run that ended with `status`. Compares the final weights of all members, and sets
 * result.saved to whether the first member has saved a checkpoint. After another status than LS_OK,
 * LS_EINTERRUPTED and LS_ENONFINITE, only makes this member leave the cluster. After LS_EDIVERGED
 * it ends the run on all members instead, so that none of them saves. Errors: LS_EDIVERGED,
 * LS_ENOMEM, the cluster's. */
int ls_members_end(struct ls_trainer *trainer, int status, ls_error *err);

/* ---- admit.c -------------------------------------------------------------------------------- */

/* Called on all members at the end of an epoch, before the next epoch begins. Admits the newcomers
 * that wait, one after another. Returns LS_OK at once if the run admits no hosts. Errors: the
 * cluster's, those of ls_recover. */
int ls_members_admit(struct ls_trainer *trainer, ls_error *err);
/* Called by the members of the former host group, when the new one has a newcomer. Repeats the
 * exchanges of the start of a run together with the newcomer, in the order in which the newcomer
 * makes them when it opens its run. Records the arrival of the newcomer. Errors: the cluster's. */
int ls_members_welcome(struct ls_trainer *trainer, ls_error *err);

/* ---- regroup.c ------------------------------------------------------------------------------ */

/* Returns whether the last exchange failed because members were lost, and the remaining members can
 * continue the run. */
bool ls_members_lost(const struct ls_trainer *trainer);
/* Returns the name of the host whose loss the last failed exchange reports; NULL: it reports
 * none. */
const char *ls_members_lost_host(const struct ls_trainer *trainer);
/* Called if the loss of a host ends the run: removes its devices from the list, and writes the
 * record of the fault. Does nothing if no host is lost, if there are no sinks yet, or if the record
 * is written. Errors: those of the record. */
int ls_members_end_by_loss(struct ls_trainer *trainer, ls_error *err);
/* Makes the remaining processes the members of the run. The workers must have no work. Errors:
 * LS_ESTALLED (this process is not among the remaining members), LS_ENOMEM. */
int ls_members_regroup(struct ls_trainer *trainer, ls_error *err);
/* Brings all members to the state of the member that has completed the largest number of steps and
 * evaluations, and records the loss. If the host group has a newcomer, welcomes the newcomer
 * instead (ls_members_welcome). Does nothing if no member was lost and none is new. This process's
 * workers must have joined a new group (ls_engine_form). If another member is lost meanwhile, the
 * function may be called again after ls_members_regroup. After any other error this member leaves
 * the run. */
int ls_members_level(struct ls_trainer *trainer, ls_error *err);

#endif
