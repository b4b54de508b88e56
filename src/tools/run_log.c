#include "tools/run_log.h"

#include "base/error.h"
#include "base/host.h"
#include "tools/line_reader.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

const char *const ls_phase_keys[LS_PHASES] = {"gather_s",       "forward_s", "backward_s",
                                              "comm_exposed_s", "wait_s",    "apply_s"};
const char *const ls_phase_names[LS_PHASES] = {"gather",     "forward", "backward",
                                               "all-reduce", "wait",    "apply"};

/* ---- members -------------------------------------------------------------------------------- */

const cJSON *ls_log_node(const ls_json *doc, const char *path)
{
    const cJSON *node = doc ? ls_json_root(doc) : NULL;
    while (node && *path) {
        char key[64];
        size_t n = strcspn(path, ".");
        if (n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        node = cJSON_GetObjectItemCaseSensitive(node, key);
        path += n + (path[n] == '.');
    }
    return node;
}

const char *ls_log_text(const ls_json *doc, const char *path)
{
    const cJSON *node = ls_log_node(doc, path);
    return cJSON_IsString(node) ? node->valuestring : NULL;
}

double ls_log_number(const ls_json *doc, const char *path)
{
    const cJSON *node = ls_log_node(doc, path);
    return cJSON_IsNumber(node) ? node->valuedouble : NAN;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(node) ? node->valuedouble : NAN;
}

/* ---- records -------------------------------------------------------------------------------- */

/* Makes room for one element more. */
static int grow(void **array, size_t count, size_t *capacity, size_t size, const ls_host *host)
{
    if (count < *capacity)
        return 1;
    size_t wanted = *capacity ? *capacity * 2 : 256;
    void *bigger = ls_alloc_array(host, wanted, size);
    if (!bigger)
        return 0;
    if (*array)
        memcpy(bigger, *array, count * size);
    ls_free(host, *array);
    *array = bigger;
    *capacity = wanted;
    return 1;
}

static int add_times(ls_run_log *log, const cJSON *workers)
{
    int count = cJSON_GetArraySize(workers);
    if (!log->phase_s && count > 0) {
        log->phase_s = ls_alloc_array(log->host, (size_t)count * LS_PHASES, sizeof(double));
        if (!log->phase_s)
            return 0;
        log->workers = count;
    }
    if (count == 0 || count != log->workers)
        return 1;
    const cJSON *worker;
    double *sum = log->phase_s;
    cJSON_ArrayForEach(worker, workers)
    {
        for (int p = 0; p < LS_PHASES; p++) {
            double seconds = number_of(worker, ls_phase_keys[p]);
            *sum++ += seconds > 0 ? seconds : 0;
        }
    }
    log->timed_steps++;
    return 1;
}

static int take_step(ls_run_log *log, const cJSON *record)
{
    if (!grow((void **)&log->step, log->steps, &log->step_capacity, sizeof *log->step, log->host))
        return 0;
    double step = number_of(record, "step");
    log->step[log->steps] = (ls_log_step){
        .step = step >= 1 && step < 9e15 ? (uint64_t)step : log->steps + 1,
        .loss = (float)number_of(record, "loss"),
        .images_per_s = (float)number_of(record, "images_per_s"),
    };
    log->steps++;
    return add_times(log, cJSON_GetObjectItemCaseSensitive(record, "workers"));
}

/* The entry of a record's epoch, made when it is new. */
static ls_log_epoch *epoch_of(ls_run_log *log, const cJSON *record)
{
    double number = number_of(record, "epoch");
    int epoch = number >= 1 && number < 1e9 ? (int)number : (int)log->epochs + 1;
    if (log->epochs > 0 && log->epoch[log->epochs - 1].epoch == epoch)
        return &log->epoch[log->epochs - 1];
    if (!grow((void **)&log->epoch, log->epochs, &log->epoch_capacity, sizeof *log->epoch,
              log->host))
        return NULL;
    ls_log_epoch *e = &log->epoch[log->epochs++];
    *e = (ls_log_epoch){
        epoch, log->steps ? log->step[log->steps - 1].step : 0, NAN, NAN, NAN, NAN, NAN, NAN};
    return e;
}

static int take_epoch(ls_run_log *log, const cJSON *record)
{
    ls_log_epoch *e = epoch_of(log, record);
    if (!e)
        return 0;
    e->seconds = number_of(record, "seconds");
    e->images_per_s = number_of(record, "images_per_s");
    e->train_loss = number_of(record, "train_loss");
    e->train_accuracy = number_of(record, "train_accuracy");
    return 1;
}

static int take_eval(ls_run_log *log, const cJSON *record)
{
    ls_log_epoch *e = epoch_of(log, record);
    if (!e)
        return 0;
    e->test_loss = number_of(record, "test_loss");
    e->test_accuracy = number_of(record, "test_accuracy");
    return 1;
}

/* Takes over `*doc` (and sets it to NULL) when the log keeps it. Records of other types are for
 * other readers. Returns 0 when memory runs out. */
static int take_record(ls_run_log *log, ls_json **doc, const char *type)
{
    const cJSON *record = ls_json_root(*doc);
    ls_json **keep = strcmp(type, "run_start") == 0 ? &log->start
                     : strcmp(type, "run_end") == 0 ? &log->end
                                                    : NULL;
    if (keep) {
        ls_json_destroy(*keep);
        *keep = *doc;
        *doc = NULL;
        return 1;
    }
    if (strcmp(type, "fault") == 0 || strcmp(type, "nonfinite") == 0 ||
        strcmp(type, "resume") == 0) {
        if (log->events < LS_LOG_EVENTS) {
            log->event[log->events] = *doc;
            *doc = NULL;
        }
        log->events++;
        return 1;
    }
    if (strcmp(type, "step") == 0)
        return take_step(log, record);
    if (strcmp(type, "epoch") == 0)
        return take_epoch(log, record);
    if (strcmp(type, "eval") == 0)
        return take_eval(log, record);
    return 1;
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* A document without a name calls its first line ":1:": the column and the message follow. */
static const char *after_place(const char *text)
{
    return strncmp(text, ":1:", 3) == 0 ? text + 3 : text;
}

static int take_line(ls_run_log *log, const ls_line_reader *r, ls_error *err)
{
    ls_json *doc;
    ls_error cause;
    int status = ls_json_parse(&doc, "", r->line, r->length, log->host, &cause);
    if (status == LS_ENOMEM)
        return ls_fail(err, status, "%s", cause.text);
    /* What a power cut took of a file's new end reads as zeros, where something behind it was kept. */
    if (status && (r->last || memchr(r->line, '\0', r->length))) {
        log->cut_line = r->number;
        return LS_OK;
    }
    if (status)
        return ls_fail(err, LS_EDATA, "%.200s:%d:%.250s", r->path, r->number,
                       after_place(cause.text));
    const char *type = ls_log_text(doc, "type");
    if (!type)
        status = ls_fail(err, LS_EDATA,
                         "%.300s:%d:1: expected a record, an object with a \"type\"; this is no "
                         "metrics file of a run",
                         r->path, r->number);
    else if (!take_record(log, &doc, type))
        status = ls_fail(err, LS_ENOMEM, "%.300s: out of memory", r->path);
    ls_json_destroy(doc);
    return status;
}

static int read_metrics(ls_run_log *log, const char *path, ls_error *err)
{
    ls_line_reader r;
    int status = ls_line_reader_open(&r, path, log->host, err);
    if (status)
        return status;
    while ((status = ls_line_reader_next(&r, err)) == LS_OK && r.line)
        if ((status = take_line(log, &r, err)) != LS_OK || log->cut_line)
            break;
    ls_line_reader_close(&r);
    if (status == LS_OK && !log->start && log->steps == 0)
        status = ls_fail(err, LS_EDATA,
                         "%.300s: holds no complete record yet; wait until the run "
                         "has begun",
                         path);
    return status;
}

/* ---- record by record ----------------------------------------------------------------------- */

void ls_run_log_init(ls_run_log *out, const ls_host *host)
{
    *out = (ls_run_log){.host = host, .dir = ""};
}

/* The config as a document of its own. */
static int take_config(ls_run_log *log, ls_error *err)
{
    ls_json_writer w;
    size_t length;
    const cJSON *node = ls_log_node(log->start, "config");
    if (!node)
        return LS_OK;
    ls_json_writer_init(&w, 2, log->host);
    ls_json_put_node(&w, NULL, node);
    const char *text = ls_json_writer_text(&w, &length, err);
    ls_json_destroy(log->config);
    log->config = NULL;
    int status =
        text ? ls_json_parse(&log->config, "config", text, length, log->host, err) : LS_ENOMEM;
    ls_json_writer_fini(&w);
    return status;
}

int ls_run_log_add(ls_run_log *log, char *type, size_t size, const char *json, size_t length,
                   ls_error *err)
{
    ls_json *doc;
    int status = ls_json_parse(&doc, "record", json, length, log->host, err);
    if (status)
        return status == LS_ENOMEM ? status : LS_EDATA;
    const char *found = ls_log_text(doc, "type");
    snprintf(type, size, "%s", found ? found : "");
    if (!take_record(log, &doc, type))
        status = ls_fail(err, LS_ENOMEM, "out of memory for the records of the run");
    ls_json_destroy(doc);
    return status == LS_OK && strcmp(type, "run_start") == 0 ? take_config(log, err) : status;
}

/* ---- the directory -------------------------------------------------------------------------- */

static int check_directory(const char *dir, ls_error *err)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return ls_fail(err, errno == ENOENT || errno == ENOTDIR ? LS_ENOENT : LS_EIO,
                       "%.300s: %s; expected the directory of a run, such as runs/<time>-<name>",
                       dir,
                       errno == ENOENT || errno == ENOTDIR ? "no such directory" : strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return ls_fail(err, LS_ENOENT,
                       "%.300s: expected the directory of a run, found a file; "
                       "name the directory it is in",
                       dir);
    return LS_OK;
}

/* "DIR/file" */
static int join(char *path, size_t size, const char *dir, const char *file, ls_error *err)
{
    int n = snprintf(path, size, "%s/%s", dir, file);
    return n >= 0 && (size_t)n < size ? LS_OK
                                      : ls_fail(err, LS_EIO, "%.300s…: the path is too long", dir);
}

static int read_all(ls_run_log *log, ls_error *err)
{
    char path[PATH_BYTES];
    struct stat st;
    static const char *const files[2] = {"metrics.jsonl", "config.json"};
    int status = check_directory(log->dir, err);
    for (int i = 0; status == LS_OK && i < 2; i++) {
        status = join(path, sizeof path, log->dir, files[i], err);
        if (status == LS_OK && stat(path, &st) != 0 && errno == ENOENT)
            status = ls_fail(err, LS_ENOENT,
                             "%.300s: no %s here; expected the directory of a run, "
                             "such as runs/<time>-<name>",
                             log->dir, files[i]);
    }
    if (status == LS_OK)
        status = ls_json_read_file(&log->config, path, log->host, err);
    if (status == LS_OK)
        status = join(path, sizeof path, log->dir, files[0], err);
    return status ? status : read_metrics(log, path, err);
}

int ls_run_log_read(ls_run_log *out, const char *dir, const ls_host *host, ls_error *err)
{
    *out = (ls_run_log){.host = host, .dir = dir};
    int status = read_all(out, err);
    if (status)
        ls_run_log_fini(out);
    return status;
}

void ls_run_log_fini(ls_run_log *log)
{
    ls_json_destroy(log->config);
    ls_json_destroy(log->start);
    ls_json_destroy(log->end);
    for (int i = 0; i < log->events && i < LS_LOG_EVENTS; i++)
        ls_json_destroy(log->event[i]);
    ls_free(log->host, log->step);
    ls_free(log->host, log->epoch);
    ls_free(log->host, log->phase_s);
    *log = (ls_run_log){.host = log->host};
}
