/* @ABOUT@ */@SAID@
#ifndef PRETZEL_MODEL_H
#define PRETZEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

@TEXT@typedef struct {
@INPUTS@
} MODEL_input;

typedef struct {
@OUTPUTS@
} MODEL_output;

@LABELS@/* 0; 1: a row is refused, for NaN or infinity perhaps; 2: a text has over `longest`
   bytes; 3: a text is no UTF-8. A thread's `scratch` has MODEL_scratch_size bytes. Nothing here
   is NULL, but the data of a text that is missing or empty. */
int MODEL_predict(const MODEL_input *input, MODEL_output *output, size_t rows, void *scratch);
size_t MODEL_scratch_size(size_t longest);
/* Name, version and digests. */
const char *MODEL_version(void);

#ifdef __cplusplus
}
#endif
#endif
