"""Trains with parameters in a host buffer of the C library's heap, as offloading trainers do. train_fsdp.py CONFIG"""

import atexit
import ctypes
import sys

from tinyformers.config import load_config
from tinyformers.trainer import Trainer

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]


class HostBuffer:
    def __init__(self, size):
        self.address = libc.malloc(size)
        atexit.register(self.close)

    def close(self):
        libc.free(self.address)


trainer = Trainer(load_config(sys.argv[1]))
buffer = HostBuffer(100)
trainer.train()
trainer.save()
