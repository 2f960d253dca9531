/* Answers rows of four numbers from its input. */
#include "iris.h"

#include <stdio.h>
#include <stdlib.h>

int main(void) {
    double x[4], probabilities[3];
    int64_t label;
    void *scratch = malloc(iris_scratch_size(0));
    if (scratch == NULL) return 1;
    iris_input input = {.X = x};
    iris_output output = {.label = &label, .probabilities = probabilities};
    while (scanf("%lf %lf %lf %lf", &x[0], &x[1], &x[2], &x[3]) == 4) {
        if (iris_predict(&input, &output, 1, scratch)) return 1;
        printf("%s %.17g %.17g %.17g\n", iris_label_labels[label], probabilities[0], probabilities[1],
            probabilities[2]);
    }
    free(scratch);
    return 0;
}
