#!/bin/sh
# Finds a Python that fits and hands over to scripts/launch.py, which does the rest.
set -eu
root=$(cd "$(dirname "$0")" && pwd)
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'

pythons='python3 python3.13 python3.12 python3.11 python3.14 python'
system=$(uname -s)
if [ "$system" = Darwin ]; then
    # Without the developer tools macOS answers plain `python3` with a dialog.
    pythons='python3.13 python3.12 python3.11 python3.14 python3'
fi

# A Python that can make environments by itself is better than one that cannot.
for ability in 'import venv, ensurepip' 'import venv'; do
    for python in $pythons; do
        if "$python" -c "$ability; $fits" >/dev/null 2>&1; then
            exec "$python" "$root/scripts/launch.py" "$@"
        fi
    done
done

if [ "$system" = Darwin ]; then
    remedy="run 'brew install python@3.13', or install it from https://www.python.org/downloads/"
elif command -v apt-get >/dev/null; then
    remedy="run 'sudo apt install python3 python3-venv' (on Ubuntu 22.04 'python3.11 python3.11-venv')"
elif command -v dnf >/dev/null; then
    remedy="run 'sudo dnf install python3.13'"
elif command -v pacman >/dev/null; then
    remedy="run 'sudo pacman -S python'"
else
    remedy="install it from https://www.python.org/downloads/"
fi
echo "start: local_tp needs Python 3.11 to 3.14 and none was found: $remedy, then start again" >&2
exit 2
