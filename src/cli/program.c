/* SPDX-License-Identifier: MIT */
#include "cli/program.h"

#include "base/error.h"
#include "base/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char called[LS_PATH_BYTES] = "trainer"; /* argv[0] */
static char typed[LS_PATH_BYTES] = "trainer";  /* argv[0], quoted if a shell needs quotes */
static char command[2048] = "trainer";         /* all of argv, quoted where a shell needs it */

void cli_put_word(ls_buffer *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    const bool quoted = word[0] == '\0' || word[strspn(word, plain)] != '\0';
    ls_buffer_put(out, quoted ? "'" : "");
    for (const char *c = word; *c; c++)
        *c == '\'' ? ls_buffer_put(out, "'\\''") : ls_buffer_add(out, c, 1);
    ls_buffer_put(out, quoted ? "'" : "");
}

void cli_set_program(const char *name)
{
    ls_buffer word;
    name = name && name[0] ? name : "trainer";
    ls_buffer_init(&word, NULL);
    cli_put_word(&word, name);
    if (!word.failed && word.length < sizeof typed) { /* the word is at least as long as the name */
        memcpy(typed, word.text, word.length + 1);
        snprintf(called, sizeof called, "%s", name);
    }
    ls_buffer_fini(&word);
}

const char *cli_called(void)
{
    return called;
}

const char *cli_name(void)
{
    const char *slash = strrchr(called, '/');
    return slash && slash[1] ? slash + 1 : called;
}

const char *cli_program(void)
{
    return typed;
}

void cli_set_command(char *const *argv)
{
    ls_buffer text;
    ls_buffer_init(&text, NULL);
    ls_buffer_put(&text, typed);
    for (int i = 1; argv[0] && argv[i]; i++) {
        ls_buffer_put(&text, " ");
        cli_put_word(&text, argv[i]);
    }
    snprintf(command, sizeof command, "%.*s", (int)sizeof command - 1,
             text.text ? text.text : typed);
    ls_buffer_fini(&text);
}

const char *cli_command(void)
{
    return command;
}

void cli_put_command(ls_buffer *out, const char *before, const char *path, const char *after)
{
    ls_buffer_format(out, "%s %s", typed, before);
    cli_put_word(out, path);
    ls_buffer_put(out, after);
}

void cli_say(const char *format, ...)
{
    va_list args;
    flockfile(stderr); /* the message is one piece even if another thread prints too */
    fprintf(stderr, "%s: ", cli_name());
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    funlockfile(stderr);
}
