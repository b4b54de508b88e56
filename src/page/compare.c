/* SPDX-License-Identifier: MIT */
/* Compares runs. A row of the comparison is a figure, such as the accuracy, or a key in which the
 * configs of the runs differ (compare.h). */
#include "page/compare.h"

#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "base/utf8.h"
#include "page/template.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* page.html with page.css, chart.js and compare.js inserted; created by the build. */
extern const unsigned char ls_compare_text[];

/* ---- rows ------------------------------------------------------------------------------------ */

/* Adds a row without values. Returns NULL if memory ran out. */
static ls_compared_row *add_row(ls_comparison *c, ls_compared_kind kind, const char *name)
{
    ls_compared_row *all = ls_grown(c->host, c->row, c->rows, &c->capacity, sizeof *all);
    char *copy = ls_strdup(c->host, name);
    c->row = all ? all : c->row;
    if (!all || !copy) {
        ls_free(c->host, copy);
        return NULL;
    }
    all[c->rows] = (ls_compared_row){.kind = kind, .name = copy};
    return &all[c->rows++];
}

static int set_value(ls_comparison *c, ls_compared_row *row, int run, const char *text)
{
    row->value[run] = ls_strdup(c->host, text);
    return row->value[run] ? LS_OK : LS_ENOMEM;
}

/* ---- figures --------------------------------------------------------------------------------- */

enum { TEXT = 300 };

static void put_number(char out[TEXT], const char *format, double value)
{
    out[0] = '\0';
    if (!isnan(value))
        snprintf(out, TEXT, format, value);
}

static void format_time(char out[TEXT], double s)
{
    out[0] = '\0';
    if (s >= 3600)
        snprintf(out, TEXT, "%.0f h %02.0f min", floor(s / 3600), floor(fmod(s, 3600) / 60));
    else if (s >= 60)
        snprintf(out, TEXT, "%.0f min %02.0f s", floor(s / 60), floor(fmod(s, 60)));
    else if (s >= 0.1)
        snprintf(out, TEXT, "%.1f s", s);
    else if (s >= 1e-3)
        snprintf(out, TEXT, "%.0f ms", 1e3 * s);
    else if (s > 0)
        snprintf(out, TEXT, "%.0f µs", 1e6 * s);
}

static void format_state(char out[TEXT], const ls_run_facts *f)
{
    snprintf(out, TEXT, "%s", ls_run_states[f->state]);
    if (f->resumed == 1)
        snprintf(out, TEXT, "%s, resumed", ls_run_states[f->state]);
    if (f->resumed > 1)
        snprintf(out, TEXT, "%s, resumed %d times", ls_run_states[f->state], f->resumed);
    if (f->lacks_records)
        snprintf(out + strlen(out), TEXT - strlen(out), ", earlier records missing");
}

/* The figures of a run, in the order of their rows. */
enum figure {
    STATE,
    VALUE,
    BEST,
    LOSS,
    TRAIN_LOSS,
    EPOCHS,
    STEPS,
    RATE,
    TIME,
    BEGUN,
    DATA,
    DEVICES,
    CHANGES,
    PARAMETERS,
    HASH,
    FIGURES
};

static void format_figure(char out[TEXT], enum figure what, const ls_run_facts *f)
{
    out[0] = '\0';
    switch (what) {
    case STATE: format_state(out, f); break;
    case VALUE: ls_metric_put(out, f->value, f->value); break;
    case BEST: ls_metric_put(out, f->best, f->best); break;
    case LOSS: ls_metric_put(out, f->measured[LS_METRIC_LOSS], f->measured[LS_METRIC_LOSS]); break;
    case TRAIN_LOSS: ls_metric_put(out, f->train_loss, f->train_loss); break;
    case EPOCHS: snprintf(out, TEXT, "%d of %d", f->epochs, f->of_epochs); break;
    case STEPS: snprintf(out, TEXT, "%llu", (unsigned long long)f->steps); break;
    case RATE: put_number(out, "%.0f", f->rate); break;
    case TIME: format_time(out, f->seconds); break;
    case BEGUN:
        if (strlen(f->begun) >= 16)
            snprintf(out, TEXT, "%.10s %.5s", f->begun, f->begun + 11);
        break;
    case DATA:
        snprintf(out, TEXT, "%s%s", f->own_data[0] ? f->own_data : f->data,
                 f->synthetic ? " (SYNTHETIC)" : "");
        break;
    case DEVICES: snprintf(out, TEXT, "%s", f->devices); break;
    case CHANGES: snprintf(out, TEXT, "%s", f->changes); break;
    case PARAMETERS: snprintf(out, TEXT, "%llu", (unsigned long long)f->parameters); break;
    case HASH: snprintf(out, TEXT, "%.8s", f->hash); break;
    case FIGURES: break;
    }
}

/* Returns the metric that is the main one of all runs; LS_METRICS: they differ. */
static ls_metric common_metric(const ls_comparison *c)
{
    for (int i = 1; i < c->count; i++)
        if (c->facts[i].metric != c->facts[0].metric)
            return LS_METRICS;
    return c->facts[0].metric;
}

/* Writes the name of a figure. The figures VALUE and BEST have the name of the metric that all runs
 * have. */
static void name_figure(char out[64], enum figure what, const ls_comparison *c)
{
    static const char *const names[FIGURES] = {
        [STATE] = "ended",
        [LOSS] = "loss",
        [TRAIN_LOSS] = "training loss",
        [EPOCHS] = "epochs",
        [STEPS] = "steps",
        [RATE] = "rows/s",
        [TIME] = "time",
        [BEGUN] = "begun (UTC)",
        [DATA] = "data",
        [DEVICES] = "devices",
        [CHANGES] = "lost or admitted",
        [PARAMETERS] = "parameters",
        [HASH] = "weights",
    };
    const ls_metric shared = common_metric(c);
    const char *metric = shared == LS_METRICS ? "value" : ls_metric_title(shared),
               *judged = c->facts[0].judged;
    for (int i = 1; i < c->count; i++)
        judged = strcmp(judged, c->facts[i].judged) == 0 ? judged : "evaluation";
    if (what == VALUE || what == BEST)
        snprintf(out, 64, "%s%s", what == BEST ? "best " : "", metric);
    else if (what == LOSS)
        snprintf(out, 64, "%s loss", judged);
    else
        snprintf(out, 64, "%s", names[what]);
}

/* Adds a row with the texts of all runs. */
static int add_texts(ls_comparison *c, ls_compared_kind kind, const char *name,
                     char text[LS_COMPARED][TEXT])
{
    ls_compared_row *row = add_row(c, kind, name);
    int status = row ? LS_OK : LS_ENOMEM;
    for (int i = 0; i < c->count && status == LS_OK; i++)
        status = set_value(c, row, i, text[i]);
    return status;
}

/* Adds a row of figures, unless no run has the figure. */
static int add_figure(ls_comparison *c, const char *name, char text[LS_COMPARED][TEXT])
{
    bool any = false;
    for (int i = 0; i < c->count; i++)
        any |= text[i][0] != '\0';
    return any ? add_texts(c, LS_COMPARED_FIGURE, name, text) : LS_OK;
}

/* Adds a row for each metric of the evaluations that the rows VALUE and LOSS do not show. */
static int add_other_metrics(ls_comparison *c)
{
    char text[LS_COMPARED][TEXT];
    const ls_metric common = common_metric(c);
    int status = LS_OK;
    for (int m = 0; m < LS_METRICS && status == LS_OK; m++) {
        const char *name = ls_metric_title((ls_metric)m);
        for (int i = 0; i < c->count; i++)
            ls_metric_put(text[i], c->facts[i].measured[m], c->facts[i].measured[m]);
        if (name[0] && (ls_metric)m != common)
            status = add_figure(c, name, text);
    }
    return status;
}

static int add_figures(ls_comparison *c)
{
    char name[64], text[LS_COMPARED][TEXT];
    int status = LS_OK;
    for (int what = 0; what < FIGURES && status == LS_OK; what++) {
        name_figure(name, (enum figure)what, c);
        for (int i = 0; i < c->count; i++)
            format_figure(text[i], (enum figure)what, &c->facts[i]);
        if (what != VALUE || common_metric(c) != LS_METRICS)
            status = add_figure(c, name, text);
        if (status == LS_OK && what == BEST)
            status = add_other_metrics(c);
    }
    return status;
}

/* ---- configs --------------------------------------------------------------------------------- */

enum { KEY = 200, MODEL_ROWS = 12 };

static const cJSON *config_of(const ls_comparison *c, int run)
{
    return c->start[run] ? cJSON_GetObjectItemCaseSensitive(ls_json_root(c->start[run]), "config")
                         : NULL;
}

static ls_compared_row *find_row(ls_comparison *c, const char *key)
{
    for (size_t i = 0; i < c->rows; i++)
        if (c->row[i].kind == LS_COMPARED_CONFIG && strcmp(c->row[i].name, key) == 0)
            return &c->row[i];
    return add_row(c, LS_COMPARED_CONFIG, key);
}

/* Returns whether a value of a config is shown in one row. That is the case unless it is an object,
 * or an array that contains an object. */
static bool is_leaf(const cJSON *node)
{
    if (cJSON_IsObject(node))
        return node->child == NULL;
    for (const cJSON *item = cJSON_IsArray(node) ? node->child : NULL; item; item = item->next)
        if (cJSON_IsObject(item))
            return false;
    return true;
}

static int add_leaf(ls_comparison *c, int run, const char *key, const cJSON *node)
{
    ls_json_writer w;
    ls_compared_row *row = find_row(c, key);
    if (!row)
        return LS_ENOMEM;
    ls_json_writer_init(&w, 0, c->host);
    ls_json_put_node(&w, NULL, node);
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    const char *plain = cJSON_IsString(node) ? node->valuestring : text;
    char epochs[16]; /* a resumed run can have more epochs than its first config says */
    snprintf(epochs, sizeof epochs, "%d", c->facts[run].of_epochs);
    if (strcmp(key, "epochs") == 0 && c->facts[run].of_epochs > 0)
        plain = epochs;
    int status = plain && !row->value[run] ? set_value(c, row, run, plain)
                 : plain                   ? LS_OK
                                           : LS_ENOMEM;
    ls_json_writer_fini(&w);
    return status;
}

/* Adds all values of the object or array with the key `prefix`. The recursion is bounded, because
 * the JSON parser limits the depth. */
static int add_values(ls_comparison *c, int run, const char *prefix, const cJSON *node)
{
    char key[KEY];
    int status = LS_OK, index = 0;
    for (const cJSON *item = node->child; item && status == LS_OK; item = item->next, index++) {
        const char *dot = prefix[0] ? "." : "";
        if (item->string)
            snprintf(key, sizeof key, "%s%s%s", prefix, dot, item->string);
        else
            snprintf(key, sizeof key, "%s%s%d", prefix, dot, index);
        status = is_leaf(item) ? add_leaf(c, run, key, item) : add_values(c, run, key, item);
    }
    return status;
}

static void free_row(const ls_comparison *c, ls_compared_row *row)
{
    for (int i = 0; i < LS_COMPARED; i++)
        ls_free(c->host, row->value[i]);
    ls_free(c->host, row->name);
}

/* Returns whether the runs have different values of a key. Returns false for run_dir, which always
 * differs. */
static bool differs(const ls_comparison *c, const ls_compared_row *row)
{
    if (strcmp(row->name, "run_dir") == 0)
        return false;
    for (int i = 1; i < c->count; i++) {
        const char *a = row->value[0], *b = row->value[i];
        if (!a != !b || (a && strcmp(a, b) != 0))
            return true;
    }
    return false;
}

static bool is_of_model(const ls_compared_row *row)
{
    return row->kind == LS_COMPARED_CONFIG && strncmp(row->name, "model.", 6) == 0;
}

/* Removes the rows from index `from` on for which `wanted` returns false. The other rows stay in
 * order. */
static void keep_rows(ls_comparison *c, size_t from,
                      bool (*wanted)(const ls_comparison *, const ls_compared_row *))
{
    size_t kept = from;
    for (size_t i = from; i < c->rows; i++) {
        if (wanted(c, &c->row[i]))
            c->row[kept++] = c->row[i];
        else
            free_row(c, &c->row[i]);
    }
    c->rows = kept;
}

static bool is_not_of_model(const ls_comparison *c, const ls_compared_row *row)
{
    (void)c;
    return !is_of_model(row);
}

/* If the models differ in many keys, replaces the rows of these keys by one row with the numbers of
 * layers. */
static int shorten_model(ls_comparison *c, size_t from)
{
    char text[TEXT];
    size_t count = 0;
    for (size_t i = from; i < c->rows; i++)
        count += is_of_model(&c->row[i]);
    if (count <= MODEL_ROWS)
        return LS_OK;
    keep_rows(c, from, is_not_of_model);
    ls_compared_row *row = add_row(c, LS_COMPARED_CONFIG, "model");
    int status = row ? LS_OK : LS_ENOMEM;
    for (int i = 0; i < c->count && status == LS_OK; i++) {
        const cJSON *model = cJSON_GetObjectItemCaseSensitive(config_of(c, i), "model");
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(model, "name");
        const int layers = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(model, "layers"));
        snprintf(text, sizeof text, "%.100s%s%d layers",
                 cJSON_IsString(name) ? name->valuestring : "", cJSON_IsString(name) ? ", " : "",
                 layers);
        status = set_value(c, row, i, text);
    }
    return status;
}

static int add_configs(ls_comparison *c)
{
    const size_t from = c->rows;
    int status = LS_OK;
    for (int i = 0; i < c->count && status == LS_OK; i++)
        if (config_of(c, i))
            status = add_values(c, i, "", config_of(c, i));
    keep_rows(c, from, differs);
    if (status == LS_OK)
        status = shorten_model(c, from);
    for (size_t r = from; r < c->rows && status == LS_OK; r++)
        for (int i = 0; i < c->count && status == LS_OK; i++)
            if (!c->row[r].value[i])
                status = set_value(c, &c->row[r], i, "");
    return status;
}

/* ---- other differences ----------------------------------------------------------------------- */

/* Adds a row for a text of the first records, if two runs that have it differ in it. `part`: the
 * object of the record that has the text; NULL: the record itself. */
static int add_given(ls_comparison *c, const char *name, const char *part, const char *key)
{
    char text[LS_COMPARED][TEXT];
    const char *first = NULL;
    bool other = false;
    for (int i = 0; i < c->count; i++) {
        const cJSON *from = c->start[i] ? ls_json_root(c->start[i]) : NULL;
        from = part ? cJSON_GetObjectItemCaseSensitive(from, part) : from;
        const char *own = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(from, key));
        snprintf(text[i], TEXT, part ? "%.16s" : "%.250s", own ? own : "");
        ls_utf8_tidy(text[i]);
        first = first ? first : own;
        other |= own && strcmp(own, first) != 0;
    }
    return other ? add_texts(c, LS_COMPARED_GIVEN, name, text) : LS_OK;
}

static int add_all_given(ls_comparison *c)
{
    int status = add_given(c, "data's SHA-256 (training rows)", "data", "sha256");
    if (status == LS_OK)
        status = add_given(c, "data's SHA-256 (training labels)", "data", "labels_sha256");
    if (status == LS_OK)
        status = add_given(c, "data's SHA-256 (test rows)", "data", "test_sha256");
    return status ? status : add_given(c, "kernels", NULL, "library");
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Parses the first record of a run that has begun. */
static void find_start(ls_comparison *c, int run)
{
    static const char type[] = "{\"type\":\"run_start\"";
    const ls_run_log *log = &c->log[run];
    for (size_t i = 0; i < log->others && !c->start[run]; i++)
        if (strncmp(log->other[i].json, type, sizeof type - 1) == 0 &&
            ls_json_parse(&c->start[run], "", log->other[i].json, log->other[i].length, c->host,
                          NULL) != LS_OK)
            c->start[run] = NULL;
}

int ls_comparison_open(ls_comparison *out, const char *const *run_dirs, int count,
                       const ls_host *host, ls_error *err)
{
    int status = LS_OK;
    *out = (ls_comparison){.host = host};
    for (int i = 0; i < count && status == LS_OK; i++) {
        ls_run_log_init(&out->log[i], (uint64_t)i + 1, host);
        out->count = i + 1;
        status = ls_path_copy(&out->run_dir[i], run_dirs[i], host, err);
        if (status == LS_OK)
            status = ls_report_read(&out->log[i], run_dirs[i], err);
        if (status)
            break;
        ls_run_verdict_add(&out->log[i], run_dirs[i]);
        ls_run_facts_find(&out->facts[i], &out->log[i], run_dirs[i]);
        status = ls_run_weights_read(&out->facts[i], run_dirs[i], host, err);
        if (status)
            break;
        ls_run_log_thin(&out->log[i], LS_COMPARED_STEPS);
        find_start(out, i);
    }
    if (status)
        return status;
    ls_c_locale locale = ls_c_locale_enter();
    status = add_figures(out);
    if (status == LS_OK)
        status = add_configs(out);
    if (status == LS_OK)
        status = add_all_given(out);
    ls_c_locale_leave(locale);
    return status ? ls_fail(err, status, "out of memory for a comparison of %d runs", count)
                  : LS_OK;
}

void ls_comparison_close(ls_comparison *c)
{
    for (size_t i = 0; i < c->rows; i++)
        free_row(c, &c->row[i]);
    ls_free(c->host, c->row);
    for (int i = 0; i < c->count; i++) {
        ls_free(c->host, c->run_dir[i]);
        ls_run_log_fini(&c->log[i]);
        ls_json_destroy(c->start[i]);
    }
}

const char *ls_compared_letter(int run)
{
    static const char letters[LS_COMPARED][2] = {"A", "B", "C", "D", "E", "F", "G", "H"};
    return letters[run];
}

/* ---- the page -------------------------------------------------------------------------------- */

/* Writes a line {"type":"compared","kind":…,"name":…,"values":[…]} for a row. */
static void put_row(ls_buffer *out, ls_json_writer *w, const ls_comparison *c,
                    const ls_compared_row *row)
{
    static const char *const kinds[] = {"figure", "config", "given"};
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", "compared");
    ls_json_put_string(w, "kind", kinds[row->kind]);
    ls_json_put_string(w, "name", row->name);
    ls_json_open_array(w, "values");
    for (int i = 0; i < c->count; i++)
        ls_json_put_string(w, NULL, row->value[i]);
    ls_json_close(w);
    ls_json_close(w);
    ls_page_add_line(out, w);
}

/* Writes a line {"type":"run",…}. The caller writes the records of the run after it. */
static void put_run(ls_buffer *out, ls_json_writer *w, const ls_comparison *c, int run)
{
    const ls_run_facts *f = &c->facts[run];
    char key[LS_METRIC_KEY];
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", "run");
    ls_json_put_string(w, "letter", ls_compared_letter(run));
    ls_json_put_string(w, "path", c->run_dir[run]);
    ls_json_put_string(w, "name", f->name);
    ls_json_put_string(w, "state", ls_run_states[f->state]);
    ls_json_put_string(w, "metric", ls_metric_title(f->metric));
    ls_json_put_string(w, "metric_key", ls_metric_key(key, f->metric));
    ls_json_put_bool(w, "metric_rises", ls_metric_rises(f->metric));
    ls_json_put_string(w, "judged", f->judged);
    ls_json_close(w);
    ls_page_add_line(out, w);
}

/* Writes a line {"type":`type`,"text":…}. */
static void put_sentence(ls_buffer *out, ls_json_writer *w, const char *type, const char *text)
{
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", type);
    ls_json_put_string(w, "text", text);
    ls_json_close(w);
    ls_page_add_line(out, w);
}

/* Writes a line {"type":"same","runs":"A, C","sha256":…,"but":…} for each set of runs with the same
 * weights. "but" says what speaks against them; null: nothing. */
static void put_same(ls_buffer *out, ls_json_writer *w, const ls_comparison *c)
{
    char letters[LS_COMPARED * 3], but[LS_SENTENCE];
    for (int i = 0; i < c->count; i++) {
        if (!ls_compared_same(letters, c, i))
            continue;
        ls_json_writer_reset(w);
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "type", "same");
        ls_json_put_string(w, "runs", letters);
        ls_json_put_string(w, "sha256", c->facts[i].hash);
        ls_json_put_string(w, "but", ls_compared_objection(but, c, i) ? but : NULL);
        ls_json_close(w);
        ls_page_add_line(out, w);
    }
}

/* Writes lines {"type":"verdict"|"doubt"|"others","text":…}. */
static void put_sentences(ls_buffer *out, ls_json_writer *w, const ls_comparison *c)
{
    char text[LS_SENTENCE];
    if (ls_compared_verdict(text, c))
        put_sentence(out, w, "verdict", text);
    for (int i = 0; i < c->count; i++)
        if (ls_compared_doubt(text, c, i))
            put_sentence(out, w, "doubt", text);
    if (ls_compared_others(c))
        put_sentence(out, w, "others", ls_compared_others(c));
}

static void put_records(ls_buffer *out, const void *data)
{
    const ls_comparison *c = data;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, c->host);
    put_sentences(out, &w, c);
    put_same(out, &w, c);
    for (size_t i = 0; i < c->rows; i++)
        put_row(out, &w, c, &c->row[i]);
    for (int i = 0; i < c->count; i++) {
        put_run(out, &w, c, i);
        ls_run_log_write(&c->log[i], &ls_run_nothing, out);
    }
    ls_json_writer_fini(&w);
}

static void put_title(ls_buffer *out, const void *data)
{
    const ls_comparison *c = data;
    for (int i = 0; i < c->count; i++) {
        ls_buffer_put(out, i ? ", " : "");
        ls_page_escape(out, c->run_dir[i]);
    }
    ls_buffer_put(out, ": Lockstep runs compared");
}

/* Writes the sentences above the table. */
static void put_notes(ls_buffer *out, const ls_comparison *c)
{
    char letters[LS_COMPARED * 3], text[LS_SENTENCE];
    if (ls_compared_verdict(text, c))
        ls_buffer_format(out, "<p>%s</p>\n", text);
    for (int i = 0; i < c->count; i++) {
        if (!ls_compared_doubt(text, c, i))
            continue;
        ls_buffer_put(out, "<p class=\"note loud\">");
        ls_page_escape(out, text);
        ls_buffer_put(out, "</p>\n");
    }
    for (int i = 0; i < c->count; i++) {
        if (!ls_compared_same(letters, c, i))
            continue;
        const bool but = ls_compared_objection(text, c, i);
        ls_buffer_format(out,
                         "<p class=\"note %s\"><strong>%s:</strong> identical weights "
                         "<code>%s</code> ",
                         but ? "loud" : "good", letters, c->facts[i].hash);
        ls_page_escape(out, but ? text : "");
        ls_buffer_put(out, "</p>\n");
    }
    if (ls_compared_others(c))
        ls_buffer_format(out, "<p>%s.</p>\n", ls_compared_others(c));
}

/* Writes the table for readers whose browser runs no scripts. */
static void put_table(ls_buffer *out, const void *data)
{
    const ls_comparison *c = data;
    ls_buffer_put(out,
                  "<h1>Runs compared</h1>\n<p class=\"sub\">The curves are drawn by a script of "
                  "this page, and scripts are off.</p>\n"
                  "<table><tbody>\n");
    for (int i = 0; i < c->count; i++) {
        ls_buffer_format(out, "<tr><th scope=\"row\">%s</th><td>", ls_compared_letter(i));
        ls_page_escape(out, c->run_dir[i]);
        ls_buffer_put(out, "</td></tr>\n");
    }
    ls_buffer_put(out, "</tbody></table>\n");
    put_notes(out, c);
    ls_buffer_put(out, "<div class=\"tables\"><table><thead><tr><th></th>");
    for (int i = 0; i < c->count; i++)
        ls_buffer_format(out, "<th>%s</th>", ls_compared_letter(i));
    ls_buffer_put(out, "</tr></thead><tbody>\n");
    for (size_t r = 0; r < c->rows; r++) {
        ls_buffer_put(out, "<tr><th scope=\"row\">");
        ls_page_escape(out, c->row[r].name);
        ls_buffer_put(out, "</th>");
        for (int i = 0; i < c->count; i++) {
            ls_buffer_put(out, "<td>");
            ls_page_escape(out, c->row[r].value[i]);
            ls_buffer_put(out, "</td>");
        }
        ls_buffer_put(out, "</tr>\n");
    }
    ls_buffer_put(out, "</tbody></table></div>\n");
}

int ls_comparison_page(ls_buffer *out, const ls_comparison *c, ls_error *err)
{
    const ls_page_part parts[] = {
        {"TITLE", put_title}, {"TABLE", put_table}, {"RECORDS", put_records}, {NULL, NULL}};
    ls_page_fill(out, (const char *)ls_compare_text, parts, c);
    return ls_buffer_status(out, err);
}
