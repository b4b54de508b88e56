/* SPDX-License-Identifier: MIT */
/* Tests models that are opened from files of weights (ls_model_open): their predictions, their use
 * by several threads, and invalid files. */
#include "data/scratch.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <dirent.h>
#include <fenv.h>
#include <lockstep/model.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 7
#define READERS 4

/* A finished run and the file of its weights. */
typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
    scratch dir;
    const char *path;
    ls_model_options options;
    uint8_t images[ROWS * OWN_PIXELS];
    float scores[ROWS * OWN_CLASSES]; /* scores that the trainer has computed for the same rows */
    uint64_t steps;                   /* number of steps that the trainer has made */
} scenario;

static char *contents(const char *path, size_t *size);

static void begin(scenario *s)
{
    int32_t label;
    fixture_begin(&s->f);
    scratch_begin(&s->dir);
    s->path = scratch_path(&s->dir, "model.safetensors");
    s->data = own_data(0);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "data.mean=0.3");
    fixture_set(&s->f, "data.std=0.4");
    ls_trainer *t = fixture_run(&s->f);
    for (uint32_t i = 0; i < ROWS; i++)
        own_row(1, i, s->images + (size_t)i * OWN_PIXELS, &label);
    assert_int_equal(
        own_predict(t, s->images, LS_ROW_U8, ROWS, s->scores, ROOM(s->scores), &s->f.err), LS_OK);
    s->steps = ls_trainer_result(t)->steps;
    assert_true(s->steps > 0);
    ls_model *snapshot;
    assert_int_equal(ls_trainer_model(&snapshot, t, &s->f.err), LS_OK);
    assert_int_equal(ls_model_save(snapshot, s->path, &s->f.err), LS_OK);
    ls_model_release(snapshot);
    ls_trainer_close(t, NULL);
    s->options =
        (ls_model_options){.size = sizeof s->options, .device = "ref:1", .registry = s->f.registry};
}

static void end(scenario *s)
{
    scratch_end(&s->dir);
    fixture_end(&s->f);
}

static ls_model *must_open(scenario *s)
{
    ls_model *model;
    if (ls_model_open(&model, s->path, &s->options, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    return model;
}

static void a_file_alone_predicts_what_its_trainer_did(void **state)
{
    (void)state;
    scenario s;
    float scores[ROWS * OWN_CLASSES], p[ROWS * OWN_CLASSES];
    ls_model_info info = {.size = sizeof info};
    begin(&s);
    ls_model *model = must_open(&s);
    ls_model_describe(model, &info, NULL);
    assert_int_equal(info.outputs, OWN_CLASSES);
    assert_int_equal(info.height, 28);
    assert_int_equal(info.steps, s.steps);
    assert_int_equal(ls_model_predict(model, s.images, LS_ROW_U8, ROWS, LS_OUTPUT_LOGITS, scores,
                                      ROOM(scores), &s.f.err),
                     LS_OK);
    assert_memory_equal(scores, s.scores, sizeof scores);
    assert_int_equal(ls_model_predict(model, s.images, LS_ROW_U8, ROWS, LS_OUTPUT_PREDICTION, p,
                                      ROOM(p), &s.f.err),
                     LS_OK);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0, all = 0;
        for (int k = 0; k < OWN_CLASSES; k++)
            all += exp((double)scores[i * OWN_CLASSES + k]);
        for (int k = 0; k < OWN_CLASSES; k++) {
            const double want = exp((double)scores[i * OWN_CLASSES + k]) / all;
            assert_true(fabs((double)p[i * OWN_CLASSES + k] - want) < 1e-6);
            sum += (double)p[i * OWN_CLASSES + k];
        }
        assert_true(fabs(sum - 1) < 1e-5);
    }
    assert_null(ls_model_class_name(model, 0)); /* the caller's data has no class names */
    assert_null(ls_model_class_name(model, -1));
    ls_model_release(model);
    end(&s);
}

/* The number of steps is in files of every kind; a file that lacks it says so. */
static void every_file_says_its_steps(void **state)
{
    (void)state;
    scenario s;
    char place[600];
    ls_model_info info = {.size = sizeof info};
    begin(&s);
    const uint64_t steps = s.steps;
    snprintf(place, sizeof place, "run_dir=%s", scratch_path(&s.dir, "run"));
    fixture_set(&s.f, place);
    ls_trainer *t = fixture_run(&s.f);
    s.path = scratch_path(&s.dir, "checkpoint.safetensors");
    assert_int_equal(ls_trainer_save(t, s.path, &s.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    const char *const names[] = {"checkpoint.safetensors", "run/weights.safetensors"};
    for (size_t i = 0; i < ROOM(names); i++) {
        s.path = scratch_path(&s.dir, names[i]);
        ls_model *model = must_open(&s);
        assert_int_equal(ls_model_describe(model, &info, NULL), LS_OK);
        assert_true(info.steps == steps);
        assert_true(info.threshold == 0.5); /* the file keeps none */
        ls_model_release(model);
    }
    end(&s);
}

/* Returns the number of bytes that this process has read so far. */
static size_t bytes_read(void)
{
    unsigned long long bytes;
    FILE *f = fopen("/proc/self/io", "r");
    if (!f)
        skip(); /* a kernel without this file */
    assert_int_equal(fscanf(f, "rchar: %llu", &bytes), 1);
    fclose(f);
    return (size_t)bytes;
}

/* A file is read once to verify its checksum, and once more for its weights. */
static void a_file_is_read_twice(void **state)
{
    (void)state;
    scenario s;
    size_t size;
    begin(&s);
    free(contents(s.path, &size));
    ls_model_release(must_open(&s)); /* reads what is read only once in a process */
    const size_t before = bytes_read();
    ls_model *model = must_open(&s);
    const size_t read = bytes_read() - before;
    ls_model_release(model);
    if (read > 2 * size + size / 2)
        fail_msg("%zu bytes were read of a file of %zu", read, size);
    end(&s);
}

static void classes_have_the_names_of_the_data(void **state)
{
    (void)state;
    scenario s;
    const char *path;
    ls_trainer *t;
    ls_model *model;
    fixture_begin(&s.f);
    scratch_begin(&s.dir);
    path = scratch_path(&s.dir, "named.safetensors");
    fixture_set(&s.f, "data.name=fashion_mnist");
    fixture_set(&s.f, "data.limit=64");
    static const char *const dirs[] = {"/usr/share/datasets"};
    s.f.options.data_dirs = dirs;
    s.f.options.data_dir_count = 1;
    if (ls_trainer_open(&t, &s.f.options, &s.f.err) != LS_OK) {
        scratch_end(&s.dir);
        fixture_end(&s.f);
        skip(); /* nothing to test: the data is not installed */
    }
    /* a checkpoint is a file of weights too */
    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    const ls_model_options o = {.size = sizeof o, .device = "ref:1", .registry = s.f.registry};
    if (ls_model_open(&model, path, &o, &s.f.err) != LS_OK)
        fail_msg("%s", s.f.err.text);
    assert_string_equal(ls_model_class_name(model, 0), "t-shirt");
    assert_string_equal(ls_model_class_name(model, 9), "ankle boot");
    assert_null(ls_model_class_name(model, 10));
    ls_model_release(model);
    scratch_end(&s.dir);
    fixture_end(&s.f);
}

/* Reads rows of six floats, with two numbers or two yes/no labels as targets. */
static int read_table(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                      void *targets, ls_error *err)
{
    (void)user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < 6; k++) {
            const float value = (float)((rows[i] * 7 + k * 5) % 11) / 11;
            ((float *)values)[i * 6 + k] = value;
            if (k < 2)
                ((float *)targets)[i * 2 + k] = value > 0.5f;
        }
    return LS_OK;
}

static void a_table_predicts(const char *loss)
{
    static const ls_data_source table = {.size = sizeof table,
                                         .name = "table",
                                         .channels = 6,
                                         .height = 1,
                                         .width = 1,
                                         .target_count = 2,
                                         .row_type = LS_ROW_F32,
                                         .train_rows = 96,
                                         .test_rows = 8,
                                         .read = read_table};
    static const float rows[12] = {0.1f, 0.9f, 0.3f, -2, 0.5f, 1e3f, 7, 0.25f, 0, 1, 0.75f, 0.125f};
    float want[4] = {0}, scores[4] = {0}, outputs[4] = {0};
    fixture f;
    scratch dir;
    const ls_data_source *sources[1];
    ls_model *model;
    ls_model_info info = {.size = sizeof info};
    fixture_begin(&f);
    scratch_begin(&dir);
    fixture_use_source(&f, &table, sources);
    fixture_set(&f, loss);
    fixture_set(&f, "model={\"layers\":[{\"type\":\"dense\",\"out\":5},{\"type\":\"tanh\"},"
                    "{\"type\":\"dense\",\"out\":2}]}");
    ls_trainer *t = fixture_run(&f);
    const char *path = scratch_path(&dir, "table.safetensors");
    if (own_predict(t, rows, LS_ROW_F32, 2, want, ROOM(want), &f.err) != LS_OK ||
        ls_trainer_save(t, path, &f.err) != LS_OK)
        fail_msg("%s", f.err.text);
    ls_trainer_close(t, NULL);
    const ls_model_options o = {.size = sizeof o, .device = "ref:1", .registry = f.registry};
    if (ls_model_open(&model, path, &o, &f.err) != LS_OK ||
        ls_model_predict(model, rows, LS_ROW_F32, 2, LS_OUTPUT_LOGITS, scores, ROOM(scores),
                         &f.err) != LS_OK ||
        ls_model_predict(model, rows, LS_ROW_F32, 2, LS_OUTPUT_PREDICTION, outputs, ROOM(outputs),
                         &f.err) != LS_OK)
        fail_msg("%s", f.err.text);
    assert_memory_equal(scores, want, sizeof want);
    for (int i = 0; i < 4; i++) {
        const double z = (double)scores[i], p = strstr(loss, "bce")       ? 1 / (1 + exp(-z))
                                                : strstr(loss, "poisson") ? exp(z)
                                                                          : z;
        assert_true(fabs((double)outputs[i] - p) < 1e-6 * (1 + fabs(p)));
    }
    ls_model_describe(model, &info, NULL);
    assert_true(info.row_type == LS_ROW_F32 && info.outputs == 2 &&
                info.task == (strstr(loss, "bce") ? LS_TASK_YES_NO : LS_TASK_VALUES));
    ls_model_release(model);
    scratch_end(&dir);
    fixture_end(&f);
}

static void a_model_of_floats_gives_numbers_or_bits(void **state)
{
    (void)state;
    a_table_predicts("loss=mse");
    a_table_predicts("loss=bce");
    a_table_predicts("loss=huber");
    a_table_predicts("loss=poisson");
}

/* ---- many at once --------------------------------------------------------------------------- */

typedef struct reader {
    scenario *s;
    ls_model *model;
    int right;
} reader;

static void *read_on(void *arg)
{
    reader *r = arg;
    float scores[ROWS * OWN_CLASSES];
    ls_error err;
    for (int i = 0; i < 20; i++)
        if (ls_model_predict(r->model, r->s->images, LS_ROW_U8, ROWS, LS_OUTPUT_LOGITS, scores,
                             ROOM(scores), &err) == LS_OK)
            r->right += memcmp(scores, r->s->scores, sizeof scores) == 0;
    ls_model_release(r->model);
    return NULL;
}

static void any_number_of_threads_predict_at_the_same_time(void **state)
{
    (void)state;
    scenario s;
    pthread_t thread[READERS];
    reader r[READERS];
    begin(&s);
    ls_model *model = must_open(&s);
    for (int i = 0; i < READERS; i++) {
        r[i] = (reader){&s, ls_model_retain(model), 0};
        assert_int_equal(pthread_create(&thread[i], NULL, read_on, &r[i]), 0);
    }
    ls_model_release(model); /* the release of the last reference frees it */
    for (int i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(r[i].right, 20);
    }
    end(&s);
}

static int threads_now(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void on_the_cpu_the_caller_itself_predicts_and_keeps_its_rounding(void **state)
{
    (void)state;
    scenario s;
    float up[ROWS * OWN_CLASSES], nearest[ROWS * OWN_CLASSES];
    if (!has_backend("cpu"))
        skip();
    begin(&s);
    s.options.device = "cpu:1";
    const int threads = threads_now();
    ls_model *model = must_open(&s);
    fesetround(FE_UPWARD);
    const int status = ls_model_predict(model, s.images, LS_ROW_U8, ROWS, LS_OUTPUT_PREDICTION, up,
                                        ROOM(up), &s.f.err);
    const int rounding = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(status, LS_OK);
    assert_int_equal(rounding, FE_UPWARD);
    assert_int_equal(threads_now(), threads);
    assert_int_equal(ls_model_predict(model, s.images, LS_ROW_U8, ROWS, LS_OUTPUT_PREDICTION,
                                      nearest, ROOM(nearest), &s.f.err),
                     LS_OK);
    assert_memory_equal(up, nearest, sizeof up);
    ls_model_release(model);
    end(&s);
}

/* ---- bad files ------------------------------------------------------------------------------ */

static char *contents(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    char *bytes = malloc(*size);
    rewind(f);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

enum { CHECKSUM_AT = 8 + 17 }; /* offset of "sha256" in a file, after {"__metadata__":{ */

static void refuses(scenario *s, const char *name, const char *says)
{
    ls_model *model = (ls_model *)s;
    const char *path = scratch_path(&s->dir, name);
    ls_error err = {0};
    int status = ls_model_open(&model, path, &s->options, &err);
    if (status == LS_OK || model)
        fail_msg("%s was opened", name);
    if (status != LS_EDATA && status != LS_ENOENT)
        fail_msg("%d: %s", status, err.text);
    assert_non_null(strstr(err.text, name)); /* the message names the file */
    if (says && !strstr(err.text, says))
        fail_msg("expected \"%s\" in: %s", says, err.text);
}

static void files_that_are_cut_off_are_refused(void **state)
{
    (void)state;
    scenario s;
    size_t size;
    begin(&s);
    char *bytes = contents(s.path, &size);
    for (size_t n = 0; n < size; n += n < 2000 ? 97 : 9973) {
        scratch_file(&s.dir, "cut", bytes, n);
        refuses(&s, "cut", NULL);
    }
    refuses(&s, "missing", NULL);
    free(bytes);
    end(&s);
}

/* Writes a safetensors file without tensors, whose metadata contain `card`, the description of a
 * model (config/card.h). */
static void put_card(scenario *s, const char *card)
{
    char header[3000], bytes[3100];
    int n = snprintf(header, sizeof header, "{\"__metadata__\":{\"lockstep_model\":\"");
    for (const char *c = card; *c; c++)
        n += snprintf(header + n, sizeof header - (size_t)n, *c == '"' ? "\\\"" : "%c", *c);
    n += snprintf(header + n, sizeof header - (size_t)n, "\"}}");
    memset(bytes, 0, 8);
    bytes[0] = (char)(n & 255);
    bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, header, (size_t)n);
    scratch_file(&s->dir, "hostile", bytes, (size_t)n + 8);
}

#define RECIPE                                                                                                         \
    "\"floats\":false,\"targets\":false,\"recipe\":{\"optimizer\":{\"name\":\"sgd\",\"lr\":1},\"model\":{\"layers\":[" \
    "{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":10}]}}"

static void cards_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *card, *says;
    } bad[] = {
        {"", NULL},
        {"[]", NULL},
        {"{}", NULL},
        {"{\"schema\":0,\"input\":[1,28,28],\"classes\":10," RECIPE "}", "schema"},
        {"{\"schema\":9,\"input\":[1,28,28],\"classes\":10,\"later\":1," RECIPE "}",
         "the model's card: written by a newer version of Lockstep (schema 9; this one reads up to "
         "1): update Lockstep, or use a file of this version"},
        {"{\"schema\":1,\"classes\":10," RECIPE "}", "input"},
        {"{\"schema\":1,\"input\":[1,28],\"classes\":10," RECIPE "}", "input"},
        {"{\"schema\":1,\"input\":[1,28,-28],\"classes\":10," RECIPE "}", "integer from 1"},
        {"{\"schema\":1,\"input\":[1,\"28\",28],\"classes\":10," RECIPE "}", "integer from 1"},
        {"{\"schema\":1,\"input\":[1,28.5,28],\"classes\":10," RECIPE "}", "integer from 1"},
        {"{\"schema\":1,\"input\":[1048576,1048576,1048576],\"classes\":10," RECIPE "}", NULL},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":0," RECIPE "}", "classes"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10,\"class_names\":[\"a\"]," RECIPE "}",
         "one for each"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":1,\"class_names\":[1]," RECIPE "}", "name"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10,\"features\":7," RECIPE "}", "features"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10,\"more\":1," RECIPE "}", "more"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10}", "recipe"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10,\"recipe\":{\"model\":\"/etc/passwd\"}}",
         "recipe"},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10,\"recipe\":{\"model\":{\"layers\":[]}}}",
         NULL},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":9," RECIPE "}", NULL},
        {"{\"schema\":1,\"input\":[1,28,28],\"classes\":10," RECIPE "}", "no tensor"},
    };
    scenario s;
    begin(&s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_card(&s, bad[i].card);
        refuses(&s, "hostile", bad[i].says);
    }
    scratch_file(&s.dir, "foreign", "\2\0\0\0\0\0\0\0{}", 10);
    refuses(&s, "foreign", "does not describe its model");
    end(&s);
}

/* Gives the checksum of a file another name: files of earlier versions have none. */
static void hide_checksum(char *bytes)
{
    assert_memory_equal(bytes + CHECKSUM_AT, "\"sha256\":", 9);
    memcpy(bytes + CHECKSUM_AT + 1, "former", 6);
}

/* Flips a bit of each byte. Only a flip in the name "sha256" hides the checksum; it changes no
 * weight and no description. */
static void a_flipped_bit_is_refused(void **state)
{
    (void)state;
    scenario s;
    size_t size;
    begin(&s);
    char *bytes = contents(s.path, &size);
    for (size_t i = 0; i < size; i += i < 3000 ? SLOW_BUILD ? 31 : 3 : 4999) {
        if (i > CHECKSUM_AT && i <= CHECKSUM_AT + 6)
            continue;
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        scratch_file(&s.dir, "flipped", bytes, size);
        refuses(&s, "flipped", NULL);
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
    }
    bytes[size - 1] ^= 1;
    scratch_file(&s.dir, "flipped", bytes, size);
    refuses(&s, "flipped", "; the file is damaged: use another copy of it");
    bytes[size - 1] ^= 1;
    hide_checksum(bytes);
    scratch_file(&s.dir, "former", bytes, size);
    s.path = scratch_path(&s.dir, "former");
    ls_model_release(must_open(&s));
    free(bytes);
    end(&s);
}

static void flipped_bytes_never_crash(void **state)
{
    (void)state;
    scenario s;
    size_t size;
    begin(&s);
    char *bytes = contents(s.path, &size);
    const size_t head = 8 + (size_t)(unsigned char)bytes[0] + 256 * (size_t)(unsigned char)bytes[1];
    hide_checksum(bytes); /* with it all flips are refused */
    for (size_t i = 0; i < head; i += SLOW_BUILD ? 31 : 5) {
        ls_model *model;
        bytes[i] ^= 0x15;
        scratch_file(&s.dir, "flipped", bytes, size);
        if (ls_model_open(&model, scratch_path(&s.dir, "flipped"), &s.options, &s.f.err) == LS_OK)
            ls_model_release(model); /* for example, a changed digit of a learning rate */
        bytes[i] ^= 0x15;
    }
    free(bytes);
    end(&s);
}

/* ---- memory --------------------------------------------------------------------------------- */

typedef struct tight {
    /* left: number of allocations that still succeed; held: number of blocks that are allocated
     * now */
    atomic_long left, held;
} tight;

static void *tight_alloc(void *user, size_t bytes, size_t align)
{
    tight *t = user;
    void *memory = NULL;
    if (atomic_fetch_sub(&t->left, 1) <= 0 ||
        posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0)
        return NULL;
    atomic_fetch_add(&t->held, 1);
    return memory;
}

static void tight_free(void *user, void *memory)
{
    atomic_fetch_sub(&((tight *)user)->held, 1);
    free(memory);
}

static void each_allocation_may_fail_and_nothing_stays(void **state)
{
    (void)state;
    scenario s;
    tight t = {0};
    const ls_host host = {.size = sizeof host, tight_alloc, tight_free, NULL, &t};
    int status = LS_ENOMEM, attempts = 0;
    begin(&s);
    s.options.host = &host;
    for (; status != LS_OK && attempts < 5000; attempts++) {
        ls_model *model = NULL;
        atomic_store(&t.left, attempts);
        status = ls_model_open(&model, s.path, &s.options, &s.f.err);
        assert_true(status == LS_OK || status == LS_ENOMEM);
        ls_model_release(model);
        assert_int_equal(atomic_load(&t.held), 0);
    }
    assert_int_equal(status, LS_OK);
    assert_true(attempts > 20);
    end(&s);
}

LS_TESTS(train_model_file, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_alone_predicts_what_its_trainer_did),
        cmocka_unit_test(a_model_of_floats_gives_numbers_or_bits),
        cmocka_unit_test(every_file_says_its_steps),
        cmocka_unit_test(a_file_is_read_twice),
        cmocka_unit_test(classes_have_the_names_of_the_data),
        cmocka_unit_test(any_number_of_threads_predict_at_the_same_time),
        cmocka_unit_test(on_the_cpu_the_caller_itself_predicts_and_keeps_its_rounding),
        cmocka_unit_test(files_that_are_cut_off_are_refused),
        cmocka_unit_test(cards_that_make_no_sense_are_refused),
        cmocka_unit_test(a_flipped_bit_is_refused),
        cmocka_unit_test(flipped_bytes_never_crash),
        cmocka_unit_test(each_allocation_may_fail_and_nothing_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
