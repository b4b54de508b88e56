/* A step as one: where a worker is alone with one shard, its device gets a step in one piece, and the
 * next one before this one's result is known, so that the device never waits for the host.
 *
 * At most LS_IN_FLIGHT steps are under way. A step is reported when its own work is done, in order.
 * One whose loss is not finite changes nothing on the device, nor does the one behind it; the host
 * finds out when it looks at the result, deals with it as with any such step, and then, if the run
 * goes on, enqueues the one behind it anew. So nothing can be told from steps one after another.
 */
#include "sync/park.h"
#include "train/worker.h"

#include <math.h>
#include <string.h>
#include <time.h>

_Static_assert(LS_IN_PLACES >= LS_IN_FLIGHT, "each step under way has a place of its own");

int ls_worker_goes_whole(const ls_train_worker *mine, const ls_step *s)
{
    return mine->alone && ls_replica_steps_whole(mine->replica, s->n) &&
           !ls_inject_planned(&mine->trainer->injections, mine->index, s->number);
}

/* What goes wrong here is reported when it is the step's turn. */
static void enqueue(ls_train_worker *mine, ls_step *s)
{
    const ls_replica_step how = ls_worker_how(mine, s);
    uint32_t draw;
    s->report.status = ls_worker_refresh(mine, s, 0, s->n, &draw);
    if (s->report.status == LS_OK)
        s->report.status = ls_replica_step_whole(mine->replica, s->rows, draw, &how, s->place,
                                                 &s->report.times, &mine->error);
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

/* Waits for the first step under way; with `may_leave` no longer than until another one has been
 * sent. Returns whether it has come to an end. */
static int await_first(ls_train_worker *mine, float tail[LS_TAIL], int may_leave)
{
    ls_step *s = &mine->flight[0];
    int arrived = 0;
    ls_beat(&mine->heartbeat, LS_PLACE_APPLY);
    for (unsigned look = 0; s->report.status == LS_OK && !arrived; look++) {
        if (look > 0)
            pause_before(look);
        s->report.status =
            ls_replica_arrived(&arrived, tail, mine->replica, s->place, &mine->error);
        if (!arrived && may_leave && ls_pool_busy(mine->trainer->pool, mine->index) > 1)
            return s->report.status != LS_OK;
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
    if (status == LS_OK)
        status = ls_replica_release(mine->replica, &mine->error);
    if (status == LS_OK && mine->trainer->config.skip_nonfinite && mine->flights > 1 &&
        mine->flight[1].report.status == LS_OK)
        enqueue(mine, &mine->flight[1]);
    return status;
}

/* The first step under way has come to an end. */
static void land_first(ls_train_worker *mine, const float tail[LS_TAIL])
{
    ls_step *s = &mine->flight[0];
    ls_report *report = &s->report;
    if (mine->failed)
        report->status = LS_EABORTED;
    if (report->status == LS_OK)
        report->status = ls_worker_note_sum(mine, s, tail);
    if (report->status == LS_OK && !isfinite(report->loss))
        report->status = hold_up(mine, s);
    if (report->status != LS_OK && !mine->failed)
        ls_replica_sync(mine->replica, NULL); /* nothing is at work when it is known */
    ls_step first = *s;
    mine->flights--;
    memmove(mine->flight, mine->flight + 1, (size_t)mine->flights * sizeof *mine->flight);
    ls_worker_report(mine, &first);
}

void ls_worker_land(ls_train_worker *mine)
{
    float tail[LS_TAIL] = {0};
    while (mine->flights > 0)
        if (mine->failed || await_first(mine, tail, 0))
            land_first(mine, tail);
}

void ls_worker_take_whole(ls_train_worker *mine, const ls_step *s)
{
    float tail[LS_TAIL] = {0};
    ls_step *latest = &mine->flight[mine->flights++];
    *latest = *s;
    latest->place = mine->next_place;
    mine->next_place = (mine->next_place + 1) % LS_IN_PLACES;
    enqueue(mine, latest);
    /* All but the latest; that one too, unless another step is waiting to be enqueued. */
    while (mine->flights > 1)
        if (mine->failed || await_first(mine, tail, 0))
            land_first(mine, tail);
    if (mine->failed || await_first(mine, tail, 1))
        land_first(mine, tail);
}
