/* iris_label(a, b, c, d) is the label of a row, iris_probabilities(a, b, c, d) has those of its classes. */
#include <postgres.h>

#include <catalog/pg_type_d.h>
#include <fmgr.h>
#include <utils/array.h>
#include <utils/builtins.h>

#include "iris.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(iris_label);
PG_FUNCTION_INFO_V1(iris_probabilities);

static int64_t answer(FunctionCallInfo call, double *probabilities) {
    double x[4];
    int64_t label;
    void *scratch = palloc(iris_scratch_size(0));
    iris_input input = {.X = x};
    iris_output output = {.label = &label, .probabilities = probabilities};
    for (int k = 0; k < 4; k++) x[k] = DatumGetFloat8(call->args[k].value);
    if (iris_predict(&input, &output, 1, scratch))
        ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION), errmsg("iris refuses this row")));
    pfree(scratch);
    return label;
}

Datum iris_label(PG_FUNCTION_ARGS) {
    double probabilities[3];
    PG_RETURN_TEXT_P(cstring_to_text(iris_label_labels[answer(fcinfo, probabilities)]));
}

Datum iris_probabilities(PG_FUNCTION_ARGS) {
    double probabilities[3];
    Datum made[3];
    (void)answer(fcinfo, probabilities);
    for (int k = 0; k < 3; k++) made[k] = Float8GetDatum(probabilities[k]);
    PG_RETURN_ARRAYTYPE_P(construct_array(made, 3, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
