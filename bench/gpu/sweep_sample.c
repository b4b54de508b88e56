/* gpu_sweep: the operands, and single outputs of a pass in double. */
#include "sweep.h"

#include <math.h>
#include <string.h>

enum { A, B, BIAS }; /* the operands */

/* The upper half of an fp32 number is a bf16 number. */
void sweep_fill(unsigned char *block, uint64_t x, int half, int tf32)
{
    for (size_t i = 0; i < SWEEP_BLOCK / (half ? 2 : 4); i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const float value = (float)(int32_t)(x >> 32) * 0x1p-31f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t upper = (uint16_t)(bits >> 16);
        bits &= tf32 ? 0xffffe000u : 0xffffffffu;
        memcpy(block + (half ? 2 : 4) * i, half ? (void *)&upper : (void *)&bits, half ? 2 : 4);
    }
}

double sweep_number(const unsigned char *memory, size_t at, int half)
{
    uint32_t bits = 0;
    float value;
    if (half)
        memcpy((unsigned char *)&bits + 2, memory + 2 * at, 2);
    else
        memcpy(&bits, memory + 4 * at, 4);
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* An operand is its block, repeated. */
static double operand(unsigned char *const block[3], const ls_math_shape *s, int which, size_t at)
{
    return sweep_number(block[which], at % (SWEEP_BLOCK / (s->half ? 2 : 4)), s->half);
}

size_t sweep_elements(const ls_math_shape *s, int which)
{
    const size_t x = (size_t)s->rows * (size_t)s->h * (size_t)s->w * (size_t)s->c;
    const size_t y = (size_t)s->rows * (size_t)s->y_h * (size_t)s->y_w * (size_t)s->out;
    const size_t w = (size_t)s->out * (size_t)s->kh * (size_t)s->kw * (size_t)s->c;
    const size_t role[3][3] = {{x, w, y}, {y, w, x}, {x, y, w}}; /* a, b, out */
    return role[s->kind][which];
}

static size_t at_x(const ls_math_shape *s, int n, int h, int w, int c)
{
    return (((size_t)n * (size_t)s->h + (size_t)h) * (size_t)s->w + (size_t)w) * (size_t)s->c +
           (size_t)c;
}

static size_t at_y(const ls_math_shape *s, int n, int h, int w, int o)
{
    return (((size_t)n * (size_t)s->y_h + (size_t)h) * (size_t)s->y_w + (size_t)w) *
               (size_t)s->out +
           (size_t)o;
}

static size_t at_w(const ls_math_shape *s, int o, int i, int j, int c)
{
    return (((size_t)o * (size_t)s->kh + (size_t)i) * (size_t)s->kw + (size_t)j) * (size_t)s->c +
           (size_t)c;
}

typedef struct sum {
    unsigned char *const *block;
    const ls_math_shape *s;
    double exact, magnitude;
} sum;

static void add(sum *t, size_t a, size_t b)
{
    const double term = operand(t->block, t->s, A, a) * operand(t->block, t->s, B, b);
    t->exact += term;
    t->magnitude += fabs(term);
}

static void sum_forward(sum *t, int n, int h, int w, int o)
{
    const ls_math_shape *s = t->s;
    for (int i = 0; i < s->kh; i++)
        for (int j = 0; j < s->kw; j++) {
            const int y = h * s->sh - s->ph + i, x = w * s->sw - s->pw + j;
            for (int c = 0; c < s->c && y >= 0 && y < s->h && x >= 0 && x < s->w; c++)
                add(t, at_x(s, n, y, x, c), at_w(s, o, i, j, c));
        }
    if (!s->bias)
        return;
    const double bias = operand(t->block, s, BIAS, (size_t)o);
    t->exact += bias;
    t->magnitude += fabs(bias);
    if (s->relu && t->exact < 0)
        t->exact = 0;
}

static void sum_data(sum *t, int n, int h, int w, int c)
{
    const ls_math_shape *s = t->s;
    for (int i = 0; i < s->kh; i++)
        for (int j = 0; j < s->kw; j++) {
            const int y = h + s->ph - i, x = w + s->pw - j;
            if (y < 0 || x < 0 || y % s->sh || x % s->sw || y / s->sh >= s->y_h ||
                x / s->sw >= s->y_w)
                continue;
            for (int o = 0; o < s->out; o++)
                add(t, at_y(s, n, y / s->sh, x / s->sw, o), at_w(s, o, i, j, c));
        }
}

static void sum_weights(sum *t, int o, int i, int j, int c)
{
    const ls_math_shape *s = t->s;
    for (int n = 0; n < s->rows; n++)
        for (int h = 0; h < s->y_h; h++)
            for (int w = 0; w < s->y_w; w++) {
                const int y = h * s->sh - s->ph + i, x = w * s->sw - s->pw + j;
                if (y >= 0 && y < s->h && x >= 0 && x < s->w)
                    add(t, at_x(s, n, y, x, c), at_y(s, n, h, w, o));
            }
}

void sweep_choose(sweep_samples *out, unsigned char *const block[3], const ls_math_shape *s)
{
    const int size[3][4] = {{s->rows, s->y_h, s->y_w, s->out},
                            {s->rows, s->h, s->w, s->c},
                            {s->out, s->kh, s->kw, s->c}};
    uint64_t x = sweep_elements(s, 2);
    for (int k = 0; k < SWEEP_SAMPLES; k++) {
        int at[4];
        for (int d = 0; d < 4; d++) {
            const int most = size[s->kind][d];
            x = x * 6364136223846793005u + 1442695040888963407u;
            at[d] = k < 16 ? (k >> d & 1) * (most - 1) : (int)((x >> 33) % (uint64_t)most);
        }
        sum t = {block, s, 0, 0};
        (s->kind == LS_MATH_CONV        ? sum_forward
         : s->kind == LS_MATH_CONV_DATA ? sum_data
                                        : sum_weights)(&t, at[0], at[1], at[2], at[3]);
        out->at[k] =
            (((size_t)at[0] * (size_t)size[s->kind][1] + (size_t)at[1]) * (size_t)size[s->kind][2] +
             (size_t)at[2]) *
                (size_t)size[s->kind][3] +
            (size_t)at[3];
        out->exact[k] = t.exact;
        out->magnitude[k] = t.magnitude;
    }
}
