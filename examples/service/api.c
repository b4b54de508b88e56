#include "api.h"

#include "payload.h"
#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reply_error(reply *out, int code, const char *format, ...)
{
    char message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    out->code = code;
    out->body.length = 0;
    text_put(&out->body, "{\"error\":");
    text_put_json(&out->body, message);
    text_put(&out->body, "}\n");
}

static int http_code(int status)
{
    switch (status) {
    case LS_EDATA: return 400;
    case LS_EINVAL: return 413;
    case LS_EUNSUPPORTED: return 415;
    default: return 503;
    }
}

static int read_payload(payload *p, const service *s, const request *r, int examples, reply *out)
{
    ls_error err;
    int status = payload_read(p, &s->o->form, examples, r->content_type, r->body, r->length, &err);
    if (status)
        reply_error(out, http_code(status), "%s", err.text);
    return status == LS_OK;
}

/* ---- POST /examples ------------------------------------------------------------------------- */

static void refuse(int status, const ls_error *err, reply *out)
{
    reply_error(out, status == LS_ENOMEM ? 507 : 503, "%s", err->text);
    if (status == LS_EAGAIN)
        out->retry_after_s = 1;
}

static void take_examples(service *s, const request *r, reply *out)
{
    payload p;
    ls_error err;
    if (!read_payload(&p, s, r, 1, out))
        return;
    int status = journal_append(s->examples, p.bytes, p.count, &err);
    metric_add(status ? s->refused : s->accepted, p.count);
    if (status)
        refuse(status, &err, out);
    else
        text_put(&out->body, "{\"accepted\":%u}\n", (unsigned)p.count);
    payload_free(&p);
}

/* ---- POST /predict -------------------------------------------------------------------------- */

static int outputs_of(const example_form *form)
{
    return form->targets ? form->targets : form->classes;
}

static int best_of(const float *scores, int classes)
{
    int best = 0;
    for (int k = 1; k < classes; k++)
        best = scores[k] > scores[best] ? k : best;
    return best;
}

static void softmax(float *scores, int classes, float most)
{
    float sum = 0;
    for (int k = 0; k < classes; k++)
        sum += scores[k] = expf(scores[k] - most);
    for (int k = 0; k < classes; k++)
        scores[k] /= sum;
}

static void put_predictions(text *t, const example_form *form, uint64_t step, float *scores,
                            uint32_t n)
{
    const int outputs = outputs_of(form);
    text_put(t, "{\"step\":%llu,\"predictions\":[", (unsigned long long)step);
    for (uint32_t i = 0; i < n; i++, scores += outputs) {
        text_put(t, i ? ",{" : "{");
        if (form->targets) {
            text_put(t, "\"outputs\":[");
        } else {
            const int best = best_of(scores, outputs);
            softmax(scores, outputs, scores[best]);
            text_put(t, "\"class\":%d,\"probabilities\":[", best);
        }
        for (int k = 0; k < outputs; k++)
            text_put(t, "%s%.6g", k ? "," : "", (double)scores[k]);
        text_put(t, "]}");
    }
    text_put(t, "]}\n");
}

/* JSON has no other numbers. */
static int check_finite(const float *scores, size_t count, ls_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(scores[i]))
            return fail(err, LS_ENONFINITE, "the model's scores are not finite");
    return LS_OK;
}

/* What comes out may take as much memory as what goes in, or a little. */
static size_t most_outputs(const options *o)
{
    const size_t little = (size_t)4 << 20, body = (size_t)o->body;
    return (body > little ? body : little) / sizeof(float);
}

static void predict_rows(service *s, const payload *p, reply *out)
{
    const size_t outputs = (size_t)outputs_of(&s->o->form), count = p->count * outputs;
    if (count > most_outputs(s->o)) {
        reply_error(out, 413, "%u rows of %zu outputs; send at most %zu rows at once",
                    (unsigned)p->count, outputs, most_outputs(s->o) / outputs);
        return;
    }
    uint64_t step;
    ls_error err;
    float *scores = malloc(count * sizeof *scores);
    int status = scores ? together_predict(&s->predictions, p->bytes, p->count,
                                           s->o->form.row_bytes, outputs, scores, &step, &err)
                        : fail(&err, LS_ENOMEM, "out of memory for %u predictions", p->count);
    if (status == LS_OK)
        status = check_finite(scores, count, &err);
    if (status) {
        reply_error(out, 503, "%s", err.text);
        out->retry_after_s = status == LS_EAGAIN;
    } else {
        metric_add(s->predicted, p->count);
        put_predictions(&out->body, &s->o->form, step, scores, p->count);
    }
    free(scores);
}

static void predict(service *s, const request *r, reply *out)
{
    payload p;
    if (!read_payload(&p, s, r, 0, out))
        return;
    predict_rows(s, &p, out);
    payload_free(&p);
}

/* ---- GET /healthz, GET /metrics ------------------------------------------------------------- */

enum { SILENT_S = 5 /* of the disk: longer is more than a moment's work */ };

/* Why examples cannot be stored; NULL: they can. */
static const char *disk_trouble(const service *s, const journal_state *j, ls_error *why)
{
    if (j->failed)
        return "the disk of the journal fails: no examples are accepted until a restart";
    if (j->silent_s > SILENT_S)
        fail(why, LS_EIO, "the disk of the journal has not answered for %.0f s", j->silent_s);
    else if (j->refusing)
        fail(why, LS_EIO, "no examples can be stored: %s", strerror(j->refusing));
    else if (j->durable >= (uint64_t)s->o->most)
        fail(why, LS_ENOMEM, "no examples can be stored: the journal has --most, %ld", s->o->most);
    else
        return NULL;
    return why->text;
}

/* Why not everything is as it should be; NULL: it is. */
static const char *trouble(service *s, ls_error *why)
{
    journal_state j;
    journal_look(s->examples, &j);
    const char *disk = disk_trouble(s, &j, why);
    if (disk)
        return disk;
    switch (learner_look(s->training, why)) {
    case LEARNER_OPENS: return "starting";
    case LEARNER_RUNS: return NULL;
    case LEARNER_FAILED: return why->text;
    default: return "stopping";
    }
}

static void tell_health(service *s, const request *r, reply *out)
{
    ls_error why;
    journal_state j;
    (void)r;
    const char *reason = trouble(s, &why);
    if (reason) {
        reply_error(out, 503, "%s", reason);
        return;
    }
    journal_look(s->examples, &j);
    text_put(&out->body, "{\"status\":\"ok\",\"examples\":%llu,\"waiting\":%llu}\n",
             (unsigned long long)j.durable, (unsigned long long)(j.durable - j.trained));
}

static void tell_metrics(service *s, const request *r, reply *out)
{
    ls_error why;
    journal_state j;
    (void)r;
    journal_look(s->examples, &j);
    metric_set(s->held, (double)j.durable);
    metric_set(s->queue, (double)(j.durable - j.trained));
    metric_set(s->syncs, (double)j.syncs);
    metric_set(s->cut, (double)j.cut);
    metric_set(s->ready, trouble(s, &why) == NULL);
    const size_t most = metrics_write(&s->numbers, NULL, 0) + 4096; /* numbers grow meanwhile */
    char *room = text_room(&out->body, most);
    if (room)
        out->body.length += metrics_write(&s->numbers, room, most);
    out->type = METRICS_CONTENT_TYPE;
}

/* ---- all of it ------------------------------------------------------------------------------ */

const route api_routes[] = {{"/examples", "POST", take_examples},
                            {"/predict", "POST", predict},
                            {"/metrics", "GET", tell_metrics},
                            {"/healthz", "GET", tell_health}};
const int api_route_count = sizeof api_routes / sizeof *api_routes;

void api_init(service *s)
{
    metrics *all = &s->numbers;
    board_init(&s->snapshots);
    together_init(&s->predictions, &s->snapshots, (int)s->o->predictions);
    s->accepted = metrics_counter(all, "service_examples_accepted_total", NULL,
                                  "Examples that were acknowledged.");
    s->refused =
        metrics_counter(all, "service_examples_refused_total", NULL,
                        "Well-formed examples that the journal did not take: queue or disk full.");
    s->predicted =
        metrics_counter(all, "service_predictions_total", NULL, "Rows that were predicted.");
    s->held = metrics_gauge(all, "service_journal_examples", NULL, "Examples in the journal.");
    s->queue =
        metrics_gauge(all, "service_queue_examples", NULL, "Examples that wait for training.");
    s->syncs = metrics_gauge(all, "service_journal_syncs", NULL,
                             "Times that the disk was waited for, since the start.");
    s->cut = metrics_gauge(all, "service_cut_examples", NULL,
                           "Examples at the journal's end that were not whole at the start.");
    s->ready = metrics_gauge(all, "service_ready", NULL, "1 while /healthz answers 200.");
}

void api_fini(service *s)
{
    together_fini(&s->predictions);
    board_fini(&s->snapshots);
}
