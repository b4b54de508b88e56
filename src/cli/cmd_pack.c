/* SPDX-License-Identifier: MIT */
/* trainer pack FOLDER --to FILE: packs a folder of images (data/pack.h), and how the program shows
 * the packing. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/overwrite.h"
#include "config/given.h"

#include <stdio.h>
#include <unistd.h>

/* ---- progress, for all verbs that pack ------------------------------------------------------- */

/* Prints the progress on stderr; on a terminal, at most five times per second. */
static void on_progress(void *user, size_t done, size_t all, double seconds, bool last, bool failed)
{
    cli_folder_view *v = user;
    const uint64_t now = ls_now_ns();
    const bool tty = isatty(STDERR_FILENO);
    if (v->quiet)
        return;
    if (failed) {
        if (tty)
            fputc('\n', stderr);
        return;
    }
    if (!last && (!tty || now - v->shown < 200000000u))
        return;
    v->shown = now;
    fprintf(stderr, "%s  packing     %zu of %zu images, %.0f/s%s", tty ? "\r" : "", done, all,
            seconds > 0 ? (double)done / seconds : 0, last ? "\n" : "");
}

static void on_broken(void *user, const char *why)
{
    (void)user;
    cli_say("broken: %s", why);
}

static void on_removed(void *user, const char *what)
{
    (void)user;
    cli_say("%s", what);
}

void cli_watch_folder(cli_folder_view *view, bool quiet)
{
    *view = (cli_folder_view){.quiet = quiet};
    view->watch = (ls_folder_watch){
        .progress = on_progress, .broken = on_broken, .removed = on_removed, .user = view};
}

/* ---- the verb -------------------------------------------------------------------------------- */

static const char pack_help[] =
    "usage: {} pack FOLDER --to FILE.safetensors [options]\n"
    "\n"
    "Reads a folder of images, a sub-folder for each class, once: JPEG, PNG, BMP, WebP, PGM\n"
    "and PPM of any size become rows of one file, which data.name safetensors trains on. If\n"
    "FOLDER contains train and test (or val, valid, validation), these are the training and\n"
    "the test images.\n"
    "\n"
    "  --to FILE        the file to write\n"
    "  --test FOLDER    folder of the test images\n"
    "  --size N         height and width in pixels: images are scaled until the shorter side\n"
    "                   fits, and cropped to the middle (32)\n"
    "  --channels N     3 for colours, 1 for grey (3)\n"
    "  --set KEY=VALUE  a key of the config that is about pictures, such as\n"
    "                   data.pictures=imagenet or data.resize=[48,192]; repeatable\n"
    "  --threads N      number of threads (one for each CPU)\n"
    "  --skip-broken    leaves out images that cannot be read, and reports their number\n"
    "  --quiet          no progress\n"
    "  --help           this text\n";

static void on_log(void *user, ls_log_level level, const char *text)
{
    (void)user;
    (void)level;
    cli_say("%s", text);
}

/* Reads the keys about pictures. The options --size and --channels are short for two of them; 0:
 * the option is absent. */
static int read_form(ls_picture_form *out, cli_list *set, int size, int channels,
                     const ls_host *host, ls_error *err)
{
    char text[2][40];
    ls_inspection look = {.host = host};
    ls_given_data *given;
    set->item[set->count++] = "data.name=\"folder\"";
    snprintf(text[0], sizeof text[0], "data.image_size=%d", size);
    snprintf(text[1], sizeof text[1], "data.channels=%d", channels);
    if (size)
        set->item[set->count++] = text[0];
    if (channels)
        set->item[set->count++] = text[1];
    const int status = ls_given_data_read(&given, &look, set->item, set->count, err);
    if (status == LS_OK)
        *out = ls_form_of_keys(&look.given.keys);
    ls_given_data_free(given);
    return status;
}

int cli_pack_verb(int argc, char **argv, const ls_registry *registry)
{
    const char *to = NULL;
    bool quiet = false;
    cli_folder_view view;
    int size = 0, channels = 0;
    cli_list set = {.count = 0};
    ls_folder_desc p = {.pictures = lockstep_pictures()};
    const ls_host host = {.size = sizeof host, .log = on_log};
    ls_error err;
    (void)registry;
    const cli_option options[] = {
        {CLI_OUT, "to", .value = &to},
        {CLI_TEXT, "test", .value = &p.test_folder},
        {CLI_WHOLE, "size", .whole = &size, .least = 1, .greatest = 4096},
        {CLI_WHOLE, "channels", .whole = &channels, .least = 1, .greatest = 3},
        {CLI_LIST, "set", .list = &set, .most = CLI_SET_MAX},
        {CLI_WHOLE, "threads", .whole = &p.threads, .least = 1, .greatest = LS_FOLDER_THREADS},
        {CLI_FLAG, "skip-broken", .flag = &p.skip_broken},
        {CLI_FLAG, "quiet", .flag = &quiet},
        {CLI_HELP, "help", 'h', .text = pack_help},
        {CLI_OPERAND, "folder", .value = &p.folder, .text = "which folder?"},
        {0}};
    const int code = cli_read_options("pack", options, argc, argv);
    if (code)
        return code;
    if (!to)
        return cli_usage("pack", "--to FILE is missing", "");
    const int spared = cli_spare("pack", "to", to, p.test_folder);
    if (spared)
        return spared;
    if (channels == 2)
        return cli_usage("pack", "--channels: expected 1 or 3, found ", "2");
    cli_watch_folder(&view, quiet);
    p.watch = &view.watch;
    p.program = cli_program();
    int status = read_form(&p.form, &set, size, channels, &host, &err);
    if (status == LS_OK)
        status = ls_folder_pack(to, &p, &host, &err);
    return status ? cli_fail(status, err.text) : cli_flush();
}
