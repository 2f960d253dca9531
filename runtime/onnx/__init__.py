"""ONNX models in service: a session like onnxruntime's, and ONNX's backend interface."""
