"""The error of a quantized model, split into quantization and backend."""
