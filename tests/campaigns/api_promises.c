/* SPDX-License-Identifier: MIT */
/* Reads the errors that the public headers promise from their comments. Each LS_E… in the comment
 * above a function is a promised error of it; "those of NAME" stands for the errors of that
 * function; errors that the first comment of a header names for every function apply to all of
 * them. */
#include "campaigns/api_world.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 160, HEADER = 1 << 17 };

static promise functions[FUNCTIONS];
static const char *said[FUNCTIONS]; /* the comment of each, in its header; ends with a zero */
static int has_status[FUNCTIONS];   /* the others promise nothing */
static int count;

static const char *const headers[] = {"collective", "data_source", "device_pool", "host",   "model",
                                      "pool",       "split",       "status",      "trainer"};

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "api_swarm: %s: %s\n", name, what);
    exit(2);
}

static char *read_header(char text[HEADER], const char *directory, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.h", directory, name);
    FILE *f = fopen(path, "r");
    if (!f)
        fail("cannot be read", path);
    text[fread(text, 1, HEADER - 1, f)] = '\0';
    fclose(f);
    return text;
}

static unsigned errors_in(const char *text)
{
    unsigned mask = 0;
    for (const char *at = text; (at = strstr(at, "LS_E")) != NULL; at += 4)
        for (int i = 1; i < WORLD_STATUSES; i++) {
            const char *name = ls_status_name(-i);
            const size_t n = strlen(name);
            if (strncmp(at, name, n) == 0 && !isalnum((unsigned char)at[n]))
                mask |= 1u << i;
        }
    return mask;
}

static int is_name(char c)
{
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '_';
}

/* Declarations between two comments: "type ls_name(". */
static void take_functions(char *from, char *to, const char *comment)
{
    for (char *at = from; at < to && (at = strstr(at, "ls_")) != NULL && at < to; at++) {
        size_t n = 0;
        while (is_name(at[n]))
            n++;
        if (at[n] != '(' || n >= sizeof functions->name || (at > from && is_name(at[-1])))
            continue;
        if (count == FUNCTIONS)
            fail("more functions than there is room for", "headers");
        snprintf(functions[count].name, sizeof functions->name, "%.*s", (int)n, at);
        has_status[count] = at - from >= 4 && memcmp(at - 4, "int ", 4) == 0;
        said[count++] = comment;
        at += n;
    }
}

static void read_functions(char *text)
{
    const int first = count;
    const char *comment = NULL;
    unsigned of_all = 0;
    char *at = strchr(text, '\n'); /* the first line names the licence */
    for (char *open; (open = strstr(at, "/*")) != NULL;) {
        if (comment)
            take_functions(at, open, comment);
        char *close = strstr(open, "*/");
        if (!close)
            break;
        *close = '\0';
        const char *every = comment ? NULL : strstr(open, "very function");
        if (every)
            of_all = errors_in(every) | (strstr(every, "callback's") ? 1u << -LS_EDATA : 0);
        comment = open;
        at = close + 2;
    }
    if (comment)
        take_functions(at, at + strlen(at), comment);
    for (int i = first; i < count; i++)
        functions[i].errors = has_status[i] ? errors_in(said[i]) | of_all : 0;
}

/* Adds the errors of functions named in "those of", and those of the caller's own hooks, jobs and
 * callbacks, which fail here with LS_EDATA. */
static void add_others(int i)
{
    if (!has_status[i])
        return;
    for (int j = 0; j < count; j++) { /* "As NAME, but …", "NAME with …" */
        const char *name = strstr(said[i], functions[j].name);
        if (name && name - said[i] < 8 && !is_name(name[strlen(functions[j].name)]))
            functions[i].errors |= functions[j].errors;
    }
    for (const char *at = said[i]; (at = strstr(at, "those of")) != NULL; at++) {
        const size_t sentence = strcspn(at, ".;");
        for (int j = 0; j < count; j++) {
            const char *name = strstr(at, functions[j].name);
            if (name && name < at + sentence && !is_name(name[strlen(functions[j].name)]))
                functions[i].errors |= functions[j].errors;
        }
    }
    if (strstr(said[i], "hook's") || strstr(said[i], "hook.") || strstr(said[i], "latched") ||
        strstr(said[i], "callback's"))
        functions[i].errors |=
            1u << -LS_EDATA | (strstr(said[i], "latched") ? 1u << -LS_ECANCELED : 0);
}

void promises_read(const char *directory)
{
    static char text[sizeof headers / sizeof *headers][HEADER];
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        read_functions(read_header(text[i], directory, headers[i]));
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < count; i++)
            add_others(i);
}

/* "ls_name LS_E… LS_E…" */
static void take_unreached(const char *line)
{
    const size_t n = strcspn(line, " ");
    char name[sizeof functions->name];
    snprintf(name, sizeof name, "%.*s", (int)n, line);
    promise *p = promises_find(name);
    const unsigned errors = errors_in(line + n);
    if (!p || !errors || (p->errors & errors) != errors)
        fail("the headers promise nothing like it", line);
    p->listed |= errors;
}

void promises_read_unreached(const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");
    if (!f)
        fail("cannot be read", path);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] && line[0] != '#')
            take_unreached(line);
    }
    fclose(f);
}

promise *promises_find(const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

static int is_reached(const promise *p, int s)
{
    return p->reached[s] > 0;
}

static int is_unexplained(const promise *p, int s)
{
    return (s == 0 || p->errors & 1u << s) && !p->reached[s] && !(p->listed & 1u << s);
}

static int is_listed_but_reached(const promise *p, int s)
{
    return p->reached[s] > 0 && p->listed & 1u << s;
}

/* Prints the statuses of each function for which `test` is true; functions without one are left
 * out. */
static void print_list(const char *key, int (*test)(const promise *p, int s))
{
    const char *comma = "";
    printf(",\"%s\":{", key);
    for (int i = 0; i < count; i++) {
        const char *inner = "";
        for (int s = 0; s < WORLD_STATUSES; s++) {
            if (!test(&functions[i], s))
                continue;
            if (!inner[0])
                printf("%s\"%s\":[", comma, functions[i].name);
            printf("%s\"%s\"", inner, ls_status_name(-s));
            inner = comma = ",";
        }
        printf("%s", inner[0] ? "]" : "");
    }
    printf("}");
}

void promises_print(unsigned long long sequences, unsigned long long calls)
{
    long promised = 0, reached = 0, succeeded = 0, listed = 0;
    for (int i = 0; i < count; i++) {
        succeeded += functions[i].reached[0] > 0;
        for (int s = 1; s < WORLD_STATUSES; s++) {
            promised += (functions[i].errors >> s) & 1;
            reached += functions[i].reached[s] > 0;
            listed += (functions[i].listed >> s) & 1;
        }
    }
    printf(
        "{\"campaign\":\"api_swarm\",\"sequences\":%llu,\"calls\":%llu,\"functions\":%d,"
        "\"with_success\":%ld,\"errors_promised\":%ld,\"errors_reached\":%ld,\"errors_listed\":%ld",
        sequences, calls, count, succeeded, promised, reached, listed);
    print_list("reached", is_reached);
    print_list("not_reached", is_unexplained);
    print_list("reached_though_listed", is_listed_but_reached);
    printf(",\"passed\":true}\n");
}
