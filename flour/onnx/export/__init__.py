"""Programs as ONNX models, form by form."""
