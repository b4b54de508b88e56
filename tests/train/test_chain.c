/* SPDX-License-Identifier: MIT */
/* Tests that the chain of a run with `receipt` has the same hashes on any devices, also if the run
 * loses a device or is stopped and resumed, and that the checkpoints at its positions stay. Tests
 * the receipt, and that a verification finds what was changed in it. */
#include "data/scratch.h"
#include "engine/view.h"
#include "runner.h"
#include "train/chaining.h"
#include "train/train_fixture.h"

#include <lockstep/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns how many of `all` cases a test makes: in the short form of the tests the first `few`. */
static size_t of(size_t few, size_t all)
{
    return ls_tests_rounds((unsigned)few, (unsigned)all);
}

/* 23 epochs of 10 steps of 256 rows, so the chain's positions are 100 and 200. The optimizer has
 * two states and a moving average; batch norm has running statistics. */
static const char config[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 2560}, \"batch_size\": 256, \"shards\": 8,"
    " \"epochs\": 23, \"eval_every\": 0, \"run_dir\": null, \"ema\": 0.9, \"receipt\": true,"
    " \"checkpoint\": {\"every_epochs\": 3, \"every_seconds\": 1000, \"keep\": 1},"
    " \"init\": {\"name\": \"kaiming\"}, \"schedule\": {\"name\": \"cosine\"},"
    " \"augment\": {\"crop\": 2, \"flip\": true},"
    " \"optimizer\": {\"name\": \"adamw\", \"lr\": 0.003, \"weight_decay\": 0.01},"
    " \"model\": {\"layers\": [{\"type\": \"avg_pool\", \"kernel\": 4},"
    " {\"type\": \"conv2d\", \"out\": 4, \"kernel\": 3}, {\"type\": \"batch_norm\"},"
    " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dropout\", \"p\": 0.25},"
    " {\"type\": \"dense\", \"out\": 10}]}}";

/* The parts of a run that the tests compare. */
typedef struct outcome {
    ls_chain chain;
    char weights[65];
} outcome;

typedef struct stopper {
    ls_trainer *trainer;
    uint64_t after; /* the run is stopped after this step; 0: it is not */
} stopper;

static void on_progress(void *user, const ls_progress *p)
{
    const stopper *s = user;
    if (s->after > 0 && (uint64_t)(p->epoch - 1) * p->steps + p->step == s->after)
        ls_trainer_interrupt(s->trainer);
}

static void begin(fixture *f, stopper *s, const char *devices)
{
    fixture_begin(f);
    *s = (stopper){0};
    f->options.config_text = config;
    f->callbacks.record = NULL;
    f->callbacks.progress = on_progress;
    f->callbacks.user = s;
    fixture_set(f, devices);
}

/* Runs and ends the fixture. */
static void run(outcome *out, fixture *f, stopper *s)
{
    s->trainer = fixture_open(f);
    const int want = s->after > 0 ? LS_EINTERRUPTED : LS_OK;
    if (ls_trainer_run(s->trainer, &f->err) != want)
        fail_msg("%s", f->err.text);
    out->chain = s->trainer->chain;
    memcpy(out->weights, ls_trainer_result(s->trainer)->weights_sha256, sizeof out->weights);
    assert_int_equal(ls_trainer_close(s->trainer, NULL), LS_OK);
    fixture_end(f);
}

static void run_on(outcome *out, const char *devices, const char *more)
{
    fixture f;
    stopper s;
    begin(&f, &s, devices);
    if (more)
        fixture_set(&f, more);
    run(out, &f, &s);
}

static void expect_same(const outcome *mine, const outcome *theirs, const char *what)
{
    assert_string_equal(mine->weights, theirs->weights);
    assert_int_equal(mine->chain.count, theirs->chain.count);
    for (uint32_t i = 0; i < mine->chain.count; i++)
        if (memcmp(mine->chain.state[i], theirs->chain.state[i], LS_SHA256_BYTES) != 0)
            fail_msg("%s: entry %u differs", what, (unsigned)i);
}

static outcome reference; /* of a run on two workers that nothing disturbs */
static scratch kept;      /* contains the directory `run` of this run */
static char kept_run[500];

/* The last link of the chain. Every machine must compute it, with each of its instruction sets. If
 * the kernels' bits change (tests/train/test_portable_bits.c), it changes too; a key of the config
 * that is added does not change it. */
#define LINK "9bc0096067dacf9f7d8d5ea330bacff94313d60e264ec103a69e1922afe6c0bb"

static int make_reference(void **state)
{
    uint8_t link[LS_SHA256_BYTES];
    char hex[LS_SHA256_HEX];
    (void)state;
    scratch_begin(&kept);
    snprintf(kept_run, sizeof kept_run, "run_dir=%s/run", kept.directory);
    run_on(&reference, "devices=cpu:2", kept_run);
    ls_chain_link(link, &reference.chain, reference.chain.count, 256);
    ls_sha256_hex(hex, link);
    assert_string_equal(hex, LINK);
    return 0;
}

static int remove_reference(void **state)
{
    (void)state;
    scratch_end(&kept);
    return 0;
}

static void the_chain_is_the_same_on_any_number_of_workers(void **state)
{
    static const char *const devices[] = {"devices=cpu:3", "devices=cpu:1", "devices=cpu:8"};
    outcome other;
    (void)state;
    assert_int_equal(reference.chain.count, 2);
    for (size_t i = 0; i < of(0, ROOM(devices)); i++) {
        run_on(&other, devices[i], i == 1 ? "threads=3" : NULL);
        expect_same(&other, &reference, devices[i]);
    }
}

static void other_recipes_have_other_chains(void **state)
{
    static const char *const more[] = {"optimizer.lr=0.0030000001", "seed=2", "augment.flip=false"};
    outcome other;
    (void)state;
    for (size_t i = 0; i < of(0, ROOM(more)); i++) {
        run_on(&other, "devices=cpu:2", more[i]);
        for (uint32_t k = 0; k < 2; k++)
            assert_memory_not_equal(other.chain.state[k], reference.chain.state[k],
                                    LS_SHA256_BYTES);
    }
}

static void what_is_no_part_of_the_recipe_does_not_change_the_chain(void **state)
{
    static const char *const more[] = {"eval_every=1", "verify_every_steps=7", "name=other"};
    outcome other;
    (void)state;
    for (size_t i = 0; i < of(0, ROOM(more)); i++) {
        run_on(&other, "devices=cpu:1", more[i]);
        expect_same(&other, &reference, more[i]);
    }
}

static void a_lost_device_does_not_change_the_chain(void **state)
{
    /* the steps at and after a position, and a copy of the weights at a position */
    static const char *const faults[] = {"worker=1,step=100,kind=fail,stage=apply",
                                         "worker=0,step=101,kind=fail,stage=start",
                                         "worker=2,step=150,kind=fail,stage=merge"};
    (void)state;
    for (size_t i = 0; i < of(1, ROOM(faults)); i++) {
        fixture f;
        stopper s;
        outcome other;
        begin(&f, &s, "devices=cpu:3");
        f.sys.inject = faults + i;
        f.sys.inject_count = 1;
        run(&other, &f, &s);
        expect_same(&other, &reference, faults[i]);
    }
}

static int exists(const scratch *s, const char *run_dir, int steps)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-%09d.safetensors", s->directory, run_dir,
             steps);
    return access(path, F_OK) == 0;
}

static void a_resumed_run_has_the_same_chain_and_keeps_its_checkpoints(void **state)
{
    /* after the first position, before it, at it, and at the end of an epoch */
    static const uint64_t stops[] = {101, 57, 100, 190};
    scratch place;
    (void)state;
    scratch_begin(&place);
    for (size_t i = 0; i < of(0, ROOM(stops)); i++) {
        char run_dir[500], name[16], devices[32];
        fixture f;
        stopper s;
        outcome other;
        snprintf(name, sizeof name, "run-%d", (int)i);
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/%s", place.directory, name);
        begin(&f, &s, "devices=cpu:3");
        fixture_set(&f, run_dir);
        s.after = stops[i];
        run(&other, &f, &s);
        assert_int_equal(other.chain.count, stops[i] / 100);
        snprintf(devices, sizeof devices, "devices=cpu:%d", 1 + (int)i);
        begin(&f, &s, devices);
        fixture_set(&f, run_dir);
        f.options.resume = run_dir + strlen("run_dir=");
        run(&other, &f, &s);
        expect_same(&other, &reference, run_dir);
        assert_true(exists(&place, name, 100) && exists(&place, name, 200));
        assert_true(exists(&place, name, 230));
        assert_false(exists(&place, name, (int)stops[i]) && stops[i] != 100);
    }
    scratch_end(&place);
}

static void a_kept_checkpoint_has_the_state_of_its_entry(void **state)
{
    uint8_t found[LS_SHA256_BYTES];
    fixture f;
    stopper s;
    (void)state;
    for (int i = 1; i >= 0; i--) {
        begin(&f, &s, "devices=cpu:1");
        fixture_set(&f, kept_run);
        f.options.resume = kept_run + strlen("run_dir=");
        f.options.resume_at = (uint64_t)(i + 1) * 100;
        ls_trainer *t = fixture_open(&f);
        assert_int_equal(t->chain.count, i + 1);
        assert_int_equal(ls_hash_state(found, t, &f.err), LS_OK);
        assert_memory_equal(found, reference.chain.state[i], sizeof found);
        assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
        fixture_end(&f);
    }
}

/* ---- the receipt ---------------------------------------------------------------------------- */

/* Reads the receipt of a run. Returns its length; 0: there is none. */
static size_t read_receipt(char *out, size_t size, const char *run)
{
    char path[600];
    snprintf(path, sizeof path, "%s/receipt.json", run);
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    const size_t length = fread(out, 1, size - 1, file);
    out[length] = '\0';
    fclose(file);
    return length;
}

static void receipts_are_the_same_wherever_a_run_was_made(void **state)
{
    static char first[8192], other[8192];
    char run_dir[500];
    scratch place;
    fixture f;
    stopper s;
    outcome o;
    (void)state;
    scratch_begin(&place);
    const size_t length = read_receipt(first, sizeof first, kept_run + strlen("run_dir="));
    assert_true(length > 1000);
    assert_null(strstr(first, kept.directory));
    assert_non_null(strstr(first, reference.weights));
    assert_non_null(strstr(first, "\"end\":{\"steps\":230,"));
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/two", place.directory);
    begin(&f, &s, "devices=cpu:3");
    fixture_set(&f, run_dir);
    s.after = 111;
    run(&o, &f, &s);
    assert_int_equal(read_receipt(other, sizeof other, run_dir + strlen("run_dir=")), 0);
    begin(&f, &s, "devices=cpu:2");
    fixture_set(&f, run_dir);
    f.options.resume = run_dir + strlen("run_dir=");
    run(&o, &f, &s);
    assert_true(exists(&place, "two", 100) && exists(&place, "two", 200));
    assert_int_equal(read_receipt(other, sizeof other, run_dir + strlen("run_dir=")), length);
    assert_string_equal(other, first);
    scratch_end(&place);
}

static void a_run_that_cannot_be_verified_has_no_receipt(void **state)
{
    static const char *const more[] = {"shards=devices", "allreduce=naive", "receipt=false"};
    char run_dir[500], text[16];
    scratch place;
    (void)state;
    scratch_begin(&place);
    for (size_t i = 0; i < ROOM(more); i++) {
        fixture f;
        stopper s;
        outcome o;
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/run-%d", place.directory, (int)i);
        begin(&f, &s, "devices=cpu:2");
        fixture_set(&f, "epochs=1");
        fixture_set(&f, run_dir);
        fixture_set(&f, more[i]);
        run(&o, &f, &s);
        assert_int_equal(read_receipt(text, sizeof text, run_dir + strlen("run_dir=")), 0);
    }
    scratch_end(&place);
}

static void a_run_that_was_begun_without_receipt_cannot_get_one(void **state)
{
    char run_dir[500];
    fixture f;
    stopper s;
    outcome other;
    scratch place;
    ls_trainer *t;
    (void)state;
    scratch_begin(&place);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
    begin(&f, &s, "devices=cpu:2");
    fixture_set(&f, run_dir);
    fixture_set(&f, "receipt=false");
    s.after = 120;
    run(&other, &f, &s);
    assert_int_equal(other.chain.count, 0);
    begin(&f, &s, "devices=cpu:2");
    fixture_set(&f, run_dir);
    f.options.resume = run_dir + strlen("run_dir=");
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_ECONFIG);
    assert_non_null(strstr(f.err.text, "lacks hashes of earlier states"));
    assert_non_null(strstr(f.err.text, "set receipt to false"));
    fixture_end(&f);
    scratch_end(&place);
}

/* Resumes a run with an assignment, and checks that it is refused because it could not be verified
 * any more; `key` NULL: that it is not refused. */
static void resume_with(const char *run_dir, const char *assignment, const char *key)
{
    char said[120];
    fixture f;
    stopper s;
    ls_trainer *t = NULL;
    begin(&f, &s, "devices=cpu:2");
    fixture_set(&f, "schedule=constant");
    fixture_set(&f, run_dir);
    fixture_set(&f, assignment);
    f.options.resume = run_dir + strlen("run_dir=");
    const int status = ls_trainer_open(&t, &f.options, &f.err);
    snprintf(said, sizeof said, "%s: this run was evaluated with", key ? key : "");
    if (status != (key ? LS_ECONFIG : LS_OK))
        fail_msg("%s: status %d: %s", assignment, status, f.err.text);
    if (key && (!strstr(f.err.text, said) || !strstr(f.err.text, "cannot be verified")))
        fail_msg("%s: %s", assignment, f.err.text);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void a_run_that_is_evaluated_in_two_ways_gets_no_receipt(void **state)
{
    static const struct {
        const char *set, *key;
    } cases[] = {{"eval_every=2", "eval_every"},

                 {"monitor=loss", "monitor"},
                 {"metrics.names=[]", "metrics.names"},
                 {"epochs=30", NULL},
                 {"epochs=12", NULL},
                 {"epochs=11", "epochs"},
                 {"epochs=5", "epochs"},
                 {"checkpoint.keep=3", NULL}};
    char run_dir[500];
    scratch place;
    fixture f;
    stopper s;
    outcome o;
    (void)state;
    scratch_begin(&place);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
    begin(&f, &s, "devices=cpu:2");
    fixture_set(&f, "schedule=constant");
    fixture_set(&f, run_dir);
    s.after = 114; /* in epoch 12 */
    run(&o, &f, &s);
    for (size_t i = 0; i < ROOM(cases); i++)
        resume_with(run_dir, cases[i].set, cases[i].key);
    /* with the end of 23 epochs, after which eval_every 0 evaluates, there is no longer run */
    begin(&f, &s, "devices=cpu:2");
    fixture_set(&f, "schedule=constant");
    fixture_set(&f, run_dir);
    f.options.resume = run_dir + strlen("run_dir=");
    run(&o, &f, &s);
    resume_with(run_dir, "epochs=30", "epochs");
    scratch_end(&place);
}

/* ---- verification --------------------------------------------------------------------------- */

/* Writes a changed receipt. Links it anew, as a prover would who knows how. */
static void write_receipt(const char *run, cJSON *receipt)
{
    static ls_chain chain;
    uint8_t link[LS_SHA256_BYTES], state[LS_SHA256_BYTES];
    char hex[LS_SHA256_HEX], path[600];
    ls_sha256_from_hex(chain.first, cJSON_GetObjectItem(receipt, "first_weights")->valuestring);
    ls_chain_link(link, &chain, 0, 256);
    cJSON *list = cJSON_GetObjectItem(receipt, "chain");
    for (cJSON *e = list->child; e; e = e == cJSON_GetObjectItem(receipt, "end") ? NULL
                                        : e->next                                ? e->next
                                                  : cJSON_GetObjectItem(receipt, "end")) {
        ls_sha256_from_hex(state, cJSON_GetObjectItem(e, "state")->valuestring);
        ls_chain_follow(link, link, (uint64_t)cJSON_GetObjectItem(e, "steps")->valuedouble, state);
        ls_sha256_hex(hex, link);
        cJSON_ReplaceItemInObject(e, "link", cJSON_CreateString(hex));
    }
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_json_put_node(&w, NULL, receipt);
    snprintf(path, sizeof path, "%s/receipt.json", run);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file, "%s\n", ls_json_writer_text(&w, NULL, NULL));
    assert_int_equal(fclose(file), 0);
    ls_json_writer_fini(&w);
}

static ls_verdict verify(const char *run, int all)
{
    static const char *set[] = {"devices=cpu:1"};
    const ls_trainer_options o = {.size = sizeof o, .set = set, .set_count = 1};
    const ls_verify_options v = {
        .size = sizeof v, .run = run, .trainer = &o, .all = all, .seed = 1};
    ls_verdict verdict = {.size = sizeof verdict};
    ls_error err;
    if (ls_verify(&verdict, &v, &err) != LS_OK)
        fail_msg("%s", err.text);
    return verdict;
}

static void an_honest_run_is_verified_on_other_devices(void **state)
{
    const char *run = kept_run + strlen("run_dir=");
    (void)state;
    ls_verdict v = verify(run, 1);
    assert_string_equal(
        v.text, "verified: the whole training was replayed and ends with the same weights, after "
                "230 steps (23 epochs)");
    assert_true(v.holds && v.replayed == 3 && v.segment == -1);
    v = verify(run, 0);
    assert_string_equal(v.text, "not refuted: 2 of 3 segments were replayed, and nothing differs");
    assert_true(v.holds);
}

/* Changes the last digit of a hash. */
static void change_hash(cJSON *object, const char *key)
{
    char *hex = cJSON_GetObjectItem(object, key)->valuestring;
    hex[63] = hex[63] == '0' ? '1' : '0';
}

static void a_changed_receipt_is_refuted_with_the_place(void **state)
{
    static const struct {
        const char *what, *said;
        int segment;
    } cases[] = {{"entry 1", "segment 2 of 3, from step 101 to step 200", 1},
                 {"weights_sha256", "receipt.json: weights_sha256", -1},
                 {"first_weights", "receipt.json: first_weights", -1},
                 {"entry 0", "segment 1 of 3, from step 1 to step 100", 0},
                 {"end", "segment 3 of 3, from step 201 to step 230", 2},
                 {"training", "receipt.json: data.training.rows_sha256", -1},
                 {"test", "receipt.json: data.test.rows_sha256", -1},
                 {"evaluation", "receipt.json: evaluation.test_loss", -1},
                 {"seed", "config.json does not have the recipe", -1},
                 {"steps", "is after 199 steps, not after 200", -1},
                 {"shorter", "does not have 1 entries", -1}};
    static char text[8192];
    const char *run = kept_run + strlen("run_dir=");
    (void)state;
    assert_true(read_receipt(text, sizeof text, run) > 0);
    for (size_t i = 0; i < of(2, ROOM(cases)); i++) {
        const char *what = cases[i].what;
        cJSON *r = cJSON_Parse(text), *list = cJSON_GetObjectItem(r, "chain");
        if (strncmp(what, "entry", 5) == 0)
            change_hash(cJSON_GetArrayItem(list, what[6] - '0'), "state");
        else if (strcmp(what, "end") == 0)
            change_hash(cJSON_GetObjectItem(r, "end"), "state");
        else if (strcmp(what, "training") == 0 || strcmp(what, "test") == 0)
            change_hash(cJSON_GetObjectItem(cJSON_GetObjectItem(r, "data"), what), "rows_sha256");
        else if (strcmp(what, "evaluation") == 0)
            cJSON_SetNumberValue(
                cJSON_GetObjectItem(cJSON_GetObjectItem(r, "evaluation"), "test_loss"), 0.125);
        else if (strcmp(what, "seed") == 0)
            cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(r, "recipe"), "seed"), 77);
        else if (strcmp(what, "steps") == 0)
            cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetArrayItem(list, 1), "steps"), 199);
        else if (strcmp(what, "shorter") == 0)
            cJSON_DeleteItemFromArray(list, 1);
        else
            change_hash(r, what);
        write_receipt(run, r);
        cJSON_Delete(r);
        const ls_verdict v = verify(run, 1);
        if (v.holds || !strstr(v.text, cases[i].said) || v.segment != cases[i].segment)
            fail_msg("%s: %s (segment %d)", what, v.text, v.segment);
    }
}

/* A receipt of a version without some keys of recipe and evaluations, or without some metrics, is
 * no forgery: the keys have their defaults. A member that all receipts have must be there. */
static void a_receipt_may_lack_what_its_version_did_not_have(void **state)
{
    static const struct {
        const char *object, *key;
        int holds;
    } cases[] = {{"evaluations", "patience", 1}, {"recipe", "freeze_epochs", 1},
                 {"evaluation", "metrics", 1},   {"evaluation", "test_loss", 0},
                 {"hashed", "ema", 0},           {NULL, "weights_file_sha256", 0}};
    static char text[8192];
    const char *run = kept_run + strlen("run_dir=");
    (void)state;
    assert_true(read_receipt(text, sizeof text, run) > 0);
    for (size_t i = of(2, 0); i < of(5, ROOM(cases)); i++) {
        cJSON *r = cJSON_Parse(text), *node = r;
        if (cases[i].object)
            node = cJSON_GetObjectItem(r, cases[i].object);
        assert_non_null(cJSON_GetObjectItem(node, cases[i].key));
        cJSON_DeleteItemFromObject(node, cases[i].key);
        write_receipt(run, r);
        cJSON_Delete(r);
        const ls_verdict v = verify(run, 1);
        if (v.holds != cases[i].holds)
            fail_msg("without %s: %s", cases[i].key, v.text);
    }
    /* a member of a later version is no forgery either, but cannot be verified */
    const char *const programs[] = {"999.0.0", ls_version()};
    for (int i = 0; i < 2; i++) {
        static const char *set[] = {"devices=cpu:1"};
        const ls_trainer_options o = {.size = sizeof o, .set = set, .set_count = 1};
        const ls_verify_options asked = {.size = sizeof asked, .run = run, .trainer = &o, .all = 1};
        ls_verdict verdict = {.size = sizeof verdict};
        ls_error err;
        cJSON *r = cJSON_Parse(text);
        cJSON_ReplaceItemInObject(r, "program", cJSON_CreateString(programs[i]));
        cJSON_AddStringToObject(r, "energy", "1 J");
        write_receipt(run, r);
        cJSON_Delete(r);
        const int status = ls_verify(&verdict, &asked, &err);
        assert_int_equal(status, i == 0 ? LS_EUNSUPPORTED : LS_OK);
        if (i == 0)
            assert_non_null(strstr(err.text, "Lockstep 999.0.0 wrote it, and energy, which"));
        else
            assert_non_null(strstr(verdict.text, "receipt.json: energy"));
    }
    cJSON *r = cJSON_Parse(text);
    write_receipt(run, r);
    cJSON_Delete(r);
}

/* Trains the reference on from its first checkpoint, but with another number in a state of the
 * optimizer. */
static void forge(const char *run)
{
    fixture f;
    stopper s;
    begin(&f, &s, "devices=cpu:1");
    fixture_set(&f, kept_run);
    f.options.resume = run;
    f.options.resume_at = 100;
    ls_trainer *t = fixture_open(&f);
    ls_engine_weights(t->engine)->slot[1][t->model->param[0]->offset] += 0.25f;
    assert_int_equal(ls_engine_load(t->engine, 100, &f.err), LS_OK);
    if (ls_trainer_run(t, &f.err) != LS_OK)
        fail_msg("%s", f.err.text);
    assert_memory_equal(t->chain.state[0], reference.chain.state[0], LS_SHA256_BYTES);
    assert_memory_not_equal(t->chain.state[1], reference.chain.state[1], LS_SHA256_BYTES);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void a_forged_state_is_found_with_segment_step_and_tensors(void **state)
{
    const char *run = kept_run + strlen("run_dir=");
    (void)state;
    forge(run);
    const ls_verdict v = verify(run, 1);
    assert_false(v.holds);
    assert_int_equal(v.segment, 1);
    assert_in_range(v.step, 101, 103);
    assert_non_null(strstr(v.text, "segment 2 of 3, from step 101 to step 200"));
    assert_non_null(strstr(v.text, "the first record that differs is that of step 10"));
    assert_non_null(strstr(v.text, "other values: "));
}

LS_TESTS(train_verify, "integration long-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_run_is_verified_on_other_devices),
        cmocka_unit_test(a_receipt_may_lack_what_its_version_did_not_have),
        cmocka_unit_test(a_changed_receipt_is_refuted_with_the_place),
        cmocka_unit_test(a_forged_state_is_found_with_segment_step_and_tensors),
    };
    if (!has_backend("cpu"))
        return 77;
    return cmocka_run_group_tests(tests, make_reference, remove_reference);
}

LS_TESTS_LONG(train_verify, "nightly")

LS_TESTS(train_chain, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chain_is_the_same_on_any_number_of_workers),
        cmocka_unit_test(other_recipes_have_other_chains),
        cmocka_unit_test(what_is_no_part_of_the_recipe_does_not_change_the_chain),
        cmocka_unit_test(a_lost_device_does_not_change_the_chain),
        cmocka_unit_test(a_resumed_run_has_the_same_chain_and_keeps_its_checkpoints),
        cmocka_unit_test(a_kept_checkpoint_has_the_state_of_its_entry),
        cmocka_unit_test(receipts_are_the_same_wherever_a_run_was_made),
        cmocka_unit_test(a_run_that_cannot_be_verified_has_no_receipt),
        cmocka_unit_test(a_run_that_was_begun_without_receipt_cannot_get_one),
        cmocka_unit_test(a_run_that_is_evaluated_in_two_ways_gets_no_receipt),
    };
    if (!has_backend("cpu"))
        return 77;
    return cmocka_run_group_tests(tests, make_reference, remove_reference);
}

LS_TESTS_LONG(train_chain, "nightly")
