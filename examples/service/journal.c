#include "journal.h"

#include "record.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char magic[8] = "LSJRNL1\n";
enum { HEADER = 16, STAGED = 64 /* records written at once */ };

struct journal {
    char path[4096];
    journal_options options; /* whose path is the copy */
    record_layout layout;
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t synced, arrived;
    uint64_t written, durable, trained, syncs;
    int syncing, woken;
    int failed;      /* errno */
    uint8_t *staged; /* [STAGED][record] */
};

/* ---- opening -------------------------------------------------------------------------------- */

static int disk_fails(const journal *j, const char *what, int error, ls_error *err)
{
    return fail(err, LS_EIO, "%.200s: cannot %s: %s", j->options.path, what, strerror(error));
}

static int take_lock(journal *j, ls_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(j->fd, F_SETLK, &whole) == 0)
        return LS_OK;
    if (errno == EACCES || errno == EAGAIN)
        return fail(err, LS_EAGAIN,
                    "%.200s: another process uses it; stop that one, or choose "
                    "another --state",
                    j->options.path);
    return disk_fails(j, "lock it", errno, err);
}

static int begin_file(journal *j, const uint8_t *header, ls_error *err)
{
    int error = file_write(j->fd, header, HEADER, 0);
    if (!error && fsync(j->fd) != 0)
        error = errno;
    return error ? disk_fails(j, "begin it", error, err) : LS_OK;
}

/* Backwards to the last record that is whole: behind it is what was never acknowledged. */
static int find_end(journal *j, uint64_t records, ls_error *err)
{
    uint64_t end = records;
    for (; end > 0; end--) {
        int whole, error = record_read(&j->layout, j->fd, end - 1, j->staged, &whole);
        if (error)
            return disk_fails(j, "read it", error, err);
        if (whole)
            break;
    }
    if (ftruncate(j->fd, record_place(&j->layout, end)) != 0 || fsync(j->fd) != 0)
        return disk_fails(j, "cut off its unfinished end", errno, err);
    if (end < records)
        say(LS_LOG_WARNING, "%.200s: %llu unfinished examples at its end were cut off",
            j->options.path, (unsigned long long)(records - end));
    j->written = j->durable = end;
    return LS_OK;
}

static int check_file(journal *j, ls_error *err)
{
    static const uint8_t blank[HEADER];
    uint8_t expected[HEADER], found[HEADER];
    struct stat about;
    memcpy(expected, magic, sizeof magic);
    record_number(expected + 8, j->options.image_bytes, 4);
    record_number(expected + 12, (uint64_t)j->options.classes, 4);
    if (fstat(j->fd, &about) != 0)
        return disk_fails(j, "look at it", errno, err);
    if (about.st_size < HEADER) /* new, or never got further than this */
        return begin_file(j, expected, err);
    int error = file_read(j->fd, found, HEADER, 0);
    if (error)
        return disk_fails(j, "read it", error, err);
    if (about.st_size == HEADER &&
        memcmp(found, blank, HEADER) == 0) /* power was cut before it was synced */
        return begin_file(j, expected, err);
    if (memcmp(found, expected, sizeof magic) != 0)
        return fail(err, LS_EDATA, "%.200s: not a journal of this service; choose another --state",
                    j->options.path);
    if (memcmp(found, expected, HEADER) != 0)
        return fail(err, LS_EDATA,
                    "%.200s: its examples are not of %u bytes and %d classes; give the --shape and "
                    "--classes it was begun with, or choose another --state",
                    j->options.path, (unsigned)j->options.image_bytes, j->options.classes);
    return find_end(j, (uint64_t)(about.st_size - HEADER) / record_bytes(&j->layout), err);
}

static int open_file(journal *j, ls_error *err)
{
    j->fd = open(j->options.path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (j->fd < 0)
        return disk_fails(j, "open it", errno, err);
    int status = take_lock(j, err);
    if (status == LS_OK)
        status = check_file(j, err);
    int error = status ? 0 : file_sync_name(j->path);
    return error ? disk_fails(j, "make its name last", error, err) : status;
}

int journal_open(journal **out, const journal_options *options, ls_error *err)
{
    pthread_condattr_t steady;
    journal *j = calloc(1, sizeof *j);
    if (!j)
        return fail(err, LS_ENOMEM, "out of memory for the journal");
    j->options = *options;
    snprintf(j->path, sizeof j->path, "%s", options->path);
    j->options.path = j->path;
    j->layout = (record_layout){HEADER, 1 + (size_t)options->image_bytes};
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&j->synced, NULL);
    pthread_cond_init(&j->arrived, &steady);
    pthread_condattr_destroy(&steady);
    j->fd = -1;
    j->staged = malloc(STAGED * record_bytes(&j->layout));
    int status =
        j->staged ? open_file(j, err) : fail(err, LS_ENOMEM, "out of memory for the journal");
    if (status)
        journal_close(j);
    else
        *out = j;
    return status;
}

void journal_close(journal *j)
{
    if (!j)
        return;
    if (j->fd >= 0)
        close(j->fd); /* every acknowledged example is on the disk */
    pthread_cond_destroy(&j->arrived);
    pthread_cond_destroy(&j->synced);
    pthread_mutex_destroy(&j->lock);
    free(j->staged);
    free(j);
}

/* ---- appending ------------------------------------------------------------------------------ */

static int check_room(const journal *j, uint32_t n, ls_error *err)
{
    if (j->failed)
        return disk_fails(j, "write it", j->failed, err);
    if (j->written + n > j->options.most)
        return fail(err, LS_ENOMEM, "the journal holds %llu examples and may hold %llu",
                    (unsigned long long)j->written, (unsigned long long)j->options.most);
    if (j->written - j->trained + n > j->options.queue)
        return fail(err, LS_EAGAIN, "%llu examples wait for training, and at most %llu may",
                    (unsigned long long)(j->written - j->trained),
                    (unsigned long long)j->options.queue);
    return LS_OK;
}

static int write_records(journal *j, const uint8_t *examples, uint32_t n)
{
    const size_t bytes = record_bytes(&j->layout), example = j->layout.example;
    for (uint32_t done = 0; done < n;) {
        const uint32_t some = n - done < STAGED ? n - done : STAGED;
        const uint64_t index = j->written + done;
        for (uint32_t i = 0; i < some; i++)
            record_make(&j->layout, j->staged + i * bytes, index + i,
                        examples + (done + i) * example);
        int error = file_write(j->fd, j->staged, some * bytes, record_place(&j->layout, index));
        if (error)
            return error;
        done += some;
    }
    return 0;
}

/* A write that failed may succeed later, when there is room again; half of it must not stay. */
static int append_records(journal *j, const uint8_t *examples, uint32_t n, ls_error *err)
{
    int status = check_room(j, n, err);
    int error = status ? 0 : write_records(j, examples, n);
    if (error && ftruncate(j->fd, record_place(&j->layout, j->written)) != 0)
        j->failed = errno;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return fail(err, LS_ENOMEM, "the disk of the journal is full: %s", strerror(error));
    if (error)
        return disk_fails(j, "write it", error, err);
    if (status == LS_OK)
        j->written += n;
    return status;
}

/* With the lock, which is given up meanwhile. After a failure nobody can say what the disk has: it is not
 * asked again. */
static void sync_file(journal *j)
{
    const uint64_t end = j->written;
    j->syncing = 1;
    pthread_mutex_unlock(&j->lock);
    int error = fdatasync(j->fd) == 0 ? 0 : errno;
    pthread_mutex_lock(&j->lock);
    j->syncing = 0;
    j->syncs++;
    if (error)
        j->failed = error;
    else
        j->durable = end;
    pthread_cond_broadcast(&j->synced);
    pthread_cond_broadcast(&j->arrived);
}

int journal_append(journal *j, const uint8_t *examples, uint32_t n, ls_error *err)
{
    pthread_mutex_lock(&j->lock);
    int status = append_records(j, examples, n, err);
    const uint64_t end = j->written;
    while (status == LS_OK && j->durable < end) {
        if (j->failed)
            status = disk_fails(j, "keep what was written", j->failed, err);
        else if (j->syncing)
            pthread_cond_wait(&j->synced, &j->lock);
        else
            sync_file(j);
    }
    pthread_mutex_unlock(&j->lock);
    return status;
}

/* ---- reading and waiting -------------------------------------------------------------------- */

int journal_read(const journal *j, uint64_t index, uint8_t *example, ls_error *err)
{
    int whole, error = record_read(&j->layout, j->fd, index, example, &whole);
    if (error)
        return disk_fails(j, "read it", error, err);
    return whole ? LS_OK
                 : fail(err, LS_EDATA, "%.200s: example %llu is damaged", j->options.path,
                        (unsigned long long)index);
}

void journal_set_trained(journal *j, uint64_t position)
{
    pthread_mutex_lock(&j->lock);
    j->trained = position;
    pthread_mutex_unlock(&j->lock);
}

void journal_look(journal *j, journal_state *out)
{
    pthread_mutex_lock(&j->lock);
    *out = (journal_state){j->durable, j->trained, j->syncs, j->failed};
    pthread_mutex_unlock(&j->lock);
}

void journal_wait(journal *j, uint64_t known, int milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&j->lock);
    while (j->durable <= known && !j->woken &&
           pthread_cond_timedwait(&j->arrived, &j->lock, &until) == 0)
        continue;
    j->woken = 0;
    pthread_mutex_unlock(&j->lock);
}

void journal_wake(journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->woken = 1;
    pthread_cond_broadcast(&j->arrived);
    pthread_mutex_unlock(&j->lock);
}
