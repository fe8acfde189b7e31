#!/usr/bin/env bash
# Prove that `make demo` needs nothing but Python, make and a C compiler: a fresh clone, an empty home and jar cache,
# and a PATH on which Java, Maven, uv and Docker do not exist. (pip may use its download cache.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hidden=(java javac jshell keytool jar mvn mvnw gradle ivy uv uvx docker dockerd containerd podman kcat coursier cs)

work=$(mktemp -d "${TMPDIR:-/tmp}/fresh.XXXXXX")
trap 'rm -rf "$work"' EXIT

links_to_everything_else() { # FOLDER
    mkdir -p "$1"
    local folder program
    while IFS= read -r -d: folder; do
        for program in "$folder"/*; do
            [ -x "$program" ] && [ ! -e "$1/${program##*/}" ] && ln -s "$program" "$1/${program##*/}"
        done
    done <<<"$PATH:"
    for program in "${hidden[@]}"; do
        rm -f "$1/$program"
    done
    # A version manager's stubs ask their own home which Python to run; here the interpreter itself is meant.
    local python
    python=$(.ci/python)
    python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    rm -f "$1"/python3*
    ln -s "$python" "$1/python3"
}

pip_cache=$(.venv/bin/python -m pip cache dir 2>/dev/null || echo "$work/pip")
git clone --quiet --no-hardlinks . "$work/clone"
links_to_everything_else "$work/bin"

clean=(env -u JAVA_HOME -u SPARK_HOME -u PYSPARK_PYTHON -u VIRTUAL_ENV -u PYTHON -u PYCLIENT_BOOTSTRAP -u PYCLIENT_BROKERS
    PATH="$work/bin" HOME="$work/home" PYCLIENT_CACHE="$work/cache" PIP_CACHE_DIR="$pip_cache"
    DOCKER_HOST="unix://$work/no-engine.sock")
mkdir -p "$work/home"
for program in "${hidden[@]}"; do
    if "${clean[@]}" sh -c "command -v $program" >/dev/null; then
        echo "fresh machine: $program is still visible" >&2
        exit 1
    fi
done

echo "fresh machine: make demo, nothing installed, nothing cached but pip's downloads"
(cd "$work/clone" && "${clean[@]}" make demo)
(cd "$work/clone" && "$work/clone/.venv/bin/python" -c '
import json
from tests.spark.demo import check_result
done = json.load(open("build/demo.json"))
check_result(done, 336_776)
print("fresh machine: %(rows_in)d rows in, %(rows_read)d read, %(aggregates)d aggregates out" % done)')

echo "fresh machine: the second time"
began=$(date +%s%N)
(cd "$work/clone" && "${clean[@]}" make setup jars)
took=$((($(date +%s%N) - began) / 1000000))
echo "fresh machine: set-up took $took ms the second time"
[ "$took" -lt 20000 ]
