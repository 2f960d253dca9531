// Answers rows of four numbers from its input. cgo compiles iris.c, which is in this folder.
package main

// #cgo LDFLAGS: -lm
// #include "iris.h"
//
// static int answer(double *x, int64_t *label, double *probabilities, size_t rows, void *scratch) {
//     iris_input input = {.X = x};
//     iris_output output = {.label = label, .probabilities = probabilities};
//     return iris_predict(&input, &output, rows, scratch);
// }
// static const char *name(int64_t label) { return iris_label_labels[label]; }
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"unsafe"
)

func main() {
	var x [4]C.double
	var label C.int64_t
	var probabilities [3]C.double
	scratch := make([]byte, C.iris_scratch_size(0))
	in := bufio.NewReader(os.Stdin)
	for {
		if n, _ := fmt.Fscan(in, &x[0], &x[1], &x[2], &x[3]); n < 4 {
			return
		}
		if code := C.answer(&x[0], &label, &probabilities[0], 1, unsafe.Pointer(&scratch[0])); code != 0 {
			fmt.Fprintln(os.Stderr, "the model refuses this row:", code)
			os.Exit(1)
		}
		p := probabilities
		fmt.Println(C.GoString(C.name(label)), float64(p[0]), float64(p[1]), float64(p[2]))
	}
}
