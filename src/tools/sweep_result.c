/* What comes out of a sweep. */
#include "base/error.h"
#include "base/host.h"
#include "tools/sweep.h"
#include "json/json.h"

#include <lockstep/version.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void ls_sweep_row_init(ls_sweep_row *row)
{
    memset(row, 0, sizeof *row);
    row->test_accuracy = row->test_loss = row->train_loss = NAN;
    row->seconds_per_epoch = row->images_per_s = NAN;
}

void ls_sweep_row_progress(ls_sweep_row *row, const ls_progress *p)
{
    if (!p->epoch_done)
        return;
    row->train_loss = p->loss;
    row->epochs++;
    /* Every epoch has the same images: the mean rate is the harmonic mean of the epochs'. */
    row->inverse_rates += 1 / p->images_per_s;
    row->images_per_s = row->epochs / row->inverse_rates;
}

void ls_sweep_row_end(ls_sweep_row *row, const ls_trainer *trainer, int status, const char *error)
{
    row->ran = 1;
    row->status = status;
    if (status)
        snprintf(row->error, sizeof row->error, "%s", error);
    if (!trainer)
        return;
    const ls_result *r = ls_trainer_result(trainer);
    const ls_summary *s = ls_trainer_summary(trainer);
    snprintf(row->name, sizeof row->name, "%s", s->name);
    snprintf(row->devices, sizeof row->devices, "%s", s->devices);
    snprintf(row->run_dir, sizeof row->run_dir, "%s", s->run_dir);
    row->synthetic = s->synthetic;
    row->epochs = r->epochs;
    row->test_accuracy = r->test_accuracy;
    row->test_loss = r->test_loss;
    row->seconds_per_epoch = r->seconds_per_epoch;
    memcpy(row->weights_sha256, r->weights_sha256, sizeof row->weights_sha256);
}

double ls_sweep_speedup(const ls_sweep_row *rows, int count, int row)
{
    for (int i = 0; i < count; i++)
        if (isfinite(rows[i].images_per_s))
            return rows[row].images_per_s / rows[i].images_per_s;
    return NAN;
}

/* A value that is JSON as such, any other as a string: as the config takes it. */
static void put_value(ls_json_writer *w, const char *key, const char *text)
{
    ls_json *doc;
    if (ls_json_parse(&doc, "", text, strlen(text), w->out.host, NULL) == LS_OK) {
        ls_json_put_node(w, key, ls_json_root(doc));
        ls_json_destroy(doc);
    } else {
        ls_json_put_string(w, key, text);
    }
}

static void put_row(ls_json_writer *w, const ls_sweep *sweep, const ls_sweep_row *rows, int i)
{
    const ls_sweep_row *r = &rows[i];
    const char *status = !r->ran                        ? "not run"
                         : r->status == LS_OK           ? "finished"
                         : r->status == LS_EINTERRUPTED ? "interrupted"
                                                        : "failed";
    ls_json_open_object(w, NULL);
    ls_json_open_object(w, "set");
    for (int k = 0; k < ls_sweep_keys(sweep); k++) {
        /* "optimizer.lr=0.05": the key in full. */
        char key[256];
        const char *text = ls_sweep_assignment(sweep, i, k), *equals = strchr(text, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        put_value(w, key, ls_sweep_value(sweep, i, k));
    }
    ls_json_close(w);
    ls_json_put_string(w, "status", status);
    ls_json_put_string(w, "error", r->status && r->status != LS_EINTERRUPTED ? r->error : NULL);
    ls_json_put_string(w, "devices", r->devices[0] ? r->devices : NULL);
    ls_json_put_bool(w, "synthetic", r->synthetic);
    ls_json_put_int(w, "epochs", r->epochs);
    ls_json_put_double(w, "test_accuracy", r->test_accuracy);
    ls_json_put_double(w, "test_loss", r->test_loss);
    ls_json_put_double(w, "train_loss", r->train_loss);
    ls_json_put_double(w, "seconds_per_epoch", r->seconds_per_epoch);
    ls_json_put_double(w, "images_per_s", r->images_per_s);
    ls_json_put_double(w, "speed_up", ls_sweep_speedup(rows, ls_sweep_count(sweep), i));
    ls_json_put_string(w, "weights_sha256", r->weights_sha256[0] ? r->weights_sha256 : NULL);
    ls_json_put_string(w, "run_dir", r->run_dir[0] ? r->run_dir : NULL);
    ls_json_close(w);
}

int ls_sweep_json(char **out, const ls_sweep *sweep, const ls_sweep_row *rows, const char *config,
                  const ls_host *host, ls_error *err)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 2, host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "lockstep", LS_VERSION);
    ls_json_put_string(&w, "config", config);
    ls_json_open_array(&w, "keys");
    for (int k = 0; k < ls_sweep_keys(sweep); k++)
        ls_json_put_string(&w, NULL, ls_sweep_key(sweep, k));
    ls_json_close(&w);
    ls_json_open_array(&w, "runs");
    for (int i = 0; i < ls_sweep_count(sweep); i++)
        put_row(&w, sweep, rows, i);
    ls_json_close(&w);
    ls_json_close(&w);
    size_t length = 0;
    const char *text = ls_json_writer_text(&w, &length, err);
    *out = text ? ls_alloc(host, length + 2) : NULL;
    int status = text && !*out ? ls_fail(err, LS_ENOMEM, "out of memory for a sweep's results")
                 : text        ? LS_OK
                               : LS_ENOMEM;
    if (status == LS_OK) {
        memcpy(*out, text, length);
        (*out)[length] = '\n';
    }
    ls_json_writer_fini(&w);
    return status;
}
