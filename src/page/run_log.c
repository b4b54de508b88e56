/* SPDX-License-Identifier: MIT */
/* Collects the records of a run. Steps need bounded memory: when there are LS_RUN_STEPS full
 * entries, adjacent entries are merged in pairs, and `width` is doubled. Every entry but the last
 * stands for `width` steps. */
#include "page/facts.h"
#include "page/page.h"
#include "page/template.h"

#include "base/error.h"
#include "base/host.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const ls_run_seen ls_run_nothing = {0};

void ls_run_log_init(ls_run_log *log, uint64_t run, const ls_host *host)
{
    *log = (ls_run_log){.host = host, .run = run, .width = 1, .metric = LS_METRICS};
    ls_buffer_init(&log->newest, host);
}

void ls_run_log_fini(ls_run_log *log)
{
    for (size_t i = 0; i < log->others; i++)
        ls_free(log->host, log->other[i].json);
    ls_free(log->host, log->other);
    ls_free(log->host, log->step);
    ls_free(log->host, log->phase_s);
    ls_buffer_fini(&log->newest);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Merges entry `b`, which follows `a`, into `a`. Values that do not exist are NaN, which
 * fminf and fmaxf ignore. */
static void merge(ls_run_step *a, const ls_run_step *b)
{
    a->step = b->step;
    a->epoch = b->epoch;
    a->lr = b->lr;
    a->steps += b->steps;
    a->finite += b->finite;
    a->loss += b->loss;
    a->normed += b->normed;
    a->norm += b->norm;
    a->rows += b->rows;
    a->seconds += b->seconds;
    a->loss_lo = fminf(a->loss_lo, b->loss_lo);
    a->loss_hi = fmaxf(a->loss_hi, b->loss_hi);
    a->rate_lo = fminf(a->rate_lo, b->rate_lo);
    a->rate_hi = fmaxf(a->rate_hi, b->rate_hi);
}

/* Merges every two adjacent entries. If their number is odd, the last one is not changed. */
static void halve(ls_run_log *log)
{
    const size_t pairs = log->steps / 2;
    for (size_t i = 0; i < pairs; i++) {
        log->step[i] = log->step[2 * i];
        merge(&log->step[i], &log->step[2 * i + 1]);
    }
    if (log->steps % 2)
        log->step[pairs] = log->step[log->steps - 1];
    log->steps = pairs + log->steps % 2;
    log->width *= 2;
}

void ls_run_log_thin(ls_run_log *log, size_t most)
{
    while (log->steps > most)
        halve(log);
}

static int add_step(ls_run_log *log, const ls_run_step *s, ls_error *err)
{
    if (!log->step)
        log->step = ls_alloc_array(log->host, LS_RUN_STEPS, sizeof *log->step);
    if (!log->step)
        return ls_fail(err, LS_ENOMEM, "out of memory for the steps of a run");
    if (log->steps > 0 && log->step[log->steps - 1].steps < log->width) {
        merge(&log->step[log->steps - 1], s);
        return LS_OK;
    }
    if (log->steps == LS_RUN_STEPS)
        halve(log);
    log->step[log->steps++] = *s;
    return LS_OK;
}

static ls_run_step step_of(const ls_step_values *v, uint32_t epoch)
{
    const float rate = v->images_per_s > 0 ? v->images_per_s : NAN;
    ls_run_step s = {
        .step = v->step,
        .steps = 1,
        .epoch = epoch,
        .finite = isfinite(v->loss),
        .lr = v->lr,
        .loss_lo = v->loss,
        .loss_hi = v->loss,
        .rate_lo = rate,
        .rate_hi = rate,
        .loss = isfinite(v->loss) ? (double)v->loss : 0,
        .normed = isfinite(v->gradient_norm),
        .norm = isfinite(v->gradient_norm) ? (double)v->gradient_norm : 0,
    };
    if (rate > 0) {
        s.rows = v->rows > 0 ? (double)v->rows : 1;
        s.seconds = s.rows / (double)rate;
    }
    return s;
}

static int add_times(ls_run_log *log, const ls_step_values *v, ls_error *err)
{
    if (!log->phase_s && v->workers > 0) {
        log->phase_s = ls_alloc_array(log->host, (size_t)v->workers * LS_PHASES, sizeof(double));
        if (!log->phase_s)
            return ls_fail(err, LS_ENOMEM, "out of memory for the times of %d workers", v->workers);
        log->workers = v->workers;
    }
    if (v->workers == 0 || v->workers != log->workers)
        return LS_OK;
    for (int i = 0; i < v->workers; i++)
        for (int p = 0; p < LS_PHASES; p++)
            log->phase_s[i * LS_PHASES + p] += (double)v->worker[i].seconds[p];
    log->timed++;
    return LS_OK;
}

static uint64_t last_step(const ls_run_log *log)
{
    return log->steps > 0 ? log->step[log->steps - 1].step : 0;
}

static int take_step(ls_run_log *log, const ls_record *record, ls_error *err)
{
    const ls_run_step step = step_of(&record->of.step, record->epoch);
    int status = add_step(log, &step, err);
    if (status == LS_OK)
        status = add_times(log, &record->of.step, err);
    log->newest.length = 0;
    ls_buffer_add(&log->newest, record->json, record->length);
    return status ? status : ls_buffer_status(&log->newest, err);
}

/* Returns the newest record of a type, or NULL. */
static ls_run_record *newest_of(const ls_run_log *log, ls_record_type type)
{
    char start[48];
    const int n = snprintf(start, sizeof start, "{\"type\":\"%s\"", ls_record_names[type]);
    for (size_t i = log->others; i > 0; i--) {
        ls_run_record *r = &log->other[i - 1];
        if (r->length > (size_t)n && memcmp(r->json, start, (size_t)n) == 0)
            return r;
    }
    return NULL;
}

/* ---- other records -------------------------------------------------------------------------- */

static int take_other(ls_run_log *log, int event, const char *json, size_t length, ls_error *err)
{
    if (event && log->events++ >= LS_RUN_EVENTS)
        return LS_OK;
    const char *brace = memchr(json, '{', length); /* spaces may precede the object */
    length -= (size_t)(brace - json);
    ls_run_record *all = ls_grown(log->host, log->other, log->others, &log->capacity, sizeof *all);
    char *copy = ls_alloc(log->host, length);
    log->other = all ? all : log->other;
    if (!all || !copy) {
        ls_free(log->host, copy);
        return ls_fail(err, LS_ENOMEM, "out of memory for the records of a run");
    }
    memcpy(copy, brace, length);
    log->other[log->others++] = (ls_run_record){last_step(log), copy, length};
    return LS_OK;
}

/* Returns the index of `text` in json at or after `at`; `length` if there is none. */
static size_t find(const char *json, size_t at, size_t length, const char *text)
{
    const size_t n = strlen(text);
    while (at + n <= length && memcmp(json + at, text, n) != 0)
        at++;
    return at + n <= length ? at : length;
}

/* Removes the confusion matrix of the newest evaluation before the next one is added, because a
 * page draws only the newest matrix. A matrix of 100 classes takes 20 KB. */
static void drop_matrix(ls_run_log *log)
{
    ls_run_record *r = newest_of(log, LS_RECORD_EVAL);
    const size_t begin = r ? find(r->json, 0, r->length, ",\"precision\":[") : 0;
    const size_t end = r ? find(r->json, begin, r->length, "]]") + 2 : 0;
    if (!r || end > r->length)
        return;
    memmove(r->json + begin, r->json + end, r->length - end);
    r->length -= end - begin;
}

/* Finds the metric of the evaluations. Called for each record of a start and of an evaluation. */
static void find_metric(ls_run_log *log, const ls_record *r)
{
    ls_json *doc;
    if (ls_json_parse(&doc, "", r->json, r->length, log->host, NULL) != LS_OK)
        return; /* without memory the metric stays what it was */
    log->metric = r->type == LS_RECORD_EVAL ? ls_run_metric_of(log->metric, ls_json_root(doc))
                                            : ls_run_metric(ls_json_root(doc));
    ls_json_destroy(doc);
}

int ls_run_log_add(ls_run_log *log, const ls_record *r, ls_error *err)
{
    if (r->type == LS_RECORD_EVAL)
        drop_matrix(log);
    if (r->type == LS_RECORD_EVAL || r->type == LS_RECORD_RUN_START)
        find_metric(log, r);
    const bool event = r->type == LS_RECORD_FAULT || r->type == LS_RECORD_NONFINITE ||
                       r->type == LS_RECORD_ARRIVAL || r->type == LS_RECORD_FAILED_ARRIVAL;
    const int status = r->type == LS_RECORD_STEP ? take_step(log, r, err)
                                                 : take_other(log, event, r->json, r->length, err);
    log->records += status == LS_OK;
    return status;
}

/* ---- records of a file ----------------------------------------------------------------------- */

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(node) ? node->valuedouble : NAN;
}

/* Returns a positive number below `most` as an integer, else `fallback`. */
static uint64_t count_of(const cJSON *object, const char *key, double most, uint64_t fallback)
{
    const double value = number_of(object, key);
    return value >= 1 && value < most ? (uint64_t)value : fallback;
}

/* Adds the record of a step. Values that the record does not have become NaN or 0. */
static int add_read_step(ls_run_log *log, ls_record *r, const cJSON *record, ls_error *err)
{
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(record, "workers");
    const int count = cJSON_GetArraySize(workers);
    ls_worker_times *times = ls_alloc_array(log->host, (size_t)count + 1, sizeof *times);
    if (!times)
        return ls_fail(err, LS_ENOMEM, "out of memory for the times of %d workers", count);
    int w = 0;
    for (const cJSON *one = workers ? workers->child : NULL; one; one = one->next, w++)
        for (int p = 0; p < LS_PHASES; p++) {
            const double seconds = number_of(one, ls_phase_keys[p]);
            times[w].seconds[p] = seconds > 0 ? (float)seconds : 0;
        }
    r->epoch = (uint32_t)count_of(record, "epoch", 4e9, 0);
    r->of.step = (ls_step_values){
        .step = count_of(record, "step", 9e15, last_step(log) + 1),
        .rows = count_of(record, "rows", 9e15, 0),
        .loss = (float)number_of(record, "loss"),
        .lr = (float)number_of(record, "lr"),
        .images_per_s = (float)number_of(record, "images_per_s"),
        .gradient_norm = (float)number_of(record, "grad_norm"),
        .workers = count,
        .worker = times,
    };
    int status = ls_run_log_add(log, r, err);
    ls_free(log->host, times);
    return status;
}

static int add_read(ls_run_log *log, const ls_json *doc, const char *json, size_t length,
                    ls_error *err)
{
    const cJSON *record = ls_json_root(doc);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(record, "type");
    ls_record r = {.json = json, .length = length};
    if (!cJSON_IsString(type))
        return ls_json_fail(err, doc, record, LS_EDATA,
                            "expected a record, an object with a \"type\"; this is no metrics file "
                            "of a run");
    while (r.type < LS_RECORD_TYPES && strcmp(ls_record_names[r.type], type->valuestring) != 0)
        r.type++; /* a record of an unknown type is kept unchanged */
    return r.type == LS_RECORD_STEP ? add_read_step(log, &r, record, err)
                                    : ls_run_log_add(log, &r, err);
}

/* Returns whether a line is the complete record of a step, without parsing it. */
static bool is_step(const char *json, size_t length)
{
    static const char start[] = "{\"type\":\"step\",";
    return length > sizeof start && memcmp(json, start, sizeof start - 1) == 0 &&
           json[length - 1] == '}';
}

int ls_run_log_line(ls_run_log *log, const char *path, int number, const char *json, size_t length,
                    ls_error *err)
{
    ls_json *doc;
    if (log->brief && is_step(json, length)) {
        log->newest.length = 0;
        ls_buffer_add(&log->newest, json, length);
        log->records++;
        return ls_buffer_status(&log->newest, err);
    }
    int status = ls_json_parse_line(&doc, path, json, length, number, log->host, err);
    if (status)
        return status == LS_ENOMEM ? status : (err ? err->status = LS_EDATA : LS_EDATA);
    status = add_read(log, doc, json, length, err);
    ls_json_destroy(doc);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Appends JSON text such that it can be part of a page. The characters that a page must not contain
 * occur only in JSON strings, where they can be escaped. */
static void add_safe(ls_buffer *out, const char *json, size_t length)
{
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        const bool line = i + 2 < length && memcmp(json + i, "\xE2\x80\xA8", 3) == 0;
        const bool paragraph = i + 2 < length && memcmp(json + i, "\xE2\x80\xA9", 3) == 0;
        if (json[i] != '<' && !line && !paragraph)
            continue;
        ls_buffer_add(out, json + from, i - from);
        ls_buffer_put(out, line ? "\\u2028" : paragraph ? "\\u2029" : "\\u003c");
        i += line || paragraph ? 2 : 0;
        from = i + 1;
    }
    ls_buffer_add(out, json + from, length - from);
}

void ls_page_add_line(ls_buffer *out, ls_json_writer *w)
{
    size_t length;
    const char *text = ls_json_writer_text(w, &length, NULL);
    if (!text) {
        out->failed = 1;
        return;
    }
    add_safe(out, text, length);
    ls_buffer_add(out, "\n", 1);
}

static void begin(ls_json_writer *w, const char *type)
{
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", type);
}

static void put_range(ls_json_writer *w, const char *key, float lo, float hi)
{
    ls_json_open_array(w, key);
    ls_json_put_float(w, NULL, lo);
    ls_json_put_float(w, NULL, hi);
    ls_json_close(w);
}

static void add_steps(ls_buffer *out, ls_json_writer *w, const ls_run_step *s)
{
    begin(w, "step");
    ls_json_put_uint(w, "step", s->step);
    ls_json_put_uint(w, "epoch", s->epoch);
    ls_json_put_double(w, "rows", s->rows);
    ls_json_put_float(w, "loss", (float)(s->loss / s->finite));
    ls_json_put_float(w, "lr", s->lr);
    if (s->normed > 0)
        ls_json_put_float(w, "grad_norm", (float)(s->norm / s->normed));
    ls_json_put_float(w, "images_per_s", (float)(s->rows / s->seconds));
    if (s->steps > 1) {
        ls_json_put_uint(w, "steps", s->steps);
        put_range(w, "loss_range", s->loss_lo, s->loss_hi);
        put_range(w, "rate_range", s->rate_lo, s->rate_hi);
    }
    ls_json_close(w);
    ls_page_add_line(out, w);
}

static void add_sums(const ls_run_log *log, ls_buffer *out, ls_json_writer *w)
{
    begin(w, "times");
    ls_json_put_uint(w, "steps", log->timed);
    ls_json_open_array(w, "workers");
    for (int i = 0; i < log->workers; i++) {
        ls_json_open_object(w, NULL);
        for (int p = 0; p < LS_PHASES; p++)
            ls_json_put_float(w, ls_phase_keys[p], (float)log->phase_s[i * LS_PHASES + p]);
        ls_json_close(w);
    }
    ls_json_close(w);
    ls_json_close(w);
    ls_page_add_line(out, w);
}

/* Writes the first line. Steps can have been added to the last entry since the page received it, so
 * the records begin with that entry. */
static void add_head(const ls_run_log *log, ls_buffer *out, ls_json_writer *w,
                     const ls_run_seen *from)
{
    char key[LS_METRIC_KEY];
    begin(w, "page");
    ls_json_put_uint(w, "run", log->run);
    ls_json_put_uint(w, "width", log->width);
    ls_json_put_uint(w, "steps_from", from->steps);
    ls_json_put_uint(w, "others_from", from->others);
    ls_json_put_int(w, "cut_line", log->cut_line);
    ls_json_put_string(w, "metric", ls_metric_key(key, log->metric));
    ls_json_close(w);
    ls_page_add_line(out, w);
}

static void add_metrics(ls_buffer *out, ls_json_writer *w)
{
    char key[LS_METRIC_KEY];
    begin(w, "metrics");
    ls_json_open_array(w, "all");
    for (int m = 0; m < LS_METRICS; m++) {
        if (!ls_metric_title((ls_metric)m)[0])
            continue;
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "key", ls_metric_key(key, (ls_metric)m));
        ls_json_put_string(w, "name", ls_metric_title((ls_metric)m));
        ls_json_put_bool(w, "rises", ls_metric_rises((ls_metric)m));
        ls_json_close(w);
    }
    ls_json_close(w);
    ls_json_close(w);
    ls_page_add_line(out, w);
}

void ls_run_log_write(const ls_run_log *log, const ls_run_seen *have, ls_buffer *out)
{
    ls_run_seen from = ls_run_nothing;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, log->host);
    if (have->run == log->run && have->others <= log->others)
        from.others = have->others;
    if (have->run == log->run && have->width == log->width && have->steps <= log->steps)
        from.steps = have->steps > 0 ? have->steps - 1 : 0;
    add_head(log, out, &w, &from);
    if (from.others == 0)
        add_metrics(out, &w);
    for (size_t i = from.others; i < log->others; i++) {
        const ls_run_record *r = &log->other[i];
        ls_buffer_format(out, "{\"at\":%llu,", (unsigned long long)r->at);
        add_safe(out, r->json + 1, r->length - 1);
        ls_buffer_add(out, "\n", 1);
    }
    for (size_t i = from.steps; i < log->steps; i++)
        add_steps(out, &w, &log->step[i]);
    if (log->timed > 0)
        add_sums(log, out, &w);
    if (log->newest.length > 0) {
        ls_buffer_put(out, "{\"type\":\"newest\",\"step\":");
        add_safe(out, log->newest.text, log->newest.length);
        ls_buffer_put(out, "}\n");
    }
    ls_json_writer_fini(&w);
}

int ls_run_log_note(ls_run_log *log, const char *type, const char *const *pairs, ls_error *err)
{
    size_t length;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, log->host);
    begin(&w, type);
    for (; pairs[0]; pairs += 2)
        ls_json_put_string(&w, pairs[0], pairs[1]);
    ls_json_close(&w);
    const char *text = ls_json_writer_text(&w, &length, err);
    const bool event = strcmp(type, "warning") == 0;
    const int status = text ? take_other(log, event, text, length, err) : LS_ENOMEM;
    ls_json_writer_fini(&w);
    return status;
}

/* ---- the state of the run -------------------------------------------------------------------- */

static void add_newest(ls_buffer *out, const char *type, const char *json, size_t length)
{
    ls_buffer_format(out, ",\n\"%s\":", type);
    ls_buffer_add(out, json, length);
}

void ls_run_log_state(const ls_run_log *log, ls_buffer *out)
{
    ls_buffer_format(out, "{\"records\":%llu", (unsigned long long)log->records);
    if (log->newest.length > 0)
        add_newest(out, "step", log->newest.text, log->newest.length);
    for (int t = 0; t < LS_RECORD_TYPES; t++) {
        const ls_run_record *r = newest_of(log, t);
        if (r)
            add_newest(out, ls_record_names[t], r->json, r->length);
    }
    ls_buffer_put(out, "}\n");
}
