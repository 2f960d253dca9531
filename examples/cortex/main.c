/* Answers rows of four numbers from its input, in float32. */
#include "iris.h"

#include <stdio.h>

static _Alignas(8) char scratch[256];

int main(void) {
    float x[4], probabilities[3];
    int64_t label;
    if (iris_scratch_size(0) > sizeof scratch) return 1;
    iris_input input = {.X = x};
    iris_output output = {.label = &label, .probabilities = probabilities};
    while (scanf("%f %f %f %f", &x[0], &x[1], &x[2], &x[3]) == 4) {
        if (iris_predict(&input, &output, 1, scratch)) return 1;
        printf("%s %.9g %.9g %.9g\n", iris_label_labels[label], probabilities[0], probabilities[1],
            probabilities[2]);
    }
    return 0;
}
