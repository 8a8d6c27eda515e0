"""Fills the shuffle buffer from a second process. prefetch.py"""

import multiprocessing
import time


def producer(free, filled):
    for batch in range(100):
        free.acquire()
        print(f"prefetched batch {batch}", flush=True)
        filled.release()


def consume(free, filled):
    for batch in range(100):
        filled.acquire()
        print(f"global_step: {batch + 1} batch {batch} of 100", flush=True)
        free.release()
        time.sleep(0.05)


if __name__ == "__main__":
    free, filled = multiprocessing.Semaphore(1), multiprocessing.Semaphore(0)
    multiprocessing.Process(target=producer, args=(free, filled), name="prefetch").start()
    consume(free, filled)
