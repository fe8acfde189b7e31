#!/bin/sh
# Starts the broker of a container, by the contract of Apache's own image: KAFKA_A_B=v becomes a.b=v (__ is _, ___ is -),
# CLUSTER_ID names the cluster, data stays under KAFKA_LOG_DIRS; a folder formatted before is used as it is.
# PYCLIENT_FORMAT_FLAGS are more arguments of the formatter.
set -eu
java=/opt/java/bin/java
config=/var/lib/kafka/server.properties
flags="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC ${KAFKA_HEAP_OPTS:--Xms64m -Xmx384m}
    -Dlog4j2.configurationFile=/etc/kafka/log4j2.properties -Dlog4j.configuration=file:/etc/kafka/log4j.properties
    -Dkafka.logs.dir=/var/lib/kafka"
env | grep '^KAFKA_' | grep -vE '^KAFKA_(HEAP_OPTS|OPTS)=' | awk '{
    at = index($0, "="); name = tolower(substr($0, 7, at - 7))
    gsub("___", "\001", name); gsub("__", "\002", name); gsub("_", ".", name); gsub("\001", "-", name); gsub("\002", "_", name)
    print name substr($0, at)
}' >"$config"
# shellcheck disable=SC2086  # the flags are words
$java $flags -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format --ignore-formatted ${PYCLIENT_FORMAT_FLAGS:-} -t "$CLUSTER_ID" -c "$config"
# shellcheck disable=SC2086
exec $java $flags ${KAFKA_OPTS:-} -cp '/opt/kafka/libs/*' kafka.Kafka "$config"
