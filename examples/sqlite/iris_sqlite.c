/* iris(a, b, c, d) is the label of a row, iris(a, b, c, d, k) the probability of class k. */
#include "iris.h"

#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

static void answer(sqlite3_context *context, int count, sqlite3_value **given) {
    double x[4], probabilities[3];
    int64_t label, k = count > 4 ? sqlite3_value_int64(given[4]) : 0;
    for (int column = 0; column < 4; column++) x[column] = sqlite3_value_double(given[column]);
    void *scratch = sqlite3_malloc64(iris_scratch_size(0));
    if (!scratch) {
        sqlite3_result_error_nomem(context);
        return;
    }
    iris_input input = {.X = x};
    iris_output output = {.label = &label, .probabilities = probabilities};
    int code = iris_predict(&input, &output, 1, scratch);
    sqlite3_free(scratch);
    if (code || k < 0 || k > 2) sqlite3_result_error(context, "iris refuses this row", -1);
    else if (count > 4) sqlite3_result_double(context, probabilities[k]);
    else sqlite3_result_text(context, iris_label_labels[label], -1, SQLITE_STATIC);
}

int sqlite3_irissqlite_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)error;
    SQLITE_EXTENSION_INIT2(api);
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    int code = sqlite3_create_function(db, "iris", 4, flags, NULL, answer, NULL, NULL);
    return code ? code : sqlite3_create_function(db, "iris", 5, flags, NULL, answer, NULL, NULL);
}
