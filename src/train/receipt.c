/* SPDX-License-Identifier: MIT */
/* Writes the receipt of a run (receipt.h). */
#include "train/receipt.h"

#include "base/host.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "store/durable.h"
#include "train/chaining.h"
#include "train/coordinator.h"

#include <lockstep/version.h>
#include <math.h>
#include <string.h>

const char *ls_unverifiable_config(const ls_config *c)
{
    if (ls_dataset_form_of(c->data_name) == LS_DATA_OF_CALLER)
        return "its rows come from the calling program, and no verifier has them";
    if (c->shards == 0)
        return "with shards \"devices\" its bits depend on the number of devices";
    if (strcmp(c->allreduce, "ordered") != 0)
        return "only allreduce \"ordered\" is verified, because a verifier may not have "
               "another one";
    if (c->checkpoint.final == LS_FINAL_BEST)
        return "with checkpoint.final \"best\" its file does not have the last weights, which a "
               "replay ends with";
    return NULL;
}

const char *ls_unverifiable(const struct ls_trainer *t)
{
    const char *why = ls_unverifiable_config(&t->config);
    if (why)
        return why;
    if (ls_dataset_rows(t->data[LS_TRAIN]) == 0 || t->driven)
        return "its rows or weights come from the calling program, and no verifier has them";
    if (t->position.lr > 0)
        return "the calling program has set a learning rate that is not in the config";
    return t->dir.path || !ls_members_first(t) ? NULL : "it has no run_dir in which files are kept";
}

void ls_tell_receipt(const struct ls_trainer *t)
{
    const ls_config *c = &t->config;
    const char *why = ls_unverifiable(t);
    if (!c->receipt || !ls_members_first(t))
        return;
    if (why) {
        ls_log(t->host, LS_LOG_WARNING, "receipt: this run cannot be verified: %s", why);
        return;
    }
    const uint64_t steps = (uint64_t)t->coordination->steps * (uint64_t)c->epochs;
    const unsigned count = ls_chain_count(steps, (uint32_t)c->batch_size);
    const double each =
        (double)t->model->floats * sizeof(float) * (1 + ls_optimizer_states(&c->optimizer)) * 1e-6;
    ls_log(t->host, LS_LOG_INFO,
           "receipt: %u checkpoints of %.3g MB are kept for a verifier, %.3g MB in all; replaying "
           "everything takes as long as training",
           count, each, each * count);
}

/* ---- the file ------------------------------------------------------------------------------- */

static void put_hash(ls_json_writer *w, const char *key, const uint8_t hash[LS_SHA256_BYTES])
{
    char hex[LS_SHA256_HEX];
    ls_sha256_hex(hex, hash);
    ls_json_put_string(w, key, hex);
}

/* Writes the SHA-256 of a file that was read, unless there was none. */
static void put_file(ls_json_writer *w, const char *key, const char *hex)
{
    if (hex[0])
        ls_json_put_string(w, key, hex);
}

int ls_hash_rows(ls_rows_hashes *out, const struct ls_trainer *t, ls_error *err)
{
    int status = LS_OK;
    for (int s = 0; s < LS_SUBSETS && status == LS_OK; s++)
        status = ls_rows_sha256(out->subset[s], t->data[s], t->host, err);
    return status;
}

void ls_put_data(ls_json_writer *w, const char *key, const struct ls_trainer *t,
                 const ls_rows_hashes *rows)
{
    static const char *const names[LS_SUBSETS] = {[LS_TRAIN] = "training", [LS_TEST] = "test"};
    ls_json_open_object(w, key);
    for (int s = 0; s < LS_SUBSETS; s++) {
        const ls_dataset_info *info = ls_dataset_describe(t->data[s]);
        ls_json_open_object(w, names[s]);
        put_file(w, "file_sha256", info->images_sha256);
        put_file(w, "labels_file_sha256", info->labels_sha256);
        ls_json_put_uint(w, "rows", info->rows);
        put_hash(w, "rows_sha256", rows->subset[s]);
        ls_json_close(w);
    }
    ls_json_close(w);
}

static void put_entry(ls_json_writer *w, const char *key, uint64_t steps, const uint8_t *state,
                      const uint8_t *link)
{
    ls_json_open_object(w, key);
    ls_json_put_uint(w, "steps", steps);
    put_hash(w, "state", state);
    put_hash(w, "link", link);
    ls_json_close(w);
}

/* Writes the chain, and the entry of the run's end, which is linked like the others. */
static int put_chain(ls_json_writer *w, const struct ls_trainer *t, ls_error *err)
{
    const uint32_t batch = (uint32_t)t->config.batch_size;
    uint8_t link[LS_SHA256_BYTES], state[LS_SHA256_BYTES];
    uint64_t at = 0;
    int status = ls_hash_state(state, t, err);
    put_hash(w, "first_weights", t->chain.first);
    ls_chain_link(link, &t->chain, 0, batch);
    ls_json_open_array(w, "chain");
    for (uint32_t i = 0; i < t->chain.count; i++) {
        at = ls_chain_next(at, batch);
        ls_chain_follow(link, link, at, t->chain.state[i]);
        put_entry(w, NULL, at, t->chain.state[i], link);
    }
    ls_json_close(w);
    ls_chain_follow(link, link, t->position.steps, state);
    put_entry(w, "end", t->position.steps, state, link);
    return status;
}

/* Writes the results of the last evaluation: the loss, the main metric, and each metric that has a
 * value. */
static void put_evaluation(ls_json_writer *w, const struct ls_trainer *t)
{
    const ls_result *r = &t->reported.result;
    const ls_measured *measured = &t->reported.measured;
    ls_json_open_object(w, "evaluation");
    ls_json_put_double(w, "test_loss", r->test_loss);
    ls_json_put_double(w, "test_accuracy", t->reported.accuracy);
    ls_json_put_string(w, "metric", r->metric);
    ls_json_put_double(w, "value", r->metric_value);
    bool opened = false;
    for (int m = 0; m < LS_METRICS; m++) {
        if (m == LS_METRIC_CONFUSION || isnan(measured->value[m]))
            continue;
        if (!opened)
            ls_json_open_object(w, "metrics");
        opened = true;
        ls_json_put_double(w, ls_metric_names[m], measured->value[m]);
    }
    if (opened)
        ls_json_close(w);
    ls_json_close(w);
}

/* Writes the hashes of the weights, and of the file in which they are. */
static int put_weights(ls_json_writer *w, const struct ls_trainer *t, ls_error *err)
{
    char hex[LS_SHA256_HEX];
    const float *weights = ls_engine_weights(t->engine)->canonical;
    ls_json_put_string(w, "weights_sha256", t->reported.result.weights_sha256);
    int status =
        ls_safetensors_sha256(hex, t->model, weights, t->position.steps, true, t->host, err);
    if (status == LS_OK)
        ls_json_put_string(w, "weights_file_sha256", hex);
    return status;
}

int ls_compose_receipt(ls_json_writer *w, const struct ls_trainer *t, const ls_rows_hashes *rows,
                       ls_error *err)
{
    const ls_summary *summary = &t->reported.summary;
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "format", LS_RECEIPT_FORMAT);
    ls_json_put_string(w, "program", ls_version());
    ls_json_put_string(w, "library", summary->library);
    if (summary->isa[0]) /* the bits depend on the kind of device */
        ls_json_put_string(w, "device", summary->device_model);
    ls_config_write_recipe(w, "recipe", &t->config, ls_engine_shards(t->engine));
    ls_config_write_hashed(w, "hashed", &t->config, ls_engine_shards(t->engine), ls_config_keys);
    ls_config_write_of_evaluations(w, "evaluations", &t->config);
    ls_json_put_int(w, "epochs", t->reported.result.epochs);
    ls_put_data(w, "data", t, rows);
    put_file(w, "init_file_sha256", t->chain.file);
    int status = put_chain(w, t, err);
    put_evaluation(w, t);
    if (status == LS_OK)
        status = put_weights(w, t, err);
    ls_json_close(w);
    return status;
}

int ls_write_receipt(struct ls_trainer *t, ls_error *err)
{
    char path[LS_PATH_BYTES];
    ls_rows_hashes rows;
    ls_json_writer w;
    size_t length;
    if (!t->config.receipt || !t->dir.path || ls_unverifiable(t))
        return LS_OK;
    ls_json_writer_init(&w, 0, t->host);
    int status = ls_hash_rows(&rows, t, err);
    if (status == LS_OK)
        status = ls_compose_receipt(&w, t, &rows, err);
    if (status == LS_OK)
        ls_buffer_put(&w.out, "\n");
    const char *text = status == LS_OK ? ls_json_writer_text(&w, &length, err) : NULL;
    if (status == LS_OK)
        status = text ? ls_replace_file(ls_path_join(path, t->dir.path, "receipt.json"), text,
                                        length, t->host, err)
                      : LS_ENOMEM;
    ls_json_writer_fini(&w);
    return status;
}
