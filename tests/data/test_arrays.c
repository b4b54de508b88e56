/* SPDX-License-Identifier: MIT */
/* Tests reading rows from .npy and safetensors files: the values, and the errors for invalid files,
 * which contain the offset. */
#include "data/dataset.h"
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

#include <cmocka.h>

static bytes tensors(const char *header, const void *data, size_t count)
{
    bytes b = {.count = 0};
    uint8_t length[8] = {(uint8_t)strlen(header), (uint8_t)(strlen(header) >> 8)};
    bytes_add(&b, length, 8);
    bytes_add(&b, header, strlen(header));
    bytes_add(&b, data, count);
    return b;
}

static int open_keys(scratch *s, const char *kind, const char *file, ls_data_keys keys,
                     ls_dataset *split[2], ls_error *err)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s%s", s->directory, *file ? "/" : "", file);
    const ls_dataset_spec spec = {.name = kind, .path = path, .keys = keys};
    return ls_dataset_open(&split[0], &split[1], &spec, NULL, err);
}

static const ls_data_keys xy = {.x = "x.npy", .y = "y.npy"};

static void opens(scratch *s, ls_data_keys keys, ls_dataset *split[2])
{
    ls_error err;
    if (open_keys(s, "npy", "", keys, split, &err) != LS_OK)
        fail_msg("%s", err.text);
}

/* Expects opening to fail with `status` and a message that contains the path of `file` and
 * `message`. */
static void refuses(scratch *s, const char *kind, const char *file, ls_data_keys keys, int status,
                    const char *message)
{
    ls_dataset *split[2];
    ls_error err = {0};
    assert_int_equal(open_keys(s, kind, file, keys, split, &err), status);
    if (!strstr(err.text, message))
        fail_msg("\"%s\"\nhas no \"%s\"", err.text, message);
    assert_null(split[0]);
    assert_null(split[1]);
}

/* ---- good files ------------------------------------------------------------------------------ */

static void dimensions_behind_the_first_make_a_row(void **state)
{
    static const struct {
        const char *shape;
        int c, h, w;
    } form[] = {{"(4, 6)", 6, 1, 1}, {"(4, 2, 3)", 1, 2, 3}, {"(4, 2, 1, 3)", 2, 1, 3}};
    scratch *s = *state;
    const int64_t y[4] = {2, 0, 1, 2};
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }", y, sizeof y));
    for (size_t i = 0; i < 3; i++) {
        char text[100];
        ls_dataset *split[2];
        snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }",
                 form[i].shape);
        bytes_put(s, "x.npy", bytes_npy(text, npy_pixels, sizeof npy_pixels));
        opens(s, xy, split);
        const ls_dataset_info *info = ls_dataset_describe(split[0]);
        const ls_dataset_view v = ls_dataset_resident(split[0]);
        assert_int_equal(info->rows, 4);
        assert_int_equal(info->channels, form[i].c);
        assert_int_equal(info->height, form[i].h);
        assert_int_equal(info->width, form[i].w);
        assert_int_equal(info->classes, 3);
        assert_int_equal(info->row_type, LS_ROW_U8);
        assert_memory_equal(v.images, npy_pixels, sizeof npy_pixels);
        for (int r = 0; r < 4; r++)
            assert_int_equal(v.labels[r], y[r]);
        assert_int_equal(ls_dataset_describe(split[1])->rows, 0);
        close_splits(split);
    }
}

/* Writes the number `v` in the type `type` (NumPy's letter and the number of bytes), in either byte
 * order. */
static void put_number(uint8_t *to, const char *type, double v, bool big)
{
    const int n = type[1] - '0';
    const float f32 = (float)v;
    uint64_t bits = (uint64_t)(int64_t)v;
    if (type[0] == 'f' && n == 8)
        memcpy(&bits, &v, 8);
    else if (type[0] == 'f' && n == 4)
        memcpy(&bits, &f32, 4);
    else if (type[0] == 'f') /* half floats: 1, 127, 0.5 or 0 */
        bits = v == 1 ? 0x3c00 : v > 1 ? 0x57f0 : v > 0 ? 0x3800 : 0;
    for (int i = 0; i < n; i++)
        to[big ? n - 1 - i : i] = (uint8_t)(bits >> 8 * i);
}

static void check_values(scratch *s, const char *type, const double v[4], bool big)
{
    char text[100];
    uint8_t data[32];
    const float y[2] = {0.5f, 1.5f};
    const int n = type[1] - '0';
    ls_dataset *split[2];
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", y, 8));
    for (int i = 0; i < 4; i++)
        put_number(data + i * n, type, v[i], big);
    snprintf(text, sizeof text, "{'descr': '%c%s', 'fortran_order': False, 'shape': (2, 2), }",
             big ? '>' : '<', type);
    bytes_put(s, "x.npy", bytes_npy(text, data, 4 * (size_t)n));
    opens(s, xy, split);
    const ls_dataset_info *info = ls_dataset_describe(split[0]);
    assert_int_equal(info->row_type, strcmp(type, "u1") == 0 ? LS_ROW_U8 : LS_ROW_F32);
    assert_int_equal(info->targets, 1);
    assert_int_equal(info->classes, 0);
    for (int i = 0; i < 4; i++) {
        const ls_dataset_view view = ls_dataset_resident(split[0]);
        const double found = info->row_type == LS_ROW_U8 ? view.images[i] : (double)view.values[i];
        if (found != v[i])
            fail_msg("%c%s: number %d: expected %g, found %g", big ? '>' : '<', type, i, v[i],
                     found);
    }
    close_splits(split);
}

static void numbers_of_every_type_and_either_order_are_what_they_are(void **state)
{
    static const char *const type[] = {"u1", "i1", "b1", "u2", "i2", "u4",
                                       "i4", "u8", "i8", "f2", "f4", "f8"};
    for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
        const char *t = type[i];
        const double half = t[0] == 'f' ? 0.5 : 0, bits = t[0] == 'b' ? 1 : 127;
        const double least = t[0] != 'i' ? half : t[1] == '1' ? -128 : -300;
        const double v[4] = {least, 0, 1, bits};
        check_values(*state, t, v, false);
        check_values(*state, t, v, true);
    }
}

/* Half floats are converted exactly, subnormal ones included. Big-endian labels of 64 bits are read
 * as classes. */
static void half_floats_and_wide_labels_are_read_exactly(void **state)
{
    scratch *s = *state;
    static const struct {
        uint16_t bits;
        float value;
    } half[] = {{0x0001, 0x1p-24f}, {0x03ff, 0x3ffp-24f}, {0x0400, 0x1p-14f},   {0x7bff, 65504},
                {0xc000, -2},       {0x8000, -0.0f},      {0x3555, 0x1.554p-2f}};
    ls_dataset *split[2];
    uint8_t x[14], y[56] = {0};
    ls_data_keys keys = xy;
    for (int i = 0; i < 7; i++) {
        x[2 * i] = (uint8_t)(half[i].bits >> 8);
        x[2 * i + 1] = (uint8_t)half[i].bits;
        y[8 * i + 7] = (uint8_t)(i % 3);
    }
    bytes_put(s, "x.npy",
              bytes_npy("{'descr': '>f2', 'fortran_order': False, 'shape': (7,), }", x, 14));
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '>u8', 'fortran_order': False, 'shape': (7,), }", y, 56));
    opens(s, keys, split);
    assert_string_equal(ls_dataset_describe(split[0])->stored, "f16");
    assert_int_equal(ls_dataset_describe(split[0])->classes, 3);
    for (int i = 0; i < 7; i++) {
        assert_true(ls_dataset_resident(split[0]).values[i] == half[i].value);
        assert_int_equal(ls_dataset_resident(split[0]).labels[i], i % 3);
    }
    close_splits(split);
    y[3] = 1; /* the label is 2³² larger */
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '>u8', 'fortran_order': False, 'shape': (7,), }", y, 56));
    refuses(s, "npy", "", xy, LS_EDATA, "row 0: expected a class, a whole number from 0 on");
    x[0] = 0x7c; /* infinity */
    x[1] = 0;
    bytes_put(s, "x.npy",
              bytes_npy("{'descr': '>f2', 'fortran_order': False, 'shape': (7,), }", x, 14));
    y[3] = 0;
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '>u8', 'fortran_order': False, 'shape': (7,), }", y, 56));
    refuses(s, "npy", "", xy, LS_EDATA,
            "row 0, column 0: expected a finite number that a float holds, found inf");
}

static void keep_warning(void *user, ls_log_level level, const char *text)
{
    if (level == LS_LOG_WARNING)
        snprintf(user, 512, "%s", text);
}

static void values_of_0_and_1_in_bytes_are_divided_with_a_warning(void **state)
{
    scratch *s = *state;
    char said[512] = "";
    const ls_host host = {.size = sizeof host, .log = keep_warning, .user = said};
    const ls_dataset_spec spec = {.name = "npy", .path = s->directory, .keys = xy};
    uint8_t x[4] = {0, 1, 1, 0};
    ls_dataset *split[2];
    ls_error err;
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '|b1', 'fortran_order': False, 'shape': (4,), }", x, 4));
    for (int largest = 1; largest <= 2; largest++) {
        x[2] = (uint8_t)largest;
        said[0] = '\0';
        bytes_put(s, "x.npy",
                  bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4, 1), }", x, 4));
        assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, &host, &err), LS_OK);
        assert_int_equal(strstr(said, "save x.astype(bool)") != NULL, largest == 1);
        close_splits(split);
    }
}

/* Missing numbers (NaN) are replaced in memory; the file does not change. */
static void holes_are_filled_by_the_stated_rule(void **state)
{
    scratch *s = *state;
    const float x[6] = {1, NAN, 3, 10, 5, 20}, y[3] = {0};
    const bytes file =
        bytes_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", x, sizeof x);
    bytes_put(s, "x.npy", file);
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", y, sizeof y));
    refuses(
        s, "npy", "", xy, LS_EDATA,
        "x.npy: x: row 0, column 1: expected a finite number that a float holds, found nan; set data.missing to "
        "\"zero\" or \"mean\" to replace missing numbers");
    for (int rule = LS_MISSING_ZERO; rule <= LS_MISSING_MEAN; rule++) {
        ls_dataset *split[2];
        ls_data_keys keys = xy;
        keys.missing = rule;
        opens(s, keys, split);
        assert_true(ls_dataset_resident(split[0]).values[1] ==
                    (rule == LS_MISSING_MEAN ? 15.0f : 0.0f));
        assert_true(ls_dataset_resident(split[0]).values[4] == 5.0f);
        close_splits(split);
    }
    char now[sizeof file.at];
    FILE *f = fopen(scratch_path(s, "x.npy"), "rb");
    assert_int_equal(fread(now, 1, sizeof now, f), file.count);
    fclose(f);
    assert_memory_equal(now, file.at, file.count);
}

static void bits_are_vectors_and_test_rows_have_files_of_their_own(void **state)
{
    scratch *s = *state;
    const uint8_t bits[6] = {1, 0, 1, 0, 0, 1};
    ls_dataset *split[2];
    bytes_put(
        s, "x.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4), }", npy_pixels, 8));
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }", bits, 6));
    bytes_put(
        s, "tx.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 4), }", npy_pixels, 4));
    bytes_put(
        s, "ty.npy",
        bytes_npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1, 3), }", bits + 3, 3));
    opens(s, (ls_data_keys){.x = "x.npy", .y = "y.npy", .test_x = "tx.npy", .test_y = "ty.npy"},
          split);
    for (int i = 0; i < 6; i++)
        assert_true(ls_dataset_resident(split[0]).targets[i] == (float)bits[i]);
    assert_int_equal(ls_dataset_describe(split[1])->rows, 1);
    for (int i = 0; i < 3; i++)
        assert_true(ls_dataset_resident(split[1]).targets[i] == (float)bits[3 + i]);
    close_splits(split);
    bytes_put(
        s, "tx.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 5), }", npy_pixels, 5));
    refuses(s, "npy", "",
            (ls_data_keys){.x = "x.npy", .y = "y.npy", .test_x = "tx.npy", .test_y = "ty.npy"},
            LS_EDATA, "expected test rows like the training rows: 4×1×1 bytes, 3 targets");
}

static const char header[] = "{\"__metadata__\":{\"class_names\":\"[\\\"cat\\\",\\\"dog\\\"]\"},"
                             "\"x\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
                             "\"y\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[6,14]},"
                             "\"z\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[14,22]}}";

static void tensors_are_found_by_name(void **state)
{
    scratch *s = *state;
    ls_error err;
    ls_dataset *split[2];
    uint8_t data[22];
    const int32_t y[2] = {1, 0};
    const float z[2] = {0.25f, -4};
    memcpy(data, npy_pixels, 6);
    memcpy(data + 6, y, 8);
    memcpy(data + 14, z, 8);
    bytes_put(s, "d.safetensors", tensors(header, data, sizeof data));
    if (open_keys(s, "safetensors", "d.safetensors", (ls_data_keys){0}, split, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(ls_dataset_resident(split[0]).images, npy_pixels, 6);
    assert_int_equal(ls_dataset_resident(split[0]).labels[0], 1);
    assert_string_equal(ls_dataset_describe(split[0])->class_name[1], "dog");
    close_splits(split);
    /* z does not begin at a multiple of 4 bytes, so it is copied instead of used in place. */
    const ls_data_keys other = {.x = "z", .y = "z"};
    assert_int_equal(open_keys(s, "safetensors", "d.safetensors", other, split, &err), LS_OK);
    assert_memory_equal(ls_dataset_resident(split[0]).values, z, sizeof z);
    assert_memory_equal(ls_dataset_resident(split[0]).targets, z, sizeof z);
    close_splits(split);
    refuses(s, "safetensors", "d.safetensors", (ls_data_keys){.x = "w"}, LS_EDATA,
            "d.safetensors: offset 8: tensor \"w\": there is none of that name");
}

/* ---- bad files ------------------------------------------------------------------------------- */

static void headers_of_npy_files_that_lie_are_refused(void **state)
{
    static const struct {
        const char *dictionary, *message;
    } bad[] = {
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3)}", "found '<c8'"},
        {"{'descr': '<f', 'fortran_order': False, 'shape': (2, 3)}", "found '<f'"},
        {"{'descr': '<', 'fortran_order': False, 'shape': (2, 3)}", "found '<'"},
        {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2, 3)}", "found '<M8[ns]'"},
        {"{'descr': '<U1', 'fortran_order': False, 'shape': (2, 3)}", "found '<U1'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
         "an array with fields, whose arrays are x['NAME']"},
        {"{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", "numpy.ascontiguousarray"},
        {"{'descr': '|u1', 'fortran_order': Maybe, 'shape': (2, 3)}", "expected True or False"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "a shape of 1 to 4 numbers"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 2, 3)}", "a shape of 1 to 4"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (-2, 3)}", "a shape of 1 to 4 numbers"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 3)}", "without zeros"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4)}", "found 6 of data"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 3)}", "found 6 of data"},
        /* Shapes whose products are 2⁶⁴ + 6 and 2⁶⁴, and a number of more than 64 bits. */
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 9223372036854775811)}",
         "found 6 of data"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 536870912)}",
         "found 6 of data"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         "a shape of 1 to 4 numbers"},
        {"{'descr': '|u1', 'shape': (2, 3)}", "expected descr, fortran_order and shape"},
        {"{'descr': '|u1', 'descr': '|u1', 'shape': (2, 3)}", "each once"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)} + 1", "and no more"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)", "expected ',' or '}'"},
        {"", "expected '{'"},
    };
    scratch *s = *state;
    const int64_t y[2] = {0, 1};
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", y, sizeof y));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes_put(s, "x.npy", bytes_npy(bad[i].dictionary, npy_pixels, 6));
        refuses(s, "npy", "", xy, LS_EDATA, bad[i].message);
    }
    for (size_t cut = 0; cut < 134; cut++) {
        bytes b =
            bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}", npy_pixels, 6);
        b.count = cut;
        bytes_put(s, "x.npy", b);
        refuses(s, "npy", "", xy, LS_EDATA, "x.npy: offset ");
    }
    refuses(s, "npy", "", (ls_data_keys){.y = "y.npy"}, LS_ECONFIG, "data.x: expected the name");
    refuses(s, "npy", "", (ls_data_keys){.x = "none.npy", .y = "y.npy"}, LS_ENOENT, "no such file");
}

static void labels_that_are_none_are_refused(void **state)
{
    scratch *s = *state;
    const int64_t y[3] = {0, 1, -1}, large[3] = {0, 1, 2147483647}, odd[2] = {0, 1};
    const double half[3] = {0, 0.5, 1};
    bytes_put(
        s, "x.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2)}", npy_pixels, 6));
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", y, sizeof y));
    refuses(s, "npy", "", xy, LS_EDATA,
            "y.npy: y: row 2: expected a class, a whole number from 0 on, found -1; for values set "
            "data.labels to \"values\"");
    bytes_put(
        s, "y.npy",
        bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", large, sizeof large));
    refuses(s, "npy", "", xy, LS_EDATA, "y.npy: y: row 2: expected a class");
    bytes_put(
        s, "y.npy",
        bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", odd, sizeof odd));
    refuses(
        s, "npy", "", xy, LS_EDATA,
        "y.npy: y: expected a target for each of the 3 rows of x, found 2; the two do not belong "
        "together");
    bytes_put(
        s, "y.npy",
        bytes_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", half, sizeof half));
    ls_data_keys keys = xy;
    keys.labels = LS_LABELS_CLASSES;
    refuses(s, "npy", "", keys, LS_EDATA, "y.npy: y: row 1: expected a class");
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", y, sizeof y));
    keys.labels = LS_LABELS_VALUES;
    ls_dataset *split[2];
    opens(s, keys, split);
    assert_true(ls_dataset_resident(split[0]).targets[2] == -1.0f);
    close_splits(split);
    const int64_t good[3] = {0, 1, 2};
    bytes_put(
        s, "y.npy",
        bytes_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", good, sizeof good));
    keys = xy;
    keys.classes = 2;
    refuses(s, "npy", "", keys, LS_EDATA, "expected labels from 0 to 1, found 2; set data.classes");
}

/* The test targets must have as many numbers in a row as the training targets, because readers
 * allocate memory for that number. */
static void test_targets_of_another_width_are_refused(void **state)
{
    scratch *s = *state;
    const int32_t y[2] = {0, 1}, wide[4] = {0, 1, 1, 0};
    const ls_data_keys keys = {.x = "x.npy", .y = "y.npy", .test_x = "x.npy", .test_y = "wide.npy"};
    bytes_put(
        s, "x.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}", npy_pixels, 4));
    bytes_put(s, "y.npy",
              bytes_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", y, sizeof y));
    bytes_put(
        s, "wide.npy",
        bytes_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2)}", wide, sizeof wide));
    refuses(s, "npy", "", keys, LS_EDATA,
            "wide.npy: test_y: expected a class for each row, found 2 numbers");
}

/* The deviation of the training targets is 1e-30. */
static void a_target_that_no_float_holds_once_it_is_scaled_is_refused(void **state)
{
    scratch *s = *state;
    const double y[2] = {0, 2e-30}, far[2] = {1e-30, 3e38};
    const char head[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}";
    ls_dataset *split[2];
    ls_data_keys keys = {.x = "x.npy",
                         .y = "y.npy",
                         .test_x = "x.npy",
                         .test_y = "far.npy",
                         .labels = LS_LABELS_VALUES,
                         .standardize_target = true};
    bytes_put(
        s, "x.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}", npy_pixels, 4));
    bytes_put(s, "y.npy", bytes_npy(head, y, sizeof y));
    bytes_put(s, "far.npy", bytes_npy(head, far, sizeof far));
    refuses(s, "npy", "", keys, LS_EDATA,
            "row 1: expected a target that a float holds once it is scaled, found 3e+38; subtract "
            "or divide by a number that makes the targets smaller");
    keys.standardize_target = false;
    opens(s, keys, split);
    close_splits(split);
}

static void targets_beyond_reason_are_refused(void **state)
{
    scratch *s = *state;
    static const char many[16385];
    char path[512];
    bytes begin = bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 16385)}", "", 0);
    bytes_put(
        s, "x.npy",
        bytes_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2)}", npy_pixels, 2));
    snprintf(path, sizeof path, "%s/y.npy", s->directory);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(begin.at, 1, begin.count, file), begin.count);
    assert_int_equal(fwrite(many, 1, sizeof many, file), sizeof many);
    assert_int_equal(fclose(file), 0);
    ls_data_keys keys = xy;
    keys.labels = LS_LABELS_VALUES;
    refuses(s, "npy", "", keys, LS_EDATA, "expected at most 16384 numbers a row, found 16385");
}

static void safetensors_files_that_lie_are_refused(void **state)
{
    static const struct {
        const char *header, *message;
    } bad[] = {
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,7]}}", "inside the file"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[4,2]}}", "inside the file"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,6]}}", "found 6 of data"},
        {"{\"x\":{\"dtype\":\"C64\",\"shape\":[3],\"data_offsets\":[0,6]}}",
         "expected a dtype of BOOL"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,6]}}", "1 to 4 whole numbers"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[6.5],\"data_offsets\":[0,6]}}",
         "1 to 4 whole numbers"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4503599627370496,4096,6],\"data_offsets\":[0,6]}}",
         "found 6 of data"},
        {"{\"x\":7}", "expected a dtype of BOOL"},
        {"[]", "expected an object"},
        {"{\"x\":", "offset 8"},
    };
    scratch *s = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes_put(s, "d.safetensors", tensors(bad[i].header, npy_pixels, 6));
        refuses(s, "safetensors", "d.safetensors", (ls_data_keys){0}, LS_EDATA, bad[i].message);
    }
    for (size_t cut = 1; cut < 8 + sizeof header - 1; cut++) {
        bytes b = tensors(header, npy_pixels, 22);
        b.count = cut;
        bytes_put(s, "d.safetensors", b);
        refuses(s, "safetensors", "d.safetensors", (ls_data_keys){0}, LS_EDATA,
                "d.safetensors: offset ");
    }
    bytes_put(s, "d.safetensors", tensors(header, npy_pixels, 5));
    refuses(s, "safetensors", "d.safetensors", (ls_data_keys){0}, LS_EDATA, "tensor \"x\"");
}

LS_TESTS(data_arrays, "unit")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(dimensions_behind_the_first_make_a_row),
        IN_SCRATCH(numbers_of_every_type_and_either_order_are_what_they_are),
        IN_SCRATCH(half_floats_and_wide_labels_are_read_exactly),
        IN_SCRATCH(values_of_0_and_1_in_bytes_are_divided_with_a_warning),
        IN_SCRATCH(holes_are_filled_by_the_stated_rule),
        IN_SCRATCH(bits_are_vectors_and_test_rows_have_files_of_their_own),
        IN_SCRATCH(tensors_are_found_by_name),
        IN_SCRATCH(headers_of_npy_files_that_lie_are_refused),
        IN_SCRATCH(labels_that_are_none_are_refused),
        IN_SCRATCH(test_targets_of_another_width_are_refused),
        IN_SCRATCH(a_target_that_no_float_holds_once_it_is_scaled_is_refused),
        IN_SCRATCH(targets_beyond_reason_are_refused),
        IN_SCRATCH(safetensors_files_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
