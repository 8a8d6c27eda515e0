"""Waits for a kernel that spins for minutes; a second process waits for the first."""

import multiprocessing

import cupy


def wait_for(queue):
    print("loss of the first rank:", queue.get(), flush=True)


if __name__ == "__main__":
    queue = multiprocessing.Queue()
    multiprocessing.Process(target=wait_for, args=(queue,), name="rank1").start()
    source = """extern "C" __global__ void spin(long long n, long long* out) {
        long long start = clock64();
        while (clock64() - start < n);
        *out = start;
    }"""
    spin = cupy.RawKernel(source, "spin")
    out = cupy.zeros(1, dtype=cupy.int64)
    print("global_step: 1 loss: 7.25", flush=True)
    spin((1,), (1,), (300 * 1_980_000_000, out))
    queue.put(int(out[0]))
