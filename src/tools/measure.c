#include "tools/measure.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_NS 333000000u
enum { WARM_STEPS = 3 };

typedef struct stopwatch {
    ls_trainer *trainer;
    uint64_t opened_ns, from_ns, last_ns, need_ns;
    uint64_t steps, rows; /* since from_ns */
    int warm, done;
} stopwatch;

/* Runs on the coordinator, once for every record. */
static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    stopwatch *s = user;
    const char *rows = strstr(json, "\"rows\":");
    (void)length;
    (void)err;
    if (strncmp(json, "{\"type\":\"step\"", 14) != 0 || !rows || s->done)
        return LS_OK;
    s->last_ns = ls_now_ns();
    s->steps++;
    s->rows += strtoul(rows + 7, NULL, 10);
    if (!s->warm && s->steps >= WARM_STEPS && s->last_ns - s->opened_ns >= WARM_NS) {
        s->warm = 1;
        s->from_ns = s->last_ns;
        s->steps = s->rows = 0;
    } else if (s->warm && s->last_ns - s->from_ns >= s->need_ns) {
        s->done = 1;
        ls_trainer_interrupt(s->trainer);
    }
    return LS_OK;
}

static void fill(ls_measurement *out, const stopwatch *s)
{
    const ls_summary *sum = ls_trainer_summary(s->trainer);
    *out = (ls_measurement){
        .images_per_s = (double)s->rows / ((double)(s->last_ns - s->from_ns) * 1e-9),
        .steps = s->steps,
        .workers = sum->workers,
        .batch_size = sum->batch_size,
        .shards = sum->shards,
        .synthetic = sum->synthetic,
    };
    snprintf(out->name, sizeof out->name, "%s", sum->name);
    snprintf(out->devices, sizeof out->devices, "%s", sum->devices);
}

int ls_measure(ls_measurement *out, const ls_trainer_options *options, const char **set,
               double seconds, void (*running)(ls_trainer *trainer), ls_error *err)
{
    stopwatch s = {.need_ns = (uint64_t)(seconds * 1e9)};
    ls_trainer_options o = *options;
    o.set = set;
    set[o.set_count++] = "run_dir=null";
    set[o.set_count++] = "epochs=1000000";
    set[o.set_count++] = "eval_every=0";
    o.record = on_record;
    o.user = &s;
    int status = ls_trainer_open(&s.trainer, &o, err);
    if (status)
        return status;
    if (running)
        running(s.trainer);
    s.opened_ns = ls_now_ns();
    status = ls_trainer_run(s.trainer, err);
    if (status == LS_EINTERRUPTED && s.done) {
        fill(out, &s);
        status = LS_OK;
    }
    if (running)
        running(NULL);
    ls_trainer_close(s.trainer);
    return status;
}
