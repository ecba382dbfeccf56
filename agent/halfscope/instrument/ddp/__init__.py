"""The gradients of DistributedDataParallel before and after their reduction."""
