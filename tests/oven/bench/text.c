/* The yardstick for text: what a careful programmer would write by hand for one pipeline, over ASCII:
 * small letters, runs of white space made one space, character 3-grams and word 1-2-grams looked up
 * in hash tables, counted, weighed, brought to length one, and a linear model over both.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef uint64_t u64;

/* A vocabulary: texts behind one another, and a table of their numbers by hash, open addressing. */
typedef struct {
    const char *texts;
    const i64 *offsets;
    u64 mask;
    uint32_t *tags;
    int32_t *numbers;
    /* Of each n-gram: how often it is, how rare it is, what it weighs in the model. */
    int32_t *counts;
    const double *idf, *weights;
} Vocabulary;

static inline u64 hash(const char *text, i64 size) {
    u64 code = (u64)size * 0x9E3779B97F4A7C15ull, word;
    for (; size >= 8; size -= 8, text += 8) {
        memcpy(&word, text, 8);
        code = (code ^ word) * 0xD6E8FEB86659FD93ull;
        code ^= code >> 32;
    }
    if (size) { /* documents and texts have eight bytes behind them */
        memcpy(&word, text, 8);
        code = (code ^ (word & ((1ull << 8 * size) - 1))) * 0xD6E8FEB86659FD93ull;
        code ^= code >> 32;
    }
    return code * 0x9E3779B97F4A7C15ull;
}

static inline i64 find(const Vocabulary *v, const char *text, i64 size) {
    u64 code = hash(text, size), place = code >> 32 & v->mask;
    uint32_t tag = (uint32_t)code | 1;
    for (; v->tags[place]; place = (place + 1) & v->mask) {
        if (v->tags[place] != tag) continue;
        i64 number = v->numbers[place], start = v->offsets[number];
        if (v->offsets[number + 1] - start == size && !memcmp(v->texts + start, text, size))
            return number;
    }
    return -1;
}

Vocabulary *text_vocabulary(i64 count, const char *texts, const i64 *offsets, const double *idf,
                            const double *weights) {
    Vocabulary *v = malloc(sizeof *v);
    u64 size = 16;
    while (size < 2 * (u64)count) size *= 2;
    *v = (Vocabulary){texts, offsets, size - 1, calloc(size, 4), malloc(4 * size),
                      calloc(count, 4), idf, weights};
    for (i64 number = 0; number < count; number++) {
        u64 code = hash(texts + offsets[number], offsets[number + 1] - offsets[number]);
        u64 place = code >> 32 & v->mask;
        while (v->tags[place]) place = (place + 1) & v->mask;
        v->tags[place] = (uint32_t)code | 1;
        v->numbers[place] = (int32_t)number;
    }
    return v;
}

void text_forget(Vocabulary *v) {
    free(v->tags), free(v->numbers), free(v->counts), free(v);
}

static inline void count(Vocabulary *v, const char *text, i64 size, int32_t *met, i64 *many) {
    i64 number = find(v, text, size);
    if (number >= 0 && v->counts[number]++ == 0) met[(*many)++] = (int32_t)number;
}

static double weigh(Vocabulary *v, const int32_t *met, i64 many) {
    double squares = 0, sum = 0;
    for (i64 item = 0; item < many; item++) {
        double value = v->counts[met[item]] * v->idf[met[item]];
        v->counts[met[item]] = 0;
        squares += value * value;
        sum += value * v->weights[met[item]];
    }
    return squares > 0 ? sum / sqrt(squares) : 0;
}

/* The probability of the second class for each document. `room` has 16 bytes for each byte of the
 * longest document, and 64 more. */
void text_scores(i64 rows, const char *const *documents, const i64 *sizes, Vocabulary *chars,
                 Vocabulary *words, double bias, char *room, double *scores) {
    static char small[256], blank[256], letter[256];
    for (int c = 0; c < 128; c++) {
        small[c] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        blank[c] = c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
        letter[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_';
    }
    for (i64 row = 0; row < rows; row++) {
        const unsigned char *text = (const unsigned char *)documents[row];
        i64 size = sizes[row], n = 0, many = 0;
        char *made = room;
        int32_t *met = (int32_t *)(room + ((2 * size + 32) & -16ll));
        for (i64 i = 0; i < size;) {
            i64 next = i + 1;
            while (blank[text[i]] && next < size && blank[text[next]]) next++;
            made[n++] = next > i + 1 ? ' ' : small[text[i]];
            i = next;
        }
        for (i64 i = 0; i + 3 <= n; i++) count(chars, made + i, 3, met, &many);
        double score = weigh(chars, met, many) + bias;

        /* Words of two letters or more, a space between them. */
        i64 last = -1;
        n = many = 0;
        for (i64 i = 0; i < size;) {
            if (!letter[text[i]]) {
                i++;
                continue;
            }
            i64 start = n;
            while (i < size && letter[text[i]]) made[n++] = small[text[i++]];
            if (n - start < 2) {
                n = start;
                continue;
            }
            count(words, made + start, n - start, met, &many);
            if (last >= 0) count(words, made + last, n - last, met, &many);
            last = start;
            made[n++] = ' ';
        }
        score += weigh(words, met, many);
        scores[row] = 1 / (1 + exp(-score));
    }
}
