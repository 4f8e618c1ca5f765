#!/bin/sh
# Formats the data folder unless it is formatted, then becomes the broker.
#
#   KAFKA_<NAME>      a broker property: _ stands for ., __ for _ and ___ for -; the value is written as it is
#   KAFKA_HEAP_OPTS   flags of the JVM, by default -Xmx512m
#   CLUSTER_ID        the cluster's id, equal on all its brokers
set -eu

: "${CLUSTER_ID:?the id of the cluster, equal on all its brokers}"
config=/etc/kafka/server.properties

# Passwords may be among the values.
umask 077
awk 'BEGIN {
    for (name in ENVIRON) {
        if (name !~ /^KAFKA_/ || name == "KAFKA_HEAP_OPTS") continue
        key = tolower(substr(name, 7))
        gsub(/___/, "\001", key); gsub(/__/, "\002", key); gsub(/_/, ".", key)
        gsub(/\001/, "-", key); gsub(/\002/, "_", key)
        print key "=" ENVIRON[name]
    }
}' >"$config"

run_java() {
    # Unquoted on purpose: several flags in one variable.
    # shellcheck disable=SC2086
    "$@" java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto \
        -Dorg.slf4j.simpleLogger.showDateTime=true \
        -Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn \
        -cp '/opt/kafka/libs/*' $main
}

main="kafka.tools.StorageTool format --ignore-formatted --cluster-id $CLUSTER_ID --config $config"
run_java command
main="kafka.Kafka $config"
run_java exec
