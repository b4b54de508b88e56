#include "train/state.h"

#include "base/error.h"
#include "hash/crc32.h"

#include <math.h>

uint32_t ls_data_crc32(const struct ls_trainer *t)
{
    uint32_t crc = 0;
    for (int s = 0; s < LS_SUBSETS; s++) {
        const ls_dataset_info *info = ls_dataset_describe(t->data[s]);
        const ls_dataset_view view = ls_dataset_resident(t->data[s]);
        const size_t pixels = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
        if (!view.images) /* streamed: nobody knows what will come */
            continue;
        crc = ls_crc32(crc, view.images, info->rows * pixels);
        crc = ls_crc32(crc, view.labels, info->rows);
    }
    return crc;
}

static void write_position(ls_json_writer *w, const ls_position *at)
{
    ls_json_open_object(w, "position");
    ls_json_put_uint(w, "steps", at->steps);
    ls_json_put_uint(w, "epoch", at->epoch);
    ls_json_put_uint(w, "step", at->step);
    ls_json_put_bool(w, "recorded", at->recorded);
    ls_json_put_double(w, "loss", at->totals.loss);
    ls_json_put_double(w, "correct", at->totals.correct);
    ls_json_put_double(w, "rows", at->totals.rows);
    ls_json_put_double(w, "seconds", at->totals.seconds);
    ls_json_put_double(w, "trained_s", at->trained_s);
    ls_json_close(w);
}

static void write_metrics(ls_json_writer *w, const ls_sink_mark *mark)
{
    ls_json_open_object(w, "metrics");
    ls_json_put_uint(w, "bytes", mark->bytes);
    ls_json_put_uint(w, "lines", mark->sums.lines);
    ls_json_put_uint(w, "sum", mark->sums.sum);
    ls_json_put_uint(w, "moment", mark->sums.moment);
    ls_json_close(w);
}

void ls_state_write(ls_json_writer *w, const struct ls_trainer *t, const ls_sink_mark *metrics,
                    uint32_t data_crc32)
{
    ls_json_open_object(w, NULL);
    ls_json_put_int(w, "schema", LS_STATE_SCHEMA);
    write_position(w, &t->position);
    ls_json_put_int(w, "epochs", t->result.epochs);
    ls_json_put_double(w, "test_loss", t->result.test_loss);
    ls_json_put_double(w, "test_accuracy", t->result.test_accuracy);
    write_metrics(w, metrics);
    ls_json_put_int(w, "shards", t->shards);
    ls_json_put_string(w, "instruction_set", t->summary.isa);
    ls_json_put_string(w, "library", t->summary.library);
    ls_json_put_uint(w, "train_rows", ls_subset_rows(t, LS_TRAIN));
    ls_json_put_uint(w, "test_rows", ls_subset_rows(t, LS_TEST));
    ls_json_put_uint(w, "data_crc32", data_crc32);
    ls_config_write_recipe(w, "recipe", &t->config, t->shards);
    ls_json_close(w);
}

/* ---- reading -------------------------------------------------------------------------------- */

#define EXACT 9007199254740992.0 /* 2⁵³ */

static uint64_t read_count(ls_fields *f, const char *key, double most)
{
    double value = 0;
    if (ls_field_double(f, key, 0, most, NULL, &value) && value != floor(value))
        ls_fields_fail(f, ls_field_any(f, key), "%s: expected an integer, found %g", key, value);
    return (uint64_t)value;
}

/* null: a number that there is not */
static double read_optional(ls_fields *f, const char *key)
{
    double value = NAN;
    if (!cJSON_IsNull(ls_field_any(f, key)))
        ls_field_double(f, key, -INFINITY, INFINITY, NULL, &value);
    return value;
}

static int read_position(ls_position *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    ls_fields f;
    ls_fields_begin(&f, doc, node, "position", err);
    out->steps = read_count(&f, "steps", EXACT);
    out->epoch = (uint32_t)read_count(&f, "epoch", 1e6);
    out->step = (uint32_t)read_count(&f, "step", UINT32_MAX);
    ls_field_bool(&f, "recorded", NULL, &out->recorded);
    ls_field_double(&f, "loss", -INFINITY, INFINITY, NULL, &out->totals.loss);
    out->totals.correct = (double)read_count(&f, "correct", EXACT);
    out->totals.rows = (double)read_count(&f, "rows", EXACT);
    ls_field_double(&f, "seconds", 0, INFINITY, NULL, &out->totals.seconds);
    ls_field_double(&f, "trained_s", 0, INFINITY, NULL, &out->trained_s);
    return ls_fields_end(&f);
}

static int read_metrics(ls_sink_mark *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    ls_fields f;
    ls_fields_begin(&f, doc, node, "metrics", err);
    out->bytes = read_count(&f, "bytes", EXACT);
    out->sums.lines = read_count(&f, "lines", EXACT);
    out->sums.sum = (uint32_t)read_count(&f, "sum", UINT32_MAX);
    out->sums.moment = (uint32_t)read_count(&f, "moment", UINT32_MAX);
    return ls_fields_end(&f);
}

static int read_all(ls_state *out, const ls_json *doc, ls_error *err)
{
    long schema, epochs, shards;
    ls_fields f;
    ls_fields_begin(&f, doc, ls_json_root(doc), "the state", err);
    ls_field_int(&f, "schema", LS_STATE_SCHEMA, LS_STATE_SCHEMA, NULL, &schema);
    const cJSON *position = ls_field_any(&f, "position");
    ls_field_int(&f, "epochs", 0, 1000000, NULL, &epochs);
    out->test_loss = read_optional(&f, "test_loss");
    out->test_accuracy = read_optional(&f, "test_accuracy");
    const cJSON *metrics = ls_field_any(&f, "metrics");
    ls_field_int(&f, "shards", 1, LS_SHARDS_MAX, NULL, &shards);
    ls_field_text(&f, "instruction_set", NULL, &out->isa);
    ls_field_text(&f, "library", NULL, &out->library);
    out->train_rows = read_count(&f, "train_rows", UINT32_MAX);
    out->test_rows = read_count(&f, "test_rows", UINT32_MAX);
    out->data_crc32 = (uint32_t)read_count(&f, "data_crc32", UINT32_MAX);
    out->recipe = ls_field_any(&f, "recipe");
    if (!cJSON_IsObject(out->recipe))
        ls_fields_fail(&f, out->recipe, "recipe: expected an object, found %s",
                       ls_json_kind(out->recipe));
    out->epochs = (int)epochs;
    out->shards = (int)shards;
    int status = ls_fields_end(&f);
    if (status == LS_OK)
        status = read_position(&out->position, doc, position, err);
    return status ? status : read_metrics(&out->metrics, doc, metrics, err);
}

int ls_state_read(ls_state *out, const ls_json *doc, ls_error *err)
{
    ls_error cause;
    int status = read_all(out, doc, &cause);
    return status ? ls_fail(err, LS_EDATA, "%.400s; use another checkpoint", cause.text) : LS_OK;
}
