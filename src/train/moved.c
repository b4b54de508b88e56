/* SPDX-License-Identifier: MIT */
/* Moves trained weights into a network with other inputs and outputs (moved.h). */
#include "train/moved.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

enum { NO_FEATURE = -1, MIXED = -2 };

/* A channel that a layer reads. */
typedef struct channel {
    int feature; /* number of the row's value in it; NO_FEATURE; MIXED: computed from some of them
                  */
    bool plain;  /* no activation has changed the value */
} channel;

/* One of the two networks. */
typedef struct side {
    const ls_network *model;
    bool *carries; /* [layers] values of the row are among the channels of the layer's output */
} side;

/* A layer of the new network, and the layer of the same name in the old one. */
typedef struct pair {
    const ls_layer *to, *from;
    ls_origin *column;    /* [channels that `to` reads]; NULL: they are the same */
    const ls_origin *row; /* [channels of the output]; NULL: they are the same */
    bool scales_rows;     /* no activation follows the layer */
} pair;

typedef struct moving {
    const ls_move *move;
    side to, from;
    const char *unscaled; /* name of a layer whose weights could not be scaled; NULL: none */
    ls_error *err;
} moving;

/* ---- which channels are values of the row ---------------------------------------------------- */

/* Returns whether each channel of the output is computed from the same channel of the input. */
static bool keeps_places(const ls_layer *l)
{
    return l->inputs == 1 && l->out.c == l->in.c && l->op.kind != LS_OP_DENSE &&
           l->op.kind != LS_OP_CONV2D;
}

static bool keeps_values(const ls_layer *l)
{
    return l->op.kind == 0 || l->op.kind == LS_OP_DROPOUT;
}

static bool is_carried(const side *s, int layer)
{
    return layer == LS_INPUT || s->carries[layer];
}

static int find_carriers(side *s, const ls_network *model, const moving *m)
{
    s->model = model;
    s->carries = ls_alloc_array(m->move->host, (size_t)model->layers, sizeof *s->carries);
    if (!s->carries)
        return ls_fail(m->err, LS_ENOMEM, "out of memory for %d layers", model->layers);
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *l = &model->layer[i];
        s->carries[i] =
            (l->inputs == 2 || keeps_places(l)) &&
            (is_carried(s, l->input[0]) || (l->inputs == 2 && is_carried(s, l->input[1])));
    }
    return LS_OK;
}

/* Follows channel `c` of the output of layer number `at` back to the row. */
static channel follow(const side *s, int at, int c)
{
    channel out = {.feature = NO_FEATURE, .plain = true};
    while (at != LS_INPUT && s->carries[at]) {
        const ls_layer *l = &s->model->layer[at];
        const int second = l->op.kind == LS_OP_CONCAT && c >= l->in.c;
        if (l->op.kind != LS_OP_CONCAT && l->inputs == 2) {
            out.feature = MIXED;
            return out;
        }
        out.plain = out.plain && (l->op.kind == LS_OP_CONCAT || keeps_values(l));
        at = l->input[second];
        c -= second ? l->in.c : 0;
    }
    if (at == LS_INPUT)
        out.feature = c;
    return out;
}

/* ---- origins of a layer's weights ------------------------------------------------------------ */

static int fail_mixed(const moving *m, const ls_layer *l)
{
    return ls_fail(m->err, LS_EDATA,
                   "%.200s: its columns or classes are others, or in another order, and layer "
                   "\"%.60s\" mixes them, so no weight belongs to one of them; begin without the "
                   "file",
                   m->move->path, l->name);
}

/* Lists the channels that a layer of the old network reads: where[i] becomes the channel of the
 * row's value i, and other[0 … *others − 1] the channels that are no values of the row. */
static int list_channels(int *where, int *other, int *others, const pair *p, const moving *m)
{
    *others = 0;
    for (int i = 0; i < m->from.model->input.c; i++)
        where[i] = -1;
    for (int c = 0; c < p->from->in.c; c++) {
        const channel is = follow(&m->from, p->from->input[0], c);
        if (is.feature == MIXED || (is.feature >= 0 && where[is.feature] >= 0))
            return fail_mixed(m, p->from);
        if (is.feature >= 0)
            where[is.feature] = c;
        else
            other[(*others)++] = c;
    }
    return LS_OK;
}

/* Sets p->column by what is known of the old network's channels. *fits becomes false if it reads
 * another number of channels that are no values of the row. */
static int match_channels(pair *p, bool *fits, const int *where, const int *other, int others,
                          moving *m)
{
    int used = 0;
    for (int c = 0; c < p->to->in.c; c++) {
        const channel is = follow(&m->to, p->to->input[0], c);
        ls_origin *o = &p->column[c];
        *o = (ls_origin){.index = -1, .factor = 1};
        if (is.feature == MIXED)
            return fail_mixed(m, p->to);
        if (is.feature == NO_FEATURE) {
            o->index = used < others ? other[used] : -1;
            used++;
            continue;
        }
        const ls_origin *row = &m->move->input[is.feature];
        if (is.plain)
            *o = *row;
        else if (row->index >= 0 && (row->factor != 1 || row->shift != 0))
            m->unscaled = p->to->name;
        o->index = row->index >= 0 ? where[row->index] : -1;
    }
    *fits = used == others;
    return LS_OK;
}

/* Sets p->column, which the caller frees, also after a failure. */
static int find_columns(pair *p, bool *fits, moving *m)
{
    const ls_host *host = m->move->host;
    int others = 0;
    *fits = p->to->in.c == p->from->in.c;
    if (!m->move->input ||
        !(is_carried(&m->to, p->to->input[0]) || is_carried(&m->from, p->from->input[0])))
        return LS_OK;
    if (p->to->op.kind == LS_OP_CONV2D)
        return fail_mixed(m, p->to);
    int *where = ls_alloc_array(host, (size_t)m->from.model->input.c, sizeof *where);
    int *other = ls_alloc_array(host, (size_t)p->from->in.c, sizeof *other);
    p->column = ls_alloc_array(host, (size_t)p->to->in.c, sizeof *p->column);
    int status = where && other && p->column
                     ? LS_OK
                     : ls_fail(m->err, LS_ENOMEM, "out of memory for %d columns", p->to->in.c);
    if (status == LS_OK)
        status = list_channels(where, other, &others, p, m);
    if (status == LS_OK)
        status = match_channels(p, fits, where, other, others, m);
    ls_free(host, where);
    ls_free(host, other);
    return status;
}

/* Sets p->row, if the outputs of the network are those of the layer, up to layers that keep each
 * channel in its place. */
static int find_rows(pair *p, bool *fits, const moving *m)
{
    const ls_network *model = m->to.model;
    int at = model->layers - 1;
    *fits = p->to->out.c == p->from->out.c;
    p->scales_rows = true;
    while (m->move->output && at != LS_INPUT && &model->layer[at] != p->to &&
           keeps_places(&model->layer[at])) {
        p->scales_rows = p->scales_rows && keeps_values(&model->layer[at]);
        at = model->layer[at].input[0];
    }
    if (!m->move->output || at == LS_INPUT)
        return LS_OK;
    if (model->layer[at].inputs == 2)
        return fail_mixed(m, &model->layer[at]);
    if (&model->layer[at] == p->to) {
        p->row = m->move->output;
        *fits = p->from->out.c == m->from.model->classes;
    }
    return LS_OK;
}

/* ---- moving -----------------------------------------------------------------------------------
 */

static ls_origin origin_of(const ls_origin *list, int i)
{
    return list ? list[i] : (ls_origin){.index = i, .factor = 1};
}

static void move_dense(const pair *p, moving *m)
{
    const ls_param *to = p->to->param, *from = p->from->param;
    const float *old = m->move->old;
    float *new = m->move->weights;
    const int columns = to[0].dim[1];
    const bool biased = p->to->params > 1;
    for (int r = 0; r < to[0].dim[0]; r++) {
        ls_origin row = origin_of(p->row, r);
        if (row.index < 0)
            continue;
        if (!p->scales_rows && (row.factor != 1 || row.shift != 0)) {
            m->unscaled = p->to->name;
            row = (ls_origin){.index = row.index, .factor = 1};
        }
        const float *w = old + from[0].offset + (size_t)row.index * (size_t)from[0].dim[1];
        double shift = p->from->params > 1 ? (double)old[from[1].offset + (size_t)row.index] : 0;
        for (int c = 0; c < columns; c++) {
            const ls_origin o = origin_of(p->column, c);
            const double is = o.index < 0 ? 0 : (double)w[o.index];
            shift += is * o.shift;
            new[to[0].offset + (size_t)r * (size_t)columns + (size_t)c] =
                (float)(row.factor * o.factor * is);
        }
        shift = row.factor * shift + row.shift;
        if (biased)
            new[to[1].offset + (size_t)r] = (float)shift;
        else if (shift != 0)
            m->unscaled = p->to->name;
    }
}

/* Moves a tensor whose first dimension are the channels of the layer's output. */
static void move_channels(const ls_param *to, const ls_param *from, const ls_origin *place,
                          const moving *m)
{
    const size_t width = to->count / (size_t)to->dim[0];
    for (int r = 0; r < to->dim[0]; r++) {
        const ls_origin o = origin_of(place, r);
        if (o.index >= 0)
            memcpy(m->move->weights + to->offset + (size_t)r * width,
                   m->move->old + from->offset + (size_t)o.index * width, width * sizeof(float));
    }
}

static void move_layer(const pair *p, moving *m)
{
    const ls_origin *place = p->row ? p->row : p->column;
    if (p->to->op.kind == LS_OP_DENSE) {
        move_dense(p, m);
        return;
    }
    for (const ls_origin *o = place; o && o < place + p->to->out.c; o++)
        if (o->index >= 0 && (o->factor != 1 || o->shift != 0))
            m->unscaled = p->to->name;
    for (int i = 0; i < p->to->params; i++)
        move_channels(&p->to->param[i], &p->from->param[i], place, m);
    for (int i = 0; i < p->to->stats; i++)
        move_channels(&p->to->stat[i], &p->from->stat[i], place, m);
}

/* Returns whether both layers have as many tensors, and as many numbers for each channel of the
 * output. */
static bool is_as_wide(const pair *p)
{
    const ls_param *to = p->to->param, *from = p->from->param;
    return p->to->op.kind == LS_OP_DENSE ||
           (p->to->params == p->from->params &&
            to->count / (size_t)to->dim[0] == from->count / (size_t)from->dim[0]);
}

static int refuse(const moving *m, const ls_layer *l, const char *why)
{
    if (!m->move->partial)
        return ls_fail(m->err, LS_EDATA,
                       "%.200s: tensor \"%.80s\" %s; with \"partial\": true the others are read",
                       m->move->path, l->param[0].name, why);
    ls_log(m->move->host, LS_LOG_INFO, "%.200s: tensor \"%.80s\" %s: it begins as without the file",
           m->move->path, l->param[0].name, why);
    return LS_OK;
}

static int move_one(const ls_layer *l, moving *m)
{
    const ls_network *from = m->from.model;
    pair p = {.to = l};
    bool fits = true, fits_rows = true;
    for (int i = 0; i < from->layers && !p.from; i++)
        if (from->layer[i].params > 0 && strcmp(from->layer[i].name, l->name) == 0)
            p.from = &from->layer[i];
    if (!p.from)
        return refuse(m, l, "is not there");
    if (p.from->op.kind != l->op.kind)
        return refuse(m, l, "is of another kind of layer");
    int status = find_rows(&p, &fits_rows, m);
    if (status == LS_OK)
        status = find_columns(&p, &fits, m);
    const bool by_channel = l->op.kind != LS_OP_DENSE && l->op.kind != LS_OP_CONV2D;
    fits_rows = fits_rows || (by_channel && p.column);
    fits = fits || (by_channel && p.row);
    if (status == LS_OK && fits && fits_rows && is_as_wide(&p))
        move_layer(&p, m);
    else if (status == LS_OK)
        status = refuse(m, l, "has another shape");
    ls_free(m->move->host, p.column);
    return status;
}

int ls_move_weights(const ls_move *move, ls_error *err)
{
    moving m = {.move = move, .err = err};
    int status = find_carriers(&m.to, move->to, &m);
    if (status == LS_OK)
        status = find_carriers(&m.from, move->from, &m);
    for (int i = 0; i < move->to->layers && status == LS_OK; i++)
        if (move->to->layer[i].params > 0)
            status = move_one(&move->to->layer[i], &m);
    ls_free(move->host, m.to.carries);
    ls_free(move->host, m.from.carries);
    if (status == LS_OK && m.unscaled)
        ls_log(move->host, LS_LOG_WARNING,
               "init.weights: %.200s: means and deviations of columns or of the target differ, and "
               "layer \"%.60s\" has no bias or an activation beside it, so its weights are taken "
               "over unscaled",
               move->path, m.unscaled);
    return status;
}
