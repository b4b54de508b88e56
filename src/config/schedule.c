/* SPDX-License-Identifier: MIT */
/* The schedule: the learning rate of every step (config.h). */
#include "config/config.h"

#include "base/error.h"
#include "base/portable_math.h"

#include <math.h>
#include <string.h>

static const char *const schedules[] = {"constant", "step", "cosine", "one_cycle",
                                        /* in the order of ls_schedule_rule */
                                        "triangular", "exponential", NULL};

/* A key of a schedule that only some rules have. */
typedef struct schedule_key {
    const char *name;
    unsigned rules; /* bit mask of rules, 1 << rule */
    size_t at;      /* offset in ls_schedule */
    double fallback, min, max;
} schedule_key;

#define HAS(rule) (1u << LS_SCHEDULE_##rule)
#define IN(member) offsetof(ls_schedule, member)

static const schedule_key schedule_keys[] = {
    {"warmup_epochs", HAS(CONSTANT) | HAS(STEP) | HAS(COSINE), IN(warmup), 0, 0, 1e6},
    {"every_epochs", HAS(STEP), IN(every), 30, 1e-6, 1e6},
    {"gamma", HAS(STEP), IN(gamma), 0.1, 0, 1},
    {"peak", HAS(ONE_CYCLE), IN(peak), 0.3, 0, 1},
    {"start", HAS(ONE_CYCLE), IN(start), 0.04, 0, 1},
    {"every_epochs", HAS(TRIANGULAR), IN(every), 10, 1e-6, 1e6},
    {"minimum", HAS(COSINE) | HAS(TRIANGULAR), IN(minimum), 0, 0, 1},
    {"minimum", HAS(ONE_CYCLE), IN(minimum), 4e-6, 0, 1},
    {"minimum", HAS(EXPONENTIAL), IN(minimum), 1e-7, 1e-30, 1},
    {"steps", HAS(EXPONENTIAL), IN(steps), 300, 2, 1e9},
    {"epoch_steps", HAS(CONSTANT) | HAS(STEP) | HAS(COSINE) | HAS(ONE_CYCLE) | HAS(TRIANGULAR),
     IN(epoch_steps), 0, 0, 1e9},
};

enum { SCHEDULE_KEYS = sizeof schedule_keys / sizeof *schedule_keys };

/* Reads the keys that the rule of `s` has. `f` NULL: the keys have their defaults. */
static void read_keys(ls_schedule *s, ls_fields *f)
{
    for (const schedule_key *k = schedule_keys; k < schedule_keys + SCHEDULE_KEYS; k++) {
        double *value = (double *)((char *)s + k->at);
        if (!(k->rules & 1u << s->rule))
            continue;
        *value = k->fallback;
        if (f)
            ls_field_double(f, k->name, k->min, k->max, &k->fallback, value);
    }
}

int ls_schedule_parse(ls_schedule *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    int rule = 0;
    ls_fields f;
    *out = (ls_schedule){0};
    if (!node)
        return LS_OK;
    if (cJSON_IsString(node)) {
        f = (ls_fields){.doc = doc, .object = node, .what = "schedule", .err = err};
        if (!ls_field_is_choice(&f, "name", node, schedules, &rule))
            return f.status;
        out->rule = (ls_schedule_rule)rule;
        read_keys(out, NULL);
        return LS_OK;
    }
    ls_fields_begin(&f, doc, node, "schedule", err);
    ls_field_choice(&f, "name", schedules, NULL, &rule);
    out->rule = (ls_schedule_rule)rule;
    read_keys(out, &f);
    return ls_fields_end(&f);
}

void ls_schedule_write(ls_json_writer *w, const char *key, const ls_schedule *s)
{
    ls_json_open_object(w, key);
    ls_json_put_string(w, "name", schedules[s->rule]);
    for (const schedule_key *k = schedule_keys; k < schedule_keys + SCHEDULE_KEYS; k++) {
        const double value = *(const double *)((const char *)s + k->at);
        /* a key that was added later is not written if it is 0, so that recipes stay the same */
        if (k->rules & 1u << s->rule && (value != 0 || k->at != IN(epoch_steps)))
            ls_json_put_double(w, k->name, value);
    }
    ls_json_close(w);
}

/* Returns the value of half a cosine that goes from `first` to `last`, after the fraction `done` of
 * its way. */
static double cosine(double first, double last, double done)
{
    const double pi = 3.14159265358979323846;
    return last + (first - last) * 0.5 * (1 + ls_cos(pi * fmin(1, done)));
}

/* Returns the rate of step t of `steps` under the rule one_cycle, as a fraction of the full rate.
 * The rate grows up to step peak · steps − 1, which has the full rate. */
static double one_cycle(const ls_schedule *s, double t, double steps)
{
    const double top = s->peak * steps - 1;
    if (t <= top && top > 0)
        return cosine(s->start, 1, t / top);
    return cosine(1, s->minimum, (t - top) / (steps - 1 - top));
}

static double triangle(double minimum, double cycles)
{
    const double part = cycles - floor(cycles);
    return minimum + (1 - minimum) * (part <= 0.5 ? 2 * part : 2 - 2 * part);
}

double ls_schedule_rate(const ls_schedule *s, double lr, uint64_t step, uint64_t steps_per_epoch,
                        uint64_t epochs)
{
    const double epoch = s->epoch_steps > 0 ? s->epoch_steps : (double)steps_per_epoch;
    const double warmup = s->warmup * epoch, t = (double)step, last = epoch * (double)epochs;
    if (t < warmup)
        return lr * fmin(1, (t + 1) / warmup);
    switch (s->rule) {
    case LS_SCHEDULE_STEP: return lr * ls_power(s->gamma, (uint64_t)(t / (s->every * epoch)));
    case LS_SCHEDULE_COSINE: return lr * cosine(1, s->minimum, (t - warmup) / (last - warmup));
    case LS_SCHEDULE_ONE_CYCLE: return lr * one_cycle(s, t, last);
    case LS_SCHEDULE_TRIANGULAR: return lr * triangle(s->minimum, t / (s->every * epoch));
    case LS_SCHEDULE_EXPONENTIAL:
        return lr * ls_exp(ls_ln(s->minimum) * (1 - fmin(1, t / (s->steps - 1))));
    case LS_SCHEDULE_CONSTANT: break;
    }
    return lr;
}
