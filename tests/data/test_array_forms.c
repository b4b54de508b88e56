/* SPDX-License-Identifier: MIT */
/* Tests arrays in the forms that users have: .npz files, channels last, and targets that are
 * one-hot, numbered from 1, or floats. */
#include "data/dataset.h"
#include "data/new_rows.h"
#include "data/npy.h"
#include "data/scratch.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

static void add_number(bytes *b, uint64_t v, size_t n)
{
    uint8_t little[8];
    for (size_t i = 0; i < n; i++)
        little[i] = (uint8_t)(v >> 8 * i);
    bytes_add(b, little, n);
}

static bytes npy(const char *type, const char *shape, const void *data, size_t count)
{
    char text[117];
    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type,
             shape);
    return bytes_npy(text, data, count);
}

/* ---- archives -------------------------------------------------------------------------------- */

typedef struct archive {
    bytes file, directory;
    unsigned members;
} archive;

/* Adds a member (a file in the archive) as numpy.savez (stored) or numpy.savez_compressed writes
 * it: with sizes of 64 bits in the header before it. */
static void add_member(archive *z, const char *name, const bytes *b, int deflated)
{
    bytes packed = *b;
    const uint64_t at = z->file.count;
    const uint32_t crc = (uint32_t)crc32(0, b->at, (uInt)b->count);
    if (deflated) {
        z_stream s = {0};
        assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        s.next_in = (uint8_t *)(uintptr_t)b->at;
        s.avail_in = (uInt)b->count;
        s.next_out = packed.at;
        s.avail_out = sizeof packed.at;
        assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
        packed.count = sizeof packed.at - s.avail_out;
        deflateEnd(&s);
    }
    for (int central = 0; central < 2; central++) {
        bytes *to = central ? &z->directory : &z->file;
        bytes_add(to, central ? "PK\1\2\x2d\3" : "PK\3\4", central ? 6 : 4);
        add_number(to, 45, 2);
        add_number(to, 0, 2);
        add_number(to, deflated ? 8 : 0, 2);
        add_number(to, 0, 4);
        add_number(to, crc, 4);
        add_number(to, central ? packed.count : 0xFFFFFFFF, 4);
        add_number(to, central ? b->count : 0xFFFFFFFF, 4);
        add_number(to, strlen(name), 2);
        add_number(to, central ? 0 : 20, 2);
        if (central) {
            add_number(to, 0, 10 - 2);
            add_number(to, 0, 2);
            add_number(to, at, 4);
        }
        bytes_add(to, name, strlen(name));
    }
    add_number(&z->file, 1, 2);
    add_number(&z->file, 16, 2);
    add_number(&z->file, b->count, 8);
    add_number(&z->file, packed.count, 8);
    bytes_add(&z->file, packed.at, packed.count);
    z->members++;
}

static bytes end_archive(const archive *z)
{
    bytes b = z->file;
    bytes_add(&b, z->directory.at, z->directory.count);
    bytes_add(&b, "PK\5\6\0\0\0\0", 8);
    add_number(&b, z->members, 2);
    add_number(&b, z->members, 2);
    add_number(&b, z->directory.count, 4);
    add_number(&b, z->file.count, 4);
    add_number(&b, 0, 2);
    return b;
}

/* ---- messages -------------------------------------------------------------------------------- */

static char said[2048];

static void note(void *user, ls_log_level level, const char *text)
{
    (void)user;
    (void)level;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", text);
}

static const ls_host listening = {.size = sizeof listening, .log = note};

static void must_say(const char *text)
{
    if (!strstr(said, text))
        fail_msg("\"%s\"\nhas no \"%s\"", said, text);
}

static int open_at(const char *path, ls_data_keys keys, ls_dataset *split[2], ls_error *err)
{
    const ls_dataset_spec spec = {.name = "npy", .path = path, .keys = keys};
    said[0] = '\0';
    return ls_dataset_open(&split[0], &split[1], &spec, &listening, err);
}

static void opens(const char *path, ls_data_keys keys, ls_dataset *split[2])
{
    ls_error err;
    if (open_at(path, keys, split, &err) != LS_OK)
        fail_msg("%s", err.text);
}

static void refuses(const char *path, ls_data_keys keys, int status, const char *message)
{
    ls_dataset *split[2];
    ls_error err = {0};
    assert_int_equal(open_at(path, keys, split, &err), status);
    if (!strstr(err.text, message))
        fail_msg("\"%s\"\nhas no \"%s\"", err.text, message);
}

/* ---- .npz ------------------------------------------------------------------------------------ */

static archive four_arrays(int deflated)
{
    static const int64_t y[4] = {0, 1, 2, 1};
    archive z = {.members = 0};
    bytes b = npy("|u1", "(4, 2, 3)", npy_pixels, 24);
    add_member(&z, "x_train.npy", &b, deflated);
    b = npy("<i8", "(4,)", y, 32);
    add_member(&z, "y_train.npy", &b, deflated);
    b = npy("|u1", "(2, 2, 3)", npy_pixels + 12, 12);
    add_member(&z, "x_test.npy", &b, deflated);
    b = npy("<i8", "(2,)", y + 1, 16);
    add_member(&z, "y_test.npy", &b, deflated);
    return z;
}

static void arrays_of_an_archive_are_found_by_their_usual_names(void **state)
{
    scratch *s = *state;
    for (int deflated = 0; deflated < 2; deflated++) {
        ls_dataset *split[2];
        const archive z = four_arrays(deflated);
        bytes_put(s, "mnist.npz", end_archive(&z));
        opens(scratch_path(s, "mnist.npz"), (ls_data_keys){0}, split);
        assert_int_equal(ls_dataset_rows(split[0]), 4);
        assert_int_equal(ls_dataset_rows(split[1]), 2);
        assert_memory_equal(ls_dataset_resident(split[0]).images, npy_pixels, 24);
        assert_memory_equal(ls_dataset_resident(split[1]).images, npy_pixels + 12, 12);
        assert_int_equal(ls_dataset_resident(split[1]).labels[1], 2);
        close_splits(split);
        /* The keys name arrays of the archive at the path; then files with a path that leads into
         * an archive. */
        opens(scratch_path(s, "mnist.npz"), (ls_data_keys){.x = "x_test", .y = "y_test.npy"},
              split);
        assert_int_equal(ls_dataset_rows(split[0]), 2);
        close_splits(split);
        opens(s->directory, (ls_data_keys){.x = "mnist.npz/x_test", .y = "mnist.npz/y_test"},
              split);
        assert_int_equal(ls_dataset_rows(split[0]), 2);
        assert_int_equal(ls_dataset_rows(split[1]), 0);
        close_splits(split);
        refuses(scratch_path(s, "mnist.npz"), (ls_data_keys){.x = "images"}, LS_EDATA,
                "there is no array \"images\" in it, but \"x_train\", \"y_train\", \"x_test\", "
                "\"y_test\"; name one in data.x or data.y, and elsewhere as FILE.npz/NAME");
    }
}

static void damage_of_an_archive_is_noticed(void **state)
{
    scratch *s = *state;
    for (int deflated = 0; deflated < 2; deflated++) {
        const archive z = four_arrays(deflated);
        const bytes whole = end_archive(&z);
        bytes b = whole;
        for (size_t cut = 4; cut < whole.count; cut += 7) {
            b.count = cut;
            bytes_put(s, "d.npz", b);
            refuses(scratch_path(s, "d.npz"), (ls_data_keys){0}, LS_EDATA, "d.npz");
        }
        b = whole;
        b.at[30 + 11 + 20 + 20] ^= 1; /* a byte of the first member's data */
        bytes_put(s, "d.npz", b);
        refuses(scratch_path(s, "d.npz"), (ls_data_keys){0}, LS_EDATA, "the .npz file is damaged");
    }
    archive z = four_arrays(0);
    z.directory.at[8] = 1;
    bytes_put(s, "d.npz", end_archive(&z));
    refuses(scratch_path(s, "d.npz"), (ls_data_keys){0}, LS_EUNSUPPORTED,
            "\"x_train\" is encrypted; save it without a password");
    z.directory.at[8] = 0;
    z.directory.at[10] = 14;
    bytes_put(s, "d.npz", end_archive(&z));
    refuses(scratch_path(s, "d.npz"), (ls_data_keys){0}, LS_EUNSUPPORTED,
            "compressed by another method than deflate; save it by numpy.savez_compressed");
    z = four_arrays(1);
    /* the first member's size is 16 MiB too large, more than its hundred bytes can become */
    z.directory.at[27] = 1;
    bytes_put(s, "d.npz", end_archive(&z));
    refuses(scratch_path(s, "d.npz"), (ls_data_keys){0}, LS_EDATA, "as many bytes as deflate can");
    z = (archive){.members = 0};
    bytes b = npy("|S1", "(4, 2, 3)", npy_pixels, 24);
    add_member(&z, "x.npy", &b, 1);
    bytes_put(s, "d.npz", end_archive(&z));
    refuses(scratch_path(s, "d.npz"), (ls_data_keys){0}, LS_EDATA, "d.npz: x: offset ");
}

/* ---- layout ---------------------------------------------------------------------------------- */

static const uint8_t colours[2][2][3][3] = {
    {{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, {{10, 11, 12}, {13, 14, 15}, {16, 17, 18}}},
    {{{21, 22, 23}, {24, 25, 26}, {27, 28, 29}}, {{30, 31, 32}, {33, 34, 35}, {36, 37, 38}}}};
static const uint8_t planes[2][18] = {
    {1, 4, 7, 10, 13, 16, 2, 5, 8, 11, 14, 17, 3, 6, 9, 12, 15, 18},
    {21, 24, 27, 30, 33, 36, 22, 25, 28, 31, 34, 37, 23, 26, 29, 32, 35, 38}};
static const ls_data_keys xy = {.x = "x.npy", .y = "y.npy"};

static void channels_that_come_last_become_planes(void **state)
{
    scratch *s = *state;
    const int64_t y[2] = {0, 1};
    float floats[36];
    ls_dataset *split[2];
    ls_data_keys keys = xy;
    bytes_put(s, "y.npy", npy("<i8", "(2,)", y, sizeof y));
    bytes_put(s, "x.npy", npy("|u1", "(2, 2, 3, 3)", colours, sizeof colours));
    opens(s->directory, keys, split);
    must_say("x.npy: x: rows of (2, 3, 3) are taken as 2 channels of 3×3; if the last dimension is "
             "the channels, set data.layout to \"channels_last\"");
    close_splits(split);
    keys.layout = LS_CHANNELS_LAST;
    opens(s->directory, keys, split);
    assert_int_equal(ls_dataset_describe(split[0])->channels, 3);
    assert_int_equal(ls_dataset_describe(split[0])->height, 2);
    assert_memory_equal(ls_dataset_resident(split[0]).images, planes, sizeof planes);
    assert_true(ls_dataset_describe(split[0])->prep->channels_last);
    assert_string_equal(said, "");
    close_splits(split);
    for (int i = 0; i < 36; i++)
        floats[i] = (float)((const uint8_t *)colours)[i];
    bytes_put(s, "x.npy", npy("<f4", "(2, 2, 3, 3)", floats, sizeof floats));
    opens(s->directory, keys, split);
    for (int i = 0; i < 36; i++)
        assert_true(ls_dataset_resident(split[0]).values[i] == (float)planes[i / 18][i % 18]);
    close_splits(split);
}

static void new_rows_may_have_either_layout(void **state)
{
    scratch *s = *state;
    ls_prep *prep;
    ls_error err = {0};
    assert_int_equal(ls_prep_create(&prep, LS_PREP_ARRAY, NULL, &err), LS_OK);
    const ls_input_format of = {
        .prep = prep, .channels = 3, .height = 2, .width = 3, .classes = 2, .split = "test"};
    /* channels first; channels last; channels last in an archive */
    for (int form = 0; form < 3; form++) {
        ls_dataset *ds;
        archive z = {.members = 0};
        const bytes b = form ? npy("|u1", "(2, 2, 3, 3)", colours, sizeof colours)
                             : npy("|u1", "(2, 3, 2, 3)", planes, sizeof planes);
        add_member(&z, "rows.npy", &b, 1);
        bytes_put(s, "x", form == 2 ? end_archive(&z) : b);
        if (ls_new_rows_open_npy(&ds, &of, scratch_path(s, "x"), NULL, &err) != LS_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(ls_dataset_resident(ds).images, planes, sizeof planes);
        ls_dataset_close(ds);
    }
    ls_prep_free(prep);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void put_x(scratch *s, unsigned rows)
{
    char shape[16];
    snprintf(shape, sizeof shape, "(%u, 2)", rows);
    bytes_put(s, "x.npy", npy("|u1", shape, npy_pixels, 2 * (size_t)rows));
}

static void rows_with_one_1_are_classes(void **state)
{
    scratch *s = *state;
    const double y[4][3] = {{0, 1, 0}, {1, 0, 0}, {0, 0, 1}, {0, 1, 0}}, two[1][3] = {{1, 1, 0}};
    static const int want[4] = {1, 0, 2, 1};
    ls_dataset *split[2];
    ls_data_keys keys = xy;
    put_x(s, 4);
    bytes_put(s, "y.npy", npy("<f8", "(4, 3)", y, sizeof y));
    opens(s->directory, keys, split);
    assert_int_equal(ls_dataset_describe(split[0])->classes, 3);
    assert_int_equal(ls_dataset_describe(split[0])->targets, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ls_dataset_resident(split[0]).labels[i], want[i]);
    must_say("y.npy: y: rows of zeros with one 1 each are taken as 3 classes; for vectors set "
             "data.labels to \"values\"");
    close_splits(split);
    keys.vectors = 1;
    opens(s->directory, keys, split);
    assert_int_equal(ls_dataset_describe(split[0])->targets, 3);
    close_splits(split);
    keys = xy;
    keys.labels = LS_LABELS_VALUES;
    opens(s->directory, keys, split);
    assert_int_equal(ls_dataset_describe(split[0])->targets, 3);
    close_splits(split);
    keys = (ls_data_keys){.x = "x.npy", .y = "y.npy", .test_x = "tx.npy", .test_y = "ty.npy"};
    bytes_put(s, "tx.npy", npy("|u1", "(1, 2)", npy_pixels, 2));
    bytes_put(s, "ty.npy", npy("<f8", "(1, 3)", two, sizeof two));
    refuses(s->directory, keys, LS_EDATA,
            "ty.npy: test_y: row 0: expected zeros and one 1, as the training rows have");
}

static void labels_from_1_on_are_called_by_their_numbers(void **state)
{
    scratch *s = *state;
    const int64_t y[4] = {1, 3, 2, 3}, zero = 0;
    ls_dataset *split[2];
    ls_data_keys keys = xy;
    put_x(s, 4);
    bytes_put(s, "y.npy", npy("<i8", "(4,)", y, sizeof y));
    for (int classes = 0; classes <= 3; classes += 3) {
        keys.classes = classes;
        opens(s->directory, keys, split);
        const ls_dataset_info *info = ls_dataset_describe(split[0]);
        assert_int_equal(info->classes, 3);
        for (int i = 0; i < 4; i++)
            assert_int_equal(ls_dataset_resident(split[0]).labels[i], y[i] - 1);
        assert_string_equal(info->class_name[0], "1");
        assert_string_equal(info->class_name[2], "3");
        must_say("labels are 1 to 3, which are the names of the 3 classes");
        close_splits(split);
    }
    keys = (ls_data_keys){.x = "x.npy", .y = "y.npy", .test_x = "tx.npy", .test_y = "ty.npy"};
    bytes_put(s, "tx.npy", npy("|u1", "(1, 2)", npy_pixels, 2));
    bytes_put(s, "ty.npy", npy("<i8", "(1,)", &zero, 8));
    refuses(s->directory, keys, LS_EDATA,
            "ty.npy: test_y: row 0: expected labels from 1 to 3, found 0");
    /* A model that was trained on labels from 1 to 3 reads new labels from 1 to 3. */
    static const char *const names[] = {"1", "2", "3"};
    ls_prep *prep;
    ls_error err = {0};
    assert_int_equal(ls_prep_create(&prep, LS_PREP_ARRAY, NULL, &err), LS_OK);
    const ls_input_format of = {.prep = prep,
                                .channels = 2,
                                .height = 1,
                                .width = 1,
                                .classes = 3,
                                .class_name = names,
                                .labelled = true,
                                .split = "test"};
    ls_dataset *ds;
    const double hot[4][3] = {{1, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 0, 1}};
    for (int form = 0; form < 2; form++) {
        if (form)
            bytes_put(s, "y.npy", npy("<f8", "(4, 3)", hot, sizeof hot));
        if (ls_new_rows_open_npy(&ds, &of, scratch_path(s, "x.npy"), scratch_path(s, "y.npy"),
                                 &err) != LS_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < 4; i++)
            assert_int_equal(ls_dataset_resident(ds).labels[i], y[i] - 1);
        ls_dataset_close(ds);
    }
    ls_prep_free(prep);
}

static void floats_that_are_labels_are_classes(void **state)
{
    static const struct {
        double y[4];
        int classes, targets;
    } forms[] = {{{0, 2, 1, 2}, 3, 0}, {{1, 2, 1, 2}, 2, 0},
                 {{0, 2, 4, 2}, 0, 1}, /* the values 1 and 3 do not occur */
                 {{0, 0, 0, 0}, 0, 1}, {{0, 1, 0.5, 1}, 0, 1},
                 {{-1, 0, 1, 0}, 0, 1}};
    scratch *s = *state;
    put_x(s, 4);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ls_dataset *split[2];
        bytes_put(s, "y.npy", npy("<f8", "(4,)", forms[i].y, sizeof forms[i].y));
        opens(s->directory, xy, split);
        assert_int_equal(ls_dataset_describe(split[0])->classes, forms[i].classes);
        assert_int_equal(ls_dataset_describe(split[0])->targets, forms[i].targets);
        if (forms[i].classes)
            must_say("the f64 are all whole numbers from 0 or 1 on, and are taken as classes; for "
                     "values set data.labels to \"values\"");
        close_splits(split);
    }
}

/* Columns that are standardised, and have the same number in all training rows, or none: they are
 * 0, in test rows too, and the run says which ones they are. Missing numbers that become 0 are told
 * from a number that is not 0. */
static void constant_columns_are_left_out(void **state)
{
    scratch *s = *state;
    const float x[3][4] = {{1, 2023, NAN, 7}, {3, 2023, NAN, NAN}, {1, 2023, NAN, 7}},
                test[1][4] = {{3, 2031, 5, 9}};
    const int64_t y[3] = {0, 1, 0};
    ls_dataset *split[2];
    ls_data_keys keys = {
        .x = "x.npy", .y = "y.npy", .test_x = "tx.npy", .test_y = "ty.npy", .standardize = 1};
    bytes_put(s, "x.npy", npy("<f4", "(3, 4)", x, sizeof x));
    bytes_put(s, "y.npy", npy("<i8", "(3,)", y, sizeof y));
    bytes_put(s, "tx.npy", npy("<f4", "(1, 4)", test, sizeof test));
    bytes_put(s, "ty.npy", npy("<i8", "(1,)", y, 8));
    for (int zeros = 0; zeros < 2; zeros++) {
        keys.missing = zeros ? LS_MISSING_ZERO : LS_MISSING_MEAN;
        opens(s->directory, keys, split);
        const ls_prep *p = ls_dataset_describe(split[0])->prep;
        assert_int_equal(p->scales, 4);
        assert_true(p->mean[1] == 2023 && isinf(p->deviation[1]) && isinf(p->deviation[2]));
        assert_true(zeros ? p->deviation[3] == 1 : isinf(p->deviation[3]));
        for (int i = 0; i < 3; i++) {
            const float *row = ls_dataset_resident(split[0]).values + 4 * i;
            assert_true(row[1] == 0 && row[2] == 0 && row[3] == (zeros && i == 1 ? -7 : 0));
        }
        const float *row = ls_dataset_resident(split[1]).values;
        assert_true(row[0] != 0 && row[1] == 0 && row[2] == 0 && row[3] == (zeros ? 2 : 0));
        must_say(zeros ? "left out: 2 of 4 columns, with the same value in every row (1, 2, counted"
                       : "left out: 3 of 4 columns, with the same value in every row (1, 2, 3, ");
        close_splits(split);
    }
}

/* Columns of each type are limited after they are scaled, in test rows too. Numbers that are not
 * scaled are not limited, and rows with height and width have no limit. */
static void columns_are_limited_after_they_are_scaled(void **state)
{
    scratch *s = *state;
    static const struct {
        const char *type;
        size_t bytes;
    } types[] = {{"<f8", 8}, {"<f4", 4}, {"<i4", 4}, {"|u1", 1}};
    static const uint8_t byte[3] = {2, 4, 9};
    static const int32_t whole[3] = {2, 4, 9};
    static const float real[3] = {2, 4, 9};
    static const double wide[3] = {2, 4, 9};
    static const void *const numbers[] = {wide, real, whole, byte};
    static const int64_t y[2] = {0, 1};
    bytes_put(s, "y.npy", npy("<i8", "(2,)", y, sizeof y));
    bytes_put(s, "ty.npy", npy("<i8", "(1,)", y, 8));
    for (int i = 0; i < 4; i++) {
        ls_dataset *split[2];
        ls_data_keys keys = {.x = "x.npy", .y = "y.npy", .test_x = "tx.npy", .test_y = "ty.npy"};
        keys.standardize = 1; /* 2 and 4 have mean 3 and deviation 1 */
        keys.clip = 0.75;
        bytes_put(s, "x.npy", npy(types[i].type, "(2, 1)", numbers[i], 2 * types[i].bytes));
        bytes_put(s, "tx.npy",
                  npy(types[i].type, "(1, 1)", (const char *)numbers[i] + 2 * types[i].bytes,
                      types[i].bytes));
        opens(s->directory, keys, split);
        const float *row = ls_dataset_resident(split[0]).values;
        assert_true(row[0] == -0.75f && row[1] == 0.75f);
        assert_true(ls_dataset_resident(split[1]).values[0] == 0.75f);
        assert_true(ls_dataset_describe(split[0])->prep->clip == 0.75);
        close_splits(split);
        if (i == 3)
            break; /* bytes that are not standardised are pixels */
        keys.standardize = 0;
        opens(s->directory, keys, split);
        assert_true(ls_dataset_resident(split[1]).values[0] == 9);
        assert_true(ls_dataset_describe(split[0])->prep->clip == 0);
        close_splits(split);
    }
    ls_data_keys keys = {.x = "x.npy", .y = "y.npy", .standardize = 1, .clip = 3};
    bytes_put(s, "x.npy", npy("<f4", "(1, 1, 3)", real, sizeof real));
    bytes_put(s, "y.npy", npy("<i8", "(1,)", y, 8));
    refuses(
        s->directory, keys, LS_ECONFIG,
        "data.clip: applies to rows without height and width, but the rows are 1×1×3; remove it");
}

LS_TESTS(data_array_forms, "unit")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(arrays_of_an_archive_are_found_by_their_usual_names),
        IN_SCRATCH(damage_of_an_archive_is_noticed),
        IN_SCRATCH(channels_that_come_last_become_planes),
        IN_SCRATCH(new_rows_may_have_either_layout),
        IN_SCRATCH(rows_with_one_1_are_classes),
        IN_SCRATCH(labels_from_1_on_are_called_by_their_numbers),
        IN_SCRATCH(floats_that_are_labels_are_classes),
        IN_SCRATCH(constant_columns_are_left_out),
        IN_SCRATCH(columns_are_limited_after_they_are_scaled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
