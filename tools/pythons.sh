#!/usr/bin/env bash
# Print the interpreter of each Python version named (3.11 3.12 ...) that this machine has.
set -euo pipefail

for version in "$@"; do
    for python in "python$version" "$HOME"/.pyenv/versions/"$version"*/bin/python python3; do
        if found=$("$python" -c '
import sys
print(sys.executable)
sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$version" 2>/dev/null); then
            echo "$found"
            break
        fi
    done
done
