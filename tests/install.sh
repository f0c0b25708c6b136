#!/usr/bin/env bash
# Installs what the black-box tests need and the machine lacks; quick when all is there.
#
# It does not build or test Towline itself. Everything goes below the cargo target folder, except
# Debian packages (only as root), Maven's repository, and tests/e2e/node/node_modules. Each part is
# remade when one of its sources changed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/e2e
mkdir -p "$target"
target=$(cd "$target" && pwd)

# Runs a part unless its stamp has the checksum of its sources: part NAME FUNCTION SOURCE...
part() {
  local name=$1 function=$2
  shift 2
  local sum
  sum=$( (find "$@" -type f -not -path '*/node_modules/*' -print0 | sort -z | xargs -0 sha256sum
    declare -f "$function") | sha256sum)
  if [ "$(cat "$target/$name.stamp" 2>/dev/null)" = "$sum" ]; then
    return
  fi
  echo "install: $name"
  "$function"
  echo "$sum" > "$target/$name.stamp"
}

need() {
  command -v "$1" > /dev/null || { echo "install: $1 is missing: $2" >&2; exit 1; }
}

debian_packages() {
  local missing=()
  command -v fusermount3 > /dev/null || missing+=(fuse3)
  ls /usr/lib/*/faketime/libfaketimeMT.so.1 > /dev/null 2>&1 || missing+=(faketime)
  command -v python3 > /dev/null || missing+=(python3)
  command -v gcc > /dev/null || missing+=(gcc libc6-dev)
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    # Without python3-venv, `python3 -m venv` of Debian's own Python fails; a pyenv one has it.
    python3 -c 'import ensurepip' 2> /dev/null || missing+=(python3-venv)
  fi
  [ ${#missing[@]} = 0 ] && return
  if [ "$(id -u)" != 0 ]; then
    echo "install: as root, please: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "install: apt-get install ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
}

jms_programs() {
  mvn -q -B -f "$here/e2e/jms/pom.xml" package "-Doutput.dir=$target/jms" < /dev/null
}

proton_library() {
  python3 -m venv "$target/venv"
  "$target/venv/bin/pip" install -q --disable-pip-version-check -r "$here/e2e/proton/requirements.txt"
  "$target/venv/bin/python" -c 'import proton'
}

go_program() {
  (cd "$here/e2e/go" && go build -o "$target/go-client" .)
}

go_sample() {
  (cd "$here/../examples/clients/go" && go build -o "$target/go-sample" .)
}

node_modules() {
  (cd "$here/e2e/node" && npm ci --silent --no-audit --no-fund < /dev/null)
}

debian_packages
need java "a JDK, 17 or newer (openjdk-17-jdk)"
need mvn "Apache Maven (maven)"
need go "the Go toolchain"
need npm "Node.js with npm"
part jms jms_programs "$here/e2e/jms/pom.xml" "$here/e2e/jms/src"
part proton proton_library "$here/e2e/proton/requirements.txt"
part go go_program "$here/e2e/go"
part go-sample go_sample "$here/../examples/clients/go"
[ -d "$here/e2e/node/node_modules/rhea" ] || rm -f "$target/node.stamp"
part node node_modules "$here/e2e/node/package.json" "$here/e2e/node/package-lock.json"
if [ ! -w /dev/fuse ]; then
  echo "install: /dev/fuse cannot be used here; the power-cut tests will fail" >&2
fi
