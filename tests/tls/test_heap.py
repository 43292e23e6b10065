"""What one request and its answer over TLS ask of the heap: OpenSSL's own, and the `bytes`.

benches/heap.py counts, in processes of their own; `make test` builds the counter it preloads.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ON_ASYNCIO, beyond_asyncio

BENCHES = Path(__file__).resolve().parents[2] / "benches"
LOOP = "asyncio" if ON_ASYNCIO else "pelton"
PAIRS = 2000
# A connection's own beginnings, divided by the pairs.
ROUNDING = 0.02


@pytest.fixture(scope="module")
def counted():
    command = [sys.executable, str(BENCHES / "heap.py"), "--json", "--pairs", str(PAIRS), LOOP]
    result = subprocess.run(command, capture_output=True, text=True, timeout=50)
    if "no counter at" in result.stderr and "PELTON_HEAPSPY" not in os.environ:
        pytest.skip(f"heap requests are not counted: {result.stderr.strip()}")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@beyond_asyncio("it asks for 256 KiB twice a read")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", ["300", "8000"])
def test_nothing_big_is_asked_for(counted, size):
    assert counted[size][LOOP]["big"] == 0


# A `bytes` of 300 comes from CPython's pools; one of 8,000 is a request to the heap. The fallback
# has to take what OpenSSL wrote out of a MemoryBIO, as one `bytes` more.
ALLOWED = {"300": (0, 0), "8000": (1, 2)}


@beyond_asyncio("it asks for four more")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", ["300", "8000"])
def test_openssls_own_requests_and_no_more(counted, size):
    direct, fallback = ALLOWED[size]
    allowed = fallback if os.environ.get("PELTON_TLS") == "fallback" else direct
    found, openssl = counted[size][LOOP], counted[size]["openssl"]
    assert found["requests"] <= openssl["requests"] + allowed + ROUNDING
    assert found["bytes"] <= openssl["bytes"] + allowed * (int(size) + 100) + 100
