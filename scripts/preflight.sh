#!/usr/bin/env bash
# Checks the tools that the lab's make targets need. Exits with 1 if one is missing for TARGET (local or aws).

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="${TARGET:-local}"
missing=0
unneeded=0

found() { printf '  + %-12s %s\n' "$1" "$2"; }

# lacks TOOL TARGET WHAT_NEEDS_IT: it counts only if the target is the one that is checked.
lacks() {
  printf '  - %-12s %s\n' "$1" "$3"
  if [[ "$2" == local || "$2" == "$target" ]]; then missing=$((missing + 1)); else unneeded=$((unneeded + 1)); fi
}

if [[ "$target" != local && "$target" != aws ]]; then
  echo "TARGET must be local or aws, not $target." >&2
  exit 2
fi
echo "For TARGET=$target"

python="${PYTHON:-python3}"
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  found python "$("$python" --version 2>&1)"
else
  lacks python local "Python 3.11 or later is needed by everything: make preflight PYTHON=python3.13"
fi

if [[ -x "$root/.venv/bin/penstock" ]] && "$root/.venv/bin/python" -c 'import boto3' 2>/dev/null; then
  found venv "$root/.venv"
else
  found venv "not there yet: the first target that needs it makes it (make venv)"
fi

if terraform="$(command -v terraform)"; then
  version="$(terraform version 2>/dev/null | sed -n 's/^Terraform v\([0-9.]*\).*/\1/p')"
  if [[ "$(printf '1.5\n%s\n' "$version" | sort -V | head -n 1)" == 1.5 ]]; then
    found terraform "$version, $terraform"
  else
    lacks terraform aws "$version is too old: make infra-up TARGET=aws needs 1.5 or later"
  fi
else
  lacks terraform aws "not found: needed by make infra-up TARGET=aws"
fi

if "$root/scripts/aws_credentials.sh" 2>/dev/null; then
  found credentials "for AWS, profile ${AWS_PROFILE:-default}"
else
  lacks credentials aws "for AWS not found: needed by everything with TARGET=aws (aws configure, or AWS_PROFILE)"
fi

if ((missing)); then
  echo "$missing missing." >&2
  exit 1
fi
only_aws=""
if ((unneeded == 1)); then only_aws="; the one marked - is for TARGET=aws"; fi
if ((unneeded > 1)); then only_aws="; those marked - are for TARGET=aws"; fi
echo "Nothing is missing for TARGET=$target$only_aws."
