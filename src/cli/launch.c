/* --hosts a,b: starts this program on several hosts, by the mpirun that there is, and looks after it: a signal
 * makes all of them save and stop, a launcher that hangs when its trainers are gone is ended, and what was saved may
 * be gone on with. */
#include "base/host.h"
#include "cli/cli.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 100,
    TELL_MS = 1000,
    AGAIN_MS = 2000,
    END_MS = 5000,
    HOSTS_MAX = 8192,
    PATH_ROOM = 4096,
    TAIL = 65536
};

typedef struct launch {
    const cli_arguments *a;
    char program[PATH_ROOM];
    char run[PATH_ROOM];          /* the run's directory; "": it has none */
    char run_key[PATH_ROOM + 16]; /* names it in the config, which does not; "": need not */
    struct timespec recorded;     /* when the run's records were written last, before the start */
    long gone_ms;                 /* without a trainer here, until the launcher hangs */
    char **words;                 /* of the launcher, and of what it starts */
    int count;
    pid_t launcher;
    int lifeline;       /* a pipe's end, where trainers are heard of, … */
    char line_name[80]; /* … and by what they find it */
} launch;

/* ---- what is started ------------------------------------------------------------------------ */

static void add(launch *l, const char *word)
{
    l->words[l->count++] = (char *)(size_t)word; /* execvp's words are not const, and not written */
    l->words[l->count] = NULL;
}

/* "HYDRA" is MPICH's. */
static bool is_mpich(void)
{
    char line[256];
    bool found = false;
    FILE *out = popen("mpirun --version 2>/dev/null", "r");
    while (out && fgets(line, sizeof line, out))
        found |= strstr(line, "HYDRA") != NULL;
    if (out)
        pclose(out);
    return found;
}

/* One process a host, with all of its CPUs, and none is ended because another one was lost. */
static void add_launcher(launch *l)
{
    static const char *const mpich[] = {
        "mpirun", "-ppn", "1", "-bind-to", "none", "-disable-auto-cleanup", NULL};
    static const char *const open_mpi[] = {
        "mpirun", "-N", "1", "--bind-to", "none", "--enable-recovery", NULL};
    const bool other = is_mpich();
    for (const char *const *word = other ? mpich : open_mpi; *word; word++)
        add(l, *word);
    if (!other && geteuid() == 0)
        add(l, "--allow-run-as-root");
    add(l, other ? "-hosts" : "-H");
    add(l, l->a->hosts);
}

static bool is_launchers(const launch *l, const char *word)
{
    const cli_list *own = &l->a->launching;
    int i = 0;
    while (i < own->count && own->item[i] != word)
        i++;
    return i < own->count;
}

/* The program's own words but those that are the launcher's; every start is one of the same run. */
static void add_trainer(launch *l, int argc, char **argv, bool resume)
{
    add(l, l->program);
    if (resume || l->run_key[0]) { /* in front: behind a "--" they would be operands */
        add(l, resume ? "--resume" : "--set");
        add(l, resume ? l->run : l->run_key);
    }
    for (int i = 1; i < argc; i++)
        if (!is_launchers(l, argv[i]))
            add(l, argv[i]);
}

static void print_words(const launch *l)
{
    for (int i = 0; i < l->count; i++) {
        const char *word = l->words[i];
        const bool plain = word[0] && !word[strcspn(word, " \t\n\"'\\$`*?[]{}()<>|&;!~#")];
        fprintf(stderr, plain ? "%s%s" : "%s'%s'", i ? " " : "trainer: ", word);
    }
    fputc('\n', stderr);
}

/* ---- its trainers --------------------------------------------------------------------------- */

/* A trainer on this host opens the pipe of its launch, says so, and has it open for as long as it lives. It gets
 * there by name, since a launcher closes what it inherits; and looked for now and then, one that lived between two
 * looks was never there. */
#define LIFELINE "LOCKSTEP_LIFELINE"

static int make_lifeline(launch *l)
{
    int ends[2];
    struct stat st;
    if (pipe(ends) != 0)
        return cli_fail(LS_ESYSTEM, strerror(errno));
    l->lifeline = ends[0];
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fstat(ends[0], &st);
    snprintf(l->line_name, sizeof l->line_name, "%ld:%d:%ju", (long)getpid(), ends[0],
             (uintmax_t)st.st_ino);
    close(ends[1]);
    return 0;
}

/* On another host, what has this name is another pipe, or none. */
int cli_hold_lifeline(void)
{
    const char *name = getenv(LIFELINE);
    long pid;
    int end, line = -1;
    uintmax_t inode;
    char path[64];
    struct stat st;
    if (!name || sscanf(name, "%ld:%d:%ju", &pid, &end, &inode) != 3)
        return -1;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, end);
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_ino == inode)
        line = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (line >= 0 && write(line, "", 1) != 1)
        fprintf(stderr, "trainer: --hosts does not see this one: %s\n", strerror(errno));
    return line;
}

/* Whether the launcher has a trainer on this host; *had: or has had one. */
static bool has_trainer(const launch *l, bool *had)
{
    char said[64];
    ssize_t n;
    while ((n = read(l->lifeline, said, sizeof said)) > 0)
        *had = true;
    return n < 0; /* nothing yet; 0: nobody has it open */
}

/* ---- looking after it ----------------------------------------------------------------------- */

static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT};
enum { STOPS = sizeof stops / sizeof *stops, STAY_IGNORED = 3 /* nohup's, from here on */ };

/* A handler can reach nothing but globals. */
static volatile sig_atomic_t asked; /* to stop; above 1: at once */

static void on_signal(int number)
{
    if (asked == 0 || (number != SIGUSR1 && asked == 1))
        asked = asked + 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < STOPS; i++)
        if (i < STAY_IGNORED || sigaction(stops[i], NULL, &old) != 0 || old.sa_handler != SIG_IGN)
            sigaction(stops[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* what is printed is worth no run */
    signal(SIGCHLD, SIG_DFL); /* else nothing is left to wait for */
}

/* In the child. Its own group: a terminal's Ctrl-C would have it end the trainers within two seconds, saved or
 * not. It ends when its parent has gone, by whatever signal. */
static void become_launcher(const launch *l, pid_t parent, const sigset_t *mask)
{
    for (int i = 0; i < STOPS; i++)
        if (signal(stops[i], SIG_DFL) == SIG_IGN)
            signal(stops[i], SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0);
    setenv(LIFELINE, l->line_name, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() != parent || !freopen("/dev/null", "r", stdin))
        _exit(EXIT_OS);
    execvp(l->words[0], l->words);
    fprintf(stderr, "trainer: mpirun cannot be started (%s): third_party/setup.sh hosts\n",
            strerror(errno));
    _exit(EXIT_OS);
}

static int start(launch *l)
{
    const pid_t self = getpid();
    sigset_t all, mask;
    const int code = make_lifeline(l);
    if (code)
        return code;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &mask); /* in the child, a handler would keep a signal from it */
    l->launcher = fork();
    if (l->launcher == 0)
        become_launcher(l, self, &mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (l->launcher < 0)
        return cli_fail(LS_ESYSTEM, strerror(errno));
    setpgid(l->launcher, l->launcher);
    return 0;
}

/* The launcher's exit code when it has ended within so long, else -1. */
static int ends_within(const launch *l, long ms)
{
    const struct timespec moment = {.tv_nsec = LOOK_MS * 1000000};
    for (; ms > 0; ms -= LOOK_MS) {
        int state;
        const pid_t ended = waitpid(l->launcher, &state, WNOHANG);
        if (ended)
            return ended > 0 && WIFEXITED(state) ? WEXITSTATUS(state) : EXIT_OS;
        nanosleep(&moment, NULL);
    }
    return -1;
}

/* SIGTERM first: a launcher ends what it has on other hosts. */
static void end(const launch *l)
{
    kill(-l->launcher, SIGTERM);
    const bool ended = ends_within(l, END_MS) >= 0;
    kill(-l->launcher, SIGKILL);
    if (!ended)
        waitpid(l->launcher, NULL, 0);
}

/* The end of the run's records, and when they were written. False where there are none. */
static bool read_records(const launch *l, char tail[TAIL], struct timespec *written)
{
    char path[LS_PATH_BYTES];
    struct stat st;
    FILE *file = l->run[0] ? fopen(ls_path_join(path, l->run, "metrics.jsonl"), "r") : NULL;
    tail[0] = '\0';
    if (!file)
        return false;
    const bool found = fstat(fileno(file), &st) == 0;
    if (found && st.st_size >= TAIL)
        fseek(file, 1 - TAIL, SEEK_END);
    if (found) {
        tail[fread(tail, 1, TAIL - 1, file)] = '\0';
        *written = st.st_mtim;
    }
    fclose(file);
    return found;
}

static bool is_saved(const launch *l)
{
    char path[LS_PATH_BYTES];
    return ls_checkpoints_exist(ls_path_join(path, l->run, "checkpoints"));
}

/* The exit code of trainers whose launcher did not tell it, since it hangs, or since --enable-recovery has it return 0
 * whatever becomes of them: from what the run has recorded since the start. */
static int find_outcome(const launch *l, bool hangs)
{
    char tail[TAIL];
    struct timespec written;
    if (!read_records(l, tail, &written) ||
        (written.tv_sec == l->recorded.tv_sec && written.tv_nsec == l->recorded.tv_nsec))
        return hangs ? cli_fail(LS_ESYSTEM, "the run has left no records here") : 0;
    const char *last = strstr(tail, "{\"type\":\"run_end\"");
    if (last && strstr(last, "\"status\":\"finished\""))
        return 0;
    if (!is_saved(l) || (last && !strstr(last, "\"checkpoint\":\"")))
        return cli_fail(LS_ESYSTEM, "the run is not saved");
    if (!last) /* nobody has said so */
        fprintf(stderr, "trainer: saved; go on with: trainer --resume %s\n", l->run);
    return EXIT_SAVED;
}

/* A signal means: save and stop; a second one: stop. mpirun passes SIGUSR1 on at once, and waits; not before it has begun,
 * nor to trainers that have not, so it is told again. Returns the exit code. */
static int look_after(const launch *l)
{
    bool had = false;
    int code;
    long gone_ms = 0, until_told = TELL_MS;
    while ((code = ends_within(l, LOOK_MS)) < 0) {
        const bool has = has_trainer(l, &had);
        gone_ms = had && !has ? gone_ms + LOOK_MS : 0;
        until_told -= LOOK_MS;
        if (asked && until_told <= 0 && (has || !had)) {
            kill(l->launcher, SIGUSR1);
            until_told = AGAIN_MS;
        }
        if (asked < 2 && gone_ms < l->gone_ms)
            continue;
        if (asked < 2)
            fprintf(stderr, "trainer: mpirun hangs, and its trainer here is gone: ending it\n");
        end(l);
        return asked < 2 ? find_outcome(l, true) : EXIT_INTERRUPTED;
    }
    kill(-l->launcher, SIGKILL); /* what it may have left */
    return code ? code : find_outcome(l, false);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The run that is resumed. */
static int find_resumed(launch *l, const ls_config *config, const ls_host *host)
{
    ls_error err;
    char *latest = NULL;
    const char *run = l->a->resume;
    if (strcmp(run, "latest") == 0 && config && config->run_dir && config->run_dir[0]) {
        run = config->run_dir;
    } else if (strcmp(run, "latest") == 0) {
        int status = ls_resume_latest(&latest, config ? config->name : NULL, host, &err);
        if (status)
            return cli_fail(status, err.text);
        run = latest;
    }
    snprintf(l->run, sizeof l->run, "%s", run);
    ls_free(host, latest);
    return 0;
}

/* A new run's directory is named here, so that a later start goes on with this very run. */
static void name_run(launch *l, const ls_config *config)
{
    const time_t now = time(NULL);
    if (config->run_dir) {
        snprintf(l->run, sizeof l->run, "%s", config->run_dir);
        return;
    }
    for (int n = 1; n == 1 || access(l->run, F_OK) == 0; n++)
        ls_run_dir_name(l->run, sizeof l->run, now, config->name, n);
    snprintf(l->run_key, sizeof l->run_key, "run_dir=%s", l->run);
}

/* Fills in the run, and how long the launcher is waited for: other hosts may take cluster.deadline_s to see that
 * this one's trainer is gone, and as long to save. */
static int find_run(launch *l, const ls_trainer_options *options)
{
    ls_trainer_options o = *options;
    ls_config config = {0};
    ls_error err;
    char path[LS_PATH_BYTES];
    int code = o.config_path ? 0 : find_resumed(l, NULL, o.host);
    int status = LS_OK;
    if (code == 0 && o.config_path)
        status = ls_config_read(&config, &o, &err);
    else if (code == 0)
        status =
            ls_config_read_of_run(&config, ls_path_join(path, l->run, "config.json"), &o, &err);
    if (code || status)
        return code ? code : cli_fail(status, err.text);
    if (options->config_path && l->a->resume)
        code = find_resumed(l, &config, o.host);
    else if (options->config_path)
        name_run(l, &config);
    l->gone_ms = (long)(2e3 * (config.cluster.deadline_s > 0 ? config.cluster.deadline_s : 30));
    ls_config_fini(&config);
    return code;
}

static int run_all(launch *l, int argc, char **argv)
{
    long left = l->a->relaunch ? strtol(l->a->relaunch, NULL, 10) : 0;
    char tail[TAIL];
    catch_signals();
    for (bool again = l->a->resume;; again = true) {
        l->count = 0;
        add_launcher(l);
        add_trainer(l, argc, argv, again);
        print_words(l);
        read_records(l, tail, &l->recorded);
        int code = start(l);
        if (code == 0)
            code = look_after(l);
        if (l->lifeline >= 0)
            close(l->lifeline);
        l->lifeline = -1;
        if (code != EXIT_SAVED || left-- <= 0 || asked || !l->run[0])
            return code;
    }
}

int cli_launch(const cli_arguments *a, const ls_trainer_options *options, int argc, char **argv)
{
    launch l = {.a = a, .lifeline = -1};
    if (options->launched > 1) /* salloc's shell is a step of one task */
        return cli_usage(
            NULL, "--hosts is for the one that starts all, not for what a launcher starts", "");
    const ssize_t length = readlink("/proc/self/exe", l.program, sizeof l.program - 1);
    if (length <= 0 || strlen(a->hosts) > HOSTS_MAX)
        return cli_fail(LS_ESYSTEM, "--hosts: too many, or /proc is missing");
    int code = find_run(&l, options);
    if (code)
        return code;
    l.words = calloc((size_t)argc + 16, sizeof *l.words);
    code = l.words ? run_all(&l, argc, argv) : cli_fail(LS_ENOMEM, "out of memory");
    free(l.words);
    return code;
}
