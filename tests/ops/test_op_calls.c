/* What holds across calls and across the ops of one layer, on every back end. */
#include "ops/op_cases.h"
#include "ops/op_devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CASES 200

/* Nothing of an earlier step, or of how often an op was made, shows in a result. */
static void same_rows_give_the_same_bits(void **state)
{
    const op_fixture *f = *state;
    for (uint64_t seed = 10000; seed < 10000 + CASES; seed++) {
        op_chain chain = op_make_any(seed);
        op_inputs *in = op_inputs_create(&chain, seed);
        op_inputs *other = op_inputs_create(&chain, seed + 5000);
        op_result *once = op_once(f->device, &chain, in);
        op_run *run = once ? op_run_open(f->device, &chain, NULL) : NULL;
        if (run) {
            op_run_params(run, in);
            op_run_step(run, other, 0, 0);
            op_run_step(run, other, 0, LS_RUN_ACCUMULATE);
            op_run_step(run, in, 0, 0);
            op_result *again = op_run_read(run);
            op_expect_same(f->which->name, &chain, again, once);
            op_result_destroy(again);
        }
        op_run_close(run);
        op_result_destroy(once);
        op_inputs_destroy(in);
        op_inputs_destroy(other);
    }
}

/* Two blocks, by an op and its twin for another number of rows, on the same parameters: the second
 * adds to the gradients and the loss of the first, and the sum is that of the whole. */
static void blocks_of_twins_add_up_to_the_whole(void **state)
{
    const op_fixture *f = *state;
    for (uint64_t seed = 11000; seed < 11000 + CASES; seed++) {
        op_chain whole = op_make_any(seed);
        int rows = whole.op[0].x.rows, cut = (rows + 1) / 3;
        if (cut < 1)
            continue;
        op_chain first = whole, second = whole;
        first.op[0].x.rows = cut;
        second.op[0].x.rows = rows - cut;
        op_inputs *in = op_inputs_create(&whole, seed);
        op_run *a = op_run_open(f->device, &first, NULL);
        op_run *b = a ? op_run_open(f->device, &second, a) : NULL;
        if (b) {
            op_run_params(a, in);
            op_run_step(a, in, 0, 0);
            op_run_step(b, in, cut, LS_RUN_ACCUMULATE);
            op_result *got = op_run_read(b), *want = op_reference(&whole, in);
            for (int i = 0; i < got->items; i++) /* the second block's alone */
                if (got->item[i].name[0] != 'g')
                    got->item[i].name[0] = '-';
            op_expect_near(f->which->name, &whole, got, want, OP_TOLERANCE);
            op_result_destroy(got);
            op_result_destroy(want);
        } else if (!op_may_decline(f, &whole)) {
            fail_msg("%s declined %s", f->which->name, op_chain_text(&whole));
        }
        op_run_close(b);
        op_run_close(a);
        op_inputs_destroy(in);
    }
}

static op_chain make_without_dx(uint64_t seed)
{
    op_chain chain = op_make_any(seed);
    chain.needs_dx = 0;
    return chain;
}

static op_chain make_inference(uint64_t seed)
{
    op_chain chain = op_make_any(seed);
    chain.training = chain.needs_dx = 0;
    return chain;
}

static void gradients_do_not_need_dx(void **state)
{
    op_all_agree(state, make_without_dx, 12000, 70);
}

static void inference_needs_no_gradients(void **state)
{
    op_all_agree(state, make_inference, 13000, 70);
}

int main(int argc, char **argv)
{
    static const op_test tests[] = {
        OP_TEST(same_rows_give_the_same_bits),
        OP_TEST(blocks_of_twins_add_up_to_the_whole),
        OP_TEST(gradients_do_not_need_dx),
        OP_TEST(inference_needs_no_gradients),
    };
    return op_run_groups(tests, (int)(sizeof tests / sizeof tests[0]), argc, argv);
}
