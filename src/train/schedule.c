#include "train/schedule.h"

#include "json/fields.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"constant", "step", "cosine", NULL};

static void read_object(ls_schedule *s, ls_fields *f)
{
    const double none = 0, thirty = 30, tenth = 0.1;
    int rule = 0;
    ls_field_choice(f, "name", names, NULL, &rule);
    s->rule = (ls_schedule_rule)rule;
    ls_field_double(f, "warmup_epochs", 0, 1e6, &none, &s->warmup);
    if (s->rule == LS_SCHEDULE_STEP) {
        ls_field_double(f, "every_epochs", 1e-6, 1e6, &thirty, &s->every);
        ls_field_double(f, "gamma", 0, 1, &tenth, &s->gamma);
    }
    if (s->rule == LS_SCHEDULE_COSINE)
        ls_field_double(f, "minimum", 0, 1, &none, &s->minimum);
}

int ls_schedule_parse(ls_schedule *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    *out = (ls_schedule){.every = 30, .gamma = 0.1};
    if (!node)
        return LS_OK;
    if (cJSON_IsString(node)) {
        for (int i = 0; names[i]; i++)
            if (strcmp(node->valuestring, names[i]) == 0) {
                out->rule = (ls_schedule_rule)i;
                return LS_OK;
            }
        return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                                  "schedule: expected constant, step or cosine, found \"%s\"",
                                  node->valuestring);
    }
    ls_fields f;
    ls_fields_begin(&f, doc, node, "schedule", err);
    read_object(out, &f);
    return ls_fields_end(&f);
}

int ls_schedule_needs_end(const ls_schedule *s)
{
    return s->rule == LS_SCHEDULE_COSINE;
}

void ls_schedule_write(ls_json_writer *w, const char *key, const ls_schedule *s)
{
    ls_json_open_object(w, key);
    ls_json_put_string(w, "name", names[s->rule]);
    ls_json_put_double(w, "warmup_epochs", s->warmup);
    if (s->rule == LS_SCHEDULE_STEP) {
        ls_json_put_double(w, "every_epochs", s->every);
        ls_json_put_double(w, "gamma", s->gamma);
    }
    if (s->rule == LS_SCHEDULE_COSINE)
        ls_json_put_double(w, "minimum", s->minimum);
    ls_json_close(w);
}

static double cosine(double minimum, double done)
{
    const double pi = 3.14159265358979323846;
    return minimum + (1 - minimum) * 0.5 * (1 + cos(pi * done));
}

double ls_schedule_rate(const ls_schedule *s, double lr, uint64_t step, uint64_t steps_per_epoch,
                        uint64_t epochs)
{
    double warmup = s->warmup * (double)steps_per_epoch, t = (double)step;
    double last = (double)(steps_per_epoch * epochs);
    if (t < warmup)
        return lr * fmin(1, (t + 1) / warmup);
    switch (s->rule) {
    case LS_SCHEDULE_STEP:
        return lr * pow(s->gamma, floor(t / (s->every * (double)steps_per_epoch)));
    case LS_SCHEDULE_COSINE:
        return lr * cosine(s->minimum, fmin(1, (t - warmup) / (last - warmup)));
    case LS_SCHEDULE_CONSTANT: break;
    }
    return lr;
}
