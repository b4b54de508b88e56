/* SPDX-License-Identifier: MIT */
/* Tests that training gives bit-identical weights on every CPU, with every instruction set, on any
 * number of workers, and with any number of threads per worker. Every machine must compute the
 * hashes in this file.
 *
 *     portable_bits lenet|layers|resnet|mobilenet FILE WORKERS[xTEAM]…
 *
 * FILE is the configuration of resnet or mobilenet. */
#include "runner.h"
#include "train/kernels.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Version of the CPU back end's kernels (the code of its ops) that give the hashes in this file. A
 * change of the result bits of any op or config key must increase the number, even if no hash in
 * this file changes. A resumed run compares the number with that of its checkpoint. */
#define KERNELS "portable kernels 5,"

#define LENET "00e0f49d67d1c52f5a2e375ee4673b41fbbd41c31801f10fa6db9d388c628ea4"
#define RESNET "401b3686ba28961a187afa5e50684dc7ec55bbee179395aed31a45751c5bdda4"

#define LAYERS "f55a0a5f9b6d0d858344c7ebf48c66c18202ef88513275d7a3f47b107e97ac3e"
#define MOBILENET "b6ef3bde075210798939ff450ff9b7f7a288a0f118bf8f5989831acd81ecaa24"

static char text[16384];

/* Layer types that the other three models lack. Shards have 48 rows; the kernels compute a shard of
 * that size in several blocks of rows. */
static const char layers[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 192}, \"batch_size\": 96, \"shards\": 2, \"epochs\": 2,"
    "\"run_dir\": null, \"init\": {\"name\": \"kaiming\"}, \"ema\": 0.9, \"label_smoothing\": 0.1,"
    "\"class_weights\": \"balanced\", \"schedule\": {\"name\": \"cosine\", \"warmup_epochs\": 1},"
    "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.003, \"weight_decay\": 0.01, \"clip_norm\": 1},"
    "\"augment\": {\"crop\": 2, \"rotate\": 15, \"erase\": 6, \"brightness\": 0.2, \"mixup\": 0.3},"
    "\"model\": {\"layers\": ["
    "{\"type\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"padding\": 2, \"dilation\": 2}, {\"type\": \"gelu\"},"
    "{\"type\": \"conv2d\", \"out\": 12, \"kernel\": 3, \"stride\": 2, \"padding\": 1, \"groups\": 3},"
    "{\"type\": \"silu\", \"name\": \"wide\"}, {\"type\": \"layer_norm\"},"
    "{\"type\": \"conv2d\", \"out\": 12, \"kernel\": 5, \"padding\": 2, \"groups\": 12},"
    "{\"type\": \"leaky_relu\"}, {\"type\": \"max_pool\", \"kernel\": 2}, {\"type\": \"tanh\"},"
    "{\"type\": \"upsample\"}, {\"type\": \"concat\", \"with\": \"wide\"},"
    "{\"type\": \"conv2d\", \"out\": 8, \"kernel\": 1}, {\"type\": \"sigmoid\"},"
    "{\"type\": \"avg_pool\", \"kernel\": 2}, {\"type\": \"flatten\"}, {\"type\": \"dropout\", \"p\": 0.25},"
    "{\"type\": \"dense\", \"out\": 10}]}}";

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

static void set_layers(fixture *f)
{
    f->options.config_text = layers;
}

/* Trains on 24 of 30 rows, in 3 steps of 8 rows with two shards. The other 6 rows are evaluated. */
static void set_resnet(fixture *f)
{
    f->options.config_text = text;
    fixture_set(f, "data={\"name\": \"synthetic\", \"limit\": 30, \"validation\": 0.2}");
    fixture_set(f, "batch_size=8");
    fixture_set(f, "shards=2");
    fixture_set(f, "epochs=1");
    fixture_set(f, "run_dir=null");
}

static const struct net {
    const char *name, *hash;
    void (*set)(fixture *f);
} nets[] = {{"lenet", LENET, set_lenet},
            {"layers", LAYERS, set_layers},
            {"resnet", RESNET, set_resnet},
            {"mobilenet", MOBILENET, set_resnet}};

/* `on`: "3" for three workers, or "3x2" for three workers with two threads each. */
static void check(const struct net *net, const char *on)
{
    fixture f;
    char devices[32], team[32];
    const char *times = strchr(on, 'x');
    snprintf(devices, sizeof devices, "devices=cpu:%d", atoi(on));
    snprintf(team, sizeof team, "threads=%d", times ? atoi(times + 1) : 1);
    fixture_begin(&f);
    f.callbacks.record = NULL;
    net->set(&f);
    fixture_set(&f, "eval_every=0");
    fixture_set(&f, devices);
    fixture_set(&f, team);
    const char *hash = fixture_hash(&f);
    if (strcmp(hash, net->hash) != 0)
        fail_msg("%s on %s workers: %s", net->name, on, hash);
    fixture_end(&f);
}

static int arguments;
static char **argument;

static void weights_have_the_bits_of_every_machine(void **state)
{
    const struct net *net = nets;
    (void)state;
    while (strcmp(net->name, argument[1]) != 0)
        assert_true(++net < nets + sizeof nets / sizeof *nets);
    for (int i = 3; i < arguments; i++)
        check(net, argument[i]);
}

static void hashes_are_those_of_the_kernels_number(void **state)
{
    const ls_backend_info info = kernels_that_are_meant();
    (void)state;
    if (strncmp(info.version, KERNELS, sizeof KERNELS - 1) != 0)
        fail_msg("\"%s\": these hashes are those of \"%s\"", info.version, KERNELS);
}

LS_TESTS(portable_bits, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_the_kernels_number),
        cmocka_unit_test(weights_have_the_bits_of_every_machine),
    };
    arguments = argc;
    argument = argv;
    if (argc < 4)
        return 2;
    read_config(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
