/* The native methods of Iris.java. */
#include "iris.h"

#include <jni.h>
#include <stdlib.h>

JNIEXPORT jint JNICALL Java_Iris_predict(
    JNIEnv *env, jclass type, jdoubleArray x, jlongArray label, jdoubleArray probabilities) {
    (void)type;
    jsize rows = (*env)->GetArrayLength(env, label);
    if ((*env)->GetArrayLength(env, x) != 4 * rows) return -1;
    if ((*env)->GetArrayLength(env, probabilities) != 3 * rows) return -1;
    void *scratch = malloc(iris_scratch_size(0));
    jdouble *in = (*env)->GetDoubleArrayElements(env, x, NULL);
    jlong *labels = (*env)->GetLongArrayElements(env, label, NULL);
    jdouble *made = (*env)->GetDoubleArrayElements(env, probabilities, NULL);
    iris_input input = {.X = in};
    iris_output output = {.label = (int64_t *)labels, .probabilities = made};
    int ready = scratch && in && labels && made;
    int code = ready ? iris_predict(&input, &output, (size_t)rows, scratch) : -2;
    if (made) (*env)->ReleaseDoubleArrayElements(env, probabilities, made, 0);
    if (labels) (*env)->ReleaseLongArrayElements(env, label, labels, 0);
    if (in) (*env)->ReleaseDoubleArrayElements(env, x, in, JNI_ABORT);
    free(scratch);
    return code;
}

JNIEXPORT jstring JNICALL Java_Iris_name(JNIEnv *env, jclass type, jlong label) {
    (void)type;
    return label < 0 || label > 2 ? NULL : (*env)->NewStringUTF(env, iris_label_labels[label]);
}
