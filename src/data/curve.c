/* SPDX-License-Identifier: MIT */
/* How far the dependence of values on the rows is from linear (curve.h).
 *
 * Both models are kernel ridge regressions, whose error on a row that is left out follows from one
 * inverse: with P = (K + λI)⁻¹ the error of row i is (P y)ᵢ / Pᵢᵢ. */
#include "data/curve.h"

#include "base/error.h"
#include "base/host.h"

#include <math.h>
#include <string.h>

enum {
    FEWEST_ROWS = 20,
    MOST_ROWS = 300,      /* size of the sample */
    MOST_INPUTS = 1 << 11 /* largest number of numbers in a row */
};

typedef struct sample {
    size_t rows, inputs, targets;
    double *x, *y;      /* [rows][inputs], [rows][targets]: columns with mean 0 */
    double *near, *dot; /* [rows][rows]: squared distances, inner products; the mean of each is 1 */
    double *kernel;     /* [rows][rows] */
    double *solved;     /* [rows] */
} sample;

/* Subtracts the mean of each column, and divides by its deviation if `scale` is set. */
static void centre(double *v, size_t rows, size_t columns, bool scale)
{
    for (size_t k = 0; k < columns; k++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < rows; i++)
            sum += v[i * columns + k];
        for (size_t i = 0; i < rows; i++) {
            v[i * columns + k] -= sum / (double)rows;
            squares += v[i * columns + k] * v[i * columns + k];
        }
        const double deviation = squares > 0 ? sqrt(squares / (double)rows) : 1;
        for (size_t i = 0; scale && i < rows; i++)
            v[i * columns + k] /= deviation;
    }
}

/* Copies rows from all parts of the dataset. */
static void take_rows(sample *s, const ls_dataset *ds)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    for (size_t i = 0; i < s->rows; i++) {
        const size_t at = i * info->rows / s->rows, row = view.row ? view.row[at] : at;
        for (size_t k = 0; k < s->inputs; k++)
            s->x[i * s->inputs + k] = info->row_type == LS_ROW_F32
                                          ? (double)view.values[row * s->inputs + k]
                                          : view.images[row * s->inputs + k];
        for (size_t k = 0; k < s->targets; k++)
            s->y[i * s->targets + k] = (double)view.targets[row * s->targets + k];
    }
    centre(s->x, s->rows, s->inputs, false);
    centre(s->y, s->rows, s->targets, true);
}

/* Fills `near` and `dot`. */
static void compare_rows(sample *s)
{
    const size_t n = s->rows;
    double near = 0, dot = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            double squares = 0, products = 0;
            for (size_t k = 0; k < s->inputs; k++) {
                const double a = s->x[i * s->inputs + k], b = s->x[j * s->inputs + k];
                squares += (a - b) * (a - b);
                products += a * b;
            }
            s->near[i * n + j] = squares;
            s->dot[i * n + j] = products;
            near += squares / (double)(n * n);
            dot += i == j ? products / (double)n : 0;
        }
    for (size_t i = 0; i < n * n && near > 0; i++) {
        s->near[i] /= near;
        s->dot[i] /= dot;
    }
}

/* Inverts the symmetric positive definite matrix `a` [n][n] in place, up to its sign. */
static void invert(double *a, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        double *at = a + k * n;
        const double pivot = 1 / at[k];
        for (size_t j = 0; j < n; j++)
            at[j] *= pivot;
        at[k] = -pivot;
        for (size_t i = 0; i < n; i++) {
            const double f = a[i * n + k];
            if (i == k)
                continue;
            for (size_t j = 0; j < n; j++)
                a[i * n + j] -= f * at[j];
            a[i * n + k] = f * pivot;
        }
    }
}

/* Returns the mean squared error, for targets with a deviation of 1, of a model whose curves have
 * the squared width `width`, relative to the mean squared distance of two rows; 0: no curves. */
static double error_of(sample *s, double width, double ridge)
{
    enum { SIZE = 10 }; /* variance of the functions, relative to that of the targets */
    const size_t n = s->rows;
    double squares = 0;
    for (size_t i = 0; i < n * n; i++)
        s->kernel[i] = SIZE * (1 + s->dot[i] + (width > 0 ? exp(-s->near[i] / width) : 0)) +
                       (i % (n + 1) == 0 ? ridge : 0);
    invert(s->kernel, n);
    for (size_t k = 0; k < s->targets; k++)
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (size_t j = 0; j < n; j++)
                sum += s->kernel[i * n + j] * s->y[j * s->targets + k];
            squares += pow(sum / s->kernel[i * n + i], 2);
        }
    return squares / (double)(n * s->targets);
}

static double least_error(sample *s, const double *width, int widths)
{
    static const double ridge[] = {0.1, 1, 10};
    double least = INFINITY;
    for (int w = 0; w < widths; w++)
        for (int r = 0; r < 3; r++)
            least = fmin(least, error_of(s, width[w], ridge[r]));
    return least;
}

int ls_curve_measure(double *part, const ls_dataset *ds, const ls_host *host, ls_error *err)
{
    static const double line[] = {0}, curve[] = {1, 0.25, 0.03};
    const ls_dataset_info *info = ls_dataset_describe(ds);
    sample s = {.rows = info->rows < MOST_ROWS ? info->rows : MOST_ROWS,
                .inputs = (size_t)info->channels * (size_t)info->height * (size_t)info->width,
                .targets = (size_t)info->targets};
    *part = 0;
    if (!ls_dataset_resident(ds).images || s.targets == 0 || s.targets > MOST_ROWS ||
        s.rows < FEWEST_ROWS || s.inputs > MOST_INPUTS)
        return LS_OK;
    double *memory =
        ls_alloc_array(host, s.rows * (s.inputs + s.targets + 3 * s.rows), sizeof *memory);
    if (!memory)
        return ls_fail(err, LS_ENOMEM, "out of memory for a sample of %zu rows", s.rows);
    s.x = memory;
    s.y = s.x + s.rows * s.inputs;
    s.near = s.y + s.rows * s.targets;
    s.dot = s.near + s.rows * s.rows;
    s.kernel = s.dot + s.rows * s.rows;
    take_rows(&s, ds);
    compare_rows(&s);
    const double straight = least_error(&s, line, 1), curved = least_error(&s, curve, 3);
    if (straight > 0 && curved < straight)
        *part = 1 - curved / straight;
    ls_free(host, memory);
    return LS_OK;
}
