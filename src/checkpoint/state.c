/* SPDX-License-Identifier: MIT */
/* Writes and reads the state of a checkpoint as JSON (checkpoint.h), and computes the checksum of
 * the data, which is part of it. */
#include "checkpoint/chain.h"

#include "base/error.h"
#include "hash/hash.h"
#include "json/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Adds labels to the checksum as one byte each. The function is used if all labels fit into a byte.
 * The first versions of Lockstep had only such labels and computed checksums in this way, and the
 * checksum of a data set must stay the same in all versions. */
static uint32_t add_labels(uint32_t crc, const int32_t *labels, size_t rows)
{
    uint8_t byte[1024];
    for (size_t done = 0; done < rows;) {
        const size_t left = rows - done, n = left < sizeof byte ? left : sizeof byte;
        for (size_t i = 0; i < n; i++)
            byte[i] = (uint8_t)labels[done + i];
        crc = ls_crc32(crc, byte, n);
        done += n;
    }
    return crc;
}

uint32_t ls_data_crc32(ls_dataset *const *data)
{
    uint32_t crc = 0;
    for (int s = 0; s < LS_SUBSETS; s++) {
        const ls_dataset_info *info = ls_dataset_describe(data[s]);
        const ls_dataset_view view = ls_dataset_resident(data[s]);
        if (!view.images) /* streamed rows are not known before they are trained on */
            continue;
        crc = ls_crc32(crc, view.images, view.rows * ls_dataset_image_bytes(data[s]));
        crc = info->targets == 0 && info->classes <= 256
                  ? add_labels(crc, view.labels, view.rows)
                  : ls_crc32(crc, view.labels, view.rows * ls_dataset_target_bytes(data[s]));
        if (view.weights)
            crc = ls_crc32(crc, view.weights, view.rows * sizeof *view.weights);
    }
    return crc;
}

static void write_best(ls_json_writer *w, const ls_best *best)
{
    ls_json_open_object(w, "best");
    ls_json_put_string(w, "metric", ls_metric_names[best->metric]);
    ls_json_put_double(w, "value", best->value);
    ls_json_put_uint(w, "epoch", best->epoch);
    ls_json_put_uint(w, "steps", best->steps);
    ls_json_put_uint(w, "waited", best->waited);
    ls_json_put_uint(w, "kept", best->kept);
    ls_json_close(w);
}

static void write_position(ls_json_writer *w, const ls_position *at)
{
    ls_json_open_object(w, "position");
    ls_json_put_uint(w, "steps", at->steps);
    ls_json_put_uint(w, "epoch", at->epoch);
    ls_json_put_uint(w, "step", at->step);
    if (at->skipped > 0)
        ls_json_put_uint(w, "skipped", at->skipped);
    ls_json_put_bool(w, "recorded", at->recorded);
    ls_json_put_double(w, "loss", at->totals.loss);
    ls_json_put_double(w, "correct", at->totals.correct);
    ls_json_put_double(w, "rows", at->totals.rows);
    if (at->totals.weight != at->totals.rows)
        ls_json_put_double(w, "weight", at->totals.weight);
    ls_json_put_double(w, "seconds", at->totals.seconds);
    if (at->lr > 0)
        ls_json_put_double(w, "lr", at->lr);
    ls_json_put_double(w, "trained_s", at->trained_s);
    if (at->least_epoch > 0) {
        ls_json_put_double(w, "least_loss", at->least_loss);
        ls_json_put_uint(w, "least_epoch", at->least_epoch);
    }
    if (at->best.epoch > 0)
        write_best(w, &at->best);
    else
        ls_json_put_null(w, "best"); /* nothing was evaluated yet */
    ls_json_close(w);
}

static void write_hash(ls_json_writer *w, const uint8_t hash[LS_SHA256_BYTES])
{
    char hex[LS_SHA256_HEX];
    ls_sha256_hex(hex, hash);
    ls_json_put_string(w, NULL, hex);
}

/* Writes the hash of the first weights, and then the entries; and the hash of the file of the first
 * weights, if there was one. */
static void write_chain(ls_json_writer *w, const ls_chain *chain, uint32_t count)
{
    ls_json_open_array(w, "chain");
    write_hash(w, chain->first);
    for (uint32_t i = 0; i < count; i++)
        write_hash(w, chain->state[i]);
    ls_json_close(w);
    if (chain->file[0])
        ls_json_put_string(w, "init_sha256", chain->file);
}

void ls_standing_write(ls_json_writer *w, const ls_standing *standing)
{
    write_position(w, &standing->position);
    ls_json_put_int(w, "epochs", standing->epochs);
    ls_json_put_double(w, "test_loss", standing->test_loss);
    ls_json_put_double(w, "test_accuracy", standing->test_accuracy);
    ls_json_put_string(w, "metric", ls_metric_names[standing->metric]);
    ls_json_put_double(w, "test_metric", standing->test_metric);
}

void ls_state_write(ls_json_writer *w, const ls_state *state, const ls_config *config)
{
    ls_json_open_object(w, NULL);
    ls_json_put_int(w, "schema", LS_STATE_SCHEMA);
    ls_standing_write(w, &state->standing);
    ls_json_open_object(w, "metrics");
    ls_json_put_uint(w, "bytes", state->metrics.bytes);
    ls_json_put_uint(w, "lines", state->metrics.sums.lines);
    ls_json_put_uint(w, "sum", state->metrics.sums.sum);
    ls_json_put_uint(w, "moment", state->metrics.sums.moment);
    ls_json_close(w);
    ls_json_put_int(w, "shards", state->shards);
    ls_json_put_string(w, "instruction_set", state->isa);
    ls_json_put_string(w, "library", state->library);
    ls_json_put_uint(w, "train_rows", state->train_rows);
    ls_json_put_uint(w, "test_rows", state->test_rows);
    ls_json_put_uint(w, "data_crc32", state->data_crc32);
    ls_config_write_recipe(w, "recipe", config, state->shards);
    if (state->chain) {
        write_chain(w, state->chain, state->chained);
        ls_config_write_of_evaluations(w, "evaluations", config);
    }
    ls_json_close(w);
}

#define EXACT 9007199254740992.0 /* 2⁵³ */

static uint64_t read_count(ls_fields *f, const char *key, double most)
{
    double value = 0;
    if (ls_field_double(f, key, 0, most, NULL, &value) && value != floor(value))
        ls_fields_fail(f, ls_field_any(f, key), "%s: expected an integer, found %g", key, value);
    return (uint64_t)value;
}

/* Reads a number, or NaN if the JSON value is null (there is no number). */
static double read_optional(ls_fields *f, const char *key)
{
    double value = NAN;
    if (!cJSON_IsNull(ls_field_any(f, key)))
        ls_field_double(f, key, -INFINITY, INFINITY, NULL, &value);
    return value;
}

static const cJSON *read_object(ls_fields *f, const char *key)
{
    const cJSON *node = ls_field_any(f, key);
    if (!cJSON_IsObject(node))
        ls_fields_fail(f, node, "%s: expected an object {…}, found %s", key, ls_json_kind(node));
    return node;
}

/* Reads the name of a metric whose value is a number. */
static ls_metric read_metric(ls_fields *f)
{
    int m;
    if (ls_field_choice(f, "metric", ls_metric_names, NULL, &m) && m == LS_METRIC_CONFUSION)
        ls_fields_fail(f, ls_field_any(f, "metric"), "metric: expected one that is a number");
    return (ls_metric)m;
}

static int read_best(ls_best *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    ls_fields f;
    ls_fields_begin(&f, doc, node, "best", err);
    out->metric = read_metric(&f);
    ls_field_double(&f, "value", -INFINITY, INFINITY, NULL, &out->value);
    out->epoch = (uint32_t)read_count(&f, "epoch", 1e6);
    out->steps = read_count(&f, "steps", EXACT);
    out->waited = (uint32_t)read_count(&f, "waited", 1e6);
    if (ls_field_any(&f, "kept")) /* this key was added later */
        out->kept = read_count(&f, "kept", EXACT);
    return ls_fields_end(&f);
}

static int read_position(ls_position *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    int recorded;
    ls_fields f;
    ls_fields_begin(&f, doc, node, "position", err);
    out->steps = read_count(&f, "steps", EXACT);
    if (ls_field_any(&f, "skipped")) /* this key was added later */
        out->skipped = read_count(&f, "skipped", EXACT);
    out->epoch = (uint32_t)read_count(&f, "epoch", 1e6);
    out->step = (uint32_t)read_count(&f, "step", UINT32_MAX);
    ls_field_bool(&f, "recorded", NULL, &recorded);
    out->recorded = recorded;
    ls_field_double(&f, "loss", -INFINITY, INFINITY, NULL, &out->totals.loss);
    out->totals.correct = (double)read_count(&f, "correct", EXACT);
    out->totals.rows = (double)read_count(&f, "rows", EXACT);
    out->totals.weight = out->totals.rows;
    if (ls_field_any(&f, "weight")) /* this key was added later */
        ls_field_double(&f, "weight", 0, INFINITY, NULL, &out->totals.weight);
    ls_field_double(&f, "seconds", 0, INFINITY, NULL, &out->totals.seconds);
    if (ls_field_any(&f, "lr")) /* this key was added later */
        ls_field_double(&f, "lr", 0, 1e6, NULL, &out->lr);
    ls_field_double(&f, "trained_s", 0, INFINITY, NULL, &out->trained_s);
    if (ls_field_any(&f, "least_epoch")) { /* these keys were added later */
        out->least_epoch = (uint32_t)read_count(&f, "least_epoch", 1e6);
        ls_field_double(&f, "least_loss", -INFINITY, INFINITY, NULL, &out->least_loss);
    }
    const cJSON *best = ls_field_any(&f, "best");
    int status = ls_fields_end(&f);
    return status || !best || cJSON_IsNull(best) ? status : read_best(&out->best, doc, best, err);
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

/* Reads a standing except its position. */
static void read_standing(ls_standing *out, ls_fields *f)
{
    long epochs;
    ls_field_int(f, "epochs", 0, 1000000, NULL, &epochs);
    out->epochs = (int)epochs;
    out->test_loss = read_optional(f, "test_loss");
    out->test_accuracy = read_optional(f, "test_accuracy");
    out->metric = LS_METRIC_CONFUSION;
    if (ls_field_any(f, "metric")) { /* this key was added later */
        out->metric = read_metric(f);
        out->test_metric = read_optional(f, "test_metric");
    }
}

static int read_all(ls_state *out, const ls_json *doc, ls_error *err)
{
    static const char *const none = "";
    long schema, shards;
    ls_fields f;
    ls_fields_begin(&f, doc, ls_json_root(doc), "the state", err);
    ls_field_version(&f, "schema", LS_STATE_SCHEMA, LS_STATE_SCHEMA, &schema);
    const cJSON *position = read_object(&f, "position");
    read_standing(&out->standing, &f);
    const cJSON *metrics = read_object(&f, "metrics");
    ls_field_int(&f, "shards", 1, LS_SHARDS_MAX, NULL, &shards);
    ls_field_text(&f, "instruction_set", NULL, &out->isa);
    ls_field_text(&f, "library", NULL, &out->library);
    out->train_rows = read_count(&f, "train_rows", UINT32_MAX);
    out->test_rows = read_count(&f, "test_rows", UINT32_MAX);
    out->data_crc32 = (uint32_t)read_count(&f, "data_crc32", UINT32_MAX);
    out->recipe = read_object(&f, "recipe");
    out->shards = (int)shards;
    out->entries = ls_field_any(&f, "chain"); /* added later, as the next two */
    ls_field_text(&f, "init_sha256", &none, &out->file);
    out->evaluations = ls_field_any(&f, "evaluations");
    int status = ls_fields_end(&f);
    status = status ? status : read_position(&out->standing.position, doc, position, err);
    return status ? status : read_metrics(&out->metrics, doc, metrics, err);
}

int ls_chain_read(ls_chain *out, const ls_json *doc, const ls_state *state, ls_error *err)
{
    const cJSON *list = state->entries;
    int hashes = 0;
    if (!cJSON_IsArray(list) || !list->child)
        return ls_json_fail_value(err, doc, list, LS_EDATA, "chain: expected an array of hashes");
    for (const cJSON *e = list->child; e; e = e->next) {
        if (hashes > LS_CHAIN_MOST || !cJSON_IsString(e) ||
            !ls_sha256_from_hex(hashes == 0 ? out->first : out->state[hashes - 1], e->valuestring))
            return ls_json_fail_value(err, doc, e, LS_EDATA,
                                      "chain: expected at most %d SHA-256 of 64 hexadecimal digits",
                                      LS_CHAIN_MOST + 1);
        hashes++;
    }
    out->count = (uint32_t)hashes - 1;
    snprintf(out->file, sizeof out->file, "%s", state->file);
    return LS_OK;
}

int ls_state_read(ls_state *out, const ls_json *doc, ls_error *err)
{
    ls_error cause;
    memset(out, 0, sizeof *out); /* members that an older file lacks stay 0 */
    int status = read_all(out, doc, &cause);
    if (status == LS_OK)
        return LS_OK;
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "schema");
    const bool newer = cJSON_IsNumber(schema) && schema->valuedouble > LS_STATE_SCHEMA;
    return ls_fail(err, LS_EDATA, "%.400s%s", cause.text, newer ? "" : "; use another checkpoint");
}
