/* SPDX-License-Identifier: MIT */
/* Which candidate (tune.h) a plan runs. All workers, all hosts and all later runs must run the same
 * one, because each gives other bits. So the first choice for a shape, made by measurement
 * (tune.h), is stored on disk, and everybody reads it from there (cache.c). */
#include "base/clock.h"
#include "cuda/math/tune.h"

#include <stdio.h>
#include <string.h>

static void name_shape(char *out, size_t size, const ls_math_shape *s)
{
    static const char *const pass[] = {"forward", "data gradient", "weight gradient"};
    const char *fused[] = {s->bias ? " + bias" : "", s->relu ? " + relu" : "",
                           s->half ? ", bf16" : ""};
    char groups[32] = "";
    if (s->groups > 1)
        snprintf(groups, sizeof groups, " in %d groups", s->groups);
    if (s->kind < LS_MATH_DENSE)
        snprintf(out, size, "conv2d, %d rows of %d×%d×%d to %d, %d×%d%s, %s%s%s%s", s->rows, s->c,
                 s->h, s->w, s->out, s->kh, s->kw, groups, pass[s->kind], fused[0], fused[1],
                 fused[2]);
    else
        snprintf(out, size, "dense, %d rows of %d to %d, %s%s%s%s", s->rows, s->c, s->out,
                 pass[s->kind % 3], fused[0], fused[1], fused[2]);
}

/* Writes a candidate and what was measured on one line. */
static void write_result(char *out, size_t size, const ls_tune_result *r)
{
    const ls_tune_error *e = r->error;
    snprintf(out, size, "%s, %.4f ms, %zu KiB, error %.1e %.1e %.1e, worst %.1e %.1e %.1e%s%s",
             r->name, (double)r->ms, r->workspace_bytes / 1024, e[0].rms, e[1].rms, e[2].rms,
             e[0].worst, e[1].worst, e[2].worst, r->refused ? ": " : "",
             r->refused ? r->refused : "");
}

enum { LINE = 320 };

static void log_result(const ls_math_inside *plan, ls_log_level level, const ls_tune_result *r,
                       const char *what)
{
    char shape[160], line[LINE];
    name_shape(shape, sizeof shape, &plan->shape);
    write_result(line, sizeof line, r);
    ls_log(plan->math->desc.host, level, "%s: %s: %s%s", plan->math->desc.device, shape, line,
           what);
}

/* Logs all candidates, and stores the same lines beside the choice. */
static void report(const ls_math_inside *plan, const char *key, const ls_tune_result *result,
                   int count)
{
    const ls_host *host = plan->math->desc.host;
    char *text = ls_alloc(host, (size_t)count * LINE + 1);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        log_result(plan, LS_LOG_DEBUG, &result[i], "");
        if (!text)
            continue;
        write_result(text + used, LINE - 1, &result[i]);
        used += strlen(text + used);
        text[used++] = '\n';
    }
    if (text)
        ls_math_cache_remark(plan->math, key, text);
    ls_free(host, text);
}

/* Measures the candidates. Returns the index of the chosen one, or −1 if none may be used. If there
 * is not enough memory to measure, returns 0, because the product can run without. */
static int measure(ls_math_inside *plan, const char *key, ls_tune_result *result, int count,
                   double planned_s)
{
    char rest[96];
    const uint64_t begin = ls_now_ns();
    const int best = ls_tune(result, count, plan, plan->library->take);
    const double measured_s = (double)(ls_now_ns() - begin) * 1e-9;
    if (best == LS_TUNE_NO_MEMORY) {
        log_result(plan, LS_LOG_WARNING, &result[0],
                   ": used without measuring, for lack of memory");
        return 0;
    }
    report(plan, key, result, count);
    for (int i = 0; i < count; i++)
        if (result[i].refused && best >= 0 && result[i].ms >= 0 && result[i].ms < result[best].ms)
            log_result(plan, LS_LOG_WARNING, &result[i], "");
    if (best < 0)
        return -1;
    snprintf(rest, sizeof rest, ": the fastest of %d, planned in %.2f s, measured in %.2f s", count,
             planned_s, measured_s);
    log_result(plan, LS_LOG_INFO, &result[best], rest);
    return best;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static bool from_cache(ls_math_inside *plan, const char *key)
{
    const ls_math *math = plan->math;
    if (math->given)
        return false;
    char *text = ls_math_cache_get(math, key);
    const bool found = text && plan->library->from_text(plan, text) == LS_OK;
    if (text && !found)
        ls_math_cache_drop(math, key, text);
    ls_free(math->desc.host, text);
    return found;
}

/* Measures the candidates and stores the best one as the choice of all workers, unless another
 * process has stored one meanwhile. Then reads the choice back, as other workers will do. If it
 * could not be stored, every worker runs the library's first candidate that needs no measuring. */
static int tune(ls_math_inside *plan, const char *key, ls_tune_result *result, ls_error *err)
{
    const ls_math_library *library = plan->library;
    const uint64_t begin = ls_now_ns();
    const int count = library->find(plan, result, LS_ENGINES, err);
    if (count < 0)
        return count;
    const double planned_s = (double)(ls_now_ns() - begin) * 1e-9;
    const int best = measure(plan, key, result, count, planned_s);
    if (best < 0)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "none of %s's %d engines for the product runs, is exact enough, and gives the "
            "same bits in each run",
            library->name, count);
    library->take(plan, best);
    char *text = library->to_text(plan);
    if (text)
        ls_math_cache_put(plan->math, key, text);
    ls_free(plan->math->desc.host, text);
    if (from_cache(plan, key))
        return LS_OK;
    const int first = library->find(plan, result, 1, err);
    if (first < 0)
        return first;
    library->take(plan, 0);
    return LS_OK;
}

static int choose_alone(ls_math_inside *plan, const char *key, ls_error *err)
{
    const ls_math *math = plan->math;
    ls_tune_result *result;
    if (from_cache(plan, key))
        return LS_OK;
    result = ls_alloc_array(math->desc.host, LS_ENGINES, sizeof *result);
    if (!result)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a plan", math->desc.device);
    int status = LS_OK;
    if (math->desc.cache_dir && !math->given) {
        status = tune(plan, key, result, err);
    } else {
        const int count = plan->library->find(plan, result, 1, err);
        status = count < 0 ? count : LS_OK;
        if (status == LS_OK)
            plan->library->take(plan, 0);
    }
    ls_free(math->desc.host, result);
    return status;
}

/* Runs what another machine has chosen. If that is not possible, fails, because another candidate
 * would give other bits. */
static int as_given(ls_math_inside *plan, const char *text, ls_error *err)
{
    return plan->library->from_text(plan, text) == LS_OK
               ? LS_OK
               : ls_fail(err, LS_EDEVICE, "%s: %s does not take the plan that the first host chose",
                         plan->math->desc.device, plan->library->name);
}

/* Also adds the choice to those that ls_math_choices sends to other machines. */
int ls_math_choose_plan(ls_math_inside *plan, ls_error *err)
{
    ls_math *math = plan->math;
    char key[384];
    plan->library->key(key, sizeof key, plan);
    const char *given = ls_math_chosen(math, key);
    if (given)
        return as_given(plan, given, err);
    int status = choose_alone(plan, key, err);
    if (status || math->given)
        return status;
    char *text = plan->library->to_text(plan);
    status = ls_math_note(math, key, text, err);
    ls_free(math->desc.host, text);
    return status;
}
