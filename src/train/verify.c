/* Verifies a run by its receipt (verify.h). */
#include "train/verify.h"

#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "train/chaining.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { OWN_SETS = 4 }; /* number of assignments that a replay adds to the caller's */

/* A receipt as read. */
typedef struct receipt {
    ls_json *doc;
    ls_chain chain; /* the entries, without that of the end */
    uint64_t end;   /* number of steps of the run */
    uint8_t end_state[LS_SHA256_BYTES], weights[LS_SHA256_BYTES];
    uint8_t rows[LS_SUBSETS][LS_SHA256_BYTES];
    double test_loss;
} receipt;

typedef struct verification {
    const ls_verify_options *options;
    const ls_host *host;
    ls_verdict *verdict;
    receipt *receipt;
    ls_trainer *trainer; /* of the replay in progress */
    uint32_t batch_size;
    uint32_t target; /* the replay ends when the chain has more than so many entries */
} verification;

static void differs(verification *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void differs(verification *v, const char *format, ...)
{
    va_list args;
    if (!v->verdict->holds)
        return; /* the first difference counts */
    va_start(args, format);
    vsnprintf(v->verdict->text, sizeof v->verdict->text, format, args);
    va_end(args);
    v->verdict->holds = false;
}

/* ---- reading the receipt -------------------------------------------------------------------- */

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool get_hash(uint8_t out[LS_SHA256_BYTES], const cJSON *object, const char *key)
{
    const cJSON *node = member(object, key);
    return cJSON_IsString(node) && ls_sha256_from_hex(out, node->valuestring);
}

static bool get_steps(uint64_t *out, const cJSON *entry)
{
    const cJSON *node = member(entry, "steps");
    *out = cJSON_IsNumber(node) && node->valuedouble >= 0 ? (uint64_t)node->valuedouble : 0;
    return cJSON_IsNumber(node);
}

/* Reads the entries, and checks that they are linked. The positions are checked later, when the
 * recipe is known (check_positions). */
static bool get_chain(receipt *r, const cJSON *root)
{
    uint8_t link[LS_SHA256_BYTES], found[LS_SHA256_BYTES];
    const cJSON *list = member(root, "chain"), *end = member(root, "end");
    uint64_t steps;
    bool good = cJSON_IsArray(list) && get_hash(r->chain.first, root, "first_weights");
    ls_chain_link(link, &r->chain, 0, 1);
    for (const cJSON *e = good ? list->child : NULL; e && good; e = e->next) {
        good = r->chain.count < LS_CHAIN_MOST && get_steps(&steps, e) &&
               get_hash(r->chain.state[r->chain.count], e, "state") && get_hash(found, e, "link");
        if (good)
            ls_chain_follow(link, link, steps, r->chain.state[r->chain.count++]);
        good = good && memcmp(link, found, sizeof link) == 0;
    }
    good = good && get_steps(&r->end, end) && get_hash(r->end_state, end, "state") &&
           get_hash(found, end, "link");
    if (good)
        ls_chain_follow(link, link, r->end, r->end_state);
    return good && memcmp(link, found, sizeof link) == 0;
}

static int read_receipt(receipt *r, const char *run, const ls_host *host, ls_error *err)
{
    char path[LS_PATH_BYTES];
    int status = ls_json_read_file(&r->doc, ls_path_join(path, run, "receipt.json"), host, err);
    if (status)
        return status;
    const cJSON *root = ls_json_root(r->doc), *data = member(root, "data");
    const cJSON *format = member(root, "format");
    const cJSON *loss = member(member(root, "evaluation"), "test_loss");
    if (!cJSON_IsString(format) || strcmp(format->valuestring, "lockstep receipt 1") != 0)
        return ls_fail(err, LS_EDATA, "%.300s: is no receipt of this version", path);
    r->test_loss = cJSON_IsNumber(loss) ? loss->valuedouble : 0;
    if (!get_hash(r->weights, root, "weights_sha256") ||
        !get_hash(r->rows[LS_TRAIN], member(data, "training"), "rows_sha256") ||
        !get_hash(r->rows[LS_TEST], member(data, "test"), "rows_sha256") || !get_chain(r, root))
        return ls_fail(err, LS_EDATA,
                       "%.300s: a hash is missing, or the entries of the chain are not linked; the "
                       "file was changed after it was written",
                       path);
    return LS_OK;
}

/* ---- replays -------------------------------------------------------------------------------- */

/* Ends a replay as soon as the chain has the entry of the segment's end. */
static void on_progress(void *user, const ls_progress *p)
{
    const verification *v = user;
    (void)p;
    if (v->trainer && v->trainer->chain.count > v->target)
        ls_trainer_interrupt(v->trainer);
}

static int open_trainer(verification *v, ls_error *err)
{
    static const char *const own[OWN_SETS] = {
        "run_dir=null", "receipt=true", "metrics.tensorboard=false", "checkpoint.every_seconds=0"};
    const ls_trainer_options *given = v->options->trainer;
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .user = v};
    char path[LS_PATH_BYTES];
    ls_trainer_options o = *given;
    const char **set = ls_alloc_array(v->host, (size_t)given->set_count + OWN_SETS, sizeof *set);
    if (!set)
        return ls_fail(err, LS_ENOMEM, "out of memory for the settings of a replay");
    for (int i = 0; i < given->set_count; i++)
        set[i] = given->set[i];
    memcpy(set + given->set_count, own, sizeof own);
    o.config_path = ls_path_join(path, v->options->run, "config.json");
    o.config_text = o.resume = NULL;
    o.set = set;
    o.set_count = given->set_count + OWN_SETS;
    o.callbacks = &callbacks;
    v->trainer = NULL;
    int status = ls_trainer_open(&v->trainer, &o, err);
    ls_free(v->host, set);
    return status;
}

static void close_trainer(verification *v)
{
    ls_trainer_close(v->trainer, NULL);
    v->trainer = NULL;
}

static uint64_t position(const verification *v, uint32_t entries)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < entries; i++)
        at = ls_chain_next(at, v->batch_size);
    return at;
}

/* Loads the state with which segment number `i` begins. */
static int begin_segment(verification *v, uint32_t i, ls_error *err)
{
    const receipt *r = v->receipt;
    char name[LS_CHECKPOINT_NAME], folder[LS_PATH_BYTES], path[LS_PATH_BYTES];
    uint8_t state[LS_SHA256_BYTES];
    ls_error why = {0};
    if (i == 0)
        return LS_OK; /* check_claims has compared the first weights */
    ls_checkpoint_name(name, position(v, i));
    ls_path_join(path, ls_path_join(folder, v->options->run, "checkpoints"), name);
    int status = ls_trainer_load(v->trainer, path, &why);
    if (status == LS_ENOMEM)
        return ls_fail(err, status, "%s", why.text);
    if (status) {
        differs(v, "the checkpoint %s cannot be used: %.300s", name, why.text);
        return LS_OK;
    }
    v->trainer->reported.result.test_loss = NAN; /* that of the checkpoint is a claim */
    status = ls_hash_state(state, v->trainer, err);
    if (status == LS_OK && memcmp(state, r->chain.state[i - 1], sizeof state) != 0)
        differs(v, "the checkpoint %s does not have the state that the receipt names", name);
    return status;
}

/* Compares the end of segment number `i` with the receipt. `ended`: how the replay has ended. */
static int compare_end(verification *v, uint32_t i, int ended, const ls_error *why, ls_error *err)
{
    const receipt *r = v->receipt;
    const ls_trainer *t = v->trainer;
    const bool last = i == r->chain.count;
    uint8_t state[LS_SHA256_BYTES], weights[LS_SHA256_BYTES];
    if (ended && ended != LS_EINTERRUPTED)
        return ls_fail(err, ended, "%s", why->text);
    if (!last) {
        if (t->chain.count <= i || memcmp(t->chain.state[i], r->chain.state[i], sizeof state) != 0)
            differs(v, "the replay ends with another state than the receipt");
        return LS_OK;
    }
    int status = ls_hash_state(state, t, err);
    if (status)
        return status;
    if (t->position.steps != r->end || memcmp(state, r->end_state, sizeof state) != 0)
        differs(v, "the replay ends with another state than the receipt");
    else if (!ls_sha256_from_hex(weights, t->reported.result.weights_sha256) ||
             memcmp(weights, r->weights, sizeof weights) != 0)
        differs(v, "the replay has other weights than the receipt");
    else if (t->reported.result.test_loss != r->test_loss)
        differs(v, "the last evaluation has a test loss of %.9g, not of %.9g",
                t->reported.result.test_loss, r->test_loss);
    return LS_OK;
}

static int replay(verification *v, uint32_t i, ls_error *err)
{
    const receipt *r = v->receipt;
    ls_verdict *out = v->verdict;
    ls_error why = {0};
    /* If the run ends at a position, the last segment has no steps. The one before is then replayed
     * once more, because a run without steps would not evaluate. */
    const bool ends = i > 0 && i == r->chain.count && position(v, i) == r->end;
    const uint32_t start = ends ? i - 1 : i;
    const uint64_t from = position(v, start), to = i < r->chain.count ? position(v, i + 1) : r->end;
    if (v->options->progress)
        v->options->progress(v->options->user, out->replayed, out->segments, from, to);
    int status = open_trainer(v, err);
    v->target = i;
    if (status == LS_OK)
        status = begin_segment(v, start, err);
    if (status == LS_OK && out->holds) {
        const int ended = ls_trainer_run(v->trainer, &why);
        status = compare_end(v, i, ended, &why, err);
        out->replayed++;
    }
    if (status == LS_OK && !out->holds) {
        out->segment = (int)i;
        out->from = from;
        out->to = to;
    }
    close_trainer(v);
    return status;
}

/* ---- claims that need no replay ------------------------------------------------------------- */

static int check_data(verification *v, ls_error *err)
{
    static const char *const names[LS_SUBSETS] = {[LS_TRAIN] = "training", [LS_TEST] = "test"};
    uint8_t rows[LS_SHA256_BYTES];
    int status = LS_OK;
    for (int s = 0; s < LS_SUBSETS && status == LS_OK; s++) {
        status = ls_rows_sha256(rows, v->trainer->data[s], v->host, err);
        if (status == LS_OK && memcmp(rows, v->receipt->rows[s], sizeof rows) != 0)
            differs(v, "the %s rows are not those of the receipt", names[s]);
    }
    return status;
}

/* Checks that the entries are at the positions that follow from the recipe. */
static void check_positions(verification *v)
{
    const receipt *r = v->receipt;
    uint64_t steps = 0;
    uint32_t i = 0;
    for (const cJSON *e = member(ls_json_root(r->doc), "chain")->child; e; e = e->next)
        if (!get_steps(&steps, e) || steps != position(v, ++i))
            differs(v, "entry %u of the chain is after %llu steps, not after %llu", (unsigned)i,
                    (unsigned long long)steps, (unsigned long long)position(v, i));
    if (ls_chain_count(r->end, v->batch_size) != r->chain.count)
        differs(v, "a run of %llu steps does not have %u entries", (unsigned long long)r->end,
                (unsigned)r->chain.count);
}

static int check_weights(verification *v, ls_error *err)
{
    const ls_trainer *t = v->trainer;
    char path[LS_PATH_BYTES], hex[LS_SHA256_HEX];
    uint8_t found[LS_SHA256_BYTES] = {0};
    ls_error why;
    float *weights = ls_alloc_array(v->host, t->model->floats, sizeof *weights);
    if (!weights)
        return ls_fail(err, LS_ENOMEM, "out of memory for weights");
    ls_path_join(path, v->options->run, "weights.safetensors");
    if (ls_safetensors_load(weights, path, t->model, "", v->host, &why)) {
        differs(v, "the weights cannot be read: %.400s", why.text);
    } else {
        ls_weights_sha256(hex, t->model, weights);
        (void)ls_sha256_from_hex(found, hex);
        if (memcmp(found, v->receipt->weights, sizeof found) != 0)
            differs(v, "weights.safetensors has other weights than the receipt");
    }
    ls_free(v->host, weights);
    return LS_OK;
}

static int check_recipe(verification *v, ls_error *err)
{
    const ls_trainer *t = v->trainer;
    const cJSON *root = ls_json_root(v->receipt->doc);
    const cJSON *library = member(root, "library");
    ls_config recipe;
    ls_error why;
    if (!cJSON_IsString(library) || strcmp(library->valuestring, t->reported.summary.library) != 0)
        return ls_fail(err, LS_EDATA,
                       "the run was made with \"%.150s\"; a verifier needs this version, and has "
                       "\"%.150s\"",
                       cJSON_IsString(library) ? library->valuestring : "?",
                       t->reported.summary.library);
    int status =
        ls_config_read_recipe(&recipe, v->receipt->doc, member(root, "recipe"), v->host, err);
    if (status)
        return status;
    if (ls_config_same_recipe(&t->config, ls_engine_shards(t->engine), &recipe, &why))
        differs(v, "config.json does not have the recipe of the receipt: %.400s", why.text);
    ls_config_fini(&recipe);
    return LS_OK;
}

/* Checks what the receipt claims of recipe, data, first and last weights, and positions. */
static int check_claims(verification *v, ls_error *err)
{
    int status = open_trainer(v, err);
    if (status == LS_OK)
        status = check_recipe(v, err);
    if (status == LS_OK) {
        v->batch_size = (uint32_t)v->trainer->config.batch_size;
        check_positions(v);
        if (memcmp(v->trainer->chain.first, v->receipt->chain.first, LS_SHA256_BYTES) != 0)
            differs(v, "the recipe begins with other weights than the receipt");
        status = check_data(v, err);
    }
    if (status == LS_OK)
        status = check_weights(v, err);
    close_trainer(v);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Chooses the segments: replays[i] is set for each that is replayed. Returns their number. */
static int choose(bool *replays, uint32_t *order, uint32_t count, const ls_verify_options *o)
{
    const uint32_t middle = count > 2 ? count - 2 : 0;
    const uint32_t drawn = o->segments > 0 ? (uint32_t)o->segments : 0;
    int chosen = 0;
    ls_rng_permutation(order, middle, o->seed, 0);
    replays[0] = replays[count - 1] = true;
    for (uint32_t i = 0; i < middle; i++)
        replays[1 + order[i]] = o->all || i < drawn;
    for (uint32_t i = 0; i < count; i++)
        chosen += replays[i];
    return chosen;
}

static int replay_chosen(verification *v, ls_error *err)
{
    bool replays[LS_CHAIN_MOST + 1] = {false};
    uint32_t order[LS_CHAIN_MOST + 1];
    const uint32_t count = v->receipt->chain.count + 1;
    int status = LS_OK;
    v->verdict->segments = choose(replays, order, count, v->options);
    for (uint32_t i = 0; i < count && status == LS_OK && v->verdict->holds; i++)
        if (replays[i])
            status = replay(v, i, err);
    return status;
}

static void conclude(ls_verdict *out, uint32_t count)
{
    char place[120] = "", text[sizeof out->text];
    if (out->holds && out->replayed == (int)count) {
        snprintf(out->text, sizeof out->text,
                 "verified: the whole training was replayed and ends with the same weights");
    } else if (out->holds) {
        snprintf(out->text, sizeof out->text,
                 "not refuted: %d of %u segments were replayed, and nothing differs", out->replayed,
                 (unsigned)count);
    } else {
        memcpy(text, out->text, sizeof text);
        if (out->segment >= 0)
            snprintf(place, sizeof place,
                     "segment %d of %u, from step %llu to step %llu: ", out->segment + 1,
                     (unsigned)count, (unsigned long long)out->from + 1,
                     (unsigned long long)out->to);
        snprintf(out->text, sizeof out->text, "NOT verified: %.110s%.470s", place, text);
    }
}

int ls_verify(ls_verdict *out, const ls_verify_options *options, ls_error *err)
{
    const ls_host *host = options->trainer->host;
    verification v = {.options = options, .host = host, .verdict = out};
    *out = (ls_verdict){.holds = true, .segment = -1};
    v.receipt = ls_alloc(host, sizeof *v.receipt);
    if (!v.receipt)
        return ls_fail(err, LS_ENOMEM, "out of memory for a receipt");
    int status = read_receipt(v.receipt, options->run, host, err);
    if (status == LS_OK)
        status = check_claims(&v, err);
    if (status == LS_OK && out->holds)
        status = replay_chosen(&v, err);
    if (status == LS_OK)
        ls_sha256_hex(out->weights_sha256, v.receipt->weights);
    if (status == LS_OK)
        conclude(out, v.receipt->chain.count + 1);
    ls_json_destroy(v.receipt->doc);
    ls_free(host, v.receipt);
    return status;
}
