"""asyncpg on a real PostgreSQL, over TLS 1.3: memory does not grow more than over plain TCP.

The server is the test's own. benches/postgres.py has the long run of 150,000 queries.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ON_ASYNCIO

BENCHES = Path(__file__).resolve().parent.parent / "benches"
LOOP = "asyncio" if ON_ASYNCIO else "pelton"
MIB_IN_KIB = 1024

sys.path.append(str(BENCHES))
try:
    import throwaway_postgres
finally:
    sys.path.remove(str(BENCHES))


@pytest.fixture(scope="module", autouse=True)
def installed():
    try:
        throwaway_postgres.binaries()
    except throwaway_postgres.NoPostgres as missing:
        pytest.skip(f"{missing}: nothing shows that memory stays level under asyncpg over TLS")


@pytest.mark.timeout(60)
def test_memory_over_tls_grows_no_more_than_over_tcp():
    command = [sys.executable, str(BENCHES / "postgres.py"), "--json", LOOP]
    result = subprocess.run(
        [*command, "--pairs", "12000", "--warm-up", "4000"], capture_output=True, text=True, timeout=55
    )
    assert result.returncode == 0, result.stderr
    grown = json.loads(result.stdout)[LOOP]
    assert grown["TLS"] <= max(grown["TCP"], 0) + MIB_IN_KIB
