#!/usr/bin/env bash
# Sends messages to the queue of .env or of Terraform's outputs: scripts/run_producer.sh --n 25 --rate 5

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
make --silent -C "$root" venv >&2
exec "$root/scripts/set_env.sh" "$root/.venv/bin/penstock" lab produce "$@"
