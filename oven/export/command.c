/* Reads rows of CSV and writes the model's answers. */
#include "MODEL.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct { const char *data; int64_t size; } text_cell; /* as MODEL_text, which not every model has */
typedef struct { const char *name; int kind, size; void *at; const char *const *labels; } column;
@COLUMNS@

enum { COLUMNS = sizeof inputs / sizeof *inputs, ANSWERS = sizeof outputs / sizeof *outputs };
static char *bytes; /* the cells of a record, each with a 0 behind it, and where they begin */
static size_t used, room, *cells, cell_room, count, line, next_line = 1, longest, scratch_for, places[COLUMNS];
static void *scratch;
static int failed;

static void *grown(void *memory, size_t size) {
    if (!(memory = realloc(memory, size))) fputs("out of memory\n", stderr), exit(3);
    return memory;
}

static void put(int byte, int ends) {
    if (used + 1 >= room) bytes = grown(bytes, room = 2 * room + 256);
    if (count + 2 >= cell_room) cells = grown(cells, (cell_room = 2 * cell_room + 64) * sizeof *cells);
    bytes[used++] = (char)byte;
    if (ends) cells[++count] = used;
}

static int say(const char *column, const char *what) {
    fprintf(stderr, "line %zu: %s%s%s%s\n", line, column ? "column " : "", column ? column : "", column ? ": " : "", what);
    return failed = 1, 0;
}

/* Reads a record: 0 at the end, -1 where quotes are not those of CSV. */
static int record(void) {
    int quoted = 0, closed = 0, right = 1, any = 0, c;
    size_t begun = 0;
    used = count = 0, line = next_line;
    for (; (c = getchar()) != EOF; any = 1) {
        next_line += c == '\n';
        if (quoted) {
            if (c == '"' && (c = getchar()) != '"') quoted = 0, closed = 1, ungetc(c, stdin);
            else put(c, 0);
        } else if (c == '"' && used == begun && !closed) quoted = 1;
        else if (c == ',') put(0, 1), begun = used, closed = 0;
        else if (c == '\n') break;
        else if (closed && c != '\r') right = -1;
        else put(c, 0);
    }
    if (!quoted && used > begun && bytes[used - 1] == '\r') used--;
    put(0, 1);
    cells[0] = 0;
    return !any && c == EOF ? 0 : quoted ? -1 : right;
}

static int64_t whole_of(const column *of) {
    uint64_t whole = 0;
    int unused = 64 - 8 * of->size;
    memcpy(&whole, of->at, (size_t)of->size);
    return of->kind == 'i' ? (int64_t)(whole << unused) >> unused : (int64_t)whole;
}

/* Reads a cell into its column; 0 if it is not of its type. */
static int taken(const column *to, char *text, size_t size) {
    static const char missing[] = "\n\n#N/A\n#N/A N/A\n#NA\n<NA>\nN/A\nn/a\nNA\nNULL\nnull\nNone\nNaN\nnan\n-NaN\n-nan\n";
    char word[16], *stop = text + size, *end = NULL;
    int texts = to->kind == 't' || to->kind == 's';
    while (!texts && (*text == ' ' || *text == '\t')) text++;
    while (!texts && stop > text && (stop[-1] == ' ' || stop[-1] == '\t')) *--stop = 0;
    int length = snprintf(word, sizeof word, "\n%s\n", text);
    int none = to->kind != 't' && length == stop - text + 2 && length < 16 && strstr(missing, word);
    longest = texts && size > longest ? size : longest;
    if (texts) return memcpy(to->at, &(text_cell){text, none ? -2 : (int64_t)size}, sizeof(text_cell)), 1;
    int truth = !strcasecmp(text, "true") ? 1 : !strcasecmp(text, "false") ? 0 : -1;
    errno = 0;
    if (to->kind == 'f') {
        double number = strpbrk(text, "xX(") ? 0 : strtod(text, &end);
        number = none ? NAN : truth >= 0 ? truth : number;
        if (to->size == 8) *(double *)to->at = number;
        else *(float *)to->at = (float)number;
        return none || truth >= 0 || end == stop;
    }
    int64_t whole = to->kind == 'i' ? strtoll(text, &end, 10) : (int64_t)strtoull(text, &end, 10);
    if (to->kind == 'b' && truth >= 0) whole = truth, end = stop, errno = 0;
    memcpy(to->at, &whole, (size_t)to->size);
    if (none || end != stop || errno || whole_of(to) != whole) return 0;
    return to->kind == 'i' || (*text != '-' && (to->kind == 'u' || !(whole >> 1)));
}

/* True for a first line that is a row: every column of numbers has one in it. */
static int is_row(void) {
    int numbers = 0;
    for (size_t k = 0; k < COLUMNS; k++) {
        char *text = bytes + cells[k];
        size_t size = cells[k + 1] - cells[k] - 1;
        if (!strchr("fiu", inputs[k].kind)) continue;
        if (!taken(&inputs[k], text, size)) return 0;
        while (size && !text[size - 1]) text[--size] = ' '; /* they were cut off */
        numbers++;
    }
    return numbers > 0;
}

/* Finds the columns in the first line; 2 if that is a row already, 0 if they are not there. */
static int header(void) {
    size_t found = 0;
    for (size_t k = 0; k < COLUMNS; k++) {
        places[k] = count;
        for (size_t c = 0; c < count; c++) {
            if (strcmp(bytes + cells[c], inputs[k].name)) continue;
            if (places[k] < count) return say(inputs[k].name, "several have this name");
            places[k] = c;
        }
        found += places[k] < count;
    }
    int ordered = @ORDERED@ == 2 || (@ORDERED@ == 1 && !found);
    if (ordered && count != COLUMNS) return say(NULL, "the model reads another number of columns, by their order");
    for (size_t k = 0; k < COLUMNS; k++) {
        if (ordered) places[k] = k;
        if (places[k] == count) return say(inputs[k].name, "it is missing");
    }
    return 1 + (ordered && !found && is_row());
}

static int answered(int right, size_t width) {
    static const char *const why[] = {"", "the model refuses it: NaN or infinity, perhaps", "", "a text is no UTF-8"};
    if (right < 0) return say(NULL, "quotes are not closed, or in the middle of a cell");
    if (count != width) return say(NULL, "it has not as many cells as the first line");
    for (size_t k = 0; k < COLUMNS; k++) {
        size_t at = cells[places[k]], size = cells[places[k] + 1] - at - 1;
        if (!taken(&inputs[k], bytes + at, size)) return say(inputs[k].name, "this is no value of its type");
    }
    if (!scratch || longest > scratch_for) scratch = grown(scratch, MODEL_scratch_size(longest));
    @LONGEST@ = scratch_for = longest;
    int code = MODEL_predict(&input, &output, 1, scratch);
    return code ? say(NULL, why[code]) : 1;
}

static void show(const char *text, int behind) {
    const char *quote = strpbrk(text, ",\"\r\n") ? "\"" : "";
    for (fputs(quote, stdout); *text; putchar(*text++))
        if (*text == '"') putchar('"');
    printf("%s%c", quote, behind);
}

/* Writes a value, numbers with digits that read the same; nothing for a row that is refused. */
static void answer(const column *from, int behind) {
    if (!from) return (void)putchar(behind);
    char text[40];
    int64_t whole = whole_of(from);
    double number = from->kind != 'f' ? 0 : from->size == 8 ? *(double *)from->at : (double)*(float *)from->at;
    int digits = fabs(number) < DBL_MIN ? 1 : 15;
    do snprintf(text, sizeof text, "%.*g", digits++, number);
    while (digits <= 17 && strtod(text, NULL) != number);
    if (from->kind != 'f') snprintf(text, sizeof text, from->kind == 'u' ? "%llu" : "%lld", (long long)whole);
    show(from->labels ? from->labels[whole] : from->kind == 'b' ? whole ? "True" : "False" : isnan(number) ? "nan" : text, behind);
}

int main(void) {
    (void)*(const volatile char *)MODEL_version(); /* so it stays in the file */
    int right = record();
    size_t width = count;
    if (right <= 0) return say(NULL, "there is no first line with the names of columns"), 2;
    if (!strncmp(bytes, "\xef\xbb\xbf", 3)) cells[0] += 3;
    int first = header();
    if (!first) return 2;
    for (size_t k = 0; k < ANSWERS; k++) show(outputs[k].name, k + 1 < ANSWERS ? ',' : '\n');
    while (first == 2 || (right = record())) {
        first = 1;
        if (right > 0 && used == 1 && width > 1) continue; /* an empty line */
        int well = answered(right, width);
        for (size_t k = 0; k < ANSWERS; k++) answer(well ? &outputs[k] : NULL, k + 1 < ANSWERS ? ',' : '\n');
    }
    return ferror(stdin) || fflush(stdout) || ferror(stdout) ? 3 : failed;
}
