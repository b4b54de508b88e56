/* SPDX-License-Identifier: MIT */
/* Checks what a claim says of recipe, data, weights, positions and checkpoints, before anything is
 * replayed (verification.h). */
#include "train/verification.h"

#include "base/error.h"
#include "base/host.h"
#include "records/record.h"
#include "train/coordinator.h"

#include <lockstep/version.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int check_library(const verification *v, ls_error *err)
{
    const ls_summary *mine = &v->trainer->reported.summary;
    const char *library = v->claim.library, *device = v->claim.device;
    if (library && strcmp(library, mine->library) != 0)
        return ls_fail(
            err, LS_EDATA,
            "the run was made with \"%.150s\"%s%.80s; a verifier needs this version, and "
            "\"%.80s\" has \"%.150s\"",
            library, device ? " on " : "", device ? device : "", mine->devices, mine->library);
    if (device && strcmp(device, mine->isa[0] ? mine->device_model : "") != 0)
        return ls_fail(
            err, LS_EDATA,
            "the run was made on \"%.150s\", and its bits depend on the device; verify it "
            "on this model, not on %.150s",
            device, mine->device_model);
    return LS_OK;
}

/* Fails if a later version of the program wrote the receipt, and a member that this version does
 * not know: whether it is right cannot be said here. */
static int check_version(const verification *v, ls_error *err)
{
    const char *program = cJSON_GetStringValue(member(ls_verify_receipt(v), "program"));
    char place[LS_JSON_PLACE] = "";
    unsigned theirs[3] = {0}, mine[3] = {0};
    if (!program || !ls_verify_unknown(place, ls_verify_receipt(v)) ||
        sscanf(program, "%5u.%5u.%5u", &theirs[0], &theirs[1], &theirs[2]) != 3 ||
        sscanf(ls_version(), "%5u.%5u.%5u", &mine[0], &mine[1], &mine[2]) != 3)
        return LS_OK;
    for (int i = 0; i < 3; i++) {
        if (theirs[i] < mine[i])
            return LS_OK;
        if (theirs[i] > mine[i])
            return ls_fail(err, LS_EUNSUPPORTED,
                           "%.300s: Lockstep %u.%u.%u wrote it, and %s, which this version (%s) "
                           "does not know; verify it with that version or a later one",
                           v->claim.receipt, theirs[0], theirs[1], theirs[2], place, ls_version());
    }
    return LS_OK;
}

/* Checks that the entries are linked, and at the positions that follow from the recipe. */
static void check_positions(verification *v)
{
    const ls_claim *c = &v->claim;
    char place[LS_JSON_PLACE];
    uint32_t i = 0;
    if (c->wrong[0])
        ls_verify_receipt_differs(v, c->wrong, "does not follow from the entries");
    for (const cJSON *e = member(ls_verify_receipt(v), "chain")->child; e; e = e->next) {
        const double steps = member(e, "steps")->valuedouble;
        snprintf(place, sizeof place, "receipt.json: chain[%u].steps", (unsigned)i);
        if (steps != (double)ls_verify_position(v, ++i))
            ls_verify_differs(v, place, "%s: the entry is after %.0f steps, not after %llu", place,
                              steps, (unsigned long long)ls_verify_position(v, i));
    }
    const bool at_entry = i > 0 && c->end == ls_verify_position(v, c->chain.count);
    if (at_entry && memcmp(c->end_state, c->chain.state[i - 1], sizeof c->end_state) != 0)
        ls_verify_receipt_differs(v, "end.state",
                                  "is not that of the last entry, and the run ends there");
    if (ls_chain_count(c->end, v->batch_size) != c->chain.count)
        ls_verify_differs(v, "receipt.json: chain",
                          "receipt.json: a run of %llu steps does not have %u "
                          "entries in its chain",
                          (unsigned long long)c->end, (unsigned)c->chain.count);
}

/* Returns whether the first record of a file is one with which a run's records can begin: that of
 * the start, with the config, or that of a resume if another program has moved earlier records. */
static bool begins_run(const cJSON *record)
{
    const char *type = cJSON_GetStringValue(member(record, "type"));
    if (type && strcmp(type, ls_record_names[LS_RECORD_RUN_START]) == 0)
        return cJSON_IsObject(member(record, "config"));
    return type && strcmp(type, ls_record_names[LS_RECORD_RESUME]) == 0;
}

/* Returns the object of a receipt that has the row's key, or should have it. */
static const cJSON *object_of(const cJSON *part, const ls_config_key *row)
{
    return *row->object ? member(part, row->object) : part;
}

/* Checks the keys that are members of both "recipe" and "evaluations", such as the number of epochs
 * with a schedule that depends on it. A version that knows such a key writes it twice. */
static void check_members_of_both(verification *v)
{
    const cJSON *receipt = ls_verify_receipt(v);
    char place[LS_JSON_PLACE];
    for (const ls_config_key *row = ls_config_keys; receipt && row->key; row++) {
        if (!row->judges || !ls_config_key_is_of_recipe(&v->trainer->config, row))
            continue;
        const cJSON *here = member(object_of(member(receipt, "recipe"), row), row->key),
                    *there = member(object_of(member(receipt, "evaluations"), row), row->key);
        snprintf(place, sizeof place, "%s.%s%s%s", here ? "evaluations" : "recipe", row->object,
                 *row->object ? "." : "", row->key);
        if (!here != !there)
            ls_verify_receipt_differs(v, place,
                                      here ? "is missing, and \"recipe\" has it"
                                           : "is missing, and \"evaluations\" has it; the "
                                             "learning rates of this recipe depend on it");
        else if (here && !cJSON_Compare(here, there, true))
            ls_verify_receipt_differs(v, place, "is another one than that of \"recipe\"");
    }
}

/* Fails if an assignment of the verifier has changed one of the receipt's keys that decide about
 * evaluations and the end: the replay would differ, and not through the prover. */
static int check_evaluations(const verification *v, const cJSON *theirs, ls_error *err)
{
    ls_json_writer w;
    char here[LS_JSON_SHOWN], there[LS_JSON_SHOWN];
    ls_json_writer_init(&w, 0, v->host);
    ls_config_write_of_evaluations(&w, NULL, &v->trainer->config);
    cJSON *all = ls_json_written_tree(&w, "the keys of the evaluations", err);
    int status = all ? LS_OK : LS_ENOMEM;
    for (const cJSON *mine = all ? all->child : NULL; mine && status == LS_OK; mine = mine->next) {
        ls_json_difference found = {"", NULL, NULL};
        snprintf(found.place, sizeof found.place, "%.60s", mine->string);
        if (!member(theirs, mine->string) ||
            !ls_json_differs(&found, mine, member(theirs, mine->string)))
            continue;
        ls_json_show(here, found.a, v->host);
        ls_json_show(there, found.b, v->host);
        status = ls_fail(err, LS_EINVAL,
                         "verify: an assignment changes %s, which is %s in the run, to %s; only "
                         "where the data are and the verifier's own devices can be set",
                         found.place, there, here);
    }
    cJSON_Delete(all);
    ls_json_writer_fini(&w);
    return status;
}

/* Compares the recipe of the replay, which is that of the claim unless the caller's assignments
 * change it, with those of the run's config and first record. */
static int check_recipes(verification *v, ls_error *err)
{
    const ls_claim *c = &v->claim;
    const ls_json *claim = c->doc ? c->doc : c->own;
    const cJSON *start = c->start ? ls_json_root(c->start) : NULL;
    ls_error why;
    check_members_of_both(v);
    if (!v->verdict.holds)
        return LS_OK;
    if (ls_recipes_differ(&why, v->trainer, claim, member(ls_json_root(claim), "recipe")))
        return ls_fail(err, LS_EINVAL, "verify: an assignment changes the run's recipe: %.500s",
                       why.text);
    int status =
        c->doc ? check_evaluations(v, member(ls_json_root(claim), "evaluations"), err) : LS_OK;
    if (status)
        return status;
    if (c->own &&
        ls_recipes_differ(&why, v->trainer, c->own, member(ls_json_root(c->own), "recipe")))
        ls_verify_differs(v, "config.json",
                          "config.json does not have the recipe of the receipt: %.500s", why.text);
    if (start && !begins_run(start))
        ls_verify_differs(
            v, "metrics.jsonl:1",
            "metrics.jsonl:1: expected the record with which a run begins, with its config");
    if (member(start, "config") &&
        ls_recipes_differ(&why, v->trainer, c->start, member(start, "config")))
        ls_verify_differs(v, "metrics.jsonl:1",
                          "metrics.jsonl:1: the first record has another recipe: %.500s", why.text);
    return LS_OK;
}

/* Returns the path of the file or the folder of test rows or of training rows; "": that of a
 * public dataset, which was searched for. */
static const char *path_of(const ls_config *c, bool test)
{
    const char *own = test ? c->data_keys.test_path : NULL;
    return own ? own : c->data_path ? c->data_path : "";
}

/* Notes that the verifier's data are not those of the receipt. */
static void note_data(verification *v, const ls_json_difference *found, const cJSON *mine,
                      const cJSON *theirs)
{
    const ls_config *c = &v->trainer->config;
    const bool test = strncmp(found->place, "data.test", sizeof "data.test" - 1) == 0,
               of_file = strstr(found->place, "file_sha256") != NULL;
    const char *path = path_of(c, test), *subset = test ? "test" : "training";
    const cJSON *rows = member(member(mine, subset), "rows");
    const bool same = cJSON_Compare(member(member(mine, subset), "rows_sha256"),
                                    member(member(theirs, subset), "rows_sha256"), true);
    char why[700], here[LS_JSON_SHOWN], there[LS_JSON_SHOWN];
    ls_json_show(here, found->a, v->host);
    ls_json_show(there, found->b, v->host);
    if (test && !c->data_keys.test_path && rows && rows->valuedouble == 0)
        snprintf(why, sizeof why,
                 "is %s; the verifier's data have no test rows; if these have a file of their own, "
                 "name it: --set data.test_path=FILE",
                 there);
    else
        snprintf(why, sizeof why, "is %s; the verifier's data have %s%s%.300s%s%s", there, here,
                 path[0] ? " (" : "", path, path[0] ? ")" : "",
                 !of_file ? ""
                 : same   ? ": the same rows in another file"
                          : ": other rows");
    ls_verify_receipt_differs(v, found->place, why);
}

static int check_data(verification *v, ls_error *err)
{
    ls_json_difference found = {"data", NULL, NULL};
    const cJSON *theirs = member(ls_verify_receipt(v), "data");
    ls_json_writer w;
    int status = ls_hash_rows(&v->rows, v->trainer, err);
    if (status)
        return status;
    ls_json_writer_init(&w, 0, v->host);
    ls_put_data(&w, NULL, v->trainer, &v->rows);
    cJSON *mine = ls_json_written_tree(&w, "the hashes of the data", err);
    status = mine ? LS_OK : LS_ENOMEM;
    ls_verify_leave_out(mine, theirs, found.place);
    if (mine && ls_json_differs(&found, mine, theirs))
        note_data(v, &found, mine, theirs);
    cJSON_Delete(mine);
    ls_json_writer_fini(&w);
    return status;
}

static void check_first_weights(verification *v)
{
    const ls_chain *mine = &v->trainer->chain;
    const char *file = cJSON_GetStringValue(member(ls_verify_receipt(v), "init_file_sha256"));
    if (strcmp(file ? file : "", mine->file) != 0)
        ls_verify_receipt_differs(
            v, "init_file_sha256",
            "is not the hash of the file of the first weights (init.weights)");
    if (memcmp(mine->first, v->claim.chain.first, LS_SHA256_BYTES) != 0)
        ls_verify_receipt_differs(v, "first_weights",
                                  "is not the hash of the weights with which the recipe "
                                  "begins");
}

/* Notes that the checkpoint at the end of segment number `i` is not that of the receipt. */
static void note_checkpoint(verification *v, uint32_t i, const uint8_t *wanted)
{
    if (v->verdict.holds) {
        v->verdict.segment = (int)i;
        v->verdict.from = ls_verify_position(v, i);
        v->verdict.to = ls_verify_segment_end(v, i);
    }
    ls_verify_checkpoint_differs(v, ls_verify_segment_end(v, i), " at its end", wanted);
}

/* Hashes the checkpoints that the run has at the positions of the chain. */
static void check_checkpoints(verification *v)
{
    char path[LS_PATH_BYTES], name[LS_CHECKPOINT_NAME], place[LS_CHECKPOINT_NAME + 20];
    uint8_t state[LS_SHA256_BYTES];
    ls_error why;
    for (uint32_t i = 0; v->claim.run[0] && i <= v->claim.chain.count; i++) {
        const uint64_t steps = ls_verify_segment_end(v, i);
        const uint8_t *want =
            i < v->claim.chain.count ? v->claim.chain.state[i] : v->claim.end_state;
        ls_verify_checkpoint_path(path, name, v, steps);
        snprintf(place, sizeof place, "checkpoints/%s", name);
        if (access(path, F_OK) != 0)
            continue;
        if (!ls_verify_read_checkpoint(state, v, steps, path, &why))
            ls_verify_differs(v, place, "the checkpoint %s cannot be used: %.400s", name, why.text);
        else if (memcmp(state, want, sizeof state) != 0)
            note_checkpoint(v, i, want);
    }
}

static int allocate_values(verification *v, ls_error *err)
{
    const size_t floats = v->trainer->model->floats;
    for (int k = 0; k <= ls_verify_states(v); k++) {
        v->values[k] = ls_alloc_array(v->host, floats, sizeof(float));
        if (!v->values[k])
            return ls_fail(err, LS_ENOMEM, "out of memory for the tensors of a checkpoint");
    }
    return LS_OK;
}

/* Returns whether the run's recipe depends on the number of epochs, so that no resume has changed
 * it. */
static bool epochs_are_of_recipe(const ls_config *c)
{
    for (const ls_config_key *row = ls_config_keys; row->key; row++)
        if (!*row->object && strcmp(row->key, "epochs") == 0)
            return ls_config_key_is_of_recipe(c, row);
    return false;
}

/* Fails if a run without a receipt has not finished: its weights are then those of no epoch's end,
 * or a resume has changed its epochs. More steps than a run of this recipe has are a difference. */
static int check_finished(verification *v, ls_error *err)
{
    const ls_config *c = &v->trainer->config;
    const uint64_t all = (uint64_t)c->epochs * v->epoch_steps;
    if (v->claim.doc || v->claim.end == all ||
        (c->patience > 0 && v->claim.end < all && v->claim.end % v->epoch_steps == 0))
        return LS_OK;
    if (v->claim.end > all && epochs_are_of_recipe(c)) {
        ls_verify_differs(v, "weights.safetensors",
                          "%.300s has the weights after step %llu, and a run with this config ends "
                          "after step %llu",
                          v->claim.weights, (unsigned long long)v->claim.end,
                          (unsigned long long)all);
        return LS_OK;
    }
    const bool best = v->claim.best && v->claim.end < all;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "%.300s: has the weights after step %llu, %sand a run with this config ends "
                   "after step %llu; %s, or set epochs if a resume has changed them",
                   v->claim.weights, (unsigned long long)v->claim.end,
                   best ? "which were the best ones (checkpoint.final), " : "",
                   (unsigned long long)all,
                   best ? "export the last checkpoint, and name that file: --weights "
                          "(options.weights)"
                        : "resume the run to its end");
}

int ls_verify_check(verification *v, ls_error *err)
{
    int status = v->claim.doc ? check_version(v, err) : LS_OK;
    if (status == LS_OK)
        status = ls_verify_open(v, err);
    if (status == LS_OK)
        status = check_library(v, err);
    if (status == LS_OK)
        status = allocate_values(v, err);
    if (status)
        return status;
    v->batch_size = (uint32_t)v->trainer->config.batch_size;
    v->epoch_steps = v->trainer->coordination->steps;
    status = check_recipes(v, err);
    if (status == LS_OK && v->verdict.holds)
        status = check_finished(v, err);
    if (status || !v->claim.doc)
        return status;
    check_positions(v);
    if (v->verdict.holds)
        status = check_data(v, err);
    check_first_weights(v);
    if (status == LS_OK && v->verdict.holds)
        status = ls_verify_weights(v, err);
    if (status == LS_OK && v->verdict.holds)
        check_checkpoints(v);
    return status;
}
