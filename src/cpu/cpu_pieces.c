#include "cpu/cpu_pieces.h"

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
