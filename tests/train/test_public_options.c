/* SPDX-License-Identifier: MIT */
/* Tests the structures that a program passes to a trainer or gets from it: structures of other
 * versions, structures with texts, and structures for results. */
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <stdlib.h>
#include <string.h>

typedef struct counts {
    int held, calls;
} counts;

static void *take(void *user, size_t bytes, size_t align)
{
    counts *c = user;
    c->held++;
    c->calls++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    ((counts *)user)->held--;
    free(memory);
}

static void a_text_goes_back_to_the_host_that_it_came_from(void **state)
{
    counts c = {0};
    const ls_host host = {.size = sizeof host, .alloc = take, .free = give_back, .user = &c};
    fixture f;
    char *text;
    (void)state;
    fixture_begin(&f);
    f.options.host = &host;
    assert_int_equal(ls_config_resolve(&text, &f.options, &f.err), LS_OK);
    assert_non_null(strstr(text, "\"batch_size\": 32"));
    assert_int_equal(c.held, 1);
    ls_text_free(text);
    assert_int_equal(c.held, 0);
    assert_true(c.calls > 0);
    ls_text_free(NULL);
    fixture_end(&f);
}

static void refuses(fixture *f, const char *says)
{
    ls_trainer *t = NULL;
    assert_int_equal(ls_trainer_open(&t, &f->options, &f->err), LS_EINVAL);
    assert_null(t);
    if (!strstr(f->err.text, says))
        fail_msg("expected \"%s\" in: %s", says, f->err.text);
}

static void each_structure_says_its_size(void **state)
{
    fixture f;
    const ls_data_source source = {.name = "mine", .channels = 1, .height = 1, .width = 1};
    const ls_data_source *const sources[] = {&source};
    (void)state;
    fixture_begin(&f);
    f.options.size = 0;
    refuses(&f, "ls_trainer_options: `size` is not set");
    f.options.size = sizeof f.options;
    f.callbacks.size = 0;
    refuses(&f, "ls_trainer_callbacks: `size` is not set");
    f.callbacks.size = sizeof f.callbacks;
    f.cluster.size = 0;
    refuses(&f, "ls_trainer_cluster: `size` is not set");
    f.cluster.size = sizeof f.cluster;
    const ls_tcp_place place = {.size = sizeof place};
    f.cluster.tcp = &place;
    f.cluster.mpi_comm = &f;
    refuses(&f, "ls_trainer_cluster: set one of tcp, mpi_comm and transport, not several");
    f.cluster.mpi_comm = NULL;
    f.cluster.transport = ls_transport_tcp();
    refuses(&f, "ls_trainer_cluster: set one of tcp, mpi_comm and transport, not several");
    f.cluster.tcp = NULL;
    f.cluster.transport = NULL;
    const ls_host unset = {0}, *host = f.options.host;
    f.options.host = &unset;
    refuses(&f, "ls_host: `size` is not set");
    f.options.host = host;
    f.sys.size = 0;
    refuses(&f, "ls_trainer_sys: `size` is not set");
    f.sys.size = sizeof f.sys;
    f.options.sources = sources;
    f.options.source_count = 1;
    refuses(&f, "ls_data_source: `size` is not set");
    fixture_end(&f);
}

static void without_callbacks_a_run_is_silent_and_the_same(void **state)
{
    fixture f;
    char told[65];
    (void)state;
    fixture_begin(&f);
    memcpy(told, fixture_hash(&f), sizeof told);
    f.options.callbacks = NULL;
    f.options.cluster = NULL;
    f.options.sys = NULL;
    assert_string_equal(fixture_hash(&f), told);
    fixture_end(&f);
}

/* Only the program `trainer` makes a directory below runs/ without being told. */
static void without_run_dir_a_run_writes_nothing(void **state)
{
    fixture f;
    char *text;
    (void)state;
    fixture_begin(&f);
    f.options.config_text =
        "{\"data\": {\"name\": \"synthetic\", \"limit\": 64}, \"batch_size\": 32, \"devices\": \"ref:1\","
        " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]},"
        " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1}}";
    f.options.set = NULL;
    f.options.set_count = 0;
    assert_int_equal(ls_config_resolve(&text, &f.options, &f.err), LS_OK);
    assert_non_null(strstr(text, "\"run_dir\": \"\""));
    ls_text_free(text);
    ls_trainer *t = fixture_open(&f);
    assert_string_equal(ls_trainer_summary(t)->run_dir, "");
    assert_int_equal(ls_trainer_save(t, NULL, &f.err), LS_EINVAL);
    ls_trainer_close(t, NULL);
    f.sys.program = "trainer";
    assert_int_equal(ls_config_resolve(&text, &f.options, &f.err), LS_OK);
    assert_null(strstr(text, "\"run_dir\""));
    ls_text_free(text);
    fixture_end(&f);
}

static void too_little_room_is_refused_and_nothing_is_written(void **state)
{
    fixture f;
    float scores[2 * 10] = {7};
    static uint8_t images[2 * 28 * 28];
    (void)state;
    fixture_begin(&f);
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(own_predict(t, images, LS_ROW_U8, 2, scores, 19, &f.err), LS_EINVAL);
    assert_non_null(strstr(f.err.text, "room for 19 values, 20 are needed"));
    assert_true(scores[0] == 7);
    assert_int_equal(own_predict(t, images, LS_ROW_U8, 2, scores, 20, &f.err), LS_OK);
    const size_t all = ls_trainer_summary(t)->parameters;
    float *weights = calloc(all, sizeof *weights);
    assert_int_equal(ls_trainer_weights(t, weights, all - 1, &f.err), LS_EINVAL);
    assert_non_null(strstr(f.err.text, "ls_trainer_weights: room for"));
    assert_int_equal(ls_trainer_weights(t, weights, all, &f.err), LS_OK);
    free(weights);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

LS_TESTS(train_public_options, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_goes_back_to_the_host_that_it_came_from),
        cmocka_unit_test(each_structure_says_its_size),
        cmocka_unit_test(without_callbacks_a_run_is_silent_and_the_same),
        cmocka_unit_test(without_run_dir_a_run_writes_nothing),
        cmocka_unit_test(too_little_room_is_refused_and_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
