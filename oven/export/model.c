/* @ABOUT@ */
#include "MODEL.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lower byte of a number comes first"
#endif
#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "numbers are rounded after every operation: no x87, and no -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

@CODE@
int MODEL_predict(
    const MODEL_input *input, MODEL_output *output, size_t rows, void *scratch) {
    int64_t io[] = {
        @COLUMNS@};
    return (int)run_pz(
        (int64_t)(intptr_t)io, (int64_t)(intptr_t)table, (int64_t)rows,
        (int64_t)(intptr_t)scratch, @LONGEST@);
}

size_t MODEL_scratch_size(size_t longest) {
    int64_t size = scratch_size_pz((int64_t)longest);
#if SIZE_MAX < INT64_MAX
    if (size > (int64_t)SIZE_MAX) return SIZE_MAX;
#endif
    return (size_t)size;
}

const char *MODEL_version(void) {
    return "@ABOUT@";
}
