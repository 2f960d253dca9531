"""From source to machine code: intrinsics, lowering, LLVM, object code, the code cache."""
