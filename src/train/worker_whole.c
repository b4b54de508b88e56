/* A step as one: where a worker is alone with one shard, its device gets a step in one piece, and the
 * next one before this one's result is known, so that the device never waits for the host. Of a small
 * model it gets LS_UNROLLED steps in one piece.
 *
 * At most LS_IN_FLIGHT launches are under way. A step is reported when its launch is done, in order.
 * One whose loss is not finite changes nothing on the device, nor do those behind it; the host finds
 * out when it looks at the result, deals with it as with any such step, and then, if the run goes on,
 * enqueues those behind it anew. So nothing can be told from steps one after another.
 */
#include "sync/park.h"
#include "train/worker.h"

#include <math.h>
#include <string.h>
#include <time.h>

_Static_assert(LS_IN_PLACES >= LS_IN_FLIGHT, "each step under way has a place of its own");

static int is_planned(const ls_train_worker *mine, uint64_t number)
{
    return ls_inject_planned(&mine->trainer->injections, mine->index, number);
}

uint32_t ls_worker_at_once(const ls_train_worker *mine, const ls_range *range, uint32_t index)
{
    const uint32_t batch = (uint32_t)mine->trainer->config.batch_size;
    const uint64_t number = range->first_step + index + 1;
    const uint32_t n = ls_minibatch_rows(range->row_count, batch, index);
    const uint32_t most = mine->alone ? (uint32_t)ls_replica_steps_whole(mine->replica, n) : 0;
    if (most == 0 || is_planned(mine, number))
        return 0;
    if (most > range->steps - index || range->row_count < (index + most) * batch)
        return 1;
    for (uint32_t k = 1; k < most; k++)
        if (is_planned(mine, number + k))
            return 1;
    return most;
}

/* `count` steps of a launch, from its k-th on; what goes wrong here is reported when it is their turn. */
static void enqueue(ls_train_worker *mine, ls_flight *f, int k, int count)
{
    ls_replica_step how[LS_UNROLLED];
    ls_replica_times times = {0};
    ls_step *first = &f->step[k];
    uint32_t draw;
    for (int i = 0; i < count; i++)
        how[i] = ls_worker_how(mine, &first[i]);
    f->status = ls_worker_refresh(mine, first, 0, first->n, &draw);
    if (f->status == LS_OK)
        f->status = ls_replica_step_whole(mine->replica, first->rows, draw, how, count, f->place,
                                          &times, &mine->error);
    for (int i = 0; i < count; i++) {
        first[i].report.times.forward += times.forward / count;
        first[i].report.rest = count - i;
    }
}

/* ---- waiting -------------------------------------------------------------------------------- */

enum { SPINS = 2000, NAP_NS = 20000 };

/* Looks often at first: a step of a small model takes some tens of microseconds. */
static void pause_before(unsigned look)
{
    const struct timespec nap = {0, NAP_NS};
    if (look < SPINS)
        ls_spin_pause();
    else
        nanosleep(&nap, NULL);
}

/* Waits for a launch; with `may_leave` no longer than until another item has been sent. Returns
 * whether it has come to an end. */
static int await(ls_train_worker *mine, ls_flight *f, int may_leave)
{
    int arrived = 0;
    ls_beat(&mine->heartbeat, LS_PLACE_APPLY);
    for (unsigned look = 0; f->status == LS_OK && !arrived; look++) {
        if (look > 0)
            pause_before(look);
        f->status = ls_replica_arrived(&arrived, mine->replica, f->place, &mine->error);
        if (!arrived && may_leave && ls_pool_busy(mine->trainer->pool, mine->index) > 1)
            return f->status != LS_OK;
    }
    return 1;
}

/* ---- landing -------------------------------------------------------------------------------- */

/* The device has changed nothing since. */
static int hold_up(ls_train_worker *mine, ls_step *s)
{
    int status = ls_replica_sync(mine->replica, &mine->error);
    if (status == LS_OK)
        status = ls_worker_name_the_shard(mine, s);
    return status ? status : ls_replica_release(mine->replica, &mine->error);
}

/* A step has come to an end. Returns whether what was enqueued behind it has no effect. */
static int land(ls_train_worker *mine, const ls_flight *f, ls_step *s, const float tail[LS_TAIL])
{
    ls_report *report = &s->report;
    int held = 0;
    report->status = mine->failed ? LS_EABORTED : f->status;
    if (report->status == LS_OK)
        report->status = ls_worker_note_sum(mine, s, tail);
    if (report->status == LS_OK && !isfinite(report->loss)) {
        report->status = hold_up(mine, s);
        held = 1;
    }
    if (report->status != LS_OK && !mine->failed)
        ls_replica_sync(mine->replica, NULL); /* nothing is at work when it is known */
    ls_worker_report(mine, s);
    return held;
}

/* The first launch has come to an end. Behind a step that was held up, those of the launch are
 * enqueued anew one by one, and then the next launch. */
static void land_first(ls_train_worker *mine)
{
    ls_flight *f = &mine->flight[0];
    int anew = 0;
    for (int k = 0; k < f->count; k++) {
        if (anew && !mine->failed) {
            enqueue(mine, f, k, 1);
            await(mine, f, 0);
        }
        const float *tail = ls_replica_arrived_tail(mine->replica, f->place, anew ? 0 : k);
        anew |= land(mine, f, &f->step[k], tail);
    }
    mine->flights--;
    memmove(f, f + 1, (size_t)mine->flights * sizeof *f);
    if (anew && mine->flights > 0 && !mine->failed && f->status == LS_OK)
        enqueue(mine, f, 0, f->count);
}

void ls_worker_land(ls_train_worker *mine)
{
    while (mine->flights > 0)
        if (mine->failed || await(mine, &mine->flight[0], 0))
            land_first(mine);
}

void ls_worker_take_whole(ls_train_worker *mine, const ls_range *range, uint32_t index,
                          uint32_t count)
{
    const int more = index + count < range->steps;
    ls_flight *latest = &mine->flight[mine->flights++];
    for (uint32_t k = 0; k < count; k++)
        latest->step[k] = ls_worker_step_of(range, index + k);
    latest->count = (int)count;
    latest->place = mine->next_place;
    mine->next_place = (mine->next_place + 1) % LS_IN_PLACES;
    enqueue(mine, latest, 0, latest->count);
    /* All but the latest; that one too, unless more is waiting to be enqueued behind it. */
    while (mine->flights > 1)
        if (mine->failed || await(mine, &mine->flight[0], 0))
            land_first(mine);
    if (more && !mine->failed && mine->flight[0].status == LS_OK)
        return;
    if (mine->failed || await(mine, &mine->flight[0], 1))
        land_first(mine);
}
