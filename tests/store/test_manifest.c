#include "store/manifest.h"
#include "store/store_fixture.h"

#include <stdio.h>
#include <string.h>

#define SHA "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define A "{\"name\":\"a\",\"bytes\":3,\"sha256\":\"" SHA "\"}"

static int parse(ls_manifest *m, const char *text, ls_error *err)
{
    return ls_manifest_parse(m, "dir/manifest.json", text, strlen(text), NULL, err);
}

static void a_manifest_is_read(void **state)
{
    (void)state;
    ls_manifest m;
    ls_error err = {0};
    must(parse(&m,
               "{\"schema\":1,\n\"files\":[\n" A ",\n{\"sha256\":\"" SHA
               "\",\"bytes\":9007199254740992,\"name\":\"B-2_x.safetensors\"}]}",
               &err),
         &err);
    assert_int_equal(m.count, 2);
    assert_string_equal(m.file[0].name, "a");
    assert_int_equal(m.file[0].bytes, 3);
    assert_string_equal(m.file[0].sha256, SHA);
    assert_int_equal(m.file[0].line, 3);
    assert_int_equal(m.file[1].line, 4);
    assert_true(m.file[1].bytes == UINT64_C(1) << 53);
    assert_ptr_equal(ls_manifest_find(&m, "B-2_x.safetensors"), &m.file[1]);
    assert_null(ls_manifest_find(&m, "b"));
    ls_manifest_fini(&m);
    ls_manifest_fini(&m);
}

static void anything_else_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[]", "1:1: the manifest: expected an object"},
        {"{\"files\":[]}", "1:1: the manifest: \"schema\" is missing"},
        {"{\"schema\":2,\"files\":[]}", "1:11: the manifest: expected schema 1, found 2"},
        {"{\"schema\":1.5,\"files\":[]}", "1:11: the manifest: \"schema\" must be an integer"},
        {"{\"schema\":1}", "1:1: the manifest: expected a key \"files\""},
        {"{\"schema\":1,\"files\":[],\"x\":0}", "1:24: the manifest: unknown key \"x\""},
        {"{\"schema\":1,\"schema\":1,\"files\":[]}", "1:13: expected each key once"},
        {"{\"schema\":1,\"files\":{}}", "1:21: expected an array of files, found an object"},
        {"{\"schema\":1,\"files\":[7]}", "1:22: a file: expected an object"},
        {"{\"schema\":1,\"files\":[" A "," A "]}", "1:129: a file: the file \"a\" is listed twice"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a/b\",\"bytes\":3,\"sha256\":\"" SHA "\"}]}",
         "1:30: a file: expected a file's name"},
        {"{\"schema\":1,\"files\":[{\"name\":\"..\",\"bytes\":3,\"sha256\":\"" SHA "\"}]}",
         "1:30: a file: expected a file's name"},
        {"{\"schema\":1,\"files\":[{\"name\":\"manifest.json\",\"bytes\":3,\"sha256\":\"" SHA
         "\"}]}",
         "1:30: a file: expected a file's name"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":-1,\"sha256\":\"" SHA "\"}]}",
         "1:42: a file: \"bytes\" must be a number from 0"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":0.5,\"sha256\":\"" SHA "\"}]}",
         "1:42: a file: expected a whole number of bytes"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":1e17,\"sha256\":\"" SHA "\"}]}",
         "1:42: a file: \"bytes\" must be a number from 0"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":3,\"sha256\":\"" SHA "0\"}]}",
         "1:53: a file: expected 64 lower-case hexadecimal digits"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":3,\"sha256\":\"BA\"}]}",
         "1:53: a file: expected 64 lower-case hexadecimal digits"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":3}]}",
         "1:22: a file: \"sha256\" is missing"},
        {"{\"schema\":1,\"files\":[{\"name\":\"a\",\"bytes\":3,\"sha256\":\"" SHA
         "\",\"mode\":1}]}",
         "1:120: a file: unknown key \"mode\""},
        {"{\"schema\":1,\"files\":[[[[[]]]]]}", "1:24: expected at most 4"},
        {"{\"schema\":1,\"files\":[]} x", "1:25: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_manifest m;
        ls_error err = {0};
        char want[200];
        snprintf(want, sizeof want, "dir/manifest.json:%s", cases[i].message);
        int rc = parse(&m, cases[i].text, &err);
        if (rc != LS_EDATA || strncmp(err.text, want, strlen(want)) != 0)
            fail_msg("case %zu: expected \"%s\", found %d: %s", i, want, rc, err.text);
        assert_non_null(strstr(err.text, "use another copy"));
        assert_int_equal(m.count, 0);
        assert_null(m.file);
    }
}

static void more_files_than_allowed_are_refused(void **state)
{
    (void)state;
    static char text[64 + (LS_BUNDLE_FILES + 1) * 128];
    for (int files = LS_BUNDLE_FILES; files <= LS_BUNDLE_FILES + 1; files++) {
        ls_manifest m;
        ls_error err = {0};
        int n = snprintf(text, sizeof text, "{\"schema\":1,\"files\":[");
        for (int i = 0; i < files; i++)
            n += snprintf(text + n, sizeof text - (size_t)n,
                          "%s{\"name\":\"f%d\",\"bytes\":0,\"sha256\":\"" SHA "\"}", i ? "," : "",
                          i);
        snprintf(text + n, sizeof text - (size_t)n, "]}");
        int rc = parse(&m, text, &err);
        if (files > LS_BUNDLE_FILES)
            refused(rc, LS_EDATA, &err, "expected at most 256 files");
        else
            must(rc, &err);
        ls_manifest_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_is_read),
        cmocka_unit_test(anything_else_is_refused_with_its_place),
        cmocka_unit_test(more_files_than_allowed_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
