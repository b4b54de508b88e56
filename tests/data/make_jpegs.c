/* SPDX-License-Identifier: MIT */
/* Creates and decodes JPEG files.
 *
 *     make_jpegs IMAGES.gz LABELS.gz FOLDER ROWS [colours | photos]
 *         writes rows of Fashion-MNIST as JPEG files, in a sub-folder for each class; colours: in
 *         colours and of three sizes; photos: in colours and of 224 × 224
 *     make_jpegs --decode FOLDER THREADS
 *         reads and decodes every file of such a folder, to measure the rate of the decoder alone
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>
#include <zlib.h>

enum { SIDE = 28 };

static uint8_t *read_all(const char *path, size_t header, size_t count)
{
    uint8_t *bytes = malloc(header + count);
    gzFile f = gzopen(path, "rb");
    if (!bytes || !f || gzread(f, bytes, (unsigned)(header + count)) != (int)(header + count))
        exit((perror(path), 1));
    gzclose(f);
    memmove(bytes, bytes + header, count);
    return bytes;
}

/* Writes an image as a JPEG file. Each pixel becomes `times` × `times` pixels. `colours`: red is
 * the image, green its negative, and blue has half of its values; 0: grey. */
static void write_jpeg(const char *path, const uint8_t *image, int times, int colours)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    uint8_t line[3 * SIDE * 8];
    JSAMPROW row = line;
    FILE *f = fopen(path, "wb");
    if (!f)
        exit((perror(path), 1));
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = (unsigned)(SIDE * times);
    c.image_height = (unsigned)(SIDE * times);
    c.input_components = colours ? 3 : 1;
    c.in_color_space = colours ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < SIDE * times; y++) {
        for (int x = 0; x < SIDE * times; x++) {
            const uint8_t v = image[y / times * SIDE + x / times];
            line[colours ? 3 * x : x] = v;
            if (colours) {
                line[3 * x + 1] = (uint8_t)(255 - v);
                line[3 * x + 2] = v / 2;
            }
        }
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(f);
}

static char *paths[1 << 17];
static int path_count;
static atomic_int next_path;

static void list_folder(const char *folder, int depth)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    while (d && (e = readdir(d)) && path_count < 1 << 17) {
        char path[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (depth)
            list_folder(path, depth - 1);
        else if ((paths[path_count] = malloc(strlen(path) + 1)))
            strcpy(paths[path_count++], path);
    }
    if (d)
        closedir(d);
}

/* Reads a file into *bytes and returns its size. If the *room bytes of memory are too few,
 * allocates more. */
static size_t read_file(uint8_t **bytes, size_t *room, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0)
        exit((perror(path), 1));
    const size_t size = (size_t)st.st_size;
    if (size > *room && (free(*bytes), *bytes = malloc(*room = 2 * size)) == NULL)
        exit((perror(path), 1));
    if (read(fd, *bytes, size) != st.st_size)
        exit((perror(path), 1));
    close(fd);
    return size;
}

/* Thread that decodes files, one line at a time, to `line`. The line is at an odd address, because
 * for aligned addresses libjpeg-turbo bypasses the caches, which takes longer. */
static void *decode_some(void *line)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    JSAMPROW row = (uint8_t *)line + 1;
    uint8_t *bytes = NULL;
    size_t room = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&c);
    for (int i; (i = atomic_fetch_add(&next_path, 1)) < path_count;) {
        const size_t size = read_file(&bytes, &room, paths[i]);
        jpeg_mem_src(&c, bytes, size);
        jpeg_read_header(&c, TRUE);
        if (c.num_components > 1)
            c.out_color_space = JCS_RGB;
        jpeg_start_decompress(&c);
        while (c.output_scanline < c.output_height)
            jpeg_read_scanlines(&c, &row, 1);
        jpeg_finish_decompress(&c);
    }
    jpeg_destroy_decompress(&c);
    free(bytes);
    return NULL;
}

static int decode(const char *folder, int threads)
{
    static uint8_t line[64][3 * SIDE * 8 + 64];
    pthread_t thread[64];
    list_folder(folder, 1);
    for (int t = 0; t < threads && t < 64; t++)
        pthread_create(&thread[t], NULL, decode_some, line[t]);
    for (int t = 0; t < threads && t < 64; t++)
        pthread_join(thread[t], NULL);
    return path_count ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--decode") == 0)
        return decode(argv[2], atoi(argv[3]));
    const size_t rows = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
    char path[4096];
    if (rows < 1 || rows > 60000)
        return 2;
    uint8_t *images = read_all(argv[1], 16, rows * SIDE * SIDE);
    uint8_t *labels = read_all(argv[2], 8, rows);
    mkdir(argv[3], 0777);
    for (size_t i = 0; i < rows; i++) {
        snprintf(path, sizeof path, "%s/class%d", argv[3], labels[i]);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/class%d/%05zu.jpg", argv[3], labels[i], i);
        const int times = argc < 6 ? 1 : strcmp(argv[5], "photos") == 0 ? 8 : 1 + (int)(i % 3);
        write_jpeg(path, images + i * SIDE * SIDE, times, argc > 5);
    }
    free(labels);
    free(images);
    return 0;
}
