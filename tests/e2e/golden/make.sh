#!/bin/sh
# Makes a golden data folder with a towline binary of any version: make.sh BINARY NAME.
# NAME.tar.gz has the data folder as kill -9 left it, NAME.txt what is in its queues, in order.
set -eu
binary=$1
name=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# Extents as small as they may be, so that there are several, and some are let go.
printf '[log]\nextent_bytes = 4194304\n' > towline.toml
"$binary" run QM1 --data data --listen 127.0.0.1:0 --config towline.toml > out 2> err &
daemon=$!
until grep -q '^ready' out; do kill -0 "$daemon"; done

run() { "$binary" "$@" --data data > /dev/null; }
run mqsc -c "DEFINE QLOCAL(GOLD.PLAIN) DESCR('as it was')" -c 'DEFINE QLOCAL(GOLD.PRIORITY)' \
    -c 'DEFINE QLOCAL(GOLD.LARGE)' -c 'DEFINE QLOCAL(GOLD.FILL)' \
    -c 'DEFINE QALIAS(GOLD.ALIAS) TARGET(GOLD.PLAIN)' -c 'ALTER QLOCAL(GOLD.PLAIN) MAXDEPTH(77777)'
list=$here/$name.txt
: > "$list"
put() { # queue, first, last, further options: messages of a line each
    queue=$1; first=$2; last=$3; shift 3
    seq "$first" "$last" | sed 's/^/message /' | run put "$queue" --lines "$@"
}
tell() { # queue, first, last
    seq "$2" "$3" | sed "s/^/$1 message /" >> "$list"
}
put GOLD.PLAIN 1 400
put GOLD.PRIORITY 1 5 --priority 1
put GOLD.PRIORITY 6 10 --priority 9
# A version that does not know groups leaves them out.
run mqsc -c 'DEFINE QLOCAL(GOLD.GROUPS)'
grouped() { # first, last
    python3 "$here/grouped.py" "$(sed -n 's|^ready amqp://||p' out)" GOLD.GROUPS "$1" "$2"
}
grouped 1 5
# The log moves on over several extents, so that its beginning is let go.
head -c 900000 /dev/zero | tr '\0' f > fill
round=0
while [ $round -lt 24 ]; do
    run put GOLD.FILL --file fill
    run get GOLD.FILL --output taken
    round=$((round + 1))
done
if "$binary" image --help > /dev/null 2>&1; then run image; fi
run get GOLD.PLAIN --count 100
put GOLD.PLAIN 401 420 --transaction 7
head -c 1500000 /dev/zero | tr '\0' x > large
run put GOLD.LARGE --file large
grouped 6 10
kill -9 "$daemon"
wait "$daemon" || true
tell GOLD.PLAIN 101 420
tell GOLD.PRIORITY 6 10
tell GOLD.PRIORITY 1 5
tell GOLD.GROUPS 1 10
echo 'GOLD.LARGE x times 1500000' >> "$list"
rm -f data/towline.sock
ls -l data data/log >&2
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c data | gzip -9n > "$here/$name.tar.gz"
ls -l "$here/$name.tar.gz" >&2
