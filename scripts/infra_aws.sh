#!/usr/bin/env bash
# Makes the queues and tables of the lab on AWS with Terraform and writes .env, or removes them:
#   scripts/infra_aws.sh up|down [arguments of terraform apply or destroy]

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
names=(QUEUE_URL DLQ_ARN AWS_REGION MESSAGE_STATUS_TABLE MESSAGE_SIDE_EFFECTS_TABLE)

fail() {
  echo "error: $1" >&2
  echo "  try  $2" >&2
  exit "$3"
}

in_terraform() { terraform -chdir="$root/terraform" "$@"; }

action="${1:-}"
[[ "$action" == up || "$action" == down ]] || fail "Say up or down, not '$action'." "make infra-up TARGET=aws" 2
shift

command -v terraform >/dev/null ||
  fail "Terraform is not installed; on AWS it makes the queues and tables." "make infra-up, which needs no cloud" 1
"$root/scripts/aws_credentials.sh" || fail "There are no credentials for AWS." "aws configure, or set AWS_PROFILE" 5

# A file with settings of somebody else is not overwritten.
pattern="$(IFS='|'; echo "${names[*]}")"
if [[ -f "$root/.env" ]] && grep -qvE "^(export )?($pattern)=|^#|^[[:space:]]*$" "$root/.env"; then
  fail ".env has other settings, which would be lost." "move it, and run this again" 1
fi

in_terraform init -input=false
if [[ "$action" == down ]]; then
  in_terraform destroy "$@"
  if grep -qs '^QUEUE_URL=.*amazonaws\.com' "$root/.env"; then rm "$root/.env"; fi
  exit
fi
in_terraform apply "$@"
written=""
for name in "${names[@]}"; do
  value="$(in_terraform output -raw "$(tr '[:upper:]' '[:lower:]' <<<"$name")")"
  written+="$name=$value"$'\n'
done
printf '%s' "$written" >"$root/.env.new"
mv "$root/.env.new" "$root/.env"
echo "Wrote .env. Next: make validate TARGET=aws"
