/* The service's journal: what was acknowledged is there, whatever comes in between. */
#include "journal.h"
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { IMAGE = 5, EXAMPLE = 1 + IMAGE, RECORD = EXAMPLE + JOURNAL_EXTRA, HEADER = 16 };

typedef struct fixture {
    char directory[64], path[80];
    journal_options options;
    journal *j;
    ls_error err;
} fixture;

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->directory, sizeof f->directory, "%s/lockstep-journal-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/journal", f->directory);
    f->options = (journal_options){.path = f->path,
                                   .form = {.row_bytes = IMAGE, .classes = 10},
                                   .most = 100000,
                                   .queue = 100000};
    assert_int_equal(journal_open(&f->j, &f->options, &f->err), LS_OK);
}

static void reopen(fixture *f)
{
    journal_close(f->j);
    f->j = NULL;
    if (journal_open(&f->j, &f->options, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
}

static void end(fixture *f)
{
    char path[400];
    journal_close(f->j);
    DIR *files = opendir(f->directory);
    for (struct dirent *e; (e = readdir(files)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", f->directory, e->d_name);
        unlink(path);
    }
    closedir(files);
    assert_int_equal(rmdir(f->directory), 0);
}

static void make(uint8_t *example, uint64_t number)
{
    for (int i = 0; i < EXAMPLE; i++)
        example[i] = (uint8_t)(number >> (i % 3 * 8));
    example[0] %= 10;
}

static int append(fixture *f, uint64_t first, uint32_t n)
{
    uint8_t *examples = malloc((size_t)n * EXAMPLE);
    for (uint32_t i = 0; i < n; i++)
        make(examples + (size_t)i * EXAMPLE, first + i);
    int status = journal_append(f->j, examples, n, &f->err);
    free(examples);
    return status;
}

static uint64_t durable(fixture *f)
{
    journal_state state;
    journal_look(f->j, &state);
    return state.durable;
}

static void assert_holds(fixture *f, uint64_t count)
{
    uint8_t found[RECORD], expected[EXAMPLE];
    assert_int_equal(durable(f), count);
    for (uint64_t i = 0; i < count; i++) {
        make(expected, i);
        assert_int_equal(journal_read(f->j, i, found, &f->err), LS_OK);
        assert_memory_equal(found, expected, EXAMPLE);
    }
}

static void what_was_appended_is_read_back_also_after_opening_again(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    assert_int_equal(append(&f, 0, 1), LS_OK);
    assert_int_equal(append(&f, 1, 200), LS_OK); /* more than are written at once */
    assert_holds(&f, 201);
    reopen(&f);
    assert_holds(&f, 201);
    assert_int_equal(append(&f, 201, 3), LS_OK);
    reopen(&f);
    assert_holds(&f, 204);
    end(&f);
}

static void an_unfinished_end_is_cut_off_wherever_it_broke(void **state)
{
    (void)state;
    for (int cut = 1; cut < 2 * RECORD; cut++) {
        fixture f;
        begin(&f);
        assert_int_equal(append(&f, 0, 4), LS_OK);
        assert_int_equal(truncate(f.path, HEADER + 4 * RECORD - cut), 0);
        reopen(&f);
        const uint64_t whole = cut <= RECORD ? 3 : 2;
        assert_holds(&f, whole);
        assert_int_equal(append(&f, whole, 2), LS_OK);
        reopen(&f);
        assert_holds(&f, whole + 2);
        end(&f);
    }
}

static void change_byte(fixture *f, off_t at)
{
    uint8_t byte;
    int fd = open(f->path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void damage_costs_only_the_example_that_it_hits(void **state)
{
    (void)state;
    for (int at = 0; at < RECORD; at++) {
        fixture f;
        uint8_t found[RECORD];
        begin(&f);
        assert_int_equal(append(&f, 0, 4), LS_OK);
        journal_close(f.j);
        change_byte(&f, HEADER + RECORD + at);
        assert_int_equal(journal_open(&f.j, &f.options, &f.err), LS_OK);
        assert_int_equal(durable(&f), 4);
        for (uint64_t i = 0; i < 4; i++)
            assert_int_equal(journal_read(f.j, i, found, &f.err), i == 1 ? LS_EDATA : LS_OK);
        end(&f);
    }
}

/* ---- every bit, every length ---- */

enum { HELD = 4, BYTES = HEADER + HELD * RECORD };

static void begin_held(fixture *f, uint8_t bytes[BYTES])
{
    begin(f);
    assert_int_equal(append(f, 0, HELD), LS_OK);
    journal_close(f->j);
    f->j = NULL;
    FILE *file = fopen(f->path, "r");
    assert_int_equal(fread(bytes, 1, BYTES, file), BYTES);
    fclose(file);
}

static void open_bytes(fixture *f, const uint8_t *bytes, size_t count, uint64_t known)
{
    FILE *file = fopen(f->path, "w");
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
    f->options.known = known;
    reopen(f);
}

/* The file with what was cut off before this example holds these bytes; or it is not there, for none. */
static void assert_kept(fixture *f, uint64_t end, const uint8_t *bytes, size_t count)
{
    char path[200];
    uint8_t found[BYTES];
    snprintf(path, sizeof path, "%s.cut-%d", f->path, (int)end);
    FILE *file = fopen(path, "r");
    assert_int_equal(file != NULL, count > 0);
    if (!file)
        return;
    assert_int_equal(fread(found, 1, BYTES, file), count);
    assert_memory_equal(found, bytes, count);
    fclose(file);
    unlink(path);
}

static uint64_t cut(fixture *f)
{
    journal_state state;
    journal_look(f->j, &state);
    return state.cut;
}

/* Examples that are whole are read as they were; others are refused. Then it takes more. */
static void assert_goes_on(fixture *f, uint64_t count, const int *whole)
{
    uint8_t found[RECORD], expected[EXAMPLE];
    assert_int_equal(durable(f), count);
    for (uint64_t i = 0; i < count; i++) {
        make(expected, i);
        assert_int_equal(journal_read(f->j, i, found, &f->err), whole[i] ? LS_OK : LS_EDATA);
        if (whole[i])
            assert_memory_equal(found, expected, EXAMPLE);
    }
    assert_int_equal(append(f, 77, 1), LS_OK);
    reopen(f);
    assert_int_equal(durable(f), count + 1);
    assert_int_equal(journal_read(f->j, count, found, &f->err), LS_OK);
    make(expected, 77);
    assert_memory_equal(found, expected, EXAMPLE);
}

static void a_flipped_bit_costs_at_most_the_example_that_it_hits(void **state)
{
    (void)state;
    fixture f;
    uint8_t bytes[BYTES];
    begin_held(&f, bytes);
    for (uint64_t known = 0; known <= HELD; known += HELD / 2)
        for (int bit = 0; bit < 8 * BYTES; bit++) {
            const int hit = bit / 8 < HEADER ? -1 : (bit / 8 - HEADER) / RECORD;
            int whole[HELD] = {1, 1, 1, 1};
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            open_bytes(&f, bytes, BYTES, known);
            const int is_cut =
                hit == HELD - 1 && known < HELD; /* it looks like one never finished */
            assert_int_equal(cut(&f), is_cut);
            assert_kept(&f, HELD - 1, bytes + HEADER + (HELD - 1) * RECORD, is_cut ? RECORD : 0);
            if (hit >= 0)
                whole[hit] = 0;
            assert_goes_on(&f, is_cut ? HELD - 1 : HELD, whole);
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    end(&f);
}

static void a_journal_that_was_cut_anywhere_keeps_what_is_left(void **state)
{
    (void)state;
    fixture f;
    uint8_t bytes[BYTES];
    begin_held(&f, bytes);
    for (uint64_t known = 0; known <= HELD; known++)
        for (size_t length = 0; length <= BYTES; length++) {
            const uint64_t left = length < HEADER ? 0 : (length - HEADER) / RECORD;
            const size_t end = HEADER + left * RECORD;
            int whole[HELD];
            for (uint64_t i = 0; i < HELD; i++)
                whole[i] = i < left;
            open_bytes(&f, bytes, length, known);
            assert_int_equal(cut(&f), 0);
            assert_kept(&f, left, bytes + end, left >= known && length > end ? length - end : 0);
            assert_goes_on(&f, left > known ? left : known, whole);
        }
    end(&f);
}

/* A second end that breaks in the same place is kept behind the first. */
static void what_was_cut_off_is_kept_each_time(void **state)
{
    (void)state;
    fixture f;
    uint8_t bytes[BYTES];
    begin_held(&f, bytes);
    open_bytes(&f, bytes, BYTES - 3, 0);
    open_bytes(&f, bytes, BYTES - RECORD + 2, 0);
    uint8_t both[RECORD];
    memcpy(both, bytes + BYTES - RECORD, RECORD - 3);
    memcpy(both + RECORD - 3, bytes + BYTES - RECORD, 2);
    assert_kept(&f, HELD - 1, both, RECORD - 1);
    end(&f);
}

/* What cannot be kept elsewhere is not cut off. */
static void an_end_that_cannot_be_kept_stays_as_damage(void **state)
{
    (void)state;
    fixture f;
    uint8_t bytes[BYTES];
    char path[200];
    const int whole[HELD] = {1, 1, 1, 0};
    begin_held(&f, bytes);
    snprintf(path, sizeof path, "%s.cut-%d", f.path, HELD - 1);
    assert_int_equal(symlink("/dev/null", path), 0);
    bytes[BYTES - 5] ^= 1;
    open_bytes(&f, bytes, BYTES, 0);
    assert_int_equal(cut(&f), 0);
    assert_goes_on(&f, HELD, whole);
    end(&f);
}

static void room_is_seen_before_and_after_it_is_wanted(void **state)
{
    (void)state;
    fixture f;
    struct rlimit before, small;
    journal_state seen[4];
    begin(&f);
    assert_int_equal(append(&f, 0, 4), LS_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){HEADER + 4 * RECORD + 3, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    journal_watch(f.j);
    journal_look(f.j, &seen[0]);
    small.rlim_cur = HEADER + 6 * RECORD;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    journal_watch(f.j);
    journal_look(f.j, &seen[1]);
    const int refused = append(&f, 4, 5);
    journal_watch(f.j); /* there is room for one, but not for so many */
    journal_look(f.j, &seen[2]);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    journal_watch(f.j);
    journal_look(f.j, &seen[3]);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(seen[0].refusing, EFBIG);
    assert_int_equal(seen[1].refusing, 0);
    assert_int_equal(refused, LS_ENOMEM);
    assert_int_equal(seen[2].refusing, EFBIG);
    assert_int_equal(seen[3].refusing, 0);
    reopen(&f);
    assert_holds(&f, 4);
    end(&f);
}

static void records_of_an_older_end_are_not_taken_for_new_ones(void **state)
{
    (void)state;
    fixture f;
    uint8_t record[RECORD];
    begin(&f);
    assert_int_equal(append(&f, 0, 4), LS_OK);
    journal_close(f.j);
    int fd = open(f.path, O_RDWR); /* record 1 once more, as record 4 */
    assert_int_equal(pread(fd, record, RECORD, HEADER + RECORD), RECORD);
    assert_int_equal(pwrite(fd, record, RECORD, HEADER + 4 * RECORD), RECORD);
    close(fd);
    assert_int_equal(journal_open(&f.j, &f.options, &f.err), LS_OK);
    assert_holds(&f, 4);
    end(&f);
}

static void a_full_queue_refuses_and_keeps_nothing(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    f.options.queue = 10;
    reopen(&f);
    assert_int_equal(append(&f, 0, 8), LS_OK);
    assert_int_equal(append(&f, 8, 3), LS_EAGAIN);
    assert_holds(&f, 8);
    journal_set_trained(f.j, 1);
    assert_int_equal(append(&f, 8, 3), LS_OK);
    assert_holds(&f, 11);
    f.options.most = 12;
    reopen(&f);
    journal_set_trained(f.j, 11);
    assert_int_equal(append(&f, 11, 2), LS_ENOMEM);
    assert_int_equal(append(&f, 11, 1), LS_OK);
    assert_holds(&f, 12);
    end(&f);
}

/* A limit on the size of files stands for the full disk. */
static void a_full_disk_refuses_and_later_goes_on(void **state)
{
    (void)state;
    fixture f;
    struct rlimit before, small;
    begin(&f);
    assert_int_equal(append(&f, 0, 4), LS_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){HEADER + 6 * RECORD + 3, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int refused = append(&f, 4, 5);
    reopen(&f); /* as after a crash: the part that did fit is not there */
    const uint64_t held = durable(&f);
    const int fits = append(&f, 4, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(refused, LS_ENOMEM);
    assert_int_equal(held, 4);
    assert_int_equal(fits, LS_OK);
    assert_int_equal(append(&f, 6, 5), LS_OK);
    reopen(&f);
    assert_holds(&f, 11);
    end(&f);
}

static void files_of_others_are_refused(void **state)
{
    (void)state;
    fixture f;
    journal *other = NULL;
    begin(&f);
    assert_int_equal(append(&f, 0, 2), LS_OK);
    journal_close(f.j);
    journal_options o = f.options;
    o.form.row_bytes = 6;
    assert_int_equal(journal_open(&other, &o, &f.err), LS_EDATA);
    assert_non_null(strstr(f.err.text, "--shape"));
    o = f.options;
    o.form.classes = 9;
    assert_int_equal(journal_open(&other, &o, &f.err), LS_EDATA);
    o = f.options;
    o.form.floats = 1;
    assert_int_equal(journal_open(&other, &o, &f.err), LS_EDATA);
    o.form = (example_form){.row_bytes = IMAGE, .targets = 10, .classes = 10};
    assert_int_equal(journal_open(&other, &o, &f.err), LS_EDATA);
    assert_non_null(strstr(f.err.text, "--targets"));
    assert_null(other);
    assert_int_equal(journal_open(&f.j, &f.options, &f.err), LS_OK);
    assert_holds(&f, 2);
    journal_close(f.j);
    f.j = NULL;
    FILE *file = fopen(f.path, "w");
    fputs("something else, that is longer than a header and a record are", file);
    fclose(file);
    assert_int_equal(journal_open(&other, &f.options, &f.err), LS_EDATA);
    assert_non_null(strstr(f.err.text, "not a journal"));
    end(&f);
}

static void a_second_process_is_kept_out(void **state)
{
    (void)state;
    fixture f;
    int how;
    begin(&f);
    pid_t child = fork();
    if (child == 0) {
        journal *other;
        _exit(journal_open(&other, &f.options, &f.err) == LS_EAGAIN ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    end(&f);
}

/* ---- many threads ---- */

enum { WRITERS = 8, CALLS = 40, TOGETHER = 3 };

typedef struct writer {
    fixture *f;
    int number, failed;
} writer;

static void *write_many(void *arg)
{
    writer *w = arg;
    uint8_t examples[TOGETHER * EXAMPLE];
    ls_error err;
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < TOGETHER; i++) {
            memset(examples + i * EXAMPLE, w->number, EXAMPLE);
            examples[i * EXAMPLE + 1] = (uint8_t)call;
            examples[i * EXAMPLE + 2] = (uint8_t)i;
        }
        w->failed |= journal_append(w->f->j, examples, TOGETHER, &err) != LS_OK;
    }
    return NULL;
}

/* Each call's examples are together and in order, and none is missing. */
static void threads_append_at_the_same_time(void **state)
{
    (void)state;
    fixture f;
    pthread_t thread[WRITERS];
    writer w[WRITERS];
    uint8_t found[RECORD];
    int next[WRITERS] = {0};
    begin(&f);
    for (int i = 0; i < WRITERS; i++) {
        w[i] = (writer){&f, i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, write_many, &w[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(thread[i], NULL);
        assert_false(w[i].failed);
    }
    reopen(&f);
    assert_int_equal(durable(&f), WRITERS * CALLS * TOGETHER);
    for (uint64_t i = 0; i < WRITERS * CALLS * TOGETHER; i++) {
        assert_int_equal(journal_read(f.j, i, found, &f.err), LS_OK);
        const int from = found[0], expected = next[from]++;
        assert_int_equal(found[1], expected / TOGETHER);
        assert_int_equal(found[2], expected % TOGETHER);
        assert_int_equal(found[2], i % TOGETHER);
    }
    end(&f);
}

LS_TESTS(service_journal, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_appended_is_read_back_also_after_opening_again),
        cmocka_unit_test(an_unfinished_end_is_cut_off_wherever_it_broke),
        cmocka_unit_test(damage_costs_only_the_example_that_it_hits),
        cmocka_unit_test(a_flipped_bit_costs_at_most_the_example_that_it_hits),
        cmocka_unit_test(a_journal_that_was_cut_anywhere_keeps_what_is_left),
        cmocka_unit_test(what_was_cut_off_is_kept_each_time),
        cmocka_unit_test(an_end_that_cannot_be_kept_stays_as_damage),
        cmocka_unit_test(room_is_seen_before_and_after_it_is_wanted),
        cmocka_unit_test(records_of_an_older_end_are_not_taken_for_new_ones),
        cmocka_unit_test(a_full_queue_refuses_and_keeps_nothing),
        cmocka_unit_test(a_full_disk_refuses_and_later_goes_on),
        cmocka_unit_test(files_of_others_are_refused),
        cmocka_unit_test(a_second_process_is_kept_out),
        cmocka_unit_test(threads_append_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
