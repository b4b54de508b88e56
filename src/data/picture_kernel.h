/* What scaling does most, for vectors of SCALE_VEC floats: included by picture.c once for each instruction set. Sums
 * are a product added to the one before, each rounded, whatever the width: the bits are the same. */
#define SCALE_NAME_(what, set) what##_##set
#define SCALE_NAME(what, set) SCALE_NAME_(what, set)
#define VEC SCALE_NAME(vec, SCALE_SET)
#define IVEC SCALE_NAME(ivec, SCALE_SET)
#define PARTS (LANES / SCALE_VEC)

typedef float VEC __attribute__((vector_size(4 * SCALE_VEC), may_alias));
typedef int32_t IVEC __attribute__((vector_size(4 * SCALE_VEC)));

/* The tile, made narrower, becomes lines from y on. */
SCALE_TARGET static void SCALE_NAME(columns, SCALE_SET)(const scaling *s, int y, int rows, int left,
                                                        int right)
{
    const uint8_t *restrict tile = s->tile[left];
    float *restrict wide = s->wide[left];
    for (int i = 0; i < (right - left) * LANES; i++)
        wide[i] = (float)(int32_t)tile[i];
    for (int x = 0; x < s->width; x++) {
        const VEC *from = (const VEC *)s->wide[s->columns.first[x]];
        const float *weight = s->columns.weight + (ptrdiff_t)x * s->columns.most;
        VEC sum[PARTS] = {{0}};
        for (int k = 0; k < s->columns.count[x]; k++, from += PARTS)
            for (int part = 0; part < PARTS; part++)
                sum[part] += weight[k] * from[part];
        store_columns(s, (const float *)sum, y, rows, x);
    }
}

/* Sixteen samples of line y of the result, from `at` on. */
SCALE_TARGET static void SCALE_NAME(rows, SCALE_SET)(const scaling *s, int32_t sample[LANES], int y,
                                                     size_t at)
{
    const float *from = s->line + (size_t)s->rows.first[y] * s->pitch + at;
    const float *weight = s->rows.weight + (ptrdiff_t)y * s->rows.most;
    const VEC most = 255.0f - (VEC){0};
    VEC sum[PARTS];
    for (int part = 0; part < PARTS; part++)
        sum[part] = 0.5f - (VEC){0};
    for (int k = 0; k < s->rows.count[y]; k++, from += s->pitch)
        for (int part = 0; part < PARTS; part++)
            sum[part] += weight[k] * ((const VEC *)from)[part];
    for (int part = 0; part < PARTS; part++) {
        const IVEC less = sum[part] < most;
        const VEC v = (VEC)((less & (IVEC)sum[part]) | (~less & (IVEC)most));
        const IVEC whole = __builtin_convertvector(v, IVEC);
        memcpy(sample + (ptrdiff_t)part * SCALE_VEC, &whole, sizeof whole);
    }
}

static const scaler SCALE_NAME(scaler, SCALE_SET) = {SCALE_NAME(columns, SCALE_SET),
                                                     SCALE_NAME(rows, SCALE_SET)};

#undef PARTS
#undef IVEC
#undef VEC
#undef SCALE_NAME
#undef SCALE_NAME_
#undef SCALE_TARGET
#undef SCALE_VEC
#undef SCALE_SET
