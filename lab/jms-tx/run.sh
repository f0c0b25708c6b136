#!/usr/bin/env bash
# JMS local transactions against an AMQP URL; all arguments go to the program (see its header).
# Builds on first use. Example: lab/jms-tx/run.sh --url amqp://127.0.0.1:5672 --threads 10
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
if [[ ! -f "$here/target/jms-tx.jar" || "$here/src" -nt "$here/target/jms-tx.jar" ]]; then
    mvn -q -B -f "$here/pom.xml" package </dev/null >&2
fi
exec java -Xmx512m -cp "$here/target/jms-tx.jar:$here/target/lib/*" \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn dev.towline.lab.JmsTransactions "$@"
