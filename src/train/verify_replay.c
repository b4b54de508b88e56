/* SPDX-License-Identifier: MIT */
/* Replays segments of a run, and compares the states with which they end (verification.h). */
#include "train/verification.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "device/registry.h"
#include "engine/view.h"
#include "train/calls.h"
#include "train/chaining.h"
#include "train/coordinator.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <math.h>
#include <string.h>

enum { OWN_SETS = 2 /* number of assignments that a replay adds to the caller's */ };

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
    v->verdict.from = ls_verify_position(v, i);
    v->verdict.to = ls_verify_segment_end(v, i);
    ls_verify_checkpoint_path(path, name, v, v->verdict.to);
    if (v->claim.run[0] && ls_verify_read_checkpoint(found, v, v->verdict.to, path, &why) &&
        memcmp(found, state, sizeof found) == 0)
        ls_verify_name_tensors(tensors, sizeof tensors, v, v->values, ls_verify_states(v));
    ls_verify_differs(v, "", "the replay ends with another state than the receipt%s%s%s",
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

/* Adds to the message of a replay that could not be opened what the verifier can do. */
static int say_why(const verification *v, const ls_trainer_options *o, int status, ls_error *err)
{
    const ls_error why = *err;
    if (status == LS_ECONFIG && v->claim.doc) /* the message says where in the recipe */
        ls_fail(err, status, "%.300s: its recipe or evaluations cannot be used: %.400s",
                v->claim.receipt, why.text);
    return status == LS_ECONFIG || status == LS_ENOENT ? ls_verify_say_missing(v, o, status, err)
                                                       : status;
}

int ls_verify_open(verification *v, ls_error *err)
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
    if (status)
        status = say_why(v, &o, status, err);
    ls_free(v->host, set);
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
    const uint64_t steps = ls_verify_position(v, i);
    ls_error why = {0};
    ls_verify_checkpoint_path(path, name, v, steps);
    snprintf(place, sizeof place, "checkpoints/%s", name);
    if (!ls_verify_read_checkpoint(state, v, steps, path, &why)) {
        ls_verify_differs(v, place, "the checkpoint %s cannot be used: %.400s", name, why.text);
        return why.status == LS_ENOMEM ? ls_fail(err, LS_ENOMEM, "%s", why.text) : LS_OK;
    }
    if (memcmp(state, v->claim.chain.state[i - 1], sizeof state) != 0) {
        ls_verify_checkpoint_differs(v, steps, "", v->claim.chain.state[i - 1]);
        return LS_OK;
    }
    memcpy(e->canonical, v->values[0], t->model->floats * sizeof(float));
    for (int k = 0; k < ls_verify_states(v); k++)
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
        ls_verify_differs(
            v, place, "the run ends after step %llu; with its epochs and patience (%s) it goes on",
            end, v->claim.doc ? "receipt.json: evaluations" : "config.json");
        return LS_OK;
    }
    if (t->position.steps != v->claim.end) {
        ls_verify_differs(v, place, "the replay ends after step %llu, the run after step %llu",
                          steps, end);
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
        v->verdict.replayed += v->claim.chain.count < ls_verify_segments(v);
    return LS_OK;
}

int ls_verify_replay(verification *v, uint32_t first, uint32_t last, ls_error *err)
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
        ls_verify_differs(v, "", "the replay fails after step %llu: %.400s",
                          (unsigned long long)t->position.steps, why.text);
        return LS_OK;
    }
    if (ended && ended != LS_EINTERRUPTED)
        return ls_fail(err, ended, "%s", why.text);
    return last == v->claim.chain.count ? compare_end(v, ended, err) : LS_OK;
}
