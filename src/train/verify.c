/* SPDX-License-Identifier: MIT */
/* Verifies a run (verify.h): reads the claim, checks it, replays segments, and concludes. */
#include "train/verification.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "train/calls.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Returns whether all segments are replayed: without checkpoints none can be replayed alone. */
static bool replays_all(const verification *v)
{
    return v->o.all || !v->claim.run[0];
}

/* Chooses the segments to be replayed: v->replays. */
static void choose(verification *v)
{
    uint32_t order[LS_CHAIN_MOST + 1];
    const uint32_t count = ls_verify_segments(v), middle = count > 2 ? count - 2 : 0;
    const uint32_t drawn = v->o.segments > 0 ? (uint32_t)v->o.segments : 0;
    uint32_t chosen = 0;
    ls_rng_permutation(order, middle, v->o.seed, 0);
    v->replays[0] = v->replays[count - 1] = true;
    for (uint32_t i = 0; i < middle; i++)
        v->replays[1 + order[i]] = replays_all(v) || i < drawn;
    for (uint32_t i = 0; i < count; i++) {
        chosen += v->replays[i];
        v->planned += v->replays[i] ? ls_verify_segment_end(v, i) - ls_verify_position(v, i) : 0;
    }
    v->replays[v->claim.chain.count] = true; /* also if it has no steps */
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
            status = ls_verify_replay(v, i, last, err);
        i = v->replays[i] ? last : i;
    }
    if (status == LS_OK && v->verdict.holds)
        status = ls_verify_results(v, err);
    ls_verify_note_records(v);
    return status;
}

/* Appends a clause to the sentence of a verdict. */
static void add(ls_verdict *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(ls_verdict *out, const char *format, ...)
{
    const size_t used = strlen(out->text), room = sizeof out->text - used;
    va_list args;
    if (room <= sizeof "; ")
        return;
    memcpy(out->text + used, "; ", sizeof "; ");
    va_start(args, format);
    vsnprintf(out->text + used + 2, room - 2, format, args);
    va_end(args);
}

/* Returns whether the run has a file of weights, and another one was compared. */
static bool has_other_weights(const verification *v)
{
    char path[LS_PATH_BYTES];
    struct stat own, compared;
    return v->claim.run[0] && v->o.weights &&
           stat(ls_path_join(path, v->claim.run, "weights.safetensors"), &own) == 0 &&
           (stat(v->claim.weights, &compared) || own.st_dev != compared.st_dev ||
            own.st_ino != compared.st_ino);
}

/* Adds what was taken from the prover although the verifier could have an own copy of it. */
static void add_taken(verification *v)
{
    ls_verify_file file[LS_VERIFY_FILES];
    const int count = ls_verify_files(file, &v->trainer->config);
    for (int i = 0; i < count; i++) {
        if (!file[i].named)
            add(&v->verdict, "%s are the prover's: %s=%.200s", file[i].what, file[i].key,
                file[i].path);
        else if (strcmp(file[i].key, "init.weights") == 0)
            add(&v->verdict, "the first weights are those of a file: init.weights=%.200s",
                file[i].path);
    }
}

/* Adds the checkpoint of the best evaluation, if it is none that the receipt has a hash of. */
static void add_best(verification *v)
{
    char folder[LS_PATH_BYTES], *path;
    uint64_t steps = 0;
    ls_error why;
    if (!v->claim.run[0] ||
        ls_checkpoints_best(&path, ls_path_join(folder, v->claim.run, "checkpoints"), v->host,
                            &why) != LS_OK)
        return;
    const char *name = strrchr(path, '/') + 1;
    (void)ls_checkpoint_is_named(name, &steps);
    if (!v->claim.doc || (steps != v->claim.end && !ls_chain_has(steps, v->batch_size)))
        add(&v->verdict, "the checkpoint of the best evaluation, %.60s, was not compared", name);
    ls_free(v->host, path);
}

/* Adds what was not compared, to the sentence about a run in which nothing differs. */
static void add_left_out(verification *v)
{
    const ls_records_check *r = &v->records;
    ls_verdict *out = &v->verdict;
    if (!v->claim.doc)
        add(out, "there was no receipt");
    if (!v->claim.weights[0])
        add(out, v->claim.run[0] ? "the run has no weights to compare"
                                 : "there were no weights to compare");
    if (has_other_weights(v))
        add(out, "weights.safetensors of the run was not compared");
    if (!v->claim.run[0])
        add(out, "no records were compared");
    else if (!r->path)
        add(out, "the run has no records to compare");
    if (r->partial)
        add(out, "the first records of the run are missing");
    if (r->lacking[0])
        add(out, "its records do not have %s", r->lacking);
    if (v->threshold != 0)
        add(out, "the threshold %g in their file was added after the training", v->threshold);
    add_best(v);
    add_taken(v);
}

static void conclude(verification *v)
{
    ls_verdict *out = &v->verdict;
    char place[120] = "", step[80] = "", text[sizeof out->text];
    const uint64_t epochs = v->epoch_steps ? v->claim.end / v->epoch_steps : 0;
    if (out->holds && out->whole)
        snprintf(out->text, sizeof out->text,
                 "verified: the whole training was replayed and ends with the %s, after "
                 "%llu steps (%llu %s)",
                 v->claim.weights[0] ? "same weights" : "weights of the receipt",
                 (unsigned long long)v->claim.end, (unsigned long long)epochs,
                 epochs == 1 ? "epoch" : "epochs");
    else if (out->holds)
        snprintf(out->text, sizeof out->text,
                 "not refuted: %d of %d segments were replayed, and nothing differs", out->replayed,
                 out->segments);
    if (out->holds) {
        add_left_out(v);
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
    const char *hash = cJSON_GetStringValue(member(ls_verify_receipt(v), "weights_sha256"));
    if (!v->claim.doc && v->verdict.whole && v->verdict.holds)
        hash = v->trainer->reported.result.weights_sha256;
    snprintf(v->verdict.weights_sha256, sizeof v->verdict.weights_sha256, "%s", hash ? hash : "");
}

static int verify(verification *v, ls_error *err)
{
    v->verdict.holds = 1;
    v->verdict.segment = -1;
    int status = ls_claim_read(&v->claim, &v->o, err);
    v->verdict.whole = replays_all(v);
    if (status == LS_OK)
        status = ls_verify_check(v, err);
    if (status == LS_OK)
        ls_verify_list_files(v);
    v->verdict.segments = status == LS_OK ? (int)ls_verify_segments(v) : 0;
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

LS_AFTER_STACK_CHECK static int check_and_verify(ls_verdict *out, const ls_verify_options *options,
                                                 ls_error *err)
{
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

int ls_verify(ls_verdict *out, const ls_verify_options *options, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    int status = ls_stack_check(LS_OPEN_STACK_BYTES, "ls_verify", err);
    return status ? status : check_and_verify(out, options, err);
}
