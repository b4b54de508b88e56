/* A whole step as one: gather, forward, backward and the update, its tail on the way to the host. */
#include "nn/replica_impl.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

static int recorded_plans(const ls_replica *r)
{
    int count = 0;
    for (int i = 0; i < r->plans; i++)
        count += r->plan[i]->recording != NULL;
    return count;
}

int ls_replica_prepare_whole(ls_replica *replica, ls_error *err)
{
    const ls_device_ops *ops = replica->device->ops;
    void *memory = NULL;
    if (!ops->reached || !ops->record || recorded_plans(replica) == 0)
        return LS_OK;
    int rc = replica->updates[OF_GRADIENT].update
                 ? LS_OK
                 : ls_replica_make_updates(replica, OF_GRADIENT, err);
    if (rc == LS_OK)
        rc = ls_replica_bind_updates(replica, OF_GRADIENT, err);
    if (rc == LS_OK && !replica->arrived) {
        rc = ops->pinned_alloc(&memory, replica->device,
                               (size_t)LS_IN_PLACES * LS_TAIL * sizeof(float), err);
        replica->arrived = memory;
    }
    for (int p = 0; p < LS_IN_PLACES && rc == LS_OK; p++) /* the first time makes them */
        rc = ops->record(&replica->arrival[p], replica->device, NULL, err);
    return rc == LS_OK ? ls_replica_record_whole(replica, err) : rc;
}

int ls_replica_steps_whole(const ls_replica *replica, uint32_t n)
{
    const ls_plan *plan = ls_replica_plan_for(replica, n);
    return plan && plan->whole[0];
}

/* Of work that was enqueued: repeating it might apply it twice. */
static int unknown_end(int rc, ls_error *err)
{
    if (rc == LS_OK || rc == LS_EDATA)
        return rc;
    if (err)
        err->status = LS_EDEVICE;
    return LS_EDEVICE;
}

int ls_replica_step_whole(ls_replica *replica, const uint32_t *rows, uint32_t epoch,
                          const ls_replica_step *step, int place, ls_replica_times *times,
                          ls_error *err)
{
    const ls_device_ops *ops = replica->device->ops;
    const uint64_t start = ls_now_ns();
    ls_plan *plan = ls_replica_plan_for(replica, step->rows);
    int rc = ls_replica_stage_rows(replica, LS_TRAIN, rows, step->rows, err);
    if (rc != LS_OK)
        return rc;
    replica->args.epoch = epoch;
    replica->args.rows = ls_replica_staged(replica, 0);
    ls_replica_set_step(replica, step);
    rc = ls_plan_launch(plan, plan->whole[place], &replica->args, err);
    if (rc != LS_OK)
        return rc;
    rc = ops->record(&replica->arrival[place], replica->device, NULL, err);
    times->forward += (double)(ls_now_ns() - start) * 1e-9;
    return unknown_end(rc, err);
}

int ls_replica_arrived(int *arrived, float tail[LS_TAIL], ls_replica *replica, int place,
                       ls_error *err)
{
    int rc = replica->device->ops->reached(arrived, replica->device, replica->arrival[place], err);
    if (rc == LS_OK && *arrived)
        memcpy(tail, replica->arrived + (size_t)place * LS_TAIL, LS_TAIL * sizeof *tail);
    return unknown_end(rc, err);
}

int ls_replica_release(ls_replica *replica, ls_error *err)
{
    static const float no = 0;
    return replica->device->ops->upload(replica->device, NULL, replica->held, &no, sizeof no, err);
}
