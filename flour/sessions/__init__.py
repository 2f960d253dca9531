"""Sessions of onnxruntime, for the parts of models that have no native code."""
