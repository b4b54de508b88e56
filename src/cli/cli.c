/* SPDX-License-Identifier: MIT */
/* cli_main, which the program's main() calls: finds the verb (subcommand) and runs it, or trains a
 * run and prints its progress and its result. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/host.h"
#include "cli/columns.h"
#include "cli/curve.h"
#include "cli/folds.h"
#include "cli/notes.h"
#include "cli/overwrite.h"
#include "cli/samples.h"
#include "cli/serve.h"
#include "cli/verbs.h"

#include <fcntl.h>
#include <lockstep/cluster.h>
#include <lockstep/sys/trainer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the exit code of a run. It is EXIT_SAVED if the run stopped early and, according to
 * `result`, a checkpoint of the point at which it stopped was saved. */
static int run_exit_code(int status, const ls_result *result)
{
    const bool may_go_on = status == LS_EINTERRUPTED || status == LS_EDEVICE ||
                           status == LS_ESTALLED || status == LS_ETIMEDOUT || status == LS_ENOMEM;
    return may_go_on && result->saved ? EXIT_SAVED : cli_exit_code(status);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

/* State of a training run of the program. */
typedef struct session {
    cli_view view;
    cli_output metrics;
    cli_curve curve;
    cli_notes notes;
    cli_server *server;          /* NULL: --serve is not given */
    char run_dir[LS_PATH_BYTES]; /* the run's directory; "": there is none */
    bool begun;                  /* the trainer has been opened */
} session;

/* The log function of the host. Prints the line; a warning is also shown on the pages of the
 * run. */
static void on_log(void *user, ls_log_level level, const char *text)
{
    session *s = user;
    cli_view_log(&s->view, level, text);
    if (level != LS_LOG_WARNING)
        return;
    cli_notes_warn(&s->notes, text);
    cli_server_warn(s->server, text);
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    return cli_output_line(&((session *)user)->metrics, json, length, err);
}

static void on_progress(void *user, const ls_progress *progress)
{
    cli_curve_add(&((session *)user)->curve, progress);
    cli_view_progress(&((session *)user)->view, progress);
}

/* ---- a launcher ----------------------------------------------------------------------------- */

/* Returns how many processes of this program a launcher (MPI, Slurm) has started; 1 without a
 * launcher. */
static int launched_processes(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    int most = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        const long count = text ? strtol(text, NULL, 10) : 0;
        most = count > most && count <= 1000000 ? (int)count : most;
    }
    return most;
}

/* Sets Open MPI's environment variables so that it sends messages over TCP at once, up to a little
 * more than 1 MiB. By default the sender of a long message waits until the receiver requests it,
 * and the receiver sends its request only after its own data, so two hosts that send to each other
 * alternate at half the rate of the network. Here every message is already expected. Variables that
 * the user has set are not changed. */
static void choose_transport(void)
{
    if (launched_processes() == 1)
        return;
    setenv("OMPI_MCA_btl_tcp_flags", "send", 0);
    setenv("OMPI_MCA_btl_tcp_eager_limit", "1114112", 0);
}

/* The text for the other processes, if this one has printed why it refuses its arguments. */
static const char refused[] = "its arguments are refused, and its own message says why";

/* Tells the other processes that a launcher has started why this one cannot train (`why`). They
 * would wait for it. Called before a trainer is opened, and after the program has printed its own
 * message, because the others can come late. */
static void tell_others(const char *why, ls_trainer_options o)
{
    ls_trainer *none;
    const ls_trainer_sys sys = {.size = sizeof sys, .failed = why};
    o.sys = &sys;
    (void)ls_trainer_open(&none, &o, NULL); /* it fails with `why` */
}

/* Calls tell_others after arguments of which only a part could be read. */
static void tell_others_of_usage(const cli_arguments *a, char **argv)
{
    const ls_trainer_cluster cluster = {.size = sizeof cluster, .launched = launched_processes()};
    bool tcp = false; /* the processes find each other by TCP, and start no MPI */
    for (; *argv; argv++)
        tcp |= strncmp(*argv, "--join", 6) == 0 || strncmp(*argv, "--listen", 8) == 0;
    if (tcp)
        return;
    choose_transport();
    tell_others(refused, (ls_trainer_options){.size = sizeof(ls_trainer_options),
                                              .config_path = a->config,
                                              .set = a->set.item,
                                              .set_count = a->set.count,
                                              .cluster = &cluster});
}

/* ---- the actions ---------------------------------------------------------------------------- */

static int print_config(const ls_trainer_options *options)
{
    char *text;
    ls_error err;
    int status = ls_config_resolve(&text, options, &err);
    if (status)
        return cli_fail(status, err.text);
    status = cli_put_text(text);
    ls_text_free(text);
    return status;
}

/* Prints the line with the result of the run. A number that is not known, because the run stopped
 * before it was measured, is printed as a dash. */
static void print_closing_line(FILE *stream, const ls_result *r, const ls_summary *s)
{
    char value[32] = "-", seconds[32] = "-";
    const bool accuracy = strcmp(r->metric, "accuracy") == 0;
    if (r->metric_value == r->metric_value)
        snprintf(value, sizeof value, accuracy ? "%.2f" : "%.4g", r->metric_value);
    if (r->seconds_per_epoch == r->seconds_per_epoch)
        snprintf(seconds, sizeof seconds, "%.1f", r->seconds_per_epoch);
    fprintf(stream, "%s %s: %s, %s sec/epoch on %s%s\n", s->judged_by, accuracy ? "acc" : r->metric,
            value, seconds, r->devices, s->synthetic ? " (synthetic data)" : "");
}

/* Prints, at the end of a run, its directory and commands that the user may want next. */
static void print_next(const cli_view *view, const ls_summary *summary)
{
    const char *run = summary->run_dir;
    char receipt[LS_PATH_BYTES];
    ls_buffer commands;
    if (!run[0])
        return;
    cli_view_fact(view, "run", "%s", run);
    ls_buffer_init(&commands, NULL);
    cli_put_command(&commands, "eval ", run, "\n");
    cli_put_command(&commands, "predict ", run, " INPUT\n");
    cli_put_command(&commands, "export ", run, " --to model.onnx\n");
    cli_put_command(&commands, "report ", run, "\n");
    if (access(ls_path_join(receipt, run, "receipt.json"), F_OK) == 0)
        cli_put_command(&commands, "verify ", run, "\n");
    if (!commands.failed)
        cli_view_commands(view, "next", commands.text);
    ls_buffer_fini(&commands);
}

/* Prints the command that continues the run in `run_dir`. */
static void print_how_to_resume(const char *run_dir)
{
    ls_buffer command;
    ls_buffer_init(&command, NULL);
    cli_put_command(&command, "--resume ", run_dir, "");
    if (!command.failed)
        cli_say("saved; go on with: %s", command.text);
    ls_buffer_fini(&command);
}

/* Keeps the live page after the run, until a signal arrives. */
static void stay(const session *s, const ls_registry *registry)
{
    ls_error err;
    ls_buffer lines;
    const cli_list none = {0};
    ls_buffer_init(&lines, NULL);
    if (!s->view.quiet)
        cli_say("the run has ended; its page stays until Ctrl-C");
    if (s->run_dir[0] &&
        cli_samples_write(&lines, s->run_dir, CLI_SAMPLES, &none, registry, &err) == LS_OK)
        cli_server_note(s->server, lines.text, lines.length);
    ls_buffer_fini(&lines);
    cli_wait_for_signal();
}

static int train(session *s, const ls_trainer_options *options, const cli_arguments *a)
{
    ls_trainer *trainer;
    ls_error err;
    int status = cli_open(&trainer, options, &err);
    if (status)
        return cli_fail(status, err.text);
    const ls_summary *summary = ls_trainer_summary(trainer);
    const bool quiet = s->view.quiet;
    status = cli_server_follow(s->server, trainer, &err);
    s->view.quiet |= summary->member > 0; /* only the first host shows the view */
    cli_view_start(&s->view, summary, trainer);
    cli_notes_open(&s->notes, trainer, s->server);
    snprintf(s->run_dir, sizeof s->run_dir, "%s", summary->run_dir);
    s->begun = true;
    if (status == LS_OK)
        status = cli_run(trainer, &err);
    cli_view_clear(&s->view);
    if ((status == LS_OK || status == LS_EINTERRUPTED) && summary->member == 0) {
        s->curve.judged_by = summary->judged_by;
        if (!s->view.quiet)
            cli_curve_print(&s->curve, stderr, cli_curve_utf8(),
                            cli_columns(stderr, CLI_CURVE_BESIDE));
        const bool to_stderr = a->metrics && strcmp(a->metrics, "-") == 0;
        print_closing_line(to_stderr ? stderr : stdout, ls_trainer_result(trainer), summary);
        if (status == LS_OK && !s->view.quiet)
            print_next(&s->view, summary);
    }
    if ((status == LS_OK || status == LS_EINTERRUPTED) && summary->member > 0 && !quiet) {
        fprintf(stderr, "%s: member %d of %d has ended: ", cli_name(), summary->member,
                summary->members);
        print_closing_line(stderr, ls_trainer_result(trainer), summary);
    }
    int code = cli_flush();
    if (status) {
        const ls_result *result = ls_trainer_result(trainer);
        cli_fail(status, err.text);
        code = run_exit_code(status, result);
        /* if another host has the run directory, that host prints its name */
        if (code == EXIT_SAVED && summary->run_dir[0])
            print_how_to_resume(summary->run_dir);
        else if (result->checkpoint[0])
            cli_say("the newest checkpoint is %s", result->checkpoint);
        else if (status == LS_ESTALLED && summary->members > 1 && result->steps == 0)
            cli_say("nothing was trained, so nothing was saved");
    }
    ls_trainer_close(trainer, NULL);
    return code;
}

/* Opens what a run needs besides the trainer: the secret of other hosts, the file of --metrics and
 * the live page. Returns 0, or the exit code after a message; *err then says why. */
static int prepare(session *s, cli_rendezvous *meeting, const cli_arguments *a,
                   const ls_trainer_options *o, ls_trainer_cluster *cluster, ls_error *err)
{
    const cli_server_options served = {a->serve, a->serve_host.item, a->serve_host.count, a->quiet};
    int status = cli_set_rendezvous(meeting, cluster, a, o->host, err);
    if (status)
        return cli_fail(status, err->text);
    int code = cli_spare_config(NULL, "metrics", a->metrics, o);
    code = code ? code : cli_spare_config(NULL, "trace", a->trace, o);
    if (code) {
        ls_fail(err, LS_EINVAL, "%s", refused);
        return code;
    }
    status = cli_output_open(&s->metrics, a->metrics, err);
    if (status == LS_OK)
        cli_catch_signals();
    if (status == LS_OK && a->serve)
        status = cli_server_start(&s->server, &served, o->host, err);
    return status ? cli_fail(status, err->text) : 0;
}

static int run_action(const cli_arguments *a, const ls_registry *registry)
{
    cli_directories places;
    session s = {.server = NULL};
    cli_notes_init(&s.notes);
    ls_error err;
    ls_host host = {.size = sizeof host, .log = on_log, .user = &s};
    cli_view_init(&s.view, a->quiet);
    s.view.said = a->said;
    s.view.no_tables = a->said != NULL;
    ls_trainer_options o = cli_options(&places, a->config, &a->set, registry, a->quiet, &host);
    o.resume = a->resume;
    o.resume_at = (uint64_t)a->resume_at;
    places.sys.inject = a->inject.item;
    places.sys.inject_count = a->inject.count;
    const ls_trainer_callbacks callbacks = {.size = sizeof callbacks,
                                            .record = a->metrics ? on_record : NULL,
                                            .progress = on_progress,
                                            .user = &s};
    ls_trainer_cluster cluster = {.size = sizeof cluster, .launched = launched_processes()};
    o.trace_path = a->trace;
    o.trace_ops = a->trace_ops;
    o.callbacks = &callbacks;
    o.cluster = &cluster;
    if (a->print_config)
        return print_config(&o);
    choose_transport();
    cli_rendezvous meeting;
    int code = prepare(&s, &meeting, a, &o, &cluster, &err);
    if (code) {
        tell_others(err.text, o);
        return code;
    }
    code = train(&s, &o, a);
    if (s.server && s.begun && a->serve_after && !cli_interrupted())
        stay(&s, registry);
    cli_server_stop(s.server);
    cli_notes_close(&s.notes);
    const int status = cli_output_close(&s.metrics, &err);
    return code == 0 && status ? cli_fail(status, err.text) : code;
}

static int train_or_print(int argc, char **argv, const ls_registry *registry)
{
    cli_arguments a;
    int code = cli_parse(&a, argc, argv);
    if (code) {
        tell_others_of_usage(&a, argv);
        return code;
    }
    code = cli_print_help(&a, registry);
    if (code)
        return code == CLI_HELPED ? cli_flush() : code;
    return a.folds ? cli_folds(&a, registry) : run_action(&a, registry);
}

int cli_train(const char *config, cli_said *said, const ls_registry *registry)
{
    char rest[] = "--";
    char *argv[] = {(char *)(uintptr_t)cli_called(), rest, (char *)(uintptr_t)config, NULL};
    cli_arguments a;
    const int code = cli_parse(&a, 3, argv);
    said->complete = true;
    a.said = said;
    return code ? code : run_action(&a, registry);
}

/* Opens /dev/null on each standard stream that is closed. This is needed because the next file that
 * is opened gets the number of a closed stream, and then receives the program's messages. */
static void keep_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Prints a message about a first argument that is no verb and no file, but is similar to the
 * verb `meant`. */
static int fail_unknown_verb(const char *word, const char *meant)
{
    char problem[LS_PATH_BYTES + 120];
    snprintf(problem, sizeof problem, "did you mean `%s %s`? There is no verb and no config ",
             cli_program(), meant);
    return cli_usage(NULL, problem, word);
}

/* Runs the verb that the first argument names, or training, whose verb `train` may be omitted. A
 * config with the name of a verb is given as ./NAME. */
static int run_verb(int argc, char **argv, ls_registry *registry)
{
    static const struct {
        const char *name;
        cli_verb *run;
        /* if `run` is NULL: the verb, which uses a trained model */
        const cli_trained_verb *trained;
    } verbs[] = {{"init", cli_init, NULL},       {"report", cli_report, NULL},
                 {"pack", cli_pack_verb, NULL},  {"sweep", cli_sweep_verb, NULL},
                 {"find-lr", cli_find_lr, NULL}, {"verify", cli_verify, NULL},
                 {"eval", NULL, &cli_eval},      {"predict", NULL, &cli_predict},
                 {"export", NULL, &cli_export},  {"runs", cli_runs, NULL},
                 {"compare", cli_compare, NULL}, {"devices", cli_devices, NULL},
                 {"bench", cli_bench, NULL}};
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0) {
            const int code = verbs[i].run
                                 ? verbs[i].run(argc - 1, argv + 1, registry)
                                 : cli_trained_run(verbs[i].trained, argc - 1, argv + 1, registry);
            return code == CLI_HELPED ? cli_flush() : code;
        }
    const int named = argc > 1 && strcmp(argv[1], "train") == 0;
    const char *words[sizeof verbs / sizeof *verbs + 1] = {"train"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        words[i + 1] = verbs[i].name;
    const char *meant = argc > 1 && !named && argv[1][0] != '-' && access(argv[1], F_OK) != 0
                            ? ls_closest(argv[1], words, sizeof words / sizeof *words)
                            : NULL;
    if (meant)
        return fail_unknown_verb(argv[1], meant);
    return train_or_print(argc - named, argv + named, registry);
}

int cli_main(int argc, char **argv, ls_registry *registry)
{
    keep_standard_streams();
    cli_survive_file_limit();
    cli_set_program(argc > 0 ? argv[0] : NULL);
    cli_set_command(argv);
    const int code = run_verb(argc, argv, registry);
    ls_registry_destroy(registry);
    return code;
}
