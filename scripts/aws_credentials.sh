#!/usr/bin/env bash
# Exits with 0 if there are credentials for AWS. They are looked for, and neither shown nor used.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
if [[ -x "$root/.venv/bin/python" ]]; then
  exec "$root/.venv/bin/python" -c '
import sys

import boto3

sys.exit(boto3.session.Session().get_credentials() is None)
'
fi
[[ -n "${AWS_ACCESS_KEY_ID:-}" || -f "${AWS_SHARED_CREDENTIALS_FILE:-$HOME/.aws/credentials}" ]]
