/* SPDX-License-Identifier: MIT */
/* Tests metrics in the format of Prometheus. */
#include "http/metrics.h"
#include "runner.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const double bounds[] = {0.5, 1, 2.5};

static void the_text_is_prometheus_text(void **state)
{
    (void)state;
    static metrics all;
    char text[2000];
    metric *a = metrics_counter(&all, "requests_total", "path=\"/a\"", "Requests.");
    metric *b = metrics_counter(&all, "requests_total", "path=\"/b\"", "Requests.");
    metric *g = metrics_gauge(&all, "loss", NULL, "Loss.");
    metric *h = metrics_histogram(&all, "seconds", "path=\"/a\"", "Time.", bounds, 3);
    metric *plain = metrics_histogram(&all, "bytes", NULL, "Size.", bounds, 1);
    metric_add(a, 1);
    metric_add(a, 2);
    metric_add(b, 0.5);
    metric_set(g, 7);
    metric_set(g, -0.25);
    metric_observe(h, 0.5); /* at the bound is below it */
    metric_observe(h, 2);
    metric_observe(h, 100);
    metric_observe(plain, 0.25);
    const size_t length = metrics_write(&all, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "# HELP requests_total Requests.\n"
                              "# TYPE requests_total counter\n"
                              "requests_total{path=\"/a\"} 3\n"
                              "requests_total{path=\"/b\"} 0.5\n"
                              "# HELP loss Loss.\n"
                              "# TYPE loss gauge\n"
                              "loss -0.25\n"
                              "# HELP seconds Time.\n"
                              "# TYPE seconds histogram\n"
                              "seconds_bucket{path=\"/a\",le=\"0.5\"} 1\n"
                              "seconds_bucket{path=\"/a\",le=\"1\"} 1\n"
                              "seconds_bucket{path=\"/a\",le=\"2.5\"} 2\n"
                              "seconds_bucket{path=\"/a\",le=\"+Inf\"} 3\n"
                              "seconds_sum{path=\"/a\"} 102.5\n"
                              "seconds_count{path=\"/a\"} 3\n"
                              "# HELP bytes Size.\n"
                              "# TYPE bytes histogram\n"
                              "bytes_bucket{le=\"0.5\"} 1\n"
                              "bytes_bucket{le=\"+Inf\"} 1\n"
                              "bytes_sum 0.25\n"
                              "bytes_count 1\n");
}

static void one_metric_too_many_is_not_registered(void **state)
{
    (void)state;
    static metrics all;
    for (int i = 0; i < METRICS_MOST; i++)
        assert_non_null(metrics_counter(&all, "n_total", NULL, "N."));
    assert_null(metrics_counter(&all, "n_total", NULL, "N."));
    assert_null(metrics_gauge(&all, "g", NULL, "G."));
    assert_null(metrics_histogram(&all, "h", NULL, "H.", bounds, 3));
    assert_int_equal(all.count, METRICS_MOST);
}

static void what_is_not_finite_has_its_names(void **state)
{
    (void)state;
    static metrics all;
    char text[400];
    metric_set(metrics_gauge(&all, "a", NULL, "A."), NAN);
    metric_set(metrics_gauge(&all, "b", NULL, "B."), INFINITY);
    metric_set(metrics_gauge(&all, "c", NULL, "C."), -INFINITY);
    metrics_write(&all, text, sizeof text);
    assert_non_null(strstr(text, "\na NaN\n"));
    assert_non_null(strstr(text, "\nb +Inf\n"));
    assert_non_null(strstr(text, "\nc -Inf\n"));
}

static void a_hidden_gauge_is_not_written_until_it_is_set(void **state)
{
    (void)state;
    static metrics all;
    char text[400];
    metric *a = metrics_gauge(&all, "a", NULL, "A.");
    metric_hide(a);
    metrics_gauge(&all, "b", NULL, "B.");
    metrics_write(&all, text, sizeof text);
    assert_string_equal(text, "# HELP b B.\n# TYPE b gauge\nb 0\n");
    metric_set(a, NAN);
    metrics_write(&all, text, sizeof text);
    assert_string_equal(text, "# HELP a A.\n# TYPE a gauge\na NaN\n"
                              "# HELP b B.\n# TYPE b gauge\nb 0\n");
}

static void a_hidden_counter_is_not_written_until_it_is_added_to(void **state)
{
    (void)state;
    static metrics all;
    char text[400];
    metric *a = metrics_counter(&all, "a", NULL, "A.");
    metric_hide(a);
    metrics_write(&all, text, sizeof text);
    assert_string_equal(text, "");
    metric_add(a, 0.5);
    metric_add(a, 2);
    metrics_write(&all, text, sizeof text);
    assert_string_equal(text, "# HELP a A.\n# TYPE a counter\na 2.5\n");
}

static void a_hidden_gauge_leaves_its_heading_to_the_next_of_its_name(void **state)
{
    (void)state;
    static metrics all;
    char text[400];
    metric_hide(metrics_gauge(&all, "a", "x=\"1\"", "A."));
    metrics_gauge(&all, "a", "x=\"2\"", "A.");
    metrics_write(&all, text, sizeof text);
    assert_string_equal(text, "# HELP a A.\n# TYPE a gauge\na{x=\"2\"} 0\n");
}

static void a_small_buffer_gets_what_fits_and_is_told_what_does_not(void **state)
{
    (void)state;
    static metrics all;
    char whole[400], some[401];
    metric_set(metrics_gauge(&all, "a", NULL, "A."), 1);
    metrics_histogram(&all, "b", NULL, "B.", bounds, 3);
    const size_t length = metrics_write(&all, whole, sizeof whole);
    assert_int_equal(metrics_write(&all, NULL, 0), length);
    for (size_t size = 1; size <= length + 1; size++) {
        memset(some, '#', sizeof some);
        assert_int_equal(metrics_write(&all, some, size), length);
        assert_int_equal(strlen(some), size - 1);
        assert_memory_equal(some, whole, size - 1);
        assert_int_equal(some[size], '#');
    }
}

enum { THREADS = 4, ROUNDS = 20000 };

static void *measure(void *arg)
{
    metric **m = arg;
    for (int i = 0; i < ROUNDS; i++) {
        metric_add(m[0], 1);
        metric_observe(m[1], i % 4);
    }
    return NULL;
}

static void no_addition_is_lost_among_threads(void **state)
{
    (void)state;
    static metrics all;
    char text[1000];
    pthread_t thread[THREADS];
    metric *m[2] = {metrics_counter(&all, "n", NULL, "N."),
                    metrics_histogram(&all, "h", NULL, "H.", bounds, 3)};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, measure, m), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_true(metric_value(m[0]) == THREADS * ROUNDS);
    assert_true(metric_value(m[1]) == THREADS * ROUNDS * 1.5);
    metrics_write(&all, text, sizeof text);
    assert_non_null(strstr(text, "h_bucket{le=\"0.5\"} 20000\nh_bucket{le=\"1\"} 40000\n"
                                 "h_bucket{le=\"2.5\"} 60000\nh_bucket{le=\"+Inf\"} 80000\n"));
}

LS_TESTS(service_metrics, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_prometheus_text),
        cmocka_unit_test(one_metric_too_many_is_not_registered),
        cmocka_unit_test(what_is_not_finite_has_its_names),
        cmocka_unit_test(a_hidden_gauge_is_not_written_until_it_is_set),
        cmocka_unit_test(a_hidden_counter_is_not_written_until_it_is_added_to),
        cmocka_unit_test(a_hidden_gauge_leaves_its_heading_to_the_next_of_its_name),
        cmocka_unit_test(a_small_buffer_gets_what_fits_and_is_told_what_does_not),
        cmocka_unit_test(no_addition_is_lost_among_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
