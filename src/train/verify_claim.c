/* SPDX-License-Identifier: MIT */
/* Reads what a verification is about: a receipt, or a run (verify.h). */
#include "train/verify.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "train/receipt.h"
#include "json/fields.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the receipt ---------------------------------------------------------------------------- */

static int fail_at(ls_error *err, const ls_claim *c, const cJSON *at, const char *expected)
{
    return ls_json_fail(err, c->doc, at, LS_EDATA, "expected %s; this is no receipt of a run",
                        expected);
}

static int get_hash(uint8_t out[LS_SHA256_BYTES], const ls_claim *c, const cJSON *object,
                    const char *key, ls_error *err)
{
    const char *hex = cJSON_GetStringValue(member(object, key));
    if (hex && ls_sha256_from_hex(out, hex))
        return LS_OK;
    return ls_json_fail(err, c->doc, member(object, key) ? member(object, key) : object, LS_EDATA,
                        "expected \"%s\": a SHA-256 of 64 hexadecimal digits; this is no receipt "
                        "of a run",
                        key);
}

#define STEPS_MOST 9007199254740992.0 /* 2⁵³ */

static int get_steps(uint64_t *out, const ls_claim *c, const cJSON *entry, ls_error *err)
{
    const cJSON *node = member(entry, "steps");
    if (!cJSON_IsNumber(node) || node->valuedouble < 0 || node->valuedouble > STEPS_MOST)
        return fail_at(err, c, node ? node : entry, "\"steps\": a number of steps");
    *out = (uint64_t)node->valuedouble;
    return LS_OK;
}

/* Reads an entry of the chain, and continues `link`. A link that does not follow is noted. */
static int get_entry(ls_claim *c, uint8_t state[LS_SHA256_BYTES], uint64_t *steps,
                     uint8_t link[LS_SHA256_BYTES], const cJSON *entry, const char *place,
                     ls_error *err)
{
    uint8_t found[LS_SHA256_BYTES];
    int status = get_steps(steps, c, entry, err);
    if (status == LS_OK)
        status = get_hash(state, c, entry, "state", err);
    if (status == LS_OK)
        status = get_hash(found, c, entry, "link", err);
    if (status)
        return status;
    ls_chain_follow(link, link, *steps, state);
    if (memcmp(link, found, sizeof found) != 0 && !c->wrong[0])
        snprintf(c->wrong, sizeof c->wrong, "%s", place);
    return LS_OK;
}

/* Reads the entries. Their positions are checked later, when the recipe is known. */
static int get_chain(ls_claim *c, const cJSON *root, ls_error *err)
{
    uint8_t link[LS_SHA256_BYTES];
    const cJSON *list = member(root, "chain"), *end = member(root, "end");
    char place[LS_JSON_PLACE];
    uint64_t steps;
    int status = get_hash(c->chain.first, c, root, "first_weights", err);
    if (status == LS_OK && !cJSON_IsArray(list))
        status = fail_at(err, c, list, "\"chain\": an array");
    ls_chain_link(link, &c->chain, 0, 1);
    for (const cJSON *e = status ? NULL : list->child; e && status == LS_OK; e = e->next) {
        if (c->chain.count == LS_CHAIN_MOST)
            return fail_at(err, c, e, "fewer entries");
        snprintf(place, sizeof place, "chain[%u].link", (unsigned)c->chain.count);
        status = get_entry(c, c->chain.state[c->chain.count++], &steps, link, e, place, err);
    }
    return status ? status : get_entry(c, c->end_state, &c->end, link, end, "end.link", err);
}

static int read_receipt(ls_claim *c, ls_error *err)
{
    int status = ls_json_read_file(&c->doc, c->receipt, c->host, err);
    if (status)
        return status;
    const cJSON *root = ls_json_root(c->doc);
    const char *format = cJSON_GetStringValue(member(root, "format"));
    unsigned version;
    if (format && sscanf(format, "lockstep receipt %u", &version) == 1 &&
        version > LS_RECEIPT_VERSION)
        return ls_json_fail_value(err, c->doc, member(root, "format"), LS_EDATA, LS_NEWER_VERSION,
                                  "receipt", (double)version, (long)LS_RECEIPT_VERSION);
    if (!format || strcmp(format, LS_RECEIPT_FORMAT) != 0)
        return fail_at(err, c, member(root, "format"), "\"format\": \"" LS_RECEIPT_FORMAT "\"");
    c->library = cJSON_GetStringValue(member(root, "library"));
    c->device = cJSON_GetStringValue(member(root, "device"));
    if (!cJSON_IsObject(member(root, "recipe")))
        return fail_at(err, c, member(root, "recipe"), "\"recipe\": an object");
    if (!cJSON_IsObject(member(root, "evaluations")))
        return fail_at(err, c, member(root, "evaluations"), "\"evaluations\": an object");
    return get_chain(c, root, err);
}

/* ---- the run's config ----------------------------------------------------------------------- */

/* Writes recipe and evaluations of the run's config.json in the form of a receipt, and where its
 * data are. The rest of the config, such as devices and packed pictures, is not used. */
static void write_own(ls_json_writer *w, const ls_config *config)
{
    ls_json_open_object(w, NULL);
    ls_config_write_recipe(w, "recipe", config, config->shards);
    ls_config_write_of_evaluations(w, "evaluations", config);
    ls_json_open_object(w, "places");
    ls_json_open_object(w, "data");
    if (config->data_path)
        ls_json_put_string(w, "path", config->data_path);
    if (config->data_keys.test_path)
        ls_json_put_string(w, "test_path", config->data_keys.test_path);
    ls_json_close(w);
    ls_json_close(w);
    ls_json_close(w);
}

/* Fails if no run with such a config can be verified. */
static int check_verifiable(const ls_config *config, ls_error *err)
{
    const char *why = ls_unverifiable_config(config);
    return why ? ls_fail(err, LS_EUNSUPPORTED, "this run (data.name %.100s) cannot be verified: %s",
                         config->data_name, why)
               : LS_OK;
}

static int read_own(ls_claim *c, ls_error *err)
{
    char path[LS_PATH_BYTES];
    const ls_trainer_options none = {.host = c->host};
    ls_config config;
    ls_json_writer w;
    size_t length;
    int status =
        ls_config_read_of_run(&config, ls_path_join(path, c->run, "config.json"), &none, err);
    if (status)
        return status;
    ls_config_find_beside(&config, path);
    ls_json_writer_init(&w, 0, c->host);
    write_own(&w, &config);
    const char *text = ls_json_writer_text(&w, &length, err);
    status = text ? ls_json_parse(&c->own, path, text, length, c->host, err) : LS_ENOMEM;
    c->best = config.checkpoint.final == LS_FINAL_BEST;
    ls_json_writer_fini(&w);
    ls_config_fini(&config);
    return status;
}

/* ---- the config of a replay ----------------------------------------------------------------- */

/* Adds copies of the members of `from` to `to`, also within objects that both have. */
static bool merge(cJSON *to, const cJSON *from)
{
    for (const cJSON *m = from ? from->child : NULL; m; m = m->next) {
        cJSON *there = cJSON_GetObjectItemCaseSensitive(to, m->string);
        if (cJSON_IsObject(there) && cJSON_IsObject(m)) {
            if (!merge(there, m))
                return false;
        } else if (!there && !cJSON_AddItemToObject(to, m->string, cJSON_Duplicate(m, true))) {
            return false;
        }
    }
    return true;
}

/* Writes the config of a replay: recipe and evaluations of the claim; where the data are, if
 * config.json says it. */
static int write_config(ls_claim *c, ls_error *err)
{
    const cJSON *root = ls_json_root(c->doc ? c->doc : c->own);
    cJSON *all = cJSON_Duplicate(member(root, "recipe"), true);
    ls_json_writer w;
    bool good = all && merge(all, member(root, "evaluations"));
    if (good && c->own)
        good = merge(all, member(ls_json_root(c->own), "places"));
    ls_json_writer_init(&w, 0, c->host);
    if (good)
        ls_json_put_node(&w, NULL, all);
    const char *text = good ? ls_json_writer_text(&w, NULL, NULL) : NULL;
    c->config = text ? ls_strdup(c->host, text) : NULL;
    ls_json_writer_fini(&w);
    cJSON_Delete(all);
    return c->config ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the config of a replay");
}

/* Checks that runs with such a config can be verified at all. */
static int check_config(const ls_claim *c, ls_error *err)
{
    ls_config config;
    const ls_json *doc = c->doc ? c->doc : c->own;
    const cJSON *root = ls_json_root(doc);
    int status = ls_config_read_recipe(&config, doc, member(root, "recipe"), c->host, err);
    if (status == LS_OK)
        status = check_verifiable(&config, err);
    ls_config_fini(&config);
    return status;
}

bool ls_recipes_differ(ls_error *why, const struct ls_trainer *t, const ls_json *doc,
                       const cJSON *recipe)
{
    ls_config theirs;
    ls_json_writer w[2];
    const int shards = ls_engine_shards(t->engine);
    int status = ls_config_read_recipe(&theirs, doc, recipe, t->host, why);
    if (status)
        return true;
    const ls_config *const config[2] = {&t->config, &theirs};
    const char *text[2];
    for (int i = 0; i < 2; i++) {
        ls_json_writer_init(&w[i], 0, t->host);
        ls_config_write_hashed(&w[i], NULL, config[i],
                               i == 1 && theirs.shards >= 0 ? theirs.shards : shards,
                               ls_config_keys);
        text[i] = ls_json_writer_text(&w[i], NULL, NULL);
    }
    const bool differ = !text[0] || !text[1] || strcmp(text[0], text[1]) != 0;
    if (differ && ls_config_same_recipe(&t->config, shards, &theirs, why) == LS_OK)
        ls_fail(why, LS_ECONFIG, "a key of the recipe differs");
    ls_json_writer_fini(&w[0]);
    ls_json_writer_fini(&w[1]);
    ls_config_fini(&theirs);
    return differ;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Returns whether there is anything at the path, such as a link that leads nowhere. A file that is
 * there must be read, or the verification fails: it does not count as absent. */
static bool exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

/* Finds the files of the claim. */
static int find_files(ls_claim *c, const ls_verify_options *o, ls_error *err)
{
    const char *slash = strrchr(o->run, '/');
    char folder[LS_PATH_BYTES];
    if (ls_is_directory(o->run)) {
        snprintf(c->run, sizeof c->run, "%.4000s", o->run);
        snprintf(folder, sizeof folder, "%.4000s", o->run);
        ls_path_join(c->receipt, c->run, "receipt.json");
        if (!exists(c->receipt))
            c->receipt[0] = '\0';
    } else if (exists(o->run)) {
        snprintf(c->receipt, sizeof c->receipt, "%.4000s", o->run);
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - o->run + 1) : 1,
                 slash ? o->run : ".");
    } else {
        return ls_fail(err, LS_ENOENT,
                       "%.300s: expected the directory of a run, or a receipt; there is no such "
                       "file",
                       o->run);
    }
    if (o->weights)
        snprintf(c->weights, sizeof c->weights, "%.4000s", o->weights);
    else if (!exists(ls_path_join(c->weights, folder, "weights.safetensors")))
        c->weights[0] = '\0';
    return LS_OK;
}

/* Reads a run without a receipt: the number of its steps is in the file of its weights. */
static int read_plain_run(ls_claim *c, const ls_verify_options *o, ls_error *err)
{
    if (!o->all)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: the run has no receipt, so no part of it can be verified alone; "
                       "replay all of it: --all (options.all)",
                       c->run);
    if (!c->weights[0])
        return ls_fail(err, LS_ENOENT, "%.300s: has neither a receipt nor weights", c->run);
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, c->weights, c->host, err);
    if (status == LS_OK)
        status = ls_safetensors_read_steps(&c->end, file, err);
    ls_tensor_file_close(file);
    if (status == LS_OK && c->end == LS_STEPS_UNKNOWN)
        status = ls_fail(err, LS_EDATA,
                         "%.300s: does not say after how many steps it was written; name "
                         "weights.safetensors, or a file that `export` has written",
                         c->weights);
    if (status)
        return status;
    const cJSON *start = c->start ? ls_json_root(c->start) : NULL;
    const char *isa = cJSON_GetStringValue(member(start, "instruction_set"));
    c->library = cJSON_GetStringValue(member(start, "library"));
    c->device = isa && isa[0] ? cJSON_GetStringValue(member(start, "device_model")) : NULL;
    return LS_OK;
}

/* Reads the first record and the config of the run. With a receipt the run needs neither. */
static int read_run(ls_claim *c, ls_error *err)
{
    ls_error why = {0};
    if (ls_run_first_record(&c->start, c->run, c->host, &why) == LS_ENOMEM)
        return ls_fail(err, LS_ENOMEM, "%s", why.text);
    int status = read_own(c, &why);
    if (status == LS_ENOENT && c->receipt[0])
        return LS_OK;
    /* It need not be a forgery: a later version has further keys. */
    if (status == LS_ECONFIG && c->receipt[0])
        return ls_fail(err, status,
                       "%.500s; if a later version made the run, verify it with that version, or "
                       "only its receipt and weights: `verify receipt.json --weights FILE`",
                       why.text);
    return status ? ls_fail(err, status, "%s", why.text) : LS_OK;
}

int ls_claim_read(ls_claim *c, const ls_verify_options *o, ls_error *err)
{
    memset(c, 0, sizeof *c);
    c->host = o->trainer->host;
    int status = find_files(c, o, err);
    if (status == LS_OK && c->run[0])
        status = read_run(c, err);
    if (status == LS_OK)
        status = c->receipt[0] ? read_receipt(c, err) : read_plain_run(c, o, err);
    if (status == LS_OK)
        status = check_config(c, err);
    return status ? status : write_config(c, err);
}

void ls_claim_fini(ls_claim *c)
{
    ls_json_destroy(c->doc);
    ls_json_destroy(c->own);
    ls_json_destroy(c->start);
    ls_free(c->host, c->config);
}
