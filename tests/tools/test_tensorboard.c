/* SPDX-License-Identifier: MIT */
/* Tests TensorBoard's event files: framing, checksums, and the conversion of each record. */
#include "data/scratch.h"
#include "nn/nn_fixture.h"
#include "onnx_reader.h"
#include "records/sink.h"
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_worker_times slow = {.seconds = {9}};
static const ls_record step_1 = {.type = LS_RECORD_STEP,
                                 .of.step = {.step = 1,
                                             .rows = 256,
                                             .correct = 64,
                                             .loss = 2.5f,
                                             .lr = 0.125f,
                                             .gradient_norm = 4.5f,
                                             .images_per_s = 1000,
                                             .workers = 1,
                                             .worker = &slow}};
static const ls_record step_nan = {.type = LS_RECORD_STEP,
                                   .of.step = {.step = 300,
                                               .rows = 256,
                                               .correct = 64,
                                               .loss = NAN,
                                               .lr = 0.125f,
                                               .gradient_norm = NAN,
                                               .images_per_s = 1}};
static const ls_record eval_1 = {.type = LS_RECORD_EVAL, .of.eval = {0.5, 0.75, 1}};
static const ls_record resume_40 = {.type = LS_RECORD_RESUME, .of.start.step = 40};

typedef struct room {
    scratch s;
    ls_sink *sink;
    char path[800]; /* path of the only event file */
    uint8_t bytes[1 << 16];
    pb_reader rest;
} room;

static int enter(void **state)
{
    ls_error err;
    room *r = calloc(1, sizeof *r);
    scratch_begin(&r->s);
    must(ls_sink_tensorboard(&r->sink, r->s.directory, NULL, &err), &err);
    *state = r;
    return 0;
}

static int leave(void **state)
{
    room *r = *state;
    scratch_end(&r->s);
    free(r);
    return 0;
}

static void emit(room *r, const ls_record *record)
{
    ls_error err;
    must(r->sink->emit(r->sink, record, &err), &err);
}

/* Bit by bit, so that it shares nothing with the table of the sink. */
static uint32_t masked(const uint8_t *bytes, size_t count)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < 8 * count; i++) {
        c ^= bytes[i / 8] >> i % 8 & 1;
        c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0);
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xA282EAD8u;
}

static uint64_t little(const uint8_t *bytes, int count)
{
    uint64_t v = 0;
    for (int i = 0; i < count; i++)
        v |= (uint64_t)bytes[i] << 8 * i;
    return v;
}

static void close_and_read(room *r)
{
    ls_error err;
    must(r->sink->close(r->sink, &err), &err);
    DIR *d = opendir(r->s.directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strstr(e->d_name, "tfevents"))
            snprintf(r->path, sizeof r->path, "%s/%s", r->s.directory, e->d_name);
    closedir(d);
    FILE *f = fopen(r->path, "rb");
    assert_non_null(f);
    r->rest = (pb_reader){r->bytes, r->bytes + fread(r->bytes, 1, sizeof r->bytes, f)};
    fclose(f);
}

/* The next record's data, both checksums verified. */
static pb_reader next(room *r)
{
    const uint8_t *p = r->rest.at;
    assert_true(r->rest.end - p >= 16);
    const uint64_t count = little(p, 8);
    assert_true(count <= (uint64_t)(r->rest.end - p) - 16);
    assert_int_equal(little(p + 8, 4), masked(p, 8));
    assert_int_equal(little(p + 12 + count, 4), masked(p + 12, (size_t)count));
    r->rest.at += count + 16;
    return (pb_reader){p + 12, p + 12 + count};
}

/* The scalar of that name in an event; NaN: it has none. */
static double scalar(pb_reader event, const char *tag)
{
    char text[64];
    for (pb_field f; pb_next(&event, &f);) {
        if (f.number != 5)
            continue;
        const pb_field value = pb_find(pb_inside(&f), 1);
        const pb_field name = pb_find(pb_inside(&value), 1);
        const pb_field number = pb_find(pb_inside(&value), 2);
        if (strcmp(pb_text(text, sizeof text, &name), tag) == 0) {
            const uint32_t bits = (uint32_t)little(number.data, 4);
            float out;
            memcpy(&out, &bits, sizeof out);
            return (double)out;
        }
    }
    return (double)NAN;
}

static void the_first_record_names_the_version(void **state)
{
    char text[32];
    room *r = *state;
    close_and_read(r);
    const pb_field version = pb_find(next(r), 3);
    assert_string_equal(pb_text(text, sizeof text, &version), "brain.Event:2");
    assert_ptr_equal(r->rest.at, r->rest.end);
}

static void a_step_becomes_five_scalars(void **state)
{
    room *r = *state;
    emit(r, &step_1);
    close_and_read(r);
    next(r);
    const pb_reader e = next(r);
    assert_int_equal(pb_find(e, 2).value, 1);
    assert_int_equal(pb_find(e, 1).length, 8); /* wall time */
    assert_float_equal(scalar(e, "train/loss"), 2.5, 0);
    assert_float_equal(scalar(e, "train/accuracy"), 0.25, 0);
    assert_float_equal(scalar(e, "train/lr"), 0.125, 0);
    assert_float_equal(scalar(e, "train/grad_norm"), 4.5, 0);
    assert_float_equal(scalar(e, "train/images_per_s"), 1000, 0);
}

/* Emits a step and an evaluation. Returns the event of the latter. */
static pb_reader event_of_evaluation(room *r)
{
    emit(r, &step_nan);
    emit(r, &eval_1);
    close_and_read(r);
    next(r);
    next(r);
    return next(r);
}

static void an_evaluation_stands_at_the_step_before_it(void **state)
{
    const pb_reader e = event_of_evaluation(*state);
    assert_int_equal(pb_find(e, 2).value, 300);
    assert_float_equal(scalar(e, "test/loss"), 0.5, 0);
    assert_float_equal(scalar(e, "test/accuracy"), 0.75, 0);
}

static void rows_that_are_held_out_are_called_validation(void **state)
{
    room *r = *state;
    const ls_record start = {.type = LS_RECORD_RUN_START,
                             .of.start.summary.judged_by = "validation"};
    emit(r, &start);
    const pb_reader e = event_of_evaluation(r);
    assert_float_equal(scalar(e, "validation/loss"), 0.5, 0);
    assert_float_equal(scalar(e, "validation/accuracy"), 0.75, 0);
}

static void a_number_that_there_is_not_is_left_out(void **state)
{
    room *r = *state;
    emit(r, &step_nan);
    close_and_read(r);
    next(r);
    const pb_reader e = next(r);
    assert_true(isnan(scalar(e, "train/loss")));
    assert_float_equal(scalar(e, "train/accuracy"), 0.25, 0);
}

/* The events of later steps, which TensorBoard already has, are written again. */
static void a_resumed_run_starts_a_session_behind_its_step(void **state)
{
    room *r = *state;
    emit(r, &resume_40);
    close_and_read(r);
    next(r);
    const pb_reader e = next(r);
    assert_int_equal(pb_find(e, 2).value, 41);
    const pb_field session = pb_find(e, 7);
    assert_int_equal(pb_find(pb_inside(&session), 1).value, 1);
}

static void other_records_leave_nothing(void **state)
{
    room *r = *state;
    for (int type = 0; type < LS_RECORD_TYPES; type++)
        if (type != LS_RECORD_STEP && type != LS_RECORD_EVAL && type != LS_RECORD_RESUME)
            emit(r, &(ls_record){.type = (ls_record_type)type});
    close_and_read(r);
    next(r);
    assert_ptr_equal(r->rest.at, r->rest.end);
}

static void many_records_come_out_whole_and_in_order(void **state)
{
    room *r = *state;
    enum { STEPS = 400 }; /* more than the buffer holds */
    for (int i = 1; i <= STEPS; i++) {
        ls_record record = step_1;
        record.of.step.step = (uint64_t)i;
        record.of.step.loss = (float)i;
        emit(r, &record);
    }
    close_and_read(r);
    next(r);
    for (int i = 1; i <= STEPS; i++) {
        const pb_reader e = next(r);
        assert_int_equal(pb_find(e, 2).value, i);
        assert_float_equal(scalar(e, "train/loss"), i, 0);
    }
    assert_ptr_equal(r->rest.at, r->rest.end);
}

static void two_sinks_in_one_directory_write_two_files(void **state)
{
    room *r = *state;
    ls_sink *second;
    ls_error err;
    int files = 0;
    must(ls_sink_tensorboard(&second, r->s.directory, NULL, &err), &err);
    must(second->close(second, &err), &err);
    close_and_read(r);
    DIR *d = opendir(r->s.directory);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        files += strstr(e->d_name, "tfevents") != NULL;
    closedir(d);
    assert_int_equal(files, 2);
}

static void a_directory_that_is_not_there_is_named(void **state)
{
    room *r = *state;
    ls_sink *none;
    ls_error err;
    assert_int_equal(ls_sink_tensorboard(&none, "/nowhere/at/all", NULL, &err), LS_EIO);
    assert_non_null(strstr(err.text, "/nowhere/at/all/events.out.tfevents"));
    close_and_read(r);
}

static void lack_of_memory_is_reported_and_nothing_leaks(void **state)
{
    room *r = *state;
    for (long at = 1; at <= 2; at++) {
        counting_host h;
        ls_sink *none;
        ls_error err;
        counting_host_init(&h);
        h.fail_at = at;
        assert_int_equal(ls_sink_tensorboard(&none, r->s.directory, &h.host, &err), LS_ENOMEM);
        assert_int_equal(h.live, 0);
    }
    close_and_read(r);
}

LS_TESTS(tensorboard, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_record_names_the_version, enter, leave),
        cmocka_unit_test_setup_teardown(a_step_becomes_five_scalars, enter, leave),
        cmocka_unit_test_setup_teardown(an_evaluation_stands_at_the_step_before_it, enter, leave),
        cmocka_unit_test_setup_teardown(rows_that_are_held_out_are_called_validation, enter, leave),
        cmocka_unit_test_setup_teardown(a_number_that_there_is_not_is_left_out, enter, leave),
        cmocka_unit_test_setup_teardown(a_resumed_run_starts_a_session_behind_its_step, enter,
                                        leave),
        cmocka_unit_test_setup_teardown(other_records_leave_nothing, enter, leave),
        cmocka_unit_test_setup_teardown(many_records_come_out_whole_and_in_order, enter, leave),
        cmocka_unit_test_setup_teardown(two_sinks_in_one_directory_write_two_files, enter, leave),
        cmocka_unit_test_setup_teardown(a_directory_that_is_not_there_is_named, enter, leave),
        cmocka_unit_test_setup_teardown(lack_of_memory_is_reported_and_nothing_leaks, enter, leave),
    };
    return cmocka_run_group_tests_name("tensorboard", tests, NULL, NULL);
}
