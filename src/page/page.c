/* SPDX-License-Identifier: MIT */
/* Writes the page of a run, and reads the metrics file of a run for it. */
#include "page/page.h"
#include "page/facts.h"
#include "page/template.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/thread_state.h"
#include "base/utf8.h"
#include "hash/hash.h"
#include "store/durable.h"
#include "json/writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, LINE_MOST = 16 << 20 };

/* page.html with page.css, chart.js and report.js inserted; created by the build. */
extern const unsigned char ls_page_text[];

/* ---- text ------------------------------------------------------------------------------------ */

static const char *entity(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void ls_page_escape(ls_buffer *out, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        const char *name = entity(*text);
        size_t n = ls_utf8_length((const unsigned char *)text, left);
        int control = (unsigned char)*text < 0x20 && *text != '\n' && *text != '\t';
        if (name)
            ls_buffer_put(out, name);
        else if (n == 0 || control || *text == 0x7F)
            ls_buffer_put(out, "\xEF\xBF\xBD");
        else
            ls_buffer_add(out, text, n);
        n = n ? n : 1;
        text += n;
        left -= n;
    }
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_or(const cJSON *object, const char *key, const char *fallback)
{
    const cJSON *node = member(object, key);
    return cJSON_IsString(node) && node->valuestring[0] ? node->valuestring : fallback;
}

/* ---- the result as a table ------------------------------------------------------------------- */

/* The records that the table needs, parsed. */
typedef struct outcome {
    ls_json *start, *end, *verified, *weights; /* the newest records, or NULL */
} outcome;

static const cJSON *root_of(const ls_json *doc)
{
    return doc ? ls_json_root(doc) : NULL;
}

static int parse(ls_json **out, const ls_run_log *log, size_t i)
{
    return ls_json_parse(out, "", log->other[i].json, log->other[i].length, log->host, NULL);
}

static void keep(ls_json **kept, ls_json *doc)
{
    ls_json_destroy(*kept);
    *kept = doc;
}

static void find_outcome(outcome *o, const ls_run_log *log)
{
    for (size_t i = 0; i < log->others; i++) {
        ls_json *doc;
        if (parse(&doc, log, i) != LS_OK)
            continue;
        const char *type = text_or(ls_json_root(doc), "type", "");
        if (strcmp(type, "run_start") == 0) {
            keep(&o->start, doc);
        } else if (strcmp(type, "run_end") == 0) {
            keep(&o->end, doc);
        } else if (strcmp(type, "verified") == 0) {
            keep(&o->verified, doc);
        } else if (strcmp(type, "weights") == 0) {
            keep(&o->weights, doc);
        } else {
            if (strcmp(type, "resume") == 0)
                keep(&o->end, NULL); /* the run was resumed after this end, so the end is ignored */
            ls_json_destroy(doc);
        }
    }
}

static void drop_outcome(const outcome *o)
{
    ls_json_destroy(o->start);
    ls_json_destroy(o->end);
    ls_json_destroy(o->verified);
    ls_json_destroy(o->weights);
}

static bool is_synthetic(const outcome *o)
{
    return cJSON_IsTrue(member(member(root_of(o->start), "data"), "synthetic")) ||
           cJSON_IsTrue(member(root_of(o->end), "synthetic"));
}

static const char *name_of(const outcome *o)
{
    return text_or(member(root_of(o->start), "config"), "name", "run");
}

static void add_row(ls_buffer *b, const char *name, const char *value)
{
    ls_buffer_format(b, "<tr><th scope=\"row\">%s</th><td>", name);
    ls_page_escape(b, value);
    ls_buffer_put(b, "</td></tr>\n");
}

static void add_number(ls_buffer *b, const cJSON *record, const char *key, int digits)
{
    const cJSON *node = member(record, key);
    ls_buffer_put(b, "<td>");
    if (cJSON_IsNumber(node))
        ls_buffer_format(b, "%.*f", digits, node->valuedouble);
    else
        ls_buffer_put(b, "–");
    ls_buffer_put(b, "</td>");
}

static void add_facts(ls_buffer *b, const ls_run_log *log, const outcome *o)
{
    const cJSON *start = root_of(o->start), *end = root_of(o->end);
    const char *judged = ls_run_judged(member(start, "config"));
    char number[64], key[LS_METRIC_KEY];
    ls_metric_key(key, log->metric);
    ls_buffer_put(b, "<div class=\"scroll\"><table><tbody>\n");
    add_row(b, "State", text_or(end, "status", "not ended"));
    if (text_or(end, "error", NULL))
        add_row(b, "Error", text_or(end, "error", ""));
    if (ls_metric_title(log->metric)[0]) {
        ls_buffer_format(b, "<tr><th scope=\"row\">%c%s %s</th>", judged[0] - 'a' + 'A', judged + 1,
                         ls_metric_title(log->metric));
        add_number(b, end, key, 4);
        ls_buffer_put(b, "</tr>\n");
    }
    snprintf(number, sizeof number, "%llu",
             (unsigned long long)(log->steps > 0 ? log->step[log->steps - 1].step : 0));
    add_row(b, "Steps", number);
    add_row(b, "Data", text_or(member(start, "data"), "name", "unknown"));
    add_row(b, "Device", text_or(start, "device_model", "unknown"));
    add_row(b, "Started", text_or(start, "time", "–"));
    add_row(b, "Ended", text_or(end, "time", "–"));
    add_row(b, "Weights’ SHA-256",
            text_or(o->weights ? root_of(o->weights) : end,
                    o->weights ? "sha256" : "weights_sha256", "–"));
    if (text_or(root_of(o->weights), "doubt", NULL))
        add_row(b, "Weights", text_or(root_of(o->weights), "doubt", ""));
    if (o->verified)
        add_row(b, "Verification", text_or(root_of(o->verified), "result", "–"));
    ls_buffer_put(b, "</tbody></table></div>\n");
}

/* Adds a row for each record of an epoch and of an evaluation. */
static void add_epochs(ls_buffer *b, const ls_run_log *log, const outcome *o)
{
    const char *judged = ls_run_judged(member(root_of(o->start), "config"));
    char key[LS_METRIC_KEY];
    ls_metric_key(key, log->metric);
    ls_buffer_format(b,
                     "<div class=\"scroll\"><table><thead><tr><th>epoch</th><th></th><th>loss</th>"
                     "<th>%s</th></tr></thead><tbody>\n",
                     ls_metric_title(log->metric));
    for (size_t i = 0; i < log->others; i++) {
        ls_json *doc;
        if (parse(&doc, log, i) != LS_OK)
            continue;
        const cJSON *record = ls_json_root(doc);
        const char *type = text_or(record, "type", "");
        const bool test = strcmp(type, "eval") == 0;
        if (test || strcmp(type, "epoch") == 0) {
            ls_buffer_put(b, "<tr>");
            add_number(b, record, "epoch", 0);
            ls_buffer_format(b, "<td>%s</td>", test ? judged : "training");
            add_number(b, record, test ? "test_loss" : "train_loss", 4);
            add_number(b, record, test ? key : "train_accuracy", 4);
            ls_buffer_put(b, "</tr>\n");
        }
        ls_json_destroy(doc);
    }
    ls_buffer_put(b, "</tbody></table></div>\n");
}

static void add_table(ls_buffer *b, const ls_run_log *log, const outcome *o)
{
    ls_buffer_put(b, "<h1>");
    ls_page_escape(b, name_of(o));
    ls_buffer_put(b, "</h1>\n<p class=\"sub\">The curves are drawn by a script of this page, and "
                     "scripts are off.</p>\n");
    if (is_synthetic(o))
        ls_buffer_put(b, "<p class=\"note loud\"><strong>SYNTHETIC DATA.</strong> The images were "
                         "made up by the program: these results say nothing of real data.</p>\n");
    add_facts(b, log, o);
    add_epochs(b, log, o);
}

/* ---- the page -------------------------------------------------------------------------------- */

typedef struct contents {
    const ls_run_log *log; /* NULL: the page of a run in progress */
    outcome outcome;
} contents;

static void put_title(ls_buffer *b, const void *data)
{
    const outcome *o = &((const contents *)data)->outcome;
    ls_page_escape(b, name_of(o));
    ls_buffer_put(b, is_synthetic(o) ? " (SYNTHETIC data)" : "");
    ls_buffer_put(b, ": Lockstep run");
}

static void put_table(ls_buffer *b, const void *data)
{
    const contents *c = data;
    if (c->log)
        add_table(b, c->log, &c->outcome);
    else
        ls_buffer_put(b, "<p class=\"note\">This page follows a run by a script, and scripts are "
                         "off: see <a href=\"state.json\">state.json</a>.</p>");
}

static void put_source(ls_buffer *b, const void *data)
{
    if (!((const contents *)data)->log)
        ls_buffer_put(b, " data-from=\"records\"");
}

static void put_records(ls_buffer *b, const void *data)
{
    const contents *c = data;
    if (c->log)
        ls_run_log_write(c->log, &ls_run_nothing, b);
}

int ls_page_write(ls_buffer *out, const ls_run_log *log, ls_error *err)
{
    static const ls_page_part parts[] = {{"TITLE", put_title},
                                         {"TABLE", put_table},
                                         {"FROM", put_source},
                                         {"RECORDS", put_records},
                                         {NULL, NULL}};
    contents c = {.log = log};
    if (log)
        find_outcome(&c.outcome, log);
    ls_page_fill(out, (const char *)ls_page_text, parts, &c);
    drop_outcome(&c.outcome);
    return ls_buffer_status(out, err);
}

void ls_page_fill(ls_buffer *out, const char *text, const ls_page_part *parts, const void *data)
{
    static const char open[] = "<!--", close[] = "-->";
    for (const char *mark; (mark = strstr(text, open)) != NULL;) {
        const char *name = mark + strlen(open), *end = strstr(name, close);
        const size_t length = (size_t)(end - name);
        ls_buffer_add(out, text, (size_t)(mark - text));
        for (const ls_page_part *p = parts; p->name; p++)
            if (strlen(p->name) == length && strncmp(name, p->name, length) == 0)
                p->put(out, data);
        text = end + strlen(close);
    }
    ls_buffer_put(out, text);
}

/* ---- the metrics file of a run --------------------------------------------------------------- */

static int check_directory(const char *dir, ls_error *err)
{
    char why[LS_REASON];
    struct stat st;
    if (stat(dir, &st) != 0)
        return ls_fail(
            err, errno == ENOENT || errno == ENOTDIR ? LS_ENOENT : LS_EIO,
            "%.300s: %s; expected the directory of a run, such as runs/<time>-<name>", dir,
            errno == ENOENT || errno == ENOTDIR ? "no such directory" : ls_reason(why, errno));
    if (!S_ISDIR(st.st_mode))
        return ls_fail(err, LS_ENOENT,
                       "%.300s: expected the directory of a run, found a file; "
                       "name the directory it is in",
                       dir);
    return LS_OK;
}

bool ls_is_run_without_records(const char *dir)
{
    static const char *const files[] = {"config.json", "checkpoints"};
    char path[LS_PATH_BYTES];
    struct stat st;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (stat(ls_path_join(path, dir, files[i]), &st) != 0)
            return false;
    return stat(ls_path_join(path, dir, "metrics.jsonl"), &st) != 0;
}

/* Adds a line, without its newline. If the last line is not a complete record, it is skipped, and
 * log->cut_line is set. */
static int take_line(ls_run_log *log, const char *path, int number, const char *line, size_t length,
                     int last, ls_error *err)
{
    char name[201]; /* leaves room for the reason */
    snprintf(name, sizeof name, "%s", path);
    /* zeros at the beginning: another program has cut the file while an earlier version wrote it */
    for (; number == 1 && length > 0 && *line == '\0'; length--)
        line++;
    int status = ls_run_log_line(log, name, number, line, length, err);
    /* After a loss of power, a part near the end of the file may be lost although a later part is
     * present. The lost part reads as zeros. */
    if (status == LS_EDATA && (last || memchr(line, '\0', length))) {
        log->cut_line = number;
        return LS_OK;
    }
    return status;
}

/* Adds all complete lines of `text` to the log and removes them from `text`. A line that may be the
 * last one of the file, because no byte after it was read yet, stays in `text` until the end of the
 * file is reached. */
static int take_lines(ls_run_log *log, const char *path, int *number, ls_buffer *text, int ended,
                      ls_error *err)
{
    size_t at = 0;
    int status = LS_OK;
    while (status == LS_OK && at < text->length && !log->cut_line) {
        const char *line = text->text + at, *end = memchr(line, '\n', text->length - at);
        const size_t length = end ? (size_t)(end - line) : text->length - at;
        const bool last = at + length + (end != NULL) == text->length;
        if (last && !ended)
            break;
        status = take_line(log, path, ++*number, line, length, last, err);
        at += length + (end != NULL);
    }
    text->length -= at;
    if (at > 0)
        memmove(text->text, text->text + at, text->length);
    if (status == LS_OK && text->length > LINE_MOST)
        status = ls_fail(err, LS_EDATA,
                         "%.300s:%d:1: a line of more than %d MiB; this is no metrics file of a "
                         "run",
                         path, *number + 1, LINE_MOST >> 20);
    return status;
}

static int read_lines(ls_run_log *log, const char *path, int fd, ls_error *err)
{
    char chunk[CHUNK], why[LS_REASON];
    ls_buffer text;
    int status = LS_OK, number = 0;
    ssize_t n = 1;
    ls_buffer_init(&text, log->host);
    while (status == LS_OK && n > 0 && !log->cut_line) {
        do
            n = read(fd, chunk, sizeof chunk);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            status =
                ls_fail(err, LS_EIO, "%.300s: cannot be read: %s", path, ls_reason(why, errno));
        ls_buffer_add(&text, chunk, n > 0 ? (size_t)n : 0);
        if (status == LS_OK)
            status = ls_buffer_status(&text, err);
        if (status == LS_OK)
            status = take_lines(log, path, &number, &text, n == 0, err);
    }
    ls_buffer_fini(&text);
    return status;
}

int ls_report_read(ls_run_log *log, const char *run_dir, ls_error *err)
{
    char path[LS_PATH_BYTES];
    uint64_t size;
    int fd, status = check_directory(run_dir, err);
    if (status)
        return status;
    ls_path_join(path, run_dir, "metrics.jsonl");
    status = ls_open_to_read(&fd, &size, path, "a metrics file", LS_EDATA, err);
    if (status == LS_ENOENT && ls_is_run_without_records(run_dir))
        return ls_fail(err, LS_ENOENT,
                       "%.300s: its metrics.jsonl was moved or removed; put it back (a run that is "
                       "resumed without it begins a new one)",
                       run_dir);
    if (status == LS_ENOENT)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: no metrics.jsonl here; expected the directory of a run, such as "
                       "runs/<time>-<name>",
                       run_dir);
    if (status)
        return status;
    status = read_lines(log, path, fd, err);
    close(fd);
    if (status == LS_OK && log->records == 0)
        status =
            ls_fail(err, LS_EDATA,
                    "%.300s: holds no complete record yet; wait until the run has begun", path);
    return status;
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Writes the page to `chosen` or, if that is NULL, to report.html in the run's directory. `chosen`
 * may be a terminal or a pipe; report.html must be a regular file. */
static int write_page(const char *run_dir, const char *chosen, const ls_buffer *page,
                      const ls_host *host, ls_error *err)
{
    ls_error why;
    char own[LS_PATH_BYTES];
    int status = chosen ? ls_write_file(chosen, page->text, page->length, host, &why)
                        : ls_replace_file(ls_path_join(own, run_dir, "report.html"), page->text,
                                          page->length, host, &why);
    return status ? ls_fail(err, status, "%.400s; choose another place with -o FILE", why.text)
                  : LS_OK;
}

enum { NOTES_MOST = 4 << 20 };

/* Adds lines of JSON that are not records of the run. Skips damaged lines, because the page is
 * useful without them. */
static void add_lines(ls_run_log *log, const char *text, size_t length)
{
    for (const char *at = text, *end; at < text + length; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + length - at));
        end = end ? end : text + length;
        if (end > at)
            ls_run_log_line(log, "notes", 1, at, (size_t)(end - at), NULL);
    }
}

/* Adds the additional lines for the page that the training program has written to the run's
 * directory, if there are any. */
static void add_notes(ls_run_log *log, const char *run_dir)
{
    char path[LS_PATH_BYTES];
    void *text;
    size_t length;
    if (ls_read_plain_file(&text, &length, ls_path_join(path, run_dir, "notes.jsonl"), "notes",
                           LS_EDATA, NOTES_MOST, log->host, NULL) != LS_OK)
        return;
    add_lines(log, text, length);
    ls_free(log->host, text);
}

/* Returns whether the run's file of weights is the one that was verified, as far as `verified`, the
 * root of verified.json, says which one it was. */
static bool has_verified_file(const cJSON *verified, const char *run_dir)
{
    char path[LS_PATH_BYTES], found[LS_SHA256_HEX] = "";
    ls_error why;
    const char *wanted = text_or(verified, "weights_file_sha256", "");
    if (!wanted[0])
        return true;
    return ls_sha256_of_file(found, ls_path_join(path, run_dir, "weights.safetensors"),
                             "a file of weights", &why) == LS_OK &&
           strcmp(found, wanted) == 0;
}

void ls_run_verdict_add(ls_run_log *log, const char *run_dir)
{
    char path[LS_PATH_BYTES];
    size_t length;
    ls_json *doc;
    ls_json_writer w;
    outcome o = {0};
    if (ls_json_read_file(&doc, ls_path_join(path, run_dir, "verified.json"), log->host, NULL) !=
        LS_OK)
        return; /* the run was not verified */
    ls_json_writer_init(&w, 0, log->host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "type", "verified");
    for (const cJSON *item = ls_json_root(doc)->child; item && item->string; item = item->next)
        ls_json_put_node(&w, item->string, item);
    ls_json_close(&w);
    find_outcome(&o, log);
    const char *text = ls_json_writer_text(&w, &length, NULL);
    if (text &&
        strcmp(text_or(root_of(o.end), "weights_sha256", ""),
               text_or(ls_json_root(doc), "weights_sha256", "-")) == 0 &&
        has_verified_file(ls_json_root(doc), run_dir))
        add_lines(log, text, length);
    drop_outcome(&o);
    ls_json_writer_fini(&w);
    ls_json_destroy(doc);
}

/* Adds a line {"type":"weights","sha256":…,"doubt":…} with the SHA-256 of the weights in the run's
 * file, and what is wrong with the file, which `doubt` receives too; null: it cannot be read, or
 * nothing is wrong. */
static int add_weights(ls_run_log *log, const char *run_dir, ls_error *doubt, ls_error *err)
{
    size_t length;
    ls_json_writer w;
    ls_run_facts facts;
    ls_run_facts_find(&facts, log, run_dir);
    if (!facts.hash[0])
        return LS_OK; /* the run has not ended */
    int status = ls_run_weights_read(&facts, run_dir, log->host, err);
    if (status)
        return status;
    if (facts.doubt[0])
        (void)ls_fail(doubt, LS_EDATA, "weights.safetensors %s", facts.doubt);
    ls_json_writer_init(&w, 0, log->host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "type", "weights");
    ls_json_put_string(&w, "sha256", facts.hash[0] ? facts.hash : NULL);
    ls_json_put_string(&w, "doubt", facts.doubt[0] ? doubt->text : NULL);
    ls_json_close(&w);
    const char *line = ls_json_writer_text(&w, &length, err);
    if (line)
        add_lines(log, line, length);
    ls_json_writer_fini(&w);
    return line ? LS_OK : LS_ENOMEM;
}

int ls_report_write_with(const char *run_dir, const char *out_path, const ls_buffer *lines,
                         ls_error *doubt, const ls_host *host, ls_error *err)
{
    ls_buffer page;
    ls_error unread;
    ls_run_log log;
    ls_run_log_init(&log, 0, host);
    ls_buffer_init(&page, host);
    doubt = doubt ? doubt : &unread;
    *doubt = (ls_error){.status = LS_OK};
    int status = ls_report_read(&log, run_dir, err);
    if (status == LS_OK) {
        ls_c_locale locale = ls_c_locale_enter();
        add_notes(&log, run_dir);
        ls_run_verdict_add(&log, run_dir);
        status = add_weights(&log, run_dir, doubt, err);
        if (lines && lines->text)
            add_lines(&log, lines->text, lines->length);
        if (status == LS_OK)
            status = ls_page_write(&page, &log, err);
        ls_c_locale_leave(locale);
    }
    if (status == LS_OK)
        status = write_page(run_dir, out_path, &page, host, err);
    ls_buffer_fini(&page);
    ls_run_log_fini(&log);
    return status;
}

int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err)
{
    return ls_report_write_with(run_dir, out_path, NULL, NULL, host, err);
}
