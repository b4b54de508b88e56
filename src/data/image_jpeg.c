/* SPDX-License-Identifier: MIT */
/* JPEG files, read by libjpeg. */
#include "data/image_kinds.h"
#include "data/picture_starts.h"

#include "base/error.h"

#include <string.h>

#ifdef LOCKSTEP_WITH_JPEG
#include <setjmp.h>
#include <stdio.h>
/* libjpeg's headers need stdio.h first. */
#include <jpeglib.h>

#include <jerror.h>

enum {
    /* limit of progressive scans; a file with thousands of them only wastes CPU time */
    MOST_SCANS = 100,
    /* limit of the number of tables that a decoder allocates, because it frees them only when it is
     * destroyed */
    MOST_TABLES = 64
};

/* A JPEG decoder. The tables in `quantiser` and `huffman` are hidden from libjpeg, see has_mark. */
typedef struct jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    bool scans; /* there are too many scans */
    bool is_there;
    int tables; /* number of tables that the decoder has allocated */
    JQUANT_TBL *quantiser[NUM_QUANT_TBLS];
    JHUFF_TBL *huffman[2][NUM_HUFF_TBLS];
} jpeg;

static void fail_jpeg(j_common_ptr d)
{
    longjmp(((jpeg *)d->client_data)->failed, 1);
}

/* Returns whether a file lacks only its end marker. In an image with a single scan, libjpeg reports
 * missing samples by another warning. In an image with several scans or arithmetic coding it does
 * not notice that data is missing, so the function returns false for these. */
static bool lacks_its_end_alone(const jpeg *j)
{
    return j->d.input_scan_number == 1 && j->d.comps_in_scan == j->d.num_components &&
           !j->d.progressive_mode && !j->d.arith_code;
}

/* Receives libjpeg's warnings, and treats a warning as an error if it means missing pixels. These
 * warnings are ignored: bytes between markers, meaningless bytes in the scan header of a sequential
 * image (cameras write both), and a missing end marker. */
static void warn_jpeg(j_common_ptr d, int level)
{
    const int code = d->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR &&
        code != JWRN_ADOBE_XFORM && code != JWRN_NOT_SEQUENTIAL &&
        !(code == JWRN_JPEG_EOF && lacks_its_end_alone(d->client_data)))
        fail_jpeg(d);
}

static void watch_scans(j_common_ptr d)
{
    jpeg *j = d->client_data;
    j->scans = j->d.input_scan_number > MOST_SCANS;
    if (j->scans)
        fail_jpeg(d);
}

/* Returns whether the error means a feature of the standard that libjpeg lacks, such as 12-bit
 * samples, lossless or arithmetic coding. */
static bool is_unsupported(int code)
{
    return code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED ||
           code == JERR_ARITH_NOTIMPL || code == JERR_CONVERSION_NOTIMPL ||
           code == JERR_CCIR601_NOTIMPL || code == JERR_FRACT_SAMPLE_NOTIMPL ||
           code == JERR_NOT_COMPILED || code == JERR_NOTIMPL;
}

static int fail_decoding(const ls_image *i, jpeg *j)
{
    char why[JMSG_LENGTH_MAX];
    if (j->d.err->msg_code == JERR_OUT_OF_MEMORY)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for it", i->path);
    j->errors.format_message((j_common_ptr)&j->d, why);
    if (is_unsupported(j->d.err->msg_code) && !j->scans)
        return ls_fail(i->err, LS_EUNSUPPORTED,
                       "%.300s: before offset %zu: a JPEG file of a kind that libjpeg does not "
                       "read: %.150s; it need not be damaged: convert it to PNG by the program "
                       "that wrote it",
                       i->path, j->d.src ? i->length - j->d.src->bytes_in_buffer : 0, why);
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: before offset %zu: expected a sound JPEG file, found: %.150s; it is damaged",
        i->path, j->d.src ? i->length - j->d.src->bytes_in_buffer : 0,
        j->scans ? "more than 100 scans" : why);
}

/* An image that lacks a table must not be decoded with that of the previous image, which the
 * decoder keeps. All tables are marked before the header is read; one that is still marked
 * afterwards is hidden. The mark of a quantiser is that all its values are zero, which is invalid
 * in a file (T.81 B.2.4.1). */
static bool has_mark(const JQUANT_TBL *t)
{
    static const UINT16 zeros[DCTSIZE2];
    return memcmp(t->quantval, zeros, sizeof zeros) == 0;
}

static void mark_tables(jpeg *j)
{
    for (int t = 0; t < NUM_QUANT_TBLS; t++) {
        JQUANT_TBL **now = &j->d.quant_tbl_ptrs[t], **own = &j->quantiser[t];
        j->tables += *now && *now != *own;
        *now = *own = *now ? *now : *own;
        if (*own)
            memset((*own)->quantval, 0, sizeof(*own)->quantval);
    }
    for (int t = 0; t < 2 * NUM_HUFF_TBLS; t++) {
        JHUFF_TBL **all = t % 2 ? j->d.ac_huff_tbl_ptrs : j->d.dc_huff_tbl_ptrs;
        JHUFF_TBL **now = &all[t / 2], **own = &j->huffman[t % 2][t / 2];
        j->tables += *now && *now != *own;
        *now = *own = *now ? *now : *own;
        /* the mark of a Huffman table: libjpeg does not use bits[0], and sets it to 0 when it reads
         * a table */
        if (*own)
            (*own)->bits[0] = 1;
    }
}

static void forget_marked(jpeg *j)
{
    for (int t = 0; t < NUM_QUANT_TBLS; t++)
        if (j->d.quant_tbl_ptrs[t] && has_mark(j->d.quant_tbl_ptrs[t]))
            j->d.quant_tbl_ptrs[t] = NULL;
    for (int t = 0; t < 2 * NUM_HUFF_TBLS; t++) {
        JHUFF_TBL **all = t % 2 ? j->d.ac_huff_tbl_ptrs : j->d.dc_huff_tbl_ptrs;
        if (all[t / 2] && all[t / 2]->bits[0])
            all[t / 2] = NULL;
    }
}

static void drop_decoder(jpeg *j)
{
    if (j->is_there)
        jpeg_destroy_decompress(&j->d);
    memset(j->quantiser, 0, sizeof j->quantiser);
    memset(j->huffman, 0, sizeof j->huffman);
    j->is_there = false;
    j->tables = 0;
}

static void ready_decoder(jpeg *j)
{
    j->scans = false;
    if (j->tables > MOST_TABLES)
        drop_decoder(j);
    if (j->is_there) {
        mark_tables(j);
        return;
    }
    j->is_there = true;
    jpeg_create_decompress(&j->d);
    j->d.client_data = j;
    j->d.progress = &j->progress;
}

/* Returns the orientation in the EXIF data, which is in an APP1 segment. */
static int orientation_of(const struct jpeg_decompress_struct *d)
{
    for (const struct jpeg_marker_struct *m = d->marker_list; m; m = m->next)
        if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0)
            return ls_exif_orientation(m->data + 6, m->data_length - 6);
    return 1;
}

/* Refuses a large image with several scans. libjpeg keeps such an image in memory at its full size,
 * six bytes for each pixel, even if it is decoded at a smaller size. */
static int check_memory(const ls_image *i, jpeg *j)
{
    if (!jpeg_has_multiple_scans(&j->d) || (int64_t)i->width * i->height <= 2 * LS_IMAGE_AREA)
        return LS_OK;
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: offset 0: %d×%d pixels; expected at most %d in all in a progressive JPEG file; "
        "scale it down",
        i->path, i->width, i->height, 2 * LS_IMAGE_AREA);
}

static int read_jpeg_header(ls_image *i)
{
    jpeg *j = ls_scratch_get(&i->kept->jpeg, sizeof *j, i->host);
    if (!j)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for it", i->path);
    i->decoder = j;
    j->d.err = jpeg_std_error(&j->errors);
    j->d.client_data = j;
    j->errors.error_exit = fail_jpeg;
    j->errors.emit_message = warn_jpeg;
    j->progress.progress_monitor = watch_scans;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    ready_decoder(j);
    jpeg_save_markers(&j->d, JPEG_APP0 + 1, 0xFFFF);
    jpeg_mem_src(&j->d, i->bytes, i->length);
    jpeg_read_header(&j->d, TRUE);
    forget_marked(j);
    i->width = (int)j->d.image_width; /* at most 65500 */
    i->height = (int)j->d.image_height;
    i->channels = j->d.num_components == 1 ? 1 : j->d.num_components == 4 ? 4 : 3;
    i->turn = orientation_of(&j->d);
    j->d.out_color_space = i->channels == 1 ? JCS_GRAYSCALE : i->channels == 4 ? JCS_CMYK : JCS_RGB;
    return check_memory(i, j);
}

static bool suffices(int size, int by, int wanted)
{
    return size == by * wanted || 2 * size >= 3 * by * wanted;
}

static bool is_too_large(const ls_image *i, int by)
{
    return i->width / by > LS_IMAGE_SIDE || i->height / by > LS_IMAGE_SIDE ||
           (int64_t)i->width * i->height / ((int64_t)by * by) > LS_IMAGE_AREA;
}

/* Selects decoding at a half, a quarter or an eighth of the size. The smallest size is chosen that
 * is exactly height × width or at least 1.5 times as large. If an image of that size is too large
 * to be decoded, a smaller size is chosen. */
static void shrink_jpeg(ls_image *i, int height, int width)
{
    jpeg *j = i->decoder;
    int by = 1;
    while (by < 8 && suffices(i->height, 2 * by, height) && suffices(i->width, 2 * by, width))
        by *= 2;
    while (by < 8 && is_too_large(i, by))
        by *= 2;
    j->d.scale_num = 1; /* the IJG's libjpeg has set the scale to 8/8 */
    j->d.scale_denom = (unsigned)by;
    i->down = (double)i->height / by;
    i->across = (double)i->width / by;
    i->height = (i->height + by - 1) / by;
    i->width = (i->width + by - 1) / by;
}

/* Starts decoding. Checks that libjpeg decodes to the size for which shrink_jpeg allowed and memory
 * was allocated: other versions of libjpeg may compute it differently. */
static void begin_jpeg(const ls_image *i, jpeg *j)
{
    jpeg_start_decompress(&j->d);
    if (j->d.output_width != (unsigned)i->width || j->d.output_height != (unsigned)i->height ||
        j->d.output_components != i->channels)
        ERREXIT1(&j->d, JERR_BAD_DCTSIZE, (int)j->d.scale_denom);
}

/* Converts `n` CMYK pixels to red, green, blue and an ignored fourth sample, in place. The samples
 * are stored inverted (255 is no ink); each colour is multiplied by black. Rounds like Pillow. */
static void convert_cmyk(uint8_t *pixel, size_t n)
{
    for (; n > 0; n--, pixel += 4)
        for (int c = 0; c < 3; c++) {
            const unsigned ink = (255u - pixel[c]) * pixel[3] + 128;
            pixel[c] = (uint8_t)(pixel[3] - ((ink + (ink >> 8)) >> 8));
        }
}

static void read_line(jpeg *j, uint8_t *to)
{
    JSAMPROW row = to;
    jpeg_read_scanlines(&j->d, &row, 1);
    if (j->d.out_color_space == JCS_CMYK)
        convert_cmyk(to, j->d.output_width);
}

static int read_jpeg_pixels(ls_image *i, size_t count)
{
    jpeg *j = i->decoder;
    (void)count;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    begin_jpeg(i, j);
    for (int y = 0; y < i->height; y++)
        read_line(j, i->pixel + (size_t)y * (size_t)i->width * (size_t)i->channels);
    jpeg_finish_decompress(&j->d);
    return LS_OK;
}

static size_t line_room(const ls_image *i)
{
    return ((size_t)i->width * (size_t)i->channels + 63) / 64 * 64;
}

/* Returns line y. The lines are decoded into a ring of 16 lines, which fits in the first-level
 * cache, so line y overwrites line y − 16. */
static const uint8_t *jpeg_line(void *source, int y)
{
    const ls_image *i = source;
    jpeg *j = i->decoder;
    const size_t line = line_room(i);
    while ((int)j->d.output_scanline <= y)
        read_line(j, i->pixel + j->d.output_scanline % 16 * line);
    return i->pixel + (size_t)(y % 16) * line;
}

static int scale_jpeg(ls_image *i, uint8_t *out, const ls_picture_form *form)
{
    jpeg *j = i->decoder;
    const ls_picture p = {.width = i->width,
                          .height = i->height,
                          .channels = i->channels,
                          .row = jpeg_line,
                          .source = i,
                          .across = i->across,
                          .down = i->down};
    int status = ls_image_take_pixels(i, 16 * line_room(i));
    if (status)
        return status;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    begin_jpeg(i, j);
    if (!ls_picture_scale(out, form, &p, &i->kept->scaling, i->host))
        return ls_image_no_memory(i);
    /* all lines are decoded, because damage below the area that is kept is an error as well */
    jpeg_line(i, i->height - 1);
    jpeg_finish_decompress(&j->d);
    return LS_OK;
}

void ls_image_drop_jpeg(const ls_image_memory *kept)
{
    if (kept->jpeg.memory)
        drop_decoder(kept->jpeg.memory);
}

/* Destroys the decoder if it stopped because of an error, because it cannot be used again then. */
static void close_jpeg(const ls_image *i, int status)
{
    if (status)
        ls_image_drop_jpeg(i->kept);
}

const ls_image_kind ls_image_jpeg = {.magic = LS_STARTS_JPEG,
                                     .read_header = read_jpeg_header,
                                     .read_pixels = read_jpeg_pixels,
                                     .shrink = shrink_jpeg,
                                     .scale = scale_jpeg,
                                     .close = close_jpeg,
                                     .side = JPEG_MAX_DIMENSION,
                                     .area = 1 << 30};

#else

static int read_jpeg_header(ls_image *i)
{
    return ls_fail(
        i->err, LS_EUNSUPPORTED,
        "%.300s: Lockstep was built without libjpeg and reads no JPEG; install Debian's "
        "libjpeg62-turbo-dev and build it again, or convert the image: convert IN OUT.ppm",
        i->path);
}

void ls_image_drop_jpeg(const ls_image_memory *kept)
{
    (void)kept;
}

const ls_image_kind ls_image_jpeg = {.magic = LS_STARTS_JPEG, .read_header = read_jpeg_header};
#endif
