/* A whole step as one: gather, forward, backward and the update, its tail on the way to the host. Of
 * small models several. */
#include "nn/replica_impl.h"

#include "base/clock.h"
#include "base/error.h"

_Static_assert(LS_UNROLLED <= LS_RECORD_STEPS, "a recording has room for as many steps");

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
                               (size_t)LS_IN_PLACES * LS_UNROLLED * LS_TAIL * sizeof(float), err);
        replica->arrived = memory;
    }
    for (int p = 0; p < LS_IN_PLACES && rc == LS_OK; p++) /* the first time makes them */
        rc = ops->record(&replica->arrival[p], replica->device, NULL, err);
    return rc == LS_OK ? ls_replica_record_whole(replica, err) : rc;
}

int ls_replica_steps_whole(const ls_replica *replica, uint32_t n)
{
    const ls_plan *plan = ls_replica_plan_for(replica, n);
    if (!plan || !plan->whole[0])
        return 0;
    return plan->unrolled[0] ? LS_UNROLLED : 1;
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

static void set_steps(ls_replica *r, uint32_t epoch, const ls_replica_step *step, int count)
{
    r->args.epoch = epoch;
    for (int k = 0; k < count; k++) {
        r->args.rows = ls_replica_staged(r, (uint32_t)k * step->rows);
        ls_replica_set_step(r, &step[k]);
        r->unrolled_args[k] = r->args;
    }
}

int ls_replica_step_whole(ls_replica *replica, const uint32_t *rows, uint32_t epoch,
                          const ls_replica_step *step, int count, int place,
                          ls_replica_times *times, ls_error *err)
{
    const ls_device_ops *ops = replica->device->ops;
    const uint64_t start = ls_now_ns();
    ls_plan *plan = ls_replica_plan_for(replica, step->rows);
    int rc = ls_replica_stage_calls(replica, LS_TRAIN, rows, step->rows, (uint32_t)count, err);
    if (rc != LS_OK)
        return rc;
    set_steps(replica, epoch, step, count);
    rc = ls_plan_launch(plan, count > 1 ? plan->unrolled[place] : plan->whole[place],
                        replica->unrolled_args, err);
    if (rc != LS_OK)
        return rc;
    rc = ops->record(&replica->arrival[place], replica->device, NULL, err);
    times->forward += (double)(ls_now_ns() - start) * 1e-9;
    return unknown_end(rc, err);
}

int ls_replica_arrived(int *arrived, ls_replica *replica, int place, ls_error *err)
{
    return unknown_end(
        replica->device->ops->reached(arrived, replica->device, replica->arrival[place], err), err);
}

const float *ls_replica_arrived_tail(const ls_replica *replica, int place, int k)
{
    return ls_replica_tail_of(replica, place, k);
}

int ls_replica_release(ls_replica *replica, ls_error *err)
{
    static const float no = 0;
    return replica->device->ops->upload(replica->device, NULL, replica->held, &no, sizeof no, err);
}
