#!/bin/sh
# Makes sure that a Chromium is there for the browser tests: the machine's own, or the distribution's package.
# Keep the list of names equal to NAMES in chromium.py.
set -eu

if [ -n "${ETVIZ_CHROMIUM:-}" ]; then
    [ -x "$ETVIZ_CHROMIUM" ] && exit 0
    echo "ETVIZ_CHROMIUM is $ETVIZ_CHROMIUM, which is not a program that can be run." >&2
    exit 1
fi

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "The browser tests need Chromium, and none was found. Install it (Debian: sudo apt-get install chromium)," >&2
    echo "or name the program of an existing one in the environment variable ETVIZ_CHROMIUM." >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends chromium
