/* SPDX-License-Identifier: MIT */
/* Parses and executes injections: the planned faults of the option --inject (inject.h). */
#include "engine/inject.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>
#include <time.h>

static const char *const kinds[] = {"fail", "stall", "spin", "corrupt", "nan", NULL};
static const char *const stages[] = {"start",  "shard",    "merge",  "apply",
                                     "report", "evaluate", "export", NULL};
static const char *const parts[] = {"weights", "slot0", "slot1", "average", "statistics", NULL};

#define EXPECTED                                                                                   \
    "expected worker=N,step=N,kind=fail|stall|spin|corrupt|nan, and if need be "                   \
    "stage=start|shard|merge|apply|report|evaluate|export and seconds=X; with kind=corrupt, "      \
    "part=weights|slot0|slot1|average|statistics, bit=0 to 31 and index=N"

/* Parses a decimal integer of at most `most`. */
static bool read_number(const char *text, size_t length, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || value > most / 10)
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return length > 0 && value <= most;
}

static bool read_word(const char *text, size_t length, const char *const *words, int *out)
{
    for (int i = 0; words[i]; i++) {
        if (strlen(words[i]) == length && strncmp(words[i], text, length) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Parses a number of seconds such as "2" or "0.25", with at most 6 decimals. The decimal point is
 * "." in any locale. */
static bool read_seconds(const char *text, size_t length, double *out)
{
    const char *point = memchr(text, '.', length);
    size_t whole = point ? (size_t)(point - text) : length;
    uint64_t seconds = 0, part = 0;
    double scale = 1;
    if (!read_number(text, whole, 1000000, &seconds))
        return false;
    if (point) {
        size_t digits = length - whole - 1;
        if (digits > 6 || !read_number(point + 1, digits, 1000000, &part))
            return false;
        for (size_t i = 0; i < digits; i++)
            scale *= 10;
    }
    *out = (double)seconds + (double)part / scale;
    return true;
}

static const char *const keys[] = {"worker", "step", "kind",  "stage", "seconds",
                                   "part",   "bit",  "index", NULL};
enum { WORKER, STEP, KIND, STAGE, SECONDS, PART, BIT, INDEX };

/* Parses one key=value into `out`, and sets the bit 1 << key in *seen. Returns false if `pair` is
 * malformed or the key has occurred before. */
static bool read_pair(ls_injection *out, const char *pair, size_t length, unsigned *seen)
{
    const char *value = memchr(pair, '=', length);
    uint64_t number = 0;
    int key, word = 0;
    if (!value || !read_word(pair, (size_t)(value - pair), keys, &key) || *seen & 1u << key)
        return false;
    *seen |= 1u << key;
    value++;
    length -= (size_t)(value - pair);
    bool fine = false;
    switch (key) {
    case WORKER:
        fine = read_number(value, length, 65535, &number);
        out->worker = (int)number;
        break;
    case STEP:
        fine = read_number(value, length, UINT64_MAX / 2, &out->step) && out->step > 0;
        break;
    case KIND:
        fine = read_word(value, length, kinds, &word);
        out->kind = (ls_inject_kind)word;
        break;
    case STAGE:
        fine = read_word(value, length, stages, &word);
        out->stage = (ls_stage)word;
        break;
    case SECONDS: fine = read_seconds(value, length, &out->seconds); break;
    case PART:
        fine = read_word(value, length, parts, &word);
        out->part = (ls_replica_part)word;
        break;
    case BIT:
        fine = read_number(value, length, 31, &number);
        out->bit = (int)number;
        break;
    case INDEX: fine = read_number(value, length, UINT64_MAX / 2, &out->index); break;
    }
    return fine;
}

int ls_inject_parse(ls_injections *out, const char *text, ls_error *err)
{
    ls_injection one = {.stage = LS_STAGE_SHARD, .seconds = -1};
    const unsigned needed = 1u << WORKER | 1u << STEP | 1u << KIND;
    unsigned seen = 0;
    bool fine = true;
    if (out->count == LS_INJECTIONS_MAX)
        return ls_fail(err, LS_EINVAL, "inject: at most %d faults at once", LS_INJECTIONS_MAX);
    for (const char *p = text, *end; p && fine; p = *end ? end + 1 : NULL) {
        end = p + strcspn(p, ",");
        fine = read_pair(&one, p, (size_t)(end - p), &seen);
    }
    const bool hangs = one.kind == LS_INJECT_STALL || one.kind == LS_INJECT_SPIN;
    const bool staged = one.kind == LS_INJECT_FAIL || hangs;
    const unsigned of_flip = 1u << PART | 1u << BIT | 1u << INDEX;
    fine = fine && (seen & needed) == needed && (staged || !(seen & 1u << STAGE)) &&
           (hangs || !(seen & 1u << SECONDS)) &&
           (one.kind == LS_INJECT_CORRUPT || !(seen & of_flip));
    if (!fine)
        return ls_fail(err, LS_EINVAL, "inject: cannot read '%.200s': " EXPECTED, text);
    out->item[out->count++] = one;
    return LS_OK;
}

bool ls_inject_has_fired(const ls_injection *one)
{
    return atomic_load_explicit(&one->fired, memory_order_relaxed);
}

/* Sleeps for `seconds`; signals do not shorten the sleep. */
static void stall(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    const struct timespec hour = {.tv_sec = 3600};
    while (seconds < 0)
        nanosleep(&hour, NULL);
    while (nanosleep(&left, &left) != 0)
        ;
}

static void spin(double seconds)
{
    const uint64_t begin = ls_now_ns();
    while (seconds < 0 || (double)(ls_now_ns() - begin) * 1e-9 < seconds)
        ;
}

int ls_inject_at(ls_injections *all, int worker, uint64_t step, ls_stage stage, ls_error *err)
{
    const bool later = stage == LS_STAGE_EVALUATE || stage == LS_STAGE_EXPORT;
    for (int i = 0; i < all->count; i++) {
        ls_injection *one = &all->item[i];
        if (one->worker != worker || ls_inject_has_fired(one) || one->stage != stage ||
            (later ? step < one->step : step != one->step))
            continue;
        if (one->kind == LS_INJECT_CORRUPT || one->kind == LS_INJECT_NAN)
            continue;
        atomic_store_explicit(&one->fired, true, memory_order_relaxed);
        if (one->kind == LS_INJECT_FAIL)
            return ls_fail(err, LS_EDEVICE, "the device failed, as --inject asked for");
        if (one->kind == LS_INJECT_SPIN)
            spin(one->seconds);
        else
            stall(one->seconds);
    }
    return LS_OK;
}

const ls_injection *ls_inject_now(ls_injections *all, int worker, uint64_t step,
                                  ls_inject_kind kind)
{
    for (int i = 0; i < all->count; i++) {
        ls_injection *one = &all->item[i];
        if (one->worker == worker && one->step == step && one->kind == kind &&
            !ls_inject_has_fired(one)) {
            atomic_store_explicit(&one->fired, true, memory_order_relaxed);
            return one;
        }
    }
    return NULL;
}

const char *ls_inject_part_name(ls_replica_part part)
{
    return parts[part];
}

bool ls_inject_planned(const ls_injections *all, int worker, uint64_t step)
{
    for (int i = 0; i < all->count; i++) {
        const ls_injection *one = &all->item[i];
        const bool later = one->stage == LS_STAGE_EVALUATE || one->stage == LS_STAGE_EXPORT;
        if (one->worker == worker && one->step == step && !ls_inject_has_fired(one) && !later)
            return true;
    }
    return false;
}
