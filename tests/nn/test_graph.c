/* SPDX-License-Identifier: MIT */
/* Tests models that are graphs: blocks are expanded, ops are fused where that is allowed, buffers
 * get offsets in memory, and ResNet-18 has the layers of the example file. */
#include "nn/nn_fixture.h"

#include "nn/plan.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks --------------------------------------------------------------------------------- */

static int layer_called(const ls_network *m, const char *name)
{
    for (int i = 0; i < m->layers; i++)
        if (strcmp(m->layer[i].name, name) == 0)
            return i;
    fail_msg("there is no layer \"%s\"", name);
    return -1;
}

static void assert_reads(const ls_network *m, const char *layer, const char *first,
                         const char *second)
{
    const ls_layer *l = &m->layer[layer_called(m, layer)];
    const char *want[] = {first, second};
    assert_int_equal(l->inputs, second ? 2 : 1);
    for (int i = 0; i < l->inputs; i++) {
        const char *got = l->input[i] == LS_INPUT ? "input" : m->layer[l->input[i]].name;
        assert_string_equal(got, want[i]);
    }
}

static const char blocks_json[] =
    "{\"blocks\":{\"res\":[{\"type\":\"conv2d\",\"name\":\"conv\",\"out\":\"$out\","
    "\"kernel\":[\"$k\",3],\"padding\":[0,1]},{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"name\":\"side\",\"from\":\"input\",\"out\":\"$out\",\"kernel\":1,"
    "\"bias\":\"$bias\"},"
    "{\"type\":\"add\",\"name\":\"sum\",\"with\":\"1\"}]},"
    "\"layers\":[{\"type\":\"relu\",\"name\":\"first\"},"
    "{\"block\":\"res\",\"name\":\"b\",\"repeat\":2,\"out\":4,\"k\":1,\"bias\":true},"
    "{\"block\":\"res\",\"out\":6,\"k\":1,\"bias\":false,\"from\":\"first\"},"
    "{\"type\":\"relu\",\"name\":\"left\",\"from\":\"b\"},"
    "{\"type\":\"flatten\"},{\"type\":\"dense\",\"name\":\"x\",\"out\":3},"
    "{\"type\":\"flatten\",\"from\":\"2\"},{\"type\":\"dense\",\"out\":3},"
    "{\"type\":\"add\",\"with\":\"x\"}]}";

static void blocks_are_written_out(void **state)
{
    (void)state;
    ls_network *m = make_model(blocks_json, (ls_shape){2, 3, 3}, 3);
    assert_int_equal(m->layers, 1 + 3 * 4 + 6);
    assert_string_equal(m->layer[0].name, "first");
    assert_reads(m, "b.0.conv", "first", NULL);
    assert_reads(m, "b.0.1", "b.0.conv", NULL);
    assert_reads(m, "b.0.side", "first", NULL);
    assert_reads(m, "b.0.sum", "b.0.side", "b.0.1");
    assert_reads(m, "b.1.conv", "b.0.sum", NULL);
    assert_reads(m, "b.1.side", "b.0.sum", NULL);
    /* the default name of a use of a block is the position of the use in the list */
    assert_reads(m, "2.conv", "first", NULL);
    /* the name of a use stands for the output of its last layer */
    assert_reads(m, "left", "b.1.sum", NULL);
    assert_reads(m, "6", "2.sum", NULL);
    assert_reads(m, "8", "7", "x");
    const ls_layer *conv = &m->layer[layer_called(m, "2.conv")];
    assert_int_equal(conv->op.u.conv2d.out, 6);
    assert_int_equal(conv->op.u.conv2d.kh, 1);
    assert_int_equal(m->layer[layer_called(m, "b.1.side")].params, 2);
    assert_int_equal(m->layer[layer_called(m, "2.side")].params, 1);
    assert_string_equal(m->layer[1].param[0].name, "b.0.conv.weight");
    free_model(m);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void a_batch_norm_has_four_tensors_in_pytorchs_order(void **state)
{
    (void)state;
    static const char *const names[] = {"c.weight",       "c.bias",        "n.weight", "n.bias",
                                        "n.running_mean", "n.running_var", "3.weight", "3.bias"};
    static const ls_start starts[] = {LS_START_DRAWN, LS_START_ZEROS, LS_START_ONES,
                                      LS_START_ZEROS, LS_START_ZEROS, LS_START_ONES,
                                      LS_START_DRAWN, LS_START_ZEROS};
    ls_network *m = make_model("[{\"type\":\"conv2d\",\"name\":\"c\",\"out\":5,\"kernel\":2},"
                               "{\"type\":\"batch_norm\",\"name\":\"n\",\"momentum\":0.25},"
                               "{\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]",
                               (ls_shape){1, 2, 4}, 3);
    size_t offset = 0;
    assert_int_equal(m->params, 6);
    assert_int_equal(m->stats, 2);
    assert_int_equal(m->parameters, 20 + 5 + 5 + 5 + 15 + 3);
    assert_int_equal(m->floats, m->parameters + 10);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(m->tensor[i]->name, names[i]);
        assert_int_equal(m->tensor[i]->start, starts[i]);
        assert_int_equal(m->tensor[i]->offset, offset);
        offset += m->tensor[i]->count;
    }
    assert_true(m->layer[1].momentum == 0.25f);
    float *w = calloc(m->floats, sizeof *w);
    ls_init_weights(w, m, &(ls_init){LS_INIT_NORMAL, 0.01f}, 0);
    for (size_t k = 0; k < 5; k++) {
        assert_true(w[m->param[2]->offset + k] == 1 && w[m->param[3]->offset + k] == 0);
        assert_true(w[m->stat[0]->offset + k] == 0 && w[m->stat[1]->offset + k] == 1);
    }
    free(w);
    free_model(m);
}

/* Two dropout layers must not drop the same elements. */
static void each_dropout_draws_from_a_stream_of_its_own(void **state)
{
    (void)state;
    ls_network *m = make_model("[{\"type\":\"dropout\"},{\"type\":\"dropout\",\"p\":0.25},"
                               "{\"type\":\"dense\",\"out\":3}]",
                               (ls_shape){4, 1, 1}, 3);
    const ls_dropout *a = &m->layer[0].op.u.dropout;
    const ls_dropout *b = &m->layer[1].op.u.dropout;
    assert_true(a->p == 0.5f && b->p == 0.25f);
    assert_true(a->stream >= 0x1000 && b->stream > a->stream);
    free_model(m);
}

/* ---- fusion --------------------------------------------------------------------------------- */

static void assert_fused(const ls_network *m, const char *first, const char *last, int forms)
{
    ls_fuse_form f[LS_FUSE_FORMS];
    assert_int_equal(ls_fuse_forms(f, m, layer_called(m, first)), forms);
    assert_string_equal(m->layer[f[0].last].name, last);
    assert_int_equal(f[forms - 1].last, f[forms - 1].first);
}

static void what_may_be_fused_is_offered(void **state)
{
    (void)state;
    ls_network *m = make_model(
        "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":2,\"kernel\":1},"
        "{\"type\":\"batch_norm\",\"name\":\"n1\"},{\"type\":\"relu\",\"name\":\"r1\"},"
        "{\"type\":\"conv2d\",\"name\":\"c2\",\"out\":2,\"kernel\":1},"
        "{\"type\":\"batch_norm\",\"name\":\"n2\"},{\"type\":\"add\",\"name\":\"a2\",\"with\":\"r1\"},"
        "{\"type\":\"relu\",\"name\":\"r2\"},"
        /* the add's other input comes after n3 */
        "{\"type\":\"batch_norm\",\"name\":\"n3\"},"
        "{\"type\":\"conv2d\",\"name\":\"c3\",\"out\":2,\"kernel\":1,\"from\":\"r2\"},"
        "{\"type\":\"add\",\"name\":\"a3\",\"with\":\"n3\"},{\"type\":\"relu\",\"name\":\"r3\"},"
        /* two layers read this batch norm, so no layer is fused with it */
        "{\"type\":\"batch_norm\",\"name\":\"n4\"},{\"type\":\"relu\",\"name\":\"r4\"},"
        "{\"type\":\"add\",\"name\":\"a4\",\"with\":\"n4\"},"
        "{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
        (ls_shape){1, 3, 3}, 3);
    assert_fused(m, "n1", "r1", 2);
    assert_fused(m, "n2", "r2", 2);
    assert_fused(m, "n3", "n3", 1);
    assert_fused(m, "a3", "r3", 2);
    assert_fused(m, "n4", "n4", 1);
    assert_fused(m, "a4", "a4", 1);
    ls_fuse_form f[LS_FUSE_FORMS];
    int input[LS_INPUTS];
    ls_fuse_forms(f, m, layer_called(m, "n2"));
    ls_op_desc d = ls_fuse_desc(m, &f[0]);
    assert_true(d.fuse_add && d.fuse_relu && !d.fuse_pool);
    assert_int_equal(ls_fuse_inputs(input, m, &f[0]), 2);
    assert_int_equal(input[0], layer_called(m, "c2"));
    assert_int_equal(input[1], layer_called(m, "r1"));
    free_model(m);
}

/* ---- liveness ------------------------------------------------------------------------------- */

static void buffers_share_memory_when_they_may(void **state)
{
    (void)state;
    ls_live_buffer chain[] = {
        {.bytes = 100, .first = 0, .last = 1}, {.bytes = 300, .first = 1, .last = 2},
        {.bytes = 64, .first = 2, .last = 3},  {.bytes = 0, .first = 0, .last = 9},
        {.bytes = 130, .first = 3, .last = 4}, {.bytes = 1, .first = 0, .last = 4},
    };
    assert_int_equal(ls_place_buffers(chain, 6, 0), 128 + 320 + 64 + 192 + 64);
    assert_int_equal(ls_live_bytes(chain, 6), 128 + 320 + 64);
    assert_int_equal(ls_place_buffers(chain, 6, 1), 128 + 320 + 64);
    assert_int_equal(chain[1].at, 0);
    assert_int_equal(chain[4].at, 0);
    assert_int_equal(chain[0].at, 320);
}

/* Buffers that are needed at the same time must not overlap. The total size must be close to the
 * lower bound. */
static void random_buffers_never_overlap(void **state)
{
    (void)state;
    enum { N = 60, ROUNDS = 50 };
    uint32_t seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        ls_live_buffer b[N] = {0};
        for (int i = 0; i < N; i++) {
            seed = seed * 1664525u + 1013904223u;
            b[i].bytes = (seed >> 8) % 5000;
            b[i].first = (int)((seed >> 20) % 40);
            b[i].last = b[i].first + (int)((seed >> 4) % 12);
        }
        size_t all = ls_place_buffers(b, N, 1);
        assert_true(all >= ls_live_bytes(b, N) && 2 * ls_live_bytes(b, N) >= all);
        for (int i = 0; i < N; i++) {
            assert_int_equal(b[i].at % 64, 0);
            assert_true(b[i].at + b[i].bytes <= all);
            for (int k = 0; k < i; k++)
                if (b[i].first <= b[k].last && b[k].first <= b[i].last)
                    assert_true(b[i].at + b[i].bytes <= b[k].at ||
                                b[k].at + b[k].bytes <= b[i].at || !b[i].bytes || !b[k].bytes);
        }
    }
}

static void impossible_sizes_do_not_wrap_around(void **state)
{
    (void)state;
    ls_live_buffer b[] = {{.bytes = SIZE_MAX - 3}, {.bytes = SIZE_MAX / 2}, {.bytes = SIZE_MAX}};
    assert_true(ls_place_buffers(b, 3, 1) >= SIZE_MAX / 4);
    assert_true(ls_place_buffers(b, 3, 0) >= SIZE_MAX / 4);
    assert_true(ls_live_bytes(b, 3) >= SIZE_MAX / 4);
}

/* ---- ResNet-18 ------------------------------------------------------------------------------ */

static void resnet_has_the_books_parameters(void **state)
{
    (void)state;
    ls_network *m = model_of_config(EXAMPLES "/resnet18.json", (ls_shape){1, 28, 28}, 10);
    int projections = 0;
    int norms = 0;
    assert_int_equal(m->parameters, 11175818);
    for (int i = 0; i < m->layers; i++) {
        const ls_layer *l = &m->layer[i];
        norms += l->op.kind == LS_OP_BATCHNORM;
        projections += l->op.kind == LS_OP_CONV2D && l->op.u.conv2d.kh == 1;
        /* all convolutions have biases */
        assert_true(l->op.kind != LS_OP_CONV2D || l->params == 2);
    }
    assert_int_equal(norms, 17);
    assert_int_equal(projections, 3);
    assert_int_equal(m->floats - m->parameters, 2 * (64 * 5 + 4 * (128 + 256 + 512)));
    assert_reads(m, "b2.conv1", "b1.1.6", NULL);
    assert_reads(m, "b2.6", "b2.bn2", "b2.conv3");
    const ls_shape *last = &m->layer[layer_called(m, "b7.6")].out;
    assert_int_equal(last->c * 10000 + last->h * 100 + last->w, 512 * 10000 + 404);
    free_model(m);
}

/* In every block both batch norms are fused with the layers that follow them. */
static void resnets_blocks_are_fused(void **state)
{
    (void)state;
    ls_network *m = model_of_config(EXAMPLES "/resnet18.json", (ls_shape){1, 28, 28}, 10);
    assert_fused(m, "bn", "2", 2);
    assert_fused(m, "b1.1.bn1", "b1.1.2", 2);
    assert_fused(m, "b1.1.bn2", "b1.1.6", 2);
    assert_fused(m, "b6.bn2", "b6.7", 2);
    free_model(m);
}

LS_TESTS(nn_graph, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_written_out),
        cmocka_unit_test(a_batch_norm_has_four_tensors_in_pytorchs_order),
        cmocka_unit_test(each_dropout_draws_from_a_stream_of_its_own),
        cmocka_unit_test(what_may_be_fused_is_offered),
        cmocka_unit_test(buffers_share_memory_when_they_may),
        cmocka_unit_test(random_buffers_never_overlap),
        cmocka_unit_test(impossible_sizes_do_not_wrap_around),
        cmocka_unit_test(resnet_has_the_books_parameters),
        cmocka_unit_test(resnets_blocks_are_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
