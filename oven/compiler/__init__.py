"""From source to machine code: intrinsics, numba and LLVM, object code, the code cache."""
