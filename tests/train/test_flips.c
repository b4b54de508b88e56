/* SPDX-License-Identifier: MIT */
/* Tests that a flipped bit in a worker's copy of the model is noticed before anything is saved. A
 * bit flips after a step, in the weights, the optimizer's state, the moving average or the running
 * statistics. The run must then end with LS_EDIVERGED and must not save the state. After that, a
 * resumed run must get the weights of the undisturbed run, unless there is no checkpoint. The short
 * form samples the cases; the long form tries all of them, and in a build with a sanitizer some.
 * With FLIPS_CUDA the workers are GPUs over the doubles (tests/doubles). */
#include "checkpoint/checkpoint.h"
#include "data/scratch.h"
#include "runner.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6 /* two epochs of 3 */ };

/* Sets the devices of `workers` workers, and makes their back end known. */
#ifdef FLIPS_CUDA
#include "cuda_ops/cuda_backend.h"
#include "device/registry.h"

enum { LAG = 3 /* steps until a comparison (ls_engine_compare_lag) */ };

static void use_devices(fixture *f, int workers)
{
    static const char *const devices[] = {"devices=doubled:0", "devices=doubled:0,1",
                                          "devices=doubled:0,1,2"};
    static ls_backend doubled;
    test_cuda_begin(DBL_LAZY); /* no device is open; the doubles have memory for some runs only */
    doubled = *test_cuda_backend();
    doubled.name = "doubled"; /* the library finds the back end `cuda` itself */
    if (ls_registry_add(f->registry, &doubled, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    fixture_set(f, devices[workers - 1]);
}
#else
enum { LAG = 2 };

static void use_devices(fixture *f, int workers)
{
    static const char *const devices[2][3] = {{"devices=ref:1", "devices=ref:2", "devices=ref:3"},
                                              {"devices=cpu:1", "devices=cpu:2", "devices=cpu:3"}};
    fixture_set(f, devices[has_backend("cpu")][workers - 1]);
}
#endif

/* Returns whether the run has ended in the step in which a comparison finds a flip after step 1. */
static bool is_found_in_time(const fixture *f)
{
    char step[16];
    snprintf(step, sizeof step, "step %d: ", 1 + LAG);
    return strstr(f->err.text, step) != NULL;
}

/* A recipe, and the parts of its replicas. */
typedef struct recipe {
    const char *name;
    const char *set[4]; /* assignments of config keys */
    const char *part[5];
} recipe;

static const recipe recipes[] = {
    {"momentum", {"optimizer.momentum=0.9"}, {"weights", "slot0", "statistics"}},
    {"adamw",
     {"optimizer={\"name\":\"adamw\",\"lr\":0.001}", "ema=0.9", "threads=2"},
     {"weights", "slot0", "slot1", "average", "statistics"}},
    {"clipped", {"optimizer.clip_norm=0.5", "shards=2"}, {"weights", "statistics"}},
    /* each worker computes the total piece by piece in its update (comm/comm.h) */
    {"pieces",
     {"shards=2", "model={\"layers\":[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":10}]}"},
     {"weights", "slot0"}},
};

static void open_recipe(fixture *f, const recipe *r, int workers, const char *run_dir)
{
    fixture_begin(f);
    fixture_set(f, "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                   "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                   "{\"type\":\"dense\",\"out\":10}]}");
    fixture_set(f, "epochs=2");
    fixture_set(f, "shards=6");
    fixture_set(f, "checkpoint.every_steps=2");
    for (size_t i = 0; i < ROOM(r->set) && r->set[i]; i++)
        fixture_set(f, r->set[i]);
    use_devices(f, workers);
    fixture_set(f, run_dir);
}

static const char *undisturbed(const recipe *r)
{
    fixture f;
    static char hash[65];
    open_recipe(&f, r, 2, "run_dir=null");
    memcpy(hash, fixture_hash(&f), sizeof hash);
    fixture_end(&f);
    return hash;
}

/* Continues the run in `directory`. */
static void resume(const recipe *r, scratch *s, const char *hash, const char *what)
{
    fixture f;
    char run_dir[600];
    ls_trainer *t;
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(s, "run"));
    open_recipe(&f, r, 1, run_dir);
    f.options.resume = "latest";
    const int status = ls_trainer_open(&t, &f.options, &f.err);
    if (status == LS_OK) {
        assert_int_equal(ls_trainer_run(t, &f.err), LS_OK);
        if (strcmp(ls_trainer_result(t)->weights_sha256, hash) != 0)
            fail_msg("%s: the resumed run has other weights", what);
        assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    } else if (!strstr(f.err.text, "has no checkpoint"))
        fail_msg("%s: %s", what, f.err.text);
    fixture_end(&f);
}

typedef struct flip {
    int workers, worker, step, bit;
    const char *part;
} flip;

static void flip_one(const recipe *r, const flip *c, const char *hash)
{
    fixture f;
    scratch s;
    char run_dir[600], fault[120], what[200];
    const char *faults[] = {fault};
    scratch_begin(&s);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(&s, "run"));
    open_recipe(&f, r, c->workers, run_dir);
    snprintf(fault, sizeof fault, "worker=%d,step=%d,kind=corrupt,part=%s,bit=%d,index=3",
             c->worker, c->step, c->part, c->bit);
    snprintf(what, sizeof what, "%s, %d workers, %s", r->name, c->workers, fault);
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&f);
    const int status = ls_trainer_run(t, &f.err);
    if (status != LS_EDIVERGED)
        fail_msg("%s: %s, %s", what, ls_status_name(status), f.err.text);
    if (c->workers > 2) {
        char odd[40];
        snprintf(odd, sizeof odd, "(%d) has another copy", c->worker);
        if (!strstr(f.err.text, odd))
            fail_msg("%s: the wrong worker is not named: %s", what, f.err.text);
    }
    assert_string_equal(ls_trainer_result(t)->weights_sha256, "");
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
    for (int step = 0; step <= STEPS; step++) { /* the state after the flip is not saved */
        char name[LS_CHECKPOINT_NAME], path[100];
        ls_checkpoint_name(name, (uint64_t)step);
        snprintf(path, sizeof path, "run/checkpoints/%s", name);
        if (access(scratch_path(&s, path), F_OK) == 0 && step >= c->step)
            fail_msg("%s: %s was saved", what, name);
    }
    assert_int_equal(access(scratch_path(&s, "run/weights.safetensors"), F_OK), -1);
    resume(r, &s, hash, what);
    scratch_end(&s);
}

/* Flips a bit in a run of one epoch without checkpoints, in which only the steps compare. */
static void flip_between_steps(const recipe *r, const flip *c, const char *hash)
{
    fixture f;
    char fault[120], found[24];
    const char *faults[] = {fault};
    (void)hash;
    open_recipe(&f, r, c->workers, "run_dir=null");
    fixture_set(&f, "epochs=1");
    fixture_set(&f, "batch_size=8");
    fixture_set(&f, "checkpoint.every_steps=0");
    snprintf(fault, sizeof fault, "worker=%d,step=%d,kind=corrupt,part=%s,bit=%d,index=3",
             c->worker, c->step, c->part, c->bit);
    snprintf(found, sizeof found, "step %d: ", c->step + LAG);
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&f);
    const int status = ls_trainer_run(t, &f.err);
    /* AdamW takes the root of slot1. Of a negative number that is a NaN, which can end the run
     * before the step that compares; the end compares too. */
    const bool is_negative_root = strcmp(c->part, "slot1") == 0 && c->bit == 31;
    const bool in_time = is_negative_root || strncmp(f.err.text, found, strlen(found)) == 0;
    if (status != LS_EDIVERGED || !in_time)
        fail_msg("%s, %d workers, %s: %s, %s", r->name, c->workers, fault, ls_status_name(status),
                 f.err.text);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* Share of the cases in the long form; the accesses that a sanitizer checks are those of any case
 */
enum { EVERY_LONG = SLOW_BUILD ? 7 : 1 };

/* Calls `try` for each recipe, part, step, bit and worker of 2 and 3 workers; in the short form for
 * one of `every` of these cases, in the long form for one of `every_long`. */
static void try_flips(void (*try)(const recipe *r, const flip *c, const char *hash), unsigned every,
                      unsigned every_long)
{
    static const int bits[] = {0, 15, 31};
    unsigned number = 0;
    for (size_t i = 0; i < ROOM(recipes); i++) {
        const recipe *r = &recipes[i];
        char hash[65];
        memcpy(hash, undisturbed(r), sizeof hash);
        for (size_t p = 0; p < ROOM(r->part) && r->part[p]; p++)
            for (int step = 1; step <= STEPS; step++)
                for (size_t b = 0; b < ROOM(bits); b++)
                    for (int workers = 2; workers <= 3; workers++)
                        for (int worker = 0; worker < workers; worker++) {
                            const flip c = {workers, worker, step, bits[b], r->part[p]};
                            const bool two_shards = i >= 2;
                            if (two_shards && workers > 2)
                                continue;
                            if (number++ % ls_tests_rounds(every, every_long) == 0)
                                try(r, &c, hash);
                        }
    }
}

static void no_flipped_bit_is_saved(void **state)
{
    (void)state;
    try_flips(flip_one, 71, LAG == 2 ? EVERY_LONG : 7);
}

static void steps_find_every_flipped_bit(void **state)
{
    (void)state;
    try_flips(flip_between_steps, 59, EVERY_LONG);
}

/* The bit flips after step 1, and the momentum is so small that step 2 rounds it away. The states
 * after step 2 are equal, so only the digests show the difference to the save. */
static void a_bit_that_was_rounded_away_is_not_saved(void **state)
{
    static const recipe small = {.name = "small momentum", .set = {"optimizer.momentum=1e-7"}};
    static const char *const faults[] = {"worker=1,step=1,kind=corrupt,part=slot0,bit=0,index=3"};
    scratch *s = *state;
    fixture f;
    char run_dir[600];
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(s, "run"));
    open_recipe(&f, &small, 2, run_dir);
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EDIVERGED);
    assert_non_null(strstr(f.err.text, "after step 2: "));
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* A layer that is not trained has parameters that no update reads. */
static void a_flipped_bit_in_a_frozen_layer_is_noticed(void **state)
{
    static const char *const faults[] = {"worker=1,step=1,kind=corrupt,index=0"};
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                    "{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                    "{\"type\":\"dense\",\"name\":\"last\",\"out\":10}]}");
    fixture_set(&f, "freeze=[\"last.*\"]");
    fixture_set(&f, "batch_size=16"); /* the first epoch, after which all compare, has 6 steps */
    use_devices(&f, 2);
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EDIVERGED);
    assert_true(is_found_in_time(&f));
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void another_all_reduce_compares_too(void **state)
{
    static const char *const faults[] = {"worker=1,step=1,kind=corrupt,bit=31"};
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, LAG == 2 ? "allreduce=naive" : "allreduce=nccl");
    fixture_set(&f, "batch_size=16");
    use_devices(&f, 2);
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EDIVERGED);
    assert_true(is_found_in_time(&f));
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* A step whose loss is not finite has no update that could sum the state. */
static void a_flipped_bit_in_a_skipped_step_is_noticed(void **state)
{
    static const char *const faults[] = {"worker=1,step=1,kind=corrupt,bit=30",
                                         "worker=0,step=1,kind=nan", "worker=0,step=2,kind=nan"};
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "on_nonfinite=skip");
    fixture_set(&f, "batch_size=16");
    use_devices(&f, 2);
    f.sys.inject = faults;
    f.sys.inject_count = 3;
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EDIVERGED);
    assert_true(is_found_in_time(&f));
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* ---- checkpoints that were set aside --------------------------------------------------------- */

/* Runs the first recipe in the directory `run` of the scratch. */
static void run_whole(scratch *s)
{
    fixture f;
    char run_dir[600];
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(s, "run"));
    open_recipe(&f, &recipes[0], 2, run_dir);
    fixture_set(&f, "checkpoint.keep=9");
    assert_int_equal(ls_trainer_close(fixture_run(&f), NULL), LS_OK);
    fixture_end(&f);
}

/* Resumes the run from the checkpoint after `at` steps, or from the newest if `at` is 0. Checks
 * that the run goes on after `from` steps and ends with the weights of the undisturbed run. */
static void resume_at(scratch *s, uint64_t at, uint64_t from, bool doubtful, const char *hash)
{
    fixture f;
    char run_dir[600];
    ls_trainer *t;
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(s, "run"));
    open_recipe(&f, &recipes[0], 1, run_dir);
    fixture_set(&f, "checkpoint.keep=9");
    f.options.resume = "latest";
    f.options.resume_at = at;
    if (ls_trainer_open(&t, &f.options, &f.err) != LS_OK)
        fail_msg("%s", f.err.text);
    assert_true(ls_trainer_summary(t)->resumed_steps == from);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_OK);
    assert_string_equal(ls_trainer_result(t)->weights_sha256, hash);
    assert_non_null(strstr(fixture_record(&f, "resume", 0),
                           doubtful ? "\"doubtful\":true" : "\"doubtful\":false"));
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void set_aside(scratch *s, uint64_t after, int expected)
{
    int count = -1;
    assert_int_equal(
        ls_checkpoints_set_aside(&count, scratch_path(s, "run/checkpoints"), after, NULL, NULL),
        LS_OK);
    assert_int_equal(count, expected);
}

static void a_run_continues_from_a_checkpoint_that_is_not_doubtful(void **state)
{
    scratch *s = *state;
    char hash[65];
    memcpy(hash, undisturbed(&recipes[0]), sizeof hash);
    run_whole(s); /* saves after steps 2, 3, 4, and 6 */
    set_aside(s, 3, 2);
    resume_at(s, 0, 3, false, hash);
    /* the steps have been done and saved again */
    assert_int_equal(
        access(scratch_path(s, "run/checkpoints/doubtful-000000004.safetensors"), F_OK), -1);
    assert_int_equal(access(scratch_path(s, "run/checkpoints/step-000000004.safetensors"), F_OK),
                     0);
}

static void a_doubtful_checkpoint_is_used_only_if_it_is_asked_for(void **state)
{
    scratch *s = *state;
    fixture f;
    char hash[65], run_dir[600];
    ls_trainer *t;
    memcpy(hash, undisturbed(&recipes[0]), sizeof hash);
    run_whole(s);
    set_aside(s, 0, 4);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(s, "run"));
    open_recipe(&f, &recipes[0], 1, run_dir);
    f.options.resume = "latest";
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_EDATA);
    assert_non_null(strstr(f.err.text, "all checkpoints were set aside"));
    assert_non_null(strstr(f.err.text, "--at 2"));
    f.options.resume_at = 5;
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_ENOENT);
    assert_non_null(strstr(f.err.text, "there is no checkpoint after step 5"));
    fixture_end(&f);
    resume_at(s, 4, 4, true, hash);
}

/* A run can save a state that it cannot compare with the other hosts, and find later that the hosts
 * differ. */
static void checkpoints_after_the_last_agreement_are_set_aside(void **state)
{
    scratch *s = *state;
    fixture f;
    char run_dir[600];
    ls_error err = {.status = LS_EDIVERGED, .text = "a and b differ"};
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(s, "run"));
    open_recipe(&f, &recipes[0], 2, run_dir);
    fixture_set(&f, "checkpoint.keep=9");
    ls_trainer *t = fixture_run(&f);
    assert_true(t->agreement.steps == STEPS);
    t->agreement.steps = 3;
    ls_agreement_lost(t, &err);
    assert_string_equal(
        err.text, "a and b differ; a device or its memory is faulty; all copies were last known to "
                  "be equal after step 3; 2 later checkpoints were set aside; --resume continues "
                  "from checkpoints/step-000000003.safetensors");
    assert_int_equal(
        access(scratch_path(s, "run/checkpoints/doubtful-000000006.safetensors"), F_OK), 0);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* Whoever goes back doubts what comes after. Otherwise the next --resume would begin there, while
 * the records end earlier. */
static void going_back_sets_later_checkpoints_aside(void **state)
{
    scratch *s = *state;
    char hash[65];
    memcpy(hash, undisturbed(&recipes[0]), sizeof hash);
    run_whole(s);
    resume_at(s, 2, 2, false, hash);
    resume_at(s, 4, 4, false, hash);
    set_aside(s, 0, 4);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_flipped_bit_is_saved),
        cmocka_unit_test(steps_find_every_flipped_bit),
        IN_SCRATCH(a_bit_that_was_rounded_away_is_not_saved),
        cmocka_unit_test(a_flipped_bit_in_a_frozen_layer_is_noticed),
        cmocka_unit_test(another_all_reduce_compares_too),
        cmocka_unit_test(a_flipped_bit_in_a_skipped_step_is_noticed),
        IN_SCRATCH(a_run_continues_from_a_checkpoint_that_is_not_doubtful),
        IN_SCRATCH(a_doubtful_checkpoint_is_used_only_if_it_is_asked_for),
        IN_SCRATCH(checkpoints_after_the_last_agreement_are_set_aside),
        IN_SCRATCH(going_back_sets_later_checkpoints_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#ifdef FLIPS_CUDA
LS_TESTS(cuda_flips, "integration doubles no-tsan")
{
    return run_all();
}

LS_TESTS_LONG(cuda_flips, "nightly doubles no-tsan no-asan")
#else
LS_TESTS(train_flips, "integration")
{
    return run_all();
}

LS_TESTS_LONG(train_flips, "nightly")
#endif
