/* The yardstick for ensembles of trees: what a careful programmer writes by hand, for
 * gcc -O3 -march=native. A node is 16 bytes, children side by side, leaves lead to themselves; eight
 * rows walk a tree together, or eight trees one row, so that loads overlap. */
#include <stdint.h>

typedef struct {
    double threshold; /* of a leaf: infinity */
    int32_t column;
    int32_t left;
} node;

/* roots[2t] is a tree's root, roots[2t + 1] its depth; value[k] is that of node k if it is a leaf. */
static inline int32_t down(const node *restrict nodes, const double *restrict row, int32_t at) {
    const node *here = nodes + at;
    return here->left + !(row[here->column] <= here->threshold);
}

void score(int64_t rows, int64_t columns, const double *restrict x, double *restrict y,
           int64_t trees, const node *restrict nodes, const int32_t *restrict roots,
           const double *restrict value) {
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
        double sums[8] = {0};
        for (int64_t t = 0; t < trees; t++) {
            int32_t at[8];
            for (int l = 0; l < 8; l++) at[l] = roots[2 * t];
            for (int32_t d = roots[2 * t + 1]; d > 0; d--)
#pragma GCC unroll 8
                for (int l = 0; l < 8; l++) at[l] = down(nodes, x + (i + l) * columns, at[l]);
            for (int l = 0; l < 8; l++) sums[l] += value[at[l]];
        }
        for (int l = 0; l < 8; l++) y[i + l] = sums[l];
    }
    for (; i < rows; i++) {
        double sum = 0;
        int64_t t = 0;
        for (; t + 8 <= trees; t += 8) {
            int32_t at[8], depth = 0;
            for (int l = 0; l < 8; l++) {
                at[l] = roots[2 * (t + l)];
                if (roots[2 * (t + l) + 1] > depth) depth = roots[2 * (t + l) + 1];
            }
            for (; depth > 0; depth--)
#pragma GCC unroll 8
                for (int l = 0; l < 8; l++) at[l] = down(nodes, x + i * columns, at[l]);
            for (int l = 0; l < 8; l++) sum += value[at[l]];
        }
        for (; t < trees; t++) {
            int32_t at = roots[2 * t];
            for (int32_t d = roots[2 * t + 1]; d > 0; d--) at = down(nodes, x + i * columns, at);
            sum += value[at];
        }
        y[i] = sum;
    }
}
