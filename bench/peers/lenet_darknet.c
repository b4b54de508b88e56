/* SPDX-License-Identifier: MIT */
/* Measures the training rate of LeNet in darknet, in rounds (bench/README.md describes the
 * protocol).
 *
 *     yes | head -5 | lenet_darknet CFG DATA [STEPS]
 *
 * It uses darknet's library, with all images in memory, as in the programs with which it is
 * compared. (darknet's own program reads and decodes files while it trains.) DATA is the folder of
 * the gzipped Fashion-MNIST files. A round has STEPS minibatches (default 8); one step before the
 * first round warms up. */
#include <darknet.h>

#include <stdbool.h>
#include <time.h>
#include <zlib.h>

enum { PIXELS = 28 * 28, CLASSES = 10, IMAGES_HEADER = 16, LABELS_HEADER = 8, PATH_MOST = 4096 };

/* Reads the gzipped file folder/name. Returns its header of `skip` bytes and the `count` bytes
 * after the header. If the file cannot be read or is too short, the program exits. */
static unsigned char *read_bytes(const char *folder, const char *name, unsigned skip,
                                 unsigned count)
{
    char path[PATH_MOST];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unsigned char *bytes = malloc(skip + count);
    gzFile file = gzopen(path, "rb");
    if (!bytes || !file || gzread(file, bytes, skip + count) != (int)(skip + count)) {
        fprintf(stderr, "lenet_darknet: %s: cannot read %u bytes\n", path, skip + count);
        exit(66);
    }
    gzclose(file);
    return bytes;
}

static void *zeroes(int count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    if (!memory)
        exit(71);
    return memory;
}

static matrix rows_of(int rows, int columns)
{
    matrix m = {rows, columns, zeroes(rows, sizeof(float *))};
    for (int i = 0; i < rows; i++)
        m.vals[i] = zeroes(columns, sizeof(float));
    return m;
}

/* Reads `rows` images, whose bytes become numbers from 0 to 1, and their labels, which become
 * one-hot vectors of ten numbers. */
static data load(const char *folder, int rows)
{
    unsigned n = (unsigned)rows;
    unsigned char *images =
        read_bytes(folder, "train-images-idx3-ubyte.gz", IMAGES_HEADER, n * PIXELS);
    unsigned char *labels = read_bytes(folder, "train-labels-idx1-ubyte.gz", LABELS_HEADER, n);
    data d = {.X = rows_of(rows, PIXELS), .y = rows_of(rows, CLASSES)};
    for (int i = 0; i < rows; i++) {
        for (int p = 0; p < PIXELS; p++)
            d.X.vals[i][p] = (float)images[IMAGES_HEADER + i * PIXELS + p] / 255.0F;
        d.y.vals[i][labels[LABELS_HEADER + i] % CLASSES] = 1;
    }
    free(images);
    free(labels);
    return d;
}

static int parameters(const network *net)
{
    int count = 0;
    for (int i = 0; i < net->n; i++)
        count +=
            net->layers[i].nweights + net->layers[i].nbiases +
            (net->layers[i].type == CONNECTED ? (net->layers[i].inputs + 1) * net->layers[i].outputs
                                              : 0);
    return count;
}

static float step(network *net, data d, int number)
{
    get_next_batch(d, net->batch, number * net->batch, net->input, net->truth);
    return train_network_datum(net) / (float)net->batch;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool wait_for_line(void)
{
    int c;
    while ((c = getchar()) != '\n' && c != EOF)
        continue;
    return c == '\n';
}

int main(int argc, char **argv)
{
    int steps = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 8;
    if (argc < 3 || steps < 1) {
        fprintf(stderr, "usage: lenet_darknet CFG DATA [STEPS]\n");
        return 64;
    }
    network *net = parse_network_cfg(argv[1]);
    data d = load(argv[2], steps * net->batch);
    step(net, d, 0);
    printf("{\"ready\": true, \"parameters\": %d, \"batch_size\": %d}\n", parameters(net),
           net->batch);
    fflush(stdout);
    while (wait_for_line()) {
        float loss = 0;
        double start = now_s();
        for (int i = 0; i < steps; i++)
            loss = step(net, d, i);
        printf("{\"images_per_s\": %.3f, \"loss\": %.4f}\n", steps * net->batch / (now_s() - start),
               (double)loss);
        fflush(stdout);
    }
    return 0;
}
