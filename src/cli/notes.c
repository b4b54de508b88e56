/* SPDX-License-Identifier: MIT */
/* Writes notes.jsonl (notes.h): a line about the program and the model, and the warnings of a run.
 * Also prints the layers of a model. */
#include "cli/notes.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "cli/columns.h"
#include "cli/program.h"
#include "train/shown.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void cli_notes_init(cli_notes *notes)
{
    *notes = (cli_notes){.fd = -1};
    pthread_mutex_init(&notes->lock, NULL); /* default attributes: this cannot fail */
    ls_buffer_init(&notes->early, NULL);
}

/* Writes lines to the file, if it is open. */
static void put_lines(cli_notes *notes, const char *text, size_t length)
{
    for (size_t done = 0; notes->fd >= 0 && done < length;) {
        const ssize_t n = write(notes->fd, text + done, length - done);
        if (n <= 0)
            /* an error is not reported here: if the disk is full, writing the records reports it */
            break;
        done += (size_t)n;
    }
}

static void begin_line(ls_json_writer *w, const char *type)
{
    char text[32];
    struct tm utc;
    const time_t now = time(NULL);
    ls_json_writer_init(w, 0, NULL);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", type);
    gmtime_r(&now, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ls_json_put_string(w, "time", text);
}

/* Ends the JSON object in `w` and appends it to `out` as a line. */
static void end_line(ls_buffer *out, ls_json_writer *w)
{
    size_t length;
    ls_json_close(w);
    const char *text = ls_json_writer_text(w, &length, NULL);
    if (text) {
        ls_buffer_add(out, text, length);
        ls_buffer_put(out, "\n");
    }
    ls_json_writer_fini(w);
}

void cli_notes_warn(cli_notes *notes, const char *text)
{
    ls_json_writer w;
    ls_buffer line;
    pthread_mutex_lock(&notes->lock);
    if (notes->warnings++ < CLI_WARNINGS) {
        ls_buffer_init(&line, NULL);
        begin_line(&w, "warning");
        ls_json_put_string(&w, "text", text);
        end_line(&line, &w);
        if (line.text && notes->fd >= 0)
            put_lines(notes, line.text, line.length);
        else if (line.text)
            ls_buffer_add(&notes->early, line.text, line.length);
        ls_buffer_fini(&line);
    }
    pthread_mutex_unlock(&notes->lock);
}

/* ---- the first line ------------------------------------------------------------------------- */

static void put_shape(ls_json_writer *w, const char *key, ls_shape shape)
{
    ls_json_open_array(w, key);
    ls_json_put_int(w, NULL, shape.c);
    if (shape.h > 1 || shape.w > 1) {
        ls_json_put_int(w, NULL, shape.h);
        ls_json_put_int(w, NULL, shape.w);
    }
    ls_json_close(w);
}

static void put_layers(ls_json_writer *w, const ls_trainer *trainer)
{
    put_shape(w, "input", ls_trainer_input(trainer));
    ls_json_open_array(w, "layers");
    for (int i = 0; i < ls_trainer_layers(trainer); i++) {
        const ls_shown_layer layer = ls_trainer_layer(trainer, i);
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "name", layer.name);
        ls_json_put_string(w, "type", layer.type);
        put_shape(w, "output", layer.out);
        ls_json_put_uint(w, "parameters", layer.parameters);
        ls_json_close(w);
    }
    ls_json_close(w);
}

static void put_program(ls_buffer *out, const ls_trainer *trainer)
{
    char host[256] = "", place[LS_PATH_BYTES];
    const char *run_dir = ls_trainer_summary(trainer)->run_dir;
    ls_json_writer w;
    begin_line(&w, "program");
    if (gethostname(host, sizeof host - 1) == 0)
        ls_json_put_string(&w, "host", host);
    if (run_dir[0] == '/' || !run_dir[0] || !getcwd(place, sizeof place)) {
        ls_json_put_string(&w, "run_dir", run_dir[0] ? run_dir : NULL);
    } else {
        char path[LS_PATH_BYTES];
        ls_json_put_string(&w, "run_dir", ls_path_join(path, place, run_dir));
    }
    ls_json_put_string(&w, "command", cli_command());
    put_layers(&w, trainer);
    end_line(out, &w);
}

void cli_notes_open(cli_notes *notes, const ls_trainer *trainer, cli_server *server)
{
    char path[LS_PATH_BYTES];
    ls_buffer line;
    const char *run_dir = ls_trainer_summary(trainer)->run_dir;
    pthread_mutex_lock(&notes->lock);
    if (run_dir[0])
        ls_open_to_write(&notes->fd, ls_path_join(path, run_dir, "notes.jsonl"),
                         O_WRONLY | O_CREAT | O_APPEND, NULL);
    ls_buffer_init(&line, NULL);
    put_program(&line, trainer);
    if (line.text)
        put_lines(notes, line.text, line.length);
    if (line.text && server)
        cli_server_note(server, line.text, line.length);
    if (notes->early.text)
        put_lines(notes, notes->early.text, notes->early.length);
    ls_buffer_fini(&line);
    ls_buffer_fini(&notes->early);
    pthread_mutex_unlock(&notes->lock);
}

void cli_notes_close(cli_notes *notes)
{
    if (notes->fd >= 0)
        close(notes->fd);
    ls_buffer_fini(&notes->early);
    pthread_mutex_destroy(&notes->lock);
}

/* ---- for people ----------------------------------------------------------------------------- */

/* LINES: largest number of lines that are printed. For a larger model, the FIRST first and the LAST
 * last lines are printed. */
enum { LINES = 14, FIRST = 8, LAST = 4, NAME = 96 };

/* A layer with parameters, and the layers without parameters that follow it. */
typedef struct part {
    char name[NAME];
    ls_shape out;
    size_t parameters;
} part;

/* Divides the layers into parts. The caller frees the array. Returns NULL if there is no
 * memory. */
static part *find_parts(const ls_trainer *trainer, int *count)
{
    const int layers = ls_trainer_layers(trainer);
    part *all = ls_alloc_array(NULL, (size_t)layers, sizeof *all);
    *count = 0;
    for (int i = 0; all && i < layers; i++) {
        const ls_shown_layer layer = ls_trainer_layer(trainer, i);
        if (*count == 0 || layer.is_main)
            all[(*count)++].name[0] = '\0';
        part *g = &all[*count - 1];
        const size_t used = strlen(g->name);
        snprintf(g->name + used, NAME - used, "%s%s", used ? ", " : "", layer.type);
        g->out = layer.out;
        g->parameters += layer.parameters;
    }
    return all;
}

static void print_part(const part *g, int width)
{
    char out[48];
    enum { BEFORE = 14, OUTPUT = 12, COUNT = 12 };
    snprintf(out, sizeof out, "%d", g->out.c);
    if (g->out.h > 1 || g->out.w > 1)
        snprintf(out, sizeof out, "%d×%d×%d", g->out.c, g->out.h, g->out.w);
    const int before = width < 60 ? 2 : BEFORE, left = width - before - OUTPUT - COUNT;
    fprintf(stderr, "%*s", before, "");
    cli_put_padded(stderr, g->name, left > 44 ? 44 : left, false);
    cli_put_padded(stderr, out, OUTPUT, true);
    fprintf(stderr, "%*zu\n", COUNT, g->parameters);
}

void cli_print_layers(const ls_trainer *trainer, int width)
{
    int count;
    part *all = find_parts(trainer, &count);
    for (int i = 0; all && i < count; i++) {
        if (count > LINES && i == FIRST) {
            const int left_out = count - FIRST - LAST;
            fprintf(stderr, "%*s… %d more\n", width < 60 ? 2 : 14, "", left_out);
            i += left_out;
        }
        print_part(&all[i], width);
    }
    ls_free(NULL, all);
}
