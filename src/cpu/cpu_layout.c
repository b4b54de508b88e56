#include "cpu/cpu_layout.h"

const ls_layout ls_layout_lanes = {LS_CPU_LANES, NULL};

bool ls_layout_is_lanes(const ls_layout *layout)
{
    return layout && layout->kind == LS_CPU_LANES;
}

size_t ls_lanes_groups(int rows)
{
    return ((size_t)rows + LS_LANES - 1) / LS_LANES;
}

size_t ls_lanes_bytes(int rows, int c, int h, int w)
{
    return ls_lanes_groups(rows) * LS_LANES * (size_t)c * (size_t)h * (size_t)w * sizeof(float);
}

ls_tensor ls_lanes_tensor(const ls_tensor *like)
{
    ls_tensor t = *like;
    t.layout = &ls_layout_lanes;
    t.bytes = ls_lanes_bytes(t.rows, t.c, t.h, t.w);
    return t;
}

ls_planes ls_planes_of_lanes(int rows, int c, int h, int w)
{
    size_t pixels = (size_t)h * (size_t)w;
    int groups = (int)ls_lanes_groups(rows);
    return (ls_planes){.rows = groups,
                       .parts = c,
                       .channels = 1,
                       .row = (size_t)c * pixels * LS_LANES,
                       .part = pixels * LS_LANES,
                       .count = pixels,
                       .step = LS_LANES,
                       .width = LS_LANES,
                       .last_width = rows - (groups - 1) * LS_LANES,
                       .lanes = 1};
}

static int rows_of_group(int rows, int group)
{
    int left = rows - group * LS_LANES;
    return left < LS_LANES ? left : LS_LANES;
}

/* One line of pixels of one group. */
static void pack_line(float *lanes, const float *line, const ls_strided *s, int rows)
{
    for (int x = 0; x < s->w; x++, lanes += LS_LANES) {
        const float *pixel = line + x * s->pixel;
        for (int l = 0; l < rows; l++)
            lanes[l] = pixel[l * s->row];
        for (int l = rows; l < LS_LANES; l++)
            lanes[l] = 0;
    }
}

static void unpack_line(float *line, const float *lanes, const ls_strided *s, int rows)
{
    for (int x = 0; x < s->w; x++, lanes += LS_LANES) {
        float *pixel = line + x * s->pixel;
        for (int l = 0; l < rows; l++)
            pixel[l * s->row] = lanes[l];
    }
}

void ls_lanes_pack(float *lanes, const float *strided, const ls_strided *s)
{
    for (int g = 0; g * LS_LANES < s->rows; g++) {
        int rows = rows_of_group(s->rows, g);
        const float *group = strided + (ptrdiff_t)g * LS_LANES * s->row;
        for (int c = 0; c < s->c; c++) {
            for (int y = 0; y < s->h; y++) {
                pack_line(lanes, group + c * s->channel + y * s->line, s, rows);
                lanes += (size_t)s->w * LS_LANES;
            }
        }
    }
}

void ls_lanes_unpack(float *strided, const float *lanes, const ls_strided *s)
{
    for (int g = 0; g * LS_LANES < s->rows; g++) {
        int rows = rows_of_group(s->rows, g);
        float *group = strided + (ptrdiff_t)g * LS_LANES * s->row;
        for (int c = 0; c < s->c; c++) {
            for (int y = 0; y < s->h; y++) {
                unpack_line(group + c * s->channel + y * s->line, lanes, s, rows);
                lanes += (size_t)s->w * LS_LANES;
            }
        }
    }
}

#define LINE 16 /* floats of a row that are worked through at a time: a line of cache */

void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *t)
{
    const size_t row = (size_t)t->c * (size_t)t->h * (size_t)t->w;
    for (int first = 0; first < t->rows; first += LS_LANES, lanes += row * LS_LANES) {
        const int rows = rows_of_group(t->rows, first / LS_LANES);
        const float *from = plain + (size_t)first * row;
        for (size_t at = 0; at < row; at += LINE)
            for (int l = 0; l < LS_LANES; l++)
                for (size_t e = at; e < at + LINE && e < row; e++)
                    lanes[e * LS_LANES + (size_t)l] = l < rows ? from[(size_t)l * row + e] : 0;
    }
}

void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *t)
{
    const size_t row = (size_t)t->c * (size_t)t->h * (size_t)t->w;
    for (int first = 0; first < t->rows; first += LS_LANES, lanes += row * LS_LANES) {
        const int rows = rows_of_group(t->rows, first / LS_LANES);
        float *to = plain + (size_t)first * row;
        for (size_t at = 0; at < row; at += LINE)
            for (int l = 0; l < rows; l++)
                for (size_t e = at; e < at + LINE && e < row; e++)
                    to[(size_t)l * row + e] = lanes[e * LS_LANES + (size_t)l];
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

#define MOST 512 /* vectors of a piece: 32 KiB */

ls_pieces ls_pieces_of(const ls_planes *planes, int threads)
{
    ls_pieces p = {.planes = *planes, .most = MOST, .rows = 1, .together = 1, .threads = threads};
    size_t plane = planes->count + (planes->tail > 0);
    if (!planes->lanes && planes->count < MOST)
        p.rows = (int)(MOST / plane);
    if (planes->channels > 1 && planes->part == (size_t)planes->channels) { /* channels last */
        p.most = planes->step > 4096 ? 16 : 65536 / planes->step;
        if (p.most > MOST)
            p.most = MOST;
        p.together = (planes->parts + threads - 1) / threads;
    }
    return p;
}

static double values_of(const ls_planes *planes, const ls_piece *piece)
{
    double n = (double)piece->run.count;
    if (planes->channels == 1)
        n = n * piece->run.width + piece->tail.width;
    return n * (double)piece->run.rows;
}

static ls_piece piece_of(const ls_pieces *pieces, int row, size_t first, int part)
{
    const ls_planes *p = &pieces->planes;
    int rows = p->rows - row < pieces->rows ? p->rows - row : pieces->rows;
    size_t left = p->count - first, count = left < pieces->most ? left : pieces->most;
    int last = p->lanes ? row == p->rows - 1 : part == p->parts - 1;
    ls_piece piece = {.part = part};
    piece.at = (size_t)row * p->row + (size_t)part * p->part + first * p->step;
    piece.run = (ls_run){.rows = (size_t)rows,
                         .row = p->row,
                         .count = count,
                         .step = p->step,
                         .width = last ? p->last_width : p->width};
    piece.padded = p->lanes && piece.run.width < LS_RUN_LANES;
    if (p->tail && first + count == p->count) {
        piece.tail = (ls_run){
            .rows = (size_t)rows, .row = p->row, .count = 1, .step = p->step, .width = p->tail};
        piece.tail_at = piece.at + count * p->step;
    }
    piece.values = values_of(p, &piece);
    return piece;
}

void ls_pieces_walk(const ls_pieces *p, int part, int end, void *self, ls_piece_fn visit)
{
    const ls_planes *planes = &p->planes;
    double before = 0;
    for (int row = 0; row < planes->rows; row += p->rows)
        for (size_t first = 0; first == 0 || first < planes->count; first += p->most) {
            ls_piece piece = {0};
            for (int i = part; i < end; i++) {
                piece = piece_of(p, row, first, i);
                piece.before = before;
                visit(self, &piece);
            }
            before += piece.values;
        }
}

void ls_pieces_share(const ls_pieces *p, void *self, unsigned flags, ls_parts_fn run)
{
    int parts = p->planes.parts, team = p->threads, step = p->together;
    if (team <= 1) { /* without a parallel region, whose team libgomp would allocate */
        for (int part = 0; part < parts; part += step)
            run(self, part, part + step < parts ? part + step : parts, flags);
        return;
    }
#pragma omp parallel for num_threads(team) schedule(static)
    for (int part = 0; part < parts; part += step)
        run(self, part, part + step < parts ? part + step : parts, flags);
}

int ls_pieces_channel(const ls_pieces *p, int channels, int part, int lane)
{
    int each = p->planes.channels, c = each == 1 ? part : part * each + lane;
    return lane < each && c < channels ? c : -1;
}
