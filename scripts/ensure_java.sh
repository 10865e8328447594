#!/bin/sh
# Spark needs Java 17 or newer. Use the one there is; else install the system's headless one, where that is allowed.
set -eu

OLDEST=17

version_of() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

good() {
    command -v "$1" >/dev/null 2>&1 || return 1
    found=$(version_of "$1")
    [ -n "$found" ] && [ "$found" -ge "$OLDEST" ]
}

stop() {
    echo "penstock needs Java $OLDEST or newer for Spark: $1" >&2
    exit 1
}

if [ -n "${JAVA_HOME:-}" ]; then
    good "$JAVA_HOME/bin/java" && exit 0
    stop "JAVA_HOME points to none; correct it or unset it"
fi
good java && exit 0

command -v apt-get >/dev/null 2>&1 || stop "install a JRE with your system's packages, or set JAVA_HOME"
if [ "$(id -u)" -eq 0 ]; then
    root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    stop "ask for the package openjdk-17-jre-headless, or set JAVA_HOME"
fi

echo "installing openjdk-17-jre-headless" >&2
export DEBIAN_FRONTEND=noninteractive
install="$root apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless"
$install >/dev/null 2>&1 || { $root apt-get update -qq >/dev/null 2>&1 && $install >/dev/null; } ||
    stop "the package openjdk-17-jre-headless could not be installed"
good java || stop "the installed one does not start"
