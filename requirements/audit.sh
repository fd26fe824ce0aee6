#!/bin/sh
# Asks a source of advisories about every package that requirements/*.txt pins for this Python, or that the given files
# pin. ADVISORIES is the address of the source, which must speak as OSV does; PYTHON is the Python to run pip-audit with.
#
# Exits with 0 when the source knows no vulnerability, 1 when it knows one, 3 when no source answered for every package.
# It never takes silence for good news: the source must first name the vulnerabilities of a package that is known to
# have some.
set -u
cd "$(dirname "$0")/.." || exit 3
source=${ADVISORIES:-https://api.osv.dev/v1/query}
folder=$(mktemp -d) || exit 3
trap 'rm -rf "$folder"' EXIT

ask() { # ask FILE...: prints what is known; its conclusion goes to $folder/said
  for file; do shift && set -- "$@" --requirement "$file"; done
  "${PYTHON:-python3}" -m pip_audit "$@" --vulnerability-service osv --osv-url "$source" --timeout 15 \
    --disable-pip --require-hashes --strict --progress-spinner off 2>"$folder/said"
}

no_source() {
  tail -1 "$folder/said" >&2
  echo "No source of advisories answered at $source: nothing is known about these packages." >&2
  exit 3
}

printf 'jinja2==2.4.1 --hash=sha256:%064d\n' 0 >"$folder/known.txt"
ask "$folder/known.txt" >/dev/null
grep -q '^Found [0-9]* known' "$folder/said" || no_source

[ $# -gt 0 ] || set -- requirements/*.txt
if ask "$@"; then
  grep -q '^No known vulnerabilities found' "$folder/said" || no_source
  echo "No known vulnerability in $*, says $source."
else
  grep -q '^Found [0-9]* known' "$folder/said" || no_source
  grep '^Found [0-9]* known' "$folder/said" >&2
  exit 1
fi
