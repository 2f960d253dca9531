/* Rows of Arrow's C data interface for MODEL: @ABOUT@ */
#ifndef PRETZEL_MODEL_ARROW_H
#define PRETZEL_MODEL_ARROW_H

#include "MODEL.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

/* What an entry of a column is: 'f', 'i', 'u', 'b' of so many bytes, or a text: 't', or 'n' where a null is NaN. */
typedef struct { const char *name; char kind; size_t size; int64_t width; } MODEL_arrow_column;
typedef struct { const char *data; int64_t size; } MODEL_arrow_cell;
enum { MODEL_ARROW_COLUMNS = @COUNT@, MODEL_ARROW_ROWS = 64 };
static const MODEL_arrow_column MODEL_arrow_columns[] = {@COLUMNS@};

static inline int MODEL_arrow_bit(const void *bits, int64_t k) {
    return ((const unsigned char *)bits)[k >> 3] >> (k & 7) & 1;
}

static inline int MODEL_arrow_valid(const struct ArrowArray *from, int64_t k) {
    return from->null_count == 0 || from->n_buffers < 1 || !from->buffers[0] || MODEL_arrow_bit(from->buffers[0], k);
}

#define MODEL_ARROW_READ(type) \
    { \
        type made; \
        memcpy(&made, (const char *)from->buffers[1] + k * (int64_t)sizeof made, sizeof made); \
        *value = (int64_t)made; \
        break; \
    }

/* Reads a whole number; 0 if it is none, or beyond int64. */
static inline int MODEL_arrow_whole(char format, const struct ArrowArray *from, int64_t k, int64_t *value) {
    switch (format) {
    case 'b': *value = MODEL_arrow_bit(from->buffers[1], k); break;
    case 'c': MODEL_ARROW_READ(int8_t)
    case 'C': MODEL_ARROW_READ(uint8_t)
    case 's': MODEL_ARROW_READ(int16_t)
    case 'S': MODEL_ARROW_READ(uint16_t)
    case 'i': MODEL_ARROW_READ(int32_t)
    case 'I': MODEL_ARROW_READ(uint32_t)
    case 'l': MODEL_ARROW_READ(int64_t)
    case 'L': MODEL_ARROW_READ(uint64_t)
    default: return 0;
    }
    return format != 'L' || *value >= 0;
}

static inline int MODEL_arrow_text(char format, const struct ArrowArray *from, int64_t k, MODEL_arrow_cell *cell) {
    int64_t ends[2];
    int32_t narrow[2];
    const char *offsets = (const char *)from->buffers[1];
    if (format == 'U') memcpy(ends, offsets + 8 * k, sizeof ends);
    else memcpy(narrow, offsets + 4 * k, sizeof narrow), ends[0] = narrow[0], ends[1] = narrow[1];
    cell->size = ends[1] - ends[0];
    cell->data = cell->size > 0 ? (const char *)from->buffers[2] + ends[0] : "";
    return ends[0] >= 0 && cell->size >= 0;
}

/* Reads an entry; 0, or 7 where it has no place in its column. */
static inline int MODEL_arrow_read(
    const MODEL_arrow_column *to, const struct ArrowSchema *of, const struct ArrowArray *from, int64_t k, int missing, void *into) {
    char format = *of->format;
    int64_t whole = 0;
    missing |= format == 'n' || !MODEL_arrow_valid(from, k);
    if (to->kind == 't' || to->kind == 'n') {
        MODEL_arrow_cell cell = {NULL, to->kind == 't' ? -1 : -2};
        if (!missing && of->dictionary) {
            if (!MODEL_arrow_whole(format, from, k, &whole) || whole < 0 || whole >= from->dictionary->length) return 7;
            from = from->dictionary;
            k = from->offset + whole;
            format = *of->dictionary->format;
            missing = format == 'n' || !MODEL_arrow_valid(from, k);
        }
        if (!missing && !MODEL_arrow_text(format, from, k, &cell)) return 7;
        memcpy(into, &cell, sizeof cell);
        return 0;
    }
    if (to->kind == 'f') {
        @REAL@ number = NAN;
        double wide;
        float narrow;
        if (!missing && format == 'g') memcpy(&wide, (const char *)from->buffers[1] + 8 * k, 8), number = (@REAL@)wide;
        else if (!missing && format == 'f') memcpy(&narrow, (const char *)from->buffers[1] + 4 * k, 4), number = narrow;
        else if (!missing && !MODEL_arrow_whole(format, from, k, &whole)) return 7;
        else if (!missing) number = (@REAL@)whole;
        narrow = (float)number;
        if (to->size == 4) memcpy(into, &narrow, 4);
        else memcpy(into, &number, sizeof number);
        return 0;
    }
    if (missing || !MODEL_arrow_whole(format, from, k, &whole)) return 7;
    int bits = to->kind == 'b' ? 1 : (int)(8 * to->size) - (to->kind == 'i');
    int64_t least = to->kind == 'i' ? -1 : 0;
    if (bits < 63 ? (whole >> bits) != 0 && (whole >> bits) != least : whole < 0 && !least) return 7;
    memcpy(into, &whole, to->size);
    return 0;
}

static inline int MODEL_arrow_fits(const MODEL_arrow_column *to, const struct ArrowSchema *of) {
    const char *texts = of->dictionary ? of->dictionary->format : of->format, *format = of->format;
    if (format[0] == 0 || format[1] != 0) return 0;
    if (to->kind == 't' || to->kind == 'n') return strlen(texts) == 1 && strchr("uUn", *texts) && (!of->dictionary || strchr("cCsSiIlL", *format));
    return !of->dictionary && strchr(to->kind == 'f' ? "gfcCsSiIlLbn" : to->kind == 'b' ? "b" : "cCsSiIlL", *format);
}

/* The bytes of `scratch` for texts of up to `longest` bytes. */
static inline size_t MODEL_arrow_scratch_size(size_t longest) {
    size_t rest = MODEL_scratch_size(longest), size = 64;
    for (int c = 0; c < MODEL_ARROW_COLUMNS; c++) size += MODEL_ARROW_ROWS * MODEL_arrow_columns[c].size * (size_t)MODEL_arrow_columns[c].width;
    return size > SIZE_MAX - rest ? SIZE_MAX : size + rest;
}

/* Answers the rows of a struct array, whose columns go by name: numbers, whole numbers and truths (a null is NaN), utf8 and large_utf8,
   also of dictionaries (a null is None, or NaN where the model was
   trained with that). Several values of a row are a fixed_size_list, or columns in their order where the
   model reads nothing else. 0 to 3 as MODEL_predict; 4: this is no struct array; 8: it has more rows than `capacity`; and with 16 times the
   number of the column (0, 1, ...): 5: it is missing, or twice there; 6: it has another type; 7: a value has no place in it, such as a null
   among whole numbers, or one that is too large. Rows before may be answered then. */
static inline int MODEL_predict_arrow(
    const struct ArrowSchema *schema, const struct ArrowArray *array, MODEL_output *output, size_t capacity, size_t longest, void *scratch) {
    int64_t places[MODEL_ARROW_COLUMNS] = {0}, in_order = 0;
    char *at[MODEL_ARROW_COLUMNS + 1];
    (void)longest; /* of texts, which not every model reads */
    if (!schema->release || !array->release || strcmp(schema->format, "+s") || schema->n_children != array->n_children) return 4;
    if ((uint64_t)array->length > capacity) return 8;
    at[0] = (char *)scratch + (-(uintptr_t)scratch & 63);
    for (int c = 0; c < MODEL_ARROW_COLUMNS; c++) {
        const MODEL_arrow_column *to = &MODEL_arrow_columns[c];
        int found = 0;
        for (int64_t k = 0; k < schema->n_children; k++)
            if (schema->children[k]->name && !strcmp(schema->children[k]->name, to->name)) places[c] = k, found++;
        in_order = !found && MODEL_ARROW_COLUMNS == 1 && schema->n_children == to->width;
        if (found != 1 && !in_order) return 5 + 16 * c;
        for (int64_t k = 0; k < (in_order ? to->width : 1); k++) {
            const struct ArrowSchema *of = schema->children[in_order ? k : places[c]];
            if (!in_order && to->width > 1) {
                if (strncmp(of->format, "+w:", 3) || strtoll(of->format + 3, NULL, 10) != to->width) return 6 + 16 * c;
                of = of->children[0];
            }
            if (!MODEL_arrow_fits(to, of)) return 6 + 16 * c;
        }
        at[c + 1] = at[c] + MODEL_ARROW_ROWS * to->size * (size_t)to->width;
    }
    for (int64_t done = 0; done < array->length; done += MODEL_ARROW_ROWS) {
        int64_t left = array->length - done, rows = left < MODEL_ARROW_ROWS ? left : (int64_t)MODEL_ARROW_ROWS;
        for (int c = 0; c < MODEL_ARROW_COLUMNS; c++) {
            const MODEL_arrow_column *to = &MODEL_arrow_columns[c];
            for (int64_t k = 0; k < rows * to->width; k++) {
                int64_t row = array->offset + done + k / to->width, j = k % to->width;
                const struct ArrowSchema *of = schema->children[in_order ? j : places[c]];
                const struct ArrowArray *from = array->children[in_order ? j : places[c]];
                int missing = !MODEL_arrow_valid(array, row);
                row += from->offset;
                if (!in_order && to->width > 1) {
                    missing |= !MODEL_arrow_valid(from, row);
                    of = of->children[0];
                    from = from->children[0];
                    row = row * to->width + j + from->offset;
                }
                int code = MODEL_arrow_read(to, of, from, row, missing, at[c] + to->size * (size_t)k);
                if (code) return code + 16 * c;
            }
        }
        MODEL_input input = {@INPUTS@};
        MODEL_output part = {@OUTPUTS@};
        int code = MODEL_predict(&input, &part, (size_t)rows, at[MODEL_ARROW_COLUMNS]);
        if (code) return code;
    }
    return 0;
}
#undef MODEL_ARROW_READ
#endif
