/* SPDX-License-Identifier: MIT */
/* faces CONFIG [KEY=VALUE …]: trains with the config file CONFIG through the library, and prints
 * the SHA-256 of the weights.
 *
 * faces CONFIG rows HOW X Y ROWS FEATURES TARGETS CLASSES TYPE [KEY=VALUE …]: trains on rows of the
 * program's own, a data source called "mine". X and Y are files with the numbers, without a header:
 * TYPE u8, f32 or f64, for the rows; targets f32, or f64 if TYPE is f64 or ends with ":f64";
 * classes int32. HOW:
 *
 *     resident   ls_trainer_run, rows in memory
 *     streamed   ls_trainer_run, rows that are read before their step
 *     steps      ls_trainer_step with the rows in the order of the file
 *     again      as `steps`, but after half of the steps the weights are saved, and another trainer
 *                loads them and goes on
 */
#include <lockstep/model.h>
#include <lockstep/trainer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct own {
    char *x, *y;
    size_t row, target; /* sizes in bytes */
    ls_data_source source;
} own;

static char *load(const char *path, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(bytes + 1);
    if (!file || !data || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "faces: %s: cannot read %zu bytes\n", path, bytes);
        exit(66);
    }
    fclose(file);
    return data;
}

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    const own *o = user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        memcpy((char *)values + i * o->row, o->x + rows[i] * o->row, o->row);
        memcpy((char *)targets + i * o->target, o->y + rows[i] * o->target, o->target);
    }
    return LS_OK;
}

/* Reads the arguments from HOW on. */
static void open_rows(own *o, char **a)
{
    const size_t rows = (size_t)atol(a[3]), features = (size_t)atol(a[4]);
    const int targets = atoi(a[5]);
    const size_t number = a[7][0] == 'u' ? 1 : a[7][1] == '3' ? 4 : 8;
    const int wide = strchr(a[7], ':') != NULL;
    o->row = features * number;
    o->target = targets ? (size_t)targets * (number == 8 || wide ? 8 : 4) : 4;
    o->x = load(a[1], rows * o->row);
    o->y = load(a[2], rows * o->target);
    o->source = (ls_data_source){
        .size = sizeof o->source,
        .name = "mine",
        .channels = (int)features,
        .height = 1,
        .width = 1,
        .classes = atoi(a[6]),
        .target_count = targets,
        .train_rows = a[0][0] == 'r' || a[0][1] == 't' ? (uint32_t)rows : 0,
        .streamed = a[0][0] != 'r',
        .read = read_rows,
        .user = o,
        .row_type = number == 1   ? LS_ROW_U8
                    : number == 4 ? LS_ROW_F32
                                  : LS_ROW_F64,
        .target_type = wide ? LS_ROW_F64 : (ls_row_type)0,
    };
    if (strcmp(a[0], "steps") == 0 || strcmp(a[0], "again") == 0) {
        o->source.train_rows = 0;
        o->source.test_rows = (uint32_t)rows;
    }
}

/* Trains the steps from `first` to `end`. */
static int train(ls_trainer *t, const own *o, uint32_t first, uint32_t end, ls_error *err)
{
    const uint32_t batch = (uint32_t)ls_trainer_summary(t)->batch_size;
    int status = LS_OK;
    for (uint32_t i = first; status == LS_OK && i < end; i++) {
        const ls_step_rows rows = {sizeof rows,
                                   o->x + (size_t)i * batch * o->row,
                                   o->y + (size_t)i * batch * o->target,
                                   o->source.row_type,
                                   batch,
                                   NULL};
        status = ls_trainer_step(t, &rows, NULL, err);
    }
    return status;
}

static int train_in_steps(ls_trainer **t, const ls_trainer_options *options, const own *o,
                          uint32_t rows, int again, ls_error *err)
{
    const uint32_t steps = rows / (uint32_t)ls_trainer_summary(*t)->batch_size;
    int status = train(*t, o, 0, again ? steps / 2 : steps, err);
    if (status || !again)
        return status;
    status = ls_trainer_save(*t, "half.safetensors", err);
    ls_trainer_close(*t, NULL);
    *t = NULL;
    if (status == LS_OK)
        status = ls_trainer_open(t, options, err);
    if (status == LS_OK)
        status = ls_trainer_load(*t, "half.safetensors", err);
    return status ? status : train(*t, o, steps / 2, steps, err);
}

/* Fails if the loss of an evaluation is not that of the predictions of the same rows, which are
 * floats with one target. */
static int check_loss(ls_trainer *t, const own *o, ls_error *err)
{
    const uint32_t rows = o->source.test_rows;
    float *y = malloc(rows * sizeof *y);
    double sum = 0;
    ls_evaluation found = {.size = sizeof found};
    ls_model *model = NULL;
    int status = ls_trainer_evaluate(t, &found, err);
    if (status == LS_OK)
        status = ls_trainer_model(&model, t, err);
    if (status == LS_OK)
        status = ls_model_predict(model, o->x, o->source.row_type, rows, LS_OUTPUT_PREDICTION, y,
                                  rows, err);
    ls_model_release(model);
    for (uint32_t i = 0; status == LS_OK && i < rows; i++) {
        const double d = (double)y[i] - (double)((const float *)(const void *)o->y)[i];
        sum += d * d / rows;
    }
    free(y);
    if (status == LS_OK && !(found.loss > 0.999 * sum && found.loss < 1.001 * sum)) {
        fprintf(stderr, "faces: the loss is %g, that of the predictions %g\n", found.loss, sum);
        return 1;
    }
    return status;
}

int main(int argc, char **argv)
{
    own o = {0};
    const ls_data_source *const sources[] = {&o.source};
    ls_trainer *t = NULL;
    ls_error err;
    const int own_rows = argc > 10 && strcmp(argv[2], "rows") == 0, first = own_rows ? 11 : 2;
    ls_trainer_options options = {.size = sizeof options,
                                  .config_path = argv[1],
                                  .cache_dir = "lockstep", /* for folders of pictures */
                                  .set = (const char *const *)argv + first,
                                  .set_count = argc - first};
    if (argc < 2)
        return 64;
    if (own_rows) {
        open_rows(&o, argv + 3);
        options.sources = sources;
        options.source_count = 1;
    }
    int status = ls_trainer_open(&t, &options, &err);
    if (status == LS_OK && own_rows && o.source.train_rows == 0)
        status = train_in_steps(&t, &options, &o, (uint32_t)atol(argv[6]), argv[3][0] == 'a', &err);
    else if (status == LS_OK)
        status = ls_trainer_run(t, &err);
    if (status == LS_OK && o.source.test_rows > 0 && o.source.target_count == 1 &&
        o.source.row_type == LS_ROW_F32 && !o.source.target_type)
        status = check_loss(t, &o, &err);
    if (status == LS_OK)
        status = ls_trainer_save(t, "faces.safetensors", &err);
    if (status == LS_OK)
        printf("%s\n", ls_trainer_result(t)->weights_sha256);
    else
        fprintf(stderr, "faces: %s\n", err.text);
    ls_trainer_close(t, NULL);
    free(o.x);
    free(o.y);
    return status != LS_OK;
}
