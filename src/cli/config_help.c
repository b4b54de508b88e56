/* SPDX-License-Identifier: MIT */
/* trainer --help config: prints every key of a config, by topic, as plain text. The descriptions in
 * the table of keys are Markdown, because docs/config.md contains them as well. */
#include "cli/cli.h"
#include "cli/columns.h"
#include "config/keys.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 2048, WIDTH = 90 };

/* Topics, each with its first key. A topic ends where the next one begins. */
static const struct {
    const char *key, *name;
} topics[] = {
    {"name", "The run"},
    {"data.name", "Data"},
    {"model", "Model, minibatch and first weights"},
    {"optimizer", "Optimizer and learning rate"},
    {"loss", "Loss"},
    {"augment.crop", "Augmentation"},
    {"gradient_scale", "Arithmetic and shards"},
    {"epochs", "Epochs and devices"},
    {"eval_every", "Evaluation, checkpoints and early stopping"},
    {"metrics.tensorboard", "Metrics"},
    {"deadline_s", "Failures, and several hosts"},
    {"run_dir", "Output"},
};

static void print_topic(const char *key)
{
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (strcmp(key, topics[i].key) == 0)
            printf("%s%s\n\n", i ? "\n" : "", topics[i].name);
}

/* Prints which values a key accepts, if its row in the table says so. */
static void print_kind(const ls_config_key *row)
{
    switch (row->kind) {
    case LS_KEY_INT: printf("an integer from %d to %d", (int)row->min, (int)row->max); break;
    case LS_KEY_NUMBER: printf("a number from %g to %g", row->min, row->max); break;
    case LS_KEY_BOOL: fputs("true or false", stdout); break;
    case LS_KEY_TEXT: fputs("a string", stdout); break;
    case LS_KEY_CHOICE:
        for (int i = 0; row->choices[i]; i++)
            printf("%s\"%s\"", i ? " or " : "", row->choices[i]);
        break;
    case LS_KEY_CUSTOM: break;
    }
}

/* Returns the text that replaces the backquote at `at`: a quotation mark if the code between the
 * two backquotes has no letter or digit, such as a comma; otherwise "". `inside`: `at` is the
 * backquote at the end of the code. */
static const char *quote_for(const char *at, bool inside)
{
    for (const char *c = inside ? at - 1 : at + 1; *c != '`' && *c; c += inside ? -1 : 1)
        if (isalnum((unsigned char)*c) || *c == '"')
            return "";
    return "\"";
}

/* Converts Markdown to plain text: backquotes are removed, and a link is replaced by the name of
 * its file. */
static void make_plain(char out[TEXT], const char *markdown)
{
    bool inside = false;
    size_t n = 0;
    for (const char *at = markdown; *at && n + 1 < TEXT; at++) {
        const char *middle = *at == '[' ? strstr(at, "](") : NULL;
        const char *end = middle ? strchr(middle, ')') : NULL;
        if (end) {
            const int length =
                snprintf(out + n, TEXT - n, "docs/%.*s", (int)(end - middle - 2), middle + 2);
            n += (size_t)length < TEXT - n ? (size_t)length : TEXT - n - 1;
            at = end;
        } else if (*at == '`') {
            const char *quote = quote_for(at, inside);
            inside = !inside;
            if (*quote)
                out[n++] = *quote;
        } else {
            out[n++] = *at;
        }
    }
    out[n] = '\0';
}

static void print_key(const ls_config_key *row)
{
    char name[64], fallback[32], text[TEXT];
    const char *given = ls_config_default(fallback, row);
    snprintf(name, sizeof name, "%s%s%s", row->object, *row->object ? "." : "", row->key);
    print_topic(name);
    fputs(name, stdout);
    if (*given)
        printf(strcmp(given, "required") == 0 ? " (%s)" : " (default %s)", given);
    if (row->kind != LS_KEY_CUSTOM) {
        fputs(": ", stdout);
        print_kind(row);
    }
    putchar('\n');
    make_plain(text, row->help);
    fputs("    ", stdout);
    cli_put_wrapped(stdout, text, 4, 4, WIDTH);
}

void cli_print_config_help(void)
{
    puts(
        "The keys of a config, as --set takes them. In the file those with a point are members of\n"
        "an object: {\"data\": {\"limit\": 1000}}.\n");
    for (const ls_config_key *row = ls_config_keys; row->key; row++)
        print_key(row);
}
