/* SPDX-License-Identifier: MIT */
/* Checks that a process does not grow when it opens and closes trainers for years, as a service
 * does.
 *
 *     cycles [--cycles N] [--warm N] [--devices WORD] [--save FILE]
 *
 * Runs open, two steps, prediction and close (and save, with --save) N times (10,000), and compares
 * memory, threads and descriptors after the last run with those after the first --warm (1,000):
 * memory may have grown by 1 MB, the others not at all. Prints one JSON line; the exit status is 1
 * if they have grown. */
#include "embed/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KB 1024

typedef struct state {
    long kb;
    int threads, descriptors;
} state;

static state look(void)
{
    return (state){process_resident_kb(), process_threads(1), process_descriptors()};
}

static int play(const scene *s, long count, long done)
{
    ls_error err;
    int closed;
    for (long i = 0; i < count; i++) {
        int status = scene_play(s, &closed, &err);
        if (status == LS_OK && closed == LS_OK)
            continue;
        fprintf(stderr, "cycle %ld: %s\n", done + i, status ? err.text : "the trainer stays");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    long cycles = 10000, warm = 1000;
    scene s = {.devices = "ref:2"};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--cycles") == 0)
            cycles = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--warm") == 0)
            warm = atol(argv[i + 1]);
        else if (strcmp(argv[i], "--devices") == 0)
            s.devices = argv[i + 1];
        else if (strcmp(argv[i], "--save") == 0)
            s.save = argv[i + 1];
    }
    s.registry = scene_registry();
    if (play(&s, warm, 0))
        return 1;
    const state first = look();
    if (play(&s, cycles - warm, warm))
        return 1;
    const state last = look();
    ls_registry_destroy(s.registry);
    printf("{\"campaign\": \"cycles\", \"cycles\": %ld, \"grown_kb\": %ld, \"threads\": %d, "
           "\"descriptors\": %d}\n",
           cycles, last.kb - first.kb, last.threads - first.threads,
           last.descriptors - first.descriptors);
    return last.kb - first.kb > MOST_KB || last.threads != first.threads ||
           last.descriptors != first.descriptors;
}
