#include "journal.h"

#include "clock.h"
#include "record.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char magic[8] = "LSJRNL1\n";
enum {
    HEADER = 16, /* magic, bytes of a row (4), kind of target and row (2), a sum over these (2) */
    FLOATS = 0x4000,  /* in the kind, which is the number of classes … */
    TARGETS = 0x8000, /* … or of targets */
    STAGED = 64,      /* records written at once */
    LOOKED_AT = 1000  /* records, for one that is whole, where the header is damaged */
};

struct journal {
    char path[4096];
    journal_options options; /* whose path is the copy */
    record_layout layout;
    int fd;
    pthread_mutex_t
        writing;     /* of the file's end; taken before the lock, and held while the disk works */
    uint8_t *staged; /* [STAGED][record] */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t synced, arrived;
    uint64_t written, durable, trained, syncs, cut;
    uint64_t refused;               /* examples of the call that found no room */
    double write_began, sync_began; /* 0: none is under way */
    int woken;
    int failed, refusing; /* errno */
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

/* ---- where it ends -------------------------------------------------------------------------- */

static int copy_bytes(journal *j, int to, off_t at, off_t from, off_t end)
{
    const off_t most = (off_t)(STAGED * record_bytes(&j->layout));
    int error = 0;
    while (!error && from < end) {
        const off_t some = end - from < most ? end - from : most;
        error = file_read(j->fd, j->staged, (size_t)some, from);
        if (!error)
            error = file_write(to, j->staged, (size_t)some, at);
        from += some;
        at += some;
    }
    return error ? error : fsync(to) == 0 ? 0 : errno;
}

/* What is about to be cut off, behind what may have been cut off there before. Returns 0 or an errno. */
static int put_aside(journal *j, off_t from, off_t end, const char *path)
{
    struct stat about;
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int error = fd < 0 || fstat(fd, &about) != 0 ? errno : 0;
    if (!error)
        error = copy_bytes(j, fd, about.st_size, from, end);
    if (!error)
        error = file_sync_name(path);
    if (fd >= 0)
        close(fd);
    return error;
}

/* What cannot be kept elsewhere stays, as damaged examples. */
static int cut_off(journal *j, uint64_t end, uint64_t records, off_t size, ls_error *err)
{
    char path[4200];
    const off_t from = record_place(&j->layout, end);
    snprintf(path, sizeof path, "%s.cut-%llu", j->path, (unsigned long long)end);
    const int error = put_aside(j, from, size, path);
    if (error) {
        j->written = j->durable = records;
        say(LS_LOG_WARNING,
            "%.200s: behind example %llu nothing is whole, and it cannot be put aside (%s): it is "
            "taken for damaged examples",
            j->path, (unsigned long long)end, strerror(error));
        return LS_OK;
    }
    if (ftruncate(j->fd, from) != 0 || fsync(j->fd) != 0)
        return disk_fails(j, "cut off its unfinished end", errno, err);
    j->written = j->durable = end;
    j->cut = records - end;
    say(LS_LOG_WARNING,
        "%.200s: %llu examples and %lld bytes at its end are not whole, unfinished or damaged: they "
        "were cut off, and are kept in %.200s",
        j->path, (unsigned long long)j->cut, (long long)(size - record_place(&j->layout, records)),
        path);
    return LS_OK;
}

/* Examples that were there and are gone are damaged ones: what follows keeps its number. */
static int make_up(journal *j, uint64_t records, ls_error *err)
{
    const uint64_t known = j->options.known;
    if (ftruncate(j->fd, record_place(&j->layout, known)) != 0 || fsync(j->fd) != 0)
        return disk_fails(j, "make up for examples that are lost", errno, err);
    j->written = j->durable = known;
    say(LS_LOG_WARNING,
        "%.200s: it ends behind example %llu, and a save has seen %llu: the others are lost, and "
        "counted as damaged",
        j->path, (unsigned long long)records, (unsigned long long)known);
    return LS_OK;
}

/* Backwards to the last record that is whole or known: what is behind it was never acknowledged, or is
 * damaged. */
static int find_end(journal *j, off_t size, ls_error *err)
{
    const uint64_t records = (uint64_t)(size - HEADER) / record_bytes(&j->layout);
    uint64_t end = records;
    for (int whole = 0; end > j->options.known; end--) {
        int error = record_read(&j->layout, j->fd, end - 1, j->staged, &whole);
        if (error)
            return disk_fails(j, "read it", error, err);
        if (whole)
            break;
    }
    if (end < j->options.known)
        return make_up(j, records, err);
    if (record_place(&j->layout, end) < size)
        return cut_off(j, end, records, size, err);
    j->written = j->durable = end;
    return LS_OK;
}

/* ---- its header ----------------------------------------------------------------------------- */

static void make_header(const journal *j, uint8_t *header)
{
    const example_form *form = &j->options.form;
    const int kind = form->targets ? TARGETS + form->targets : form->classes;
    memcpy(header, magic, sizeof magic);
    record_number(header + 8, form->row_bytes, 4);
    record_number(header + 12, (uint64_t)(kind + (form->floats ? FLOATS : 0)), 2);
    record_number(header + 14, record_sum(header, 14), 2);
}

/* Whether it says itself that it is one, of whatever examples; the first ones had no sum. */
static int is_header(const uint8_t *header)
{
    uint8_t sum[2];
    record_number(sum, record_sum(header, 14), 2);
    return memcmp(header, magic, sizeof magic) == 0 &&
           (memcmp(header + 14, sum, 2) == 0 || (header[14] == 0 && header[15] == 0));
}

static int has_whole_record(journal *j, off_t size)
{
    const uint64_t records = (uint64_t)(size - HEADER) / record_bytes(&j->layout);
    int whole = 0;
    for (uint64_t i = 0; i < records && i < LOOKED_AT && !whole; i++)
        if (record_read(&j->layout, j->fd, i, j->staged, &whole) != 0)
            break;
    return whole;
}

static int differing(const uint8_t *a, const uint8_t *b)
{
    int count = 0;
    for (int i = 0; i < HEADER; i++)
        count += a[i] != b[i];
    return count;
}

/* Not what it should be: damaged, of other examples, or of another program. */
static int mend_header(journal *j, const uint8_t *found, const uint8_t *expected, off_t size,
                       ls_error *err)
{
    char was[2 * HEADER + 1];
    if (is_header(found))
        return fail(
            err, LS_EDATA,
            "%.200s: its examples are of another form; give the --shape or --floats, and the "
            "--classes or --targets, that it was begun with, or choose another --state",
            j->path);
    if (!has_whole_record(j, size) && differing(found, expected) > 1)
        return fail(err, LS_EDATA, "%.200s: not a journal of this service; choose another --state",
                    j->path);
    for (int i = 0; i < HEADER; i++)
        snprintf(was + 2 * i, 3, "%02x", found[i]);
    say(LS_LOG_WARNING, "%.200s: its header is damaged (%s), and is written again", j->path, was);
    return begin_file(j, expected, err);
}

static int check_file(journal *j, ls_error *err)
{
    static const uint8_t blank[HEADER];
    uint8_t expected[HEADER], found[HEADER];
    struct stat about;
    make_header(j, expected);
    if (fstat(j->fd, &about) != 0)
        return disk_fails(j, "look at it", errno, err);
    if (about.st_size < HEADER) { /* new, or never got further than this */
        int status = begin_file(j, expected, err);
        return status ? status : find_end(j, HEADER, err);
    }
    int error = file_read(j->fd, found, HEADER, 0), status = LS_OK;
    if (error)
        return disk_fails(j, "read it", error, err);
    if (about.st_size == HEADER && memcmp(found, blank, HEADER) == 0)
        status = begin_file(j, expected, err); /* power was cut before it was synced */
    else if (memcmp(found, expected, 14) != 0 || !is_header(found))
        status = mend_header(j, found, expected, about.st_size, err);
    return status ? status : find_end(j, about.st_size, err);
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
    j->refused = 1;
    j->layout = (record_layout){HEADER, example_bytes(&options->form)};
    pthread_mutex_init(&j->writing, NULL);
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
    pthread_mutex_destroy(&j->writing);
    free(j->staged);
    free(j);
}

/* ---- appending ------------------------------------------------------------------------------ */

static int check_room(journal *j, uint32_t n, ls_error *err)
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

/* Whether a write may begin; when it did is noted. */
static int begin_write(journal *j, uint32_t n, ls_error *err)
{
    pthread_mutex_lock(&j->lock);
    int status = check_room(j, n, err);
    if (status == LS_OK)
        j->write_began = seconds();
    pthread_mutex_unlock(&j->lock);
    return status;
}

static int is_full(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* `error` is what became of `n` examples, and `cutting` of the attempt to take them back. */
static void end_write(journal *j, uint32_t n, int error, int cutting)
{
    pthread_mutex_lock(&j->lock);
    j->write_began = 0;
    if (!error)
        j->written += n;
    if (cutting)
        j->failed = cutting;
    j->refusing = error;
    j->refused = error ? n : 1;
    pthread_mutex_unlock(&j->lock);
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
    int cutting = 0, status = begin_write(j, n, err);
    if (status)
        return status;
    const int error = write_records(j, examples, n);
    if (error && ftruncate(j->fd, record_place(&j->layout, j->written)) != 0)
        cutting = errno;
    end_write(j, n, error, cutting);
    if (is_full(error))
        return fail(err, LS_ENOMEM, "the disk of the journal is full: %s", strerror(error));
    return error ? disk_fails(j, "write it", error, err) : LS_OK;
}

/* With the lock, which is given up meanwhile. After a failure nobody can say what the disk has: it is not
 * asked again. */
static void sync_file(journal *j)
{
    const uint64_t end = j->written;
    j->sync_began = seconds();
    pthread_mutex_unlock(&j->lock);
    int error = fdatasync(j->fd) == 0 ? 0 : errno;
    pthread_mutex_lock(&j->lock);
    j->sync_began = 0;
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
    pthread_mutex_lock(&j->writing);
    int status = append_records(j, examples, n, err);
    const uint64_t end = j->written;
    pthread_mutex_unlock(&j->writing);
    pthread_mutex_lock(&j->lock);
    while (status == LS_OK && j->durable < end) {
        if (j->failed)
            status = disk_fails(j, "keep what was written", j->failed, err);
        else if (j->sync_began > 0)
            pthread_cond_wait(&j->synced, &j->lock);
        else
            sync_file(j);
    }
    pthread_mutex_unlock(&j->lock);
    return status;
}

/* ---- is there room? ------------------------------------------------------------------------- */

static int looks_full(const journal *j, off_t end)
{
    struct statvfs disk;
    struct rlimit most;
    const off_t more = end - record_place(&j->layout, j->written);
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && (rlim_t)end > most.rlim_cur)
        return 1;
    return fstatvfs(j->fd, &disk) == 0 && disk.f_bavail < (uint64_t)more / disk.f_frsize + 16;
}

/* With the right to write. Looks are not trusted where they say that there is none. */
static int find_room(journal *j)
{
    const off_t from = record_place(&j->layout, j->written);
    const off_t end = record_place(&j->layout, j->written + j->refused);
    if (j->refusing ? !is_full(j->refusing) : !looks_full(j, end))
        return j->refusing;
    const int error = posix_fallocate(j->fd, from, end - from);
    if (ftruncate(j->fd, from) != 0)
        return errno;
    return is_full(error) ? error : 0;
}

/* Whoever writes sees for himself. */
void journal_watch(journal *j)
{
    journal_state now;
    journal_look(j, &now);
    if (now.failed || now.silent_s > 0 || pthread_mutex_trylock(&j->writing) != 0)
        return;
    const int refusing = find_room(j);
    pthread_mutex_lock(&j->lock);
    j->refusing = refusing;
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_unlock(&j->writing);
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
    const double now = seconds();
    pthread_mutex_lock(&j->lock);
    *out = (journal_state){j->durable, j->trained, j->syncs, j->cut, j->failed, j->refusing, 0};
    if (j->write_began > 0)
        out->silent_s = now - j->write_began;
    if (j->sync_began > 0 && now - j->sync_began > out->silent_s)
        out->silent_s = now - j->sync_began;
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
