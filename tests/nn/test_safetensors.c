/* SPDX-License-Identifier: MIT */
/* Tests the weights of a model in safetensors files: writing, reading, and every kind of damage. */
#include "nn/nn_fixture.h"

#include "base/host.h"
#include "data/scratch.h"
#include "nn/safetensors.h"
#include "runner.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* 3×2 weight and 3 biases: 36 bytes of data. */
static const char small_json[] = "[{\"type\":\"dense\",\"name\":\"fc\",\"out\":3}]";
static const ls_shape small_input = {2, 1, 1};
static const float small_weights[9] = {1, -2, 0.5f, 4, 1e-30f, -0.0f, 7, 8, 9};

static char *read_whole(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static int load_fitting(float *canonical, const char *path, const ls_network *m,
                        const ls_host *host, ls_error *err)
{
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, path, host, err);
    if (status == LS_OK)
        status = ls_safetensors_read_fitting(canonical, file, m, host, err);
    ls_tensor_file_close(file);
    return status;
}

static int load_sets(const ls_tensors_in *sets, int count, const char *path, const ls_network *m,
                     const ls_host *host, ls_error *err)
{
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, path, host, err);
    if (status == LS_OK)
        status = ls_safetensors_read_sets(sets, count, file, m, host, err);
    ls_tensor_file_close(file);
    return status;
}

static void what_is_saved_is_loaded_bit_for_bit(void **state)
{
    (void)state;
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(
        "[{\"type\":\"conv2d\",\"name\":\"c\",\"out\":7,\"kernel\":[3,2]},{\"type\":\"flatten\"},"
        "{\"type\":\"dense\",\"out\":400},{\"type\":\"dense\",\"out\":3,\"bias\":false}]",
        (ls_shape){2, 6, 6}, 3);
    float *saved = calloc(m->floats, sizeof *saved);
    float *loaded = calloc(m->floats, sizeof *loaded);
    fill_uniform(saved, m->floats, 3, 1);
    const char *path = scratch_path(&s, "w.safetensors");
    must(ls_safetensors_save(path, m, saved, LS_STEPS_UNKNOWN, NULL, &err), &err);
    must(ls_safetensors_load(loaded, path, m, "", NULL, &err), &err);
    assert_memory_equal(saved, loaded, m->floats * sizeof *saved);
    free(saved);
    free(loaded);
    free_model(m);
    scratch_end(&s);
}

#define DIGITS "a3851c0556af5582e8915cb4ea7b91abdfa41516b2f02be8bb291d0579214164"

static void the_file_is_what_the_format_says(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"sha256\":\"" DIGITS "\",\"format\":\"pt\"},"
        "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
        "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}}";
    static const unsigned char one[4] = {0, 0, 0x80, 0x3F};
    scratch s;
    size_t size;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "w.safetensors");
    must(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err), &err);
    char *bytes = read_whole(path, &size);
    size_t padded = (strlen(header) + 7) / 8 * 8;
    assert_int_equal((unsigned char)bytes[0], padded);
    for (int i = 1; i < 8; i++)
        assert_int_equal(bytes[i], 0);
    assert_memory_equal(bytes + 8, header, strlen(header));
    assert_int_equal(size, 8 + padded + 36);
    assert_memory_equal(bytes + 8 + padded, one, 4);
    free(bytes);
    free_model(m);
    scratch_end(&s);
}

static void the_hash_covers_the_weights_in_model_order(void **state)
{
    (void)state;
    char hex[65];
    float w[9];
    ls_network *m = make_model(small_json, small_input, 3);
    memset(w, 0, sizeof w);
    ls_weights_sha256(hex, m, w); /* SHA-256 of 36 zero bytes */
    assert_string_equal(hex, "6db65fd59fd356f6729140571b5bcd6bb3b83492a16e1bf0a3884442fc3c8a0e");
    w[8] = 1;
    ls_weights_sha256(hex, m, w);
    assert_string_not_equal(hex,
                            "6db65fd59fd356f6729140571b5bcd6bb3b83492a16e1bf0a3884442fc3c8a0e");
    free_model(m);
}

/* Running statistics are saved and hashed with the weights, in PyTorch's order and with PyTorch's
 * names. Arrays of gradients have no running statistics. */
static void running_statistics_belong_to_the_weights(void **state)
{
    (void)state;
    static const char *const names[] = {"n.weight", "n.bias", "n.running_mean", "n.running_var",
                                        "2.weight"};
    char hex[2][65];
    scratch s;
    ls_error err = {0};
    size_t size;
    scratch_begin(&s);
    ls_network *m = make_model("[{\"type\":\"batch_norm\",\"name\":\"n\"},"
                               "{\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]",
                               (ls_shape){2, 2, 2}, 3);
    float *w = calloc(m->floats, sizeof *w);
    float *got = calloc(m->floats, sizeof *got);
    fill_weights(w, m, 1, 3);
    const char *path = scratch_path(&s, "bn.safetensors");
    must(ls_safetensors_save(path, m, w, LS_STEPS_UNKNOWN, NULL, &err), &err);
    must(ls_safetensors_load(got, path, m, "", NULL, &err), &err);
    assert_memory_equal(got, w, m->floats * sizeof *w);
    char *file = read_whole(path, &size);
    const char *at = file + 8;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        at = strstr(at, names[i]);
        assert_non_null(at);
    }
    free(file);
    ls_weights_sha256(hex[0], m, w);
    w[m->stat[1]->offset] += 1;
    ls_weights_sha256(hex[1], m, w);
    assert_string_not_equal(hex[0], hex[1]);
    free(w);
    free(got);
    free_model(m);
    scratch_end(&s);
}

/* ---- other people's files ---- */

/* Writes a file with this header, padded with spaces, and `count` bytes of data. */
static const char *write_file(scratch *s, const char *header, const void *data, size_t count)
{
    char bytes[2048];
    size_t n = strlen(header);
    memset(bytes, 0, 8);
    bytes[0] = (char)(n & 0xFF);
    bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, header, n);
    memcpy(bytes + 8 + n, data, count);
    scratch_file(s, "t.safetensors", bytes, 8 + n + count);
    return scratch_path(s, "t.safetensors");
}

static void halves_are_widened_and_prefixes_obeyed(void **state)
{
    (void)state;
    /* 1, −2, the largest, the smallest normal, the smallest subnormal, −0 */
    static const uint16_t half[6] = {0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000};
    static const float want[9] = {1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f, 3, 4, 5};
    static const float bias[3] = {3, 4, 5};
    static const char header[] =
        "{\"grad.fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
        "\"other\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]},"
        "\"grad.fc.weight\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[12,24]}}";
    char data[28] = {0};
    float got[9];
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    memcpy(data, bias, 12);
    memcpy(data + 12, half, 12);
    const char *path = write_file(&s, header, data, sizeof data);
    must(ls_safetensors_load(got, path, m, "grad.", NULL, &err), &err);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(ls_safetensors_load(got, path, m, "", NULL, &err), LS_EDATA);
    free_model(m);
    scratch_end(&s);
}

/* Reads a file with six numbers of the type `dtype` into a model's first parameter. */
static void load_halves(float got[9], const char *dtype, const uint16_t half[6])
{
    char header[256], data[24] = {0};
    scratch s;
    ls_error err = {0};
    snprintf(header, sizeof header,
             "{\"fc.weight\":{\"dtype\":\"%s\",\"shape\":[3,2],\"data_offsets\":[0,12]},"
             "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
             dtype);
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    memcpy(data, half, 12);
    must(ls_safetensors_load(got, write_file(&s, header, data, 24), m, "", NULL, &err), &err);
    free_model(m);
    scratch_end(&s);
}

static void bf16_is_widened(void **state)
{
    (void)state;
    /* 1, −2, the largest, 3, the smallest normal, −0 */
    static const uint16_t half[6] = {0x3F80, 0xC000, 0x7F7F, 0x4040, 0x0080, 0x8000};
    static const float want[6] = {1, -2, 0x1.fep127f, 3, 0x1p-126f, -0.0f};
    float got[9];
    load_halves(got, "BF16", half);
    assert_memory_equal(got, want, sizeof want);
}

static void keep_lines(void *user, ls_log_level level, const char *message)
{
    char *text = user;
    (void)level;
    snprintf(text + strlen(text), 2000 - strlen(text), "%s\n", strstr(message, "tensor \""));
}

static void what_fits_is_taken_and_the_rest_listed(void **state)
{
    (void)state;
    static const char header[] =
        "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
        "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[24,40]},"
        "\"b.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[40,52]},"
        "\"old.bias\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[52,60]}}";
    static const char lines[] =
        "tensor \"a.bias\" is not there: it begins as without the file\n"
        "tensor \"b.weight\" has another shape: it begins as without the file\n"
        "tensor \"old.bias\" is not used: the model has none of that name\n";
    char data[60], text[2000] = "";
    const ls_host host = {.log = keep_lines, .user = text};
    float got[21], taken[15];
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model("[{\"type\":\"dense\",\"name\":\"a\",\"out\":3},"
                               "{\"type\":\"dense\",\"name\":\"b\",\"out\":3}]",
                               small_input, 3);
    fill_uniform(taken, 15, 1, 2);
    memcpy(data, taken, sizeof data);
    fill_uniform(got, 21, 5, 6);
    const float bias = got[6], weight = got[9];
    must(load_fitting(got, write_file(&s, header, data, sizeof data), m, &host, &err), &err);
    assert_memory_equal(got, taken, 6 * sizeof *got);
    assert_true(got[6] == bias && got[9] == weight);
    assert_memory_equal(got + 18, taken + 10, 3 * sizeof *got);
    assert_string_equal(text, lines);
    free_model(m);
    m = make_model(small_json, small_input, 3);
    assert_int_equal(load_fitting(got, scratch_path(&s, "t.safetensors"), m, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "offset 8: no tensor has a name and a shape of the model's"));
    free_model(m);
    scratch_end(&s);
}

static void keep_all(void *user, ls_log_level level, const char *message)
{
    char *text = user;
    (void)level;
    snprintf(text + strlen(text), 2000 - strlen(text), "%s\n", message);
}

/* Some programs add a prefix to all names of a file; the reader removes the prefix. If one name
 * lacks the prefix, or is a name of the model, the reader changes no name. */
static void a_prefix_of_all_names_is_taken_off(void **state)
{
    (void)state;
    static const struct {
        const char *weight, *bias;
        int fits;
    } forms[] = {{"module.fc.weight", "module.fc.bias", 1},
                 {"_orig_mod.module.fc.weight", "_orig_mod.module.fc.bias", 1},
                 {"module.fc.weight", "modulo.fc.bias", 0},
                 {"module.fc.weight", "fc.bias", 0},
                 {"xfc.weight", "xfc.bias", 0}};
    scratch s;
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int partial = 0; partial < 2; partial++) {
            char header[400], text[2000] = "";
            const ls_host host = {.log = keep_all, .user = text};
            float got[9] = {0};
            ls_error err = {0};
            snprintf(header, sizeof header,
                     "{\"%s\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                     "\"%s\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}}",
                     forms[i].weight, forms[i].bias);
            const char *path = write_file(&s, header, (const char *)small_weights, 36);
            const int status = partial ? load_fitting(got, path, m, &host, &err)
                                       : ls_safetensors_load(got, path, m, "", &host, &err);
            if (forms[i].fits) {
                assert_int_equal(status, LS_OK);
                assert_memory_equal(got, small_weights, sizeof got);
                assert_non_null(strstr(text, "which is taken off"));
            } else {
                assert_int_equal(status, partial && i == 3 ? LS_OK : LS_EDATA);
                assert_null(strstr(text, "which is taken off"));
            }
        }
    free_model(m);
    scratch_end(&s);
}

static void gradients_need_no_running_statistics(void **state)
{
    (void)state;
    static const char header[] =
        "{\"grad.fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
        "\"grad.fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]},"
        "\"grad.n.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[36,48]},"
        "\"grad.n.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[48,60]}}";
    float data[15];
    float got[21] = {0};
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model("[{\"type\":\"dense\",\"name\":\"fc\",\"out\":3},"
                               "{\"type\":\"batch_norm\",\"name\":\"n\"}]",
                               small_input, 3);
    fill_uniform(data, 15, 1, 2);
    const char *path = write_file(&s, header, data, sizeof data);
    must(ls_safetensors_load(got, path, m, "grad.", NULL, &err), &err);
    assert_memory_equal(got, data, sizeof data);
    assert_true(got[15] == 0);
    free_model(m);
    scratch_end(&s);
}

/* A number that is not finite, in each type and at each place, is refused with its place. */
static void numbers_that_are_not_finite_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        uint32_t bits; /* of the number */
        int width;     /* of a number in bytes */
        const char *found;
    } cases[] = {{"F32", 0x7FC00000, 4, "found nan"}, {"F32", 0xFF800000, 4, "found -inf"},
                 {"F16", 0x7C00, 2, "found inf"},     {"F16", 0xFC00, 2, "found -inf"},
                 {"F16", 0x7E00, 2, "found nan"},     {"BF16", 0x7F80, 2, "found inf"},
                 {"BF16", 0x7FC0, 2, "found nan"}};
    ls_network *m = make_model(small_json, small_input, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int at = 0; at < 6; at++) {
            char header[300], place[40];
            uint8_t data[36] = {0};
            float got[9];
            scratch s;
            ls_error err = {0};
            const int w = cases[i].width;
            snprintf(header, sizeof header,
                     "{\"fc.weight\":{\"dtype\":\"%s\",\"shape\":[3,2],\"data_offsets\":[0,%d]},"
                     "\"fc.bias\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[%d,%d]}}",
                     cases[i].dtype, 6 * w, cases[i].dtype, 6 * w, 9 * w);
            memcpy(data + at * w, &cases[i].bits, (size_t)w);
            scratch_begin(&s);
            const char *path = write_file(&s, header, data, (size_t)(9 * w));
            assert_int_equal(ls_safetensors_load(got, path, m, "", NULL, &err), LS_EDATA);
            snprintf(place, sizeof place, "%s at [%d, %d]", cases[i].found, at / 2, at % 2);
            assert_non_null(strstr(err.text, path));
            assert_non_null(strstr(err.text, "\"fc.weight\""));
            if (!strstr(err.text, place))
                fail_msg("expected \"%s\" in: %s", place, err.text);
            assert_int_equal(load_fitting(got, path, m, NULL, &err), LS_EDATA);
            scratch_end(&s);
        }
    free_model(m);
}

#define WEIGHT "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}"
#define BIAS "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}"

static void a_wrong_header_is_refused_with_its_message(void **state)
{
    (void)state;
    static const struct {
        const char *header, *message;
    } cases[] = {
        {"[]", "offset 8: expected an object, found an array"},
        {"{" WEIGHT "}", "offset 97: expected the file to end here, found 12 more bytes"},
        {"{" WEIGHT ",\"b\":{\"data_offsets\":[24,36]}}",
         "offset 8: there is no tensor \"fc.bias\"; is it the file of another model?"},
        {"{" WEIGHT ",\"fc.bias\":7}",
         "offset 8: tensor \"fc.bias\": expected an object with dtype, shape and data_offsets"},
        {"{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}," BIAS "}",
         "offset 8: tensor \"fc.weight\": expected shape [3, 2]; is it the file of another model?"},
        {"{\"fc.weight\":{\"dtype\":\"I32\",\"shape\":[3,2],\"data_offsets\":[0,24]}," BIAS "}",
         "offset 8: tensor \"fc.weight\": expected dtype F32, F16 or BF16; convert it"},
        {"{\"fc.weight\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[0,24]}," BIAS "}",
         "offset 8: tensor \"fc.weight\": expected 12 bytes for its shape and dtype, found 24"},
        {"{" WEIGHT ",\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[28,40]}}",
         "offset 8: tensor \"fc.bias\": expected data_offsets [begin, end] inside the file; it is "
         "cut off or damaged"},
        {"{" WEIGHT ",\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[20,36]}}",
         "offset 158: expected a tensor to begin here, but the next one begins at 154; the header "
         "is damaged"},
        {"{" WEIGHT ",", "offset 8: header:1:"}, /* the message of the JSON reader follows */
        {"{" WEIGHT "," WEIGHT "}", "offset 8: header:1:"},
    };
    static const char data[36] = {0};
    scratch s;
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got[9];
        ls_error err = {0};
        const char *path = write_file(&s, cases[i].header, data, sizeof data);
        assert_int_equal(ls_safetensors_load(got, path, m, "", NULL, &err), LS_EDATA);
        assert_memory_equal(err.text, path, strlen(path));
        const char *text = err.text + strlen(path) + 2;
        if (strncmp(text, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("case %zu: %s", i, text);
    }
    free_model(m);
    scratch_end(&s);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    float got[9];
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    assert_int_equal(ls_safetensors_load(got, scratch_path(&s, "absent"), m, "", NULL, &err),
                     LS_ENOENT);
    assert_non_null(strstr(err.text, "absent: no such file"));
    assert_int_equal(ls_safetensors_load(got, s.directory, m, "", NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "expected a safetensors file, found a directory"));
    scratch_loop(&s, "loop");
    assert_int_equal(ls_safetensors_load(got, scratch_path(&s, "loop"), m, "", NULL, &err), LS_EIO);
    assert_int_equal(ls_safetensors_load(got, "/dev/null", m, "", NULL, &err), LS_EDATA);
    free_model(m);
    scratch_end(&s);
}

/* ---- damage ---- */

static void every_truncation_is_refused(void **state)
{
    (void)state;
    scratch s;
    size_t size;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "w.safetensors");
    must(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err), &err);
    char *bytes = read_whole(path, &size);
    for (size_t n = 0; n < size; n++) {
        float got[9];
        scratch_file(&s, "cut", bytes, n);
        int rc = ls_safetensors_load(got, scratch_path(&s, "cut"), m, "", NULL, &err);
        assert_int_equal(rc, LS_EDATA);
        assert_non_null(strstr(err.text, "cut: offset "));
    }
    scratch_file(&s, "cut", bytes, size + 1);
    float got[9];
    assert_int_equal(ls_safetensors_load(got, scratch_path(&s, "cut"), m, "", NULL, &err),
                     LS_EDATA);
    free(bytes);
    free_model(m);
    scratch_end(&s);
}

/* Gives the checksum of a file another name: files of earlier versions have none. */
static void hide_checksum(char *bytes)
{
    assert_memory_equal(bytes + 8, "{\"__metadata__\":{\"sha256\":", 26);
    memcpy(bytes + 8 + 18, "former", 6);
}

/* Flips each bit of the file in turn. Only flips in the name "sha256" hide the checksum; they
 * change no weight. */
static void every_bit_flip_is_refused(void **state)
{
    (void)state;
    scratch s;
    size_t size;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "w.safetensors");
    must(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err), &err);
    char *bytes = read_whole(path, &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        float got[9];
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        scratch_file(&s, "flipped", bytes, size);
        int rc = ls_safetensors_load(got, scratch_path(&s, "flipped"), m, "", NULL, &err);
        const bool in_name = bit / 8 >= 8 + 18 && bit / 8 < 8 + 18 + 6;
        if (rc == LS_OK && in_name)
            assert_memory_equal(got, small_weights, sizeof got);
        else
            assert_int_equal(rc, LS_EDATA);
        assert_true(rc == LS_OK || strstr(err.text, "flipped: offset "));
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
    }
    assert_non_null(strstr(err.text, "of the whole file, found "));
    assert_non_null(strstr(err.text, "; the file is damaged: use another copy of it"));
    free(bytes);
    free_model(m);
    scratch_end(&s);
}

/* Flips each bit of the header of a file without a checksum in turn. If the reader accepts a
 * flipped header, it must load the saved weights. */
static void every_bit_flip_of_a_former_file_is_refused_or_harmless(void **state)
{
    (void)state;
    scratch s;
    size_t size;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "w.safetensors");
    must(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err), &err);
    char *bytes = read_whole(path, &size);
    hide_checksum(bytes);
    size_t accepted = 0;
    for (size_t bit = 0; bit < 8 * (size - sizeof small_weights); bit++) {
        float got[9];
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        scratch_file(&s, "flipped", bytes, size);
        if (ls_safetensors_load(got, scratch_path(&s, "flipped"), m, "", NULL, &err) == LS_OK) {
            assert_memory_equal(got, small_weights, sizeof got);
            accepted++;
        }
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
    }
    /* the accepted flips are in the text of __metadata__ and in the spaces after the header */
    assert_true(accepted < 8 * 120);
    free(bytes);
    free_model(m);
    scratch_end(&s);
}

/* ---- failures to write ---- */

/* Runs in a process of its own, because a limit on file sizes also sends a signal. Returns 0 if the
 * test succeeds. */
static int save_beyond_a_limit(const char *path, const ls_network *m)
{
    ls_error err = {0};
    struct rlimit limit = {270, 270}; /* larger than the header, smaller than the file */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (sigaction(SIGXFSZ, &ignore, NULL) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    if (ls_safetensors_save(path, m, (float[9]){0}, LS_STEPS_UNKNOWN, NULL, &err) != LS_EIO)
        return 2;
    return strstr(err.text, ": cannot write: File too large") ? 0 : 3;
}

static void a_failed_save_leaves_the_old_file(void **state)
{
    (void)state;
    float got[9];
    int status;
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "w");
    must(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err), &err);
    pid_t child = fork();
    if (child == 0)
        _exit(save_beyond_a_limit(path, m));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    must(ls_safetensors_load(got, path, m, "", NULL, &err), &err);
    assert_memory_equal(got, small_weights, sizeof got);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(s.directory), 0); /* the directory contains no other file */
    assert_int_equal(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err),
                     LS_EIO);
    assert_non_null(strstr(err.text, "cannot open the directory: No such file or directory"));
    assert_int_equal(mkdir(s.directory, 0700), 0);
    scratch_directory(&s, "d"); /* a directory cannot be replaced */
    assert_int_equal(
        ls_safetensors_save(scratch_path(&s, "d"), m, small_weights, LS_STEPS_UNKNOWN, NULL, &err),
        LS_EIO);
    assert_int_equal(rmdir(scratch_path(&s, "d")), 0);
    free_model(m);
    scratch_end(&s);
}

/* ---- several groups in a file ---- */

static const char norm_json[] = "[{\"type\":\"batch_norm\",\"name\":\"n\"},"
                                "{\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]";

static int write_whole(const char *path, const ls_network *m, const ls_tensors_out *groups,
                       int count, const char *about, const ls_host *host, ls_error *err)
{
    ls_file_writer w;
    int rc = ls_replace_begin(&w, path, host, err);
    if (rc == LS_OK)
        rc = ls_safetensors_write(&w, m, groups, count, about, host, err);
    if (rc == LS_OK)
        rc = ls_replace_commit(&w, err);
    ls_file_writer_abandon(&w);
    return rc;
}

static int write_groups(const char *path, const ls_network *m, const ls_tensors_out *groups,
                        int count, const ls_host *host, ls_error *err)
{
    return write_whole(path, m, groups, count, NULL, host, err);
}

static void groups_are_read_back_bit_for_bit(void **state)
{
    (void)state;
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(norm_json, (ls_shape){2, 2, 2}, 3);
    size_t bytes = m->floats * sizeof(float);
    float *saved[3], *got[3];
    for (int i = 0; i < 3; i++) {
        saved[i] = malloc(bytes);
        got[i] = malloc(bytes);
        fill_uniform(saved[i], m->floats, 3, (uint64_t)i + 1);
        memset(got[i], 0x55, bytes);
    }
    const char *path = scratch_path(&s, "g");
    const ls_tensors_out out[] = {{"", saved[0]}, {"momentum.", saved[1]}, {"variance.", saved[2]}};
    /* The groups are read in another order than they were written, because the names decide. */
    const ls_tensors_in in[] = {{"variance.", got[2]}, {"", got[0]}, {"momentum.", got[1]}};
    must(write_groups(path, m, out, 3, NULL, &err), &err);
    must(load_sets(in, 3, path, m, NULL, &err), &err);
    assert_memory_equal(got[0], saved[0], bytes);
    for (int g = 1; g < 3; g++) {
        for (int i = 0; i < m->params; i++) {
            size_t at = m->param[i]->offset;
            assert_memory_equal(got[g] + at, saved[g] + at, m->param[i]->count * sizeof(float));
        }
        for (int i = 0; i < m->stats; i++) { /* not changed */
            static const unsigned char untouched[4] = {0x55, 0x55, 0x55, 0x55};
            assert_memory_equal(got[g] + m->stat[i]->offset, untouched, 4);
        }
    }
    for (int i = 0; i < 3; i++) {
        free(saved[i]);
        free(got[i]);
    }
    free_model(m);
    scratch_end(&s);
}

static void a_group_has_the_names_of_its_parameters(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"momentum.fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
        "\"momentum.fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}}";
    scratch s;
    size_t size;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const ls_tensors_out out = {"momentum.", small_weights};
    must(write_groups(scratch_path(&s, "g"), m, &out, 1, NULL, &err), &err);
    char *bytes = read_whole(scratch_path(&s, "g"), &size);
    assert_memory_equal(bytes + 8, header, strlen(header));
    free(bytes);
    free_model(m);
    scratch_end(&s);
}

static void groups_must_be_there_and_nothing_else(void **state)
{
    (void)state;
    float a[9], b[9];
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "g");
    const ls_tensors_out out[] = {{"a.", small_weights}, {"b.", small_weights}};
    const ls_tensors_in in[] = {{"a.", a}, {"b.", b}, {"c.", b}};
    must(write_groups(path, m, out, 2, NULL, &err), &err);
    must(load_sets(in, 2, path, m, NULL, &err), &err);
    assert_int_equal(load_sets(in, 1, path, m, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "g: offset 8: tensor \"b.fc.weight\": the model has none of "
                                     "that name; is it the file of another model?"));
    assert_int_equal(load_sets(in, 3, path, m, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "there is no tensor \"c.fc.weight\""));
    /* ls_safetensors_load converts F16; ls_safetensors_read_sets refuses it. */
    path =
        write_file(&s,
                   "{\"a.fc.weight\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[0,12]},"
                   "\"a.fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
                   small_weights, 24);
    must(ls_safetensors_load(a, path, m, "a.", NULL, &err), &err);
    assert_int_equal(load_sets(in, 1, path, m, NULL, &err), LS_EDATA);
    assert_non_null(
        strstr(err.text, "tensor \"a.fc.weight\": expected dtype F32; use another copy"));
    free_model(m);
    scratch_end(&s);
}

/* ---- a file with a state ---- */

static const char about[] = "{\"steps\": 7, \"text\": \"\\n é\"}";

static const char *save_whole(scratch *s, ls_network *m)
{
    ls_error err = {0};
    const char *path = scratch_path(s, "g");
    const ls_tensors_out out[] = {{"", small_weights}, {"optimizer/momentum/", small_weights}};
    must(write_whole(path, m, out, 2, about, NULL, &err), &err);
    return path;
}

static void a_state_comes_back_and_the_tensors_with_it(void **state)
{
    (void)state;
    float a[9], b[9];
    char *text;
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const ls_tensors_in in[] = {{"", a}, {"optimizer/momentum/", b}};
    const char *path = save_whole(&s, m);
    must(ls_safetensors_state(&text, path, NULL, &err), &err);
    assert_string_equal(text, about);
    ls_free(NULL, text);
    must(load_sets(in, 2, path, m, NULL, &err), &err);
    assert_memory_equal(a, small_weights, sizeof a);
    assert_memory_equal(b, small_weights, sizeof b);
    must(ls_safetensors_load(a, path, m, "", NULL, &err), &err); /* read as a file of weights */
    /* ls_safetensors_save writes no state. */
    must(ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, NULL, &err), &err);
    must(ls_safetensors_state(&text, path, NULL, &err), &err);
    assert_null(text);
    free_model(m);
    scratch_end(&s);
}

static void a_header_that_is_too_long_is_refused_with_the_name_of_the_file(void **state)
{
    (void)state;
    const size_t length = (size_t)16 << 20; /* longest header that can be read */
    char expected[600];
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const ls_tensors_out out = {"", small_weights};
    const char *path = scratch_path(&s, "w.safetensors");
    char *text = malloc(length + 1);
    assert_non_null(text);
    memset(text, 'x', length);
    text[length] = '\0';
    assert_int_equal(write_whole(path, m, &out, 1, text, NULL, &err), LS_EIO);
    snprintf(expected, sizeof expected, "%s: cannot write: too many tensors", path);
    assert_string_equal(err.text, expected);
    free(text);
    free_model(m);
    scratch_end(&s);
}

/* Every damaged file must be refused. The damage can also be in the part of the header that says
 * that the file has a state. */
static void any_flipped_bit_and_any_cut_of_a_whole_file_is_refused(void **state)
{
    (void)state;
    float a[9];
    scratch s;
    size_t size;
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    char *bytes = read_whole(save_whole(&s, m), &size);
    for (size_t i = 0; i < size * 9; i++) {
        char *text = NULL;
        ls_error err = {0};
        const size_t at = i / 9;
        const int bit = (int)(i % 9); /* the ninth case: the file is cut at this byte */
        bytes[at] ^= bit < 8 ? (char)(1 << bit) : 0;
        scratch_file(&s, "h", bytes, bit < 8 ? size : at);
        bytes[at] ^= bit < 8 ? (char)(1 << bit) : 0;
        const int status = ls_safetensors_state(&text, scratch_path(&s, "h"), NULL, &err);
        if (status != LS_EDATA || text || !strstr(err.text, "h: offset "))
            fail_msg("byte %zu, bit %d: status %d: %s", at, bit, status, err.text);
        assert_int_equal(ls_safetensors_load(a, scratch_path(&s, "h"), m, "", NULL, &err),
                         LS_EDATA);
    }
    free(bytes);
    free_model(m);
    scratch_end(&s);
}

static void failed_allocations_leak_nothing(void **state)
{
    (void)state;
    float got[9];
    counting_host h;
    scratch s;
    ls_error err = {0};
    scratch_begin(&s);
    ls_network *m = make_model(small_json, small_input, 3);
    const char *path = scratch_path(&s, "w");
    int rc = LS_ENOMEM;
    for (long n = 1; rc != LS_OK; n++) {
        counting_host_init(&h);
        h.fail_at = n;
        rc = ls_safetensors_save(path, m, small_weights, LS_STEPS_UNKNOWN, &h.host, &err);
        assert_true(rc == LS_OK || rc == LS_ENOMEM);
        assert_int_equal(h.live, 0);
    }
    rc = LS_ENOMEM;
    for (long n = 1; rc != LS_OK; n++) {
        counting_host_init(&h);
        h.fail_at = n;
        rc = ls_safetensors_load(got, path, m, "", &h.host, &err);
        assert_true(rc == LS_OK || rc == LS_ENOMEM);
        assert_int_equal(h.live, 0);
    }
    free_model(m);
    scratch_end(&s);
}

LS_TESTS(nn_safetensors, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded_bit_for_bit),
        cmocka_unit_test(the_file_is_what_the_format_says),
        cmocka_unit_test(the_hash_covers_the_weights_in_model_order),
        cmocka_unit_test(running_statistics_belong_to_the_weights),
        cmocka_unit_test(halves_are_widened_and_prefixes_obeyed),
        cmocka_unit_test(bf16_is_widened),
        cmocka_unit_test(what_fits_is_taken_and_the_rest_listed),
        cmocka_unit_test(a_prefix_of_all_names_is_taken_off),
        cmocka_unit_test(gradients_need_no_running_statistics),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused_with_their_place),
        cmocka_unit_test(a_wrong_header_is_refused_with_its_message),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_bit_flip_is_refused),
        cmocka_unit_test(every_bit_flip_of_a_former_file_is_refused_or_harmless),
        cmocka_unit_test(a_failed_save_leaves_the_old_file),
        cmocka_unit_test(groups_are_read_back_bit_for_bit),
        cmocka_unit_test(a_group_has_the_names_of_its_parameters),
        cmocka_unit_test(groups_must_be_there_and_nothing_else),
        cmocka_unit_test(a_state_comes_back_and_the_tensors_with_it),
        cmocka_unit_test(a_header_that_is_too_long_is_refused_with_the_name_of_the_file),
        cmocka_unit_test(any_flipped_bit_and_any_cut_of_a_whole_file_is_refused),
        cmocka_unit_test(failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
