//! Answers rows of four numbers from its input.

use std::ffi::{c_int, c_void};
use std::io::{stdin, BufRead};

#[repr(C)]
struct Input {
    x: *const f64,
}

#[repr(C)]
struct Output {
    label: *mut i64,
    probabilities: *mut f64,
}

extern "C" {
    fn iris_predict(input: *const Input, output: *mut Output, rows: usize, scratch: *mut c_void) -> c_int;
    fn iris_scratch_size(longest: usize) -> usize;
}

const LABELS: [&str; 3] = ["setosa", "versicolor", "virginica"];

/// The label and the probabilities of a row, or None for one that the model refuses.
fn answer(x: &[f64; 4], scratch: &mut [u8]) -> Option<(usize, [f64; 3])> {
    let (mut label, mut probabilities) = (0, [0.0; 3]);
    let input = Input { x: x.as_ptr() };
    let mut output = Output { label: &mut label, probabilities: probabilities.as_mut_ptr() };
    // SAFETY: all arrays have the size of a row, and scratch has the bytes that it asks for.
    let code = unsafe { iris_predict(&input, &mut output, 1, scratch.as_mut_ptr().cast()) };
    (code == 0).then_some((label as usize, probabilities))
}

fn main() {
    let mut scratch = vec![0; unsafe { iris_scratch_size(0) }];
    for line in stdin().lock().lines() {
        let row: Vec<f64> = line.unwrap().split_whitespace().map(|cell| cell.parse().unwrap()).collect();
        let x = row.try_into().expect("four numbers");
        let (label, p) = answer(&x, &mut scratch).expect("the model refuses this row");
        println!("{} {} {} {}", LABELS[label], p[0], p[1], p[2]);
    }
}
