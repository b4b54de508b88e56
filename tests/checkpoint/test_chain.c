/* SPDX-License-Identifier: MIT */
/* Tests the positions of the chain, its links, and what the hash of a state depends on. */
#include "checkpoint/chain.h"

#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- positions ------------------------------------------------------------------------------ */

static void positions_follow_from_the_batch_size_alone(void **state)
{
    static const uint64_t want[] = {100,  200,  300,  400,  500,  600,  700,  800,  900,
                                    1000, 1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800,
                                    1900, 2000, 2100, 2200, 2300, 2400, 2500, 2600, 2700,
                                    2800, 2900, 3000, 3100, 3200, 3400, 3600};
    uint64_t at = 0;
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(at = ls_chain_next(at, 256), want[i]);
    assert_int_equal(ls_chain_next(6200, 1000), 6400);
    assert_int_equal(ls_chain_next(6400, 1000), 6800);
    assert_int_equal(ls_chain_next(0, 1), 25600);
    assert_int_equal(ls_chain_next(0, 100), 256);
    assert_int_equal(ls_chain_next(0, 255), 101);
    assert_int_equal(ls_chain_count(2350, 256), 23);
    assert_int_equal(ls_chain_count(1000000, 256), 163);
    assert_int_equal(ls_chain_count(UINT64_C(1) << 53, 1 << 20), 692);
    assert_in_range(692, 1, LS_CHAIN_MOST);
}

static void a_position_is_found_from_any_step(void **state)
{
    static const uint32_t batch[] = {1, 7, 128, 256, 5000};
    (void)state;
    for (size_t b = 0; b < sizeof batch / sizeof *batch; b++) {
        uint32_t count = 0;
        for (uint64_t steps = 0; steps < 20000; steps++) {
            count += ls_chain_has(steps, batch[b]);
            if (steps % 100 < 2)
                assert_int_equal(ls_chain_count(steps, batch[b]), count);
            assert_true(ls_chain_has(ls_chain_next(steps, batch[b]), batch[b]));
            assert_true(ls_chain_next(steps, batch[b]) > steps);
        }
    }
}

static void links_depend_on_each_entry_and_on_its_position(void **state)
{
    static ls_chain chain;
    uint8_t entry[LS_SHA256_BYTES] = {1}, link[LS_SHA256_BYTES], other[LS_SHA256_BYTES];
    char hex[LS_SHA256_HEX];
    (void)state;
    chain.count = 0;
    ls_chain_link(link, &chain, 0, 256);
    ls_sha256_hex(hex, link);
    assert_string_equal(hex, "b1779348d85d215ce8643513989da8cc5589c3461681a8c95634e5aab61d6ea4");
    for (int i = 0; i < 3; i++) {
        entry[1] = (uint8_t)i;
        ls_chain_add(&chain, entry);
    }
    ls_chain_link(link, &chain, 3, 256);
    ls_sha256_hex(hex, link);
    assert_string_equal(hex, "bae3914733a2185763decdf67addf3d9e6e8b1121685afeac1a77fd57e77d246");
    ls_chain_link(other, &chain, 3, 128); /* other positions */
    assert_memory_not_equal(other, link, sizeof link);
    chain.state[0][31] ^= 1;
    ls_chain_link(other, &chain, 3, 256);
    assert_memory_not_equal(other, link, sizeof link);
}

/* ---- the state hash ------------------------------------------------------------------------- */

#define FORM                                                                                        \
    "{\"name\": \"%s\", \"devices\": \"%s\", \"data\": {\"name\": \"npy\", \"path\": \"%s\","       \
    " \"x\": \"%s\", \"y\": \"y.npy\"}, \"batch_size\": %d, \"epochs\": %d, \"ema\": 0.5,"          \
    " \"init\": {\"name\": \"%s\"}, \"receipt\": true,"                                             \
    " \"optimizer\": {\"name\": \"adamw\", \"lr\": %g},"                                            \
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"name\": \"c\", \"out\": 2, \"kernel\": 1}," \
    " {\"type\": \"batch_norm\", \"name\": \"n\"}, {\"type\": \"flatten\"},"                        \
    " {\"type\": \"dense\", \"name\": \"d\", \"out\": 2}]}}"

/* A state of a small network, and what it is made from. */
typedef struct subject {
    char text[1200];
    ls_config config;
    ls_network *model;
    float *values[1 + LS_STATES];
    ls_position position;
    ls_hashed hashed;
} subject;

static void begin(subject *s, const char *text)
{
    ls_error err;
    memset(s, 0, sizeof *s);
    snprintf(s->text, sizeof s->text, "%s", text);
    const ls_trainer_options options = {.config_text = s->text};
    if (ls_config_read(&s->config, &options, &err) != LS_OK ||
        ls_network_parse(&s->model, s->config.doc, s->config.model, (ls_shape){1, 2, 2}, 2, NULL,
                         &err) != LS_OK)
        fail_msg("%s", err.text);
    for (int k = 0; k <= ls_optimizer_states(&s->config.optimizer); k++) {
        s->values[k] = calloc(s->model->floats, sizeof(float));
        for (size_t i = 0; i < s->model->floats; i++)
            s->values[k][i] = (float)k + (float)i / 64;
    }
    s->position.steps = 300;
    s->hashed = (ls_hashed){s->model, &s->config, 4, &s->position,
                            (ls_checkpoint_values){s->values[0], s->values + 1}};
}

static void end(subject *s)
{
    for (int k = 0; k <= LS_STATES; k++)
        free(s->values[k]);
    ls_network_destroy(s->model, NULL);
    ls_config_fini(&s->config);
}

static void hash_of(char hex[LS_SHA256_HEX], const subject *s)
{
    uint8_t digest[LS_SHA256_BYTES];
    ls_error err;
    if (ls_state_sha256(digest, &s->hashed, &err) != LS_OK)
        fail_msg("%s", err.text);
    ls_sha256_hex(hex, digest);
}

static void begin_usual(subject *s)
{
    char text[1200];
    snprintf(text, sizeof text, FORM, "a", "cpu:1", "here", "x.npy", 32, 2, "kaiming", 0.5);
    begin(s, text);
}

static void expect(const subject *s, const char *usual, bool same, const char *what)
{
    char hex[LS_SHA256_HEX];
    hash_of(hex, s);
    if ((strcmp(hex, usual) == 0) != same)
        fail_msg("%s: the hash %s", what, same ? "changes" : "does not change");
}

static bool is_statistic(const ls_network *model, const ls_param *p)
{
    bool found = false;
    for (int i = 0; i < model->stats; i++)
        found |= model->stat[i] == p;
    return found;
}

static void every_value_on_which_a_step_depends_changes_the_hash(void **state)
{
    subject s;
    char usual[LS_SHA256_HEX];
    (void)state;
    begin_usual(&s);
    hash_of(usual, &s);
    assert_int_equal(ls_optimizer_states(&s.config.optimizer), 3);
    assert_int_equal(s.model->stats, 2);
    for (int k = 0; k <= 3; k++)
        for (int i = 0; i < s.model->params + s.model->stats; i++) {
            const ls_param *p = s.model->tensor[i];
            float *last = s.values[k] + p->offset + p->count - 1, before = *last;
            *last = nextafterf(before, 9);
            /* the states of the optimizer have no running statistics: those of the average are
             * copies, and the others mean nothing */
            expect(&s, usual, k > 0 && is_statistic(s.model, p), p->name);
            *last = before;
        }
    s.position.steps++;
    expect(&s, usual, false, "steps");
    s.position.steps--;
    s.position.lr = 0.5;
    expect(&s, usual, false, "lr");
    s.position.lr = 0;
    s.hashed.shards = 2;
    expect(&s, usual, false, "shards");
    s.hashed.shards = 4;
    expect(&s, usual, true, "nothing");
    end(&s);
}

static void results_and_times_do_not_change_the_hash(void **state)
{
    subject s;
    char usual[LS_SHA256_HEX];
    (void)state;
    begin_usual(&s);
    hash_of(usual, &s);
    s.position.trained_s = s.position.totals.seconds = 3;
    s.position.totals.loss = s.position.least_loss = 2;
    s.position.best.epoch = s.position.epoch = s.position.step = 1;
    s.position.recorded = true;
    expect(&s, usual, true, "results");
    end(&s);
}

static void places_and_devices_do_not_change_the_hash(void **state)
{
    static const struct {
        const char *name, *devices, *path, *x, *init;
        int batch, epochs;
        double lr;
        bool same;
    } other[] = {{"b", "cpu:1", "here", "x.npy", "kaiming", 32, 2, 0.5, true},
                 {"a", "cpu:3", "here", "x.npy", "kaiming", 32, 2, 0.5, true},
                 {"a", "cpu:1", "/there", "x.npy", "kaiming", 32, 2, 0.5, true},
                 {"a", "cpu:1", "here", "/home/me/x.npy", "kaiming", 32, 2, 0.5, true},
                 {"a", "cpu:1", "here", "x.npy", "xavier", 32, 2, 0.5, true},
                 {"a", "cpu:1", "here", "x.npy", "kaiming", 32, 7, 0.5, true},
                 {"a", "cpu:1", "here", "x.npy", "kaiming", 33, 2, 0.5, false},
                 {"a", "cpu:1", "here", "x.npy", "kaiming", 32, 2, 0.25, false}};
    subject usual, s;
    char hash[LS_SHA256_HEX], text[1200];
    (void)state;
    begin_usual(&usual);
    hash_of(hash, &usual);
    end(&usual);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        snprintf(text, sizeof text, FORM, other[i].name, other[i].devices, other[i].path,
                 other[i].x, other[i].batch, other[i].epochs, other[i].init, other[i].lr);
        begin(&s, text);
        expect(&s, hash, other[i].same, text);
        end(&s);
    }
}

LS_TESTS(checkpoint_chain, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_follow_from_the_batch_size_alone),
        cmocka_unit_test(a_position_is_found_from_any_step),
        cmocka_unit_test(links_depend_on_each_entry_and_on_its_position),
        cmocka_unit_test(every_value_on_which_a_step_depends_changes_the_hash),
        cmocka_unit_test(results_and_times_do_not_change_the_hash),
        cmocka_unit_test(places_and_devices_do_not_change_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
