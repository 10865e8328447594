"""Sort kernels: by time, by key, by rank."""
