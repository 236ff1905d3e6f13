#!/bin/sh
# Makes sure that a Firefox is there for the tests of other hosts: the machine's own, or the distribution's package.
# Keep the list of names equal to NAMES in firefox.py. Without it those tests are skipped, with the reason.
set -eu

[ -n "${ETVIZ_FIREFOX:-}" ] && exit 0

for name in firefox-esr firefox; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "No Firefox was found: what is tested in it is skipped (Debian: sudo apt-get install firefox-esr)." >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends firefox-esr
