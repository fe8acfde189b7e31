#!/bin/sh
# Makes sure that tests/kerberos can run: a KDC (MIT's, Debian's packages, installed as root), and the package gssapi in .venv.
# Starts nothing: each test run has a KDC of its own. Prints one line when all is there.
set -eu
cd "$(dirname "$0")/.."

packages="krb5-kdc krb5-admin-server krb5-user libkrb5-dev"
PATH="$PATH:/usr/sbin:/usr/local/sbin"

missing() {
    for program in krb5kdc kdb5_util kadmin.local kinit kvno krb5-config; do
        command -v "$program" >/dev/null 2>&1 || { echo "$program"; return; }
    done
}

if [ -n "$(missing)" ]; then
    if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
        echo "$(missing) is missing: run this as root, or install it; on Debian: apt-get install $packages" >&2
        exit 1
    fi
    echo "installing a KDC ($packages) ..." >&2
    apt-get update -qq >&2
    # shellcheck disable=SC2086 # a list
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2
fi
if ! .venv/bin/python -c 'import gssapi' 2>/dev/null; then
    echo "installing the package gssapi into .venv; it is compiled, which may take a minute ..." >&2
    .venv/bin/python -m pip install --disable-pip-version-check -q -r requirements/kerberos.txt >&2
fi
echo "Kerberos: $(krb5-config --version), gssapi $(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("gssapi"))')"
