/* SPDX-License-Identifier: MIT */
#include "cli/init_data.h"

#include "base/plural.h"
#include "data/columns.h"

#include <string.h>

/* A table with more columns than this has many; half as many are printed. */
enum { MANY_COLUMNS = 60 };

static void print_column(const ls_column_summary *c, FILE *stream)
{
    char line[LS_COLUMN_LINE];
    const bool target = c->use == LS_COLUMN_CLASS || c->use == LS_COLUMN_VALUE;
    ls_column_line(line, c);
    fprintf(stream, "%s%s\n", line, target ? "  to be learnt" : "");
}

/* Returns whether a key of `data` is true in the config. */
static bool is_true(const cJSON *data, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(data, key));
}

static double number_of(const cJSON *data, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(data, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static const char *text_of(const cJSON *data, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, key));
    return text ? text : "";
}

/* Prints what becomes of missing numbers, as `data` says, the object of the config. */
static void print_missing(const ls_inspection *l, const cJSON *data, FILE *stream)
{
    const char *missing = text_of(data, "missing");
    if (l->fills && strcmp(missing, "refuse") != 0)
        fprintf(stream, "  missing numbers become %s (data.missing)\n",
                strcmp(missing, "zero") == 0 ? "0" : "their column's mean");
}

/* Prints the limit of standardised numbers, and ends the line. */
static void print_clip(const cJSON *data, FILE *stream)
{
    const double clip = number_of(data, "clip");
    if (clip > 0 && is_true(data, "standardize"))
        fprintf(stream, ", and limited to %g deviations (data.clip)", clip);
    fputc('\n', stream);
}

/* Prints how the numbers of a table are scaled. */
static void print_scaling(const ls_inspection *l, const cJSON *data, FILE *stream)
{
    fprintf(stream, "  numbers are %sstandardised (data.standardize)",
            is_true(data, "standardize") ? "" : "not ");
    print_clip(data, stream);
    if (l->targets)
        fprintf(stream, "  %s is %s (data.standardize_target)\n", l->target,
                is_true(data, "standardize_target")
                    ? "standardised for training; results are in its own unit"
                    : "not standardised");
}

/* Prints the first `most` lines of a text, and how many more there are. */
static void print_lines(const char *text, int most, FILE *stream)
{
    int left = 0;
    for (; *text; text += strcspn(text, "\n") + 1, most--) {
        if (most > 0)
            fprintf(stream, "%.*s\n", (int)strcspn(text, "\n"), text);
        else
            left++;
    }
    if (left > 0)
        fprintf(stream, "  … and %d more such lines\n", left);
}

/* Prints a line for each column, or, of a table of many columns, for the first ones and the
 * target, and the number of the others of each kind. */
static void print_columns(const ls_dataset_info *info, FILE *stream)
{
    static const char *const kinds[] = {[LS_COLUMN_NUMBER] = "of numbers",
                                        [LS_COLUMN_LEVELS] = "of texts",
                                        [LS_COLUMN_DROPPED] = "left out",
                                        [LS_COLUMN_WEIGHT] = "of weights",
                                        [LS_COLUMN_DATE] = "of dates"};
    const int first = info->columns > MANY_COLUMNS ? MANY_COLUMNS / 2 : info->columns;
    int more[LS_COLUMN_DATE + 1] = {0}, all = 0;
    for (int i = 0; i < info->columns; i++) {
        const ls_column_use use = info->column[i].use;
        if (i < first || use == LS_COLUMN_CLASS || use == LS_COLUMN_VALUE)
            print_column(&info->column[i], stream);
        else {
            more[use]++;
            all++;
        }
    }
    if (all > 0)
        fprintf(stream, "  … and %d more columns:", all);
    for (int k = 0, said = 0; all > 0 && k <= LS_COLUMN_DATE; k++)
        if (more[k])
            fprintf(stream, "%s %d %s", said++ ? "," : "", more[k], kinds[k]);
    if (all > 0)
        fputc('\n', stream);
}

static void print_table(const ls_inspection *l, const cJSON *data, FILE *stream)
{
    const ls_dataset_info *info = l->table;
    char head[LS_COLUMN_LINE];
    ls_column_head(head);
    fprintf(stream, "%s: a table of %u %s and %d %s\n", l->path, (unsigned)l->rows,
            ls_plural(l->rows, "row", "rows"), info->columns,
            ls_plural((uint64_t)info->columns, "column", "columns"));
    fprintf(stream, "%s\n", head);
    print_columns(info, stream);
    if (l->left_out_why.text)
        print_lines(l->left_out_why.text, MANY_COLUMNS / 2, stream);
    if (l->values_why)
        fprintf(
            stream,
            "  %s has many different numbers or fractions, so it is learnt as a value, not a class "
            "(data.labels)\n",
            l->target);
    print_missing(l, data, stream);
    print_scaling(l, data, stream);
}

static void print_folder(const ls_inspection *l, const cJSON *config, bool trained, FILE *stream)
{
    const cJSON *augment = cJSON_GetObjectItemCaseSensitive(config, "augment");
    const ls_folder *k = &l->listed;
    fprintf(stream, "%s: pictures, %s\n  %-24s %10s %10s\n", l->path,
            l->grey ? "grey" : "in colour", "class", "training", "test");
    for (size_t c = 0; c < k->classes.count; c++) {
        size_t count[2] = {0, 0};
        for (int s = 0; s < 2; s++)
            for (size_t i = 0; i < k->split[s].count; i++)
                if (k->split[s].entry[i].label == (int32_t)c)
                    count[s]++;
        fprintf(stream, "  %-24.60s %10zu %10zu\n", k->classes.name[c], count[0], count[1]);
    }
    for (int i = 0; i < k->remarks.count; i++)
        fprintf(stream, "  %s\n", k->remarks.text[i]);
    if (l->resize.height)
        fprintf(stream, "  resized%s %d×%d (%s)\n",
                l->resize.height == l->height && l->resize.width == l->width
                    ? " to"
                    : ", and cut to the middle,",
                l->height, l->width, l->pictures ? "data.pictures" : "data.resize");
    else
        fprintf(stream, "  scaled to %d×%d and cut to the middle (data.image_size)\n", l->height,
                l->width);
    if (number_of(augment, "crop") > 0 || is_true(augment, "flip"))
        fprintf(stream, "  training pictures are %s%s%s\n",
                number_of(augment, "crop") > 0 ? "shifted" : "",
                number_of(augment, "crop") > 0 && is_true(augment, "flip") ? " and " : "",
                is_true(augment, "flip") ? "mirrored at random (augment); where a mirrored picture "
                                           "shows something else, such as text: --set "
                                           "augment.flip=false"
                                         : " at random (augment)");
    if (l->rows < FEW_PICTURES && !trained)
        fprintf(stream,
                "  %u training pictures are few: more of them help, or a network that has learnt "
                "from others (init --from, init.weights)\n",
                (unsigned)l->rows);
}

/* Prints mean and deviation, by which the values are standardised. In the config each is a number,
 * or a list with one for each channel. */
static void print_moment(const cJSON *data, const char *key, FILE *stream)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(data, key), *item;
    if (cJSON_IsNumber(value))
        fprintf(stream, "%.4g", value->valuedouble);
    cJSON_ArrayForEach(item, value)
    {
        fprintf(stream, "%s%.4g", item == value->child ? "" : ", ", item->valuedouble);
    }
}

/* Prints how the values of arrays are scaled. `part`: the part of a row that has one scale. */
static void print_array_scale(const cJSON *data, const char *part, FILE *stream)
{
    if (is_true(data, "standardize")) {
        fprintf(stream, ", each %s standardised (data.standardize)", part);
        print_clip(data, stream);
        return;
    }
    fputs(", mean ", stream);
    print_moment(data, "mean", stream);
    fputs(", deviation ", stream);
    print_moment(data, "std", stream);
    fputs(" (data.mean, data.std)\n", stream);
}

/* Prints both readings of targets that are one whole number for each row. */
static void print_readings(const ls_inspection *l, FILE *stream)
{
    if (l->whole && l->labels == LS_LABELS_CLASSES)
        fprintf(stream,
                "  whole numbers from %.10g to %.10g, a class each; if they are amounts, ages or "
                "counts: --set data.labels=values\n",
                l->least, l->most);
    else if (l->whole && l->labels == LS_LABELS_VALUES)
        fprintf(stream,
                "  whole numbers from %.10g to %.10g, too many for classes, or too few rows of "
                "each; if they are classes: --set data.labels=classes\n",
                l->least, l->most);
}

static void print_arrays(const ls_inspection *l, const cJSON *data, FILE *stream)
{
    if (l->known)
        fprintf(stream, "%s: the files of %s (data.name)\n", l->path, l->kind->name);
    const bool columns = l->height == 1 && l->width == 1;
    if (columns && (l->floats || is_true(data, "standardize")))
        fprintf(stream, "%s: %u rows of %d %s of %s", l->path, (unsigned)l->rows, l->channels,
                ls_plural((uint64_t)l->channels, "column", "columns"),
                l->floats ? "floats" : "bytes");
    else
        fprintf(stream, "%s: %u rows of %d×%d×%d %s", l->path, (unsigned)l->rows, l->channels,
                l->height, l->width, l->floats ? "floats" : "bytes / 255");
    print_array_scale(data, columns ? "column" : "channel", stream);
    if (l->last)
        fputs("  the last dimension is taken for the channels (data.layout)\n", stream);
    if (l->left_out_why.text)
        fputs(l->left_out_why.text, stream);
    print_missing(l, data, stream);
    if (l->classes)
        fprintf(stream, "  targets: %d classes%s\n", l->classes, l->known ? "" : " (data.labels)");
    else
        fprintf(stream, "  targets: %d value%s (data.labels)%s\n", l->targets,
                l->targets > 1 ? "s" : "",
                l->targets == 1 && is_true(data, "standardize_target")
                    ? ", standardised for training (data.standardize_target)"
                    : "");
    print_readings(l, stream);
}

/* Says what helps against a rare class, unless the config has it already. */
static void print_rare(const ls_inspection *l, const cJSON *config, FILE *stream)
{
    char number[16];
    if (l->rare < 0)
        return;
    snprintf(number, sizeof number, "%d", l->rare);
    if (!cJSON_GetObjectItemCaseSensitive(config, "class_weights"))
        fprintf(
            stream,
            "  only %u of %u rows are of class %s; so that its rows count as much as the others: "
            "--set class_weights=balanced\n",
            (unsigned)l->rare_rows, (unsigned)l->rows, l->rare_name ? l->rare_name : number);
    if (l->rare == 0 && l->classes == 2)
        fputs("  the other class, the last in the alphabet, is the positive one of "
              "average_precision, f1 and --threshold; rename the classes if these are to judge the "
              "rare one\n",
              stream);
}

/* Says that the classes have too few rows to be learnt. */
static void print_few(const ls_inspection *l, FILE *stream)
{
    enum { FEW = 5 }; /* rows of a class, of which one is held out */
    if (l->classes == 0 || l->kind->form == LS_DATA_FOLDER || l->rows >= FEW * (uint32_t)l->classes)
        return;
    fprintf(stream, "  %d classes for %u rows: %.1f rows of a class are too few to learn it",
            l->classes, (unsigned)l->rows, (double)l->rows / l->classes);
    if (l->kind->form == LS_DATA_TABLE)
        fprintf(
            stream,
            "; if %.60s is an id or a date, name another column (--target); if it is an amount, "
            "--set data.labels=values",
            l->target);
    fputc('\n', stream);
}

/* Returns whether rows have a time: a column of dates of different days. */
static bool has_days(const ls_inspection *l)
{
    bool days = false;
    for (int i = 0; l->kind->form == LS_DATA_TABLE && i < l->table->columns; i++) {
        const ls_column_summary *c = &l->table->column[i];
        for (int k = 0; c->use == LS_COLUMN_DATE && k < c->parts; k++)
            days |= strcmp(c->part[k], "days") == 0;
    }
    return days;
}

void init_data_print(const ls_inspection *l, const cJSON *config, bool trained, FILE *stream)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(config, "data");
    const double held = number_of(data, "validation");
    if (l->kind->form == LS_DATA_TABLE)
        print_table(l, data, stream);
    else if (l->kind->form == LS_DATA_FOLDER)
        print_folder(l, config, trained, stream);
    else
        print_arrays(l, data, stream);
    print_rare(l, config, stream);
    print_few(l, stream);
    if (l->test_rows)
        fprintf(stream, "  %u test %s\n", (unsigned)l->test_rows,
                ls_plural(l->test_rows, "row", "rows"));
    if (held == 0.2)
        fputs("  a fifth of the rows is held out for validation (data.validation)\n", stream);
    else if (held > 0)
        fprintf(stream, "  %g of the rows are held out for validation (data.validation)\n", held);
    if (held > 0 && has_days(l))
        fputs(
            "  they are drawn at random; if later rows are to be predicted, name a table of later "
            "rows: data.test_path\n",
            stream);
    if (held <= 0 && !l->test_rows)
        fputs("  no rows are held out for validation (data.validation)\n", stream);
}
