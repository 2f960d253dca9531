/* The yardstick: what a careful programmer would write by hand for each workload, for
 * gcc -O3 -march=native. Sizes are fixed, sums run in lanes that the compiler can keep in vector
 * registers, divisions stay divisions, and every array is dense and row after row.
 */
#include <math.h>
#include <stdint.h>

typedef int64_t i64;

static inline double sigmoid(double x) {
    double tail = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + tail) : tail / (1 + tail);
}

/* One dot product in four lanes, so that it need not wait for each addition. */
static inline double dot(const double *restrict a, const double *restrict b, i64 n) {
    double lanes[4] = {0, 0, 0, 0}, rest = 0;
    i64 j = 0;
    for (; j + 4 <= n; j += 4)
        for (int l = 0; l < 4; l++) lanes[l] += a[j + l] * b[j + l];
    for (; j < n; j++) rest += a[j] * b[j];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]) + rest;
}

/* y[out] = x[in] @ w[in][out] + b[out]: one input value is met by all outputs, whose sums stay in
 * vector registers. Sizes are constants where this is inlined, so the loops over vectors unroll;
 * what does not fill a vector is summed one by one. */
typedef double vector __attribute__((vector_size(64), aligned(8)));

static inline __attribute__((always_inline)) void layer(const double *restrict x,
                                                        const double *restrict w,
                                                        const double *restrict b,
                                                        double *restrict y, const int in,
                                                        const int out) {
    vector sums[4];
    double rest[8];
    const int whole = out / 8, left = out % 8;
#pragma GCC unroll 4
    for (int v = 0; v < whole; v++) sums[v] = *(const vector *)(b + 8 * v);
#pragma GCC unroll 8
    for (int o = 0; o < left; o++) rest[o] = b[8 * whole + o];
    for (int j = 0; j < in; j++) {
#pragma GCC unroll 4
        for (int v = 0; v < whole; v++) sums[v] += x[j] * *(const vector *)(w + j * out + 8 * v);
#pragma GCC unroll 8
        for (int o = 0; o < left; o++) rest[o] += x[j] * w[j * out + 8 * whole + o];
    }
#pragma GCC unroll 4
    for (int v = 0; v < whole; v++) *(vector *)(y + 8 * v) = sums[v];
#pragma GCC unroll 8
    for (int o = 0; o < left; o++) y[8 * whole + o] = rest[o];
}

static inline void relu(double *x, int n) {
    for (int j = 0; j < n; j++) x[j] = x[j] > 0 ? x[j] : 0;
}

/* StandardScaler and a two-class LogisticRegression over 20 columns. */
void scaler_logistic(i64 n, const double *restrict x, const double *restrict mean,
                     const double *restrict scale, const double *restrict w, double bias,
                     i64 *restrict label, double *restrict probabilities,
                     double *restrict scores) {
    for (i64 i = 0; i < n; i++) {
        double z[20];
        for (int j = 0; j < 20; j++) z[j] = (x[20 * i + j] - mean[j]) / scale[j];
        double score = dot(z, w, 20) + bias;
        double p = sigmoid(score);
        label[i] = score > 0;
        probabilities[2 * i] = 1 - p;
        probabilities[2 * i + 1] = p;
        scores[i] = score;
    }
}

/* Median imputation and scaling of 8 numbers, 4 categories of 10 values each, one-hot into a
 * two-class LogisticRegression: 8 + 40 weights. Categories are the numbers 0 to 9. */
void mixed_logistic(i64 n, const double *restrict x, const double *restrict fill,
                    const double *restrict mean, const double *restrict scale,
                    const double *restrict w, double bias, i64 *restrict label,
                    double *restrict probabilities, double *restrict scores) {
    for (i64 i = 0; i < n; i++) {
        const double *row = x + 12 * i;
        double z[8];
        for (int j = 0; j < 8; j++) {
            double v = row[j] != row[j] ? fill[j] : row[j];
            z[j] = (v - mean[j]) / scale[j];
        }
        double score = dot(z, w, 8);
        for (int c = 0; c < 4; c++) {
            double v = row[8 + c];
            int k = v >= 0 && v <= 9 ? (int)v : -1;
            if (k >= 0 && k == v) score += w[8 + 10 * c + k];
        }
        score += bias;
        double p = sigmoid(score);
        label[i] = score > 0;
        probabilities[2 * i] = 1 - p;
        probabilities[2 * i + 1] = p;
        scores[i] = score;
    }
}

/* PCA from 40 to 20 columns and a linear regression on them. */
void pca_linear(i64 n, const double *restrict x, const double *restrict components,
                const double *restrict offset, const double *restrict w, double bias,
                double *restrict y) {
    for (i64 i = 0; i < n; i++) {
        double z[20];
        layer(x + 40 * i, components, offset, z, 40, 20);
        y[i] = dot(z, w, 20) + bias;
    }
}

/* A network of 40 inputs, 32 and 8 hidden units (relu) and three classes. */
void network(i64 n, const double *restrict x, const double *restrict w1,
             const double *restrict b1, const double *restrict w2, const double *restrict b2,
             const double *restrict w3, const double *restrict b3, i64 *restrict label,
             double *restrict probabilities) {
    for (i64 i = 0; i < n; i++) {
        double h1[32], h2[8], s[3];
        layer(x + 40 * i, w1, b1, h1, 40, 32);
        relu(h1, 32);
        layer(h1, w2, b2, h2, 32, 8);
        relu(h2, 8);
        layer(h2, w3, b3, s, 8, 3);
        double top = s[0], total = 0;
        for (int k = 1; k < 3; k++) top = s[k] > top ? s[k] : top;
        i64 best = 0;
        for (int k = 1; k < 3; k++)
            if (s[k] > s[best]) best = k;
        for (int k = 0; k < 3; k++) total += s[k] = exp(s[k] - top);
        for (int k = 0; k < 3; k++) probabilities[3 * i + k] = s[k] / total;
        label[i] = best;
    }
}
