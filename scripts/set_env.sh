#!/usr/bin/env bash
# Loads the queue and the tables of the lab: what you have set stays, .env comes next, then the outputs of Terraform.
#
#   source scripts/set_env.sh                         sets them in this shell (bash)
#   scripts/set_env.sh penstock lab consume           runs one command with them
#   scripts/set_env.sh                                prints them as export lines

if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
  # Sourced: the options below must not change the shell of the reader.
  eval "$(bash "${BASH_SOURCE[0]}")"
  return
fi

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
names=(QUEUE_URL DLQ_ARN AWS_REGION MESSAGE_STATUS_TABLE MESSAGE_SIDE_EFFECTS_TABLE)

lower() { tr '[:upper:]' '[:lower:]' <<<"$1"; }

load_file() {
  local line name value
  while IFS= read -r line || [[ -n "$line" ]]; do
    line="${line#export }"
    [[ "$line" =~ ^([A-Z_][A-Z0-9_]*)=(.*)$ ]] || continue
    name="${BASH_REMATCH[1]}" value="${BASH_REMATCH[2]}"
    if [[ "$value" =~ ^\"(.*)\"$ || "$value" =~ ^\'(.*)\'$ ]]; then value="${BASH_REMATCH[1]}"; fi
    if [[ -z "${!name:-}" ]]; then export "$name=$value"; loaded+=("$name"); fi
  done <"$1"
}

load_terraform() {
  local name value
  [[ -s "$root/terraform/terraform.tfstate" ]] && command -v terraform >/dev/null || return 0
  for name in "${names[@]}"; do
    if [[ -z "${!name:-}" ]] && value="$(terraform -chdir="$root/terraform" output -raw "$(lower "$name")" 2>/dev/null)"; then
      export "$name=$value"
      loaded+=("$name")
    fi
  done
}

loaded=()
if [[ -f "$root/.env" ]]; then load_file "$root/.env"; fi
load_terraform

if (($#)); then exec "$@"; fi
for name in ${loaded[@]+"${loaded[@]}"}; do printf 'export %s=%q\n' "$name" "${!name}"; done
