/* Tests how the cuDNN engine (implementation) of a convolution is chosen, and how the *choice* is
 * stored on disk and sent to other machines (src/cuda/math/cache.c). The real cuDNN makes plans for
 * a GPU that is only described. The engines are not run: the test decides how long each engine
 * takes, and whether its results are repeatable. */
#include "cuda/math/inside.h"
#include "cuda_ops/cuda_backend.h"
#include "doubles/launch.h"
#include "nn/nn_fixture.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the double of a run -------------------------------------------------------------------- */

cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack);
cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values);

enum { VARYING = 2, FAST = 4, MOST = 64, OUT = 32 * 14 * 14 * 64, FIRST = 16 };

static struct {
    cudaStream_t stream;
    void *memory[3], *workspace;         /* memory and workspace that were bound last */
    cudnnBackendDescriptor_t plan[MOST]; /* the plans in the sequence of their first run */
    int plans, runs;
    int zeros; /* number of zeros among the first numbers of the operands */
} seen;

static bool all_vary;

typedef struct run {
    int number;
    const uint16_t *a, *b;
    uint16_t *out, *workspace;
} run;

static void body(const void *copied)
{
    static uint16_t noise;
    const run *r = copied;
    const struct timespec nap = {0, r->number == VARYING ? 0
                                    : r->number == FAST  ? 1000000
                                                         : 5000000};
    nanosleep(&nap, NULL);
    for (int i = 0; i < OUT; i++) {
        seen.zeros += i < FIRST && (r->a[i] == 0 || r->b[i] == 0);
        r->out[i] = (uint16_t)(r->a[i] + r->b[i % FIRST]);
    }
    if (r->number == VARYING || all_vary)
        r->out[OUT - 1] = noise++;
    r->workspace[0] = 1;
}

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values)
{
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        memcpy(seen.memory, values, sizeof seen.memory);
    if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
        memcpy(&seen.workspace, values, sizeof seen.workspace);
    return __real_cudnnBackendSetAttribute(object, name, type, count, values);
}

cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    seen.stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack)
{
    run r = {0};
    (void)handle;
    (void)pack;
    while (r.number < seen.plans && seen.plan[r.number] != plan)
        r.number++;
    if (r.number == seen.plans)
        seen.plan[seen.plans++] = plan;
    seen.runs++;
    r.a = seen.memory[0];
    r.b = seen.memory[1];
    r.out = seen.memory[2];
    r.workspace = seen.workspace;
    assert_int_equal(dbl_launch(seen.stream, "cuDNN", body, &r, sizeof r), cudaSuccess);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- log ------------------------------------------------------------------------------------ */

enum { LINES = 128 };
static char line[LINES][256];
static ls_log_level level[LINES];
static int lines;

static void keep_line(void *user, ls_log_level of, const char *text)
{
    (void)user;
    assert_true(lines < LINES);
    level[lines] = of;
    snprintf(line[lines++], sizeof *line, "%s", text);
}

static const char *logged(ls_log_level of, const char *part)
{
    for (int i = 0; i < lines; i++)
        if (level[i] == of && strstr(line[i], part))
            return line[i];
    return NULL;
}

/* ---- a plan --------------------------------------------------------------------------------- */

static char folder[64];

/* given: choices of another machine for the next plan; NULL: none. choices: receives the choices
 * that the plan makes. */
static const char *given;
static char choices[1 << 20];

/* Makes a plan as a newly started process does, and writes the plan's name. */
static int plan_or_fail(char name[96], ls_error *err)
{
    static const ls_host host = {.size = sizeof host, .log = keep_line};
    const ls_math_shape shape = {LS_MATH_CONV, 1, 1, 1, 32, 64, 14, 14, 64, 14,
                                 14,           3, 3, 1, 1,  1,  1,  1,  1,  1};
    const ls_math_desc desc = {.host = &host,
                               .device = "cuda(0)",
                               .model = "described",
                               .compute = 90,
                               .precision = LS_PRECISION_BF16,
                               .cache_dir = folder,
                               .device_json = test_h200_json()};
    ls_math *math = NULL;
    ls_math_plan *plan = NULL;
    lines = 0;
    memset(&seen, 0, sizeof seen);
    must(ls_math_open(&math, &desc, err), err);
    int status = given ? ls_math_choose(math, given, err) : LS_OK;
    if (status == LS_OK)
        status = ls_math_plan_create(&plan, math, &shape, err);
    if (status == LS_OK) {
        snprintf(name, 96, "%s", plan->name);
        ls_math_plan_destroy(plan);
        assert_true(ls_math_choices(math, choices, sizeof choices) < sizeof choices);
    }
    ls_math_close(math);
    return status;
}

static void plan_anew(char name[96])
{
    ls_error err = {0};
    must(plan_or_fail(name, &err), &err);
}

static void in_folder(const char *command)
{
    char text[256];
    snprintf(text, sizeof text, "cd '%s' && %s", folder, command);
    assert_int_equal(system(text), 0);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void an_engine_is_timed_in_a_few_variants_on_random_data(void **state)
{
    int engines = 0, of[256] = {0}, number;
    char name[96];
    (void)state;
    plan_anew(name);
    assert_int_equal(seen.zeros, 0);
    for (int i = 0; i < lines; i++)
        if (level[i] == LS_LOG_DEBUG) {
            const char *at = strstr(line[i], "engine ");
            assert_non_null(at);
            assert_int_equal(sscanf(at, "engine %d", &number), 1);
            assert_in_range(number, 0, 255);
            engines += of[number]++ == 0;
            assert_true(of[number] <= LS_ENGINE_VARIANTS);
            assert_non_null(strstr(line[i], " ms, "));
        }
    assert_true(engines >= 4);
    assert_true(seen.plans > engines && seen.plans <= LS_ENGINES);
}

/* The results of the fastest engine vary, although cuDNN calls it deterministic. The next fastest
 * engine is chosen. */
static void the_fastest_that_repeats_its_bits_is_chosen_and_logged(void **state)
{
    char name[96];
    (void)state;
    in_folder("rm -f *");
    plan_anew(name);
    assert_non_null(logged(LS_LOG_WARNING, "its results vary"));
    const char *choice = logged(LS_LOG_INFO, "the fastest of ");
    assert_non_null(choice);
    assert_non_null(strstr(choice, name + strlen("cudnn ")));
    assert_non_null(
        strstr(choice, "conv2d, 32 rows of 64×14×14 to 64, 3×3, forward + bias + relu, bf16"));
    assert_string_equal(strstr(choice, "engine"), strstr(logged(LS_LOG_INFO, ""), "engine"));
}

static void engines_that_all_vary_are_declined_and_none_is_kept(void **state)
{
    char name[96];
    ls_error err = {0};
    (void)state;
    in_folder("rm -f *");
    all_vary = true;
    assert_int_equal(plan_or_fail(name, &err), LS_EUNSUPPORTED);
    all_vary = false;
    assert_non_null(strstr(err.text, "gives the same bits twice"));
    in_folder("! ls | grep plan");
    plan_anew(name);
}

static void a_choice_is_made_once(void **state)
{
    char name[96], again[96];
    (void)state;
    in_folder("rm -f *");
    plan_anew(name);
    assert_true(seen.runs > 0);
    plan_anew(again);
    assert_int_equal(seen.runs, 0);
    assert_string_equal(name, again);
}

static void expect_replaced(const char *why)
{
    char name[96];
    plan_anew(name);
    if (seen.runs == 0)
        fail_msg("%s: it was taken", why);
    plan_anew(name);
    if (seen.runs > 0)
        fail_msg("%s: it was not replaced", why);
}

static void a_damaged_choice_is_replaced(void **state)
{
    char name[96];
    (void)state;
    in_folder("rm -f *");
    plan_anew(name);
    in_folder("sed -i 's/CUDNN_DATA_BFLOAT16/CUDNN_DATA_BFLOAT17/' *.plan");
    expect_replaced("other bytes");
    in_folder("truncate -s 500 *.plan");
    expect_replaced("half a file");
    in_folder("for f in *.plan; do : >\"$f\"; done");
    expect_replaced("an empty file");
}

/* The file of a choice is complete, but cuDNN no longer accepts its content. */
static void a_choice_that_no_longer_loads_is_replaced(void **state)
{
    static const char useless[] = "engine 6\n{\"cudnnVersion\":80900}";
    char name[96], path[192] = "", key[512] = "";
    const ls_math math = {.desc = {.device = "cuda(0)", .cache_dir = folder}};
    (void)state;
    in_folder("rm -f *");
    plan_anew(name);
    in_folder("ls *.plan >list");
    snprintf(path, sizeof path, "%s/list", folder);
    FILE *list = fopen(path, "r");
    assert_true(list && fscanf(list, "%63s", name) == 1);
    fclose(list);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_true(file && fgets(key, sizeof key, file));
    fclose(file);
    key[strcspn(key, "\n")] = '\0';
    assert_int_equal(unlink(path), 0);
    ls_math_cache_put(&math, key, useless);
    expect_replaced("a plan of another version");
    assert_null(logged(LS_LOG_WARNING, "no longer takes"));

    /* Another choice, which was stored meanwhile, stays. */
    char *now = ls_math_cache_get(&math, key);
    ls_math_cache_drop(&math, key, useless);
    char *then = ls_math_cache_get(&math, key);
    assert_string_equal(now, then);
    ls_free(NULL, now);
    ls_free(NULL, then);
}

/* ---- two workers ---------------------------------------------------------------------------- */

/* content that another worker writes directly before a choice is removed; NULL: none */
static const char *meanwhile;
static char *others; /* the choice that the other worker then uses */

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    const ls_math other = {.desc = {.device = "cuda(1)", .cache_dir = folder}};
    const char *text = meanwhile;
    if (text && strcmp(path + strlen(path) - 5, ".plan") == 0) {
        meanwhile = NULL;
        __real_unlink(path);
        ls_math_cache_put(&other, "a key", text);
        others = ls_math_cache_get(&other, "a key");
    }
    return __real_unlink(path);
}

/* Two workers read a damaged choice and replace it. Both must then use the same choice, whichever
 * of them comes first. */
static void workers_that_meet_a_damaged_choice_choose_alike(void **state)
{
    const ls_math one = {.desc = {.device = "cuda(0)", .cache_dir = folder}};
    (void)state;
    in_folder("rm -f *");
    ls_math_cache_put(&one, "a key", "a choice");
    in_folder("sed -i 's/choice/chance/' *.plan");
    assert_null(ls_math_cache_get(&one, "a key"));
    meanwhile = "the other's";
    ls_math_cache_put(&one, "a key", "the one's");
    char *mine = ls_math_cache_get(&one, "a key");
    if (!others) {
        ls_math_cache_put(&one, "a key", meanwhile);
        others = ls_math_cache_get(&one, "a key");
        meanwhile = NULL;
    }
    assert_string_equal(mine, "the one's");
    assert_string_equal(mine, others);
    ls_free(NULL, mine);
    ls_free(NULL, others);
}

/* ---- two machines --------------------------------------------------------------------------- */

/* This machine has stored another choice on disk, which stays there. */
static void another_machine_s_choice_is_taken_and_nothing_timed(void **state)
{
    static char copy[sizeof choices];
    char name[96], other[96];
    ls_error err = {0};
    (void)state;
    in_folder("rm -f *");
    plan_anew(name);
    memcpy(copy, choices, sizeof copy);
    in_folder("rm -f *");
    given = copy;
    plan_anew(other);
    assert_int_equal(seen.runs, 0);
    assert_string_equal(name, other);
    assert_string_equal(copy, choices);
    in_folder("! ls | grep plan");

    /* The text is truncated, or cuDNN does not accept it. */
    copy[strlen(copy) - 1] = '\0';
    assert_int_equal(plan_or_fail(other, &err), LS_EDATA);
    memcpy(copy, choices, sizeof copy);
    memcpy(strstr(copy, "\"cudnnVersion\"") + 1, "x", 1);
    assert_int_equal(plan_or_fail(other, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "does not take the plan that the first host chose"));
    given = NULL;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-tuning-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    in_folder("rm -rf \"$PWD\"");
    return 0;
}

LS_TESTS(cuda_tuning, "integration doubles no-asan no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_is_timed_in_a_few_variants_on_random_data),
        cmocka_unit_test(the_fastest_that_repeats_its_bits_is_chosen_and_logged),
        cmocka_unit_test(engines_that_all_vary_are_declined_and_none_is_kept),
        cmocka_unit_test(a_choice_is_made_once),
        cmocka_unit_test(a_damaged_choice_is_replaced),
        cmocka_unit_test(a_choice_that_no_longer_loads_is_replaced),
        cmocka_unit_test(workers_that_meet_a_damaged_choice_choose_alike),
        cmocka_unit_test(another_machine_s_choice_is_taken_and_nothing_timed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
