/* The records of the journal: an example and a checksum over its number and itself, one after another
 * behind a header. All functions return 0 or an errno. */
#ifndef SERVICE_RECORD_H
#define SERVICE_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct record_layout {
    size_t header;  /* bytes before the first record */
    size_t example; /* bytes of an example */
} record_layout;

size_t record_bytes(const record_layout *layout);
off_t record_place(const record_layout *layout, uint64_t index);

void record_make(const record_layout *layout, uint8_t *record, uint64_t index,
                 const uint8_t *example);

/* *whole becomes 0 where the checksum is another one, and where the disk cannot read it. */
int record_read(const record_layout *layout, int fd, uint64_t index, uint8_t *record, int *whole);

uint32_t record_sum(const uint8_t *bytes, size_t count);

/* The lowest `bytes` bytes of a number, the least first. */
void record_number(uint8_t *to, uint64_t value, int bytes);

/* All of it; EPIPE stands for a file that ends before. */
int file_read(int fd, uint8_t *to, size_t count, off_t at);
int file_write(int fd, const uint8_t *from, size_t count, off_t at);

/* Makes a new name durable, that of a file or a directory: syncs the directory it is in. */
int file_sync_name(const char *path);

/* Makes a directory, durably, unless it is there. */
int file_make_directory(const char *path);

#endif
