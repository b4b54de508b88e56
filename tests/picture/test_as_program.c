/* SPDX-License-Identifier: MIT */
/* The program `trainer` packs a folder of pictures and trains on it. Tests that the library
 * <lockstep/picture.h> converts each picture, read from memory, to the same row, and that the
 * outputs for it are bit-identical to those of `trainer predict`. */
#include "data/png.h"
#include "data/scratch.h"
#include "runner.h"
#ifdef LOCKSTEP_WITH_JPEG
#include "picture/jpeg.h"
#endif

#include <lockstep/model.h>
#include <lockstep/picture.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PICTURES = 8, CLASSES = 2, ROW = 3 * 6 * 6 };

static scratch dir;
static char name[PICTURES][32]; /* in the order of their folder */

static int next;

static void add(const char *path, const void *bytes, size_t count)
{
    snprintf(name[next++], sizeof name[0], "%s", path);
    scratch_file(&dir, path, bytes, count);
}

static void add_ppm(const char *path, int width, int height, int seed)
{
    char file[1024];
    size_t n = (size_t)snprintf(file, sizeof file, "P6 %d %d 255\n", width, height);
    for (int i = 0; i < 3 * width * height; i++)
        file[n++] = (char)(seed * 50 + i * i * 13 % 90);
    add(path, file, n);
}

static void add_png(const char *path, int depth, int type, const void *rows, size_t count)
{
    const png_bytes p = png_make(3, 2, depth, type, 0, rows, count, type == 3 ? "AaxBby" : NULL);
    add(path, p.bytes, p.count);
}

static void add_jpeg(const char *path, int width, int height, int channels)
{
#ifdef LOCKSTEP_WITH_JPEG
    size_t count;
    unsigned char *bytes = jpeg_make(width, height, channels, &count);
    add(path, bytes, count);
    free(bytes);
#else
    (void)channels;
    add_ppm(path, width % 10 + 3, height % 10 + 3, 4); /* known by its bytes, not its name */
#endif
}

/* `size`: the keys of the config about the size of a row. */
static void make_pictures(const char *size)
{
    char text[1024];
    next = 0;
    scratch_begin(&dir);
    scratch_directory(&dir, "photos");
    scratch_directory(&dir, "photos/a");
    scratch_directory(&dir, "photos/b");
    add_jpeg("photos/a/0.jpg", 50, 37, 3);
    add_ppm("photos/a/1.ppm", 6, 6, 1);
    add_png("photos/a/2.png", 16, 0, "\0a.b.c.\0d.e.f.", 14);
    add_ppm("photos/a/3.ppm", 17, 9, 2);
    add_jpeg("photos/b/0.jpg", 13, 90, 1);
    add_png("photos/b/1.png", 8, 6, "\0Aax.Bby.Ccz.\0Ddu.Eev.Ffw.", 26);
    add_png("photos/b/2.png", 8, 3, "\0\0\1\1\0\1\1\0", 8);
    add_ppm("photos/b/3.ppm", 1, 1, 3);
    static const char config[] =
        "{\"data\": {\"name\": \"folder\", \"path\": \"photos\", %s,"
        " \"mean\": [0.4, 0.5, 0.6], \"std\": [0.2, 0.3, 0.2]}, \"batch_size\": 8, \"epochs\": 2,"
        " \"devices\": \"cpu:1\", \"init\": \"kaiming\", \"run_dir\": \"run\","
        " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1},"
        " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 3},"
        " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 2}]}}";
    const int length = snprintf(text, sizeof text, config, size);
    scratch_file(&dir, "config.json", text, (size_t)length);
}

static void run(const char *arguments)
{
    char command[2048];
    snprintf(command, sizeof command, "cd '%s' && XDG_CACHE_HOME=cache '%s' %s", dir.directory,
             TRAINER, arguments);
    assert_int_equal(system(command), 0);
}

static char *read_file(const char *path, size_t *count)
{
    FILE *f = fopen(scratch_path(&dir, path), "rb");
    assert_non_null(f);
    char *bytes = calloc(1, 1 << 16);
    assert_non_null(bytes);
    *count = fread(bytes, 1, (1 << 16) - 1, f);
    fclose(f);
    return bytes;
}

/* The rows x of a packed file. */
static void packed_rows(uint8_t rows[PICTURES][ROW])
{
    size_t count;
    unsigned long begin, end;
    char *bytes = read_file("packed.safetensors", &count), *x;
    const size_t header = (size_t)(uint8_t)bytes[0] + ((size_t)(uint8_t)bytes[1] << 8);
    x = strstr(bytes + 8, "\"x\":");
    assert_non_null(x);
    x = strstr(x, "\"data_offsets\":[");
    assert_non_null(x);
    assert_int_equal(sscanf(x, "\"data_offsets\":[%lu,%lu]", &begin, &end), 2);
    assert_int_equal(end - begin, PICTURES * ROW);
    memcpy(rows, bytes + 8 + header + begin, (size_t)PICTURES * ROW);
    free(bytes);
}

/* Reads the program's prediction for each picture with all digits. */
static void predicted(float logits[PICTURES][CLASSES])
{
    size_t count;
    char *text = read_file("said.jsonl", &count), *at = text;
    for (int i = 0; i < PICTURES; i++) {
        at = strstr(at, "\"logits\":[");
        assert_non_null(at);
        at += strlen("\"logits\":[");
        for (int k = 0; k < CLASSES; k++)
            logits[i][k] = strtof(at, &at), at += *at == ',';
    }
    free(text);
}

/* `options`: those of `trainer pack` for the same size. */
static void expect_same_rows(const char *size, const char *options)
{
    char pack[256];
    uint8_t row[PICTURES][ROW], packed[PICTURES][ROW];
    float logits[PICTURES][CLASSES], said[PICTURES][CLASSES];
    ls_error err;
    ls_model *model;
    make_pictures(size);
    run("config.json --quiet >said.txt");
    snprintf(pack, sizeof pack, "pack photos --to packed.safetensors %s --quiet >said.txt",
             options);
    run(pack);
    run("predict run photos --json >said.jsonl");
    if (ls_model_open(&model, scratch_path(&dir, "run/weights.safetensors"), NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < PICTURES; i++) {
        size_t count;
        char *bytes = read_file(name[i], &count);
        if (ls_model_picture(model, bytes, count, NULL, row[i], sizeof row[i], &err) != LS_OK)
            fail_msg("%s: %s", name[i], err.text);
        free(bytes);
    }
    packed_rows(packed);
    assert_memory_equal(row, packed, sizeof row);
    assert_int_equal(ls_model_predict(model, row, LS_ROW_U8, PICTURES, LS_OUTPUT_LOGITS, logits[0],
                                      sizeof logits / sizeof **logits, &err),
                     LS_OK);
    predicted(said);
    assert_memory_equal(logits, said, sizeof logits);
    ls_model_release(model);
    scratch_end(&dir);
}

static void pictures_from_memory_are_those_of_the_program(void **state)
{
    (void)state;
    expect_same_rows("\"image_size\": 6", "--size 6");
    expect_same_rows("\"resize\": 7, \"crop\": 6, \"interpolation\": \"bicubic\"",
                     "--set data.resize=7 --set data.crop=6 --set data.interpolation=bicubic");
    expect_same_rows("\"resize\": [6, 6]", "--set data.resize=[6,6]");
}

LS_TESTS(picture_as_program, "integration no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_from_memory_are_those_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
