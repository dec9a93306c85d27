# A queue, a dead-letter queue and two tables for every scenario of the lab, so that none disturbs another.

locals {
  scenarios = toset([
    "happy",
    "crash",
    "duplicates",
    "business-idempotency",
    "poison",
    "partial-batch",
    "side-effects",
    "graceful-shutdown",
    "fifo-order",
    "backpressure",
    "purge-timing",
    "out-of-order",
    "backlog-drain",
    "dlq-redrive",
    "double-send",
    "lost-response",
    "lease-theft",
    "noisy-neighbour",
    "retry-storm",
  ])

  # These have a FIFO queue too: for one of their two variants, or for their knob "fifo".
  fifo = toset(["fifo-order", "double-send", "lost-response", "lease-theft"])

  # A queue and its dead-letter queue are of one kind. The names of FIFO queues end in .fifo.
  queues = merge(
    { for name in local.scenarios : name => { scenario = name, suffix = "" } },
    { for name in local.fifo : "${name}.fifo" => { scenario = name, suffix = ".fifo" } },
  )

  # The queue that the protected variant of a scenario uses.
  first = { for name in local.scenarios : name => contains(local.ordered, name) ? "${name}.fifo" : name }

  ordered      = toset(["fifo-order", "lost-response", "lease-theft"])
  receives_max = 2
}

resource "aws_sqs_queue" "dead_letters" {
  for_each = local.queues

  name                      = "${var.project_name}-${each.value.scenario}-dlq${each.value.suffix}"
  fifo_queue                = each.value.suffix == ".fifo" ? true : null
  message_retention_seconds = 1209600
}

resource "aws_sqs_queue" "main" {
  for_each = local.queues

  name                       = "${var.project_name}-${each.value.scenario}-queue${each.value.suffix}"
  fifo_queue                 = each.value.suffix == ".fifo" ? true : null
  visibility_timeout_seconds = var.queue_visibility_timeout
  receive_wait_time_seconds  = var.queue_receive_wait

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters[each.key].arn
    maxReceiveCount     = local.receives_max
  })
}

resource "aws_dynamodb_table" "message_status" {
  for_each = local.scenarios

  name         = "${var.project_name}-${each.key}-message-status"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "message_id"

  attribute {
    name = "message_id"
    type = "S"
  }
}

resource "aws_dynamodb_table" "message_side_effects" {
  for_each = local.scenarios

  name         = "${var.project_name}-${each.key}-message-side-effects"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "message_id"

  attribute {
    name = "message_id"
    type = "S"
  }
}
