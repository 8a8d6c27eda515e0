"""Prints what the driver says of every card, as JSON: a fixture of real answers for tests that have no card."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pynvml


def ask(call: Callable[[], Any]) -> Any:
    try:
        value = call()
    except pynvml.NVMLError as e:
        return {"error": type(e).__name__, "code": e.value, "text": str(e)}
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "_fields_"):
        return {name: int(getattr(value, name)) for name, *_ in value._fields_ if isinstance(getattr(value, name), int)}
    if isinstance(value, list):
        return [ask(lambda item=item: item) for item in value]  # type: ignore[misc]
    return value


pynvml.nvmlInit()
cards = []
for i in range(pynvml.nvmlDeviceGetCount()):
    h = pynvml.nvmlDeviceGetHandleByIndex(i)
    cards.append(
        {
            "index": i,
            "uuid": ask(lambda h=h: pynvml.nvmlDeviceGetUUID(h)),
            "name": ask(lambda h=h: pynvml.nvmlDeviceGetName(h)),
            "memory": ask(lambda h=h: pynvml.nvmlDeviceGetMemoryInfo(h)),
            "compute_capability": ask(lambda h=h: pynvml.nvmlDeviceGetCudaComputeCapability(h)),
            "mig_mode": ask(lambda h=h: pynvml.nvmlDeviceGetMigMode(h)),
            "compute_mode": ask(lambda h=h: pynvml.nvmlDeviceGetComputeMode(h)),
            "persistence_mode": ask(lambda h=h: pynvml.nvmlDeviceGetPersistenceMode(h)),
            "processes": ask(lambda h=h: pynvml.nvmlDeviceGetComputeRunningProcesses(h)),
            "utilization": ask(lambda h=h: pynvml.nvmlDeviceGetUtilizationRates(h)),
            "temperature": ask(lambda h=h: pynvml.nvmlDeviceGetTemperature(h, 0)),
            "ecc_mode": ask(lambda h=h: pynvml.nvmlDeviceGetEccMode(h)),
            "ecc_uncorrected_volatile": ask(lambda h=h: pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 0)),
            "ecc_uncorrected_aggregate": ask(lambda h=h: pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 1)),
            "retired_pages_double_bit": ask(lambda h=h: pynvml.nvmlDeviceGetRetiredPages(h, 1)),
            "remapped_rows": ask(lambda h=h: pynvml.nvmlDeviceGetRemappedRows(h)),
            "pci": ask(lambda h=h: pynvml.nvmlDeviceGetPciInfo(h)),
        }
    )
document = {
    "driver": ask(pynvml.nvmlSystemGetDriverVersion),
    "nvml": ask(pynvml.nvmlSystemGetNVMLVersion),
    "cuda": ask(pynvml.nvmlSystemGetCudaDriverVersion),
    "cards": cards,
}
print(json.dumps(document, indent=1, default=str))
