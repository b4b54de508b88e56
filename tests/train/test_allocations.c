/* The step path of workers and coordinator allocates nothing. */
#include "train/count_malloc.h"
#include "train/train_fixture.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_COUNTED 3 /* steps of warm-up */

typedef struct counts {
    ls_host host;
    atomic_long host_calls;    /* allocations through the host's hooks */
    long host_begin, host_end; /* at step FIRST_COUNTED, and at the epoch's last step */
    long malloc_begin, malloc_end;
    long evaluated_malloc; /* behind the evaluation */
} counts;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    atomic_fetch_add(&((counts *)user)->host_calls, 1);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counting_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void on_progress(void *user, const ls_progress *p)
{
    counts *c = user;
    if (p->epoch_done) {
        c->evaluated_malloc = count_malloc_calls();
    } else if (p->step == FIRST_COUNTED) {
        c->host_begin = c->host_calls;
        c->malloc_begin = count_malloc_calls();
    } else if (p->step == p->steps) {
        c->malloc_end = count_malloc_calls();
        c->host_end = c->host_calls;
    }
}

/* Runs one epoch of 12 steps, a ragged one last. Returns whether every kernel is our own. */
static int run(counts *c, const char *devices)
{
    fixture f;
    memset(c, 0, sizeof *c);
    c->host = (ls_host){sizeof c->host, counting_alloc, counting_free, NULL, c};
    fixture_begin(&f);
    fixture_use_lenet(&f);
    fixture_set(&f, devices);
    fixture_set(&f, "data.limit=376");
    fixture_set(&f, "init={\"name\": \"normal\", \"std\": 0.01}");
    f.options.host = &c->host;
    f.options.record = NULL;
    f.options.progress = on_progress;
    f.options.user = c;
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(ls_trainer_result(t)->steps, 12);
    int ours = 1;
    const char *line;
    for (int i = 0; (line = ls_replica_plan_line(t->worker[0].replica, i)); i++)
        ours &= strstr(line, "dnnl") == NULL;
    ls_trainer_close(t);
    fixture_end(&f);
    assert_true(c->malloc_begin > 0 && c->host_begin > 0 && c->malloc_end > 0);
    return ours;
}

static void steps_on_the_reference_allocate_nothing(void **state)
{
    counts c;
    (void)state;
    run(&c, "devices=ref:3");
    assert_int_equal(c.malloc_end - c.malloc_begin, 0);
    assert_int_equal(c.host_end - c.host_begin, 0);
    assert_int_equal(c.evaluated_malloc - c.malloc_end, 0); /* nor does the evaluation */
}

/* oneDNN allocates inside its primitives; kernels of our own do not. */
static void steps_on_the_cpu_allocate_nothing_of_ours(void **state)
{
    counts c;
    (void)state;
    if (!has_backend("cpu"))
        skip();
    int ours = run(&c, "devices=cpu:2");
    assert_int_equal(c.host_end - c.host_begin, 0);
    if (ours)
        assert_int_equal(c.malloc_end - c.malloc_begin, 0);
}

/* That the counter counts. */
static void the_counter_sees_an_allocation(void **state)
{
    (void)state;
    long before = count_malloc_calls();
    void *volatile memory = malloc(10);
    assert_int_equal(count_malloc_calls() - before, 1);
    free(memory);
    assert_int_equal(count_malloc_calls() - before, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_sees_an_allocation),
        cmocka_unit_test(steps_on_the_reference_allocate_nothing),
        cmocka_unit_test(steps_on_the_cpu_allocate_nothing_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
