#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHECKSUM = 4 };

size_t record_bytes(const record_layout *layout)
{
    return layout->example + CHECKSUM;
}

off_t record_place(const record_layout *layout, uint64_t index)
{
    return (off_t)(layout->header + index * record_bytes(layout));
}

void record_number(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

/* The number is part of it, so that a record of an older end of the file is not taken for one. */
static void put_checksum(const record_layout *layout, uint8_t *to, uint64_t index,
                         const uint8_t *example)
{
    uint8_t number[8];
    record_number(number, index, 8);
    uLong sum = crc32(crc32(0, NULL, 0), number, sizeof number);
    record_number(to, crc32(sum, example, (uInt)layout->example), CHECKSUM);
}

void record_make(const record_layout *layout, uint8_t *record, uint64_t index,
                 const uint8_t *example)
{
    memcpy(record, example, layout->example);
    put_checksum(layout, record + layout->example, index, record);
}

uint32_t record_sum(const uint8_t *bytes, size_t count)
{
    return (uint32_t)crc32(crc32(0, NULL, 0), bytes, (uInt)count);
}

int record_read(const record_layout *layout, int fd, uint64_t index, uint8_t *record, int *whole)
{
    uint8_t expected[CHECKSUM];
    int error = file_read(fd, record, record_bytes(layout), record_place(layout, index));
    *whole = 0;
    if (error)
        return error == EIO || error == EPIPE ? 0 : error;
    put_checksum(layout, expected, index, record);
    *whole = memcmp(record + layout->example, expected, CHECKSUM) == 0;
    return 0;
}

int file_read(int fd, uint8_t *to, size_t count, off_t at)
{
    while (count > 0) {
        ssize_t n = pread(fd, to, count, at);
        if (n == 0)
            return EPIPE;
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0) {
            to += n;
            at += n;
            count -= (size_t)n;
        }
    }
    return 0;
}

int file_write(int fd, const uint8_t *from, size_t count, off_t at)
{
    while (count > 0) {
        ssize_t n = pwrite(fd, from, count, at);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0) {
            from += n;
            at += n;
            count -= (size_t)n;
        }
    }
    return 0;
}

int file_sync_name(const char *path)
{
    char copy[4096]; /* dirname changes it */
    snprintf(copy, sizeof copy, "%s", path);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return errno;
    int error = fsync(folder) == 0 ? 0 : errno;
    close(folder);
    return error;
}

int file_make_directory(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return errno;
    return file_sync_name(
        path); /* also of one that was there: whoever made it may have been killed */
}
