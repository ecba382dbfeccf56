"""Kernels that look at all gradients of a CUDA device in one pass, where there is a Triton to compile them."""
