/* The promise: a recipe's weights have the same bits on every CPU, with every instruction set, on any number of
 * workers, with teams of any size. The hashes here are what every machine must find.
 *
 *     train_portable_bits lenet|resnet|mobilenet FILE WORKERS[xTEAM]…     FILE: the configuration of the others
 */
#include "train/train_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENET "e141ec07092bd464c04535020b1a8b22b2514cc9dcd787b5f46bef92edc406b1"
#define RESNET "401b3686ba28961a187afa5e50684dc7ec55bbee179395aed31a45751c5bdda4"

#define MOBILENET "b6ef3bde075210798939ff450ff9b7f7a288a0f118bf8f5989831acd81ecaa24"

static char text[16384];

static void read_config(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fread(text, 1, sizeof text - 1, file) == 0)
        fail_msg("%s cannot be read", path);
    fclose(file);
}

/* 2 epochs of 1,024 rows with momentum. */
static void set_lenet(fixture *f)
{
    fixture_use_lenet(f);
    fixture_set(f, "data.limit=1024");
    fixture_set(f, "batch_size=256");
    fixture_set(f, "shards=8");
    fixture_set(f, "epochs=2");
    fixture_set(f, "optimizer.lr=0.02");
    fixture_set(f, "optimizer.momentum=0.9");
    fixture_set(f, "init={\"name\": \"kaiming\"}");
}

/* 3 steps of 8 rows, in two shards, which are most of 30: the others are evaluated. */
static void set_resnet(fixture *f)
{
    f->options.config_text = text;
    fixture_set(f, "data={\"name\": \"synthetic\", \"limit\": 30, \"validation\": 0.2}");
    fixture_set(f, "batch_size=8");
    fixture_set(f, "shards=2");
    fixture_set(f, "epochs=1");
    fixture_set(f, "run_dir=null");
}

/* `on`: "3" workers, or "3x2": each with a team of two. */
static void check(const char *net, const char *on)
{
    fixture f;
    char devices[32], team[32];
    const char *times = strchr(on, 'x');
    const int is_lenet = strcmp(net, "lenet") == 0;
    snprintf(devices, sizeof devices, "devices=cpu:%d", atoi(on));
    snprintf(team, sizeof team, "threads=%d", times ? atoi(times + 1) : 1);
    fixture_begin(&f);
    f.options.record = NULL;
    if (is_lenet)
        set_lenet(&f);
    else
        set_resnet(&f);
    fixture_set(&f, "eval_every=0");
    fixture_set(&f, devices);
    fixture_set(&f, team);
    const char *hash = fixture_hash(&f), *other = strcmp(net, "resnet") == 0 ? RESNET : MOBILENET;
    if (strcmp(hash, is_lenet ? LENET : other) != 0)
        fail_msg("%s on %s workers: %s", net, on, hash);
    fixture_end(&f);
}

static int arguments;
static char **argument;

static void weights_have_the_bits_of_every_machine(void **state)
{
    (void)state;
    for (int i = 3; i < arguments; i++)
        check(argument[1], argument[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_have_the_bits_of_every_machine)};
    arguments = argc;
    argument = argv;
    if (argc < 4)
        return 2;
    read_config(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
