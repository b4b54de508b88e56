/* Verifies a run (verify.h): checks what needs no replay, replays segments, compares. */
#include "train/verify.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "device/registry.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "train/calls.h"
#include "train/chaining.h"
#include "train/coordinator.h"
#include "train/receipt.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <lockstep/version.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_SETS = 2 /* number of assignments that a replay adds to the caller's */ };

typedef struct verification {
    ls_verify_options o;
    const ls_host *host;
    ls_verdict verdict;
    ls_claim claim;
    ls_trainer *trainer;
    ls_rows_hashes rows;
    ls_records_check records;
    char metrics[LS_PATH_BYTES];      /* path of metrics.jsonl */
    float *values[1 + LS_STATES];     /* [model->floats] each: room for a checkpoint's tensors */
    uint32_t batch_size, epoch_steps; /* number of steps of an epoch */
    uint32_t compared; /* number of entries of the chain that need no comparison any more */
    uint32_t last;     /* the replay in progress ends with this segment */
    bool replays[LS_CHAIN_MOST + 1];
    bool beyond; /* the replay went on beyond the end of the run */
    /* numbers of steps, for the progress: that are replayed; that were replayed before the present
     * part; that the run had done at the beginning of this part */
    uint64_t planned, before, part;
    uint64_t start_ns;
} verification;

static void differs(verification *v, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void differs(verification *v, const char *place, const char *format, ...)
{
    va_list args;
    if (!v->verdict.holds)
        return; /* the first difference counts */
    va_start(args, format);
    vsnprintf(v->verdict.text, sizeof v->verdict.text, format, args);
    va_end(args);
    snprintf(v->verdict.place, sizeof v->verdict.place, "%s", place);
    v->verdict.holds = 0;
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Returns the receipt; NULL: there is none. */
static const cJSON *receipt_of(const verification *v)
{
    return v->claim.doc ? ls_json_root(v->claim.doc) : NULL;
}

/* Notes that a member of the receipt differs. */
static void receipt_differs(verification *v, const char *member_place, const char *why)
{
    char place[LS_JSON_PLACE + 20];
    snprintf(place, sizeof place, "receipt.json: %s", member_place);
    differs(v, place, "%s %s", place, why);
}

static uint64_t position(const verification *v, uint32_t entries)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < entries; i++)
        at = ls_chain_next(at, v->batch_size);
    return at;
}

/* Returns the number of steps done at the end of a segment. */
static uint64_t end_of(const verification *v, uint32_t segment)
{
    return segment < v->claim.chain.count ? position(v, segment + 1) : v->claim.end;
}

/* ---- tensors -------------------------------------------------------------------------------- */

static bool same_tensor(const ls_param *p, const float *a, const float *b)
{
    return memcmp(a + p->offset, b + p->offset, p->count * sizeof(float)) == 0;
}

/* Appends the names of tensors that differ to `text`; at most three, and the number of the rest. */
static void name_tensors(char *text, size_t size, const verification *v, float *const *theirs,
                         int states)
{
    const ls_network *model = v->trainer->model;
    const ls_engine_state *mine = ls_engine_weights(v->trainer->engine);
    char prefix[LS_STATE_PREFIX] = "";
    int found = 0;
    for (int k = 0; k <= states; k++) {
        const int tensors = model->params + (k == 0 ? model->stats : 0);
        if (k > 0)
            ls_name_state(prefix, &v->trainer->config.optimizer, k - 1);
        for (int i = 0; i < tensors; i++) {
            const ls_param *p = k == 0 ? model->tensor[i] : model->param[i];
            const size_t used = strlen(text);
            if (same_tensor(p, theirs[k], k == 0 ? mine->canonical : mine->slot[k - 1]))
                continue;
            if (found++ < 3)
                snprintf(text + used, size - used, "%s%s%s", found > 1 ? ", " : "", prefix,
                         p->name);
        }
    }
    const size_t used = strlen(text);
    if (found > 3)
        snprintf(text + used, size - used, " and %d more", found - 3);
}

static int states_of(const verification *v)
{
    return ls_optimizer_states(&v->trainer->config.optimizer);
}

/* Reads the tensors of a checkpoint into v->values, and hashes them as a state after `steps` steps.
 * Returns false if there is no such checkpoint, or none that can be read; *why then says so. */
static bool read_checkpoint(uint8_t hash[LS_SHA256_BYTES], verification *v, uint64_t steps,
                            const char *path, ls_error *why)
{
    ls_trainer *t = v->trainer;
    const ls_checkpoint_values values = {v->values[0], v->values + 1};
    const ls_position at = {.steps = steps};
    const ls_hashed state = {t->model, &t->config, ls_engine_shards(t->engine), &at, values};
    int status = ls_checkpoint_read(&values, path, t->model, &t->config.optimizer, v->host, why);
    if (status == LS_OK)
        status = ls_state_sha256(hash, &state, why);
    return status == LS_OK;
}

static void path_of_checkpoint(char out[LS_PATH_BYTES], char name[LS_CHECKPOINT_NAME],
                               const verification *v, uint64_t steps)
{
    char folder[LS_PATH_BYTES];
    ls_checkpoint_name(name, steps);
    ls_path_join(out, ls_path_join(folder, v->claim.run, "checkpoints"), name);
}

/* ---- replays -------------------------------------------------------------------------------- */

/* Notes that the replay of segment number `i` does not end with the state of the receipt. Names the
 * tensors in which it differs from the checkpoint or the weights at the segment's end. */
static void note_segment(verification *v, uint32_t i)
{
    const bool last = i == v->claim.chain.count;
    const uint8_t *state = last ? v->claim.end_state : v->claim.chain.state[i];
    char path[LS_PATH_BYTES], name[LS_CHECKPOINT_NAME], tensors[400] = "";
    uint8_t found[LS_SHA256_BYTES];
    ls_error why;
    v->verdict.segment = (int)i;
    v->verdict.from = position(v, i);
    v->verdict.to = end_of(v, i);
    path_of_checkpoint(path, name, v, v->verdict.to);
    if (v->claim.run[0] && read_checkpoint(found, v, v->verdict.to, path, &why) &&
        memcmp(found, state, sizeof found) == 0)
        name_tensors(tensors, sizeof tensors, v, v->values, states_of(v));
    differs(v, "", "the replay ends with another state than the receipt%s%s%s",
            tensors[0] ? " (other values: " : "", tensors, tensors[0] ? ")" : "");
}

/* Compares the entries of the chain that the replay has added. */
static void compare_entries(verification *v)
{
    const ls_chain *mine = &v->trainer->chain, *theirs = &v->claim.chain;
    while (v->verdict.holds && v->compared < mine->count && v->compared <= v->last &&
           v->compared < theirs->count) {
        const uint32_t i = v->compared++;
        if (memcmp(mine->state[i], theirs->state[i], LS_SHA256_BYTES) != 0)
            note_segment(v, i);
        else
            v->verdict.replayed++;
    }
}

static void tell_progress(const verification *v)
{
    const double seconds = (double)(ls_now_ns() - v->start_ns) * 1e-9;
    const uint64_t done = v->before + v->trainer->position.steps - v->part;
    const uint64_t left = done < v->planned ? v->planned - done : 0;
    const ls_verify_progress p = {.done = done,
                                  .steps = v->planned,
                                  .remaining_s =
                                      done > 0 ? seconds * (double)left / (double)done : NAN};
    if (v->o.progress)
        v->o.progress(v->o.user, &p);
}

/* Called after each step, and at the end of an epoch: ends a replay that has nothing left to
 * compare. */
static void on_progress(void *user, const ls_progress *p)
{
    verification *v = user;
    const ls_trainer *t = v->trainer;
    if (!t)
        return;
    compare_entries(v);
    tell_progress(v);
    v->beyond |= t->position.steps > v->claim.end;
    const bool at_end = t->position.steps == v->claim.end && p->epoch_done;
    const bool part_is_done = v->last < v->claim.chain.count && v->compared > v->last;
    if (!v->verdict.holds || v->beyond || at_end || part_is_done)
        ls_trainer_interrupt(v->trainer);
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    verification *v = user;
    (void)err;
    ls_check_record(&v->records, json, length);
    return LS_OK;
}

static bool has_cpu(const ls_registry *registry)
{
    bool found = !registry;
    for (int i = 0; !found && ls_registry_at(registry, i); i++)
        found = strcmp(ls_registry_at(registry, i)->name, "cpu") == 0;
    return found;
}

static int open_trainer(verification *v, ls_error *err)
{
    static const char *const own[OWN_SETS] = {"run_dir=null", "receipt=false"};
    const ls_trainer_options *given = v->o.trainer;
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .record = on_record, .user = v};
    ls_trainer_options o = *given;
    int count = 0;
    const char **set =
        ls_alloc_array(v->host, (size_t)given->set_count + OWN_SETS + 1, sizeof *set);
    if (!set)
        return ls_fail(err, LS_ENOMEM, "out of memory for the settings of a replay");
    if (!v->claim.device && has_cpu(given->registry))
        set[count++] = "devices=cpu"; /* on a GPU a run on CPUs would have other bits */
    for (int i = 0; i < given->set_count; i++)
        set[count++] = given->set[i];
    for (int i = 0; i < OWN_SETS; i++)
        set[count++] = own[i];
    o.config_path = o.resume = o.trace_path = NULL;
    o.cluster = NULL;
    o.config_text = v->claim.config;
    o.set = set;
    o.set_count = count;
    o.callbacks = &callbacks;
    int status = ls_trainer_open(&v->trainer, &o, err);
    ls_free(v->host, set);
    if (status == LS_ECONFIG && v->claim.doc) { /* the message says where in the recipe */
        const ls_error why = *err;
        return ls_fail(err, status, "%.300s: its recipe or evaluations cannot be used: %.400s",
                       v->claim.receipt, why.text);
    }
    if (status)
        return status;
    v->trainer->agreement.chained = true; /* no receipt is written, but the states are hashed */
    return ls_chain_begin(v->trainer, err);
}

/* Returns the position of a run after `steps` steps. The number of the epoch and of the step in it
 * follow from it; they are not read from a checkpoint, because the hash of a state does not cover
 * them. After the last step of an epoch only the evaluation is left. */
static ls_position position_after(const verification *v, uint64_t steps)
{
    const bool ends_epoch = steps % v->epoch_steps == 0;
    const uint64_t epoch = steps / v->epoch_steps - ends_epoch;
    return (ls_position){.steps = steps,
                         .epoch = (uint32_t)epoch,
                         .step = (uint32_t)(steps - epoch * v->epoch_steps),
                         .recorded = ends_epoch};
}

/* Loads the state with which segment number `i` begins. */
static int begin_segment(verification *v, uint32_t i, ls_error *err)
{
    ls_trainer *t = v->trainer;
    ls_engine_state *e = ls_engine_weights(t->engine);
    char name[LS_CHECKPOINT_NAME], path[LS_PATH_BYTES], place[LS_CHECKPOINT_NAME + 20];
    uint8_t state[LS_SHA256_BYTES];
    const uint64_t steps = position(v, i);
    ls_error why = {0};
    path_of_checkpoint(path, name, v, steps);
    snprintf(place, sizeof place, "checkpoints/%s", name);
    if (!read_checkpoint(state, v, steps, path, &why)) {
        differs(v, place, "the checkpoint %s cannot be used: %.400s", name, why.text);
        return why.status == LS_ENOMEM ? ls_fail(err, LS_ENOMEM, "%s", why.text) : LS_OK;
    }
    if (memcmp(state, v->claim.chain.state[i - 1], sizeof state) != 0) {
        differs(v, place, "the checkpoint %s does not have the state that the receipt names", name);
        return LS_OK;
    }
    memcpy(e->canonical, v->values[0], t->model->floats * sizeof(float));
    for (int k = 0; k < states_of(v); k++)
        memcpy(e->slot[k], v->values[1 + k], t->model->floats * sizeof(float));
    e->has_slots = true;
    t->position = position_after(v, steps);
    t->reported.result.steps = steps;
    t->reported.result.epochs = (int)t->position.epoch + t->position.recorded;
    memcpy(t->chain.state, v->claim.chain.state, (size_t)i * LS_SHA256_BYTES);
    t->chain.count = v->compared = i;
    t->coordination->due_work_done_at = steps;
    ls_agreement_begin(t);
    ls_check_records_from(&v->records, steps);
    return ls_engine_load(t->engine, steps, err);
}

/* Reads the last weights back, and compares the end of the run with the claim. */
static int compare_end(verification *v, int ended, ls_error *err)
{
    ls_trainer *t = v->trainer;
    uint8_t state[LS_SHA256_BYTES];
    const unsigned long long steps = (unsigned long long)t->position.steps,
                             end = (unsigned long long)v->claim.end;
    const char *place = v->claim.doc ? "receipt.json: end.steps" : "weights.safetensors";
    if (v->beyond || (ended == LS_EINTERRUPTED && (v->verdict.whole || !t->config.patience))) {
        differs(v, place,
                "the run ends after step %llu; with its epochs and patience (%s) it goes on", end,
                v->claim.doc ? "receipt.json: evaluations" : "config.json");
        return LS_OK;
    }
    if (t->position.steps != v->claim.end) {
        differs(v, place, "the replay ends after step %llu, the run after step %llu", steps, end);
        return LS_OK;
    }
    int status = ls_copy_replicas(t, true, err);
    if (status == LS_OK)
        status = ls_hash_state(state, t, err);
    if (status)
        return status;
    ls_weights_sha256(t->reported.result.weights_sha256, t->model,
                      ls_engine_weights(t->engine)->canonical);
    if (v->claim.doc && memcmp(state, v->claim.end_state, sizeof state) != 0)
        note_segment(v, v->claim.chain.count);
    else
        v->verdict.replayed++;
    return LS_OK;
}

/* Replays segments `first` to `last`. */
static int replay(verification *v, uint32_t first, uint32_t last, ls_error *err)
{
    ls_trainer *t = v->trainer;
    ls_error why = {0};
    v->last = last;
    int status = first > 0 ? begin_segment(v, first, err) : ls_begin(t, err);
    if (status || !v->verdict.holds)
        return status;
    v->part = t->position.steps;
    atomic_store(&t->stop, 0);
    const int ended = ls_coordinate(t, &why);
    v->before += t->position.steps - v->part;
    compare_entries(v);
    if (!v->verdict.holds)
        return LS_OK;
    if (ended == LS_ENONFINITE || ended == LS_EDIVERGED) {
        differs(v, "", "the replay fails after step %llu: %.400s",
                (unsigned long long)t->position.steps, why.text);
        return LS_OK;
    }
    if (ended && ended != LS_EINTERRUPTED)
        return ls_fail(err, ended, "%s", why.text);
    return last == v->claim.chain.count ? compare_end(v, ended, err) : LS_OK;
}

/* ---- what needs no replay ------------------------------------------------------------------- */

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

/* Checks that the entries are linked, and at the positions that follow from the recipe. */
static void check_positions(verification *v)
{
    const ls_claim *c = &v->claim;
    char place[LS_JSON_PLACE];
    uint32_t i = 0;
    if (c->wrong[0])
        receipt_differs(v, c->wrong, "does not follow from the entries");
    for (const cJSON *e = member(receipt_of(v), "chain")->child; e; e = e->next) {
        const double steps = member(e, "steps")->valuedouble;
        snprintf(place, sizeof place, "receipt.json: chain[%u].steps", (unsigned)i);
        if (steps != (double)position(v, ++i))
            differs(v, place, "%s: the entry is after %.0f steps, not after %llu", place, steps,
                    (unsigned long long)position(v, i));
    }
    if (ls_chain_count(c->end, v->batch_size) != c->chain.count)
        differs(v, "receipt.json: chain",
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

/* Compares the recipe of the replay, which is that of the claim unless the caller's assignments
 * change it, with those of the run's config and first record. */
static int check_recipes(verification *v, ls_error *err)
{
    const ls_claim *c = &v->claim;
    const ls_json *claim = c->doc ? c->doc : c->own;
    const cJSON *start = c->start ? ls_json_root(c->start) : NULL;
    ls_error why;
    if (ls_recipes_differ(&why, v->trainer, claim, member(ls_json_root(claim), "recipe")))
        return ls_fail(err, LS_EINVAL, "verify: an assignment changes the run's recipe: %.500s",
                       why.text);
    if (c->malformed[0])
        differs(v, "config.json", "%s", c->malformed);
    if (c->own &&
        ls_recipes_differ(&why, v->trainer, c->own, member(ls_json_root(c->own), "recipe")))
        differs(v, "config.json", "config.json does not have the recipe of the receipt: %.500s",
                why.text);
    if (start && !begins_run(start))
        differs(v, "metrics.jsonl:1",
                "metrics.jsonl:1: expected the record with which a run begins, with its config");
    if (member(start, "config") &&
        ls_recipes_differ(&why, v->trainer, c->start, member(start, "config")))
        differs(v, "metrics.jsonl:1",
                "metrics.jsonl:1: the first record has another recipe: %.500s", why.text);
    return LS_OK;
}

static int check_data(verification *v, ls_error *err)
{
    char place[LS_JSON_PLACE] = "data";
    ls_json_writer w;
    ls_json *doc = NULL;
    size_t length;
    int status = ls_hash_rows(&v->rows, v->trainer, err);
    if (status)
        return status;
    ls_json_writer_init(&w, 0, v->host);
    ls_put_data(&w, NULL, v->trainer, &v->rows);
    const char *text = ls_json_writer_text(&w, &length, err);
    status = text ? ls_json_parse(&doc, "data", text, length, v->host, err) : LS_ENOMEM;
    if (status == LS_OK && ls_json_differs(place, ls_json_root(doc), member(receipt_of(v), "data")))
        receipt_differs(v, place, "is another one than that of the verifier's data");
    ls_json_destroy(doc);
    ls_json_writer_fini(&w);
    return status;
}

static void check_first_weights(verification *v)
{
    const ls_chain *mine = &v->trainer->chain;
    const char *file = cJSON_GetStringValue(member(receipt_of(v), "init_file_sha256"));
    if (strcmp(file ? file : "", mine->file) != 0)
        receipt_differs(v, "init_file_sha256",
                        "is not the hash of the file of the first weights (init.weights)");
    if (memcmp(mine->first, v->claim.chain.first, LS_SHA256_BYTES) != 0)
        receipt_differs(v, "first_weights",
                        "is not the hash of the weights with which the recipe "
                        "begins");
}

#define HEADER_MOST (100u << 20) /* greatest size of a safetensors file's header in bytes */

/* Returns whether a file is larger than any file of the model's weights. It is not hashed then: a
 * file with holes can be of any size. */
static bool is_too_large(const verification *v, const char *path)
{
    struct stat s;
    const uint64_t most = (uint64_t)v->trainer->model->floats * sizeof(float) + HEADER_MOST;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && (uint64_t)s.st_size > most;
}

/* Compares the file of weights with the receipt. */
static void check_weights(verification *v)
{
    const char *claimed = cJSON_GetStringValue(member(receipt_of(v), "weights_file_sha256"));
    char hex[LS_SHA256_HEX];
    ls_error why;
    if (!v->claim.weights[0])
        return;
    if (is_too_large(v, v->claim.weights))
        differs(v, "weights.safetensors",
                "weights.safetensors is larger than a file of the model's weights can be");
    else if (ls_sha256_of_file(hex, v->claim.weights, "a file of weights", &why) != LS_OK)
        differs(v, "weights.safetensors", "the weights cannot be read: %.400s", why.text);
    else if (!claimed || strcmp(hex, claimed) != 0)
        differs(v, "weights.safetensors",
                "weights.safetensors is another file than that of the receipt "
                "(weights_file_sha256)");
}

/* Notes that the checkpoint at the end of segment number `i` is not that of the receipt. */
static void note_checkpoint(verification *v, uint32_t i, const char *place, const char *name)
{
    if (v->verdict.holds) {
        v->verdict.segment = (int)i;
        v->verdict.from = position(v, i);
        v->verdict.to = end_of(v, i);
    }
    differs(v, place, "the checkpoint %s at its end does not have the state that the receipt names",
            name);
}

/* Hashes the checkpoints that the run has at the positions of the chain. */
static void check_checkpoints(verification *v)
{
    char path[LS_PATH_BYTES], name[LS_CHECKPOINT_NAME], place[LS_CHECKPOINT_NAME + 20];
    uint8_t state[LS_SHA256_BYTES];
    ls_error why;
    for (uint32_t i = 0; v->claim.run[0] && i <= v->claim.chain.count; i++) {
        const uint64_t steps = end_of(v, i);
        const uint8_t *want =
            i < v->claim.chain.count ? v->claim.chain.state[i] : v->claim.end_state;
        path_of_checkpoint(path, name, v, steps);
        snprintf(place, sizeof place, "checkpoints/%s", name);
        if (access(path, F_OK) != 0)
            continue;
        if (!read_checkpoint(state, v, steps, path, &why))
            differs(v, place, "the checkpoint %s cannot be used: %.400s", name, why.text);
        else if (memcmp(state, want, sizeof state) != 0)
            note_checkpoint(v, i, place, name);
    }
}

static int allocate_values(verification *v, ls_error *err)
{
    const size_t floats = v->trainer->model->floats;
    for (int k = 0; k <= states_of(v); k++) {
        v->values[k] = ls_alloc_array(v->host, floats, sizeof(float));
        if (!v->values[k])
            return ls_fail(err, LS_ENOMEM, "out of memory for the tensors of a checkpoint");
    }
    return LS_OK;
}

/* Fails if a run without a receipt has not finished: its weights are then those of no epoch's end,
 * or a resume has changed its epochs. */
static int check_finished(const verification *v, ls_error *err)
{
    const ls_config *c = &v->trainer->config;
    const uint64_t all = (uint64_t)c->epochs * v->epoch_steps;
    if (v->claim.doc || v->claim.end == all ||
        (c->patience > 0 && v->claim.end < all && v->claim.end % v->epoch_steps == 0))
        return LS_OK;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "%.300s: the weights are those after step %llu, and the config has %llu steps; "
                   "resume the run to its end, or set epochs if a resume has changed them",
                   v->claim.run, (unsigned long long)v->claim.end, (unsigned long long)all);
}

/* Opens the replay, and checks what the claim says of recipe, data, weights and positions. */
static int check_claims(verification *v, ls_error *err)
{
    int status = open_trainer(v, err);
    if (status == LS_OK)
        status = check_library(v, err);
    if (status == LS_OK)
        status = allocate_values(v, err);
    if (status)
        return status;
    v->batch_size = (uint32_t)v->trainer->config.batch_size;
    v->epoch_steps = v->trainer->coordination->steps;
    status = check_recipes(v, err);
    if (status == LS_OK)
        status = check_finished(v, err);
    if (status || !v->claim.doc)
        return status;
    check_positions(v);
    check_first_weights(v);
    if (v->verdict.holds)
        status = check_data(v, err);
    if (status == LS_OK && v->verdict.holds)
        check_weights(v);
    if (status == LS_OK && v->verdict.holds)
        check_checkpoints(v);
    return status;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Compares the file of weights with those of a replay, for a run without a receipt. */
static int compare_weights_file(verification *v, ls_error *err)
{
    const ls_trainer *t = v->trainer;
    char mine[LS_SHA256_HEX], theirs[LS_SHA256_HEX], tensors[400] = "";
    ls_error why;
    int status = ls_safetensors_sha256(mine, t->model, ls_engine_weights(t->engine)->canonical,
                                       t->position.steps, v->host, err);
    if (status)
        return status;
    if (ls_sha256_of_file(theirs, v->claim.weights, "a file of weights", &why) != LS_OK ||
        ls_safetensors_load(v->values[0], v->claim.weights, t->model, "", v->host, &why) != LS_OK) {
        differs(v, "weights.safetensors", "the weights cannot be read: %.400s", why.text);
        return LS_OK;
    }
    if (strcmp(mine, theirs) == 0)
        return LS_OK;
    name_tensors(tensors, sizeof tensors, v, v->values, 0);
    if (tensors[0])
        differs(v, "weights.safetensors", "the replay ends with other weights: %s", tensors);
    else
        differs(v, "weights.safetensors",
                "weights.safetensors has the weights of the replay, but describes the model in "
                "another way, or has other tensors too");
    return LS_OK;
}

/* Replaces members of the replay's receipt that prove nothing by those of the prover: the version
 * of the program, and the names of files, whose contents are hashed. */
static void overlook(cJSON *mine, const cJSON *theirs)
{
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        cJSON *own = cJSON_GetObjectItemCaseSensitive(mine, "recipe");
        const cJSON *other = member(theirs, "recipe");
        if (*row->group) {
            own = cJSON_GetObjectItemCaseSensitive(own, row->group);
            other = member(other, row->group);
        }
        if (!row->begins || !own || !cJSON_IsObject(other))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(own, row->key);
        if (member(other, row->key))
            cJSON_AddItemToObject(own, row->key, cJSON_Duplicate(member(other, row->key), true));
    }
    if (cJSON_IsString(member(theirs, "program")))
        cJSON_ReplaceItemInObjectCaseSensitive(mine, "program",
                                               cJSON_Duplicate(member(theirs, "program"), true));
    if (!member(member(theirs, "evaluation"), "metrics"))
        cJSON_DeleteItemFromObjectCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(mine, "evaluation"), "metrics");
}

/* Checks that the receipt's file is the text that Lockstep writes, byte by byte. */
static int check_canonical(verification *v, ls_error *err)
{
    char mine[LS_SHA256_HEX], theirs[LS_SHA256_HEX];
    ls_json_writer w;
    ls_sha256 hash;
    size_t length;
    ls_json_writer_init(&w, 0, v->host);
    ls_json_put_node(&w, NULL, receipt_of(v));
    const char *text = ls_json_writer_text(&w, &length, err);
    int status = text ? ls_sha256_of_file(theirs, v->claim.receipt, "a receipt", err) : LS_ENOMEM;
    if (status == LS_OK) {
        ls_sha256_init(&hash);
        ls_sha256_update(&hash, text, length);
        ls_sha256_update(&hash, "\n", 1);
        ls_sha256_final_hex(&hash, mine);
        if (strcmp(mine, theirs) != 0)
            differs(v, "receipt.json",
                    "receipt.json is not in the form in which Lockstep writes "
                    "it (spaces, numbers or line ends)");
    }
    ls_json_writer_fini(&w);
    return status;
}

static int compare_receipts(verification *v, ls_error *err)
{
    char place[LS_JSON_PLACE] = "";
    ls_json_writer w;
    ls_json_writer_init(&w, 0, v->host);
    int status = ls_compose_receipt(&w, v->trainer, &v->rows, err);
    const char *text = status == LS_OK ? ls_json_writer_text(&w, NULL, err) : NULL;
    cJSON *mine = text ? cJSON_Parse(text) : NULL;
    if (status == LS_OK && !mine)
        status = ls_fail(err, LS_ENOMEM, "out of memory for a receipt");
    if (status == LS_OK) {
        overlook(mine, receipt_of(v));
        if (ls_json_differs(place, mine, receipt_of(v)))
            receipt_differs(v, place, "is another one than that of the replay");
        status = check_canonical(v, err);
    }
    cJSON_Delete(mine);
    ls_json_writer_fini(&w);
    return status;
}

/* Compares what a replay that has reached the end of the run shows. */
static int compare_results(verification *v, ls_error *err)
{
    int status = ls_record_run_end(v->trainer, LS_OK, "", err);
    if (status == LS_OK)
        ls_check_records_end(&v->records);
    if (status == LS_OK)
        status = v->claim.doc ? compare_receipts(v, err) : compare_weights_file(v, err);
    return status;
}

static void note_records(verification *v)
{
    const ls_records_check *r = &v->records;
    char place[40];
    if (!r->wrong[0])
        return;
    if (v->verdict.segment >= 0 && r->wrong_step > v->verdict.from &&
        r->wrong_step <= v->verdict.to)
        v->verdict.step = r->wrong_step;
    snprintf(place, sizeof place, "metrics.jsonl%s%.0d", r->wrong_line ? ":" : "", r->wrong_line);
    differs(v, place, "%s: %s", place, r->wrong);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Chooses the segments to be replayed: v->replays. */
static void choose(verification *v)
{
    uint32_t order[LS_CHAIN_MOST + 1];
    const uint32_t count = v->claim.chain.count + 1, middle = count > 2 ? count - 2 : 0;
    const uint32_t drawn = v->o.segments > 0 ? (uint32_t)v->o.segments : 0;
    const bool all = v->o.all || !v->claim.run[0];
    uint32_t chosen = 0;
    ls_rng_permutation(order, middle, v->o.seed, 0);
    v->replays[0] = v->replays[count - 1] = true;
    for (uint32_t i = 0; i < middle; i++)
        v->replays[1 + order[i]] = all || i < drawn;
    for (uint32_t i = 0; i < count; i++) {
        chosen += v->replays[i];
        v->planned += v->replays[i] ? end_of(v, i) - position(v, i) : 0;
    }
    v->verdict.segments = (int)count;
    v->verdict.whole = chosen == count;
}

static int replay_chosen(verification *v, ls_error *err)
{
    const uint32_t count = v->claim.chain.count + 1;
    int status = LS_OK;
    choose(v);
    v->start_ns = ls_now_ns();
    if (v->claim.run[0])
        ls_check_records_begin(&v->records, ls_path_join(v->metrics, v->claim.run, "metrics.jsonl"),
                               v->epoch_steps, v->verdict.whole, v->host);
    for (uint32_t i = 0; i < count && status == LS_OK && v->verdict.holds; i++) {
        uint32_t last = i;
        while (last + 1 < count && v->replays[last + 1])
            last++;
        if (v->replays[i])
            status = replay(v, i, last, err);
        i = v->replays[i] ? last : i;
    }
    if (status == LS_OK && v->verdict.holds)
        status = compare_results(v, err);
    note_records(v);
    return status;
}

/* Ends the sentence about a run in which nothing differs: what was not compared. */
static const char *left_out(const verification *v)
{
    if (!v->claim.run[0])
        return v->claim.weights[0] ? "" : "; there were no weights to compare";
    if (!v->claim.weights[0])
        return "; the run has no weights to compare";
    if (!v->records.path)
        return "; the run has no records to compare";
    return v->records.partial ? "; the first records of the run are missing" : "";
}

static void conclude(verification *v)
{
    ls_verdict *out = &v->verdict;
    char place[120] = "", step[80] = "", text[sizeof out->text];
    if (out->holds && out->whole) {
        snprintf(out->text, sizeof out->text,
                 "verified: the whole training was replayed and ends with the same weights%s",
                 left_out(v));
        return;
    }
    if (out->holds) {
        snprintf(out->text, sizeof out->text,
                 "not refuted: %d of %d segments were replayed, and nothing differs%s",
                 out->replayed, out->segments, left_out(v));
        return;
    }
    memcpy(text, out->text, sizeof text);
    if (out->segment >= 0)
        snprintf(place, sizeof place,
                 "segment %d of %d, from step %llu to step %llu: ", out->segment + 1, out->segments,
                 (unsigned long long)out->from + 1, (unsigned long long)out->to);
    if (out->step > 0)
        snprintf(step, sizeof step, "; the first record that differs is that of step %llu",
                 (unsigned long long)out->step);
    snprintf(out->text, sizeof out->text, "NOT verified: %.110s%.900s%.70s", place, text, step);
}

/* Gives the hash of the weights that the verdict is about: that of the receipt, or without one that
 * of a replay that ended with the same file. */
static void name_weights(verification *v)
{
    const char *hash = cJSON_GetStringValue(member(receipt_of(v), "weights_sha256"));
    if (!v->claim.doc && v->verdict.whole && v->verdict.holds)
        hash = v->trainer->reported.result.weights_sha256;
    snprintf(v->verdict.weights_sha256, sizeof v->verdict.weights_sha256, "%s", hash ? hash : "");
}

static int verify(verification *v, ls_error *err)
{
    v->verdict.holds = 1;
    v->verdict.segment = -1;
    int status = ls_claim_read(&v->claim, &v->o, err);
    v->verdict.whole = v->o.all || !v->claim.run[0];
    if (status == LS_OK)
        status = check_claims(v, err);
    v->verdict.segments = (int)v->claim.chain.count + 1;
    if (status == LS_OK && v->verdict.holds)
        status = replay_chosen(v, err);
    if (status == LS_OK) {
        name_weights(v);
        conclude(v);
    }
    ls_check_records_fini(&v->records);
    for (int k = 0; k <= LS_STATES; k++)
        ls_free(v->host, v->values[k]);
    ls_trainer_close(v->trainer, NULL);
    ls_claim_fini(&v->claim);
    return status;
}

int ls_verify(ls_verdict *out, const ls_verify_options *options, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_verify_options o;
    ls_trainer_options trainer;
    ls_verdict none = {.size = sizeof none};
    int status = ls_sized_take(&o, sizeof o, options, "ls_verify_options", err);
    if (status == LS_OK && !o.run)
        status = ls_fail(err, LS_EINVAL, "ls_verify: options.run is NULL");
    if (status == LS_OK)
        status = ls_sized_take(&trainer, sizeof trainer, o.trainer, "ls_trainer_options", err);
    if (status == LS_OK)
        status = ls_sized_give(out, &none, sizeof none, "ls_verdict", err);
    if (status == LS_OK)
        status = ls_host_check(trainer.host, err);
    if (status == LS_OK)
        status = ls_config_check_options(&trainer, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_OPEN_STACK_BYTES, "ls_verify", err);
    if (status)
        return status;
    ls_error unread;
    err = err ? err : &unread;
    verification *v = ls_alloc(trainer.host, sizeof *v);
    if (!v)
        return ls_fail(err, LS_ENOMEM, "out of memory for a verification");
    v->o = o;
    v->o.trainer = &trainer;
    v->host = trainer.host;
    v->verdict.size = sizeof v->verdict;
    status = verify(v, err);
    if (status == LS_OK)
        status = ls_sized_give(out, &v->verdict, sizeof v->verdict, "ls_verdict", err);
    ls_free(trainer.host, v);
    return status;
}
