"""Which engine TLS runs on, and how it is chosen. `make test` runs this folder on both."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from helpers import ON_ASYNCIO

pytestmark = pytest.mark.skipif(ON_ASYNCIO, reason="asyncio has but one")
FORCED = os.environ.get("PELTON_TLS") == "fallback"


def test_the_engine_of_this_run():
    """CPython links its ssl module to a shared libssl here: nothing but the variable forces the fallback."""
    import pelton

    assert pelton.tls_engine() == ("fallback" if FORCED else "direct")


PROGRAM = textwrap.dedent("""
    import json, sys
    import pelton
    before = "ssl" in sys.modules, "_ssl" in sys.modules
    print(json.dumps([pelton.tls_engine(), before]))
""")


def ask(**environment):
    variables = {name: value for name, value in os.environ.items() if name != "PELTON_TLS"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**variables, **environment}, capture_output=True, text=True, timeout=20
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)[0]


def test_the_variable_forces_the_fallback():
    assert ask() == "direct"
    assert ask(PELTON_TLS="fallback") == "fallback"


def test_another_value_is_no_choice():
    assert ask(PELTON_TLS="") == "direct"


def test_a_libssl_that_is_not_pythons(tmp_path):
    """Another copy of OpenSSL in the process, loaded first and for all to see, is not taken for Python's.

    `cryptography` brings one, statically; it is imported before the first TLS of this process.
    """
    program = textwrap.dedent("""
        import cryptography.hazmat.bindings._rust
        import asyncio, ssl, pelton
        print(pelton.tls_engine())
    """)
    variables = {name: value for name, value in os.environ.items() if name != "PELTON_TLS"}
    result = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=20)
    assert result.stdout.strip() == "direct", result.stderr


def test_a_hook_that_does_not_fire(tmp_path):
    """Where the self-test fails, TLS works all the same: here wrap_bio() is another's."""
    program = textwrap.dedent("""
        import ssl
        class Stranger(ssl.SSLObject):
            pass
        ssl.SSLContext.sslobject_class = Stranger
        import pelton
        assert pelton.tls_engine() in ("direct", "fallback")
        print("lives")
    """)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert result.stdout.strip() == "lives", result.stderr
