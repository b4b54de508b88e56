/* SPDX-License-Identifier: MIT */
/* The HTTP server of --serve: it shows a run in a browser, and reports its figures to Prometheus
 * (serve.h). */
#include "cli/serve.h"

#include "base/error.h"
#include "base/host.h"

#ifdef LOCKSTEP_WITH_HTTP

#include "base/clock.h"
#include "base/thread_state.h"
#include "cli/program.h"
#include "http/guard.h"
#include "http/metrics.h"
#include "page/page.h"
#include "train/shown.h"

#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 64
#define TIME_LIMIT_S 4
#define LINGER_S 2 /* an open page requests records once a second */

/* ---- /metrics ------------------------------------------------------------------------------- */

enum { NUMBERS_WORKERS = 6 }; /* largest number of workers for which /metrics has separate values */

/* The figures that the URL /metrics reports. All members from `steps` to `queued` are pointers to
 * registered metrics. */
typedef struct numbers {
    metrics all;
    metric *steps, *rows, *epochs, *loss, *rate, *lr, *norm, *faults, *skipped;
    metric *planned, *saved_step, *saved_time;
    metric *test[LS_METRIC_CONFUSION];
    /* series of each worker, hidden until a record names the worker */
    metric *phase[NUMBERS_WORKERS][LS_PHASES], *queued[NUMBERS_WORKERS];
    char labels[NUMBERS_WORKERS][LS_PHASES + 1][48];
} numbers;

_Static_assert((offsetof(numbers, labels) - offsetof(numbers, steps)) / sizeof(metric *) <=
                   METRICS_MOST,
               "more metrics than METRICS_MOST (http/metrics.h)");

static void init_worker(numbers *n, int worker)
{
    for (int p = 0; p < LS_PHASES; p++) {
        char *label = n->labels[worker][p];
        snprintf(label, sizeof n->labels[0][0], "worker=\"%d\",phase=\"%s\"", worker,
                 ls_phase_names[p]);
        n->phase[worker][p] = metrics_counter(&n->all, "lockstep_worker_seconds_total", label,
                                              "Time of the workers' steps by phase.");
        metric_hide(n->phase[worker][p]);
    }
}

/* Name and description of each metric of the newest evaluation, indexed by ls_metric. Metrics that
 * were not measured are left out of /metrics. */
static const char *const tests[][2] = {
    {"lockstep_test_loss", "Loss of the newest evaluation."},
    {"lockstep_test_accuracy",
     "Share of the evaluated rows that the newest evaluation predicted right."},
    {"lockstep_test_top5",
     "Share of the evaluated rows whose class is among the five largest scores."},
    {"lockstep_test_mae", "Mean absolute error on the evaluated rows."},
    {"lockstep_test_r2", "Share of the evaluated targets' variance that is explained."},
    {"lockstep_test_auc", "Area under the ROC curve on the evaluated rows."},
    {"lockstep_test_huber", "Mean Huber loss on the evaluated rows."},
    {"lockstep_test_pinball", "Mean pinball loss of the quantiles on the evaluated rows."},
    {"lockstep_test_coverage",
     "Share of the evaluated targets between the lowest and the highest quantile."},
    {"lockstep_test_deviance", "Mean Poisson deviance on the evaluated rows."},
    {"lockstep_test_average_precision", "Average precision on the evaluated rows."},
    {"lockstep_test_f1", "Harmonic mean of precision and recall on the evaluated rows."},
    {"lockstep_test_r2_mean", "Mean of the R2 of each target on the evaluated rows."},
};
_Static_assert(sizeof tests / sizeof *tests == LS_METRIC_CONFUSION,
               "one row for each metric that is a number, in the order of ls_metric");

static void numbers_init(numbers *n)
{
    metrics *all = &n->all;
    n->steps = metrics_counter(all, "lockstep_steps_total", NULL, "Steps that were trained.");
    n->rows = metrics_counter(all, "lockstep_rows_total", NULL, "Rows that were trained on.");
    n->epochs = metrics_counter(all, "lockstep_epochs_total", NULL, "Epochs that are complete.");
    n->faults = metrics_counter(
        all, "lockstep_faults_total", NULL,
        "Workers that failed or stalled, lost hosts, and steps that were repeated.");
    n->skipped =
        metrics_counter(all, "lockstep_nonfinite_total", NULL, "Steps whose loss was not finite.");
    n->loss = metrics_gauge(all, "lockstep_loss", NULL, "Mean loss of the newest minibatch.");
    n->rate = metrics_gauge(all, "lockstep_images_per_second", NULL, "Rate of the newest step.");
    n->lr = metrics_gauge(all, "lockstep_learning_rate", NULL, "Of the newest step.");
    n->norm = metrics_gauge(all, "lockstep_gradient_norm", NULL,
                            "Norm of the newest step's gradient, "
                            "before clipping.");
    metric_hide(n->norm);
    n->planned = metrics_gauge(all, "lockstep_epochs_planned", NULL,
                               "Epochs that the run will have, those before a resume included.");
    n->saved_step =
        metrics_gauge(all, "lockstep_checkpoint_step", NULL, "Step of the newest checkpoint.");
    n->saved_time = metrics_gauge(all, "lockstep_checkpoint_time_seconds", NULL,
                                  "Time at which the newest checkpoint was saved, since 1970.");
    metric_hide(n->planned);
    metric_hide(n->saved_step);
    metric_hide(n->saved_time);
    for (int m = 0; m < LS_METRIC_CONFUSION; m++) {
        n->test[m] = metrics_gauge(all, tests[m][0], NULL, tests[m][1]);
        metric_hide(n->test[m]);
    }
    for (int w = 0; w < NUMBERS_WORKERS; w++)
        init_worker(n, w);
    for (int w = 0; w < NUMBERS_WORKERS; w++) {
        char *label = n->labels[w][LS_PHASES];
        snprintf(label, sizeof n->labels[0][0], "worker=\"%d\"", w);
        n->queued[w] = metrics_gauge(all, "lockstep_worker_queued", label,
                                     "Work items in the queue of a worker, including the one "
                                     "that it executes.");
        metric_hide(n->queued[w]);
    }
}

static void take_step(numbers *n, const ls_step_values *v)
{
    metric_add(n->steps, 1);
    metric_add(n->rows, (double)v->rows);
    metric_set(n->loss, (double)v->loss);
    metric_set(n->rate, (double)v->images_per_s);
    metric_set(n->lr, (double)v->lr);
    if (isfinite(v->gradient_norm))
        metric_set(n->norm, (double)v->gradient_norm);
    for (int i = 0; i < v->workers; i++) {
        const ls_worker_times *t = &v->worker[i];
        if (t->worker >= NUMBERS_WORKERS)
            continue;
        for (int p = 0; p < LS_PHASES; p++)
            metric_add(n->phase[t->worker][p], (double)t->seconds[p]);
        metric_set(n->queued[t->worker], t->queued);
    }
}

/* A worker that is lost has no queue any more. */
static void take_fault(numbers *n, const ls_fault_values *v)
{
    metric_add(n->faults, 1);
    if (v->action != LS_ACTION_REPEAT && v->fault.worker >= 0 && v->fault.worker < NUMBERS_WORKERS)
        metric_hide(n->queued[v->fault.worker]);
}

static void take_checkpoint(numbers *n, const char *run_dir)
{
    uint64_t steps;
    double saved;
    if (!ls_newest_checkpoint(&steps, &saved, run_dir))
        return;
    metric_set(n->saved_step, (double)steps);
    metric_set(n->saved_time, saved);
}

static void numbers_take(numbers *n, const ls_record *r)
{
    switch (r->type) {
    case LS_RECORD_RUN_START:
    case LS_RECORD_RESUME: metric_set(n->planned, r->of.start.summary.epochs); break;
    case LS_RECORD_STEP: take_step(n, &r->of.step); break;
    case LS_RECORD_EPOCH: metric_add(n->epochs, 1); break;
    case LS_RECORD_FAULT: take_fault(n, &r->of.fault); break;
    case LS_RECORD_NONFINITE: metric_add(n->skipped, 1); break;
    case LS_RECORD_EVAL:
        for (int m = 0; m < LS_METRIC_CONFUSION; m++)
            isnan(r->of.eval.measured.value[m])
                ? metric_hide(n->test[m])
                : metric_set(n->test[m], r->of.eval.measured.value[m]);
        break;
    default: break;
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

struct cli_server {
    ls_sink sink;
    const ls_host *host;
    http_guard *guard;
    pthread_mutex_t lock; /* guards `log`, `run_dir` and `asked_ns` */
    ls_run_log log;
    char *run_dir;     /* the run's directory, or NULL */
    uint64_t asked_ns; /* time of the last request for records; 0: none */
    numbers numbers;
};

static enum MHD_Result answer(struct MHD_Connection *to, unsigned code, const char *type,
                              const char *text, size_t length)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(length, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    enum MHD_Result result = MHD_queue_response(to, code, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *to, unsigned code, const char *text)
{
    return answer(to, code, "text/plain; charset=utf-8", text, strlen(text));
}

static void make_page(cli_server *s, struct MHD_Connection *to, ls_buffer *out)
{
    (void)s;
    (void)to;
    ls_page_write(out, NULL, NULL);
}

static void make_state(cli_server *s, struct MHD_Connection *to, ls_buffer *out)
{
    (void)to;
    pthread_mutex_lock(&s->lock);
    ls_run_log_state(&s->log, out);
    pthread_mutex_unlock(&s->lock);
}

/* Answers a request /records?have=RUN,WIDTH,STEPS,OTHERS. The numbers say which records the page
 * has already. */
static void make_records(cli_server *s, struct MHD_Connection *to, ls_buffer *out)
{
    const char *have = MHD_lookup_connection_value(to, MHD_GET_ARGUMENT_KIND, "have");
    unsigned long long n[4] = {0};
    for (int i = 0; have && i < 4; i++) {
        char *end;
        n[i] = strtoull(have, &end, 10);
        have = *end == ',' ? end + 1 : NULL;
    }
    const ls_run_seen place = {n[0], n[1], n[2], n[3]};
    pthread_mutex_lock(&s->lock);
    s->asked_ns = ls_now_ns();
    ls_run_log_write(&s->log, &place, out);
    pthread_mutex_unlock(&s->lock);
}

static void make_numbers(cli_server *s, struct MHD_Connection *to, ls_buffer *out)
{
    char text[1 << 16];
    (void)to;
    pthread_mutex_lock(&s->lock);
    if (s->run_dir)
        take_checkpoint(&s->numbers, s->run_dir);
    pthread_mutex_unlock(&s->lock);
    const size_t length = metrics_write(&s->numbers.all, text, sizeof text);
    ls_buffer_put(out, text);
    out->failed |= length >= sizeof text;
}

/* A page of the server: its URL, its type, and the function that writes it. */
typedef struct page {
    const char *url, *type;
    void (*make)(cli_server *s, struct MHD_Connection *to, ls_buffer *out);
} page;

static const page pages[] = {{"/", "text/html; charset=utf-8", make_page},
                             {"/records", "application/jsonl", make_records},
                             {"/state.json", "application/json", make_state},
                             {"/metrics", METRICS_CONTENT_TYPE, make_numbers}};

static enum MHD_Result answer_page(cli_server *s, struct MHD_Connection *to, const page *p)
{
    ls_buffer b;
    ls_buffer_init(&b, s->host);
    ls_c_locale locale = ls_c_locale_enter();
    p->make(s, to, &b);
    ls_c_locale_leave(locale);
    int status = ls_buffer_status(&b, NULL);
    enum MHD_Result result = status ? say(to, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n")
                                    : answer(to, MHD_HTTP_OK, p->type, b.text, b.length);
    ls_buffer_fini(&b);
    return result;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *to, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    cli_server *s = user;
    char why[400];
    (void)upload;
    (void)state;
    if (*upload_size > 0) { /* discard the body; no request to this server needs one */
        *upload_size = 0;
        return MHD_YES;
    }
    const unsigned refused = http_guard_check(s->guard, to, &url, version, why, sizeof why - 1);
    if (refused)
        return say(to, refused, strcat(why, "\n"));
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(to, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(url, pages[i].url) == 0)
            return answer_page(s, to, &pages[i]);
    if (strcmp(url, "/healthz") == 0)
        return say(to, MHD_HTTP_OK, "ok\n");
    return say(to, MHD_HTTP_NOT_FOUND,
               "there are /, /records, /state.json, /metrics and /healthz\n");
}

/* ---- address --------------------------------------------------------------------------------- */

/* Parses an address: "8080", "0.0.0.0:8080" or "[::1]:8080". */
static int read_address(http_address *out, const char *address, ls_error *err)
{
    char name[64] = "127.0.0.1", *end;
    const char *colon = strrchr(address, ':');
    const char *digits = colon ? colon + 1 : address;
    const size_t length = colon ? (size_t)(colon - address) : 0;
    const long port = strtol(digits, &end, 10);
    const int bracketed = length >= 2 && address[0] == '[' && address[length - 1] == ']';
    if (length > 0 && length < sizeof name)
        snprintf(name, sizeof name, "%.*s", (int)length - 2 * bracketed, address + bracketed);
    if (digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && port <= 65535 &&
        length < sizeof name) {
        out->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        if (inet_pton(AF_INET, name, &out->v4.sin_addr) == 1)
            return LS_OK;
        out->v6 =
            (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        if (bracketed && inet_pton(AF_INET6, name, &out->v6.sin6_addr) == 1)
            return LS_OK;
    }
    return ls_fail(err, LS_EINVAL,
                   "--serve %.80s: expected PORT or ADDRESS:PORT, such as 8080, 0.0.0.0:8080 or "
                   "[::1]:8080",
                   address);
}

static void print_url(const cli_server *s, const http_address *at)
{
    char name[INET6_ADDRSTRLEN] = "";
    const int six = at->any.sa_family == AF_INET6;
    inet_ntop(at->any.sa_family, six ? (const void *)&at->v6.sin6_addr : &at->v4.sin_addr, name,
              sizeof name);
    fprintf(stderr, six ? "  live page   http://[%s]:%u/\n" : "  live page   http://%s:%u/\n", name,
            (unsigned)http_guard_port(s->guard));
}

static int listen_at(cli_server *s, const http_address *at, const cli_server_options *o,
                     ls_error *err)
{
    const http_guard_options wanted = {.address = &at->any,
                                       .names = {o->names, o->name_count, "--serve-host"},
                                       .connections = CONNECTIONS,
                                       .time_limit_s = TIME_LIMIT_S,
                                       .on_request = on_request,
                                       .user = s};
    const int error = http_guard_start(&s->guard, &wanted);
    return error ? ls_fail(err, LS_EIO, "--serve %.80s: cannot listen there: %s", o->address,
                           strerror(error))
                 : LS_OK;
}

/* ---- start and end --------------------------------------------------------------------------- */

int cli_server_start(cli_server **out, const cli_server_options *o, const ls_host *host,
                     ls_error *err)
{
    http_address at;
    int status = read_address(&at, o->address, err);
    if (status)
        return status;
    cli_server *s = ls_alloc(host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "out of memory for the live page");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    s->host = host;
    pthread_mutex_init(&s->lock, NULL); /* default attributes: this cannot fail */
    ls_run_log_init(&s->log, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000, host);
    numbers_init(&s->numbers);
    status = listen_at(s, &at, o, err);
    if (status) {
        cli_server_stop(s);
        return status;
    }
    if (!o->quiet)
        print_url(s, &at);
    *out = s;
    return LS_OK;
}

static int on_record(ls_sink *sink, const ls_record *record, ls_error *err)
{
    cli_server *s = (cli_server *)sink;
    numbers_take(&s->numbers, record);
    pthread_mutex_lock(&s->lock);
    int status = ls_run_log_add(&s->log, record, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Adds a line that tells the page where the run is: the machine's name, the program's name as it is
 * typed in a shell, and the run directory if there is one. */
static int note_place(cli_server *s, const char *run_dir, ls_error *err)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    const char *const pairs[] = {
        "host", name, "program", cli_program(), run_dir[0] ? "run_dir" : NULL, run_dir, NULL};
    return ls_run_log_note(&s->log, "live", pairs, err);
}

int cli_server_follow(cli_server *s, ls_trainer *trainer, ls_error *err)
{
    ls_error why = {.text = ""};
    const ls_summary *summary = ls_trainer_summary(trainer);
    if (!s)
        return LS_OK;
    pthread_mutex_lock(&s->lock);
    const int read_status =
        summary->resumed_from[0] ? ls_report_read(&s->log, summary->run_dir, &why) : LS_OK;
    int status = note_place(s, summary->run_dir, err);
    s->run_dir = ls_strdup(s->host, summary->run_dir);
    pthread_mutex_unlock(&s->lock);
    if (read_status) /* logged after the unlock, because the log function takes the lock */
        ls_log(s->host, LS_LOG_WARNING, "%s", why.text);
    s->sink = (ls_sink){.emit = on_record, .wants_text = 1};
    return status ? status : ls_trainer_attach(trainer, &s->sink, err);
}

void cli_server_warn(cli_server *s, const char *text)
{
    const char *const pairs[] = {"text", text, NULL};
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    ls_run_log_note(&s->log, "warning", pairs, NULL);
    pthread_mutex_unlock(&s->lock);
}

static bool is_followed(cli_server *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t asked_ns = s->asked_ns;
    pthread_mutex_unlock(&s->lock);
    return asked_ns > 0 && ls_now_ns() - asked_ns < LINGER_S * UINT64_C(1000000000);
}

void cli_server_note(cli_server *s, const char *lines, size_t length)
{
    pthread_mutex_lock(&s->lock);
    for (const char *at = lines, *end; at < lines + length; at = end + 1) {
        end = memchr(at, '\n', (size_t)(lines + length - at));
        end = end ? end : lines + length;
        ls_run_log_line(&s->log, "notes", 1, at, (size_t)(end - at), NULL);
    }
    pthread_mutex_unlock(&s->lock);
}

void cli_server_stop(cli_server *s)
{
    if (!s)
        return;
    if (s->guard && is_followed(s))
        nanosleep(&(struct timespec){.tv_sec = LINGER_S}, NULL); /* a signal ends the sleep */
    if (s->guard)
        http_guard_stop(s->guard);
    ls_run_log_fini(&s->log);
    ls_free(s->host, s->run_dir);
    pthread_mutex_destroy(&s->lock);
    ls_free(s->host, s);
}

#else

int cli_server_start(cli_server **out, const cli_server_options *o, const ls_host *host,
                     ls_error *err)
{
    (void)out;
    (void)host;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "--serve %.80s: this program was built without libmicrohttpd; install "
                   "libmicrohttpd-dev and build it again",
                   o->address);
}

int cli_server_follow(cli_server *s, ls_trainer *trainer, ls_error *err)
{
    (void)s;
    (void)trainer;
    (void)err;
    return LS_OK;
}

void cli_server_note(cli_server *s, const char *lines, size_t length)
{
    (void)s;
    (void)lines;
    (void)length;
}

void cli_server_warn(cli_server *s, const char *text)
{
    (void)s;
    (void)text;
}

void cli_server_stop(cli_server *s)
{
    (void)s;
}

#endif
